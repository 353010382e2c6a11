//! The way of an origin from one relay to the next.
//!
//! At GOAWAY, the origin leaves between two groups, when everything sent is acknowledged: then the next relay gets the stream
//! without a gap. An origin that has lost its relay continues with the next keyframe. Groups, frame numbers, init segment and
//! catalog continue, so players see one publisher.

use std::time::{Duration, Instant};

use weir_client::turn::Turn;
use weir_moqt::error::SessionError;
use weir_moqt::message::GoAway;

use super::Origin;
use super::publication::RequestState;
use super::streams::Streams;
use crate::{FrameKind, Item};

/// A relay that is to be left.
#[derive(Debug)]
pub(super) struct Departure {
    goaway: GoAway,
    /// Whether a group is complete, so that the origin leaves when it is acknowledged.
    is_ready: bool,
    /// When the origin leaves at the latest.
    pub(super) by: Instant,
}

/// When an origin continues at the next relay. After a GOAWAY it waits for [`RESUMPTION_PAUSE`]: other relays and the players hear
/// of the tracks, and subscribe before the first object.
#[derive(Debug, Default)]
pub(super) enum Resumption {
    /// Nothing is waited for.
    #[default]
    Over,
    /// The tracks are not published yet.
    Awaited,
    /// Objects are sent from this time on.
    At(Instant),
}

impl Resumption {
    /// Whether objects may be sent.
    pub(super) fn is_over(&mut self, now: Instant, is_published: bool) -> bool {
        match *self {
            Self::Awaited if is_published => *self = Self::At(now + RESUMPTION_PAUSE),
            Self::At(at) if at <= now => *self = Self::Over,
            Self::Over | Self::Awaited | Self::At(_) => {}
        }
        matches!(self, Self::Over)
    }

    /// Returns when objects are sent, if that is not at once.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match *self {
            Self::At(at) => Some(at),
            Self::Over | Self::Awaited => None,
        }
    }
}

impl Origin {
    /// Prepares to leave a relay that has sent GOAWAY. Fails if there is no other.
    pub(super) fn on_goaway(&mut self, turn: &mut Turn<'_>, goaway: GoAway) {
        if !self.client.may_follow(&goaway) {
            self.fail_to_follow(turn);
        } else if self.departure.is_none() {
            let time = goaway.timeout.map_or(DEPARTURE_MAX, |timeout| timeout / 2);
            self.departure = Some(Departure {
                goaway,
                is_ready: false,
                by: turn.now + time.min(DEPARTURE_MAX),
            });
        }
    }

    /// Whether the origin takes nothing from its source until it has left its relay.
    pub(super) fn is_about_to_leave(&self) -> bool {
        self.departure
            .as_ref()
            .is_some_and(|departure| departure.is_ready)
    }

    /// Returns the next item to publish. Holds a keyframe back if the relay is to be left before it.
    pub(super) fn next_item(&mut self, now: Instant) -> Option<(Instant, Item)> {
        while let Some((at, item)) = self.held.take().or_else(|| self.source.poll(now)) {
            let is_keyframe = matches!(&item, Item::Frame(frame) if frame.kind == FrameKind::Key);
            if let Some(departure) = self.departure.as_mut().filter(|_| is_keyframe) {
                departure.is_ready = true;
                self.streams.finish_all();
                self.held = Some((at, item));
                return None;
            }
            self.awaits_keyframe &= !is_keyframe;
            if !self.awaits_keyframe || matches!(item, Item::Init(_)) {
                return Some((at, item));
            }
            // Nobody can use the rest of a group.
            let is_frame = matches!(item, Item::Frame(_));
            self.counters.frames += u64::from(is_frame);
            self.counters.frames_skipped += u64::from(is_frame);
        }
        None
    }

    /// Leaves the relay that has sent GOAWAY, if everything is acknowledged or the time is over.
    pub(super) fn depart(&mut self, turn: &mut Turn<'_>) {
        let is_idle = self.streams.len() + self.fetch_responses.len() == 0;
        let is_due =
            |departure: &mut Departure| departure.by <= turn.now || departure.is_ready && is_idle;
        let Some(departure) = self.departure.take_if(is_due) else {
            return;
        };
        if self.client.follow(turn, &departure.goaway) {
            self.resumption = Resumption::Awaited;
        } else {
            self.fail_to_follow(turn);
        }
    }

    fn fail_to_follow(&mut self, turn: &mut Turn<'_>) {
        let reason = "the relay is going away".to_owned();
        self.client.fail(turn, SessionError::NO_ERROR, reason);
    }

    /// Begins again after the client has left its relay.
    pub(super) fn note_move(&mut self) {
        let Some(reason) = self.client.take_move() else {
            return;
        };
        self.last_move = Some(reason);
        self.counters.relays_left += 1;
        self.departure = None;
        self.publications.clear();
        self.namespace_offer = RequestState::None;
        self.answer_by = None;
        self.fetch_responses.clear();
        self.waiting_subscribes.clear();
        self.streams = Streams::default();
        self.awaits_keyframe = true;
    }
}

/// The time from the publication at the next relay to the first object there.
const RESUMPTION_PAUSE: Duration = Duration::from_millis(100);
/// The longest time until the origin leaves a relay after its GOAWAY.
const DEPARTURE_MAX: Duration = Duration::from_secs(3);
