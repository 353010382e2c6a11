//! `deprioritize-b` and `combined`: frames that others need on one track, the rest on another.

use weir_moqt::parameter::GroupOrder;

use super::{SNAP_US, Step, Strategy, StreamKey, THESIS_PLAYER, TrackTerms};
use crate::Frame;
use crate::playout::PlayerSettings;

/// A base layer and a layer of disposable frames, each of these on a stream of its own.
#[derive(Debug)]
pub(super) struct Layers {
    name: &'static str,
    tracks: [TrackTerms; 2],
    player: PlayerSettings,
}

impl Layers {
    /// The base layer first and in order, then the newest disposable frames (section 4 of the thesis).
    pub(super) fn deprioritize() -> Self {
        Self {
            name: "deprioritize-b",
            tracks: tracks(GroupOrder::Ascending),
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
            tracks: tracks(GroupOrder::Descending),
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
        &self.tracks
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
        if !frame.is_disposable {
            steps.push(Step::Write {
                stream: base(frame.group),
                priority: BASE_PRIORITY,
                reset_after: None,
            });
            return;
        }
        let stream = StreamKey {
            track: 1,
            group: frame.group,
            // Among subgroups of a group and a priority the lowest goes first [moqt-18 §7.2], so the newest
            // frame gets the lowest.
            subgroup: SUBGROUPS - frame.index.min(SUBGROUPS),
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

fn tracks(order: GroupOrder) -> [TrackTerms; 2] {
    let disposable = TrackTerms {
        name: "video-disposable",
        order: GroupOrder::Descending,
    };
    [
        TrackTerms {
            name: "video",
            order,
        },
        disposable,
    ]
}

const BASE_PRIORITY: u8 = 64;
const DISPOSABLE_PRIORITY: u8 = 192;
/// More than a group has frames.
const SUBGROUPS: u64 = crate::limits::FRAMES_PER_GROUP_MAX;
