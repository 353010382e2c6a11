//! One track at a subscriber, beside its figures.

use std::time::{Duration, Instant};

use super::SubscriberProgress;
use crate::metrics::TrackReceiver;

/// A track at a subscriber.
#[derive(Clone, Debug, Default)]
pub(super) struct Subscription {
    /// When it was asked for in this session.
    pub(super) asked: Option<Instant>,
    /// When the first object of the track came, of any kind.
    pub(super) first_object: Option<Instant>,
    /// From SUBSCRIBE to that object, in the first session.
    pub(super) first_object_time: Option<Duration>,
    /// Whether the relay ever accepted it.
    pub(super) accepted: bool,
    /// Whether the relay has accepted it in this session.
    pub(super) is_served: bool,
    pub(super) ended: bool,
    /// Whether the track will be fetched when the schedules begin.
    pub(super) is_waiting: bool,
    pub(super) failure: Option<String>,
}

impl Subscription {
    /// Counts the end of the track once.
    #[inline]
    pub(super) fn note_end(&mut self, receiver: &TrackReceiver, progress: &mut SubscriberProgress) {
        if !self.ended && receiver.has_ended() {
            self.ended = true;
            progress.ended += 1;
        }
    }

    /// An object of the track has arrived, of any kind.
    #[inline]
    pub(super) fn note_object(&mut self, now: Instant) {
        if self.first_object.is_none() {
            self.first_object = Some(now);
            self.first_object_time = self.asked.map(|asked| now.saturating_duration_since(asked));
        }
    }

    /// The session is left; in the next the track is asked for again.
    pub(super) fn leave(&mut self) {
        (self.asked, self.is_served) = (None, false);
    }
}
