//! Decides which frames can be decoded, by what has arrived of their groups.

use std::collections::{BTreeMap, BTreeSet};

use crate::limits::FRAMES_PER_GROUP_MAX;

/// The arrived frames that others may need.
#[derive(Clone, Debug, Default)]
pub(super) struct Decodable {
    groups: BTreeMap<u64, Group>,
}

/// The arrived reference frames of a group, by the number of others before each.
#[derive(Clone, Debug, Default)]
struct Group {
    /// Those that arrived without a gap since the first.
    complete: u64,
    /// Those after the first gap, up to [`FRAMES_PER_GROUP_MAX`].
    ahead: BTreeSet<u64>,
}

impl Decodable {
    /// Records the arrival of a reference frame, before which its group has `references` others.
    pub(super) fn on_reference(&mut self, group: u64, references: u64) {
        let known = self.groups.entry(group).or_default();
        if references == known.complete {
            known.complete += 1;
            while known.ahead.remove(&known.complete) {
                known.complete += 1;
            }
        } else if references > known.complete && (known.ahead.len() as u64) < FRAMES_PER_GROUP_MAX {
            known.ahead.insert(references);
        }
        while self.groups.len() > GROUPS_MAX {
            self.groups.pop_first();
        }
    }

    /// Whether all reference frames have arrived that a frame with this `references` may need.
    pub(super) fn is_decodable(&self, group: u64, references: u64) -> bool {
        let complete = self.groups.get(&group).map_or(0, |known| known.complete);
        references <= complete
    }
}

/// Groups that are kept. Beyond this, the oldest is removed.
const GROUPS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_needs_all_references_before_it() {
        let mut decodable = Decodable::default();
        assert!(decodable.is_decodable(1, 0), "a keyframe needs none");
        for references in [0, 3, 2, 2, 0] {
            decodable.on_reference(1, references);
        }
        assert!(decodable.is_decodable(1, 1) && !decodable.is_decodable(1, 2));
        decodable.on_reference(1, 1);
        assert!(decodable.is_decodable(1, 4) && !decodable.is_decodable(1, 5));
        assert!(!decodable.is_decodable(2, 1), "another group");
    }

    #[test]
    fn frames_after_a_gap_are_kept_up_to_the_limit() {
        let mut decodable = Decodable::default();
        for references in (1..=FRAMES_PER_GROUP_MAX + 1).chain([1 << 60]) {
            decodable.on_reference(1, references);
        }
        assert_eq!(
            decodable.groups[&1].ahead.len() as u64,
            FRAMES_PER_GROUP_MAX
        );
        decodable.on_reference(1, 0);
        assert!(decodable.is_decodable(1, FRAMES_PER_GROUP_MAX + 1));
        assert!(!decodable.is_decodable(1, FRAMES_PER_GROUP_MAX + 2));
        // A group without a gap may be longer, and takes no memory.
        for references in 0..3 * FRAMES_PER_GROUP_MAX {
            decodable.on_reference(2, references);
        }
        assert!(decodable.is_decodable(2, 3 * FRAMES_PER_GROUP_MAX));
        assert!(decodable.groups[&2].ahead.is_empty());
    }
}
