//! An established session: streams and datagrams as the role sees them, without the prefixes that identify the session.

use std::time::Instant;

use bytes::{Buf as _, Bytes};
use weir_transport::{Direction, Read, StreamId, Transport, WriteError};

use super::{CLOSE_TIME_MAX, EARLY_DATAGRAMS_MAX, State, Unsent, WebTransport, capsule, codes};
use weir_h3::{Code, Violation, varint};

/// The prefixes of the session's streams and datagrams.
#[derive(Debug, Default)]
pub(super) struct Prefixes {
    uni: Bytes,
    bidi: Bytes,
    datagram: Bytes,
}

impl Prefixes {
    pub(super) fn new(session: StreamId) -> Self {
        let coded = |values: &[u64]| {
            let mut out = Vec::new();
            for value in values {
                varint::encode(*value, &mut out);
            }
            Bytes::from(out)
        };
        Self {
            uni: coded(&[codes::UNI_STREAM, session.0]),
            bidi: coded(&[codes::BIDI_STREAM, session.0]),
            // The session ID divided by four (RFC 9297 §2.1).
            datagram: coded(&[session.0 / 4]),
        }
    }
}

impl WebTransport {
    /// Returns the prefix of every datagram.
    pub fn datagram_prefix(&self) -> &Bytes {
        &self.prefixes.datagram
    }

    /// Handles a datagram. Returns its content, if it is for the role.
    pub fn handle_datagram(
        &mut self,
        transport: &mut dyn Transport,
        mut data: Bytes,
    ) -> Option<Bytes> {
        let Some((quarter, length)) = varint::decode(&data) else {
            let reason = "a datagram ends inside its quarter stream ID";
            self.on_violation(transport, Violation::new(Code::DATAGRAM_ERROR, reason));
            return None;
        };
        if quarter > varint::MAX / 4 {
            let reason = "the quarter stream ID of a datagram is too large";
            self.on_violation(transport, Violation::new(Code::DATAGRAM_ERROR, reason));
            return None;
        }
        data.advance(length);
        let names_session = self.session.is_none_or(|session| session.0 / 4 == quarter);
        match self.state {
            State::Established if names_session => return Some(data),
            State::Opening if names_session && self.early_datagrams.len() < EARLY_DATAGRAMS_MAX => {
                self.early_datagrams.push(data);
            }
            State::New | State::Opening | State::Established | State::Closing | State::Closed => {
                self.counters.datagrams_dropped += 1;
            }
        }
        None
    }

    /// Opens a stream of the session. See [`Transport::open`].
    pub fn open(
        &mut self,
        transport: &mut dyn Transport,
        direction: Direction,
    ) -> Option<StreamId> {
        if !self.is_established() {
            return None;
        }
        let stream = transport.open(direction)?;
        let prefix = match direction {
            Direction::Uni => self.prefixes.uni.clone(),
            Direction::Bi => self.prefixes.bidi.clone(),
        };
        // The prefix is sent with the first bytes: a stream has no priority for what it sends before one is set.
        let unsent = Unsent {
            data: prefix,
            is_last: false,
        };
        self.unsent.insert(stream, unsent);
        Some(stream)
    }

    /// Reads a stream of the session. See [`Transport::read`].
    pub fn read(&mut self, transport: &mut dyn Transport, stream: StreamId) -> Read {
        if !self.unread.is_empty()
            && let Some(data) = self.unread.remove(&stream)
        {
            return Read::Data(data);
        }
        match transport.read(stream) {
            Read::Reset(code) => Read::Reset(codes::from_http(code).unwrap_or_default()),
            read @ (Read::Data(_) | Read::Fin | Read::Blocked) => read,
        }
    }

    /// Writes to a stream of the session. See [`Transport::write`].
    pub fn write(
        &mut self,
        transport: &mut dyn Transport,
        stream: StreamId,
        data: &mut Bytes,
    ) -> Result<(), WriteError> {
        if !self.unsent.is_empty() && !self.flush(transport, stream) {
            return Err(WriteError::Blocked);
        }
        match transport.write(stream, data) {
            Err(WriteError::Stopped(code)) => Err(WriteError::Stopped(
                codes::from_http(code).unwrap_or_default(),
            )),
            result @ (Ok(()) | Err(WriteError::Blocked | WriteError::Closed)) => result,
        }
    }

    /// Finishes a stream of the session. See [`Transport::finish`].
    pub fn finish(&mut self, transport: &mut dyn Transport, stream: StreamId) {
        match self.unsent.get_mut(&stream) {
            Some(unsent) => {
                unsent.is_last = true;
                self.flush(transport, stream);
            }
            None => transport.finish(stream),
        }
    }

    /// Resets a stream of the session. See [`Transport::reset`].
    pub fn reset(&mut self, transport: &mut dyn Transport, stream: StreamId, code: u64) {
        self.unsent.remove(&stream);
        transport.reset(stream, codes::to_http(code));
    }

    /// Stops a stream of the session. See [`Transport::stop`].
    pub fn stop(&mut self, transport: &mut dyn Transport, stream: StreamId, code: u64) {
        self.unread.remove(&stream);
        transport.stop(stream, codes::to_http(code));
    }

    /// Closes the session. The connection is closed when the peer has acknowledged it, or after [`CLOSE_TIME_MAX`]; at
    /// once if no session was established or the peer accepts no more bytes.
    pub fn close(&mut self, now: Instant, transport: &mut dyn Transport, code: u64, reason: &[u8]) {
        let session = match self.state {
            State::Established => self.session,
            State::New | State::Opening => None,
            State::Closing | State::Closed => return,
        };
        let Some(session) = session else {
            self.end(transport, Code::REQUEST_CANCELLED, "", None);
            return;
        };
        self.state = State::Closing;
        self.deadline = Some(now + CLOSE_TIME_MAX);
        let mut data = capsule::encode_close(code, reason);
        let is_taken =
            !self.unsent.contains_key(&session) && transport.write(session, &mut data) == Ok(());
        if is_taken {
            transport.finish(session);
        } else {
            self.end(transport, Code(codes::to_http(code)), "", None);
        }
    }
}
