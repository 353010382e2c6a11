//! Delivery deadlines of the streams of one session: a delivery timeout does not end with the last write [moqt-18 §8].
//!
//! Streams without a timeout are listed only if they never end by themselves. They are reset once they had time to
//! arrive.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use weir_moqt::error::ResetCode;
use weir_quic::Handle;
use weir_transport::{StreamId, Transport as _};

use super::Delivery;
use crate::{effect::Effect, timers::Timer, track::Tracks, turn::Turn};

/// Streams that are not known to have arrived in full, with their deadlines.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    due: BTreeMap<StreamId, Deadline>,
    /// When the timer is due.
    timer: Option<Instant>,
}

/// When a stream has to have arrived, and the code of the reset otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deadline {
    at: Instant,
    code: ResetCode,
}

impl Deadline {
    /// A deadline by delivery timeout.
    pub(crate) fn timeout(at: Instant) -> Self {
        let code = ResetCode::DELIVERY_TIMEOUT;
        Self { at, code }
    }

    /// A deadline for a stream whose publisher was displaced, once everything is written. Such a stream never ends by
    /// itself, and an immediate reset could overtake its data.
    pub(crate) fn displaced(now: Instant) -> Self {
        let (at, code) = (now + DISPLACED_LINGER, ResetCode::CANCELLED);
        Self { at, code }
    }
}

impl Deadlines {
    /// Sets the deadline of a stream, or moves it forward. Beyond `max` streams, removes and returns the one opened
    /// first, with its reset code.
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

    /// Removes a stream that has arrived or was reset.
    pub(crate) fn remove(&mut self, stream: StreamId) {
        self.due.remove(&stream);
    }

    /// Removes and returns the streams whose deadline has passed, with their reset codes.
    fn expired(&mut self, now: Instant) -> Vec<(StreamId, ResetCode)> {
        self.due
            .extract_if(.., |_, due| due.at <= now)
            .map(|(stream, due)| (stream, due.code))
            .collect()
    }

    /// Returns the timer to replace, and when the next one is due. `None` if the current timer is early enough.
    pub(crate) fn rearm(&mut self) -> Option<(Option<Instant>, Instant)> {
        let next = self.due.values().map(|due| due.at).min()?;
        if self.timer.is_some_and(|timer| timer <= next) {
            return None;
        }
        Some((self.timer.replace(next), next))
    }

    /// Takes the timer, which is to be cancelled.
    pub(crate) fn disarm(&mut self) -> Option<Instant> {
        self.timer.take()
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.due.len()
    }
}

impl Delivery {
    /// Handles a stream of a session that has arrived in full.
    pub(crate) fn on_finished(&mut self, handle: Handle, stream: StreamId) {
        if let Some(outgoing) = self.sessions.get_mut(handle) {
            outgoing.deadlines.remove(stream);
        }
    }

    /// Sets deadlines for streams of a session.
    pub(super) fn note_deadlines(
        &mut self,
        turn: &mut Turn<'_>,
        tracks: &mut Tracks,
        handle: Handle,
        deadlines: Vec<(StreamId, Deadline)>,
    ) {
        let max = turn.config.limits.streams_timed_per_session_max;
        let outgoing = self.sessions.entry(handle);
        let mut forgotten = BTreeMap::new();
        for (stream, deadline) in deadlines {
            forgotten.extend(outgoing.deadlines.insert(stream, deadline, max));
        }
        self.arm(turn, handle);
        self.give_up_streams(turn, tracks, handle, &forgotten);
    }

    /// Resets the streams of a session whose deadline has passed.
    pub(crate) fn on_deadline(&mut self, turn: &mut Turn<'_>, tracks: &mut Tracks, handle: Handle) {
        let Some(outgoing) = self.sessions.get_mut(handle) else {
            return;
        };
        outgoing.deadlines.disarm();
        let overdue = outgoing.deadlines.expired(turn.now).into_iter().collect();
        self.give_up_streams(turn, tracks, handle, &overdue);
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

    /// Resets streams that missed their deadline, whether or not they were written in full.
    fn give_up_streams(
        &mut self,
        turn: &mut Turn<'_>,
        tracks: &mut Tracks,
        handle: Handle,
        overdue: &BTreeMap<StreamId, ResetCode>,
    ) {
        if overdue.is_empty() {
            return;
        }
        let aborted = self.abort_streams(turn, tracks, handle, overdue);
        for (&stream, &code) in overdue {
            if code == ResetCode::DELIVERY_TIMEOUT {
                turn.counters.streams_reset_timeout += 1;
            } else {
                turn.counters.streams_reset_upstream += 1;
            }
            if !aborted.contains(&stream)
                && let Some(mut connection) = turn.endpoint.connection(turn.now, handle)
            {
                connection.reset(stream, code.0);
            }
        }
    }

    /// Resets those of `streams` that a subscription of the session is still writing, and returns them. Visits each
    /// subscription once.
    pub(super) fn abort_streams(
        &mut self,
        turn: &mut Turn<'_>,
        tracks: &mut Tracks,
        handle: Handle,
        streams: &BTreeMap<StreamId, ResetCode>,
    ) -> BTreeSet<StreamId> {
        let mut aborted = BTreeSet::new();
        let Some(peer) = turn.sessions.get(handle) else {
            return aborted;
        };
        let subscriptions: Vec<_> = peer.subscriptions().collect();
        for (request, id) in subscriptions {
            if aborted.len() == streams.len() {
                break;
            }
            let subscriptions = self.tracks.get(id);
            let subscription = subscriptions.and_then(|it| it.established.get(handle, request));
            let found = subscription.map(|it| it.open_among(streams));
            for (stream, code) in found.into_iter().flatten() {
                let who = (id, handle, request);
                self.with_subscription(
                    turn,
                    tracks,
                    who,
                    |subscription, connection, _, fan_out| {
                        subscription.abort(connection, stream, code, fan_out)
                    },
                );
                aborted.insert(stream);
                turn.push(Effect::MaybeDrained(id, handle, request));
            }
        }
        aborted
    }
}

/// How long a stream stays open after its publisher was displaced.
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
