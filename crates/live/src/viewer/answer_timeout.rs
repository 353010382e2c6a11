//! How long a player waits for the answers of a relay.

use std::time::{Duration, Instant};

use weir_moqt::session::RequestId;

use super::Viewer;

impl Viewer {
    /// Tracks were asked for: the relay answers when somebody publishes them, or after as long as it was asked to wait for that.
    pub(super) fn await_answers(&mut self, now: Instant) {
        self.answer_by = answer_by(now, self.config.patience);
    }

    /// A track was accepted; what comes of it decides from now on.
    pub(super) fn on_accepted(&mut self, id: RequestId) {
        if self.tracks.iter().any(|track| track.request == id) {
            self.answer_by = None;
        }
    }

    /// No track was accepted, and it is too late now.
    pub(super) fn on_answer_timeout(&mut self, now: Instant) {
        if self.answer_by.take_if(|by| *by <= now).is_none() {
            return;
        }
        let unanswered: Vec<RequestId> = self.tracks.iter().map(|track| track.request).collect();
        if self.catalogs_followed > 0 {
            // Who came back has gone again.
            for id in unanswered {
                self.on_track_end(now, id, Some(0));
            }
        } else if let Some(track) = self.tracks.first() {
            let reason = unanswered_reason(&track.name);
            self.client.fail(reason);
        }
    }
}

/// By when a relay answers a request for what it is to wait for so long.
pub(super) fn answer_by(now: Instant, patience: Duration) -> Option<Instant> {
    now.checked_add(patience.saturating_add(ANSWER_TIME_MAX))
}

/// Why a player that had no answer is of no more use.
pub(super) fn unanswered_reason(track: &str) -> String {
    format!("the relay did not answer the SUBSCRIBE of the track {track:?}")
}

/// How long an answer may be on its way.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
