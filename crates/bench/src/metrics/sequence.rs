//! The set of numbers seen of a sequence, in fixed memory.

use crate::limits::SEQUENCE_WINDOW;

/// The numbers seen. Exact for the newest 32,768; of older ones only a summary is kept.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    /// The lowest number in `words`, a multiple of 64.
    base: u64,
    lowest: u64,
    highest: u64,
    unique: u64,
    /// The lowest number not seen at or after `lowest`, or one past the highest if there is no gap.
    frontier: u64,
    /// Whether the window has passed the frontier, which then stays where it is.
    frontier_final: bool,
    /// A ring: number `n` is bit `n % 64` of word `n / 64 % WORDS`.
    words: [u64; WORDS],
}

/// The kind of an arrived number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Never seen before, and the highest.
    Next,
    /// Never seen before, but a higher one was.
    Reordered,
    /// Seen before.
    Duplicate,
    /// Too far behind the highest to tell.
    Stale,
}

impl Sequence {
    pub(super) fn new() -> Self {
        Self {
            base: 0,
            lowest: 0,
            highest: 0,
            unique: 0,
            frontier: 0,
            frontier_final: false,
            words: [0; WORDS],
        }
    }

    /// Records `number`, which is below 2^63.
    pub(super) fn insert(&mut self, number: u64) -> Arrival {
        if self.unique == 0 {
            self.base = number.saturating_sub(WINDOW / 2) & !63;
            (self.lowest, self.highest, self.frontier) = (number, number, number);
        }
        if number < self.base {
            return Arrival::Stale;
        }
        if number >= self.base + WINDOW {
            self.advance(number);
        }
        let (word, bit) = place(number);
        if self.words[word] & bit != 0 {
            return Arrival::Duplicate;
        }
        self.words[word] |= bit;
        self.unique += 1;
        let arrival = if number < self.highest {
            Arrival::Reordered
        } else {
            Arrival::Next
        };
        self.highest = self.highest.max(number);
        if number < self.lowest {
            if number + 1 != self.lowest && !self.frontier_final {
                self.frontier = number + 1;
            }
            self.lowest = number;
        } else if number == self.frontier {
            self.move_frontier();
        }
        arrival
    }

    /// Returns how many distinct numbers were seen.
    pub(super) fn unique(&self) -> u64 {
        self.unique
    }

    /// Returns the lowest and the highest number seen.
    pub(super) fn range(&self) -> Option<(u64, u64)> {
        (self.unique > 0).then_some((self.lowest, self.highest))
    }

    /// Returns the first gap between the lowest and the highest number.
    pub(super) fn first_gap(&self) -> Option<u64> {
        (self.unique > 0 && self.frontier <= self.highest).then_some(self.frontier)
    }

    /// Moves the window so that it covers `number`.
    fn advance(&mut self, number: u64) {
        let base = ((number - WINDOW) / 64 + 1) * 64;
        let words = ((base - self.base) / 64).min(WORDS as u64);
        for offset in 0..words {
            let (word, _) = place(self.base + offset * 64);
            self.words[word] = 0;
        }
        self.base = base;
        self.frontier_final |= self.frontier < base;
    }

    fn move_frontier(&mut self) {
        while self.frontier <= self.highest {
            let (word, _) = place(self.frontier);
            let shift = self.frontier % 64;
            let seen = u64::from((self.words[word] >> shift).trailing_ones());
            self.frontier += seen;
            if seen < 64 - shift {
                return;
            }
        }
    }
}

fn place(number: u64) -> (usize, u64) {
    // The number of words is a power of two, so the lowest bits are the remainder.
    ((number / 64) as usize & (WORDS - 1), 1 << (number % 64))
}

const WINDOW: u64 = SEQUENCE_WINDOW as u64;
const WORDS: usize = SEQUENCE_WINDOW / 64;
const _: () = assert!(WORDS.is_power_of_two());

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn inserted(numbers: impl IntoIterator<Item = u64>) -> Sequence {
        let mut sequence = Sequence::new();
        for number in numbers {
            sequence.insert(number);
        }
        sequence
    }

    #[test]
    fn nothing_seen_has_no_range() {
        let sequence = Sequence::new();
        assert_eq!(
            (sequence.unique(), sequence.range(), sequence.first_gap()),
            (0, None, None)
        );
    }

    #[test]
    fn the_window_is_exact_to_its_edge() {
        let mut sequence = inserted([0, WINDOW - 1]);
        assert_eq!(sequence.insert(0), Arrival::Duplicate);
        assert_eq!(sequence.insert(1), Arrival::Reordered);
        assert_eq!(sequence.insert(WINDOW), Arrival::Next);
        assert_eq!(sequence.insert(63), Arrival::Stale);
        assert_eq!(sequence.insert(64), Arrival::Reordered);
        assert_eq!(sequence.unique(), 5);
    }

    #[test]
    fn a_late_joiner_still_sees_what_was_reordered() {
        let mut sequence = inserted([1_000_000]);
        assert_eq!(sequence.insert(999_000), Arrival::Reordered);
        assert_eq!(sequence.range(), Some((999_000, 1_000_000)));
        assert_eq!(sequence.first_gap(), Some(999_001));
        assert_eq!(sequence.insert(1), Arrival::Stale);
    }

    #[test]
    fn the_first_gap_outlives_the_window() {
        let mut sequence = inserted((0..5).chain(6..100_000));
        assert_eq!(sequence.first_gap(), Some(5));
        assert_eq!(sequence.insert(5), Arrival::Stale);
        assert_eq!(sequence.unique(), 99_999);
        sequence = inserted(0..100_000);
        assert_eq!(sequence.first_gap(), None);
    }

    #[test]
    fn a_giant_leap_leaves_nothing_behind() {
        let mut sequence = inserted(0..1_000);
        assert_eq!(sequence.insert(1 << 62), Arrival::Next);
        assert_eq!(sequence.insert((1 << 62) - 5), Arrival::Reordered);
        assert_eq!(
            (sequence.unique(), sequence.first_gap()),
            (1_002, Some(1_000))
        );
    }

    proptest! {
        #[test]
        fn agrees_with_a_set(numbers in prop::collection::vec(500u64..1_500, 1..400)) {
            let mut sequence = Sequence::new();
            let mut model = BTreeSet::new();
            for number in numbers {
                let expected = match model.last() {
                    _ if model.contains(&number) => Arrival::Duplicate,
                    Some(highest) if number < *highest => Arrival::Reordered,
                    _ => Arrival::Next,
                };
                model.insert(number);
                prop_assert_eq!(sequence.insert(number), expected);
                let (lowest, highest) = sequence.range().unwrap();
                prop_assert_eq!(Some(&lowest), model.first());
                prop_assert_eq!(Some(&highest), model.last());
                prop_assert_eq!(sequence.unique(), model.len() as u64);
                let gap = (lowest..highest).find(|number| !model.contains(number));
                prop_assert_eq!(sequence.first_gap(), gap);
            }
        }
    }
}
