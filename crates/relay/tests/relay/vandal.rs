//! A client that breaks the rules of the protocol, at random from a seed.

use std::{net::SocketAddr, time::Instant};

use bytes::{Bytes, BytesMut};
use weir_link::Random;
use weir_moqt::{
    data::{ObjectDatagram, ObjectStatus, SubgroupId},
    draft::Draft,
    error::{PublishDoneCode, RequestErrorCode},
    location::Location,
    message::{
        Fetch, FetchKind, GoAway, Message, Publish, PublishDone, PublishNamespace, Redirect,
        RequestError, RequestOk, RequestUpdate, Setup, Subscribe, SubscribeNamespace, SubscribeOk,
        SubscribeTracks, TrackStatus,
    },
    name::FullTrackName,
    parameter::{Filter, Parameters},
    property::Properties,
};
use weir_quic::{App, ClientConfig, Connection, Endpoint, Event, Handle};
use weir_sim::{SERVER_NAME, Sim};
use weir_transport::{Direction, StreamId, Transport as _};

use crate::stage::{draft, encoded, has_fills, name, object, plain, space};

/// A client that violates the protocol.
pub(crate) struct Vandal {
    config: ClientConfig,
    draft: Draft,
    relay: SocketAddr,
    random: Random,
    handle: Option<Handle>,
    acts_at: Option<Instant>,
    acts_left: u32,
    /// How often it does what no client may do, in percent.
    malice: u64,
    /// Streams to write to, with their first messages.
    streams: Vec<(StreamId, Kind)>,
    /// Aliases of the tracks that it publishes.
    aliases: Vec<u64>,
    /// Streams from the relay.
    arrivals: Vec<StreamId>,
    next_request: u64,
    pub(crate) is_gone: bool,
}

/// The first message of a stream to the relay.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Control,
    Subscribe,
    Publish,
    Announce,
    Fetch,
    Status,
    /// A SUBSCRIBE_NAMESPACE or SUBSCRIBE_TRACKS.
    Interest,
    /// A SUBSCRIBE of the relay.
    Asked,
    Subgroup,
}

impl Vandal {
    pub(crate) fn new(sim: &Sim, relay: SocketAddr, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let malice = [0, 0, 2, 20][usize::try_from(random.below(4)).expect("small")];
        Self {
            config: sim.client_config(&[draft().alpn()]),
            draft: draft(),
            relay,
            random,
            malice,
            aliases: Vec::new(),
            handle: None,
            acts_at: Some(sim.now()),
            acts_left: 25,
            streams: Vec::new(),
            arrivals: Vec::new(),
            next_request: 0,
            is_gone: false,
        }
    }

    /// Returns true with this probability, in percent.
    fn is_so(&mut self, percent: u64) -> bool {
        self.random.below(100) < percent
    }

    fn is_malicious(&mut self) -> bool {
        let malice = self.malice;
        self.is_so(malice)
    }

    fn set_up(&mut self, connection: &mut Connection<'_>) {
        // Most of them complete the SETUP first.
        if self.is_malicious() {
            return;
        }
        let data = self.encoded(&Message::Setup(Setup::default()));
        if let Some(stream) = connection.open(Direction::Uni) {
            write(connection, stream, data);
            self.streams.push((stream, Kind::Control));
        }
    }

    fn act(&mut self, connection: &mut Connection<'_>) {
        match self.random.below(20) {
            0..=5 => self.ask(connection),
            6..=8 => self.send_subgroup(connection),
            9..=10 => self.send_datagram(connection),
            11..=14 => self.go_on(connection),
            15..=17 => self.end_something(connection),
            18 if self.is_malicious() => self.send_garbage(connection),
            19 if self.is_so(20) => {
                connection.close(self.random.below(40), b"enough");
                self.is_gone = true;
            }
            _ => {}
        }
    }

    /// Sends a request, or several on a stream that may have only one.
    fn ask(&mut self, connection: &mut Connection<'_>) {
        let Some(stream) = connection.open(Direction::Bi) else {
            return;
        };
        let (message, kind) = self.request();
        let data = self.encoded(&message);
        write(connection, stream, data);
        if self.is_so(30)
            && let Some(update) = self.update(kind)
        {
            // The update is sent before anyone could answer the request.
            let data = self.encoded(&update);
            write(connection, stream, data);
        }
        if self.is_malicious() {
            let data = self.request().0;
            let data = self.encoded(&data);
            write(connection, stream, data);
        }
        self.streams.push((stream, kind));
    }

    fn request(&mut self) -> (Message, Kind) {
        let request_id = self.request_id();
        let tracks = ["a--x", "a--y", "b-c--z", "a--"];
        let track = name(tracks[usize::try_from(self.random.below(4)).expect("small")]);
        let namespaces = ["a", "b", "b-c"];
        let namespace = space(namespaces[usize::try_from(self.random.below(3)).expect("small")]);
        let plain = Parameters::default();
        match self.random.below(16) {
            0..=4 => {
                let subscribe = self.subscribe(request_id, track);
                (Message::Subscribe(subscribe), Kind::Subscribe)
            }
            5..=9 => {
                let publish = self.publish(request_id, track);
                (Message::Publish(publish), Kind::Publish)
            }
            10 | 11 => {
                let publish = PublishNamespace {
                    request_id,
                    namespace,
                    parameters: plain,
                };
                (Message::PublishNamespace(publish), Kind::Announce)
            }
            12 => {
                let status = TrackStatus {
                    request_id,
                    track,
                    parameters: plain,
                };
                (Message::TrackStatus(status), Kind::Status)
            }
            13 => {
                let kind = self.fetch_kind(request_id, track);
                let fetch = Fetch {
                    request_id,
                    kind,
                    parameters: plain,
                };
                (Message::Fetch(fetch), Kind::Fetch)
            }
            14 => {
                let subscribe = SubscribeNamespace {
                    request_id,
                    prefix: namespace,
                    parameters: plain,
                };
                (Message::SubscribeNamespace(subscribe), Kind::Interest)
            }
            _ => {
                let parameters = if self.draft < Draft::Draft19 {
                    plain
                } else {
                    self.parameters()
                };
                let subscribe = SubscribeTracks {
                    request_id,
                    prefix: namespace,
                    parameters,
                };
                (Message::SubscribeTracks(subscribe), Kind::Interest)
            }
        }
    }

    fn subscribe(&mut self, request_id: u64, track: FullTrackName) -> Subscribe {
        let parameters = self.parameters();
        let fill = (has_fills(self.draft) && self.is_so(30)).then(Box::default);
        Subscribe {
            request_id,
            track,
            parameters: Parameters {
                fill,
                rendezvous_timeout: self.is_so(40).then(|| crate::stage::secs(2)),
                ..parameters
            },
        }
    }

    /// A PUBLISH with a new alias, or with one that other tracks have.
    fn publish(&mut self, request_id: u64, track: FullTrackName) -> Publish {
        let track_alias = if self.is_malicious() { 0 } else { request_id };
        self.aliases.push(track_alias);
        Publish {
            request_id,
            track,
            track_alias,
            parameters: Parameters::default(),
            properties: Properties::EMPTY,
        }
    }

    /// The beginning of a track, or the groups before some request.
    fn fetch_kind(&mut self, request_id: u64, track: FullTrackName) -> FetchKind {
        match self.random.below(3) {
            0 if has_fills(self.draft) => FetchKind::Recent {
                track,
                groups: self.random.below(3),
            },
            0 => FetchKind::RelativeJoining {
                request_id: 2 * self.random.below(1 + request_id / 2),
                groups: self.random.below(3),
            },
            _ => FetchKind::Standalone {
                track,
                start: Location::ZERO,
                end: Location::new(4, 0),
            },
        }
    }

    /// The next Request ID, or an arbitrary one.
    fn request_id(&mut self) -> u64 {
        if self.is_malicious() {
            return self.random.below(12);
        }
        self.next_request += 2;
        self.next_request - 2
    }

    /// A message that may follow the first message of a stream.
    fn follow_up(&mut self, kind: Kind) -> Option<Message> {
        match kind {
            Kind::Subscribe | Kind::Fetch | Kind::Announce | Kind::Interest => self.update(kind),
            Kind::Publish if self.is_so(30) => self.update(kind),
            Kind::Publish if self.is_so(50) => Some(Message::PublishDone(PublishDone {
                code: PublishDoneCode(self.random.below(10)),
                stream_count: self.is_so(80).then(|| self.random.below(4)),
                reason: String::new(),
            })),
            Kind::Asked if self.is_so(60) => {
                let track_alias = 1000 + self.random.below(1000);
                self.aliases.push(track_alias);
                Some(Message::SubscribeOk(SubscribeOk {
                    track_alias,
                    parameters: Parameters::default(),
                    properties: Properties::EMPTY,
                }))
            }
            Kind::Asked => Some(Message::RequestError(RequestError {
                code: RequestErrorCode::UNAUTHORIZED,
                retry_after: None,
                reason: String::new(),
                redirect: None,
            })),
            Kind::Publish | Kind::Control | Kind::Status | Kind::Subgroup => None,
        }
    }

    /// An update of a request, answered or not.
    fn update(&mut self, kind: Kind) -> Option<Message> {
        let plain = Parameters::default();
        let parameters = match kind {
            Kind::Subscribe => self.parameters(),
            Kind::Fetch => Parameters {
                subscriber_priority: Some(3),
                ..plain
            },
            Kind::Interest => Parameters {
                track_namespace_prefix: self.is_so(50).then(|| space("b")),
                ..plain
            },
            Kind::Publish | Kind::Announce => plain,
            Kind::Control | Kind::Status | Kind::Asked | Kind::Subgroup => return None,
        };
        let request_id = self.request_id();
        Some(Message::RequestUpdate(RequestUpdate {
            request_id,
            parameters,
        }))
    }

    /// An answer that no request asked for.
    fn reply(&mut self) -> Message {
        match self.random.below(5) {
            0 => Message::RequestOk(RequestOk::default()),
            1 => {
                let code = RequestErrorCode(self.random.below(60));
                let redirect = (code == RequestErrorCode::REDIRECT).then(Redirect::default);
                Message::RequestError(RequestError {
                    code,
                    retry_after: None,
                    reason: String::new(),
                    redirect,
                })
            }
            2 => Message::SubscribeOk(SubscribeOk {
                track_alias: self.random.below(3),
                parameters: Parameters::default(),
                properties: Properties::EMPTY,
            }),
            3 => Message::GoAway(GoAway::default()),
            _ => Message::PublishDone(PublishDone {
                code: PublishDoneCode(self.random.below(10)),
                stream_count: Some(self.random.below(4)),
                reason: String::new(),
            }),
        }
    }

    fn parameters(&mut self) -> Parameters {
        let start = Location::new(self.random.below(5), self.random.below(3));
        let filter = match self.random.below(6) {
            0 => Some(Filter::NextGroupStart),
            1 => Some(Filter::LargestObject),
            2 => Some(Filter::AbsoluteStart(start)),
            3 => Some(Filter::AbsoluteRange {
                start,
                end: Location::new(start.group + self.random.below(3), u64::MAX),
            }),
            _ => None,
        };
        Parameters {
            filter,
            forward: self.is_so(50).then_some(start.object == 0),
            ..Parameters::default()
        }
    }

    /// An alias of its own, or an arbitrary one.
    fn alias(&mut self) -> u64 {
        let count = self.aliases.len() as u64;
        if count == 0 || self.is_malicious() {
            return self.random.below(9);
        }
        let place = self.random.below(count);
        self.aliases[usize::try_from(place).expect("small")]
    }

    fn send_subgroup(&mut self, connection: &mut Connection<'_>) {
        let Some(stream) = connection.open(Direction::Uni) else {
            return;
        };
        let subgroups = [
            SubgroupId::Zero,
            SubgroupId::FirstObject,
            SubgroupId::Explicit(3),
        ];
        let header = weir_moqt::data::SubgroupHeader {
            track_alias: self.alias(),
            subgroup: subgroups[usize::try_from(self.random.below(3)).expect("small")],
            ..plain(self.random.below(4))
        };
        let mut data = BytesMut::new();
        header.encode(self.draft, &mut data);
        let id = self.random.below(9);
        let bytes = usize::try_from(self.random.below(2000)).expect("small");
        let cut = self.is_so(30);
        let sent = if cut { bytes / 2 } else { bytes };
        data.extend_from_slice(&encoded(&header, None, &object(id, bytes), &vec![1; sent]));
        let data = self.perhaps_spoilt(data);
        write(connection, stream, data);
        match self.random.below(3) {
            0 if !cut || self.is_malicious() => connection.finish(stream),
            1 => connection.reset(stream, self.random.next_u64() >> 2),
            _ => self.streams.push((stream, Kind::Subgroup)),
        }
    }

    fn send_datagram(&mut self, connection: &mut Connection<'_>) {
        let mut data = BytesMut::new();
        ObjectDatagram {
            track_alias: self.alias(),
            group: self.random.below(4),
            object: self.random.next_u64(),
            priority: None,
            end_of_group: false,
            properties: Properties::EMPTY,
            status: ObjectStatus::Normal,
            payload: Bytes::from_static(b"graffiti"),
        }
        .encode(self.draft, &mut data);
        let data = self.perhaps_spoilt(data);
        // The datagram is small enough, and a lost connection does not matter.
        let _sent = connection.send_datagram(data, None);
    }

    /// Writes more to an open stream.
    fn go_on(&mut self, connection: &mut Connection<'_>) {
        let Some((stream, kind)) = self.any_stream() else {
            return;
        };
        let message = if self.is_malicious() {
            Some(self.reply())
        } else {
            self.follow_up(kind)
        };
        let data = match message {
            Some(message) => self.encoded(&message),
            None if self.is_malicious() => self.garbage(),
            None => return,
        };
        write(connection, stream, data);
        if matches!(kind, Kind::Publish | Kind::Asked) && !self.is_malicious() {
            self.streams.retain(|(other, _)| *other != stream);
        }
    }

    fn end_something(&mut self, connection: &mut Connection<'_>) {
        let Some((stream, kind)) = self.any_stream() else {
            return;
        };
        if kind == Kind::Control && !self.is_malicious() {
            return;
        }
        let code = self.random.below(20);
        match self.random.below(3) {
            0 if kind != Kind::Subgroup => connection.finish(stream),
            0 | 1 => connection.reset(stream, code),
            _ => {}
        }
        if self.is_so(50)
            && let Some(stream) = self.arrivals.pop()
        {
            connection.stop(stream, code);
        }
    }

    fn send_garbage(&mut self, connection: &mut Connection<'_>) {
        let garbage = self.garbage();
        let direction = if self.is_so(50) {
            Direction::Uni
        } else {
            Direction::Bi
        };
        if let Some(stream) = connection.open(direction) {
            write(connection, stream, garbage);
        }
    }

    fn garbage(&mut self) -> Bytes {
        let length = self.random.below(60);
        (0..length)
            .map(|_| self.random.next_u64().to_le_bytes()[0])
            .collect()
    }

    fn encoded(&mut self, message: &Message) -> Bytes {
        let mut data = BytesMut::new();
        message.encode(self.draft, &mut data).expect("it fits");
        self.perhaps_spoilt(data)
    }

    /// Returns the bytes, possibly with some changed or removed.
    fn perhaps_spoilt(&mut self, mut data: BytesMut) -> Bytes {
        while self.is_malicious() && !data.is_empty() {
            let place = usize::try_from(self.random.below(data.len() as u64)).expect("small");
            if self.is_so(30) {
                data.truncate(place);
            } else {
                data[place] = self.random.next_u64().to_le_bytes()[0];
            }
        }
        data.freeze()
    }

    fn any_stream(&mut self) -> Option<(StreamId, Kind)> {
        let count = self.streams.len() as u64;
        let place = (count > 0).then(|| self.random.below(count))?;
        self.streams.get(usize::try_from(place).ok()?).copied()
    }
}

/// The first unidirectional stream of a server (RFC 9000 §2.1).
const FIRST_FROM_RELAY: StreamId = StreamId(3);

/// Writes what fits, and discards the rest.
fn write(connection: &mut Connection<'_>, stream: StreamId, mut data: Bytes) {
    let _blocked_or_gone = connection.write(stream, &mut data);
}

impl App for Vandal {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        match event {
            Event::Connected { handle } => {
                if let Some(mut connection) = endpoint.connection(now, handle) {
                    self.set_up(&mut connection);
                }
                self.acts_at = Some(now);
            }
            Event::Opened {
                stream, direction, ..
            } => {
                // The first stream is the relay's control stream.
                if stream != FIRST_FROM_RELAY || self.is_malicious() {
                    self.arrivals.push(stream);
                }
                if direction == Direction::Bi {
                    self.streams.push((stream, Kind::Asked));
                }
            }
            Event::Lost { .. } => self.is_gone = true,
            Event::Readable { .. }
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
        let Some(handle) = self.handle else {
            let handle = endpoint.connect(now, &self.config, self.relay, SERVER_NAME, 0);
            self.handle = Some(handle.expect("a client may connect"));
            return;
        };
        if let Some(mut connection) = endpoint.connection(now, handle)
            && self.acts_left > 0
        {
            self.acts_left -= 1;
            self.act(&mut connection);
            let pause = crate::stage::millis(self.random.below(12));
            self.acts_at = Some(now + pause);
        }
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        endpoint.close_all(now, 0, b"");
    }

    fn is_finished(&self) -> bool {
        true
    }
}
