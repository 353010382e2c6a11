//! Streams in the middle of a message, a header or an object: what the session holds of them is bounded, and those on
//! which nothing comes any more are given up.

use std::{collections::BTreeMap, mem, time::Instant};

use weir_transport::{Direction, StreamId, Transport};

use super::{
    CloseReason, Session, StreamEnd,
    stream_state::{Owner, Stream},
    streams::refuse,
};
use crate::error::{DecodeError, ResetCode};
use crate::reader::MessageReader;

/// What is incomplete on the streams of the peer.
#[derive(Debug, Default)]
pub(super) struct Incomplete {
    /// Bytes held of messages and headers, by stream; nearly always empty.
    held: BTreeMap<StreamId, usize>,
    held_bytes: usize,
    /// When streams are checked next; `None` if there is nothing to check.
    check_at: Option<Instant>,
    /// The streams that were incomplete at the last check, with the bytes that had come.
    marks: BTreeMap<StreamId, u64>,
}

impl Incomplete {
    /// Returns the bytes held of incomplete messages and headers.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Returns when streams are checked next.
    pub(super) fn check_at(&self) -> Option<Instant> {
        self.check_at
    }

    /// Notes how many bytes are held of a stream.
    #[inline]
    pub(super) fn hold(&mut self, stream: StreamId, bytes: usize) {
        if bytes == 0 && self.held.is_empty() {
            return;
        }
        let before = if bytes == 0 {
            self.held.remove(&stream)
        } else {
            self.held.insert(stream, bytes)
        };
        self.held_bytes = self.held_bytes + bytes - before.unwrap_or(0);
    }
}

impl Session {
    /// Has streams checked in time, if it has a limit.
    pub(super) fn check_later(&mut self, now: Instant) {
        let stall_max = self.limits.stall_max;
        if self.incomplete.check_at.is_none() && !stall_max.is_zero() {
            self.incomplete.check_at = Some(now + stall_max);
        }
    }

    /// Counts what is held of a stream on which data came, and gives the stream up if that is too much.
    pub(super) fn note_held(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
        stream: StreamId,
    ) -> Result<(), DecodeError> {
        let held = self.held_of(stream);
        self.incomplete.hold(stream, held);
        if held == 0 {
            return Ok(());
        }
        self.check_later(now);
        if self.incomplete.held_bytes > self.limits.incomplete_bytes_max {
            self.counters.incomplete_over_limit += 1;
            return self.abandon(now, transport, stream);
        }
        Ok(())
    }

    /// Gives up the streams that were incomplete at the last check and on which nothing came since.
    pub(super) fn check_streams(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
    ) -> Result<(), DecodeError> {
        self.incomplete.check_at = None;
        let before = mem::take(&mut self.incomplete.marks);
        let (mut marks, mut stalled) = (BTreeMap::new(), Vec::new());
        for (&stream, known) in &self.streams {
            if let Some(mark) = self.mark(known) {
                if before.get(&stream) == Some(&mark) {
                    stalled.push(stream);
                } else {
                    marks.insert(stream, mark);
                }
            }
        }
        self.incomplete.marks = marks;
        for stream in stalled {
            self.counters.streams_stalled += 1;
            self.abandon(now, transport, stream)?;
        }
        let mut streams = self.streams.values();
        if !self.incomplete.marks.is_empty() || streams.any(|known| known.data_of().is_some()) {
            self.check_later(now);
        }
        Ok(())
    }

    /// Returns the bytes that came on a stream if it is incomplete. Streams that the session does not read, and those that
    /// wait for SETUP, have deadlines of their own.
    fn mark(&self, known: &Stream) -> Option<u64> {
        if !self.state.is_ready() {
            return None;
        }
        match known {
            Stream::Typeless(start) => Some(start.len() as u64),
            Stream::Opening(reader) => Some(reader.received()),
            Stream::Request(id) => {
                let reader = self.requests.get(*id)?.reader.as_ref()?;
                reader.fin().is_err().then(|| reader.received())
            }
            Stream::Subgroup(subgroup) => {
                let reader = &subgroup.reader;
                let is_read = !matches!(subgroup.owner, Owner::Waiting(_));
                (is_read && reader.fin().is_err()).then(|| reader.received())
            }
            Stream::Fetch(fetch) => {
                let reader = &fetch.reader;
                (!fetch.is_paused && reader.fin().is_err()).then(|| reader.received())
            }
            Stream::Control | Stream::Padding => None,
        }
    }

    /// Returns the bytes held of what is incomplete on a stream, or waits for its alias, except the control stream.
    fn held_of(&self, stream: StreamId) -> usize {
        match self.streams.get(&stream) {
            Some(Stream::Typeless(start)) => start.len(),
            Some(Stream::Opening(reader)) => reader.held(),
            Some(Stream::Request(id)) => {
                let request = self.requests.get(*id);
                let reader = request.and_then(|request| request.reader.as_ref());
                reader.map_or(0, MessageReader::held)
            }
            Some(Stream::Subgroup(subgroup)) => {
                let reader = &subgroup.reader;
                // What comes after the header waits with it.
                let waits = matches!(subgroup.owner, Owner::Waiting(_));
                reader.held() + if waits { reader.unread() } else { 0 }
            }
            Some(Stream::Fetch(fetch)) => fetch.reader.held(),
            Some(Stream::Control | Stream::Padding) | None => 0,
        }
    }

    /// Stops a stream, and handles it as one that the peer has reset.
    fn abandon(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
        stream: StreamId,
    ) -> Result<(), DecodeError> {
        let code = ResetCode::EXCESSIVE_LOAD;
        match self.streams.get(&stream) {
            Some(Stream::Typeless(_)) => {
                refuse(transport, stream, Direction::Uni, code);
                self.forget_stream(stream);
            }
            Some(Stream::Opening(_)) => {
                refuse(transport, stream, Direction::Bi, code);
                self.forget_stream(stream);
            }
            Some(&Stream::Request(id)) => {
                transport.stop(stream, code.0);
                self.incomplete.hold(stream, 0);
                self.on_request_end(now, transport, id, CloseReason::Reset(code));
            }
            Some(known @ (Stream::Subgroup(_) | Stream::Fetch(_))) => {
                if known.data_of().is_none() {
                    self.stop_data(transport, stream, code);
                } else {
                    transport.stop(stream, code.0);
                    return self.on_data_end(transport, stream, StreamEnd::Reset(code));
                }
            }
            Some(Stream::Control | Stream::Padding) | None => {}
        }
        Ok(())
    }
}
