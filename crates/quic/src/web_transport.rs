//! WebTransport over HTTP/3: one session on one connection, as a layer between the connection and its role.
//!
//! [`WebTransport`] speaks HTTP/3 with the peer until the session is established, and from then on adds and takes off
//! what marks streams and datagrams as the session's. It works on any [`Transport`], knows no engine and
//! reads no clock. It is *not* an HTTP server: other requests are refused, and other streams ignored, as the
//! specifications say. All generations of draft-ietf-webtrans-http3 that browsers speak are served; they
//! differ in SETTINGS and in a few fields of the request.

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
    /// The stream of the request, whose number names the session: once it was sent or received.
    session: Option<StreamId>,
    /// The request that opened the session.
    request: Option<Request>,
    protocol: Option<String>,
    prefixes: Prefixes,
    /// What the peer said in SETTINGS.
    settings: Option<Settings>,
    /// Our control stream.
    control: Option<StreamId>,
    peer_streams: PeerStreams,
    /// Streams that the role does not know (yet).
    own: BTreeMap<StreamId, Own>,
    /// Bytes of ours that a stream did not take yet.
    unsent: BTreeMap<StreamId, Unsent>,
    /// What was read with the first bytes of a stream and belongs to the role.
    unread: BTreeMap<StreamId, Bytes>,
    /// Streams, with the session they name, and datagrams that came before the session was established.
    early_streams: Vec<(StreamId, Direction, u64)>,
    early_datagrams: Vec<Bytes>,
    events: VecDeque<Event>,
    deadline: Option<Instant>,
    counters: Counters,
}

/// What the role is to learn. The rest it learns from the connection itself.
#[derive(Debug)]
pub enum Event {
    /// The session is established.
    Established,
    /// The peer opened a stream of the session, which may be readable.
    Opened(StreamId, Direction),
    /// A datagram that came before the session was established.
    Datagram(Bytes),
    /// The session is over, or will not come to be. The connection was closed.
    Lost(Lost),
}

/// What was refused, dropped or broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Sessions established.
    pub sessions: u64,
    /// Requests that were answered with an error status, or reset because there were too many.
    pub requests_refused: u64,
    /// Streams that belong to no established session, and early streams beyond the limit.
    pub streams_refused: u64,
    /// Datagrams of the same kind.
    pub datagrams_dropped: u64,
    /// Connections closed because the peer broke the rules of HTTP/3.
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
    /// Nothing was sent yet.
    New,
    /// No session yet.
    Opening,
    Established,
    /// The role ended the session; the peer has not acknowledged it.
    Closing,
    Closed,
}

#[derive(Debug)]
struct Unsent {
    data: Bytes,
    /// The stream ends after them.
    is_last: bool,
}

impl WebTransport {
    /// The client's end, for one session.
    pub fn client(request: Request) -> Self {
        Self::new(Side::Client, Some(request))
    }

    /// The server's end.
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
            unread: BTreeMap::new(),
            early_streams: Vec::new(),
            early_datagrams: Vec::new(),
            events: VecDeque::new(),
            deadline: None,
            counters: Counters::default(),
        }
    }

    /// Whether the session is established.
    pub fn is_established(&self) -> bool {
        self.state == State::Established
    }

    /// The subprotocol that was agreed on, once the session is established.
    pub fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    /// The request that opened the session; on the client, the one that will.
    pub fn request(&self) -> Option<&Request> {
        self.request.as_ref()
    }

    /// The next thing that the role is to learn.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }

    /// Hands out what was counted since the last call.
    pub fn take_counters(&mut self) -> Counters {
        std::mem::take(&mut self.counters)
    }

    /// The connection takes bytes, though the handshake may not be over: begins with SETTINGS. Later calls do
    /// nothing.
    pub fn start(&mut self, transport: &mut dyn Transport) {
        if self.state == State::New {
            self.state = State::Opening;
            self.open_control(transport);
        }
    }

    /// The handshake is over: from now on the session has [`SETUP_TIME_MAX`] to come to be.
    pub fn handle_connected(&mut self, now: Instant, transport: &mut dyn Transport) {
        self.start(transport);
        if self.state == State::Opening {
            self.deadline = Some(now + SETUP_TIME_MAX);
            self.open_control(transport);
            self.ask(transport);
        }
    }

    /// The peer opened a stream; it is to be reported as readable, too.
    pub fn handle_opened(&mut self, stream: StreamId, direction: Direction) {
        if matches!(self.state, State::Opening | State::Established) {
            self.own.insert(stream, Own::Fresh(direction, Bytes::new()));
        }
    }

    /// A stream may be readable. Returns whether the role is to learn of it.
    pub fn handle_readable(&mut self, transport: &mut dyn Transport, stream: StreamId) -> bool {
        if !self.own.contains_key(&stream) {
            return self.is_established();
        }
        if let Err(violation) = self.read_own(transport, stream) {
            self.on_violation(transport, violation);
        }
        false
    }

    /// A stream takes data again. Returns whether the role is to learn of it.
    pub fn handle_writable(&mut self, transport: &mut dyn Transport, stream: StreamId) -> bool {
        self.flush(transport, stream) && self.is_role_stream(stream)
    }

    /// The peer wants no more of a stream. Returns the code for the role, if it is to learn of it.
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

    /// All of a finished stream was acknowledged. Returns whether the role is to learn of it.
    pub fn handle_finished(&mut self, transport: &mut dyn Transport, stream: StreamId) -> bool {
        if self.state == State::Closing && self.session == Some(stream) {
            self.end(transport, weir_h3::Code::NO_ERROR, "", None);
            return false;
        }
        let is_role_stream = self.is_role_stream(stream);
        if matches!(self.own.get(&stream), Some(Own::Answered)) {
            // The peer has the answer. Told earlier that the rest of its request is not wanted (RFC 9114 §4.1),
            // Chromium 156 would give up before it looks at the answer.
            self.own.remove(&stream);
            transport.stop(stream, weir_h3::Code::NO_ERROR.0);
        }
        is_role_stream
    }

    /// The peer lets more streams be opened. Returns whether the role is to learn of it.
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

    /// The time of [`poll_timeout`](Self::poll_timeout) has come. Early calls do nothing.
    pub fn handle_timeout(&mut self, now: Instant, transport: &mut dyn Transport) {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        self.on_deadline(transport);
    }

    fn is_role_stream(&self, stream: StreamId) -> bool {
        self.is_established() && !self.own.contains_key(&stream)
    }

    /// Writes bytes of our own to a stream; what does not fit waits.
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

    /// Writes what waits for a stream. Returns whether nothing waits any more.
    fn flush(&mut self, transport: &mut dyn Transport, stream: StreamId) -> bool {
        let Some(unsent) = self.unsent.get_mut(&stream) else {
            return true;
        };
        if transport.write(stream, &mut unsent.data) == Err(weir_transport::WriteError::Blocked) {
            return false;
        }
        // Also if the stream is gone: then nobody waits for these bytes.
        let is_last = unsent.is_last;
        self.unsent.remove(&stream);
        if is_last {
            transport.finish(stream);
        }
        true
    }
}

/// How long a session may take to come to be, from the end of the QUIC handshake.
pub const SETUP_TIME_MAX: Duration = Duration::from_secs(10);
/// How long the end of a session may stay unacknowledged before the connection is closed all the same.
pub const CLOSE_TIME_MAX: Duration = Duration::from_secs(3);
/// Streams that may come before their session is established.
pub const EARLY_STREAMS_MAX: usize = 32;
/// Datagrams that may come before their session is established.
pub const EARLY_DATAGRAMS_MAX: usize = 32;
/// Requests whose heads may be incomplete at once.
pub const REQUESTS_MAX: usize = 8;
/// Bytes of a head, compressed or not.
pub const HEAD_BYTES_MAX: usize = 16 << 10;
