//! The stream that answers a FETCH of a peer.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use weir_moqt::{
    data::{FetchEncoder, FetchEntry, FetchHeader},
    draft::Draft,
    error::ResetCode,
    parameter::GroupOrder,
    session::RequestId,
};
use weir_quic::Connection;
use weir_transport::{Direction, StreamId, Transport as _, WriteError};

/// The stream that answers a FETCH of a peer, and the bytes that it has not accepted.
#[derive(Debug)]
pub(crate) struct ServedStream {
    draft: Draft,
    encoder: FetchEncoder,
    has_entries: bool,
    state: StreamState,
    unsent: VecDeque<Bytes>,
}

/// The state of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamState {
    /// Not opened: nothing was written.
    Unopened,
    /// Not opened: the peer's stream limit is reached.
    Pending,
    /// The stream accepts data.
    Open(StreamId),
    /// The stream accepts nothing until the connection reports room.
    Blocked(StreamId),
}

/// An event that changes the state of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamEvent {
    /// The stream was opened.
    Opened(StreamId),
    /// The peer's stream limit is reached.
    NotAllowed,
    /// The stream accepted only part of the data.
    Full,
    /// The connection has room again, or the peer allows another stream.
    Room,
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    All,
    /// The connection takes no more for now.
    Blocked,
    /// The peer has stopped the stream, or the stream is closed.
    Stopped,
}

impl StreamState {
    /// Returns the state after an event. An event that cannot happen in a state does not change it.
    pub(crate) fn after(self, event: StreamEvent) -> Self {
        match (self, event) {
            (Self::Unopened | Self::Pending, StreamEvent::Opened(stream))
            | (Self::Blocked(stream), StreamEvent::Room) => Self::Open(stream),
            (Self::Unopened | Self::Pending, StreamEvent::NotAllowed) => Self::Pending,
            (Self::Open(stream), StreamEvent::Full) => Self::Blocked(stream),
            (state, _) => state,
        }
    }
}

impl ServedStream {
    /// Creates a stream, not opened, in a session of `draft` with groups in `order`.
    pub(crate) fn new(draft: Draft, order: GroupOrder) -> Self {
        Self {
            draft,
            encoder: FetchEncoder::new(draft, order),
            has_entries: false,
            state: StreamState::Unopened,
            unsent: VecDeque::new(),
        }
    }

    /// Returns whether any entry has been pushed.
    pub(crate) fn has_entries(&self) -> bool {
        self.has_entries
    }

    /// Appends an entry and its payload.
    pub(crate) fn push(&mut self, entry: &FetchEntry, payload: Vec<Bytes>) {
        let mut encoded = BytesMut::with_capacity(ENTRY_BYTES);
        self.encoder.encode(entry, &mut encoded);
        self.unsent.push_back(encoded.freeze());
        let parts = payload.into_iter().filter(|part| !part.is_empty());
        self.unsent.extend(parts);
        self.has_entries = true;
    }

    /// Writes as much as the connection accepts. With `is_last`, finishes the stream afterwards.
    pub(crate) fn write(
        &mut self,
        request: RequestId,
        rank: i32,
        is_last: bool,
        connection: &mut Connection<'_>,
    ) -> Written {
        let stream = match self.state {
            StreamState::Unopened if self.unsent.is_empty() && !is_last => return Written::All,
            StreamState::Unopened | StreamState::Pending => match self.open(request, connection) {
                Some(stream) => stream,
                None => return Written::Blocked,
            },
            StreamState::Open(stream) => stream,
            StreamState::Blocked(_) => return Written::Blocked,
        };
        connection.set_priority(stream, rank);
        while let Some(front) = self.unsent.front_mut() {
            match connection.write(stream, front) {
                Ok(()) => drop(self.unsent.pop_front()),
                Err(WriteError::Blocked) => {
                    self.state = self.state.after(StreamEvent::Full);
                    return Written::Blocked;
                }
                Err(WriteError::Stopped(_) | WriteError::Closed) => return Written::Stopped,
            }
        }
        if is_last {
            connection.finish(stream);
        }
        Written::All
    }

    /// Opens the stream and prepends its header, if the peer allows another stream.
    fn open(&mut self, request: RequestId, connection: &mut Connection<'_>) -> Option<StreamId> {
        let Some(stream) = connection.open(Direction::Uni) else {
            self.state = self.state.after(StreamEvent::NotAllowed);
            return None;
        };
        self.state = self.state.after(StreamEvent::Opened(stream));
        let mut header = BytesMut::with_capacity(ENTRY_BYTES);
        let request_id = request.0;
        FetchHeader { request_id }.encode(self.draft, &mut header);
        self.unsent.push_front(header.freeze());
        Some(stream)
    }

    /// Lets the stream be written again.
    pub(crate) fn resume(&mut self) {
        self.state = self.state.after(StreamEvent::Room);
    }

    /// Resets the stream, if it is open.
    pub(crate) fn reset(&self, connection: &mut Connection<'_>, code: ResetCode) {
        if let Some(stream) = self.id() {
            connection.reset(stream, code.0);
        }
    }

    /// Returns whether the stream waits for the peer to allow another stream.
    pub(crate) fn is_pending(&self) -> bool {
        self.state == StreamState::Pending
    }

    /// Returns the stream ID, if the stream is blocked.
    pub(crate) fn blocked_id(&self) -> Option<StreamId> {
        match self.state {
            StreamState::Blocked(stream) => Some(stream),
            StreamState::Unopened | StreamState::Pending | StreamState::Open(_) => None,
        }
    }

    /// Returns the stream ID, once the stream has been opened.
    pub(crate) fn id(&self) -> Option<StreamId> {
        match self.state {
            StreamState::Open(stream) | StreamState::Blocked(stream) => Some(stream),
            StreamState::Unopened | StreamState::Pending => None,
        }
    }
}

/// Room for an entry without properties.
const ENTRY_BYTES: usize = 48;
