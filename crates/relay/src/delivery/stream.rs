//! One subgroup on its way to one subscriber.

use std::time::Instant;

use bytes::Bytes;
use weir_moqt::{error::ResetCode, session::RequestId};
use weir_quic::{Connection, Handle};
use weir_transport::{StreamId, Transport as _, WriteError};

use crate::{
    Counters, Limits,
    delivery::deadlines::Due,
    delivery::subscription::TrackDefaults,
    delivery::timeouts::{Timeouts, is_late, is_over},
    track::subgroup::{Start, Subgroup, SubgroupId},
};

/// One subgroup on its way to one subscriber.
#[derive(Debug)]
pub(crate) struct OutStream {
    pub(crate) subgroup: SubgroupId,
    pub(crate) group: u64,
    /// The subgroup's ID.
    pub(crate) number: u64,
    /// The publisher's priority.
    pub(crate) priority: u8,
    pub(crate) state: OutState,
    /// Bytes that stand before the log for this subscriber, and are not yet written.
    prologue: Bytes,
    /// Offset in the log up to which it was written.
    pub(crate) cursor: u64,
    /// Bytes between the cursor and the end of the log, when last looked at.
    pub(crate) behind: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutState {
    /// The peer allows no further stream for now.
    Pending,
    /// Takes what is written.
    Open(StreamId),
    /// Takes nothing before the connection says so.
    Full(StreamId),
    /// Given up: reset, or stopped by the peer. No other stream is opened for it [moqt-18 §11.4.3].
    Skipped,
}

/// How a write went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Everything there is was taken.
    Level,
    /// The connection takes no more for now.
    Full,
    /// An object's time is over.
    TooLate,
    /// The peer wants no more.
    Stopped,
    /// The stream is gone.
    Gone,
}

/// What is the same for all subscribers that are served in one go, and what comes of it.
pub(crate) struct FanOut<'a> {
    pub(crate) now: Instant,
    pub(crate) limits: &'a Limits,
    pub(crate) counters: &'a mut Counters,
    pub(crate) track: TrackDefaults,
    /// What the relay has to know about streams that wait for room.
    pub(crate) waits: Vec<Wait>,
    /// Subgroups that a subscriber held up, and does no longer.
    pub(crate) released: Vec<SubgroupId>,
    /// By how many bytes subscribers fell behind, or caught up.
    pub(crate) lag_change: i64,
    /// Subscriptions that are at their end because they are too slow.
    pub(crate) fallen: Vec<(Handle, RequestId)>,
    /// Streams of which nothing more comes, and by when they have to arrive.
    pub(crate) deliveries: Vec<(StreamId, Due)>,
}

/// A change in what waits for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A stream waits, with its rank and its subgroup.
    For(StreamId, i32, SubgroupId),
    /// It does no longer, without having got any.
    Over(StreamId),
}

impl<'a> FanOut<'a> {
    pub(crate) fn new(
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
            fallen: Vec::new(),
            deliveries: Vec::new(),
        }
    }

    /// Changes how many bytes a stream is behind.
    pub(crate) fn note_behind(&mut self, behind: &mut u64, now: u64) {
        self.lag_change += now.cast_signed() - behind.cast_signed();
        *behind = now;
    }
}

impl OutStream {
    pub(crate) fn new(subgroup: &Subgroup, priority: u8, start: Start) -> Self {
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

    /// Whether it still reads from its subgroup.
    pub(crate) fn is_reading(&self) -> bool {
        self.state != OutState::Skipped
    }

    /// The transport's stream, if one is open.
    pub(crate) fn stream(&self) -> Option<StreamId> {
        match self.state {
            OutState::Open(stream) | OutState::Full(stream) => Some(stream),
            OutState::Pending | OutState::Skipped => None,
        }
    }

    /// Writes what the connection takes.
    pub(crate) fn write(
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

    /// Whether what it would send next is not worth sending any more.
    pub(crate) fn is_late(&self, now: Instant, subgroup: &Subgroup, timeouts: Timeouts) -> bool {
        let received = timeouts.object.and_then(|_| subgroup.received(self.cursor));
        received.is_some_and(|received| is_late(now, received, timeouts.object))
            || is_over(now, subgroup, timeouts)
    }

    /// Sends nothing more of its subgroup; resets the stream unless `code` is `None`.
    pub(crate) fn give_up(
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
