//! Recognises that another publisher took over a stream.
//!
//! A publisher that restarts with the same settings has an equal catalog, and the relay delivers its objects for the
//! same requests. Its media time begins again, so without this module none of its frames would be shown until its media
//! time had passed that of the first publisher.
//!
//! Two rules tell publishers apart. First, a publisher counts groups and frames upwards, and each group has at least
//! one frame. So from a group to a later one the frame number grows at least as much as the group number, and the later
//! frame became available later. Second, for objects without such numbers, media time must not run back from one
//! keyframe to that of a later group.
//!
//! If two publishers send at the same time, the player does not alternate between them: it returns to the former
//! publisher only after the current one has been silent for [`SILENCE_US`].

use std::cmp::Ordering;

use super::incoming::ReceivedFrame;
use crate::FrameKind;

/// The current publisher of a stream, and the one before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PublisherTracker {
    /// A frame of the current publisher's newest group.
    newest: Option<Seen>,
    /// A frame of the former publisher's newest group.
    before: Option<Seen>,
    /// Groups below this one belong to the former publisher, if only media time tells the two apart.
    from_group: u64,
    /// When the last frame of the current publisher arrived, in microseconds.
    heard_us: i64,
}

/// The position of a frame in its publisher's stream.
#[derive(Clone, Copy, Debug)]
struct Seen {
    group: u64,
    number: u64,
    available_us: i64,
    decode_us: i64,
}

/// The publisher of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FramePublisher {
    /// The publisher that is being played.
    Current,
    /// Another publisher, which has replaced the current one.
    Successor,
    /// A publisher that was replaced.
    Former,
}

impl PublisherTracker {
    /// Returns which publisher sent a frame that arrived at `now_us` on any video track. Records a change of publisher.
    pub(super) fn publisher_of(&mut self, now_us: i64, whole: &ReceivedFrame) -> FramePublisher {
        let tag = &whole.tag;
        let seen = Seen {
            group: whole.group,
            number: tag.number,
            available_us: tag.available_us,
            decode_us: tag.decode_us,
        };
        let Some(newest) = self.newest else {
            (self.newest, self.heard_us) = (Some(seen), now_us);
            return FramePublisher::Current;
        };
        let is_silent = now_us.saturating_sub(self.heard_us) >= SILENCE_US;
        let sender = if whole.has_frame_tag {
            seen.by_frame_tag(&newest)
        } else {
            self.by_media_time(&seen, &newest, tag.kind)
        };
        let sender = match sender {
            FramePublisher::Successor
                if whole.has_frame_tag && !is_silent && self.is_of_before(&seen) =>
            {
                FramePublisher::Former
            }
            FramePublisher::Former if is_silent => FramePublisher::Successor,
            FramePublisher::Current | FramePublisher::Successor | FramePublisher::Former => sender,
        };
        match sender {
            FramePublisher::Current => {
                self.heard_us = now_us;
                if seen.group > newest.group {
                    self.newest = Some(seen);
                }
            }
            FramePublisher::Successor => {
                self.heard_us = now_us;
                (self.before, self.newest) = (Some(newest), Some(seen));
                if !whole.has_frame_tag {
                    self.from_group = seen.group;
                }
            }
            FramePublisher::Former => {}
        }
        sender
    }

    /// Whether the former publisher can have sent a frame. If so, records the former publisher's progress.
    fn is_of_before(&mut self, seen: &Seen) -> bool {
        let Some(before) = self.before.filter(|before| seen.can_be_of(before)) else {
            return false;
        };
        if seen.group > before.group {
            self.before = Some(*seen);
        }
        true
    }

    /// Returns the publisher of a frame that carries media times only.
    fn by_media_time(&self, seen: &Seen, newest: &Seen, kind: FrameKind) -> FramePublisher {
        if seen.group < self.from_group {
            return FramePublisher::Former;
        }
        let is_back = seen.decode_us.saturating_add(BACK_US) < newest.decode_us;
        if kind == FrameKind::Key && seen.group > newest.group && is_back {
            return FramePublisher::Successor;
        }
        FramePublisher::Current
    }
}

impl Seen {
    /// Returns the publisher of a frame with number and availability. Of two publishers, the current one is that whose
    /// frames became available later.
    fn by_frame_tag(&self, newest: &Self) -> FramePublisher {
        if self.can_be_of(newest) {
            FramePublisher::Current
        } else if self.available_us > newest.available_us {
            FramePublisher::Successor
        } else {
            FramePublisher::Former
        }
    }

    /// Whether the publisher of `other` can have sent this frame.
    fn can_be_of(&self, other: &Self) -> bool {
        match self.group.cmp(&other.group) {
            Ordering::Less => self.can_precede(other),
            Ordering::Equal => true,
            Ordering::Greater => other.can_precede(self),
        }
    }

    /// Whether one publisher can have sent both frames, of which `later` has the higher group.
    fn can_precede(&self, later: &Self) -> bool {
        let groups = later.group - self.group;
        let is_counted = later.number >= self.number.saturating_add(groups);
        is_counted && later.available_us.saturating_add(BACK_US) >= self.available_us
    }
}

/// How far a publisher's times may run back, in microseconds, because clocks are corrected and frames reordered.
const BACK_US: i64 = 500_000;
/// How long the current publisher must be silent before the former one is played again, in microseconds.
const SILENCE_US: i64 = 2_000_000;

#[cfg(test)]
mod tests {
    use super::FramePublisher::{Current, Former, Successor};
    use super::*;
    use crate::packaging::FrameTag;

    fn whole(group: u64, number: u64, available_us: i64, decode_us: i64) -> ReceivedFrame {
        let tag = FrameTag {
            kind: FrameKind::Key,
            is_disposable: false,
            references: 0,
            available_us,
            decode_us,
            presentation_us: decode_us,
            duration_us: 40_000,
            number,
        };
        ReceivedFrame {
            group,
            tag,
            has_frame_tag: true,
            bytes: 1,
        }
    }

    fn all(frames: impl IntoIterator<Item = ReceivedFrame>) -> Vec<FramePublisher> {
        all_at(frames.into_iter().map(|frame| (0, frame)))
    }

    /// Returns the publishers of frames, each with its arrival in microseconds.
    fn all_at(frames: impl IntoIterator<Item = (i64, ReceivedFrame)>) -> Vec<FramePublisher> {
        let mut publisher_tracker = PublisherTracker::default();
        let frames = frames.into_iter();
        let judged = frames.map(|(at_us, frame)| publisher_tracker.publisher_of(at_us, &frame));
        judged.collect()
    }

    #[test]
    fn one_publisher_stays_the_same_in_whichever_order_its_frames_come() {
        for has_frame_tag in [true, false] {
            let frame = |group: u64, within: u64| ReceivedFrame {
                has_frame_tag,
                tag: FrameTag {
                    kind: if within == 0 {
                        FrameKind::Key
                    } else {
                        FrameKind::Predicted
                    },
                    ..whole(0, group * 15 + within, 0, 0).tag
                },
                ..whole(group, 0, 0, 0)
            };
            let mut frames = Vec::new();
            for group in [100, 103, 101, 102, 104, 100] {
                for within in [0, 14, 3] {
                    let mut one = frame(group, within);
                    let us = i64::try_from(one.tag.number * 40_000).expect("short");
                    (one.tag.available_us, one.tag.decode_us) = (us, us);
                    frames.push(one);
                }
            }
            let senders = all(frames);
            assert!(senders.iter().all(|sender| *sender == Current));
        }
        let one_frame_each = (0..9).map(|group| whole(group, group, 0, 0));
        assert!(all(one_frame_each).iter().all(|one| *one == Current));
    }

    #[test]
    fn who_counts_frames_anew_is_another_and_what_comes_of_the_first_is_of_before() {
        let senders = all([
            whole(1_000, 0, 1_000_000, 0),
            whole(1_010, 150, 7_000_000, 6_000_000),
            // Ten seconds later, with the publisher's second group.
            whole(11_001, 15, 11_600_000, 600_000),
            whole(1_010, 160, 7_400_000, 6_400_000),
            whole(1_000, 3, 1_100_000, 100_000),
            whole(11_000, 14, 11_500_000, 500_000),
            whole(11_002, 30, 12_200_000, 1_200_000),
        ]);
        let expected = [
            Current, Current, Successor, Former, Former, Current, Current,
        ];
        assert_eq!(senders, expected);
    }

    #[test]
    fn who_fell_after_a_few_frames_is_told_from_the_next_by_the_jump_of_its_groups() {
        let senders = all([
            whole(1_000, 0, 1_000_000, 0),
            whole(4_001, 15, 4_600_000, 600_000),
        ]);
        assert_eq!(senders, [Current, Successor]);
    }

    #[test]
    fn who_counts_groups_anew_too_is_known_by_when_its_frames_were_made() {
        let senders = all([
            whole(50, 700, 30_000_000, 29_000_000),
            whole(0, 0, 40_000_000, 0),
            whole(51, 715, 30_600_000, 29_600_000),
            whole(1, 15, 40_600_000, 600_000),
        ]);
        let expected = [Current, Successor, Former, Current];
        assert_eq!(senders, expected);
    }

    #[test]
    fn where_only_media_time_tells_it_has_to_run_back() {
        let timed = |group, decode_us| ReceivedFrame {
            has_frame_tag: false,
            ..whole(group, 0, 0, decode_us)
        };
        let senders = all([
            timed(7, 9_000_000),
            timed(9, 8_600_000),
            timed(6, 0),
            timed(20, 100_000),
            timed(8, 9_600_000),
            timed(21, 700_000),
        ]);
        let expected = [Current, Current, Current, Successor, Former, Current];
        assert_eq!(senders, expected);
    }

    #[test]
    fn of_two_that_send_at_once_one_is_heard_until_it_is_silent() {
        // Two publishers that began ten seconds apart, each with a frame every 40 ms.
        let first = |place: u64| {
            let us = 20_000_000 + i64::try_from(place).unwrap() * 40_000;
            whole(1_017 + place / 15, 500 + place, us, us - 1_000_000)
        };
        let second = |place: u64| {
            let us = 20_020_000 + i64::try_from(place).unwrap() * 40_000;
            whole(11_001 + place / 15, 15 + place, us, us - 11_000_000)
        };
        let at_us = |frame: &ReceivedFrame| frame.tag.available_us;
        let both = (0..200).flat_map(|place| [first(place), second(place)]);
        let alone = (200..300).map(first);
        let frames = both.chain(alone);
        let senders = all_at(frames.map(|frame| (at_us(&frame), frame)));
        let changes: Vec<usize> = (0..senders.len())
            .filter(|place| senders[*place] == Successor)
            .collect();
        // The player changes to the second publisher with its first frame, and back two seconds after its last.
        assert_eq!(changes, [1, 450]);
        let heard = |place: &usize| senders[*place] == Current;
        assert!((3..400).step_by(2).all(|place| heard(&place)));
        assert!((451..500).all(|place| heard(&place)));
        let left = (2..400).step_by(2).chain(400..450);
        assert!(left.into_iter().all(|place| senders[place] == Former));
    }

    #[test]
    fn a_successor_whose_clock_is_behind_is_heard_when_the_first_is_silent() {
        let frames = [
            (0, whole(9_000, 300, 60_000_000, 12_000_000)),
            (1_900_000, whole(9_500, 0, 31_900_000, 0)),
            (2_000_000, whole(9_500, 1, 32_000_000, 40_000)),
            (2_040_000, whole(9_500, 2, 32_040_000, 80_000)),
        ];
        let expected = [Current, Former, Successor, Current];
        assert_eq!(all_at(frames), expected);
    }

    #[test]
    fn whatever_a_publisher_claims_is_judged() {
        let extremes = [0, 1, u64::MAX];
        let times = [-1 << 60, 0, 1 << 60];
        let mut publisher_tracker = PublisherTracker::default();
        for group in extremes {
            for number in extremes {
                for us in times {
                    for has_frame_tag in [true, false] {
                        let frame = ReceivedFrame {
                            has_frame_tag,
                            ..whole(group, number, us, us)
                        };
                        publisher_tracker.publisher_of(us, &frame);
                    }
                }
            }
        }
    }
}
