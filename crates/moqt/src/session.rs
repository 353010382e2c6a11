//! One MOQT session: its control streams, its requests, and the objects that come in.
//!
//! A [`Session`] is a pure state machine. The role that owns it hands in what the transport
//! reports through the `handle_*` methods, speaks to the peer through methods named after the
//! messages, and takes [`Event`]s from [`Session::poll_event`] after each call. The session
//! enforces the rules of the draft: a peer that breaks one finds its transport closed, and the role
//! gets [`Event::Violated`].
//!
//! A session does not send objects: the role encodes them with [`crate::data`] and writes them to
//! its connection. It knows neither tracks nor caches, only which request an object belongs to.
//!
//! The modules, from top to bottom:
//!
//! | module | what it owns |
//! |---|---|
//! | `state` | how far the session has come, and the table of what each event means then |
//! | `control` | the pair of control streams: SETUP and GOAWAY |
//! | `requests_sent`, `responses_received` | own requests, and what the peer sends on request streams |
//! | `requests_received`, `responses_sent` | the peer's requests, and what this endpoint sends on request streams |
//! | `requests`, `request_state` | the table of requests, and the table of what each event means to one |
//! | `data_streams`, `fetches` | the objects from the peer, and the own fetches that expect some |
//! | `fills` | the past objects of subscriptions, in drafts without joining fetches |
//! | `track_aliases`, `unknown_aliases` | the peer's aliases, and the objects whose alias is not known yet |
//! | `streams`, `stream_state`, `send_stream` | what each stream carries, and messages that wait to be sent |
//! | `incomplete` | streams in the middle of a message, a header or an object |
//! | `tokens`, `request_ids`, `event`, `counters` | the peer's tokens, Request IDs, and what the role is told |

mod control;
mod counters;
mod data_streams;
mod event;
mod fetches;
mod fills;
mod incomplete;
mod request_ids;
mod request_state;
mod requests;
mod requests_received;
mod requests_sent;
mod responses_received;
mod responses_sent;
mod send_stream;
mod state;
mod stream_state;
mod streams;
mod tokens;
mod track_aliases;
mod unknown_aliases;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use weir_transport::{Direction, StreamId, Transport};

use self::control::Control;
pub use self::counters::Counters;
pub use self::event::{Accepted, CloseReason, Event, Refused, Request, StreamEnd};
use self::fetches::Fetches;
use self::incomplete::Incomplete;
use self::request_ids::RequestIds;
pub use self::request_ids::{RequestId, Side};
use self::requests::Requests;
use self::state::State;
use self::stream_state::Stream;
use self::streams::refuse;
use self::tokens::TokenCache;
use self::track_aliases::{Resolved, TrackAliases};
use self::unknown_aliases::UnknownAliases;
use crate::data::ObjectDatagram;
use crate::draft::Draft;
use crate::error::{EncodeError, ResetCode, SessionError, Violation};
use crate::limits::Limits;
use crate::message::{Message, RequestKind, Setup};
use crate::reader::MessageReader;

/// The send priority of the control stream, above all other streams.
pub const CONTROL_PRIORITY: i32 = i32::MAX;

/// The send priority of request streams, above all data [moqt-18 §7].
pub const REQUEST_PRIORITY: i32 = i32::MAX - 1;

/// Configuration of a session.
#[derive(Clone, Debug)]
pub struct Config {
    /// The draft that both sides agreed on when they connected.
    pub draft: Draft,
    /// Whether this endpoint is the client or the server.
    pub side: Side,
    /// The limits of the session.
    pub limits: Limits,
    /// This endpoint's SETUP. A server's has neither path nor authority.
    pub setup: Setup,
}

/// One session, from the connected transport to its end.
#[derive(Debug)]
pub struct Session {
    draft: Draft,
    side: Side,
    limits: Limits,
    state: State,
    control: Control,
    ids: RequestIds,
    requests: Requests,
    tokens: TokenCache,
    /// How many ranges the range filters of a request may have.
    ranges_max: u64,
    /// Whether an own `SUBSCRIBE_TRACKS` asked for fills, whose streams have the IDs of the peer's PUBLISH.
    fills_tracks: bool,
    aliases: TrackAliases,
    unknown_aliases: UnknownAliases,
    fetches: Fetches,
    /// Streams opened by the peer, and the request streams opened here.
    streams: BTreeMap<StreamId, Stream>,
    /// Those of `streams` that carry objects, by their request: a link may have thousands of request streams.
    data_streams: BTreeSet<(RequestId, StreamId)>,
    /// How many of `streams` the peer opened.
    streams_from_peer: usize,
    incomplete: Incomplete,
    events: VecDeque<Event>,
    counters: Counters,
}

/// Everything that can wake a session.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum Timer {
    /// The peer's SETUP is overdue.
    Setup,
    /// The grace period after the peer closed a control stream is over.
    ControlClosed,
    /// A datagram waited too long for its alias.
    WaitingDatagram,
    /// A stream waited too long for its alias.
    WaitingStream,
    /// A subscription has lingered long enough after `PUBLISH_DONE`.
    Linger,
    /// Streams are checked for whether they stall.
    Stall,
}

impl Timer {
    const ALL: [Self; 6] = [
        Self::Setup,
        Self::ControlClosed,
        Self::WaitingDatagram,
        Self::WaitingStream,
        Self::Linger,
        Self::Stall,
    ];
}

impl Session {
    /// Returns the bytes of request messages that wait because the peer does not read them, and of messages and headers
    /// that have not come completely. Visits every request.
    pub fn waiting_bytes(&self) -> usize {
        self.requests.waiting_bytes() + self.incomplete.held_bytes()
    }

    /// Creates a session for a transport that is not connected.
    ///
    /// # Panics
    /// If a server is to send a path or an authority, which only clients do, or if `setup` does not fit in a message.
    pub fn new(config: Config) -> Self {
        let Config {
            draft,
            side,
            limits,
            setup,
        } = config;
        let names_server = setup.path.is_some() || setup.authority.is_some();
        assert!(
            side == Side::Client || !names_server,
            "only a client names a path or authority"
        );
        let tokens = TokenCache::new(setup.max_auth_token_cache_size.unwrap_or(0));
        let ranges_max = setup.max_filter_ranges.unwrap_or(0);
        let setup = Setup {
            max_request_updates: Some(limits.updates_max as u64),
            ..setup
        };
        let setup = encode(draft, &Message::Setup(setup)).expect("the own SETUP fits");
        let reader = MessageReader::new(draft, limits.message_bytes_max);
        Self {
            draft,
            side,
            state: State::AwaitingControl { deadline: None },
            ids: RequestIds::new(side, limits.request_id_gaps_max),
            requests: Requests::default(),
            tokens,
            ranges_max,
            fills_tracks: false,
            control: Control::new(setup, reader),
            aliases: TrackAliases::default(),
            unknown_aliases: UnknownAliases::default(),
            fetches: Fetches::default(),
            streams: BTreeMap::new(),
            data_streams: BTreeSet::new(),
            streams_from_peer: 0,
            incomplete: Incomplete::default(),
            events: VecDeque::new(),
            counters: Counters::default(),
            limits,
        }
    }

    /// Opens the control stream and sends SETUP. Called once, when the transport is connected.
    pub fn start(&mut self, now: Instant, transport: &mut dyn Transport) {
        if !self.state.is_closed() {
            self.state
                .await_setup_until(now + self.limits.setup_timeout);
            self.open_control(transport);
        }
    }

    /// Accepts a stream that the peer opened, and reads the data that has arrived.
    pub fn handle_opened(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
        stream: StreamId,
        direction: Direction,
    ) {
        if self.state.is_closed() {
            return;
        }
        if self.streams_from_peer >= self.limits.streams_max {
            self.counters.streams_over_limit += 1;
            return refuse(transport, stream, direction, ResetCode::EXCESSIVE_LOAD);
        }
        let (draft, bytes_max) = (self.draft, self.limits.message_bytes_max);
        let opened = match direction {
            Direction::Uni => Stream::Typeless(Bytes::new()),
            Direction::Bi => Stream::Opening(Box::new(MessageReader::new(draft, bytes_max))),
        };
        self.streams.insert(stream, opened);
        self.streams_from_peer += 1;
        self.handle_readable(now, transport, stream);
        if !matches!(
            self.streams.get(&stream),
            Some(Stream::Control | Stream::Request(_)) | None
        ) {
            self.check_later(now);
        }
    }

    /// Reads all data of a stream. Does nothing for streams that the session does not know.
    pub fn handle_readable(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
        stream: StreamId,
    ) {
        if !self.state.is_closed()
            && let Err(error) = self.read(now, transport, stream)
        {
            self.violate(transport, error.into_violation());
        }
    }

    /// Sends messages that wait for room on a stream. Returns whether the stream is the session's;
    /// if not, it is one of the role's data streams.
    pub fn handle_writable(
        &mut self,
        _now: Instant,
        transport: &mut dyn Transport,
        stream: StreamId,
    ) -> bool {
        if self.control.stream() == Some(stream) {
            self.control.flush(transport);
            return true;
        }
        match self.streams.get(&stream) {
            Some(&Stream::Request(id)) => {
                self.flush_request(transport, id);
                true
            }
            Some(_) => true,
            None => false,
        }
    }

    /// Handles `STOP_SENDING` of the peer. Returns whether the stream is the session's.
    pub fn handle_stopped(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
        stream: StreamId,
        code: u64,
    ) -> bool {
        if self.control.stream() == Some(stream) {
            self.on_control_closed(now, Violation::protocol("the control stream was stopped"));
            return true;
        }
        match self.streams.get(&stream) {
            Some(&Stream::Request(id)) => {
                let reason = CloseReason::Stopped(ResetCode(code));
                self.on_request_end(now, transport, id, reason);
                true
            }
            Some(Stream::Opening(_)) => {
                // A request that was not read needs no answer.
                self.forget_stream(stream);
                refuse(transport, stream, Direction::Bi, ResetCode::CANCELLED);
                true
            }
            Some(_) => true,
            None => false,
        }
    }

    /// Opens the streams that wait for the peer's stream limit to rise.
    pub fn handle_streams_available(
        &mut self,
        _now: Instant,
        transport: &mut dyn Transport,
        direction: Direction,
    ) {
        if self.state.is_closed() {
            return;
        }
        match direction {
            Direction::Uni => self.open_control(transport),
            Direction::Bi => self.open_queued(transport),
        }
    }

    /// Decodes a datagram and finds its subscription.
    ///
    /// Returns `None` if the datagram is padding, or comes too late, or has an unknown alias. In the last case it
    /// follows as [`Event::Datagram`] once the alias is known.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
        data: Bytes,
    ) -> Option<(RequestId, ObjectDatagram)> {
        if self.state.is_closed() {
            return None;
        }
        let size_bytes = data.len() as u64;
        match ObjectDatagram::decode(self.draft, data) {
            Ok(Some(datagram)) => match self.resolve(datagram.track_alias) {
                Resolved::Live(request) => return Some((request, datagram)),
                Resolved::Retired => self.counters.datagrams_late += 1,
                Resolved::Unknown => self.hold_datagram(now, &datagram),
            },
            Ok(None) => self.counters.padding_bytes += size_bytes,
            Err(error) => self.violate(transport, error.into_violation()),
        }
        None
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        Timer::ALL
            .into_iter()
            .filter_map(|timer| self.deadline(timer))
            .min()
    }

    /// Runs the timers that are due.
    pub fn handle_timeout(&mut self, now: Instant, transport: &mut dyn Transport) {
        for timer in Timer::ALL {
            if self.deadline(timer).is_some_and(|deadline| deadline <= now) {
                self.on_timer(now, transport, timer);
            }
        }
    }

    /// Returns the next event. The role calls this until `None` after each call that takes the transport.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        if let Some(Event::Violated(_)) = event {
            self.events.clear();
        }
        if event.is_none() && self.events.capacity() > EVENTS_KEPT {
            self.events = VecDeque::new();
        }
        event
    }

    /// Returns whether [`poll_event`](Self::poll_event) has one.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Closes the session and its transport. No event follows except those not yet taken.
    pub fn close(&mut self, transport: &mut dyn Transport, code: SessionError, reason: &str) {
        if self.state.is_closed() {
            return;
        }
        transport.close(code.0, reason.as_bytes());
        self.state.close();
        self.requests = Requests::default();
        self.aliases = TrackAliases::default();
        self.unknown_aliases = UnknownAliases::default();
        self.fetches = Fetches::default();
        self.streams = BTreeMap::new();
        self.data_streams = BTreeSet::new();
        self.streams_from_peer = 0;
        self.incomplete = Incomplete::default();
    }

    /// Returns whether the peer's SETUP has come and the session is open.
    pub fn is_ready(&self) -> bool {
        self.state.is_ready()
    }

    /// Returns whether the session closed its transport.
    pub fn is_closed(&self) -> bool {
        self.state.is_closed()
    }

    /// Returns the peer's SETUP, once it has come.
    pub fn peer_setup(&self) -> Option<&Setup> {
        self.state.peer()
    }

    /// Returns the kind of a request that has not ended.
    pub fn request_kind(&self, id: RequestId) -> Option<RequestKind> {
        self.requests.get(id).map(|request| request.kind)
    }

    /// Returns whether this endpoint is the client or the server.
    pub fn side(&self) -> Side {
        self.side
    }

    /// Returns the draft of the session, in which the role encodes objects.
    pub fn draft(&self) -> Draft {
        self.draft
    }

    /// Returns the counters of what was dropped, refused or given up.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the number of requests of both endpoints that the session keeps state for.
    pub fn requests_len(&self) -> usize {
        self.requests.len()
    }

    fn deadline(&self, timer: Timer) -> Option<Instant> {
        if self.state.is_closed() {
            return None;
        }
        match timer {
            Timer::Setup => self.state.setup_deadline(),
            Timer::ControlClosed => self.control.ended().map(|(until, _)| until),
            Timer::WaitingDatagram => self.unknown_aliases.datagrams_deadline(),
            Timer::WaitingStream => self.unknown_aliases.streams_deadline(),
            Timer::Linger => self.aliases.first_lingering().map(|(until, _)| until),
            Timer::Stall => self.incomplete.check_at(),
        }
    }

    fn on_timer(&mut self, now: Instant, transport: &mut dyn Transport, timer: Timer) {
        match timer {
            Timer::Setup => {
                self.counters.setup_overdue += 1;
                self.violate(
                    transport,
                    SessionError::CONTROL_MESSAGE_TIMEOUT.violation("no SETUP came in time"),
                );
            }
            Timer::ControlClosed => {
                if let Some((_, violation)) = self.control.ended() {
                    self.counters.control_closed += 1;
                    self.violate(transport, violation);
                }
            }
            Timer::WaitingDatagram => {
                self.counters.datagrams_unknown_expired +=
                    self.unknown_aliases.expire_datagrams(now);
            }
            Timer::WaitingStream => {
                while let Some(stream) = self.unknown_aliases.pop_expired_stream(now) {
                    self.counters.streams_unknown_expired += 1;
                    self.stop_data(transport, stream, ResetCode::CANCELLED);
                }
            }
            Timer::Linger => {
                while let Some((until, request)) = self.aliases.first_lingering()
                    && until <= now
                {
                    self.retire(request);
                }
            }
            Timer::Stall => {
                if let Err(error) = self.check_streams(now, transport) {
                    self.violate(transport, error.into_violation());
                }
            }
        }
    }

    /// Ends the delivery of a subscription's objects: late ones are dropped.
    fn retire(&mut self, request: RequestId) {
        let max = self.limits.aliases_retired_max;
        self.counters.aliases_forgotten += u64::from(self.aliases.retire(request, max));
    }

    /// Handles a control stream that the peer closed, which violates the draft [moqt-18 §3.3]. The session closes after
    /// a grace period, since data that the peer sent before on other streams may arrive later.
    fn on_control_closed(&mut self, now: Instant, violation: Violation) {
        self.control
            .end(now + self.limits.control_closed_grace, violation);
    }

    fn violate(&mut self, transport: &mut dyn Transport, violation: Violation) {
        if !self.state.is_closed() {
            self.counters.messages_too_long += u64::from(violation == Violation::MESSAGE_TOO_LONG);
            self.counters.object_headers_too_long +=
                u64::from(violation == Violation::HEADER_TOO_LONG);
            self.close(transport, violation.code, &violation.text());
            self.events.push_back(Event::Violated(violation));
        }
    }

    fn encode(&self, message: &Message) -> Result<Bytes, EncodeError> {
        encode(self.draft, message)
    }

    /// Encodes a message in pieces. Long properties are a piece of their own, which all sessions share that send them.
    fn encode_shared(&self, message: &Message) -> Result<Vec<Bytes>, EncodeError> {
        let bytes = self.encode(message)?;
        let Some(properties) = message.properties().filter(|it| it.is_long()) else {
            return Ok(vec![bytes]);
        };
        let first = &bytes[..bytes.len() - properties.as_bytes().len()];
        Ok(vec![
            Bytes::copy_from_slice(first),
            properties.as_bytes().clone(),
        ])
    }
}

fn encode(draft: Draft, message: &Message) -> Result<Bytes, EncodeError> {
    let mut out = BytesMut::new();
    message.encode(draft, &mut out)?;
    Ok(out.freeze())
}

/// Capacity of an empty event queue; memory that a burst needed beyond it is freed.
const EVENTS_KEPT: usize = 32;

#[cfg(test)]
mod tests;
