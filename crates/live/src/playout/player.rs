//! The player's pipeline: buffer, clock, and what becomes of each frame.

use std::collections::BTreeMap;

use super::clock::RenderClock;
use super::decodable::Decodable;
use super::jitter::{BufferChoice, Buffering, JitterTarget};
use super::reorder::{Reorder, Reordered};
use crate::FrameKind;

/// How a player plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlayerSettings {
    /// How much is buffered before playing begins, and begins again.
    pub buffering: Buffering,
    /// A gap of media time longer than this, in microseconds, is not waited for; `None`: every gap is.
    pub snap_us: Option<i64>,
    /// Whether frames of a second layer are put between those of the first by Algorithm 2.
    pub reorders: bool,
    /// Whether it plays up to 5 % faster or slower to come to its target.
    pub catches_up: bool,
    /// Whether the next picture in order ends a pause at once; what follows it is buffered for a part of the target.
    /// The picture then stands still twice for a short time instead of once for a long one.
    pub resumes_at_once: bool,
    /// Whether the first track is taken as one stream: each group only after the one before it.
    pub in_sequence: bool,
    /// Whether keyframes are refused that begin to arrive when a newer one must be waiting.
    pub stops_stale: bool,
}

impl PlayerSettings {
    /// These settings with as much buffered as a viewer wants.
    #[must_use]
    pub fn with_buffer(self, choice: BufferChoice) -> Self {
        Self {
            buffering: choice.buffering(self.buffering),
            ..self
        }
    }
}

/// A frame that has arrived, as far as playout has to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The frame's number, in the order of decoding over the whole stream or as the caller likes.
    pub number: u64,
    /// How it was coded.
    pub kind: FrameKind,
    /// Whether no other frame needs it.
    pub is_disposable: bool,
    /// The group of pictures.
    pub group: u64,
    /// How many frames of the group before it others may need.
    pub references: u64,
    /// When it is decoded, in microseconds of media time.
    pub decode_us: i64,
    /// When it is shown, in microseconds of media time.
    pub presentation_us: i64,
    /// How long it is shown, in microseconds.
    pub duration_us: i64,
}

/// What becomes of a frame that is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It waits for its time.
    Waiting,
    /// It came after its time; others may still need it.
    Late,
    /// The buffer was full.
    Overflow,
}

/// A frame to be shown now, or to be passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The frame.
    pub frame: Arrival,
    /// Whether all that it needs has arrived. If not, it cannot be shown.
    pub is_decodable: bool,
}

/// A player without a decoder and a screen.
#[derive(Debug)]
pub struct Player {
    settings: PlayerSettings,
    target: JitterTarget,
    reorder: Option<Reorder<Arrival>>,
    clock: RenderClock,
    decodable: Decodable,
    /// By presentation time.
    buffer: BTreeMap<i64, Arrival>,
    is_playing: bool,
    /// Since when there is something in the buffer of a player that does not play.
    filling_since_us: Option<i64>,
    /// By how much what follows the next frame is put off, to have something in the buffer again.
    lead_us: i64,
    /// When a frame may be shown that would leave nothing in the buffer, like the one before it that ended a pause at once.
    held_until_us: Option<i64>,
}

impl Player {
    /// A player that has nothing yet.
    pub fn new(settings: PlayerSettings) -> Self {
        let target = JitterTarget::new(settings.buffering);
        Self {
            reorder: settings.reorders.then(|| Reorder::new(target.target_us())),
            target,
            clock: RenderClock::new(settings.snap_us),
            decodable: Decodable::default(),
            buffer: BTreeMap::new(),
            is_playing: false,
            filling_since_us: None,
            lead_us: 0,
            held_until_us: None,
            settings,
        }
    }

    /// A frame has arrived.
    pub fn push(&mut self, now_us: i64, arrival: Arrival) -> Fate {
        self.target.on_arrival(now_us, arrival.decode_us);
        if !arrival.is_disposable {
            self.decodable
                .on_reference(arrival.group, arrival.references);
        }
        let Some(reorder) = &mut self.reorder else {
            return self.enqueue(now_us, arrival);
        };
        let frame = Reordered {
            kind: arrival.kind,
            decode_us: arrival.decode_us,
            duration_us: arrival.duration_us,
            frame: arrival,
        };
        if reorder.push(frame).is_err() {
            return Fate::Late;
        }
        let mut fate = Fate::Waiting;
        while let Some(next) = self.reorder.as_mut().and_then(Reorder::poll) {
            let next_fate = self.enqueue(now_us, next.frame);
            if next.frame == arrival {
                fate = next_fate;
            }
        }
        fate
    }

    /// Nothing more comes: what waits for others to be put in order waits no longer.
    pub fn finish(&mut self, now_us: i64) {
        let rest = self.reorder.as_mut().map(Reorder::finish);
        for next in rest.into_iter().flatten() {
            self.enqueue(now_us, next.frame);
        }
    }

    /// The next frame if its time has come.
    pub fn poll(&mut self, now_us: i64) -> Option<Shown> {
        self.begin(now_us);
        if !self.is_playing {
            return None;
        }
        let (&presentation_us, &frame) = self.buffer.first_key_value()?;
        if self.clock.time_until(now_us, presentation_us) > 0 {
            return None;
        }
        self.buffer.pop_first();
        let is_decodable = self.decodable.is_decodable(frame.group, frame.references);
        if is_decodable {
            self.clock.on_shown(presentation_us);
        }
        let lead_us = std::mem::take(&mut self.lead_us);
        self.clock.delay(lead_us);
        if self.buffer.is_empty() {
            self.is_playing = false;
            self.clock.pause();
            self.held_until_us = (lead_us > 0).then(|| now_us + frame.duration_us + lead_us);
        } else if self.settings.catches_up {
            self.choose_rate(now_us);
        }
        Some(Shown {
            frame,
            is_decodable,
        })
    }

    /// When the next frame is due, if one waits.
    pub fn poll_timeout(&mut self, now_us: i64) -> Option<i64> {
        let presentation_us = *self.buffer.first_key_value()?.0;
        if self.is_playing {
            return Some(now_us + self.clock.time_until(now_us, presentation_us));
        }
        let since = self.filling_since_us?;
        Some(self.begins_us(since))
    }

    /// Presentation time of the frame that is on the screen.
    pub fn shown_us(&self) -> Option<i64> {
        self.clock.last_us()
    }

    fn enqueue(&mut self, now_us: i64, arrival: Arrival) -> Fate {
        let is_late = |last| arrival.presentation_us <= last;
        if self.clock.last_us().is_some_and(is_late) {
            return Fate::Late;
        }
        if self.buffer.len() >= BUFFER_MAX {
            return Fate::Overflow;
        }
        if self.buffer.is_empty() {
            self.filling_since_us = Some(now_us);
        }
        self.buffer.insert(arrival.presentation_us, arrival);
        Fate::Waiting
    }

    /// Begins to play once there is enough, or what there is has waited as long.
    fn begin(&mut self, now_us: i64) {
        let Some(since) = self.filling_since_us.filter(|_| !self.is_playing) else {
            return;
        };
        let is_filled = self.buffered_us() >= self.target.target_us();
        if !self.buffer.is_empty() && (is_filled || now_us >= self.begins_us(since)) {
            let is_held = self.held_until_us.take().is_some_and(|until| until > since);
            let was_held = is_held && self.buffer.len() == 1;
            if self.resumes_at_once() && !is_filled && !was_held {
                self.lead_us = self.target.target_us() * LEAD_PERCENT / 100;
            }
            self.is_playing = true;
            self.filling_since_us = None;
        }
    }

    /// When playing begins with what has been there since then, if not more comes before.
    fn begins_us(&self, since_us: i64) -> i64 {
        if self.resumes_at_once() && self.buffer.len() > 1 {
            since_us
        } else if self.resumes_at_once() {
            self.held_until_us
                .map_or(since_us, |until| until.max(since_us))
        } else {
            since_us + self.target.target_us()
        }
    }

    /// Whether what there is ends a pause at once: no other picture belongs before it.
    fn resumes_at_once(&self) -> bool {
        let first = self.buffer.first_key_value();
        let is_next = first
            .zip(self.clock.last_us())
            .is_some_and(|((_, frame), last)| {
                let gap_us = frame.presentation_us - last;
                frame.kind == FrameKind::Key || gap_us <= frame.duration_us + frame.duration_us / 2
            });
        self.settings.resumes_at_once && is_next
    }

    /// How much media waits, by decode times: by presentation times, one frame ahead of its B-frames
    /// would count for all of them.
    fn buffered_us(&self) -> i64 {
        let times = self.buffer.values().map(|frame| frame.decode_us);
        let oldest = times.clone().min().unwrap_or(0);
        times.max().unwrap_or(0) - oldest
    }

    fn choose_rate(&mut self, now_us: i64) {
        let (buffered, target) = (self.buffered_us(), self.target.target_us());
        let rate = if buffered > target + target / 2 {
            FAST
        } else if buffered < target / 2 {
            SLOW
        } else {
            1000
        };
        if rate != self.clock.rate() {
            self.clock.set_rate(now_us, rate);
        }
    }
}

/// Share of the target that is buffered behind a frame that ended a pause at once.
const LEAD_PERCENT: i64 = 60;
/// Thousandths of the media's speed while there is too much in the buffer.
const FAST: i64 = 1050;
/// Thousandths of the media's speed while there is too little in the buffer.
const SLOW: i64 = 950;
/// Frames that may wait; further ones are dropped. A minute at 60 frames per second.
const BUFFER_MAX: usize = 3600;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy;

    /// No time of a tag is further from 0 than this; of presentation times twice this.
    const EXTREME_US: i64 = 1 << 60;

    #[test]
    fn whatever_times_a_publisher_claims_a_player_goes_on() {
        let times = [-EXTREME_US, -1, 0, 1, EXTREME_US];
        for name in strategy::NAMES {
            let strategy = strategy::by_name(name).expect("a known name");
            let mut player = Player::new(strategy.player());
            let mut kinds = FrameKind::ALL.into_iter().cycle();
            let mut number = 0;
            for decode_us in times {
                for composition_us in times {
                    for duration_us in times {
                        let now_us = i64::try_from(number).expect("few") * 1000;
                        let arrival = Arrival {
                            number,
                            kind: kinds.next().expect("it goes round"),
                            is_disposable: false,
                            group: number / 5,
                            references: 0,
                            decode_us,
                            presentation_us: decode_us + composition_us,
                            duration_us,
                        };
                        player.push(now_us, arrival);
                        player.poll(now_us);
                        player.poll_timeout(now_us);
                        number += 1;
                    }
                }
            }
            player.finish(1_000_000);
            while player.poll(1_000_000).is_some() {}
        }
    }
}
