//! One subscription, and how far it has come in each subgroup.

use std::time::{Duration, Instant};

use bytes::Bytes;
use weir_moqt::{
    error::ResetCode,
    location::Location,
    message::PublishDone,
    parameter::{Filter, GroupOrder, Parameters},
    session::RequestId,
    transport::{Direction, StreamId, Transport as _, WriteError},
};
use weir_quic::{Connection, Handle};

use crate::{
    Counters, Limits,
    priority::rank,
    subgroup::{Ended, Mark, Subgroup, SubgroupId},
};

/// A subscription that gets objects.
#[derive(Debug)]
pub(crate) struct Subscriber {
    pub(crate) handle: Handle,
    pub(crate) request: RequestId,
    /// Objects are sent only while it wants them [moqt-18 §5.1].
    pub(crate) forward: bool,
    start: Location,
    /// Last group wanted.
    end_group: u64,
    priority: u8,
    order: GroupOrder,
    object_timeout: Option<Duration>,
    streams: Vec<OutStream>,
    streams_opened: u64,
    /// To be told once its streams are complete.
    pub(crate) ending: Option<PublishDone>,
}

/// One subgroup on its way to one subscriber.
#[derive(Debug)]
struct OutStream {
    subgroup: SubgroupId,
    state: OutState,
    /// Bytes that stand before the log for this subscriber, and are not yet written.
    prologue: Bytes,
    /// Offset in the log up to which it was written.
    cursor: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutState {
    /// The peer allows no further stream for now.
    Pending,
    Open(StreamId),
    /// Given up: reset, or stopped by the peer. No other stream is opened for it [moqt-18 §11.4.3].
    Skipped,
}

/// How a subscriber stands with a subgroup after a look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It has everything there is so far, or wants nothing of it.
    Level,
    /// It waits for its connection to take more, from this offset on. `Some`: tell when the stream is writable.
    Behind(u64, Option<StreamId>),
}

/// What the track says for all its subscribers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrackDefaults {
    pub(crate) priority: u8,
    pub(crate) order: GroupOrder,
    pub(crate) object_timeout: Option<Duration>,
}

impl Subscriber {
    /// A subscription with the parameters of its SUBSCRIBE, to a track whose largest object is `largest`.
    pub(crate) fn new(
        handle: Handle,
        request: RequestId,
        parameters: &Parameters,
        largest: Option<Location>,
        track: TrackDefaults,
    ) -> Self {
        let mut subscriber = Self {
            handle,
            request,
            forward: true,
            start: Location {
                group: 0,
                object: 0,
            },
            end_group: u64::MAX,
            priority: SUBSCRIBER_PRIORITY_DEFAULT,
            order: track.order,
            object_timeout: track.object_timeout,
            streams: Vec::new(),
            streams_opened: 0,
            ending: None,
        };
        subscriber.update(parameters, largest, track);
        subscriber
    }

    /// Takes over what a SUBSCRIBE or REQUEST_UPDATE says; what it does not mention stays.
    pub(crate) fn update(
        &mut self,
        parameters: &Parameters,
        largest: Option<Location>,
        track: TrackDefaults,
    ) {
        if let Some(forward) = parameters.forward {
            self.forward = forward;
        }
        if let Some(priority) = parameters.subscriber_priority {
            self.priority = priority;
        }
        if let Some(order) = parameters.group_order {
            self.order = order;
        }
        if parameters.object_delivery_timeout.is_some() {
            self.object_timeout = smaller(parameters.object_delivery_timeout, track.object_timeout);
        }
        if let Some(filter) = parameters.filter {
            (self.start, self.end_group) = range(filter, largest);
        }
    }

    /// Whether it wants the object at `location`.
    #[inline]
    pub(crate) fn wants(&self, location: Location) -> bool {
        self.forward && location >= self.start && location.group <= self.end_group
    }

    /// When a datagram received now is no longer worth sending.
    #[inline]
    pub(crate) fn datagram_deadline(&self, now: Instant) -> Option<Instant> {
        self.object_timeout.map(|timeout| now + timeout)
    }

    /// Whether its streams are all complete or given up.
    pub(crate) fn is_drained(&self) -> bool {
        self.streams
            .iter()
            .all(|stream| stream.state == OutState::Skipped)
    }

    /// Whether it still reads from a subgroup.
    pub(crate) fn is_in(&self, subgroup: SubgroupId) -> bool {
        let mut streams = self.streams.iter();
        streams.any(|stream| stream.subgroup == subgroup && stream.state != OutState::Skipped)
    }

    /// Number of streams opened for it so far [moqt-18 §10.13].
    pub(crate) fn streams_opened(&self) -> u64 {
        self.streams_opened
    }

    /// Brings it up to date with `subgroup`, in which the objects of `marks` have just begun.
    #[inline]
    pub(crate) fn advance(
        &mut self,
        now: Instant,
        connection: &mut Connection<'_>,
        subgroup: &Subgroup,
        marks: &[Mark],
        turn: &mut Turn<'_>,
    ) -> Progress {
        let index = match self
            .streams
            .iter()
            .position(|stream| stream.subgroup == subgroup.id)
        {
            Some(index) => index,
            None => match self.join(subgroup, marks, turn) {
                Some(index) => index,
                None => return Progress::Level,
            },
        };
        self.advance_stream(now, connection, subgroup, index, turn)
    }

    /// Goes on with a stream that was behind, if it still is.
    pub(crate) fn resume(
        &mut self,
        now: Instant,
        connection: &mut Connection<'_>,
        subgroup: &Subgroup,
        turn: &mut Turn<'_>,
    ) -> Progress {
        match self
            .streams
            .iter()
            .position(|stream| stream.subgroup == subgroup.id)
        {
            Some(index) => self.advance_stream(now, connection, subgroup, index, turn),
            None => Progress::Level,
        }
    }

    /// The subgroups for which it waits to open a stream.
    pub(crate) fn pending(&self) -> impl Iterator<Item = SubgroupId> + '_ {
        let pending = self
            .streams
            .iter()
            .filter(|stream| stream.state == OutState::Pending);
        pending.map(|stream| stream.subgroup)
    }

    /// The peer stopped `stream`; returns whether it was one of this subscription's.
    pub(crate) fn stopped(&mut self, connection: &mut Connection<'_>, stream: StreamId) -> bool {
        let open = OutState::Open(stream);
        let Some(entry) = self.streams.iter_mut().find(|entry| entry.state == open) else {
            return false;
        };
        connection.reset(stream, ResetCode::CANCELLED.0);
        entry.state = OutState::Skipped;
        true
    }

    /// Resets everything still open, since the subscription is over.
    pub(crate) fn abandon(&mut self, connection: &mut Connection<'_>) {
        for entry in self.streams.drain(..) {
            if let OutState::Open(stream) = entry.state {
                connection.reset(stream, ResetCode::CANCELLED.0);
            }
        }
    }

    /// Forgets a subgroup that is over for all.
    pub(crate) fn forget(&mut self, subgroup: SubgroupId) {
        self.streams.retain(|stream| stream.subgroup != subgroup);
    }

    /// Starts on a subgroup with the first of `marks` that it wants.
    fn join(&mut self, subgroup: &Subgroup, marks: &[Mark], turn: &mut Turn<'_>) -> Option<usize> {
        let mark = marks.iter().find(|mark| self.wants(mark.location))?;
        let full = self.streams.len() >= turn.limits.streams_per_subscription_max;
        let start = subgroup.start_at(mark);
        let state = if full {
            OutState::Skipped
        } else {
            OutState::Pending
        };
        if full {
            turn.counters.subgroups_skipped += 1;
        }
        self.streams.push(OutStream {
            subgroup: subgroup.id,
            state,
            prologue: start.prologue,
            cursor: start.cursor,
        });
        Some(self.streams.len() - 1)
    }

    fn advance_stream(
        &mut self,
        now: Instant,
        connection: &mut Connection<'_>,
        subgroup: &Subgroup,
        index: usize,
        turn: &mut Turn<'_>,
    ) -> Progress {
        let stream = match self.streams[index].state {
            OutState::Skipped => {
                if subgroup.ended().is_some() {
                    self.streams.swap_remove(index);
                }
                return Progress::Level;
            }
            OutState::Open(stream) => stream,
            OutState::Pending => {
                let behind = subgroup.len() - self.streams[index].cursor;
                let Some(stream) = connection.open(Direction::Uni) else {
                    if behind > turn.limits.lag_bytes_max {
                        turn.counters.subgroups_skipped += 1;
                        self.streams[index].state = OutState::Skipped;
                        return Progress::Level;
                    }
                    return Progress::Behind(self.streams[index].cursor, None);
                };
                let publisher = subgroup.header.priority.unwrap_or(turn.track.priority);
                let rank = rank(self.priority, publisher, self.order, subgroup.header.group);
                connection.set_priority(stream, rank);
                self.streams[index].state = OutState::Open(stream);
                self.streams_opened += 1;
                turn.counters.streams_sent += 1;
                stream
            }
        };
        let entry = &mut self.streams[index];
        let outcome = if let Some(Ended::Reset(code)) = subgroup.ended() {
            turn.counters.streams_reset_upstream += 1;
            Outcome::GiveUp(Some(code))
        } else {
            entry.write(now, connection, stream, subgroup, self.object_timeout, turn)
        };
        match outcome {
            Outcome::Blocked => return Progress::Behind(entry.cursor, Some(stream)),
            Outcome::GiveUp(code) => {
                if let Some(code) = code {
                    connection.reset(stream, code);
                }
                entry.state = OutState::Skipped;
            }
            Outcome::Level if subgroup.ended().is_some() => connection.finish(stream),
            Outcome::Level => return Progress::Level,
        }
        if subgroup.ended().is_some() {
            self.streams.swap_remove(index);
        }
        Progress::Level
    }
}

/// What is the same for all subscribers that are served in one go.
pub(crate) struct Turn<'a> {
    pub(crate) limits: &'a Limits,
    pub(crate) counters: &'a mut Counters,
    pub(crate) track: TrackDefaults,
}

enum Outcome {
    Level,
    Blocked,
    /// With the code to reset with, unless the stream is gone already.
    GiveUp(Option<u64>),
}

impl OutStream {
    /// Writes what the connection takes.
    fn write(
        &mut self,
        now: Instant,
        connection: &mut Connection<'_>,
        stream: StreamId,
        subgroup: &Subgroup,
        timeout: Option<Duration>,
        turn: &mut Turn<'_>,
    ) -> Outcome {
        if !self.prologue.is_empty() {
            match connection.write(stream, &mut self.prologue) {
                Ok(()) => {}
                Err(error) => return self.refused(error, subgroup, turn),
            }
        }
        while let Some(mut piece) = subgroup.from(self.cursor) {
            if timeout
                .is_some_and(|timeout| now.saturating_duration_since(piece.received) > timeout)
            {
                turn.counters.streams_reset_timeout += 1;
                return Outcome::GiveUp(Some(ResetCode::DELIVERY_TIMEOUT.0));
            }
            let before = piece.data.len();
            let result = connection.write(stream, &mut piece.data);
            let written = (before - piece.data.len()) as u64;
            self.cursor += written;
            turn.counters.stream_bytes_sent += written;
            if let Err(error) = result {
                return self.refused(error, subgroup, turn);
            }
        }
        Outcome::Level
    }

    fn refused(&self, error: WriteError, subgroup: &Subgroup, turn: &mut Turn<'_>) -> Outcome {
        match error {
            WriteError::Blocked => {
                if subgroup.len() - self.cursor > turn.limits.lag_bytes_max {
                    turn.counters.streams_reset_lag += 1;
                    return Outcome::GiveUp(Some(ResetCode::TOO_FAR_BEHIND.0));
                }
                Outcome::Blocked
            }
            WriteError::Stopped(_) => {
                turn.counters.streams_stopped += 1;
                Outcome::GiveUp(Some(ResetCode::CANCELLED.0))
            }
            WriteError::Closed => Outcome::GiveUp(None),
        }
    }
}

/// The range that a filter stands for, given the largest object so far [moqt-18 §5.1.2].
fn range(filter: Filter, largest: Option<Location>) -> (Location, u64) {
    let origin = Location {
        group: 0,
        object: 0,
    };
    match filter {
        Filter::LargestObject => {
            let start = largest.map_or(origin, |largest| Location {
                group: largest.group,
                object: largest.object.saturating_add(1),
            });
            (start, u64::MAX)
        }
        Filter::NextGroupStart => {
            let start = largest.map_or(origin, |largest| Location {
                group: largest.group.saturating_add(1),
                object: 0,
            });
            (start, u64::MAX)
        }
        Filter::AbsoluteStart(start) => (start, u64::MAX),
        Filter::AbsoluteRange { start, end_group } => (start, end_group),
    }
}

/// The smaller of two time-outs, where none and zero mean that there is none [moqt-18 §9].
pub(crate) fn smaller(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    let set = |timeout: &Duration| !timeout.is_zero();
    match (one.filter(set), other.filter(set)) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// What SUBSCRIBER_PRIORITY is when it is left out [moqt-18 §10.2.6].
const SUBSCRIBER_PRIORITY_DEFAULT: u8 = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_outs_combine_to_the_smaller_one() {
        let (short, long) = (Duration::from_millis(1), Duration::from_secs(1));
        assert_eq!(smaller(None, None), None);
        assert_eq!(smaller(Some(Duration::ZERO), Some(long)), Some(long));
        assert_eq!(smaller(Some(short), Some(long)), Some(short));
        assert_eq!(smaller(Some(short), None), Some(short));
    }

    #[test]
    fn filters_become_ranges() {
        let largest = Some(Location {
            group: 7,
            object: 3,
        });
        let at = |group, object| Location { group, object };
        assert_eq!(range(Filter::LargestObject, largest), (at(7, 4), u64::MAX));
        assert_eq!(range(Filter::NextGroupStart, largest), (at(8, 0), u64::MAX));
        assert_eq!(range(Filter::LargestObject, None), (at(0, 0), u64::MAX));
        assert_eq!(range(Filter::NextGroupStart, None), (at(0, 0), u64::MAX));
        assert_eq!(
            range(Filter::AbsoluteStart(at(2, 2)), largest),
            (at(2, 2), u64::MAX)
        );
        let range_filter = Filter::AbsoluteRange {
            start: at(2, 2),
            end_group: 9,
        };
        assert_eq!(range(range_filter, largest), (at(2, 2), 9));
    }
}
