//! `weir`, the default: keyframes are protected, what came too late for its group is given up.
//!
//! A keyframe has a stream and the highest priority to itself, and those before it go first: so one that
//! is being sent is never pre-empted, and even on a link that is too slow for every keyframe some
//! arrive. The other frames share one priority, first in, first out. What is left of a group is reset
//! when the next keyframe is there, and a disposable frame when it is too late to be shown:
//! pruning reacts to a deficit by itself, without guessing at one.

use std::collections::VecDeque;
use std::time::Duration;

use weir_moqt::parameter::GroupOrder;

use super::{SNAP_US, Step, Strategy, StreamKey, THESIS_PLAYER, TrackTerms};
use crate::playout::PlayerSettings;
use crate::{Frame, FrameKind};

#[derive(Debug, Default)]
pub(super) struct Protective {
    /// Keyframes whose streams are open, the oldest first.
    keyframes: VecDeque<StreamKey>,
    /// Other open streams of the present group.
    others: Vec<StreamKey>,
}

impl Strategy for Protective {
    fn name(&self) -> &'static str {
        "weir"
    }

    fn tracks(&self) -> &[TrackTerms] {
        &TRACKS
    }

    fn place(&mut self, frame: &Frame, steps: &mut Vec<Step>) {
        let (subgroup, priority, reset_after) = match (frame.kind, frame.is_disposable) {
            (FrameKind::Key, _) => {
                self.on_keyframe(steps);
                (KEYFRAME, KEYFRAME_PRIORITY, None)
            }
            (FrameKind::Predicted | FrameKind::Bidirectional, false) => (NEEDED, PRIORITY, None),
            (FrameKind::Predicted | FrameKind::Bidirectional, true) => {
                (DISPOSABLE + frame.index, PRIORITY, Some(DISPOSABLE_LIFE))
            }
        };
        let stream = StreamKey {
            track: 0,
            group: frame.group,
            subgroup,
        };
        if frame.kind == FrameKind::Key {
            self.keyframes.push_back(stream);
        } else if !self.others.contains(&stream) {
            self.others.push(stream);
        }
        steps.push(Step::Write {
            stream,
            priority,
            reset_after,
        });
        // With its end the time begins that the track gives a subgroup. The other streams of a group stay open until they are of
        // no more use, so that it does not hold for them.
        steps.extend(reset_after.map(|_| Step::Finish(stream)));
    }

    fn player(&self) -> PlayerSettings {
        PlayerSettings {
            snap_us: Some(SNAP_US),
            catches_up: true,
            resumes_at_once: true,
            stops_stale: true,
            ..THESIS_PLAYER
        }
    }

    fn wants_short_queues(&self) -> bool {
        true
    }
}

impl Protective {
    fn on_keyframe(&mut self, steps: &mut Vec<Step>) {
        steps.extend(self.others.drain(..).map(Step::Reset));
        // With the new one, this many are outstanding.
        while self.keyframes.len() >= KEYFRAMES_MAX {
            steps.extend(self.keyframes.pop_front().map(Step::Reset));
        }
    }
}

const TRACKS: [TrackTerms; 1] = [TrackTerms {
    name: "video",
    order: GroupOrder::Ascending,
    subgroup_timeout: Some(DISPOSABLE_LIFE),
}];
/// The subgroup of the keyframe.
const KEYFRAME: u64 = 0;
/// The subgroup of the other frames that some need.
const NEEDED: u64 = 1;
/// The subgroup of the disposable frame 0 of a group, if it were one; the others follow.
const DISPOSABLE: u64 = 2;
const KEYFRAME_PRIORITY: u8 = 32;
const PRIORITY: u8 = 128;
/// Keyframes that may be on their way at once.
const KEYFRAMES_MAX: usize = 6;
/// A disposable frame that is older than this would come too late to be shown.
const DISPOSABLE_LIFE: Duration = Duration::from_millis(250);
