//! One end of a connection to a peer thread: its state, streams and limits.

mod streams;
#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::Bytes;
use weir_transport::{Direction, Read, StreamId, WriteError};

use self::streams::Streams;
use super::message::{Content, Packet, ThreadMessage};
use crate::{Event, Handle, Lost};

/// Limits of a connection to a peer thread, in each direction. A message counts with its bytes and [`MESSAGE_CHARGE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "limits are named so")]
pub(crate) struct ThreadLimits {
    /// Bytes in flight on all streams.
    pub(crate) bytes_max: usize,
    /// Bytes in flight on one stream.
    pub(crate) stream_bytes_max: usize,
    /// Bytes in flight in datagrams; beyond it, newer ones are dropped.
    pub(crate) datagram_bytes_max: usize,
    /// Open streams, of each direction.
    pub(crate) streams_max: usize,
    /// Misdirected packets (strays) that wait to be passed to the peer thread; beyond it, newer ones are dropped.
    pub(crate) strays_max: usize,
}

impl Default for ThreadLimits {
    fn default() -> Self {
        Self {
            bytes_max: 32 << 20,
            stream_bytes_max: 4 << 20,
            datagram_bytes_max: 8 << 20,
            streams_max: 1 << 18,
            strays_max: 4096,
        }
    }
}

/// One end of a connection to a peer thread.
#[derive(Debug)]
pub(crate) struct ThreadConnection {
    handle: Handle,
    peer: u16,
    limits: ThreadLimits,
    state: State,
    streams: Streams,
    /// Charge of datagrams that were sent and not reported as read.
    datagrams_in_flight: usize,
    /// Charge of datagrams that were read and not reported.
    datagrams_taken: usize,
    messages: Vec<ThreadMessage>,
    /// Number of strays among `messages`; too high if the host has taken some since.
    strays: usize,
    pub(crate) datagrams_dropped: u64,
    pub(crate) strays_dropped: u64,
    pub(crate) strays_passed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Closed here; the peer thread has not confirmed it.
    Closing,
    /// Closed on both sides until this time.
    Paused(Instant),
}

impl ThreadConnection {
    /// Creates the end at endpoint number `own` of the connection to number `peer`.
    pub(crate) fn new(own: u16, peer: u16, index: u32, limits: ThreadLimits) -> Self {
        Self {
            handle: Handle {
                index,
                generation: 0,
            },
            peer,
            limits,
            state: State::Open,
            streams: Streams::new(own > peer, limits),
            datagrams_in_flight: 0,
            datagrams_taken: 0,
            messages: Vec::new(),
            strays: 0,
            datagrams_dropped: 0,
            strays_dropped: 0,
            strays_passed: 0,
        }
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    pub(crate) fn peer(&self) -> u16 {
        self.peer
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Returns when the connection opens again.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Paused(until) => Some(until),
            State::Open | State::Closing => None,
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, events: &mut VecDeque<Event>) {
        if self.poll_timeout().is_some_and(|until| until <= now) {
            self.open_again(events);
        }
    }

    /// Sends a datagram, or drops it if too much is in flight.
    pub(crate) fn send_datagram(&mut self, data: Bytes) {
        let charge = data.len() + MESSAGE_CHARGE;
        if self.datagrams_in_flight + charge > self.limits.datagram_bytes_max {
            self.datagrams_dropped += 1;
            return;
        }
        self.datagrams_in_flight += charge;
        self.messages.push(ThreadMessage(Content::Datagram(data)));
    }

    /// Opens a stream. Returns `None` if too many are open.
    pub(crate) fn open(&mut self, direction: Direction) -> Option<StreamId> {
        self.is_open().then(|| self.streams.open(direction))?
    }

    /// Reads the next bytes of a stream, or its end.
    pub(crate) fn read(&mut self, stream: StreamId, events: &mut VecDeque<Event>) -> Read {
        self.streams.read(self.handle, stream.0, events)
    }

    /// Writes as much as the windows permit, and removes it from the front of `data`.
    pub(crate) fn write(&mut self, stream: StreamId, data: &mut Bytes) -> Result<(), WriteError> {
        self.streams.write(stream.0, data, &mut self.messages)
    }

    /// Finishes a stream after everything written.
    pub(crate) fn finish(&mut self, stream: StreamId) {
        let stream = stream.0;
        if self.streams.end(stream) {
            self.messages.push(ThreadMessage(Content::Fin { stream }));
        }
    }

    /// Resets a stream.
    pub(crate) fn reset(&mut self, stream: StreamId, code: u64) {
        let stream = stream.0;
        if self.streams.end(stream) {
            self.messages
                .push(ThreadMessage(Content::Reset { stream, code }));
        }
    }

    /// Discards what arrives on a stream.
    pub(crate) fn stop(&mut self, stream: StreamId, code: u64, events: &mut VecDeque<Event>) {
        let stream = stream.0;
        if self.streams.stop(self.handle, stream, events) {
            self.messages
                .push(ThreadMessage(Content::Stop { stream, code }));
        }
    }

    /// Passes a packet on to the peer thread to which it belongs.
    pub(crate) fn pass_on(&mut self, stray: Packet) {
        if self.messages.is_empty() {
            self.strays = 0;
        }
        if self.strays >= self.limits.strays_max {
            self.strays_dropped += 1;
            return;
        }
        self.strays += 1;
        self.strays_passed += 1;
        self.messages
            .push(ThreadMessage(Content::Packet(Box::new(stray))));
    }

    /// Returns the messages for the peer thread, oldest first. The host removes those that it delivers.
    pub(crate) fn messages(&mut self) -> &mut Vec<ThreadMessage> {
        let is_due = !self.messages.is_empty()
            || self.streams.must_report()
            || self.datagrams_taken >= self.limits.datagram_bytes_max / 4;
        if is_due && self.is_open() {
            self.streams.report(&mut self.messages);
            if self.datagrams_taken > 0 {
                let charge = std::mem::take(&mut self.datagrams_taken);
                self.messages
                    .push(ThreadMessage(Content::DatagramsTaken { charge }));
            }
        }
        &mut self.messages
    }

    /// Closes the connection. It opens again after a pause.
    pub(crate) fn close(&mut self, code: u64, reason: &[u8]) {
        if self.is_open() {
            self.state = State::Closing;
            self.send_close(code, Bytes::copy_from_slice(reason));
        }
    }

    /// Handles a message from the peer thread other than a packet.
    pub(crate) fn handle_message(
        &mut self,
        now: Instant,
        content: Content,
        events: &mut VecDeque<Event>,
    ) {
        if let Content::Close { code, reason } = content {
            return self.on_close(now, code, &reason, events);
        }
        match self.state {
            // The message was written before the peer thread knew of the close.
            State::Closing => return,
            // The peer thread has opened the connection again.
            State::Paused(_) => self.open_again(events),
            State::Open => {}
        }
        let handle = self.handle;
        match content {
            Content::Datagram(data) => {
                self.datagrams_taken += data.len() + MESSAGE_CHARGE;
                events.push_back(Event::Datagram { handle, data });
            }
            Content::DatagramsTaken { charge } => {
                self.datagrams_in_flight = self.datagrams_in_flight.saturating_sub(charge);
            }
            Content::Data { stream, data } => self.streams.on_data(handle, stream, data, events),
            Content::Fin { stream } => self.streams.on_end(handle, stream, None, events),
            Content::Reset { stream, code } => {
                self.streams.on_end(handle, stream, Some(code), events);
            }
            Content::Stop { stream, code } => {
                let messages = &mut self.messages;
                self.streams.on_stop(handle, stream, code, messages, events);
            }
            Content::Taken {
                stream,
                charge,
                is_done,
            } => self
                .streams
                .on_taken(handle, stream, charge, is_done, events),
            Content::Close { .. } | Content::Packet(_) => {}
        }
    }

    fn on_close(&mut self, now: Instant, code: u64, reason: &[u8], events: &mut VecDeque<Event>) {
        match self.state {
            State::Open => {
                self.send_close(code, Bytes::new());
                events.push_back(Event::Lost {
                    handle: self.handle,
                    reason: Lost::Application {
                        code,
                        reason: String::from_utf8_lossy(reason).into_owned(),
                    },
                });
            }
            State::Closing => {}
            State::Paused(_) => return,
        }
        self.state = State::Paused(now + PAUSE);
    }

    fn send_close(&mut self, code: u64, reason: Bytes) {
        self.messages
            .push(ThreadMessage(Content::Close { code, reason }));
        self.streams.clear();
        self.datagrams_in_flight = 0;
        self.datagrams_taken = 0;
    }

    fn open_again(&mut self, events: &mut VecDeque<Event>) {
        self.state = State::Open;
        self.handle.generation = self.handle.generation.wrapping_add(1);
        let handle = self.handle;
        events.push_back(Event::Connected { handle });
    }
}

/// Overhead of a message in addition to its bytes.
pub(crate) const MESSAGE_CHARGE: usize = 64;
/// How long a connection to a peer thread stays closed.
const PAUSE: Duration = Duration::from_millis(100);
