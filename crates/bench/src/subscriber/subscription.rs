//! The state of one track at a subscriber, beside its metrics.

use std::time::{Duration, Instant};

use super::SubscriberProgress;
use crate::metrics::TrackReceiver;

/// A track at a subscriber.
#[derive(Clone, Debug, Default)]
pub(super) struct Subscription {
    /// The request for the track in this session.
    request: Request,
    /// When the first object of the track arrived, of any kind.
    pub(super) first_object: Option<Instant>,
    /// Time from SUBSCRIBE to that object, in the first session.
    pub(super) first_object_time: Option<Duration>,
    /// Whether the relay accepted a request for the track in any session.
    was_accepted: bool,
    has_ended: bool,
    /// Whether the track will be fetched when the schedules begin.
    pub(super) is_fetched_later: bool,
    /// The first group of the next range, if the track is fetched in ranges and one is left.
    pub(super) next_range: Option<u64>,
    /// Time from a joining FETCH to the end of its stream, in the first session that made one.
    pub(super) joining_fetch: Option<Duration>,
    pub(super) failure: Option<String>,
}

/// The request for a track in one session: SUBSCRIBE, FETCH, or the PUBLISH of the relay.
#[derive(Clone, Copy, Debug, Default)]
enum Request {
    /// Nothing was requested.
    #[default]
    Idle,
    /// The request was sent at this time.
    Sent(Instant),
    /// The relay has accepted the request that was sent at this time.
    Accepted(Instant),
}

impl Subscription {
    /// Counts the end of the track, once.
    #[inline]
    pub(super) fn note_end(&mut self, receiver: &TrackReceiver, progress: &mut SubscriberProgress) {
        if !self.has_ended && receiver.has_ended() {
            self.has_ended = true;
            progress.ended += 1;
        }
    }

    /// Records the arrival of an object of the track, of any kind.
    #[inline]
    pub(super) fn note_object(&mut self, now: Instant) {
        if self.first_object.is_none() {
            self.first_object = Some(now);
            let since = |sent: Instant| now.saturating_duration_since(sent);
            self.first_object_time = self.sent_at().map(since);
        }
    }

    /// Resets the request when the session ends. The next session requests the track again.
    pub(super) fn leave(&mut self) {
        self.request = Request::Idle;
    }

    /// Records that a request for the track was sent.
    pub(super) fn on_requested(&mut self, now: Instant) {
        self.request = Request::Sent(now);
    }

    /// Records that the relay accepted the request. Counts once over all sessions.
    pub(super) fn on_accepted(&mut self, progress: &mut SubscriberProgress) {
        if let Request::Sent(at) = self.request {
            self.request = Request::Accepted(at);
        }
        progress.accepted += u64::from(!std::mem::replace(&mut self.was_accepted, true));
    }

    /// Whether the track was requested in this session.
    pub(super) fn is_requested(&self) -> bool {
        self.sent_at().is_some()
    }

    /// Whether the relay accepted the request of this session.
    #[inline]
    pub(super) fn is_served(&self) -> bool {
        matches!(self.request, Request::Accepted(_))
    }

    /// Whether the schedules can begin as far as this track is concerned.
    pub(super) fn is_ready(&self) -> bool {
        self.was_accepted || self.has_ended || self.is_fetched_later
    }

    /// Whether the track has ended, complete or not.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    #[inline]
    fn sent_at(&self) -> Option<Instant> {
        match self.request {
            Request::Idle => None,
            Request::Sent(at) | Request::Accepted(at) => Some(at),
        }
    }
}
