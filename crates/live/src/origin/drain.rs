//! How an origin takes leave: it ends its tracks, and waits as long as what it has sent still arrives.

use std::time::{Duration, Instant};

use weir_moqt::error::PublishDoneCode;
use weir_moqt::message::PublishDone;
use weir_quic::{ConnectionStats, Endpoint};

use super::Origin;

/// What there was at the last look.
#[derive(Debug)]
pub(super) struct Leaving {
    /// When it is looked again.
    pub(super) look_at: Instant,
    /// When something was seen to arrive.
    moved_at: Instant,
    streams: usize,
    stats: ConnectionStats,
}

impl Leaving {
    fn new(now: Instant) -> Self {
        Self {
            look_at: now + LINGER,
            moved_at: now,
            streams: usize::MAX,
            stats: ConnectionStats::default(),
        }
    }

    /// Takes note of how far it is; returns whether nothing has arrived for too long.
    fn is_stuck(&mut self, now: Instant, streams: usize, stats: ConnectionStats) -> bool {
        let sent = stats.bytes_sent.saturating_sub(self.stats.bytes_sent);
        let is_answered = stats.bytes_received > self.stats.bytes_received;
        // Pings are smaller, and probes are not answered.
        if streams < self.streams || is_answered && sent >= MOVED_BYTES_MIN {
            self.moved_at = now;
        }
        (self.streams, self.stats) = (streams, stats);
        self.look_at = now + LINGER;
        now >= self.moved_at + STANDSTILL_MAX
    }
}

impl Origin {
    /// The source is over: finishes what is open, and leaves when that has arrived, or nothing arrives any more.
    pub(super) fn leave(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let Some(leaving) = &self.leaving else {
            self.leaving = Some(Leaving::new(now));
            self.streams.finish_all();
            self.flush(now, endpoint);
            return self.end_tracks(now, endpoint);
        };
        if now < leaving.look_at {
            return self.end_tracks(now, endpoint);
        }
        let left = self.streams.len() + self.answers.len();
        let stats = self.client.open(now, endpoint);
        let stats = stats.map(|(_, connection)| connection.stats());
        let Some(leaving) = self.leaving.as_mut().filter(|_| left > 0) else {
            return self.client.close(now, endpoint, "the stream is over");
        };
        if leaving.is_stuck(now, left, stats.unwrap_or_default()) {
            let waiting = self.streams.waiting_bytes();
            let reason = format!(
                "the end of the stream did not arrive: the relay has acknowledged nothing for {} s, with {left} streams to go, \
                 of which {waiting} bytes were never sent",
                STANDSTILL_MAX.as_secs()
            );
            self.client.close(now, endpoint, "nothing arrives");
            self.client.fail(reason);
        }
    }

    /// Something has arrived, or can be written.
    pub(super) fn end_tracks_if_over(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if self.leaving.is_some() {
            self.end_tracks(now, endpoint);
        }
    }

    /// The source is over: ends each track of which all has arrived. Who is told of the end before would not wait long for the
    /// rest.
    fn end_tracks(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let Some((session, mut connection)) = self.client.open(now, endpoint) else {
            return;
        };
        for (track, publication) in self.publications.iter_mut().enumerate() {
            if !publication.is_accepted || self.streams.has_track(track) {
                continue;
            }
            if let Some(request) = publication.request.take() {
                let done = PublishDone {
                    code: PublishDoneCode::TRACK_ENDED,
                    stream_count: Some(publication.streams_opened),
                    reason: String::new(),
                };
                session.publish_done(&mut connection, request, done);
                if let Some(leaving) = &mut self.leaving {
                    leaving.look_at = now + LINGER;
                }
            }
        }
    }
}

/// How long the session stays open after all else, so that the end of the tracks arrives, and how often it is looked before
/// whether something moves.
const LINGER: Duration = Duration::from_secs(2);
/// How long nothing may arrive before the rest is given up.
const STANDSTILL_MAX: Duration = Duration::from_secs(10);
/// Bytes that are sent between two looks if there is more on its way than pings.
const MOVED_BYTES_MIN: u64 = 1200;
