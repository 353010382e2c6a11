//! How often something may happen in a second.

use std::time::{Duration, Instant};

/// Counts events by the second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rate {
    since: Option<Instant>,
    count: u32,
}

impl Rate {
    /// Takes note of an event; returns whether it is within `max` of its second.
    pub(crate) fn permits(&mut self, now: Instant, max: u32) -> bool {
        let is_same = |since: Instant| now.saturating_duration_since(since) < SECOND;
        if !self.since.is_some_and(is_same) {
            *self = Self {
                since: Some(now),
                count: 0,
            };
        }
        self.count = self.count.saturating_add(1);
        self.count <= max
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::epoch;

    #[test]
    fn so_many_in_a_second_and_not_one_more() {
        let (start, mut rate) = (epoch(), Rate::default());
        for _ in 0..3 {
            assert!(rate.permits(start, 3));
        }
        assert!(!rate.permits(start + Duration::from_millis(999), 3));
        assert!(rate.permits(start + SECOND, 3));
        assert!(!Rate::default().permits(start, 0));
    }
}
