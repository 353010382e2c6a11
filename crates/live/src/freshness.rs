//! Detects keyframes that are outdated when they begin to arrive.

use std::collections::BTreeMap;

use crate::FrameKind;
use crate::packaging::FrameTag;

/// Estimates how old a keyframe is when its first byte arrives, and how far apart keyframes are.
///
/// On a link too slow for every keyframe they arrive one after the other, each older than the last. Only the player
/// sees which one is being sent, so the player decides to skip the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Freshness {
    /// The shortest delay of a keyframe's first byte, in microseconds.
    quickest_us: Option<i64>,
    /// When the last few keyframes became available, by group.
    available: BTreeMap<u64, i64>,
}

impl Freshness {
    /// Whether a frame of `group`, whose first byte arrives at `now_us`, is worth receiving.
    pub(crate) fn is_wanted(&mut self, now_us: i64, group: u64, tag: &FrameTag) -> bool {
        if tag.kind != FrameKind::Key {
            return true;
        }
        let transit = now_us - tag.available_us;
        let quickest = self.quickest_us.map_or(transit, |known| known.min(transit));
        self.quickest_us = Some(quickest);
        let age = transit - quickest;
        self.available.insert(group, tag.available_us);
        while self.available.len() > KEYFRAMES_REMEMBERED {
            self.available.pop_first();
        }
        // When a keyframe is this old, the next one is available.
        self.distance_us().is_none_or(|distance| age < distance)
    }

    /// Returns the shortest time between the keyframes of two consecutive groups.
    fn distance_us(&self) -> Option<i64> {
        let pairs = self.available.iter().zip(self.available.iter().skip(1));
        let follows = pairs.filter(|((one, _), (next, _))| **one + 1 == **next);
        follows.map(|((_, one), (_, next))| next - one).min()
    }
}

const KEYFRAMES_REMEMBERED: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keyframe_is_skipped_when_the_next_one_must_be_there() {
        let mut freshness = Freshness::default();
        let mut is_wanted = |group: u64, age: i64| {
            let available_us = i64::try_from(group).unwrap() * 600;
            let tag = FrameTag {
                kind: FrameKind::Key,
                is_disposable: false,
                references: 0,
                available_us,
                decode_us: 0,
                presentation_us: 0,
                duration_us: 0,
                number: 0,
            };
            freshness.is_wanted(available_us + 20 + age, group, &tag)
        };
        assert!(is_wanted(0, 0));
        assert!(is_wanted(1, 599), "a newer one is not there yet");
        assert!(is_wanted(2, 300));
        assert!(!is_wanted(3, 600));
        assert!(is_wanted(4, 100));
    }
}
