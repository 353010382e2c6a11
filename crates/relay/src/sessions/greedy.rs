//! Sessions that are closed because memory runs out: those that hold the most.

use std::{cmp::Reverse, collections::VecDeque};

use weir_quic::Handle;

/// The search for the sessions that hold the most, and those of them that are to be closed.
#[derive(Debug, Default)]
pub(crate) struct Greedy {
    /// Bytes to free.
    bytes: u64,
    /// Sessions that the search has not come to.
    unseen: VecDeque<Handle>,
    /// Those that hold much, with the bytes.
    found: Vec<(u64, Handle)>,
    /// Those to close, the one that holds the most first.
    closing: VecDeque<(u64, Handle)>,
}

impl Greedy {
    /// Notes that `bytes` are to be freed, and begins a search among `sessions` unless one is under way. Returns whether it
    /// begins.
    pub(crate) fn begin(&mut self, bytes: u64, sessions: impl FnOnce() -> Vec<Handle>) -> bool {
        self.bytes = bytes;
        if self.is_searching() {
            return false;
        }
        self.unseen = sessions().into();
        self.found.clear();
        true
    }

    /// Returns whether there are sessions that the search has not come to.
    pub(crate) fn is_searching(&self) -> bool {
        !self.unseen.is_empty()
    }

    /// Returns whether nothing is left to search or to close.
    pub(crate) fn is_idle(&self) -> bool {
        self.unseen.is_empty() && self.closing.is_empty()
    }

    /// Takes the next sessions to look at: as many as one turn has time for, by the number of requests that each has.
    pub(crate) fn next_unseen(&mut self, mut requests: impl FnMut(Handle) -> usize) -> Vec<Handle> {
        let (mut taken, mut work) = (Vec::new(), 0);
        while taken.len() < LOOKED_AT_PER_TURN
            && work < REQUESTS_PER_TURN
            && let Some(handle) = self.unseen.pop_front()
        {
            work += requests(handle);
            taken.push(handle);
        }
        taken
    }

    /// Notes how many bytes some sessions hold. At the end of the search, as many are chosen as it takes.
    pub(crate) fn note(&mut self, held: impl IntoIterator<Item = (u64, Handle)>) {
        let many = held
            .into_iter()
            .filter(|&(bytes, _)| bytes >= HELD_BYTES_MIN);
        self.found.extend(many);
        self.found
            .sort_unstable_by_key(|&(bytes, _)| Reverse(bytes));
        self.found.truncate(CLOSED_AT_ONCE_MAX);
        if self.is_searching() {
            return;
        }
        self.closing.clear();
        let mut rest = self.bytes;
        for (bytes, handle) in std::mem::take(&mut self.found) {
            if rest == 0 {
                break;
            }
            rest = rest.saturating_sub(bytes);
            self.closing.push_back((bytes, handle));
        }
    }

    /// Takes the next session to close, with the bytes that it holds.
    pub(crate) fn next_to_close(&mut self) -> Option<(u64, Handle)> {
        self.closing.pop_front()
    }
}

/// Bytes from which a session may be closed to free memory. A session that only watches holds a few KiB.
const HELD_BYTES_MIN: u64 = 64 << 10;
/// Sessions that are looked at in one turn, and requests of theirs: the last session may have more.
const LOOKED_AT_PER_TURN: usize = 512;
const REQUESTS_PER_TURN: usize = 4096;
/// Sessions that are closed before memory is measured again.
const CLOSED_AT_ONCE_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::handles;

    #[test]
    fn as_many_are_closed_as_it_takes_and_those_that_hold_most() {
        let all: [Handle; 3] = handles();
        let mut greedy = Greedy::default();
        assert!(greedy.begin(500 << 10, || all.to_vec()));
        assert!(!greedy.begin(600 << 10, || panic!("one is under way")));
        let seen = greedy.next_unseen(|_| 0);
        assert_eq!(seen, all);
        let held = [HELD_BYTES_MIN - 1, 400 << 10, 700 << 10];
        greedy.note(held.into_iter().zip(seen));
        assert!(!greedy.is_searching() && !greedy.is_idle());
        assert_eq!(greedy.next_to_close(), Some((700 << 10, all[2])));
        assert_eq!(greedy.next_to_close(), None);
        assert!(greedy.is_idle());
    }

    #[test]
    fn a_search_goes_on_over_turns() {
        let [one]: [Handle; 1] = handles();
        let mut greedy = Greedy::default();
        greedy.begin(1, || vec![one; 2 * LOOKED_AT_PER_TURN + 1]);
        for looked_at in [LOOKED_AT_PER_TURN, LOOKED_AT_PER_TURN, 1] {
            assert!(greedy.is_searching());
            assert_eq!(greedy.next_unseen(|_| 0).len(), looked_at);
            greedy.note([(1 << 20, one)]);
        }
        assert!(!greedy.is_searching());
        assert_eq!(greedy.next_to_close(), Some((1 << 20, one)));
    }

    #[test]
    fn few_sessions_with_many_requests_are_looked_at_in_a_turn() {
        let [one]: [Handle; 1] = handles();
        let mut greedy = Greedy::default();
        greedy.begin(1, || vec![one; 5]);
        let mut look = |requests| greedy.next_unseen(|_| requests).len();
        assert_eq!(look(REQUESTS_PER_TURN), 1);
        assert_eq!(look(REQUESTS_PER_TURN / 2), 2);
        assert_eq!(look(0), 2);
    }
}
