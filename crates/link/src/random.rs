//! The emulator's own random generator, so that a seed gives the same numbers in every build.
//!
//! The generator is xoshiro256++ 1.0, its state filled by `SplitMix64`, as their authors recommend.
//! Both are by David Blackman and Sebastiano Vigna, in the public domain: see
//! <https://prng.di.unimi.it/xoshiro256plusplus.c> and <https://prng.di.unimi.it/splitmix64.c>.

use crate::config::Probability;

/// A small, fast, seeded random generator. Not for secrets.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// Returns a generator whose whole sequence derives from `seed`.
    pub fn new(seed: u64) -> Self {
        let mut filler = seed;
        Self {
            state: [(); 4].map(|()| split_mix_64(&mut filler)),
        }
    }

    /// Returns an independent generator, seeded from this one.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }

    /// Returns the next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let output = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        output
    }

    /// Returns a number from 0 up to but not including `bound`; 0 if `bound` is 0.
    ///
    /// The bias of at most `bound / 2^64` is negligible for the bounds used here.
    pub fn below(&mut self, bound: u64) -> u64 {
        let product = u128::from(self.next_u64()) * u128::from(bound);
        (product >> 64) as u64
    }

    /// Draws whether an event of this probability happens.
    pub fn chance(&mut self, probability: Probability) -> bool {
        let unit = f64::from((self.next_u64() >> 32) as u32) / (f64::from(u32::MAX) + 1.0);
        unit < probability.value()
    }

    /// Returns a number from an almost normal distribution with mean 0 and the given standard deviation.
    ///
    /// The number is the sum of twelve uniform ones (variance 12 · 1/12), so it stays within six deviations. Integer
    /// arithmetic makes it the same on every machine.
    pub fn normal(&mut self, deviation: u64) -> i128 {
        let sum: u64 = (0..12).map(|_| self.next_u64() >> 32).sum();
        let centred = i128::from(sum) - (6 << 32);
        (centred * i128::from(deviation)) >> 32
    }
}

fn split_mix_64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_mix_64_gives_the_reference_sequence() {
        let mut state = 1_234_567;
        let output = [(); 5].map(|()| split_mix_64(&mut state));
        assert_eq!(
            output,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821,
            ]
        );
    }

    #[test]
    fn xoshiro_gives_the_reference_sequence() {
        let mut random = Random {
            state: [1, 2, 3, 4],
        };
        let output = [(); 10].map(|()| random.next_u64());
        assert_eq!(
            output,
            [
                41_943_041,
                58_720_359,
                3_588_806_011_781_223,
                3_591_011_842_654_386,
                9_228_616_714_210_784_205,
                9_973_669_472_204_895_162,
                14_011_001_112_246_962_877,
                12_406_186_145_184_390_807,
                15_849_039_046_786_891_736,
                10_450_023_813_501_588_000,
            ]
        );
    }

    #[test]
    fn certain_and_impossible_things_are_so() {
        let mut random = Random::new(1);
        assert!((0..10_000).all(|_| random.chance(Probability::ONE)));
        assert!((0..10_000).all(|_| !random.chance(Probability::ZERO)));
        // This state gives 2^23, whose upper half is zero.
        let mut zero = Random {
            state: [0, 0, 0, 1],
        };
        assert!(!zero.chance(Probability::ZERO));
    }

    #[test]
    fn numbers_stay_below_their_bound_and_reach_both_ends() {
        let mut random = Random::new(2);
        let drawn: Vec<u64> = (0..1000).map(|_| random.below(7)).collect();
        assert_eq!(
            (drawn.iter().min(), drawn.iter().max()),
            (Some(&0), Some(&6))
        );
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn normal_numbers_have_their_mean_and_deviation() {
        let mut random = Random::new(3);
        let drawn: Vec<i128> = (0..100_000).map(|_| random.normal(1_000_000)).collect();
        let mean = drawn.iter().sum::<i128>() / 100_000;
        let variance = drawn.iter().map(|value| value * value).sum::<i128>() / 100_000;
        assert!(mean.abs() < 15_000, "mean {mean}");
        assert!(
            (980_000_000_000..1_020_000_000_000).contains(&variance),
            "variance {variance}"
        );
    }

    #[test]
    fn forks_differ_from_their_parent_and_from_each_other() {
        let mut parent = Random::new(4);
        let mut firsts = [parent.fork(), parent.fork(), parent.clone()].map(|mut r| r.next_u64());
        firsts.sort_unstable();
        assert!(firsts.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
