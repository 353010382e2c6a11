//! The pauses between attempts to connect.

use std::time::Duration;

/// The pauses between attempts to connect: each about twice as long as the one before, up to a maximum.
///
/// Each pause is shortened by up to half, at random from a seed. So clients that lost one server at the same time do
/// not reconnect at the same time.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    next: Duration,
    state: u64,
}

impl Backoff {
    /// Returns pauses from about `first` to about `max`.
    pub fn new(first: Duration, max: Duration, seed: u64) -> Self {
        Self {
            first,
            max,
            next: first.min(max),
            state: seed,
        }
    }

    /// Returns the pause after a failed attempt or a lost session.
    pub fn pause(&mut self) -> Duration {
        let longest = self.next;
        self.next = longest.saturating_mul(2).min(self.max);
        // Knuth's linear congruential generator; its upper bits are good enough to spread pauses.
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
        let half = longest / 2;
        half + half.mul_f64(f64::from((self.state >> 32) as u32) / f64::from(u32::MAX))
    }

    /// Makes the next pause short again, after a session was established.
    pub fn reset(&mut self) {
        self.next = self.first.min(self.max);
    }
}

const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
const INCREMENT: u64 = 1_442_695_040_888_963_407;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_maximum_and_begin_again() {
        let milliseconds = Duration::from_millis;
        let mut backoff = Backoff::new(milliseconds(100), milliseconds(1000), 7);
        let mut expect = |longest: u64| {
            let pause = backoff.pause();
            assert!(
                (milliseconds(longest / 2)..=milliseconds(longest)).contains(&pause),
                "{pause:?} for {longest} ms"
            );
        };
        for longest in [100, 200, 400, 800, 1000, 1000] {
            expect(longest);
        }
        backoff.reset();
        assert!(backoff.pause() <= milliseconds(100));
    }

    #[test]
    fn equal_seeds_give_equal_pauses_and_others_do_not() {
        let pauses = |seed| {
            let mut backoff = Backoff::new(Duration::from_secs(1), Duration::MAX, seed);
            [(); 4].map(|()| backoff.pause())
        };
        assert_eq!(pauses(1), pauses(1));
        assert_ne!(pauses(1), pauses(2));
    }
}
