//! The player: buffer, clock, and the fate of each frame.

use std::collections::BTreeMap;

use super::clock::RenderClock;
use super::decodable::Decodable;
use super::jitter::{BufferChoice, Buffering, JitterTarget};
use super::reorder::{Reorder, Reordered};
use crate::FrameKind;

/// The settings of a player.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlayerSettings {
    /// How much is buffered before playing begins or resumes.
    pub buffering: Buffering,
    /// The longest gap of media time that is waited for, in microseconds; `None`: every gap is.
    pub snap_us: Option<i64>,
    /// Whether frames of a second layer are merged into the first by Algorithm 2.
    pub reorders: bool,
    /// Whether the speed changes by up to 5 % to reach the target.
    pub catches_up: bool,
    /// Whether the next picture in order ends a pause at once; then only part of the target is buffered before the
    /// following one. The picture freezes twice for a short time instead of once for a long time.
    pub resumes_at_once: bool,
    /// Whether the first track is played as one stream: each group only after the previous one.
    pub in_sequence: bool,
    /// Whether keyframes are refused if a newer one can overtake them when they begin to arrive.
    pub stops_stale: bool,
    /// Whether the player limits what is in flight, so that the queue of the bottleneck stays short.
    pub limits_queue: bool,
}

impl PlayerSettings {
    /// Returns these settings with the viewer's choice of buffer.
    #[must_use]
    pub fn with_buffer(self, choice: BufferChoice) -> Self {
        Self {
            buffering: choice.buffering(self.buffering),
            ..self
        }
    }
}

/// An arrived frame, as playout sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The frame's number: in decoding order over the whole stream, or any other that the caller chooses.
    pub number: u64,
    /// How the frame is coded.
    pub kind: FrameKind,
    /// Whether no other frame needs it.
    pub is_disposable: bool,
    /// The group of pictures.
    pub group: u64,
    /// The number of earlier frames of the group that others may need.
    pub references: u64,
    /// The decode time, in microseconds of media time.
    pub decode_us: i64,
    /// The presentation time, in microseconds of media time.
    pub presentation_us: i64,
    /// The duration, in microseconds.
    pub duration_us: i64,
}

/// The fate of a frame that has just arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The frame waits to be shown.
    Waiting,
    /// The frame arrived too late to be shown; other frames may still need it.
    Late,
    /// The frame was dropped since the buffer was full.
    Overflow,
}

/// A frame to show or to skip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The frame.
    pub frame: Arrival,
    /// Whether all frames that it needs have arrived. If not, it cannot be shown.
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
    /// Waiting frames by presentation time.
    buffer: BTreeMap<i64, Arrival>,
    is_playing: bool,
    /// When the first frame entered the buffer of a player that is not playing.
    filling_since_us: Option<i64>,
    /// How much the frames after the next one are delayed to fill the buffer again.
    lead_us: i64,
    /// The earliest time to show a frame that would empty the buffer again, after a frame that ended a pause at once.
    held_until_us: Option<i64>,
}

impl Player {
    /// Returns a player without frames.
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

    /// Takes a frame that has arrived.
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

    /// Ends the stream: frames that wait for reordering are released.
    pub fn finish(&mut self, now_us: i64) {
        let rest = self.reorder.as_mut().map(Reorder::finish);
        for next in rest.into_iter().flatten() {
            self.enqueue(now_us, next.frame);
        }
    }

    /// Returns the next frame if it is due.
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

    /// Returns when the next frame is due.
    pub fn poll_timeout(&mut self, now_us: i64) -> Option<i64> {
        let presentation_us = *self.buffer.first_key_value()?.0;
        if self.is_playing {
            return Some(now_us + self.clock.time_until(now_us, presentation_us));
        }
        let since = self.filling_since_us?;
        Some(self.begins_us(since))
    }

    /// Returns the presentation time of the frame on the screen.
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

    /// Starts to play when the buffer is full, or its first frame has waited long enough.
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

    /// Returns when playing begins if nothing more arrives. The buffer has not been empty since `since_us`.
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

    /// Whether the buffered frames end a pause at once, because no other picture precedes them.
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

    /// Returns the buffered media by decode times. By presentation times, one frame ahead of its B-frames would count
    /// for all of them.
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

/// Share of the target that is buffered after a frame that ended a pause at once.
const LEAD_PERCENT: i64 = 60;
/// The speed if the buffer is above its target, in thousandths of normal.
const FAST: i64 = 1050;
/// The speed if the buffer is below its target, in thousandths of normal.
const SLOW: i64 = 950;
/// Frames that may wait: a minute at 60 per second. Further frames are dropped.
const BUFFER_MAX: usize = 3600;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy;

    /// The largest absolute time in a tag; presentation times may reach twice this.
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
