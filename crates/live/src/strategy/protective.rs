//! `weir`, the default: protects keyframes, and gives up what cannot arrive within the target latency.
//!
//! A keyframe has a stream of its own at the highest priority, and older keyframes precede newer ones. So no keyframe
//! pre-empts another, and some arrive even on a link that is too slow for all. The other frames share one priority, in
//! decoding order, and the rest of a group is reset when the next keyframe is available. So the strategy adapts to any
//! deficit without an estimate of the bandwidth.
//!
//! The target decides what is given up. Whole groups cost the fewest frames for each byte, but one group must wait for
//! another. Tails of groups are next. Disposable frames cost the most frames, and nothing waits for them.

use std::collections::VecDeque;
use std::time::Duration;

use weir_moqt::parameter::GroupOrder;

use super::{SNAP_US, Step, Strategy, StreamKey, THESIS_PLAYER, TrackTerms};
use crate::playout::PlayerSettings;
use crate::{Frame, FrameKind};

#[derive(Debug)]
pub(super) struct Protective {
    target: Duration,
    loss: Loss,
    tracks: [TrackTerms; 1],
    /// Open streams of keyframes, oldest first.
    keyframes: VecDeque<StreamKey>,
    /// Other open streams of the current group.
    others: Vec<StreamKey>,
}

/// The frames that are given up on a link that is too slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// Disposable frames after this time, and tails of groups.
    Disposable(Duration),
    /// Tails of groups.
    Tails,
    /// Whole groups.
    Groups,
}

impl Loss {
    fn of(target: Duration) -> Self {
        if target < TAILS_FROM {
            Self::Disposable(target / 2)
        } else if target < GROUPS_FROM {
            Self::Tails
        } else {
            Self::Groups
        }
    }
}

impl Protective {
    pub(super) fn new(target: Duration) -> Self {
        let loss = Loss::of(target);
        let (order, subgroup_timeout) = match loss {
            Loss::Disposable(life) => (GroupOrder::Ascending, Some(life)),
            Loss::Tails => (GroupOrder::Ascending, None),
            Loss::Groups => (GroupOrder::Descending, None),
        };
        Self {
            target,
            loss,
            tracks: [TrackTerms {
                name: "video",
                order,
                subgroup_timeout,
            }],
            keyframes: VecDeque::new(),
            others: Vec::new(),
        }
    }

    /// Adds the steps for a frame of a group with one stream.
    fn place_in_group(frame: &Frame, steps: &mut Vec<Step>) {
        let stream = |group| StreamKey {
            track: 0,
            group,
            subgroup: KEYFRAME,
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

    fn on_keyframe(&mut self, stream: StreamKey, steps: &mut Vec<Step>) {
        steps.extend(self.others.drain(..).map(Step::Reset));
        // Leaves room for the new keyframe.
        while self.keyframes.len() >= KEYFRAMES_MAX {
            steps.extend(self.keyframes.pop_front().map(Step::Reset));
        }
        self.keyframes.push_back(stream);
    }
}

impl Strategy for Protective {
    fn name(&self) -> &'static str {
        "weir"
    }

    fn tracks(&self) -> &[TrackTerms] {
        &self.tracks
    }

    fn place(&mut self, frame: &Frame, steps: &mut Vec<Step>) {
        let (subgroup, reset_after) = match (self.loss, frame.kind) {
            (Loss::Groups, _) => return Self::place_in_group(frame, steps),
            (_, FrameKind::Key) => (KEYFRAME, None),
            (Loss::Tails, _) => (OTHERS, None),
            // By these numbers, frames are sent in decoding order.
            (Loss::Disposable(life), _) => (
                OTHERS + frame.index,
                Some(life).filter(|_| frame.is_disposable),
            ),
        };
        let stream = StreamKey {
            track: 0,
            group: frame.group,
            subgroup,
        };
        let is_key = frame.kind == FrameKind::Key;
        if is_key {
            self.on_keyframe(stream, steps);
        } else if !self.others.contains(&stream) {
            self.others.push(stream);
        }
        steps.push(Step::Write {
            stream,
            priority: if is_key { KEYFRAME_PRIORITY } else { PRIORITY },
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
            // A relay finishes the group that it has begun only if its connection has accepted all of it.
            limits_queue: self.loss != Loss::Groups,
            ..THESIS_PLAYER
        }
    }

    fn target(&self) -> Option<Duration> {
        Some(self.target)
    }

    fn wants_short_queues(&self) -> bool {
        true
    }

    fn for_other_relays(&self) -> Option<Box<dyn Strategy>> {
        (self.loss != Loss::Groups).then(|| Box::new(Self::new(GROUPS_FROM)) as _)
    }
}

/// The subgroup of the keyframe.
const KEYFRAME: u64 = 0;
/// The first subgroup of other frames.
const OTHERS: u64 = 1;
const KEYFRAME_PRIORITY: u8 = 32;
const PRIORITY: u8 = 128;
/// Keyframes that may be under way at the same time.
const KEYFRAMES_MAX: usize = 6;
/// From this target on there is time for the frames behind a keyframe to wait for it: at half the rate that a stream
/// needs, a keyframe takes about as long as half its group.
const TAILS_FROM: Duration = Duration::from_millis(500);
/// From this target on there is time for a group to wait for the one before it, of half a second or a bit more.
const GROUPS_FROM: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the steps for two groups of a keyframe, a needed and a disposable frame.
    fn steps(target: u64) -> Vec<Step> {
        let mut strategy = Protective::new(Duration::from_millis(target));
        let mut steps = Vec::new();
        for group in 0..2 {
            for (index, kind) in [
                FrameKind::Key,
                FrameKind::Predicted,
                FrameKind::Bidirectional,
            ]
            .into_iter()
            .enumerate()
            {
                let frame = Frame {
                    kind,
                    is_disposable: kind == FrameKind::Bidirectional,
                    group,
                    index: index as u64,
                    references: index as u64,
                    decode_us: 0,
                    presentation_us: 0,
                    duration_us: 1,
                    fragment: bytes::Bytes::new(),
                    sample: bytes::Bytes::new(),
                };
                strategy.place(&frame, &mut steps);
            }
        }
        steps
    }

    #[test]
    fn the_target_decides_what_is_given_up() {
        let key = |group, subgroup| StreamKey {
            track: 0,
            group,
            subgroup,
        };
        let disposable = steps(300);
        assert!(disposable.contains(&Step::Reset(key(0, 2))));
        assert!(disposable.contains(&Step::Write {
            stream: key(1, 3),
            priority: PRIORITY,
            reset_after: Some(Duration::from_millis(150)),
        }));
        let tails = steps(500);
        assert!(tails.contains(&Step::Reset(key(0, 1))));
        assert!(!tails.iter().any(|step| matches!(step, Step::Finish(_))));
        let groups = steps(1000);
        assert!(groups.contains(&Step::Finish(key(0, 0))));
        assert!(!groups.iter().any(|step| matches!(step, Step::Reset(_))));
        for (target, limits) in [(300, true), (999, true), (1000, false)] {
            let strategy = Protective::new(Duration::from_millis(target));
            assert_eq!(strategy.player().limits_queue, limits, "{target} ms");
        }
    }
}
