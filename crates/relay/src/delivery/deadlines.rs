//! Streams of one session that have to arrive by a certain time: a delivery time-out does not end with the last write
//! [moqt-18 §8].
//!
//! Of streams without a time-out it knows only those that have no end of their own, and are reset when they had time to
//! arrive.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use weir_moqt::{error::ResetCode, session::RequestId};
use weir_quic::Handle;
use weir_transport::{StreamId, Transport as _};

use super::Delivery;
use crate::{effect::Effect, ids::TrackId, timers::Timer, track::Tracks, turn::Turn};

/// Streams that are not known to have arrived in full, and by when they have to.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    due: BTreeMap<StreamId, Deadline>,
    /// When the relay looks at them.
    timer: Option<Instant>,
}

/// By when a stream has to arrive, and the code with which it is reset if it has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deadline {
    at: Instant,
    code: ResetCode,
}

impl Deadline {
    /// Its delivery time-out is over at `at`.
    pub(crate) fn timeout(at: Instant) -> Self {
        let code = ResetCode::DELIVERY_TIMEOUT;
        Self { at, code }
    }

    /// All of it was written that its publisher has sent before another one took its place. It has no end of its own, and a
    /// reset may overtake what is on its way.
    pub(crate) fn displaced(now: Instant) -> Self {
        let (at, code) = (now + DISPLACED_LINGER, ResetCode::CANCELLED);
        Self { at, code }
    }
}

impl Deadlines {
    /// A stream has to arrive in time, or earlier if that was said before. With more than `max` of them, gives the one
    /// opened first and its code; it is not waited for any longer.
    pub(crate) fn insert(
        &mut self,
        stream: StreamId,
        due: Deadline,
        max: usize,
    ) -> Option<(StreamId, ResetCode)> {
        let known = self.due.entry(stream).or_insert(due);
        if due.at < known.at {
            *known = due;
        }
        if self.due.len() <= max {
            return None;
        }
        self.due.pop_first().map(|(oldest, due)| (oldest, due.code))
    }

    /// A stream has arrived, or is given up.
    pub(crate) fn remove(&mut self, stream: StreamId) {
        self.due.remove(&stream);
    }

    /// The streams whose time is over, with their codes.
    fn expired(&mut self, now: Instant) -> Vec<(StreamId, ResetCode)> {
        self.due
            .extract_if(.., |_, due| due.at <= now)
            .map(|(stream, due)| (stream, due.code))
            .collect()
    }

    /// When it is to be looked at next; it is only noted if it is earlier than what was said before.
    pub(crate) fn rearm(&mut self) -> Option<(Option<Instant>, Instant)> {
        let next = self.due.values().map(|due| due.at).min()?;
        if self.timer.is_some_and(|timer| timer <= next) {
            return None;
        }
        Some((self.timer.replace(next), next))
    }

    /// The timer that is set, which is no longer needed.
    pub(crate) fn disarm(&mut self) -> Option<Instant> {
        self.timer.take()
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.due.len()
    }
}

impl Delivery {
    /// A stream of a session has arrived in full.
    pub(crate) fn on_finished(&mut self, handle: Handle, stream: StreamId) {
        if let Some(outgoing) = self.sessions.get_mut(handle) {
            outgoing.deadlines.remove(stream);
        }
    }

    /// Takes note of streams of a session that have to arrive in time.
    pub(super) fn note_deadlines(
        &mut self,
        turn: &mut Turn<'_>,
        tracks: &mut Tracks,
        handle: Handle,
        deadlines: Vec<(StreamId, Deadline)>,
    ) {
        let max = turn.config.limits.streams_timed_per_session_max;
        let outgoing = self.sessions.entry(handle);
        let mut forgotten = Vec::new();
        for (stream, deadline) in deadlines {
            forgotten.extend(outgoing.deadlines.insert(stream, deadline, max));
        }
        self.arm(turn, handle);
        for overdue in forgotten {
            self.give_up_stream(turn, tracks, handle, overdue);
        }
    }

    /// The time of some streams of a session may be over.
    pub(crate) fn on_deadline(&mut self, turn: &mut Turn<'_>, tracks: &mut Tracks, handle: Handle) {
        let Some(outgoing) = self.sessions.get_mut(handle) else {
            return;
        };
        outgoing.deadlines.disarm();
        for overdue in outgoing.deadlines.expired(turn.now) {
            self.give_up_stream(turn, tracks, handle, overdue);
        }
        self.arm(turn, handle);
    }

    fn arm(&mut self, turn: &mut Turn<'_>, handle: Handle) {
        let outgoing = self.sessions.get_mut(handle);
        if let Some((before, next)) = outgoing.and_then(|outgoing| outgoing.deadlines.rearm()) {
            let timer = Timer::Delivery(handle);
            if let Some(before) = before {
                turn.timers.cancel(before, timer);
            }
            turn.timers.set(next, timer);
        }
    }

    /// Resets a stream that did not arrive in time, written in full or not.
    fn give_up_stream(
        &mut self,
        turn: &mut Turn<'_>,
        tracks: &mut Tracks,
        handle: Handle,
        (stream, code): (StreamId, ResetCode),
    ) {
        if code == ResetCode::DELIVERY_TIMEOUT {
            turn.counters.streams_reset_timeout += 1;
        } else {
            turn.counters.streams_reset_upstream += 1;
        }
        if let Some((id, request)) = self.abort_stream(turn, tracks, handle, stream, code) {
            turn.push(Effect::MaybeDrained(id, handle, request));
        } else if let Some(mut connection) = turn.endpoint.connection(turn.now, handle) {
            connection.reset(stream, code.0);
        }
    }

    /// Gives up a stream that a subscription of the session is still writing; returns whose it was.
    pub(super) fn abort_stream(
        &mut self,
        turn: &mut Turn<'_>,
        tracks: &mut Tracks,
        handle: Handle,
        stream: StreamId,
        code: ResetCode,
    ) -> Option<(TrackId, RequestId)> {
        let subscriptions: Vec<_> = turn.sessions.get(handle)?.subscriptions().collect();
        subscriptions.into_iter().find_map(|(request, id)| {
            let is_it = self.with_subscription(
                turn,
                tracks,
                (id, handle, request),
                |subscription, connection, _, fan_out| {
                    subscription.abort(connection, stream, code, fan_out)
                },
            );
            (is_it == Some(true)).then_some((id, request))
        })
    }
}

/// How long a stream stays open when another publisher has taken the place of its own.
const DISPLACED_LINGER: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::epoch;

    #[test]
    fn streams_with_a_time_are_bounded_and_looked_at_in_time() {
        let start = epoch();
        let at = |secs| start + Duration::from_secs(secs);
        let due = |secs| Deadline::timeout(at(secs));
        let mut deadlines = Deadlines::default();
        assert_eq!(deadlines.rearm(), None);
        assert_eq!(deadlines.insert(StreamId(3), due(5), 2), None);
        assert_eq!(deadlines.rearm(), Some((None, at(5))));
        assert_eq!(
            deadlines.insert(StreamId(7), due(4), 2),
            None,
            "at the limit"
        );
        assert_eq!(deadlines.rearm(), Some((Some(at(5)), at(4))));
        assert_eq!(deadlines.insert(StreamId(7), due(9), 2), None, "the same");
        assert_eq!(deadlines.rearm(), None, "it is set for then already");
        let forgotten = deadlines.insert(StreamId(11), due(6), 2);
        let code = ResetCode::DELIVERY_TIMEOUT;
        assert_eq!(forgotten, Some((StreamId(3), code)), "one past it");
        assert_eq!(deadlines.len(), 2);
        assert_eq!(deadlines.expired(at(3)), []);
        assert_eq!(deadlines.expired(at(4)), [(StreamId(7), code)]);
        assert_eq!(deadlines.disarm(), Some(at(4)));
        assert_eq!(deadlines.rearm(), Some((None, at(6))));
        deadlines.remove(StreamId(11));
        assert_eq!(deadlines.disarm(), Some(at(6)));
        assert_eq!(deadlines.rearm(), None);
    }
}
