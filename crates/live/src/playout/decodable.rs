//! Which frames can be decoded, by what has arrived of their groups.

use std::collections::BTreeMap;

/// What has arrived of the frames that others need.
#[derive(Clone, Debug, Default)]
pub(super) struct Decodable {
    /// For each group: places among the frames that others need, in order.
    groups: BTreeMap<u64, Vec<u64>>,
}

impl Decodable {
    /// A frame has arrived, which others need and before which its group has `references` such.
    pub(super) fn on_reference(&mut self, group: u64, references: u64) {
        let known = self.groups.entry(group).or_default();
        if let Err(place) = known.binary_search(&references) {
            known.insert(place, references);
        }
        while self.groups.len() > GROUPS_MAX {
            self.groups.pop_first();
        }
    }

    /// Whether everything has arrived that a frame with so many references may need.
    pub(super) fn is_decodable(&self, group: u64, references: u64) -> bool {
        let known = self.groups.get(&group).map_or(&[][..], Vec::as_slice);
        let needed = known.iter().zip(0..references);
        let count = needed
            .take_while(|(known, needed)| *known == needed)
            .count();
        count as u64 == references
    }
}

/// Groups that are remembered; the oldest is forgotten beyond.
const GROUPS_MAX: usize = 8;
