//! A peer that plays a script in virtual time: arbitrary bytes, valid messages at any time, and the end of anything.

#[path = "session/script.rs"]
#[expect(dead_code, reason = "the target of sessions uses the rest")]
mod script;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use weir_moqt::data::{
    FetchHeader, ObjectDatagram, ObjectHeader, ObjectStatus, SubgroupHeader, SubgroupId,
};
use weir_moqt::draft::Draft;
use weir_moqt::error::{PublishDoneCode, RequestErrorCode};
use weir_moqt::location::Location;
use weir_moqt::message::{
    Fetch, FetchKind, FetchOk, GoAway, Message, Publish, PublishDone, PublishNamespace, Redirect,
    RequestError, RequestKind, RequestOk, RequestUpdate, Setup, Subscribe, SubscribeNamespace,
    SubscribeOk, SubscribeTracks, TrackStatus,
};
use weir_moqt::name::{FullTrackName, Namespace, TrackName};
use weir_moqt::parameter::Parameters;
use weir_moqt::property::Properties;
use weir_moqt::reader::MessageReader;
use weir_moqt::token::Token;
use weir_quic::{App, ClientConfig, Connection, Endpoint, Event, Handle};
use weir_sim::SERVER_NAME;
use weir_transport::{Direction, Read, StreamId, Transport as _};

pub(super) use self::script::Input;

/// The peer. It serves, or connects to a server.
pub(super) struct Hostile {
    server: Option<(ClientConfig, SocketAddr)>,
    /// The rest of the script.
    script: Vec<u8>,
    /// Payloads that the script may choose.
    shelf: Vec<Bytes>,
    /// What the peer is in a fleet, if it is a relay of one.
    place: Option<Place>,
    draft: Draft,
    handle: Option<Handle>,
    acts_at: Option<Instant>,
    control: Option<StreamId>,
    /// The streams that it may write to.
    open: Vec<StreamId>,
    /// The streams that it may stop.
    arrived: Vec<StreamId>,
    readers: BTreeMap<StreamId, MessageReader>,
    /// Requests of the role that are not answered.
    asked: Vec<(StreamId, Message)>,
    /// Aliases of tracks whose objects it may send.
    aliases: Vec<u64>,
    /// Request IDs of the role's fetches.
    fetches: Vec<u64>,
    requests: u64,
}

/// What a peer is in a fleet.
#[derive(Clone)]
pub(super) struct Place {
    /// The number that it names when it connects.
    pub(super) number: u64,
    /// The URLs that it may redirect requests to.
    pub(super) urls: &'static [&'static str],
}

impl Hostile {
    /// Returns a peer that serves all who connect, or that connects to a server at this time. `shelf` has payloads that the
    /// script may choose.
    pub(super) fn new(
        script: &[u8],
        shelf: Vec<Bytes>,
        server: Option<(Instant, ClientConfig, SocketAddr)>,
    ) -> Self {
        Self {
            acts_at: server.as_ref().map(|(now, ..)| *now),
            server: server.map(|(_, client, server)| (client, server)),
            script: script.to_vec(),
            shelf,
            place: None,
            draft: Draft::KEPT,
            handle: None,
            control: None,
            open: Vec::new(),
            arrived: Vec::new(),
            readers: BTreeMap::new(),
            asked: Vec::new(),
            aliases: Vec::new(),
            fetches: Vec::new(),
            requests: 0,
        }
    }

    /// Makes the peer a relay of a fleet.
    pub(super) fn in_fleet(mut self, place: Option<Place>) -> Self {
        self.place = place;
        self
    }

    fn begin(&mut self, now: Instant, connection: &mut Connection<'_>) {
        let (script, shelf) = (
            std::mem::take(&mut self.script),
            std::mem::take(&mut self.shelf),
        );
        *self = Self {
            server: self.server.take(),
            place: self.place.take(),
            handle: Some(connection.handle()),
            acts_at: Some(now),
            ..Self::new(&script, shelf, None)
        };
        let protocol = connection.protocol().unwrap_or_default();
        self.draft = Draft::from_alpn(protocol.as_bytes()).expect("only drafts are offered");
        let (first, rest) = self
            .script
            .split_first()
            .map_or((1, &[][..]), |(first, rest)| (*first, rest));
        self.script = rest.to_vec();
        // Most scripts begin with a SETUP.
        if first % 8 != 0 {
            self.control = connection.open(Direction::Uni);
            let place = self.place.as_ref().filter(|_| self.server.is_some());
            let setup = Setup {
                fleet_relay: place.map(|place| place.number),
                ..Setup::default()
            };
            let setup = encoded(self.draft, &Message::Setup(setup));
            self.write(connection, self.control, setup);
            self.open.extend(self.control);
        }
    }

    /// Plays the next step of the script. Returns the pause after it.
    fn act(&mut self, connection: &mut Connection<'_>) -> Duration {
        let script = std::mem::take(&mut self.script);
        let mut input = Input(&script);
        let step = input.byte();
        match step % 16 {
            0 => self.open_with(connection, Direction::Uni, input.bytes().into()),
            1 => self.open_with(connection, Direction::Bi, input.bytes().into()),
            2 => {
                let (stream, data) = (pick(&mut input, &self.open), input.bytes());
                self.write(connection, stream, data.into());
            }
            3 | 4 => {
                let stream = pick(&mut input, &self.open);
                let message = encoded(self.draft, &script::message(&mut input));
                self.write(connection, stream, message);
            }
            5 => self.request(connection, &mut input),
            6 | 7 => self.answer(connection, &mut input),
            8 => self.send_subgroup(connection, &mut input),
            9 => self.send_fetched(connection, &mut input),
            10 => self.send_datagram(connection, &mut input),
            11 => {
                if let Some(stream) = pick(&mut input, &self.open) {
                    connection.finish(stream);
                    self.open.retain(|one| *one != stream);
                }
            }
            12 => self.cut(connection, &mut input),
            13 => {
                let goaway = encoded(self.draft, &Message::GoAway(GoAway::default()));
                self.write(connection, self.control, goaway);
            }
            14 => self.asked.clear(),
            _ if step == CLOSE => {
                connection.close(input.number(64), b"enough");
                self.handle = None;
            }
            _ => {}
        }
        self.script = input.0.to_vec();
        PAUSES[usize::from(step >> 4)]
    }

    fn open_with(&mut self, connection: &mut Connection<'_>, direction: Direction, data: Bytes) {
        let stream = connection.open(direction);
        self.write(connection, stream, data);
        self.open.extend(stream);
    }

    /// Writes what fits, and discards the rest.
    fn write(
        &mut self,
        connection: &mut Connection<'_>,
        stream: Option<StreamId>,
        mut data: Bytes,
    ) {
        if let Some(stream) = stream
            && connection.write(stream, &mut data).is_err()
        {
            self.open.retain(|one| *one != stream);
        }
    }

    fn request(&mut self, connection: &mut Connection<'_>, input: &mut Input<'_>) {
        self.requests += 1;
        let parity = u64::from(self.server.is_none());
        let request_id = (self.requests - 1) * 2 + parity;
        let kind = RequestKind::ALL[usize::from(input.byte()) % RequestKind::ALL.len()];
        let message = script::opening(input, kind, request_id);
        if let Message::Publish(publish) = &message {
            self.aliases.push(publish.track_alias);
        }
        self.open_with(connection, Direction::Bi, encoded(self.draft, &message));
    }

    /// Answers a request of the role as it may expect.
    fn answer(&mut self, connection: &mut Connection<'_>, input: &mut Input<'_>) {
        if self.asked.is_empty() {
            return;
        }
        let (stream, asked) = self
            .asked
            .remove(usize::from(input.byte()) % self.asked.len());
        let refuses = input.number(8) == 0;
        let message = match (asked, refuses) {
            (_, true) => Message::RequestError(self.refusal(input)),
            (Message::Subscribe(_), false) => {
                let track_alias = 1000 + self.aliases.len() as u64;
                self.aliases.push(track_alias);
                let mut ok = script::subscribe_ok(track_alias);
                let is_new = input.byte() & 1 == 0;
                ok.parameters.largest_object = (!is_new).then_some(Location::new(0, 2));
                Message::SubscribeOk(ok)
            }
            (Message::Fetch(fetch), false) => {
                self.fetches.push(fetch.request_id);
                Message::FetchOk(script::fetch_ok())
            }
            (Message::Publish(publish), false) => {
                self.aliases.push(publish.track_alias);
                Message::RequestOk(RequestOk::default())
            }
            (_, false) => Message::RequestOk(RequestOk::default()),
        };
        self.write(connection, Some(stream), encoded(self.draft, &message));
        self.open.push(stream);
    }

    /// Returns a refusal. A relay of a fleet may redirect.
    fn refusal(&self, input: &mut Input<'_>) -> RequestError {
        let place = self.place.as_ref();
        let url = place.and_then(|place| pick(input, place.urls));
        match url {
            Some(url) => RequestError {
                code: RequestErrorCode::REDIRECT,
                redirect: Some(Redirect {
                    connect_uri: url.to_owned(),
                    track: FullTrackName::default(),
                }),
                ..script::error()
            },
            None => script::error(),
        }
    }

    /// Sends objects of a track on a new stream.
    fn send_subgroup(&mut self, connection: &mut Connection<'_>, input: &mut Input<'_>) {
        let header = SubgroupHeader {
            track_alias: pick(input, &self.aliases).unwrap_or_default(),
            group: input.number(8),
            subgroup: [
                SubgroupId::Zero,
                SubgroupId::FirstObject,
                SubgroupId::Explicit(1),
            ][usize::from(input.byte() % 3)],
            priority: None,
            has_properties: true,
            end_of_group: input.byte() & 1 == 1,
            first_object: true,
        };
        let mut out = BytesMut::new();
        header.encode(self.draft, &mut out);
        let mut previous = None;
        for _ in 0..input.number(8) {
            let (payload, properties) = (self.payload(input), script::properties(input));
            let id = previous.map_or(0, |id| id + 1) + u64::from(input.byte() / 200);
            let object = ObjectHeader {
                id,
                properties,
                status: ObjectStatus::Normal,
                payload_len: payload.len() as u64,
            };
            object.encode_in_subgroup(previous, true, self.draft, &mut out);
            out.extend_from_slice(&payload);
            previous = Some(id);
        }
        self.send(connection, input, out);
    }

    fn send_fetched(&mut self, connection: &mut Connection<'_>, input: &mut Input<'_>) {
        let mut out = BytesMut::new();
        let request_id = pick(input, &self.fetches).unwrap_or_default();
        FetchHeader { request_id }.encode(self.draft, &mut out);
        out.extend_from_slice(&input.bytes());
        self.send(connection, input, out);
    }

    /// Sends a stream, as a whole or cut, and ends it or leaves it open.
    fn send(&mut self, connection: &mut Connection<'_>, input: &mut Input<'_>, mut data: BytesMut) {
        let end = input.byte();
        if end & 3 == 3 {
            data.truncate(data.len() * usize::from(end >> 2) / 64);
        }
        self.open_with(connection, Direction::Uni, data.freeze());
        if end & 1 == 0
            && let Some(stream) = self.open.pop()
        {
            connection.finish(stream);
        }
    }

    fn send_datagram(&mut self, connection: &mut Connection<'_>, input: &mut Input<'_>) {
        let data = if input.byte().is_multiple_of(8) {
            input.bytes().into()
        } else {
            let mut out = BytesMut::new();
            ObjectDatagram {
                track_alias: pick(input, &self.aliases).unwrap_or_default(),
                group: input.number(8),
                object: input.number(8),
                priority: None,
                end_of_group: input.byte() & 1 == 1,
                properties: script::properties(input),
                status: ObjectStatus::Normal,
                payload: input.bytes().into(),
            }
            .encode(self.draft, &mut out);
            out.freeze()
        };
        // It is small enough, and a lost connection does not matter.
        let _sent = connection.send_datagram(data, None);
    }

    fn cut(&mut self, connection: &mut Connection<'_>, input: &mut Input<'_>) {
        let code = input.number(32);
        if input.byte() & 1 == 0 {
            if let Some(stream) = pick(input, &self.open) {
                connection.reset(stream, code);
                self.open.retain(|one| *one != stream);
            }
        } else if let Some(stream) = pick(input, &self.arrived) {
            connection.stop(stream, code);
            self.arrived.retain(|one| *one != stream);
            self.readers.remove(&stream);
        }
    }

    /// Returns a payload of the shelf, or bytes of the script.
    fn payload(&self, input: &mut Input<'_>) -> Bytes {
        let choice = usize::from(input.byte());
        match self.shelf.get(choice) {
            Some(payload) => payload.clone(),
            None => input.bytes().into(),
        }
    }

    /// Reads a stream of the role, which has to keep to the protocol.
    fn read(&mut self, connection: &mut Connection<'_>, stream: StreamId) {
        loop {
            let data = match connection.read(stream) {
                Read::Data(data) => data,
                Read::Blocked => return,
                Read::Fin | Read::Reset(_) => {
                    self.readers.remove(&stream);
                    self.arrived.retain(|one| *one != stream);
                    return;
                }
            };
            let Some(reader) = self.readers.get_mut(&stream) else {
                continue;
            };
            reader.push(data);
            while let Some(message) = reader.poll().expect("the role sends valid messages") {
                if !matches!(message, Message::RequestUpdate(_)) {
                    self.asked.push((stream, message));
                }
            }
        }
    }
}

impl App for Hostile {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        let handle = event.handle();
        if let Event::Lost { .. } = event {
            self.handle.take_if(|known| *known == handle);
            return;
        }
        let Some(mut connection) = endpoint.connection(now, handle) else {
            return;
        };
        match event {
            Event::Connected { .. } => self.begin(now, &mut connection),
            Event::Opened {
                stream, direction, ..
            } if self.handle == Some(handle) => {
                self.arrived.push(stream);
                if direction == Direction::Bi {
                    let reader = MessageReader::new(self.draft, usize::MAX);
                    self.readers.insert(stream, reader);
                }
            }
            Event::Readable { stream, .. } if self.handle == Some(handle) => {
                self.read(&mut connection, stream);
            }
            Event::Lost { .. }
            | Event::Opened { .. }
            | Event::Readable { .. }
            | Event::Writable { .. }
            | Event::Stopped { .. }
            | Event::Finished { .. }
            | Event::StreamsAvailable { .. }
            | Event::Datagram { .. } => {}
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.acts_at
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if self.acts_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        if let (None, Some((client, server))) = (self.handle, &self.server)
            && !self.script.is_empty()
        {
            let handle = endpoint.connect(now, client, *server, SERVER_NAME, 0);
            self.handle = handle.ok();
            return;
        }
        let connection = self
            .handle
            .and_then(|handle| endpoint.connection(now, handle));
        if let Some(mut connection) = connection
            && !self.script.is_empty()
        {
            self.acts_at = Some(now + self.act(&mut connection));
        }
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        endpoint.close_all(now, 0, b"");
    }

    fn is_finished(&self) -> bool {
        self.script.is_empty() || self.handle.is_none() && self.acts_at.is_none()
    }
}

fn encoded(draft: Draft, message: &Message) -> Bytes {
    let mut out = BytesMut::new();
    message.encode(draft, &mut out).expect("it is short");
    out.freeze()
}

/// Returns one of several, selected by a byte.
fn pick<T: Copy>(input: &mut Input<'_>, from: &[T]) -> Option<T> {
    let place = usize::from(input.byte()) % from.len().max(1);
    from.get(place).copied()
}

/// The step that closes the connection.
const CLOSE: u8 = 0x7f;
/// The pauses after a step, selected by its upper half.
const PAUSES: [Duration; 16] = {
    let millis = [0, 0, 0, 0, 1, 1, 5, 5, 10, 20, 50, 50, 100, 200, 500, 1000];
    let mut pauses = [Duration::ZERO; 16];
    let mut place = 0;
    while place < 16 {
        pauses[place] = Duration::from_millis(millis[place]);
        place += 1;
    }
    pauses
};
