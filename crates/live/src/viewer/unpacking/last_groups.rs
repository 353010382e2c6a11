//! A bounded map of the last groups.

use std::collections::VecDeque;

/// A value for each of the last groups. Beyond the limit, removes the group that was inserted first. The lowest number
/// may belong to a publisher that restarted.
#[derive(Debug)]
pub(super) struct LastGroups<T> {
    groups: VecDeque<(u64, T)>,
}

impl<T: Copy> LastGroups<T> {
    /// Returns an empty map.
    pub(super) fn new() -> Self {
        Self {
            groups: VecDeque::new(),
        }
    }

    /// Returns the value of a group.
    pub(super) fn get(&self, group: u64) -> Option<T> {
        let found = self.groups.iter().find(|(known, _)| *known == group);
        found.map(|(_, value)| *value)
    }

    /// Sets the value of a group.
    pub(super) fn insert(&mut self, group: u64, value: T) {
        let found = self.groups.iter_mut().find(|(known, _)| *known == group);
        if let Some((_, known)) = found {
            *known = value;
            return;
        }
        self.groups.push_back((group, value));
        if self.groups.len() > GROUPS_MAX {
            self.groups.pop_front();
        }
    }
}

/// Groups that are kept.
const GROUPS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_that_came_first_is_forgotten_whatever_its_number_is() {
        for numbers in [[0, 1, 2, 3, 4, 5, 6, 7, 8], [8, 7, 6, 5, 4, 3, 2, 1, 0]] {
            let mut groups = LastGroups::new();
            for group in numbers {
                groups.insert(group, 0);
                groups.insert(group, group + 1);
            }
            let known = numbers.map(|group| groups.get(group));
            let expected = numbers.map(|group| (group != numbers[0]).then_some(group + 1));
            assert_eq!(known, expected);
        }
    }

    #[test]
    fn as_many_as_may_be_are_remembered() {
        let mut groups = LastGroups::new();
        for group in 0..GROUPS_MAX as u64 {
            groups.insert(group, ());
        }
        assert_eq!(groups.get(0), Some(()));
        assert_eq!(groups.groups.len(), GROUPS_MAX);
    }
}
