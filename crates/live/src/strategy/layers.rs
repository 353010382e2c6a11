//! `baseline`, `skip`, `deprioritize-b` and `combined`: a stream for each group; the latter two have disposable frames apart.

use weir_moqt::parameter::GroupOrder;

use super::{SNAP_US, Step, Strategy, StreamKey, THESIS_PLAYER, TrackTerms};
use crate::Frame;
use crate::playout::PlayerSettings;

/// A layer with a stream for each group. If there is a second layer, it has the disposable frames, each on a stream of its own.
#[derive(Debug)]
pub(super) struct Layers {
    name: &'static str,
    tracks: &'static [TrackTerms],
    /// The publisher priority of the first layer.
    priority: u8,
    player: PlayerSettings,
}

impl Layers {
    /// Everything in the order in which it was made. The thesis uses one stream for all; a stream of MOQT
    /// ends with its group, and streams of equal priority in ascending order are one after the other.
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

    /// The same with new groups of the base layer before old ones (section 5.2 of the thesis).
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

/// The subgroup of a disposable frame, by its place in its group. Among subgroups of a group and a priority the lowest goes first
/// [moqt-18 §7.2], so the newest frame gets the lowest. Those that have no lower one left come behind them.
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
    subgroup_timeout: None,
};
/// Of a stream that has all frames of its group.
const PRIORITY: u8 = 128;
const BASE_PRIORITY: u8 = 64;
const DISPOSABLE_PRIORITY: u8 = 192;
/// The highest subgroup whose place our relay still tells from that of the next; groups of the thesis have 15 frames.
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
