//! A transport for tests that accepts bytes and records calls.

use bytes::{Buf as _, Bytes};
use weir_transport::{Direction, Read, StreamId, Transport, WriteError};

#[derive(Debug)]
pub(crate) struct TestTransport {
    /// Bytes that it still accepts.
    pub(crate) room: usize,
    /// Streams that may still be opened; any number if `None`.
    pub(crate) streams_left: Option<u64>,
    pub(crate) opened: u64,
    pub(crate) written: usize,
    pub(crate) finished: usize,
    pub(crate) resets: Vec<u64>,
    pub(crate) priorities: Vec<i32>,
}

impl Default for TestTransport {
    fn default() -> Self {
        Self {
            room: usize::MAX,
            streams_left: None,
            opened: 0,
            written: 0,
            finished: 0,
            resets: Vec::new(),
            priorities: Vec::new(),
        }
    }
}

impl Transport for TestTransport {
    fn open(&mut self, _direction: Direction) -> Option<StreamId> {
        if let Some(left) = &mut self.streams_left {
            *left = left.checked_sub(1)?;
        }
        self.opened += 1;
        Some(StreamId(self.opened))
    }

    fn read(&mut self, _stream: StreamId) -> Read {
        Read::Blocked
    }

    fn read_later(&mut self, _stream: StreamId) {}

    fn write(&mut self, _stream: StreamId, data: &mut Bytes) -> Result<(), WriteError> {
        let taken = data.len().min(self.room);
        data.advance(taken);
        self.room -= taken;
        self.written += taken;
        if data.is_empty() {
            Ok(())
        } else {
            Err(WriteError::Blocked)
        }
    }

    fn finish(&mut self, _stream: StreamId) {
        self.finished += 1;
    }

    fn reset(&mut self, _stream: StreamId, code: u64) {
        self.resets.push(code);
    }

    fn stop(&mut self, _stream: StreamId, _code: u64) {}

    fn set_priority(&mut self, _stream: StreamId, priority: i32) {
        self.priorities.push(priority);
    }

    fn close(&mut self, _code: u64, _reason: &[u8]) {}
}
