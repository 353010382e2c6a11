//! A connection to a peer thread, borrowed for a few operations.

use std::collections::VecDeque;

use bytes::Bytes;
use weir_transport::{Direction, Read, StreamId, Transport, WriteError};

use super::connection::ThreadConnection;
use crate::{Event, endpoint::turns::Turns};

/// A connection to a peer thread. Properties that all of them share are answered elsewhere.
pub(crate) struct ThreadConnectionView<'a> {
    pub(super) connection: &'a mut ThreadConnection,
    pub(super) events: &'a mut VecDeque<Event>,
    pub(super) turns: &'a mut Turns,
}

impl ThreadConnectionView<'_> {
    /// The peer thread's number.
    pub(crate) fn peer(&self) -> u16 {
        self.connection.peer()
    }

    pub(crate) fn send_datagram(&mut self, data: Bytes) {
        self.connection.send_datagram(data);
    }
}

impl Transport for ThreadConnectionView<'_> {
    fn open(&mut self, direction: Direction) -> Option<StreamId> {
        self.connection.open(direction)
    }

    fn read(&mut self, stream: StreamId) -> Read {
        self.connection.read(stream, self.events)
    }

    fn read_later(&mut self, stream: StreamId) {
        let handle = self.connection.handle();
        self.events.push_back(Event::Readable { handle, stream });
        self.turns.note_left();
    }

    fn write(&mut self, stream: StreamId, data: &mut Bytes) -> Result<(), WriteError> {
        self.connection.write(stream, data)
    }

    fn finish(&mut self, stream: StreamId) {
        self.connection.finish(stream);
    }

    fn reset(&mut self, stream: StreamId, code: u64) {
        self.connection.reset(stream, code);
    }

    fn stop(&mut self, stream: StreamId, code: u64) {
        self.connection.stop(stream, code, self.events);
    }

    /// Does nothing: all messages are delivered within a turn.
    fn set_priority(&mut self, _stream: StreamId, _priority: i32) {}

    fn close(&mut self, code: u64, reason: &[u8]) {
        self.connection.close(code, reason);
    }
}
