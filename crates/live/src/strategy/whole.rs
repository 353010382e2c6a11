//! `baseline` and `skip`: all frames of a group on one stream.

use weir_moqt::parameter::GroupOrder;

use super::{SNAP_US, Step, Strategy, StreamKey, THESIS_PLAYER, TrackTerms};
use crate::Frame;
use crate::playout::PlayerSettings;

/// A stream per group, in one order or the other.
#[derive(Debug)]
pub(super) struct Whole {
    name: &'static str,
    tracks: [TrackTerms; 1],
    player: PlayerSettings,
}

impl Whole {
    /// Everything in the order in which it was made. The thesis uses one stream for all; a stream of MOQT
    /// ends with its group, and streams of equal priority in ascending order are one after the other.
    pub(super) fn baseline() -> Self {
        Self {
            name: "baseline",
            tracks: [track(GroupOrder::Ascending)],
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
            tracks: [track(GroupOrder::Descending)],
            player: PlayerSettings {
                snap_us: Some(SNAP_US),
                ..THESIS_PLAYER
            },
        }
    }
}

impl Strategy for Whole {
    fn name(&self) -> &'static str {
        self.name
    }

    fn tracks(&self) -> &[TrackTerms] {
        &self.tracks
    }

    fn place(&mut self, frame: &Frame, steps: &mut Vec<Step>) {
        let stream = |group| StreamKey {
            track: 0,
            group,
            subgroup: 0,
        };
        if frame.index == 0 && frame.group > 0 {
            steps.push(Step::Finish(stream(frame.group - 1)));
        }
        steps.push(Step::Write {
            stream: stream(frame.group),
            priority: PRIORITY,
            reset_after: None,
        });
    }

    fn player(&self) -> PlayerSettings {
        self.player
    }

    fn wants_short_queues(&self) -> bool {
        false
    }
}

fn track(order: GroupOrder) -> TrackTerms {
    TrackTerms {
        name: "video",
        order,
        subgroup_timeout: None,
    }
}

const PRIORITY: u8 = 128;
