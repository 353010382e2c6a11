//! The time that a player waits for responses to its SUBSCRIBEs.

use std::time::{Duration, Instant};

use weir_client::turn::Turn;
use weir_moqt::error::SessionError;
use weir_moqt::session::RequestId;

use super::Viewer;
use super::phase::Phase;

impl Viewer {
    /// Starts to wait. The relay responds when a track has a publisher, or after the rendezvous timeout.
    pub(super) fn await_answers(&mut self, now: Instant) {
        let answer_by = answer_by(now, self.config.rendezvous_timeout);
        self.phase = Phase::Playing { answer_by };
    }

    /// Stops waiting if a track was accepted.
    pub(super) fn on_accepted(&mut self, id: RequestId) {
        if self.tracks.iter().any(|track| track.request == id) {
            self.phase.on_answered();
        }
    }

    /// Gives up the tracks if none was accepted in time.
    pub(super) fn on_answer_timeout(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        if self.phase.answer_by().is_none_or(|by| by > now) {
            return;
        }
        self.phase.on_answered();
        let unanswered: Vec<RequestId> = self.tracks.iter().map(|track| track.request).collect();
        if self.catalogs_followed > 0 {
            // The publisher that reconnected has left again.
            for id in unanswered {
                self.on_track_end(now, id, Some(0));
            }
        } else if let Some(track) = self.tracks.first() {
            let reason = unanswered_reason(&track.name);
            self.client
                .fail(turn, SessionError::CONTROL_MESSAGE_TIMEOUT, reason);
        }
    }
}

/// Returns when the relay must have responded to a request with `rendezvous_timeout`.
pub(super) fn answer_by(now: Instant, rendezvous_timeout: Duration) -> Option<Instant> {
    now.checked_add(rendezvous_timeout.saturating_add(ANSWER_TIME_MAX))
}

/// Returns the failure of a player without a response.
pub(super) fn unanswered_reason(track: &str) -> String {
    format!("the relay did not answer the SUBSCRIBE of the track {track:?}")
}

/// The time for a response beyond the rendezvous timeout.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
