//! One connection of a case: it sends what the script says, byte by byte, and notes what it sees.

mod fault;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Instant,
};

use bytes::{Bytes, BytesMut};
use weir_client::target::Target;
use weir_moqt::{
    data::{FetchEncoder, FetchEntry, FetchHeader, FetchObject},
    location::Location,
    message::{FetchKind, Message},
    parameter::GroupOrder,
    property::Properties,
};
use weir_quic::{Connection, Endpoint, Event, Handle, Loss};
use weir_transport::{Direction, Read, StreamId, Transport as _, WriteError};

pub(crate) use self::fault::Fault;
use crate::{
    edition::Edition,
    seen::{Ended, Seen, Slot, StreamEnd},
    wire,
};

/// One connection of a case.
#[derive(Debug, Default)]
pub(crate) struct Line {
    state: State,
    pub(crate) seen: Seen,
    waiting: BTreeMap<StreamId, Waiting>,
    /// What is to be sent on streams that cannot be opened yet.
    unopened: VecDeque<(Slot, Action)>,
    /// The Request ID of the next request.
    next_request: u64,
    /// Whether the client reads nothing, so that the relay's data waits.
    pub(crate) is_deaf: bool,
    /// Streams with data that came while the client read nothing.
    unheard: BTreeSet<StreamId>,
    /// Flow control credit for all streams together that its connections grant; `None` for the usual one.
    pub(crate) grants_bytes: Option<u32>,
    /// The objects with which the client answers a FETCH of the relay.
    pub(crate) library: Vec<(u64, u64, Vec<u8>)>,
    /// Whether requests of the relay that the script does not take are left without an answer.
    pub(crate) is_mute: bool,
    /// Messages and datagrams sent.
    pub(crate) sent: u64,
}

#[derive(Debug, Default, PartialEq)]
enum State {
    #[default]
    Idle,
    Connecting(Handle),
    Open(Handle),
    Over,
}

/// Bytes of a stream that the connection has not accepted yet.
#[derive(Debug, Default)]
struct Waiting {
    bytes: VecDeque<Bytes>,
    is_finished: bool,
}

/// What a client does with one of its streams.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Writes bytes.
    Write(Bytes),
    /// Ends the sending side.
    Finish,
    /// Resets the sending side.
    Reset(u64),
    /// Sends `STOP_SENDING`.
    Stop(u64),
}

impl Line {
    /// Returns a client that speaks an edition and has not connected.
    pub(crate) fn new(edition: Edition) -> Self {
        Self {
            seen: Seen::new(edition),
            ..Self::default()
        }
    }

    /// Starts a new connection; what was seen on the one before is forgotten.
    pub(crate) fn connect(&mut self, now: Instant, endpoint: &mut Endpoint, target: &Target) {
        self.close(now, endpoint, 0);
        *self = Self {
            sent: self.sent,
            grants_bytes: self.grants_bytes,
            ..Self::new(self.seen.edition)
        };
        let Target {
            remote,
            server_name,
            client,
            ..
        } = target;
        let connected = match self.grants_bytes {
            Some(bytes) => endpoint.connect_granting(now, client, *remote, server_name, bytes),
            None => endpoint.connect(now, client, *remote, server_name, 0),
        };
        match connected {
            Ok(handle) => self.state = State::Connecting(handle),
            Err(error) => {
                self.state = State::Over;
                self.seen.ended = Some(Ended::local(&error.to_string()));
            }
        }
    }

    pub(crate) fn handle(&self) -> Option<Handle> {
        match self.state {
            State::Connecting(handle) | State::Open(handle) => Some(handle),
            State::Idle | State::Over => None,
        }
    }

    /// Whether the handshake is complete and the session has not ended.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Whether the session has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Closes the connection with a code. The relay is told, whatever packets were lost before.
    pub(crate) fn close(&mut self, now: Instant, endpoint: &mut Endpoint, code: u64) {
        let handle = self.handle();
        if let Some(mut connection) = handle.and_then(|it| endpoint.connection(now, it)) {
            connection.lose(Loss::NONE);
            connection.close(code, b"");
        }
        if handle.is_some() {
            self.state = State::Over;
        }
    }

    /// Returns the next Request ID, which is then used.
    pub(crate) fn request_id(&mut self) -> u64 {
        self.next_request += 2;
        self.next_request - 2
    }

    /// Acts on a stream, which is opened at its first use. During the handshake, the action waits. Does nothing if the
    /// session has ended.
    pub(crate) fn act(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        slot: Slot,
        action: Action,
    ) {
        let is_connecting = matches!(self.state, State::Connecting(_));
        if !self.unopened.is_empty() || is_connecting {
            if self.unopened.len() < UNOPENED_MAX {
                self.unopened.push_back((slot, action));
            }
            return;
        }
        let Some(mut connection) = self.connection(now, endpoint) else {
            return;
        };
        if let Some(action) = self.try_act(&mut connection, slot, action) {
            self.unopened.push_back((slot, action));
        }
    }

    /// Sends a datagram. One that does not fit is dropped, as the draft has it.
    pub(crate) fn send_datagram(&mut self, now: Instant, endpoint: &mut Endpoint, data: Bytes) {
        let connection = self.connection(now, endpoint);
        if let Some(Ok(())) = connection.map(|mut it| it.send_datagram(data, None)) {
            self.sent += 1;
        }
    }

    /// Reads what came while the client read nothing, if it reads now.
    pub(crate) fn hear(&mut self, now: Instant, endpoint: &mut Endpoint) {
        for stream in std::mem::take(&mut self.unheard) {
            self.read(now, endpoint, stream);
        }
    }

    /// Handles an event of this connection.
    pub(crate) fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        match event {
            Event::Connected { handle } => {
                self.state = State::Open(handle);
                self.seen.is_connected = true;
                self.open_waiting(now, endpoint);
            }
            Event::Lost { reason, .. } => {
                self.state = State::Over;
                self.seen.ended = Some(Ended::of(&reason));
            }
            Event::Opened {
                stream, direction, ..
            } => self.seen.add(stream, direction, None),
            Event::Readable { stream, .. } => self.read(now, endpoint, stream),
            Event::Writable { stream, .. } => {
                if let Some(mut connection) = self.connection(now, endpoint) {
                    self.flush(&mut connection, stream);
                }
            }
            Event::Stopped { stream, code, .. } => {
                self.seen.stopped(stream, code);
                self.waiting.remove(&stream);
                if let Some(mut connection) = self.connection(now, endpoint) {
                    connection.reset(stream, code);
                }
            }
            Event::StreamsAvailable { .. } => self.open_waiting(now, endpoint),
            Event::Datagram { data, .. } if !self.is_deaf => self.seen.datagram(data),
            Event::Datagram { .. } | Event::Finished { .. } => {}
        }
    }

    fn connection<'a>(&self, now: Instant, endpoint: &'a mut Endpoint) -> Option<Connection<'a>> {
        match self.state {
            State::Open(handle) => endpoint.connection(now, handle),
            State::Idle | State::Connecting(_) | State::Over => None,
        }
    }

    fn read(&mut self, now: Instant, endpoint: &mut Endpoint, stream: StreamId) {
        if self.is_deaf {
            self.unheard.insert(stream);
            return;
        }
        loop {
            let Some(mut connection) = self.connection(now, endpoint) else {
                return;
            };
            match connection.read(stream) {
                Read::Data(data) => self.seen.data(stream, data),
                Read::Fin => return self.end(now, endpoint, stream, StreamEnd::Fin),
                Read::Reset(code) => {
                    return self.end(now, endpoint, stream, StreamEnd::Reset(code));
                }
                Read::Blocked => break,
            }
        }
        self.answer(now, endpoint);
    }

    fn end(&mut self, now: Instant, endpoint: &mut Endpoint, stream: StreamId, end: StreamEnd) {
        self.answer(now, endpoint);
        self.seen.end(stream, end);
    }

    /// Answers what a well-behaved client always answers: updates of its requests, and requests of the relay that the
    /// script may not expect.
    fn answer(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if self.is_mute {
            return;
        }
        for stream in self.seen.take_updates() {
            self.write(now, endpoint, stream, wire::request_ok(&[], &[]));
        }
        for (stream, first) in self.seen.take_requests() {
            if let Message::Fetch(fetch) = first {
                self.serve(now, endpoint, stream, &fetch);
            } else if let Message::TrackStatus(_) = first {
                let refusal = wire::request_error(wire::refusal::INTERNAL_ERROR, b"");
                self.write(now, endpoint, stream, refusal);
            } else {
                continue;
            }
            self.seen.answered(stream);
        }
    }

    /// Answers a FETCH of the relay with the objects of the library.
    fn serve(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        stream: StreamId,
        fetch: &weir_moqt::message::Fetch,
    ) {
        let FetchKind::Standalone { start, end, .. } = fetch.kind else {
            return self.refuse(now, endpoint, stream);
        };
        if self.library.is_empty() {
            return self.refuse(now, endpoint, stream);
        }
        let order = fetch.parameters.group_order.unwrap_or_default();
        let mut objects: Vec<&(u64, u64, Vec<u8>)> = self
            .library
            .iter()
            .filter(|(group, id, _)| (start..=end).contains(&Location::new(*group, *id)))
            .collect();
        objects.sort_by_key(|(group, id, _)| match order {
            GroupOrder::Ascending => (*group, *id),
            GroupOrder::Descending => (u64::MAX - group, *id),
        });
        let largest = self
            .library
            .iter()
            .map(|(group, id, _)| (*group, *id))
            .max();
        let (group, id) = largest.unwrap_or_default();
        let last = Location::new(group, id).min(end);
        let after_last = (last.group, last.object.wrapping_add(1));
        let draft = self.seen.edition.codec();
        let mut data = BytesMut::new();
        let header = FetchHeader {
            request_id: fetch.request_id,
        };
        header.encode(draft, &mut data);
        let mut encoder = FetchEncoder::new(draft, order);
        for (group, id, payload) in objects {
            let object = FetchObject {
                group: *group,
                subgroup: Some(0),
                object: *id,
                priority: 128,
                properties: Properties::EMPTY,
                payload_len: payload.len() as u64,
            };
            encoder.encode(&FetchEntry::Object(object), &mut data);
            data.extend_from_slice(payload);
        }
        let accepted = wire::fetch_ok(self.seen.edition, after_last, &[]);
        self.write(now, endpoint, stream, accepted);
        let opened = self.connection(now, endpoint);
        if let Some(opened) = opened.and_then(|mut it| it.open(Direction::Uni)) {
            self.write(now, endpoint, opened, data.to_vec());
            self.waiting.entry(opened).or_default().is_finished = true;
            if let Some(mut connection) = self.connection(now, endpoint) {
                self.flush(&mut connection, opened);
            }
        }
    }

    fn refuse(&mut self, now: Instant, endpoint: &mut Endpoint, stream: StreamId) {
        let refusal = wire::request_error(wire::refusal::INVALID_RANGE, b"");
        self.write(now, endpoint, stream, refusal);
    }

    /// Writes bytes to a stream.
    fn write(&mut self, now: Instant, endpoint: &mut Endpoint, stream: StreamId, bytes: Vec<u8>) {
        let waiting = self.waiting.entry(stream).or_default();
        waiting.bytes.push_back(bytes.into());
        if let Some(mut connection) = self.connection(now, endpoint) {
            self.flush(&mut connection, stream);
        }
    }

    /// Acts on a stream. Returns the action if the stream cannot be opened yet.
    fn try_act(
        &mut self,
        connection: &mut Connection<'_>,
        slot: Slot,
        action: Action,
    ) -> Option<Action> {
        let is_write = matches!(action, Action::Write(_));
        let stream = match (self.seen.stream(slot), slot) {
            (Some(stream), _) => stream,
            // Nothing to end.
            (None, _) if !is_write => return None,
            (None, Slot::Taken(_)) => return None,
            (None, Slot::Bi(_)) => match connection.open(Direction::Bi) {
                Some(stream) => {
                    self.seen.add(stream, Direction::Bi, Some(slot));
                    stream
                }
                None => return Some(action),
            },
            (None, Slot::Control | Slot::Uni(_)) => match connection.open(Direction::Uni) {
                Some(stream) => {
                    self.seen.add(stream, Direction::Uni, Some(slot));
                    stream
                }
                None => return Some(action),
            },
        };
        let is_last = matches!(
            (slot, &action),
            (Slot::Uni(_), Action::Finish | Action::Reset(_))
        );
        match action {
            Action::Write(bytes) => {
                self.sent += 1;
                let waiting = self.waiting.entry(stream).or_default();
                waiting.bytes.push_back(bytes);
                self.flush(connection, stream);
            }
            Action::Finish => {
                self.waiting.entry(stream).or_default().is_finished = true;
                self.flush(connection, stream);
            }
            Action::Reset(code) => {
                self.waiting.remove(&stream);
                connection.reset(stream, code);
            }
            Action::Stop(code) => connection.stop(stream, code),
        }
        if is_last {
            self.seen.forget(slot);
        }
        None
    }

    fn flush(&mut self, connection: &mut Connection<'_>, stream: StreamId) {
        let Some(waiting) = self.waiting.get_mut(&stream) else {
            return;
        };
        while let Some(bytes) = waiting.bytes.front_mut() {
            match connection.write(stream, bytes) {
                Ok(()) => drop(waiting.bytes.pop_front()),
                Err(WriteError::Blocked) => return,
                Err(WriteError::Stopped(_) | WriteError::Closed) => {
                    self.waiting.remove(&stream);
                    return;
                }
            }
        }
        if waiting.is_finished {
            connection.finish(stream);
        }
        self.waiting.remove(&stream);
    }

    fn open_waiting(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let Some(mut connection) = self.connection(now, endpoint) else {
            return;
        };
        while let Some((slot, action)) = self.unopened.pop_front() {
            if let Some(action) = self.try_act(&mut connection, slot, action) {
                self.unopened.push_front((slot, action));
                return;
            }
        }
    }
}

/// Most actions that wait for the relay to permit more streams; further ones are dropped.
const UNOPENED_MAX: usize = 4096;
