//! The end of a relay: all are told, nothing new is taken on, and after a while the rest is closed.

use std::time::{Duration, Instant};

use weir_moqt::{error::SessionError, message::GoAway, session::RequestId};
use weir_quic::{Endpoint, Handle};

use crate::{Relay, timers::Timer};

/// How far the end has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It is not near.
    #[default]
    Serving,
    /// All were told.
    Draining(Farewell),
    /// Nobody is left.
    Over,
}

/// When the end comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Farewell {
    told_at: Instant,
    /// When those who are still there are asked to move each of their requests; `None` once they were.
    remind_at: Option<Instant>,
    /// When the last ones are closed.
    until: Instant,
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
        self.stage = Stage::Draining(Farewell {
            told_at: now,
            remind_at: Some(now + timeout / 2),
            until: now + timeout,
        });
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

    /// Looks who has left, and closes those who have nothing open; at the end, all. Half-way, those who are still there
    /// are asked to move each of their requests: they may not have understood what was said of the session.
    pub(crate) fn on_draining(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let Stage::Draining(farewell) = &mut self.stage else {
            return;
        };
        let is_reminder = farewell.remind_at.take_if(|at| *at <= now).is_some();
        let Farewell { told_at, until, .. } = *farewell;
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
        if is_reminder {
            for handle in self.peers.handles() {
                self.move_requests(now, endpoint, handle, until.saturating_duration_since(now));
            }
        }
        self.timers
            .set(until.min(now + DRAIN_LOOK), Timer::Draining);
    }

    /// Asks a session to move each of its requests [moqt-18 §10.4].
    fn move_requests(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        timeout: Duration,
    ) {
        let Some(peer) = self.peers.get(handle) else {
            return;
        };
        let requests: Vec<RequestId> = peer.requests.keys().copied().collect();
        let goaway = GoAway {
            new_session_uri: self.config.successor.clone().unwrap_or_default(),
            timeout: Some(timeout),
            request_id: None,
        };
        let moved = self.with_session(now, endpoint, handle, |session, connection| {
            let of_peer = |id: &RequestId| session.is_of_peer(*id);
            let requests: Vec<_> = requests.into_iter().filter(of_peer).collect();
            for &id in &requests {
                session.request_goaway(connection, id, goaway.clone());
            }
            requests.len()
        });
        self.counters.requests_moved += moved.unwrap_or(0) as u64;
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
