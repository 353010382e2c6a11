//! Deadlines of sessions: the first permitted request of one without rights, the silence of publishers, and their answers
//! to requests of the relay.

use std::time::{Duration, Instant};

use weir_moqt::{error::SessionError, session::Request};
use weir_quic::{ConnectionStats, Handle};

use crate::{effect::Effect, timers::Timer, turn::Turn};

/// How long nothing has come from a publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Silence {
    /// When the next check is due.
    pub(super) due: Instant,
    /// UDP payloads received before the last check.
    payloads: u64,
    /// Checks in a row that found no further payload.
    checks: u32,
}

impl Turn<'_> {
    /// Closes a session to which SETUP granted nothing, unless it makes a permitted request in time.
    pub(super) fn set_permit_deadline(&mut self, handle: Handle) {
        let at = self.now + self.config.limits.unauthorized_max;
        if let Some(peer) = self.sessions.get(handle) {
            peer.permit_by = Some(at);
            self.timers.set(at, Timer::Unauthorized(handle));
        }
    }

    /// Handles a permitted request.
    pub(crate) fn note_permitted(&mut self, handle: Handle, request: &Request) {
        let peer = self.sessions.get(handle);
        if let Some(at) = peer.and_then(|peer| peer.permit_by.take()) {
            self.timers.cancel(at, Timer::Unauthorized(handle));
        }
        if matches!(request, Request::Publish(_) | Request::PublishNamespace(_)) {
            self.watch_publisher(handle);
        }
    }

    /// Closes a session without rights whose time is over.
    pub(crate) fn on_unauthorized_too_long(&mut self, handle: Handle) {
        let Some(peer) = self.sessions.get(handle) else {
            return;
        };
        peer.permit_by = None;
        self.counters.sessions_unauthorized += 1;
        let (code, reason) = (SessionError::UNAUTHORIZED, "no permitted request in time");
        self.log_refused_session(handle, code, reason);
        self.push(Effect::CloseSession(handle, code, reason.to_owned()));
    }

    /// Notes that a session has not answered a request of the relay in [`ANSWER_TIME`]. Until it answers one, the relay
    /// asks others at the same time or before. A link may be waiting for another relay.
    pub(crate) fn note_unresponsive(&mut self, handle: Handle) {
        if let Some(peer) = self.sessions.get(handle).filter(|peer| !peer.is_link()) {
            self.counters.publishers_unresponsive += u64::from(!peer.is_unresponsive);
            peer.is_unresponsive = true;
        }
    }

    /// Notes that a session has answered a request of the relay.
    pub(crate) fn note_answer(&mut self, handle: Handle) {
        if let Some(peer) = self.sessions.get(handle) {
            peer.is_unresponsive = false;
        }
    }

    /// Returns whether a session has not answered a request of the relay in time, nor any since.
    pub(crate) fn is_unresponsive(&mut self, handle: Handle) -> bool {
        let peer = self.sessions.get(handle);
        peer.is_some_and(|peer| peer.is_unresponsive)
    }

    /// Begins to watch whether a publisher is alive.
    fn watch_publisher(&mut self, handle: Handle) {
        let every = self.config.limits.publisher_silence_max / CHECKS;
        let Some(peer) = self.sessions.get(handle) else {
            return;
        };
        if every.is_zero() || peer.is_link() || peer.silence.is_some() {
            return;
        }
        let due = self.now + every;
        peer.silence = Some(Silence {
            due,
            payloads: 0,
            checks: 0,
        });
        self.timers.set(due, Timer::Silence(handle));
    }

    /// Checks whether a publisher is alive: pings one from which nothing came, and closes its session if it does not
    /// answer. Checks are counted, not time, so that a pause of this host does not count against its peers.
    pub(crate) fn on_silence_check(&mut self, handle: Handle) {
        let every = self.config.limits.publisher_silence_max / CHECKS;
        let Some(peer) = self.sessions.get(handle) else {
            return;
        };
        let counts = peer.counts();
        let Some(before) = peer.silence.take().filter(|_| counts.publishes()) else {
            return;
        };
        let Some(mut connection) = self.endpoint.connection(self.now, handle) else {
            return;
        };
        let stats = connection.stats();
        let payloads = stats.payloads_received;
        let checks = if payloads == before.payloads {
            before.checks + 1
        } else {
            0
        };
        if checks >= checks_max(every, &stats) {
            self.counters.publishers_silent += 1;
            let (code, reason) = (SessionError::INTERNAL_ERROR, "the publisher is silent");
            return self.push(Effect::CloseSession(handle, code, reason.to_owned()));
        }
        if checks >= CHECKS_BEFORE_PING {
            connection.probe();
        }
        let due = self.now + every;
        peer.silence = Some(Silence {
            due,
            payloads,
            checks,
        });
        self.timers.set(due, Timer::Silence(handle));
    }
}

/// How long a publisher may take to answer a request of the relay, before others are asked as well.
pub(crate) const ANSWER_TIME: Duration = Duration::from_secs(2);

/// Returns how many checks in a row may find nothing from a publisher.
///
/// The first round trip that a client measures can be as long as its handshake, if packets of that were lost. Until it has
/// measured others, it repeats what was lost only after three times as long (RFC 9002 §6.2.1).
fn checks_max(every: Duration, stats: &ConnectionStats) -> u32 {
    if stats.acks_sent >= ROUND_TRIPS {
        return CHECKS;
    }
    let patience = (HANDSHAKES * stats.handshake).as_nanos() / every.as_nanos().max(1);
    u32::try_from(patience).map_or(u32::MAX, |patience| patience.max(CHECKS))
}

/// Checks without a payload after which a publisher's session is closed. A publisher that is killed just after a check is
/// noticed one check later.
const CHECKS: u32 = 10;
/// Checks without a payload before the publisher is pinged. It is pinged at least seven times then: over a link that loses
/// packets, three are not enough. Early pings also bring a publisher the acknowledgements that it lost: quinn sends none itself
/// while its congestion window is full.
const CHECKS_BEFORE_PING: u32 = 3;
/// How many times as long as its handshake a new publisher may be silent.
const HANDSHAKES: u32 = 4;
/// Acknowledgements after which a publisher is no longer new. Its estimate of the round trip has halved with every fifth
/// (RFC 9002 §5.3).
const ROUND_TRIPS: u64 = 50;
