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

use crate::{dispatch::Owners, timers::Timer, track::table::TrackId, turn::Turn};

/// Streams that are not known to have arrived in full, and by when they have to.
#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    due: BTreeMap<StreamId, Due>,
    /// When the relay looks at them.
    timer: Option<Instant>,
}

/// By when a stream has to arrive, and the code with which it is reset if it has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    at: Instant,
    code: ResetCode,
}

impl Due {
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

impl Deliveries {
    /// A stream has to arrive in time, or earlier if that was said before. With more than `max` of them, gives the one
    /// opened first and its code; it is not waited for any longer.
    pub(crate) fn insert(
        &mut self,
        stream: StreamId,
        due: Due,
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

impl Owners {
    /// Takes note of streams of a session that have to arrive in time.
    pub(crate) fn note_deliveries(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        deliveries: Vec<(StreamId, Due)>,
    ) {
        let max = turn.config.limits.streams_timed_per_session_max;
        let mut forgotten = Vec::new();
        let Some(peer) = turn.sessions.get(handle) else {
            return;
        };
        for (stream, due) in deliveries {
            forgotten.extend(peer.deliveries.insert(stream, due, max));
        }
        turn.arm_deliveries(handle);
        for overdue in forgotten {
            self.give_up_delivery(turn, handle, overdue);
        }
    }

    /// The time of some streams of a session may be over.
    pub(crate) fn on_delivery_due(&mut self, turn: &mut Turn<'_>, handle: Handle) {
        let Some(peer) = turn.sessions.get(handle) else {
            return;
        };
        peer.deliveries.disarm();
        for overdue in peer.deliveries.expired(turn.now) {
            self.give_up_delivery(turn, handle, overdue);
        }
        turn.arm_deliveries(handle);
    }

    /// Resets a stream that did not arrive in time, written in full or not.
    fn give_up_delivery(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        (stream, code): (StreamId, ResetCode),
    ) {
        if code == ResetCode::DELIVERY_TIMEOUT {
            turn.counters.streams_reset_timeout += 1;
        } else {
            turn.counters.streams_reset_upstream += 1;
        }
        if let Some((track_id, request)) = self.abort_stream(turn, handle, stream, code) {
            self.dismiss_if_drained(turn, track_id, handle, request);
        } else if let Some(mut connection) = turn.endpoint.connection(turn.now, handle) {
            connection.reset(stream, code.0);
        }
    }

    /// Gives up a stream that a subscription of the session is still writing; returns whose it was.
    pub(crate) fn abort_stream(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        stream: StreamId,
        code: ResetCode,
    ) -> Option<(TrackId, RequestId)> {
        let subscriptions: Vec<_> = turn.sessions.get(handle)?.subscriptions().collect();
        subscriptions.into_iter().find_map(|(request, track_id)| {
            let who = (track_id, handle, request);
            let is_it = self.with_subscriber(turn, who, |subscriber, connection, _, turn| {
                subscriber.abort(connection, stream, code, turn)
            });
            (is_it == Some(true)).then_some((track_id, request))
        })
    }
}

impl Turn<'_> {
    fn arm_deliveries(&mut self, handle: Handle) {
        let peer = self.sessions.get(handle);
        if let Some((before, next)) = peer.and_then(|peer| peer.deliveries.rearm()) {
            let timer = Timer::Delivery(handle);
            if let Some(before) = before {
                self.timers.cancel(before, timer);
            }
            self.timers.set(next, timer);
        }
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
        let due = |secs| Due::timeout(at(secs));
        let mut deliveries = Deliveries::default();
        assert_eq!(deliveries.rearm(), None);
        assert_eq!(deliveries.insert(StreamId(3), due(5), 2), None);
        assert_eq!(deliveries.rearm(), Some((None, at(5))));
        assert_eq!(
            deliveries.insert(StreamId(7), due(4), 2),
            None,
            "at the limit"
        );
        assert_eq!(deliveries.rearm(), Some((Some(at(5)), at(4))));
        assert_eq!(deliveries.insert(StreamId(7), due(9), 2), None, "the same");
        assert_eq!(deliveries.rearm(), None, "it is set for then already");
        let forgotten = deliveries.insert(StreamId(11), due(6), 2);
        let code = ResetCode::DELIVERY_TIMEOUT;
        assert_eq!(forgotten, Some((StreamId(3), code)), "one past it");
        assert_eq!(deliveries.len(), 2);
        assert_eq!(deliveries.expired(at(3)), []);
        assert_eq!(deliveries.expired(at(4)), [(StreamId(7), code)]);
        assert_eq!(deliveries.disarm(), Some(at(4)));
        assert_eq!(deliveries.rearm(), Some((None, at(6))));
        deliveries.remove(StreamId(11));
        assert_eq!(deliveries.disarm(), Some(at(6)));
        assert_eq!(deliveries.rearm(), None);
    }
}
