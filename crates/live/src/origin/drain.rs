//! The end of an origin: it waits until everything is acknowledged, ends its tracks, and closes the session.

use std::time::{Duration, Instant};

use weir_client::turn::Turn;
use weir_moqt::error::{PublishDoneCode, SessionError};
use weir_moqt::message::PublishDone;
use weir_quic::ConnectionStats;

use super::Origin;
use super::publication::{Publication, RequestState};

/// The progress of the end, as of the last check.
#[derive(Debug)]
pub(super) struct Drain {
    /// When progress is checked next.
    pub(super) look_at: Instant,
    /// When the last progress was seen.
    moved_at: Instant,
    streams: usize,
    stats: ConnectionStats,
}

impl Drain {
    fn new(now: Instant) -> Self {
        Self {
            look_at: now + LINGER,
            moved_at: now,
            streams: usize::MAX,
            stats: ConnectionStats::default(),
        }
    }

    /// Records the progress. Returns true if the relay has acknowledged nothing for [`STANDSTILL_MAX`].
    fn is_stuck(&mut self, now: Instant, streams: usize, stats: ConnectionStats) -> bool {
        let sent = stats.bytes_sent.saturating_sub(self.stats.bytes_sent);
        let is_answered = stats.bytes_received > self.stats.bytes_received;
        // Pings are smaller, and probes have no answer.
        if streams < self.streams || is_answered && sent >= MOVED_BYTES_MIN {
            self.moved_at = now;
        }
        (self.streams, self.stats) = (streams, stats);
        self.look_at = now + LINGER;
        now >= self.moved_at + STANDSTILL_MAX
    }
}

impl Origin {
    /// Finishes open streams after the end of the source. Closes the session when they are acknowledged, or when the
    /// relay has stopped acknowledging.
    pub(super) fn drain(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        let Some(drain) = &self.drain else {
            self.drain = Some(Drain::new(now));
            self.streams.finish_all();
            self.flush(turn);
            return self.end_tracks(turn);
        };
        if now < drain.look_at {
            return self.end_tracks(turn);
        }
        let left = self.streams.len() + self.fetch_responses.len();
        let stats = self.client.open(turn);
        let stats = stats.map(|(_, connection)| connection.stats());
        let Some(drain) = self.drain.as_mut().filter(|_| left > 0) else {
            return self.client.close(turn, "the stream is over");
        };
        if drain.is_stuck(now, left, stats.unwrap_or_default()) {
            let waiting = self.streams.waiting_bytes();
            let reason = format!(
                "the end of the stream did not arrive: the relay has acknowledged nothing for {} s, with {left} streams to go, \
                 of which {waiting} bytes were never sent",
                STANDSTILL_MAX.as_secs()
            );
            self.client
                .fail(turn, SessionError::DATA_STREAM_TIMEOUT, reason);
        }
    }

    /// Whether the source has ended, and the relay has acknowledged the whole stream.
    pub(super) fn has_arrived(&self) -> bool {
        let is_open =
            |publication: &Publication| matches!(publication.request, RequestState::Established(_));
        self.drain.is_some()
            && self.streams.len() + self.fetch_responses.len() == 0
            && !self.publications.iter().any(is_open)
    }

    /// Ends tracks if the source has ended. Called when a stream was acknowledged or is writable again.
    pub(super) fn end_tracks_if_over(&mut self, turn: &mut Turn<'_>) {
        if self.drain.is_some() {
            self.end_tracks(turn);
        }
    }

    /// Sends `PUBLISH_DONE` for each track whose streams are acknowledged. After an earlier `PUBLISH_DONE`, a
    /// subscriber would not wait long for the rest.
    fn end_tracks(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        let Some((session, mut connection)) = self.client.open(turn) else {
            return;
        };
        for (track, publication) in self.publications.iter_mut().enumerate() {
            if let RequestState::Established(request) = publication.request
                && !self.streams.has_track(track)
            {
                publication.request = RequestState::Done;
                let done = PublishDone {
                    code: PublishDoneCode::TRACK_ENDED,
                    stream_count: Some(publication.streams_opened),
                    reason: String::new(),
                };
                session.publish_done(&mut connection, request, done);
                if let Some(drain) = &mut self.drain {
                    drain.look_at = now + LINGER;
                }
            }
        }
    }
}

/// How often progress is checked, and how long the session stays open after the last `PUBLISH_DONE`, so that it arrives.
const LINGER: Duration = Duration::from_secs(2);
/// How long the relay may acknowledge nothing before the origin gives up the rest.
const STANDSTILL_MAX: Duration = Duration::from_secs(10);
/// Bytes sent between two checks that prove more than pings.
const MOVED_BYTES_MIN: u64 = 1200;
