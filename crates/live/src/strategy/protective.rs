//! `weir`, the default: protects keyframes, and gives up frames that come too late for their group.
//!
//! A keyframe has a stream of its own at the highest priority, and older keyframes precede newer ones. So no keyframe
//! pre-empts another, and some arrive even on a link that is too slow for all. The other frames share one priority,
//! first in, first out. The rest of a group is reset when the next keyframe is available, and a disposable frame when
//! it is too late to be shown. So the strategy adapts to any deficit without an estimate of the bandwidth.

use std::collections::VecDeque;
use std::time::Duration;

use weir_moqt::parameter::GroupOrder;

use super::{SNAP_US, Step, Strategy, StreamKey, THESIS_PLAYER, TrackTerms};
use crate::playout::PlayerSettings;
use crate::{Frame, FrameKind};

#[derive(Debug, Default)]
pub(super) struct Protective {
    /// Open streams of keyframes, oldest first.
    keyframes: VecDeque<StreamKey>,
    /// Other open streams of the current group.
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
        // The track's timeout for a subgroup starts at its end. A group's other streams stay open until they are reset,
        // so the timeout does not apply to them.
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
        // Leaves room for the new keyframe.
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
/// The subgroup of the other frames that are not disposable.
const NEEDED: u64 = 1;
/// The subgroup of a disposable frame with index 0. The others follow.
const DISPOSABLE: u64 = 2;
const KEYFRAME_PRIORITY: u8 = 32;
const PRIORITY: u8 = 128;
/// Keyframes that may be under way at the same time.
const KEYFRAMES_MAX: usize = 6;
/// An older disposable frame would arrive too late to be shown.
const DISPOSABLE_LIFE: Duration = Duration::from_millis(250);
