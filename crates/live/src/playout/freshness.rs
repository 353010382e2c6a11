//! Detects keyframes that a newer one can overtake, and frames of groups that playout has left.
//!
//! The browser player has a counterpart (`web/playout/freshness.js`). Both pass `vectors/playout/freshness.json`.

use std::collections::BTreeMap;

use crate::FrameKind;

/// Decides whether a frame is worth receiving when its first byte arrives.
///
/// Frames of a group are too late once a frame of a later group was shown. They would only delay that group, so they are
/// refused, unless they are in the subgroup of their keyframe: where a group is one stream, what is late of it is mostly
/// sent already. Keyframes need a finer rule.
///
/// On a link too slow for every keyframe, keyframes wait at the relay, each longer than the last. Only the player sees
/// which one is being sent, so the player decides to skip one for the next. A keyframe that waited in the network
/// instead cannot be overtaken: all that follows it has the same delay. So a keyframe is refused only if
///
/// - it waited behind another keyframe (nothing else arrived in between) for longer than keyframes are apart, so that
///   the relay has a newer one, and
/// - the network holds less than a keyframe, so that part of this one is not sent yet, and
/// - the previous refusal, if that was the last keyframe, brought a fresher one.
#[derive(Clone, Debug, Default)]
pub struct Freshness {
    /// The shortest delay of a keyframe's first byte, in microseconds.
    quickest_us: Option<i64>,
    /// The last few keyframes, by group.
    keyframes: BTreeMap<u64, Keyframe>,
    /// The latest group of which a frame was shown.
    shown: Option<u64>,
    /// Whether another frame has begun to arrive since the last keyframe did.
    has_other_begun: bool,
    /// The delay of the last keyframe that did not wait for another one: the delay of the network at that time.
    network_us: i64,
    last: Option<Last>,
    /// The time between a wanted keyframe and one that followed it at once: how long a keyframe takes to arrive.
    took_us: i64,
}

#[derive(Clone, Copy, Debug)]
struct Keyframe {
    subgroup: Option<u64>,
    available_us: i64,
}

/// The last keyframe that began to arrive.
#[derive(Clone, Copy, Debug)]
struct Last {
    at_us: i64,
    /// How long it waited behind other keyframes.
    waited_us: i64,
    is_wanted: bool,
}

impl Freshness {
    /// Whether a frame of `group` is worth receiving. Its first byte arrives at `now_us`, and it became available at
    /// `available_us`. `subgroup` is `None` for a frame that was sent as a datagram.
    pub fn is_wanted(
        &mut self,
        now_us: i64,
        group: u64,
        subgroup: Option<u64>,
        kind: FrameKind,
        available_us: i64,
    ) -> bool {
        if kind != FrameKind::Key {
            self.has_other_begun = true;
            let is_late = self.shown.is_some_and(|shown| shown > group);
            let keyframe = self.keyframes.get(&group);
            return !is_late || keyframe.is_some_and(|keyframe| keyframe.subgroup == subgroup);
        }
        let transit_us = now_us - available_us;
        let quickest_us = self.quickest_us.unwrap_or(transit_us).min(transit_us);
        self.quickest_us = Some(quickest_us);
        let keyframe = Keyframe {
            subgroup,
            available_us,
        };
        self.keyframes.insert(group, keyframe);
        while self.keyframes.len() > KEYFRAMES_REMEMBERED {
            self.keyframes.pop_first();
        }
        let has_waited = !std::mem::take(&mut self.has_other_begun);
        let last = self.last.filter(|_| has_waited);
        let waited_us = transit_us - self.network_us;
        let brought_nothing = |last: Last| !last.is_wanted && waited_us >= last.waited_us;
        let Some(last) = last.filter(|last| !brought_nothing(*last)) else {
            self.network_us = transit_us;
            return self.note(now_us, 0, true);
        };
        if last.is_wanted {
            self.took_us = now_us - last.at_us;
        }
        let is_newer_there = self
            .distance_us()
            .is_some_and(|distance| waited_us >= distance);
        let is_sent = self.network_us - quickest_us >= self.took_us;
        self.note(now_us, waited_us, !is_newer_there || is_sent)
    }

    /// Notes that a frame of `group` was shown.
    pub fn note_shown(&mut self, group: u64) {
        self.shown = self.shown.max(Some(group));
    }

    fn note(&mut self, at_us: i64, waited_us: i64, is_wanted: bool) -> bool {
        self.last = Some(Last {
            at_us,
            waited_us,
            is_wanted,
        });
        is_wanted
    }

    /// Returns the shortest time between the keyframes of two consecutive groups.
    fn distance_us(&self) -> Option<i64> {
        let pairs = self.keyframes.iter().zip(self.keyframes.iter().skip(1));
        let follows = pairs.filter(|((one, _), (next, _))| **one + 1 == **next);
        follows
            .map(|((_, one), (_, next))| next.available_us - one.available_us)
            .min()
    }
}

const KEYFRAMES_REMEMBERED: usize = 8;
