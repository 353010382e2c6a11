//! Drain: all sessions get GOAWAY, nothing new is accepted, and after a while the remaining sessions are closed.

use std::time::{Duration, Instant};

use weir_moqt::{error::SessionError, message::GoAway, session::RequestId};
use weir_quic::Handle;

use crate::{effect::Effect, timers::Timer, turn::Turn};

/// The stage of a drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Not begun.
    #[default]
    Serving,
    /// All sessions were sent GOAWAY.
    Draining(Farewell),
    /// All sessions are closed.
    Over,
}

/// The times of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Farewell {
    notified_at: Instant,
    /// When the remaining sessions are asked to move each of their requests; `None` afterwards.
    remind_at: Option<Instant>,
    /// When the remaining sessions are closed.
    until: Instant,
}

impl Turn<'_> {
    /// Sends GOAWAY to all sessions and waits for them to leave [moqt-18 §3.6]. A second call closes them at once.
    pub(crate) fn drain(&mut self) {
        self.endpoint.refuse_incoming(true);
        if self.sessions.is_draining() {
            return self.close_rest();
        }
        let timeout = self.config.drain_max;
        tracing::info!(sessions = self.sessions.len(), ?timeout, "GOAWAY sent");
        self.sessions.stage = Stage::Draining(Farewell {
            notified_at: self.now,
            remind_at: Some(self.now + timeout / 2),
            until: self.now + timeout,
        });
        for handle in self.sessions.handles() {
            let goaway = self.goaway(timeout);
            let is_ready = self.with_session(handle, |session, connection| {
                let is_ready = session.is_ready();
                if is_ready {
                    session.goaway(connection, goaway);
                }
                is_ready
            });
            if is_ready != Some(true) {
                self.close(handle, SessionError::NO_ERROR);
            }
        }
        self.on_draining();
    }

    /// Checks which sessions have left, and closes those without open requests.
    pub(crate) fn on_draining(&mut self) {
        if let Stage::Draining(farewell) = &self.sessions.stage
            && self.now >= farewell.notified_at + IDLE_GRACE
        {
            for handle in self.sessions.handles() {
                let peer = self.sessions.get(handle);
                if peer.is_some_and(|peer| peer.requests().next().is_none()) {
                    self.close(handle, SessionError::NO_ERROR);
                }
            }
        }
        self.push(Effect::DrainContinues);
    }

    /// Continues the drain after idle sessions were closed; at the end, all sessions are closed. Half-way, the
    /// remaining sessions are asked to move each of their requests, in case they ignored the GOAWAY of the session.
    pub(crate) fn continue_drain(&mut self) {
        let Stage::Draining(farewell) = &mut self.sessions.stage else {
            return;
        };
        let now = self.now;
        let is_reminder = farewell.remind_at.take_if(|at| *at <= now).is_some();
        let until = farewell.until;
        if now >= until || self.sessions.len() == 0 {
            return self.close_rest();
        }
        if is_reminder {
            for handle in self.sessions.handles() {
                self.move_requests(handle, until.saturating_duration_since(now));
            }
        }
        self.timers
            .set(until.min(now + DRAIN_LOOK), Timer::Draining);
    }

    /// Closes the sessions that have not left in time.
    fn close_rest(&mut self) {
        tracing::info!(
            sessions = self.sessions.len(),
            "drained; closing the sessions that stayed"
        );
        for handle in self.sessions.handles() {
            self.counters.sessions_drained_late += 1;
            self.close(handle, SessionError::GOAWAY_TIMEOUT);
        }
        self.push(Effect::DrainOver);
    }

    /// Ends the drain, since all sessions are closed.
    pub(crate) fn end_drain(&mut self) {
        let (code, reason) = (SessionError::NO_ERROR.0, SHUTTING_DOWN.as_bytes());
        self.endpoint.close_all(self.now, code, reason);
        self.sessions.stage = Stage::Over;
    }

    fn close(&mut self, handle: Handle, code: SessionError) {
        self.push(Effect::CloseSession(handle, code, SHUTTING_DOWN.to_owned()));
    }

    /// Returns the GOAWAY with the successor's URI and the time that sessions have.
    fn goaway(&self, timeout: Duration) -> GoAway {
        GoAway {
            new_session_uri: self.config.successor.clone().unwrap_or_default(),
            timeout: Some(timeout),
            request_id: None,
        }
    }

    /// Sends GOAWAY for each request of a session [moqt-18 §10.4].
    fn move_requests(&mut self, handle: Handle, timeout: Duration) {
        let Some(peer) = self.sessions.get(handle) else {
            return;
        };
        let requests: Vec<RequestId> = peer.requests().collect();
        let goaway = self.goaway(timeout);
        let moved = self.with_session(handle, |session, connection| {
            let of_peer = |id: &RequestId| session.is_of_peer(*id);
            let requests: Vec<_> = requests.into_iter().filter(of_peer).collect();
            for &id in &requests {
                session.request_goaway(connection, id, goaway.clone());
            }
            requests.len()
        });
        self.counters.requests_moved += moved.unwrap_or(0) as u64;
    }
}

const SHUTTING_DOWN: &str = "the relay is shutting down";
/// How long sessions without open requests have to receive GOAWAY.
const IDLE_GRACE: Duration = Duration::from_millis(500);
/// How often the relay checks who has left.
const DRAIN_LOOK: Duration = Duration::from_millis(100);
