//! Control bytes on their way out of one stream, and its end, while the transport is slow.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::transport::{StreamId, Transport, WriteError};

/// The sending side of one control or request stream.
///
/// Writes through while the transport takes everything, and keeps the rest in order otherwise. The
/// owner bounds [`waiting_bytes`](Self::waiting_bytes).
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    queue: VecDeque<Bytes>,
    waiting_bytes: usize,
    state: State,
}

/// How far the sending side has come.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
enum State {
    #[default]
    Open,
    /// Ends as soon as the queue is empty.
    Finishing,
    /// Finished, reset, stopped by the peer, or gone with the connection.
    Closed,
}

impl Outgoing {
    /// Sends bytes after all earlier ones; dropped if the side is ended already.
    pub(super) fn push(&mut self, transport: &mut dyn Transport, stream: StreamId, data: Bytes) {
        if self.state == State::Open {
            self.hold(data);
            self.flush(transport, stream);
        }
    }

    /// Keeps bytes for a stream that is not open yet.
    pub(super) fn hold(&mut self, data: Bytes) {
        self.waiting_bytes += data.len();
        self.queue.push_back(data);
    }

    /// Keeps bytes that go out before all others.
    pub(super) fn hold_first(&mut self, data: Bytes) {
        self.waiting_bytes += data.len();
        self.queue.push_front(data);
    }

    /// Ends a stream that is not open yet, after everything that waits.
    pub(super) fn hold_finish(&mut self) {
        if self.state == State::Open {
            self.state = State::Finishing;
        }
    }

    /// Ends the side cleanly after everything that waits.
    pub(super) fn finish(&mut self, transport: &mut dyn Transport, stream: StreamId) {
        if self.state == State::Open {
            self.state = State::Finishing;
            self.flush(transport, stream);
        }
    }

    /// Gives the transport what it takes.
    ///
    /// That the peer stopped the stream is no news here: the transport says so itself, and the
    /// session then resets this side.
    pub(super) fn flush(&mut self, transport: &mut dyn Transport, stream: StreamId) {
        while let Some(data) = self.queue.front_mut() {
            let before = data.len();
            let result = transport.write(stream, data);
            self.waiting_bytes -= before - data.len();
            match result {
                Ok(()) => {
                    self.queue.pop_front();
                }
                Err(WriteError::Blocked | WriteError::Stopped(_)) => return,
                Err(WriteError::Closed) => return self.close(),
            }
        }
        if self.state == State::Finishing {
            transport.finish(stream);
            self.close();
        }
    }

    /// Ends the side at once.
    pub(super) fn reset(&mut self, transport: &mut dyn Transport, stream: StreamId, code: u64) {
        if self.state != State::Closed {
            transport.reset(stream, code);
            self.close();
        }
    }

    /// Whether nothing will be sent any more.
    pub(super) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Bytes that wait for the transport.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    fn close(&mut self) {
        self.state = State::Closed;
        self.queue = VecDeque::new();
        self.waiting_bytes = 0;
    }
}
