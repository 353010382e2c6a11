//! Delivers a track as one stream: its groups one after the other.

use std::collections::{BTreeMap, BTreeSet};

use crate::limits::SEQUENCE_FRAMES_MAX;

/// Holds the items of a group until the previous group has ended, as a single stream would.
#[derive(Debug)]
pub(crate) struct Sequence<T> {
    /// The group whose items are released.
    current: Option<u64>,
    ended: BTreeSet<u64>,
    waiting: BTreeMap<u64, Vec<T>>,
    /// The number of waiting items, over all groups.
    count: usize,
}

impl<T> Sequence<T> {
    pub(crate) fn new() -> Self {
        Self {
            current: None,
            ended: BTreeSet::new(),
            waiting: BTreeMap::new(),
            count: 0,
        }
    }

    /// Takes an item of a group.
    pub(crate) fn push(&mut self, group: u64, item: T) {
        self.current.get_or_insert(group);
        self.waiting.entry(group).or_default().push(item);
        self.count += 1;
        if self.waiting.len() > GROUPS_MAX || self.count > SEQUENCE_FRAMES_MAX {
            self.current = self.waiting.first_key_value().map(|(group, _)| *group);
        }
    }

    /// Notes the end of a group.
    pub(crate) fn end(&mut self, group: u64) {
        self.ended.insert(group);
        while self.ended.len() > GROUPS_MAX {
            self.ended.pop_first();
        }
    }

    /// Returns the released items, in order.
    pub(crate) fn poll(&mut self) -> Vec<T> {
        let mut passing = Vec::new();
        while let Some(current) = self.current {
            passing.extend(self.waiting.remove(&current).into_iter().flatten());
            if !self.ended.remove(&current) {
                break;
            }
            self.current = current.checked_add(1);
        }
        self.count -= passing.len();
        passing
    }
}

/// Groups that may wait. Beyond this, the oldest is released.
const GROUPS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_pass_one_after_the_other() {
        let mut sequence = Sequence::new();
        sequence.push(3, 'a');
        assert_eq!(sequence.poll(), ['a']);
        sequence.push(4, 'd');
        sequence.push(5, 'e');
        sequence.push(3, 'b');
        sequence.end(4);
        assert_eq!(sequence.poll(), ['b']);
        sequence.push(3, 'c');
        sequence.end(3);
        assert_eq!(sequence.poll(), ['c', 'd', 'e']);
    }

    #[test]
    fn a_group_that_never_ends_does_not_hold_the_rest_for_ever() {
        let mut sequence = Sequence::new();
        sequence.push(0, 0);
        sequence.poll();
        for group in 1..=GROUPS_MAX as u64 {
            sequence.push(group, group);
            assert!(sequence.poll().is_empty());
        }
        sequence.push(GROUPS_MAX as u64 + 1, 0);
        assert_eq!(sequence.poll(), [1]);
    }

    #[test]
    fn so_many_frames_wait_for_the_end_of_a_group_and_no_more() {
        let mut sequence = Sequence::new();
        sequence.push(0, 0);
        assert_eq!(sequence.poll(), [0]);
        for number in 0..SEQUENCE_FRAMES_MAX {
            sequence.push(2, number);
            assert!(sequence.poll().is_empty());
        }
        sequence.push(3, 0);
        assert_eq!(sequence.poll().len(), SEQUENCE_FRAMES_MAX);
        sequence.end(2);
        assert_eq!(sequence.poll(), [0]);
        assert_eq!(sequence.count, 0);
    }
}
