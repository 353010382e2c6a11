//! The end of a relay: all are told, nothing new is taken on, and after a while the rest is closed.

use std::time::{Duration, Instant};

use weir_moqt::{error::SessionError, message::GoAway, session::RequestId};
use weir_quic::Handle;

use crate::{dispatch::Owners, timers::Timer, turn::Turn};

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

impl Owners {
    /// Sends GOAWAY to all sessions and waits for them to leave [moqt-18 §3.6]. Asked again, it waits no longer.
    pub(crate) fn drain(&mut self, turn: &mut Turn<'_>) {
        turn.endpoint.refuse_newcomers(true);
        if turn.sessions.is_draining() {
            return self.close_rest(turn);
        }
        let timeout = turn.config.drain_max;
        turn.sessions.stage = Stage::Draining(Farewell {
            told_at: turn.now,
            remind_at: Some(turn.now + timeout / 2),
            until: turn.now + timeout,
        });
        let successor = turn.config.successor.clone().unwrap_or_default();
        for handle in turn.sessions.handles() {
            let is_ready = turn.with_session(handle, |session, connection| {
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
                self.close_session(turn, handle, code, SHUTTING_DOWN);
            }
        }
        self.on_draining(turn);
    }

    /// Looks who has left, and closes those who have nothing open; at the end, all. Half-way, those who are still there
    /// are asked to move each of their requests: they may not have understood what was said of the session.
    pub(crate) fn on_draining(&mut self, turn: &mut Turn<'_>) {
        let Stage::Draining(farewell) = &mut turn.sessions.stage else {
            return;
        };
        let is_reminder = farewell.remind_at.take_if(|at| *at <= turn.now).is_some();
        let Farewell { told_at, until, .. } = *farewell;
        if turn.now >= until || turn.sessions.len() == 0 {
            return self.close_rest(turn);
        }
        if turn.now >= told_at + IDLE_GRACE {
            for handle in turn.sessions.handles() {
                if turn
                    .sessions
                    .get(handle)
                    .is_some_and(|peer| peer.requests.is_empty())
                {
                    let code = SessionError::NO_ERROR;
                    self.close_session(turn, handle, code, SHUTTING_DOWN);
                }
            }
        }
        if turn.sessions.len() == 0 {
            return self.close_rest(turn);
        }
        if is_reminder {
            for handle in turn.sessions.handles() {
                turn.move_requests(handle, until.saturating_duration_since(turn.now));
            }
        }
        turn.timers
            .set(until.min(turn.now + DRAIN_LOOK), Timer::Draining);
    }

    /// Closes who has not left in time.
    fn close_rest(&mut self, turn: &mut Turn<'_>) {
        for handle in turn.sessions.handles() {
            turn.counters.sessions_drained_late += 1;
            let code = SessionError::GOAWAY_TIMEOUT;
            self.close_session(turn, handle, code, SHUTTING_DOWN);
        }
        turn.endpoint
            .close_all(turn.now, SessionError::NO_ERROR.0, SHUTTING_DOWN.as_bytes());
        turn.sessions.stage = Stage::Over;
    }
}

impl Turn<'_> {
    /// Asks a session to move each of its requests [moqt-18 §10.4].
    fn move_requests(&mut self, handle: Handle, timeout: Duration) {
        let Some(peer) = self.sessions.get(handle) else {
            return;
        };
        let requests: Vec<RequestId> = peer.requests.keys().copied().collect();
        let goaway = GoAway {
            new_session_uri: self.config.successor.clone().unwrap_or_default(),
            timeout: Some(timeout),
            request_id: None,
        };
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
/// How long those who have no request open may take to hear of the end.
const IDLE_GRACE: Duration = Duration::from_millis(500);
/// How often it is looked who has left.
const DRAIN_LOOK: Duration = Duration::from_millis(100);
