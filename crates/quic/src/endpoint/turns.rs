//! Connections that may have events, in the order in which they are asked for some.

use std::collections::VecDeque;

/// Connections that wait for their turn, each at most once. Those whose events did not fit into one turn wait until the others
/// have had theirs.
#[derive(Debug, Default)]
pub(super) struct Turns {
    fresh: VecDeque<u32>,
    busy: VecDeque<u32>,
    /// Number of turns so far.
    count: u64,
}

impl Turns {
    pub(super) fn push(&mut self, index: u32) {
        self.fresh.push_back(index);
    }

    /// Adds a connection that may have more events after its turn.
    pub(super) fn push_busy(&mut self, index: u32) {
        self.busy.push_back(index);
    }

    /// Takes the connection whose turn it is.
    pub(super) fn next(&mut self) -> Option<u32> {
        self.count += 1;
        let (first, second) = if self.count.is_multiple_of(BUSY_EVERY) {
            (&mut self.busy, &mut self.fresh)
        } else {
            (&mut self.fresh, &mut self.busy)
        };
        first.pop_front().or_else(|| second.pop_front())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.busy.is_empty()
    }
}

/// Every eighth turn is a busy connection's, so that the others do not hold it up for ever.
const BUSY_EVERY: u64 = 8;
