//! How long a player waits for the relay to answer its SUBSCRIBEs.

use std::time::{Duration, Instant};

use weir_moqt::session::RequestId;

use super::Viewer;
use super::phase::Phase;

impl Viewer {
    /// Starts to wait for answers. The relay answers when somebody publishes the tracks, or when the rendezvous time-out is over.
    pub(super) fn await_answers(&mut self, now: Instant) {
        let answer_by = answer_by(now, self.config.rendezvous_timeout);
        self.phase = Phase::Playing { answer_by };
    }

    /// Stops waiting for answers if a track was accepted.
    pub(super) fn on_accepted(&mut self, id: RequestId) {
        if self.tracks.iter().any(|track| track.request == id) {
            self.phase.on_answered();
        }
    }

    /// Gives the tracks up if none was accepted in time.
    pub(super) fn on_answer_timeout(&mut self, now: Instant) {
        if self.phase.answer_by().is_none_or(|by| by > now) {
            return;
        }
        self.phase.on_answered();
        let unanswered: Vec<RequestId> = self.tracks.iter().map(|track| track.request).collect();
        if self.catalogs_followed > 0 {
            // The publisher that came back has gone again.
            for id in unanswered {
                self.on_track_end(now, id, Some(0));
            }
        } else if let Some(track) = self.tracks.first() {
            let reason = unanswered_reason(&track.name);
            self.client.fail(reason);
        }
    }
}

/// By when a relay answers a request for which it may wait for a publisher for `wait`.
pub(super) fn answer_by(now: Instant, wait: Duration) -> Option<Instant> {
    now.checked_add(wait.saturating_add(ANSWER_TIME_MAX))
}

/// The failure of a player that got no answer.
pub(super) fn unanswered_reason(track: &str) -> String {
    format!("the relay did not answer the SUBSCRIBE of the track {track:?}")
}

/// How long an answer may take beyond the rendezvous time-out.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
