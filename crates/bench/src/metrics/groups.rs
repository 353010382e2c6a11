//! Counts groups received in part and in whole, in fixed memory.

use crate::limits::GROUP_WINDOW;

/// Objects per group. Exact for the newest 512 groups.
#[derive(Clone, Debug)]
pub(super) struct Groups {
    any: u64,
    complete: u64,
    /// A ring: group `g` is counted in slot `g % GROUP_WINDOW`.
    numbers: [u64; GROUP_WINDOW],
    objects: [u32; GROUP_WINDOW],
}

impl Groups {
    pub(super) fn new() -> Self {
        Self {
            any: 0,
            complete: 0,
            numbers: [EMPTY; GROUP_WINDOW],
            objects: [0; GROUP_WINDOW],
        }
    }

    /// Counts a new object of `group`, which has `expected` objects in all.
    pub(super) fn insert(&mut self, group: u64, expected: u64) {
        if expected == 1 {
            self.any += 1;
            self.complete += 1;
            return;
        }
        let slot = slot_of(group);
        if self.numbers[slot] == group {
            self.objects[slot] += 1;
        } else if self.numbers[slot] == EMPTY || self.numbers[slot] < group {
            self.numbers[slot] = group;
            self.objects[slot] = 1;
            self.any += 1;
        } else {
            return;
        }
        if u64::from(self.objects[slot]) == expected {
            self.complete += 1;
        }
    }

    /// Returns the number of groups of which at least one object was received (decision 18).
    pub(super) fn any(&self) -> u64 {
        self.any
    }

    /// Returns the number of groups of which every object was received (decision 18).
    pub(super) fn complete(&self) -> u64 {
        self.complete
    }

    /// Returns the number of objects received of a recent group.
    pub(super) fn objects_in(&self, group: u64) -> u64 {
        let slot = slot_of(group);
        if self.numbers[slot] == group {
            u64::from(self.objects[slot])
        } else {
            0
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "only the lowest bits are kept"
)]
fn slot_of(group: u64) -> usize {
    // The number of slots is a power of two, so the lowest bits are the remainder.
    group as usize & (GROUP_WINDOW - 1)
}

const EMPTY: u64 = u64::MAX;
const _: () = assert!(GROUP_WINDOW.is_power_of_two());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_groups_in_part_from_groups_in_whole() {
        let mut groups = Groups::new();
        for group in [0, 0, 1, 0, 2, 1, 1] {
            groups.insert(group, 3);
        }
        assert_eq!((groups.any(), groups.complete()), (3, 2));
        assert_eq!((groups.objects_in(2), groups.objects_in(7)), (1, 0));
    }

    #[test]
    fn a_group_is_followed_to_the_edge_of_the_window_and_no_further() {
        let window = GROUP_WINDOW as u64;
        for (newest, complete) in [(window - 1, 1), (window, 0)] {
            let mut groups = Groups::new();
            groups.insert(0, 2);
            groups.insert(newest, 2);
            groups.insert(0, 2);
            assert_eq!((groups.any(), groups.complete()), (2, complete));
        }
    }
}
