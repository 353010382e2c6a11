//! `baseline`, `skip`, `deprioritize-b` and `combined`: one stream for each group. The latter two send disposable
//! frames on streams of their own.

use std::time::Duration;

use weir_moqt::parameter::GroupOrder;

use super::{SNAP_US, Step, Strategy, StreamKey, THESIS_PLAYER, TrackTerms};
use crate::Frame;
use crate::playout::PlayerSettings;

/// A layer with one stream for each group. An optional second layer has the disposable frames, each on a stream of its
/// own.
#[derive(Debug)]
pub(super) struct Layers {
    name: &'static str,
    tracks: &'static [TrackTerms],
    /// The publisher priority of the first layer.
    priority: u8,
    player: PlayerSettings,
}

impl Layers {
    /// Everything in its original order. The thesis uses one stream for all frames. In MOQT a stream ends with its
    /// group, and streams of equal priority in ascending order follow each other.
    pub(super) fn baseline() -> Self {
        Self {
            name: "baseline",
            tracks: const { &[video(GroupOrder::Ascending)] },
            priority: PRIORITY,
            player: PlayerSettings {
                in_sequence: true,
                ..THESIS_PLAYER
            },
        }
    }

    /// New groups before old ones (section 5 of the thesis).
    pub(super) fn skip() -> Self {
        Self {
            name: "skip",
            tracks: const { &[video(GroupOrder::Descending)] },
            priority: PRIORITY,
            player: PlayerSettings {
                snap_us: Some(SNAP_US),
                ..THESIS_PLAYER
            },
        }
    }

    /// The base layer first and in order, then the newest disposable frames (section 4 of the thesis).
    pub(super) fn deprioritize() -> Self {
        Self {
            name: "deprioritize-b",
            tracks: const { &[video(GroupOrder::Ascending), DISPOSABLE] },
            priority: BASE_PRIORITY,
            player: PlayerSettings {
                reorders: true,
                in_sequence: true,
                ..THESIS_PLAYER
            },
        }
    }

    /// Like [`Self::deprioritize`], with new groups of the base layer before old ones (section 5.2 of the thesis).
    pub(super) fn combined() -> Self {
        Self {
            name: "combined",
            tracks: const { &[video(GroupOrder::Descending), DISPOSABLE] },
            priority: BASE_PRIORITY,
            player: PlayerSettings {
                reorders: true,
                snap_us: Some(SNAP_US),
                ..THESIS_PLAYER
            },
        }
    }
}

impl Strategy for Layers {
    fn name(&self) -> &'static str {
        self.name
    }

    fn tracks(&self) -> &[TrackTerms] {
        self.tracks
    }

    fn place(&mut self, frame: &Frame, steps: &mut Vec<Step>) {
        let base = |group| StreamKey {
            track: 0,
            group,
            subgroup: 0,
        };
        if frame.index == 0 && frame.group > 0 {
            steps.push(Step::Finish(base(frame.group - 1)));
        }
        if !frame.is_disposable || self.tracks.len() == 1 {
            steps.push(Step::Write {
                stream: base(frame.group),
                priority: self.priority,
                reset_after: None,
            });
            return;
        }
        let stream = StreamKey {
            track: 1,
            group: frame.group,
            subgroup: subgroup(frame.index),
        };
        steps.push(Step::Write {
            stream,
            priority: DISPOSABLE_PRIORITY,
            reset_after: None,
        });
        steps.push(Step::Finish(stream));
    }

    fn player(&self) -> PlayerSettings {
        self.player
    }

    fn wants_short_queues(&self) -> bool {
        false
    }
}

/// Returns the subgroup of a disposable frame, by its index in its group. Within a group and a priority the lowest
/// subgroup is sent first [moqt-18 §7.2], so the newest frame gets the lowest. Frames with an index above
/// [`RANKED_MAX`] follow the others.
fn subgroup(index: u64) -> u64 {
    RANKED_MAX.checked_sub(index).unwrap_or(index)
}

const fn video(order: GroupOrder) -> TrackTerms {
    TrackTerms {
        name: "video",
        order,
        subgroup_timeout: None,
    }
}

const DISPOSABLE: TrackTerms = TrackTerms {
    name: "video-disposable",
    order: GroupOrder::Descending,
    subgroup_timeout: Some(DISPOSABLE_LIFE),
};
/// A disposable frame is not worth sending after this time. Each has a stream, and if they waited forever, they would
/// use up the streams that the player allows: then new groups could not begin.
const DISPOSABLE_LIFE: Duration = Duration::from_secs(10);
/// The priority of a stream with all frames of its group.
const PRIORITY: u8 = 128;
const BASE_PRIORITY: u8 = 64;
const DISPOSABLE_PRIORITY: u8 = 192;
/// The highest subgroup that the relay ranks apart from the next. Groups of the thesis have 15 frames.
const RANKED_MAX: u64 = 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_disposable_frame_goes_first_and_each_has_a_stream_of_its_own() {
        let ids: Vec<u64> = (0..100).map(subgroup).collect();
        let ranked = &ids[..=usize::try_from(RANKED_MAX).expect("few")];
        assert!(ranked.is_sorted_by(|older, newer| older > newer), "{ids:?}");
        let unique: std::collections::BTreeSet<u64> = ids.iter().copied().collect();
        assert_eq!(unique.len(), ids.len());
    }
}
