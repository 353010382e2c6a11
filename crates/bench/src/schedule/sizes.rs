//! The sizes of a track's objects, if they vary.

use std::sync::Arc;

use super::heavy_tail;
use crate::profile::{ObjectSize, TrackProfile};

/// Sizes that repeat, by the number of the object in the track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// The sizes of a cycle, and the largest of them.
    bytes: Arc<[ObjectSize]>,
    pub(super) largest: ObjectSize,
    /// The sum of the bytes before each place of the cycle, and of all.
    sums: Arc<[u64]>,
}

impl Sizes {
    /// Returns the sizes of a track's objects but the first of each group; `None` if they are all the same.
    pub(super) fn of(track: &TrackProfile, seed: u64) -> Option<Self> {
        let (least, most) = (track.object_size, track.object_size_max?);
        let bytes = heavy_tail::sizes(least, most, seed);
        let largest = bytes.iter().copied().max().unwrap_or(least);
        let mut sums = vec![0];
        for size in bytes.iter() {
            sums.push(sums[sums.len() - 1] + u64::from(size.bytes()));
        }
        Some(Self {
            bytes,
            largest,
            sums: sums.into(),
        })
    }

    pub(super) fn at(&self, number: u64) -> ObjectSize {
        let place = number % self.bytes.len() as u64;
        self.bytes[usize::try_from(place).unwrap_or(0)]
    }

    /// Returns the sum of the first `objects` sizes, as if no object were the first of a group.
    pub(super) fn sum(&self, objects: u64) -> u64 {
        let count = self.bytes.len() as u64;
        let all = self.sums.last().copied().unwrap_or(0);
        let place = usize::try_from(objects % count).unwrap_or(0);
        (objects / count)
            .saturating_mul(all)
            .saturating_add(self.sums[place])
    }

    /// Returns the sum of the sizes of objects 0, `step`, 2 · `step` and so on, `count` of them.
    pub(super) fn sum_of_multiples(&self, step: u64, count: u64) -> u64 {
        let cycle = self.bytes.len() as u64;
        let first = |count: u64| -> u64 {
            let numbers = (0..count).map(|number| number.wrapping_mul(step));
            numbers
                .map(|number| u64::from(self.at(number).bytes()))
                .sum()
        };
        // The multiples repeat with the cycle, at the latest.
        (count / cycle)
            .saturating_mul(first(cycle))
            .saturating_add(first(count % cycle))
    }
}
