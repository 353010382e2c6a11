//! Frame numbers that continue from one publisher to the next.

/// Numbers the frames of successive publishers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Numbering {
    /// The number of the publisher's first frame, if another publisher preceded.
    next: Option<u64>,
    /// The publisher's number of its first frame here, and the number that replaces it.
    counts_as: Option<(u64, u64)>,
}

impl Numbering {
    /// Returns numbers that follow `last`, the highest so far.
    pub(super) fn after(last: Option<u64>) -> Self {
        Self {
            next: last.map(|last| last.saturating_add(1)),
            counts_as: None,
        }
    }

    /// Returns the number of a frame with the publisher's number `sent`.
    pub(super) fn number(&mut self, sent: u64) -> u64 {
        let begin = self.next.unwrap_or(sent);
        let (from, counts_as) = *self.counts_as.get_or_insert((sent, begin));
        match sent.checked_sub(from) {
            Some(after) => counts_as.saturating_add(after),
            None => counts_as.saturating_sub(from - sent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_one_publisher_after_the_other_are_counted_on_whatever_their_numbers_are() {
        let mut first = Numbering::default();
        assert_eq!([7, 9, 6].map(|sent| first.number(sent)), [7, 9, 6]);
        let mut next = Numbering {
            next: Some(10),
            counts_as: None,
        };
        assert_eq!([500, 502, 499].map(|sent| next.number(sent)), [10, 12, 9]);
        assert_eq!(
            [0, u64::MAX].map(|sent| next.number(sent)),
            [0, u64::MAX - 490]
        );
        let mut last = Numbering {
            next: Some(u64::MAX),
            counts_as: None,
        };
        assert_eq!([0, 1].map(|sent| last.number(sent)), [u64::MAX; 2]);
    }
}
