//! Decides which frames can be decoded, by what has arrived of their groups.

use std::collections::BTreeMap;

/// The arrived frames that others may need.
#[derive(Clone, Debug, Default)]
pub(super) struct Decodable {
    /// For each group, the indexes of its arrived reference frames, in order.
    groups: BTreeMap<u64, Vec<u64>>,
}

impl Decodable {
    /// Records the arrival of a reference frame, before which its group has `references` others.
    pub(super) fn on_reference(&mut self, group: u64, references: u64) {
        let known = self.groups.entry(group).or_default();
        if let Err(place) = known.binary_search(&references) {
            known.insert(place, references);
        }
        while self.groups.len() > GROUPS_MAX {
            self.groups.pop_first();
        }
    }

    /// Whether all reference frames have arrived that a frame with this `references` may need.
    pub(super) fn is_decodable(&self, group: u64, references: u64) -> bool {
        let known = self.groups.get(&group).map_or(&[][..], Vec::as_slice);
        let needed = known.iter().zip(0..references);
        let count = needed
            .take_while(|(known, needed)| *known == needed)
            .count();
        count as u64 == references
    }
}

/// Groups that are kept. Beyond this, the oldest is removed.
const GROUPS_MAX: usize = 8;
