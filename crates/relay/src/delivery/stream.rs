//! One subgroup under way to one subscriber.

use std::time::Instant;

use bytes::Bytes;
use weir_moqt::{error::ResetCode, session::RequestId};
use weir_quic::{Connection, Handle};
use weir_transport::{StreamId, Transport as _, WriteError};

use super::{
    deadlines::Deadline,
    timeouts::{Timeouts, is_late, is_over},
};
use crate::{
    Counters, Limits,
    ids::SubgroupId,
    track::{Start, Subgroup, TrackDefaults},
};

/// One subgroup under way to one subscriber.
#[derive(Debug)]
pub(super) struct OutStream {
    pub(super) subgroup: SubgroupId,
    pub(super) group: u64,
    /// The subgroup ID.
    pub(super) number: u64,
    /// The publisher's priority.
    pub(super) priority: u8,
    pub(super) state: OutState,
    /// Bytes that precede the log for this subscriber and are not yet written.
    prologue: Bytes,
    /// Offset in the log up to which data was written.
    pub(super) cursor: u64,
    /// Bytes between the cursor and the end of the log at the last update.
    pub(super) behind: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutState {
    /// The peer's stream limit is reached.
    Pending,
    /// The stream accepts data.
    Open(StreamId),
    /// The stream accepts nothing until the connection reports room.
    Full(StreamId),
    /// The stream was reset, or the peer stopped it. No other stream is opened for the subgroup [moqt-18 §11.4.3].
    Skipped,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Everything available was accepted.
    Level,
    /// The connection accepts no more for now.
    Full,
    /// The delivery timeout of an object has passed.
    TooLate,
    /// The peer sent `STOP_SENDING`.
    Stopped,
    /// The stream is closed.
    Gone,
}

/// Common inputs and collected results of one pass over the subscribers.
pub(super) struct FanOut<'a> {
    pub(super) now: Instant,
    pub(super) limits: &'a Limits,
    pub(super) counters: &'a mut Counters,
    pub(super) track: TrackDefaults,
    /// Streams that became blocked or ceased to be.
    pub(super) waits: Vec<Wait>,
    /// Subgroups that a subscriber held in memory and has released.
    pub(super) released: Vec<SubgroupId>,
    /// Change in the bytes that subscribers have not read.
    pub(super) lag_change: i64,
    /// Subscriptions that end because they are too slow.
    pub(super) ended: Vec<(Handle, RequestId)>,
    /// Streams with a new deadline.
    pub(super) deadlines: Vec<(StreamId, Deadline)>,
}

/// A change of the blocked streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// A stream became blocked; with its rank and its subgroup.
    For(StreamId, i32, SubgroupId),
    /// A blocked stream was closed.
    Over(StreamId),
}

impl<'a> FanOut<'a> {
    pub(super) fn new(
        now: Instant,
        limits: &'a Limits,
        counters: &'a mut Counters,
        track: TrackDefaults,
    ) -> Self {
        Self {
            now,
            limits,
            counters,
            track,
            waits: Vec::new(),
            released: Vec::new(),
            lag_change: 0,
            ended: Vec::new(),
            deadlines: Vec::new(),
        }
    }

    /// Sets how many bytes a stream is behind, and adds the difference to `lag_change`.
    pub(super) fn note_behind(&mut self, behind: &mut u64, now: u64) {
        self.lag_change += now.cast_signed() - behind.cast_signed();
        *behind = now;
    }
}

impl OutStream {
    pub(super) fn new(subgroup: &Subgroup, priority: u8, start: Start) -> Self {
        Self {
            subgroup: subgroup.id,
            group: subgroup.header.group,
            number: subgroup.key().1,
            priority,
            state: OutState::Pending,
            prologue: start.prologue,
            cursor: start.cursor,
            behind: 0,
        }
    }

    /// Returns whether the stream still reads from its subgroup.
    pub(super) fn is_reading(&self) -> bool {
        self.state != OutState::Skipped
    }

    /// Returns the transport's stream, if one is open.
    pub(super) fn stream(&self) -> Option<StreamId> {
        match self.state {
            OutState::Open(stream) | OutState::Full(stream) => Some(stream),
            OutState::Pending | OutState::Skipped => None,
        }
    }

    /// Writes as much as the connection accepts.
    pub(super) fn write(
        &mut self,
        connection: &mut Connection<'_>,
        stream: StreamId,
        subgroup: &Subgroup,
        timeouts: Timeouts,
        fan_out: &mut FanOut<'_>,
    ) -> Outcome {
        if is_over(fan_out.now, subgroup, timeouts) {
            return Outcome::TooLate;
        }
        if !self.prologue.is_empty()
            && let Err(error) = connection.write(stream, &mut self.prologue)
        {
            return refused(error);
        }
        while let Some(mut piece) = subgroup.from(self.cursor) {
            if is_late(fan_out.now, piece.received, timeouts.object) {
                return Outcome::TooLate;
            }
            let before = piece.data.len();
            let result = connection.write(stream, &mut piece.data);
            let written = (before - piece.data.len()) as u64;
            self.cursor += written;
            fan_out.counters.stream_bytes_sent += written;
            if let Err(error) = result {
                return refused(error);
            }
        }
        Outcome::Level
    }

    /// Returns whether the delivery timeout of the next bytes has passed.
    pub(super) fn is_late(&self, now: Instant, subgroup: &Subgroup, timeouts: Timeouts) -> bool {
        let received = timeouts.object.and_then(|_| subgroup.received(self.cursor));
        received.is_some_and(|received| is_late(now, received, timeouts.object))
            || is_over(now, subgroup, timeouts)
    }

    /// Stops reading the subgroup, and resets the stream if `code` is given.
    pub(super) fn give_up(
        &mut self,
        connection: &mut Connection<'_>,
        code: Option<ResetCode>,
        fan_out: &mut FanOut<'_>,
    ) {
        if let (Some(stream), Some(code)) = (self.stream(), code) {
            connection.reset(stream, code.0);
        }
        if let OutState::Full(stream) = self.state {
            fan_out.waits.push(Wait::Over(stream));
        }
        if self.behind > 0 {
            fan_out.released.push(self.subgroup);
        }
        fan_out.note_behind(&mut self.behind, 0);
        self.prologue = Bytes::new();
        self.state = OutState::Skipped;
    }
}

fn refused(error: WriteError) -> Outcome {
    match error {
        WriteError::Blocked => Outcome::Full,
        WriteError::Stopped(_) => Outcome::Stopped,
        WriteError::Closed => Outcome::Gone,
    }
}
