//! WebTransport over HTTP/3: one session on one connection, as a layer between the connection and its role.
//!
//! [`WebTransport`] exchanges HTTP/3 with the peer until the session is established. From then on it adds and removes
//! the prefixes that mark the session's streams and datagrams. It works on any [`Transport`], knows no engine and reads
//! no clock. It is *not* an HTTP server: other requests are refused, and other streams ignored, as the specifications
//! say. It supports all generations of draft-ietf-webtrans-http3 that browsers use; they differ in SETTINGS and in a
//! few fields of the request.

mod capsule;
mod close;
mod codes;
mod establishment;
mod own_streams;
mod request;
mod session;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use weir_transport::{Direction, StreamId, Transport};

pub(crate) use self::close::lost;
pub use self::request::{Offer, Request};
use self::{own_streams::Own, session::Prefixes};
use crate::Lost;
use weir_h3::{
    peer_streams::{self, PeerStreams},
    settings::Settings,
};

/// One end of a session and of the HTTP/3 connection that carries it.
#[derive(Debug)]
pub struct WebTransport {
    side: Side,
    state: State,
    /// The stream of the CONNECT request, whose ID is the session ID; `None` before the request.
    session: Option<StreamId>,
    /// The request that opened the session.
    request: Option<Request>,
    protocol: Option<String>,
    prefixes: Prefixes,
    /// The peer's SETTINGS.
    settings: Option<Settings>,
    /// The own control stream.
    control: Option<StreamId>,
    peer_streams: PeerStreams,
    /// Streams that are not passed to the role, or not yet.
    own: BTreeMap<StreamId, Own>,
    /// Bytes of the layer that a stream has not accepted.
    unsent: BTreeMap<StreamId, Unsent>,
    /// Streams of the layer of which data was left for later.
    left: VecDeque<StreamId>,
    /// Bytes of such streams that were read since others had their turn.
    own_bytes: usize,
    /// Whether the connection is gone, so that no stream is read any more.
    is_abandoned: bool,
    /// Bytes for the role that were read with the first bytes of a stream.
    unread: BTreeMap<StreamId, Bytes>,
    /// Streams, with their session ID, that came before the session was established; likewise datagrams.
    early_streams: Vec<(StreamId, Direction, u64)>,
    early_datagrams: Vec<Bytes>,
    events: VecDeque<Event>,
    deadline: Option<Instant>,
    counters: Counters,
}

/// Events of the layer for the role, in addition to those of the connection.
#[derive(Debug)]
pub enum Event {
    /// The session is established.
    Established,
    /// The peer opened a stream of the session, which may be readable.
    Opened(StreamId, Direction),
    /// A datagram that came before the session was established.
    Datagram(Bytes),
    /// The session is over, or was not established. The connection was closed.
    Lost(Lost),
}

/// Counters of the layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// WebTransport sessions established.
    pub sessions: u64,
    /// Requests that were answered with an error status, or reset because there were too many.
    pub requests_refused: u64,
    /// Streams that belong to no established session, and early streams beyond the limit.
    pub streams_refused: u64,
    /// Datagrams that belong to no established session, and early datagrams beyond the limit.
    pub datagrams_dropped: u64,
    /// Connections closed because the peer violated HTTP/3.
    pub violations: u64,
    /// Connections closed because no session was established within [`SETUP_TIME_MAX`].
    pub overdue: u64,
}

#[derive(Debug)]
enum Side {
    Client,
    Server(Arc<Offer>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing was sent.
    New,
    /// The session is not established.
    Opening,
    Established,
    /// The role closed the session; the peer has not acknowledged it.
    Closing,
    Closed,
}

#[derive(Debug)]
struct Unsent {
    data: Bytes,
    /// Whether the stream ends after these bytes.
    is_last: bool,
}

impl WebTransport {
    /// Creates the client's end, for one session.
    pub fn client(request: Request) -> Self {
        Self::new(Side::Client, Some(request))
    }

    /// Creates the server's end.
    pub fn server(offer: Arc<Offer>) -> Self {
        Self::new(Side::Server(offer), None)
    }

    fn new(side: Side, request: Option<Request>) -> Self {
        let peer_streams = PeerStreams::new(match side {
            Side::Client => peer_streams::Side::Client,
            Side::Server(_) => peer_streams::Side::Server,
        });
        Self {
            side,
            state: State::New,
            session: None,
            request,
            protocol: None,
            prefixes: Prefixes::default(),
            settings: None,
            control: None,
            peer_streams,
            own: BTreeMap::new(),
            unsent: BTreeMap::new(),
            left: VecDeque::new(),
            own_bytes: 0,
            is_abandoned: false,
            unread: BTreeMap::new(),
            early_streams: Vec::new(),
            early_datagrams: Vec::new(),
            events: VecDeque::new(),
            deadline: None,
            counters: Counters::default(),
        }
    }

    /// Returns whether the session is established.
    pub fn is_established(&self) -> bool {
        self.state == State::Established
    }

    /// Returns the negotiated subprotocol, once the session is established.
    pub fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    /// Returns the request that opened the session; on a client, also before.
    pub fn request(&self) -> Option<&Request> {
        self.request.as_ref()
    }

    /// Returns the next event for the role.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns the counters since the last call, and resets them.
    pub fn take_counters(&mut self) -> Counters {
        std::mem::take(&mut self.counters)
    }

    /// Sends SETTINGS, once the connection accepts data, even before the handshake completes. Later calls do nothing.
    pub fn start(&mut self, transport: &mut dyn Transport) {
        if self.state == State::New {
            self.state = State::Opening;
            self.open_control(transport);
        }
    }

    /// Handles the end of the handshake, from which the session has [`SETUP_TIME_MAX`] to be established.
    pub fn handle_connected(&mut self, now: Instant, transport: &mut dyn Transport) {
        self.start(transport);
        if self.state == State::Opening {
            self.deadline = Some(now + SETUP_TIME_MAX);
            self.open_control(transport);
            self.ask(transport);
        }
    }

    /// Handles a stream that the peer opened, which is reported as readable as well.
    pub fn handle_opened(&mut self, stream: StreamId, direction: Direction) {
        let is_open = matches!(self.state, State::Opening | State::Established);
        if is_open && !self.is_abandoned {
            self.own.insert(stream, Own::Fresh(direction, Bytes::new()));
        }
    }

    /// Handles a stream that may be readable. Returns whether the role is to be notified.
    pub fn handle_readable(&mut self, transport: &mut dyn Transport, stream: StreamId) -> bool {
        if !self.own.contains_key(&stream) {
            return self.is_established();
        }
        // What was left for later is not read sooner.
        if !self.left.contains(&stream)
            && let Err(violation) = self.read_own(transport, stream)
        {
            self.on_violation(transport, violation);
        }
        false
    }

    /// Returns whether data of a stream was left for later. [`read_on`](Self::read_on) reads it.
    pub fn has_unread(&self) -> bool {
        !self.left.is_empty()
    }

    /// Returns whether so much of the layer's streams was read that a host has to look at the clock.
    pub fn has_read_enough(&self) -> bool {
        self.has_unread() || self.own_bytes >= ENOUGH_BYTES
    }

    /// Forgets the streams of the layer, since the connection is gone: what has not been read of them stays unread.
    pub fn abandon_own(&mut self) {
        self.is_abandoned = true;
        self.own.clear();
        self.left.clear();
    }

    /// Notes that others have had their turn, and reads more of a stream of which data was left for later. Returns whether
    /// there was one.
    pub fn read_on(&mut self, transport: &mut dyn Transport) -> bool {
        self.own_bytes = 0;
        let Some(stream) = self.left.pop_front() else {
            return false;
        };
        self.handle_readable(transport, stream);
        true
    }

    /// Handles a stream that accepts data again. Returns whether the role is to be notified.
    pub fn handle_writable(&mut self, transport: &mut dyn Transport, stream: StreamId) -> bool {
        self.flush(transport, stream) && self.is_role_stream(stream)
    }

    /// Handles `STOP_SENDING`. Returns the code for the role, if the role is to be notified.
    pub fn handle_stopped(
        &mut self,
        transport: &mut dyn Transport,
        stream: StreamId,
        code: u64,
    ) -> Option<u64> {
        self.unsent.remove(&stream);
        if self.is_role_stream(stream) {
            return Some(codes::from_http(code).unwrap_or_default());
        }
        self.on_own_stopped(transport, stream);
        None
    }

    /// Handles a finished stream that was acknowledged. Returns whether the role is to be notified.
    pub fn handle_finished(&mut self, transport: &mut dyn Transport, stream: StreamId) -> bool {
        if self.state == State::Closing && self.session == Some(stream) {
            self.end(transport, weir_h3::Code::NO_ERROR, "", None);
            return false;
        }
        let is_role_stream = self.is_role_stream(stream);
        if matches!(self.own.get(&stream), Some(Own::Answered)) {
            // The peer has the answer. If STOP_SENDING for the rest of the request (RFC 9114 §4.1) came earlier,
            // Chromium 156 would give up before it reads the answer.
            self.own.remove(&stream);
            transport.stop(stream, weir_h3::Code::NO_ERROR.0);
        }
        is_role_stream
    }

    /// Handles a raised stream limit. Returns whether the role is to be notified.
    pub fn handle_streams_available(&mut self, transport: &mut dyn Transport) -> bool {
        match self.state {
            State::Opening => {
                self.open_control(transport);
                self.ask(transport);
                false
            }
            State::Established => true,
            State::New | State::Closing | State::Closed => false,
        }
    }

    /// Handles the time of [`poll_timeout`](Self::poll_timeout). Early calls do nothing.
    pub fn handle_timeout(&mut self, now: Instant, transport: &mut dyn Transport) {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        self.on_deadline(transport);
    }

    fn is_role_stream(&self, stream: StreamId) -> bool {
        self.is_established() && !self.own.contains_key(&stream)
    }

    /// Writes bytes of the layer to a stream; bytes that do not fit wait.
    fn write_own(
        &mut self,
        transport: &mut dyn Transport,
        stream: StreamId,
        data: Bytes,
        is_last: bool,
    ) {
        self.unsent.insert(stream, Unsent { data, is_last });
        self.flush(transport, stream);
    }

    /// Writes what waits for a stream. Returns whether all of it was written.
    fn flush(&mut self, transport: &mut dyn Transport, stream: StreamId) -> bool {
        let Some(unsent) = self.unsent.get_mut(&stream) else {
            return true;
        };
        if transport.write(stream, &mut unsent.data) == Err(weir_transport::WriteError::Blocked) {
            return false;
        }
        // Also if the stream is gone, when these bytes are not needed.
        let is_last = unsent.is_last;
        self.unsent.remove(&stream);
        if is_last {
            transport.finish(stream);
        }
        true
    }
}

/// How long the establishment of a session may take, from the end of the QUIC handshake.
pub const SETUP_TIME_MAX: Duration = Duration::from_secs(10);
/// How long the end of a session may stay unacknowledged before the connection is closed.
pub const CLOSE_TIME_MAX: Duration = Duration::from_secs(3);
/// Streams that may come before their session is established.
pub const EARLY_STREAMS_MAX: usize = 32;
/// Datagrams that may come before their session is established.
pub const EARLY_DATAGRAMS_MAX: usize = 32;
/// Requests that may be incomplete at the same time.
pub const REQUESTS_MAX: usize = 8;
/// Size of a request or response header in bytes, whether compressed or not.
pub const HEAD_BYTES_MAX: usize = 16 << 10;
/// Bytes of the streams of the layer from which on it has read enough for now. They may be as many frames that mean nothing.
const ENOUGH_BYTES: usize = 1 << 10;
