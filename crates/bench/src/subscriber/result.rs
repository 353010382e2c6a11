//! The result of one subscription.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_moqt::name::FullTrackName;

use crate::clock::{milliseconds, signed_nanoseconds};
use crate::metrics::{End, Failure, TrackResult};
use weir_report::relay::Conduct;
use weir_report::relay::{Status, SubscriberReport};

/// One subscription: one subscriber on one track.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubscriptionResult {
    /// The subscriber's number in the run.
    pub subscriber: usize,
    /// The index of the track's plan.
    pub plan: usize,
    /// The track's name.
    #[serde(with = "crate::measured::track_name")]
    pub name: FullTrackName,
    /// The measurements.
    pub track: TrackResult,
    /// Why the connection, the session or the subscription failed.
    pub failure: Option<String>,
    /// Time from the first packet to the end of the QUIC handshake.
    pub handshake: Option<Duration>,
    /// Time from the end of the handshake to the relay's SETUP.
    pub setup: Option<Duration>,
    /// Time from SUBSCRIBE to the first object of any kind, in the first session.
    pub first_object: Option<Duration>,
    /// Time from a joining FETCH to the end of its stream, in the first session that made one.
    pub joining_fetch: Option<Duration>,
    /// How the subscriber behaved.
    pub conduct: Conduct,
    /// Sessions that the subscriber has established.
    pub sessions: u64,
}

impl SubscriptionResult {
    /// Returns the row of the report. `first_subscriber` is added to the subscriber's number if several roles share a
    /// run.
    pub fn to_report(&self, first_subscriber: u64) -> SubscriberReport {
        let ms = |time: Option<Duration>| time.map(|time| milliseconds(signed_nanoseconds(time)));
        SubscriberReport {
            index: first_subscriber + self.subscriber as u64,
            track_name: self.name.to_string(),
            conduct: self.conduct,
            sessions: self.sessions,
            status: self.track.status,
            reason: self.reason(),
            completion: self.track.completion,
            progress: self.track.progress,
            delivery: self.track.delivery,
            variance: self.track.variance,
            latency: self.track.latency,
            handshake_ms: ms(self.handshake),
            setup_ms: ms(self.setup),
            first_object_ms: ms(self.first_object),
            joining_fetch_ms: ms(self.joining_fetch),
        }
    }

    /// Returns why objects came before START.
    fn late_reason(&self) -> String {
        match self.track.delivery.lost_join {
            0 => format!("it joined after START, or START was lost; {HOW_TO_WAIT}"),
            missed => format!("it joined after START, {missed} objects late; {HOW_TO_WAIT}"),
        }
    }

    /// Returns why the track is not good; `None` if it is.
    fn reason(&self) -> Option<String> {
        if self.track.status == Status::Good {
            return None;
        }
        if let Some(failure) = &self.failure {
            return Some(failure.clone());
        }
        let reason = match (self.track.failure, self.track.end) {
            (Some(Failure::NoStart), _) => return Some(self.late_reason()),
            (Some(Failure::OtherProfile), _) => "START describes another track than the profile",
            (Some(Failure::Malformed), _) => "too many messages were malformed",
            (Some(Failure::Refused), _) => "the relay refused the subscription",
            (None, Some(End::Completion)) => return None,
            (None, Some(End::PublishDone)) => "the track ended without COMPLETION",
            (None, Some(End::Idle)) => "nothing came any more, and no COMPLETION",
            (None, Some(End::Disconnected)) => "the session was lost",
            (None, Some(End::Interrupted)) => "the run was interrupted",
            (None, None) => "the track has not ended",
        };
        Some(reason.to_owned())
    }
}

/// The treatment of subscribers that join too late.
const HOW_TO_WAIT: &str = "--await-subscribers lets a publisher in another process wait";
