//! The sending part of one control or request stream: messages that wait for the transport, and the end of the stream.

use std::collections::VecDeque;

use bytes::Bytes;
use weir_transport::{StreamId, Transport, WriteError};

/// The sending part of one control or request stream.
///
/// Messages are written through while the transport takes everything, and kept in order otherwise. The owner bounds
/// [`waiting_bytes`](Self::waiting_bytes).
#[derive(Debug)]
pub(super) struct SendStream {
    queue: VecDeque<Bytes>,
    waiting_bytes: usize,
    state: State,
}

/// The state of the sending part.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum State {
    /// There is no stream, and no message is sent.
    Absent,
    /// The transport has no stream for it yet.
    Unopened {
        /// Whether the stream ends after the messages that wait.
        is_finished: bool,
    },
    /// Messages are accepted.
    Open(StreamId),
    /// The stream ends as soon as the queue is empty.
    Finishing(StreamId),
    /// The stream is finished, reset, stopped by the peer, or gone with the connection.
    Closed(StreamId),
}

impl SendStream {
    /// Creates the sending part of a stream that is not open, with its first message.
    pub(super) fn beginning_with(message: Bytes) -> Self {
        Self {
            waiting_bytes: message.len(),
            queue: VecDeque::from([message]),
            ..Self::unopened()
        }
    }

    /// Creates the sending part of a stream that is not open.
    pub(super) fn unopened() -> Self {
        Self {
            waiting_bytes: 0,
            queue: VecDeque::new(),
            state: State::Unopened { is_finished: false },
        }
    }

    /// Creates the sending part of a request that has no stream.
    pub(super) fn absent() -> Self {
        Self {
            queue: VecDeque::new(),
            waiting_bytes: 0,
            state: State::Absent,
        }
    }

    /// Creates the sending part of a stream that is open.
    pub(super) fn on(stream: StreamId) -> Self {
        Self {
            queue: VecDeque::new(),
            waiting_bytes: 0,
            state: State::Open(stream),
        }
    }

    /// Returns the stream, once the transport has opened it, also after its end.
    pub(super) fn stream(&self) -> Option<StreamId> {
        match self.state {
            State::Absent | State::Unopened { .. } => None,
            State::Open(stream) | State::Finishing(stream) | State::Closed(stream) => Some(stream),
        }
    }

    /// Sets the stream that the transport opened, and sends what waits for it.
    pub(super) fn open(&mut self, transport: &mut dyn Transport, stream: StreamId) {
        if let State::Unopened { is_finished } = self.state {
            self.state = if is_finished {
                State::Finishing(stream)
            } else {
                State::Open(stream)
            };
            self.flush(transport);
        }
    }

    /// Sends a message after all earlier ones. A message after the end of an opened stream is dropped.
    pub(super) fn push(&mut self, transport: &mut dyn Transport, message: Bytes) {
        if matches!(self.state, State::Unopened { .. } | State::Open(_)) {
            self.waiting_bytes += message.len();
            self.queue.push_back(message);
            self.flush(transport);
        }
    }

    /// Finishes the stream after everything that waits.
    pub(super) fn finish(&mut self, transport: &mut dyn Transport) {
        match &mut self.state {
            State::Unopened { is_finished } => *is_finished = true,
            State::Open(stream) => {
                self.state = State::Finishing(*stream);
                self.flush(transport);
            }
            State::Absent | State::Finishing(_) | State::Closed(_) => {}
        }
    }

    /// Writes as much as the transport accepts.
    ///
    /// A stream that the peer stopped needs no handling here: the transport reports it, and the session then resets the
    /// stream.
    pub(super) fn flush(&mut self, transport: &mut dyn Transport) {
        let Some(stream) = self.stream() else { return };
        while let Some(message) = self.queue.front_mut() {
            let before = message.len();
            let result = transport.write(stream, message);
            self.waiting_bytes -= before - message.len();
            match result {
                Ok(()) => {
                    self.queue.pop_front();
                }
                Err(WriteError::Blocked | WriteError::Stopped(_)) => return,
                Err(WriteError::Closed) => return self.close(stream),
            }
        }
        if let State::Finishing(stream) = self.state {
            transport.finish(stream);
            self.close(stream);
        }
    }

    /// Resets an opened stream.
    pub(super) fn reset(&mut self, transport: &mut dyn Transport, code: u64) {
        if let State::Open(stream) | State::Finishing(stream) = self.state {
            transport.reset(stream, code);
            self.close(stream);
        }
    }

    /// Returns whether nothing more will be sent.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.state, State::Absent | State::Closed(_))
    }

    /// Returns the bytes that wait for the transport.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    fn close(&mut self, stream: StreamId) {
        self.state = State::Closed(stream);
        self.queue = VecDeque::new();
        self.waiting_bytes = 0;
    }
}
