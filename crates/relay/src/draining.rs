//! The end of a relay: all are told, nothing new is taken on, and after a while the rest is closed.

use std::time::{Duration, Instant};

use weir_moqt::{error::SessionError, message::GoAway};
use weir_quic::Endpoint;

use crate::{Relay, timers::Timer};

/// How far the end has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It is not near.
    #[default]
    Serving,
    /// All were told, at one time; at the other, the last ones are closed.
    Draining(Instant, Instant),
    /// Nobody is left.
    Over,
}

impl Relay {
    /// Whether nothing new is taken on because the end is near.
    pub(crate) fn is_draining(&self) -> bool {
        self.stage != Stage::Serving
    }

    /// Sends GOAWAY to all sessions and waits for them to leave [moqt-18 §3.6]. Asked again, it waits no longer.
    pub(crate) fn drain(&mut self, now: Instant, endpoint: &mut Endpoint) {
        endpoint.refuse_newcomers(true);
        if self.is_draining() {
            return self.close_rest(now, endpoint);
        }
        let timeout = self.config.drain_max;
        self.stage = Stage::Draining(now, now + timeout);
        let successor = self.config.successor.clone().unwrap_or_default();
        for handle in self.peers.handles() {
            let is_ready = self.with_session(now, endpoint, handle, |session, connection| {
                let is_ready = session.is_ready();
                if is_ready {
                    let goaway = GoAway {
                        new_session_uri: successor.clone(),
                        timeout: Some(timeout),
                        request_id: None,
                    };
                    session.goaway(connection, goaway);
                }
                is_ready
            });
            if is_ready != Some(true) {
                let code = SessionError::NO_ERROR;
                self.close_session(now, endpoint, handle, code, SHUTTING_DOWN);
            }
        }
        self.on_draining(now, endpoint);
    }

    /// Looks who has left, and closes those who have nothing open; at the end, all.
    pub(crate) fn on_draining(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let Stage::Draining(told_at, until) = self.stage else {
            return;
        };
        if now >= until || self.peers.len() == 0 {
            return self.close_rest(now, endpoint);
        }
        if now >= told_at + IDLE_GRACE {
            for handle in self.peers.handles() {
                if self
                    .peers
                    .get(handle)
                    .is_some_and(|peer| peer.requests.is_empty())
                {
                    let code = SessionError::NO_ERROR;
                    self.close_session(now, endpoint, handle, code, SHUTTING_DOWN);
                }
            }
        }
        if self.peers.len() == 0 {
            return self.close_rest(now, endpoint);
        }
        self.timers
            .set(until.min(now + DRAIN_LOOK), Timer::Draining);
    }

    /// Closes who has not left in time.
    fn close_rest(&mut self, now: Instant, endpoint: &mut Endpoint) {
        for handle in self.peers.handles() {
            self.counters.sessions_drained_late += 1;
            let code = SessionError::GOAWAY_TIMEOUT;
            self.close_session(now, endpoint, handle, code, SHUTTING_DOWN);
        }
        endpoint.close_all(now, SessionError::NO_ERROR.0, SHUTTING_DOWN.as_bytes());
        self.stage = Stage::Over;
    }
}

const SHUTTING_DOWN: &str = "the relay is shutting down";
/// How long those who have no request open may take to hear of the end.
const IDLE_GRACE: Duration = Duration::from_millis(500);
/// How often it is looked who has left.
const DRAIN_LOOK: Duration = Duration::from_millis(100);
