//! Two sessions on a link, or one session and a scripted peer.

use std::cell::Cell;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use weir_transport::{Direction, Read, StreamId, Transport};

use super::epoch;
use super::link::{Link, Note, View, index};
use crate::data::{ObjectDatagram, ObjectHeader, ObjectStatus, SubgroupHeader, SubgroupId};
use crate::draft::Draft;
use crate::error::{PublishDoneCode, RequestErrorCode, ResetCode, SessionError, Violation};
use crate::limits::Limits;
use crate::location::Location;
use crate::message::{
    FetchOk, GoAway, Message, Publish, PublishDone, RequestError, RequestOk, RequestUpdate, Setup,
    Subscribe, SubscribeOk,
};
use crate::name::{FullTrackName, Namespace, TrackName};
use crate::parameter::Parameters;
use crate::property::Properties;
use crate::reader::MessageReader;
use crate::session::{Config, Event, RequestId, Session, Side};

thread_local! {
    static DRAFT: Cell<Draft> = const { Cell::new(Draft::Draft18) };
}

/// The draft of the sessions in this test.
pub(super) fn draft() -> Draft {
    DRAFT.get()
}

/// Sets the draft of the sessions in this test.
pub(super) fn set_draft(draft: Draft) {
    println!("draft {}", draft.alpn());
    DRAFT.set(draft);
}

/// A link with a session at one or both ends.
pub(super) struct Pair {
    pub(super) link: Link,
    pub(super) now: Instant,
    sessions: [Option<Session>; 2],
    events: [Vec<Event>; 2],
    datagrams: [Vec<(RequestId, ObjectDatagram)>; 2],
}

/// Runs a story under several seeds and in all drafts, or under the seed in `WEIR_SEED`; a failure prints both.
pub(super) fn each_seed(story: impl Fn(u64)) {
    let drafts = Draft::ALL.into_iter();
    let runs: Vec<(u64, Draft)> = match std::env::var("WEIR_SEED") {
        Ok(seed) => {
            let seed = seed.parse().expect("WEIR_SEED is a number");
            drafts.map(|draft| (seed, draft)).collect()
        }
        Err(_) => (0..25).zip(drafts.cycle()).collect(),
    };
    for (seed, draft) in runs {
        println!("WEIR_SEED={seed}");
        set_draft(draft);
        story(seed);
    }
}

pub(super) fn config(side: Side) -> Config {
    let mut setup = Setup {
        implementation: Some(String::from("weir")),
        ..Setup::default()
    };
    if side == Side::Client {
        setup.path = Some(String::from("/test"));
        setup.authority = Some(String::from("example.com:443"));
    }
    Config {
        draft: draft(),
        side,
        limits: Limits::default(),
        setup,
    }
}

pub(super) fn config_with(side: Side, change: impl FnOnce(&mut Limits)) -> Config {
    let mut config = config(side);
    change(&mut config.limits);
    config
}

impl Pair {
    /// Two sessions that have not started.
    pub(super) fn new(seed: u64, client: Config, server: Config) -> Self {
        Self {
            link: Link::new(seed),
            now: epoch(),
            sessions: [Some(Session::new(client)), Some(Session::new(server))],
            events: [Vec::new(), Vec::new()],
            datagrams: [Vec::new(), Vec::new()],
        }
    }

    /// Two sessions that are ready.
    pub(super) fn ready(seed: u64) -> Self {
        Self::ready_with(seed, config(Side::Client), config(Side::Server))
    }

    pub(super) fn ready_with(seed: u64, client: Config, server: Config) -> Self {
        let mut pair = Self::new(seed, client, server);
        pair.start();
        pair.run();
        for side in [Side::Client, Side::Server] {
            assert!(matches!(pair.events(side)[..], [Event::Ready { .. }]));
        }
        pair
    }

    /// Lets the client subscribe to the track "t".
    pub(super) fn client_subscribes(&mut self) -> RequestId {
        self.client(|session, view| session.subscribe(view, track("t"), Parameters::default()))
            .expect("the client has room for a request")
    }

    /// Asserts that neither session keeps state for a request.
    pub(super) fn assert_no_requests(&self) {
        for side in [Side::Client, Side::Server] {
            assert_eq!(self.session(side).requests_len(), 0, "{side:?}");
        }
    }

    /// One started session; the test speaks for the other side.
    pub(super) fn alone(config: Config) -> Self {
        let side = config.side;
        let mut pair = Self::new(1, config.clone(), config.clone());
        pair.sessions = [None, None];
        pair.sessions[index(side)] = Some(Session::new(config));
        pair.start();
        pair
    }

    /// One session that has its peer's SETUP; the test speaks for the other side. Returns the
    /// peer's control stream too.
    pub(super) fn alone_ready(config: Config) -> (Self, StreamId) {
        let side = config.side;
        let mut pair = Self::alone(config);
        let control = pair.peer_opens(side, Direction::Uni, &[Message::Setup(Setup::default())]);
        assert!(matches!(pair.events(side)[..], [Event::Ready { .. }]));
        (pair, control)
    }

    pub(super) fn start(&mut self) {
        for side in [Side::Client, Side::Server] {
            if self.sessions[index(side)].is_some() {
                let now = self.now;
                self.with(side, |session, view| session.start(now, view));
            }
        }
    }

    /// Lets everything arrive.
    pub(super) fn run(&mut self) {
        while let Some((side, note)) = self.link.step() {
            self.note(side, note);
        }
    }

    /// Lets one thing arrive, if there is one.
    pub(super) fn step(&mut self) {
        if let Some((side, note)) = self.link.step() {
            self.note(side, note);
        }
    }

    fn note(&mut self, side: Side, note: Note) {
        if self.sessions[index(side)].is_none() {
            return;
        }
        let now = self.now;
        self.with(side, |session, view| match note {
            Note::Opened(stream, direction) => session.handle_opened(now, view, stream, direction),
            Note::Readable(stream) => session.handle_readable(now, view, stream),
            Note::Writable(stream) => {
                session.handle_writable(now, view, stream);
            }
            Note::Stopped(stream, code) => {
                session.handle_stopped(now, view, stream, code);
            }
            Note::StreamsAvailable(direction) => {
                session.handle_streams_available(now, view, direction);
            }
        });
    }

    /// Calls a session with its transport, and collects its events.
    pub(super) fn with<T>(
        &mut self,
        side: Side,
        call: impl FnOnce(&mut Session, &mut View<'_>) -> T,
    ) -> T {
        let session = self.sessions[index(side)]
            .as_mut()
            .expect("the test plays this side");
        let result = call(
            session,
            &mut View {
                link: &mut self.link,
                side,
            },
        );
        while let Some(event) = session.poll_event() {
            self.events[index(side)].push(event);
        }
        result
    }

    pub(super) fn client<T>(&mut self, call: impl FnOnce(&mut Session, &mut View<'_>) -> T) -> T {
        self.with(Side::Client, call)
    }

    pub(super) fn server<T>(&mut self, call: impl FnOnce(&mut Session, &mut View<'_>) -> T) -> T {
        self.with(Side::Server, call)
    }

    pub(super) fn session(&self, side: Side) -> &Session {
        self.sessions[index(side)]
            .as_ref()
            .expect("the test plays this side")
    }

    /// Takes the events since the last call.
    pub(super) fn events(&mut self, side: Side) -> Vec<Event> {
        std::mem::take(&mut self.events[index(side)])
    }

    /// Lets everything arrive, and takes a side's events.
    pub(super) fn run_events(&mut self, side: Side) -> Vec<Event> {
        self.run();
        self.events(side)
    }

    /// Lets time pass, and does what is due.
    pub(super) fn wait(&mut self, time: Duration) {
        self.now += time;
        for side in [Side::Client, Side::Server] {
            if self.sessions[index(side)].is_some() {
                let now = self.now;
                self.with(side, |session, view| session.handle_timeout(now, view));
            }
        }
    }

    /// Lets all but the last nanosecond of a time pass.
    pub(super) fn wait_until_just_before(&mut self, time: Duration) {
        self.wait(time.saturating_sub(Duration::from_nanos(1)));
    }

    /// Gives a session a datagram; returns whether it was delivered at once.
    pub(super) fn datagram(&mut self, to: Side, datagram: &ObjectDatagram) -> Option<RequestId> {
        let mut data = BytesMut::new();
        datagram.encode(draft(), &mut data);
        self.datagram_bytes(to, data.freeze())
    }

    pub(super) fn datagram_bytes(&mut self, to: Side, data: Bytes) -> Option<RequestId> {
        let now = self.now;
        let (request, datagram) =
            self.with(to, |session, view| session.handle_datagram(now, view, data))?;
        self.datagrams[index(to)].push((request, datagram));
        Some(request)
    }

    /// What a session closed its transport with.
    pub(super) fn closed(&self, side: Side) -> Option<SessionError> {
        self.link.closed[index(side)]
            .as_ref()
            .map(|(code, _)| SessionError(*code))
    }

    /// Asserts that a side closed with a code, and reported it as its last event.
    pub(super) fn assert_violated(&mut self, side: Side, code: SessionError) -> Violation {
        assert_eq!(self.closed(side), Some(code));
        assert!(self.session(side).is_closed());
        match self.events(side).pop() {
            Some(Event::Violated(violation)) => {
                assert_eq!(violation.code, code);
                violation
            }
            other => panic!("the last event is {other:?}"),
        }
    }

    // The scripted peer of `side`.

    pub(super) fn peer<T>(&mut self, of: Side, call: impl FnOnce(&mut View<'_>) -> T) -> T {
        call(&mut View {
            link: &mut self.link,
            side: of.peer(),
        })
    }

    /// Opens a stream from the peer with these messages, and lets them arrive.
    pub(super) fn peer_opens(
        &mut self,
        of: Side,
        direction: Direction,
        messages: &[Message],
    ) -> StreamId {
        let stream = self
            .peer(of, |peer| peer.open(direction))
            .expect("the link has streams");
        self.peer_sends(of, stream, messages);
        stream
    }

    pub(super) fn peer_sends(&mut self, of: Side, stream: StreamId, messages: &[Message]) {
        let mut out = BytesMut::new();
        for message in messages {
            message.encode(draft(), &mut out).expect("the message fits");
        }
        self.peer_writes(of, stream, &out);
    }

    pub(super) fn peer_writes(&mut self, of: Side, stream: StreamId, data: &[u8]) {
        if !data.is_empty() {
            let mut data = Bytes::copy_from_slice(data);
            self.peer(of, |peer| peer.write(stream, &mut data))
                .expect("the link takes it");
        }
        self.run();
    }

    pub(super) fn peer_finishes(&mut self, of: Side, stream: StreamId) {
        self.peer(of, |peer| peer.finish(stream));
        self.run();
    }

    pub(super) fn peer_resets(&mut self, of: Side, stream: StreamId, code: ResetCode) {
        self.peer(of, |peer| peer.reset(stream, code.0));
        self.run();
    }

    pub(super) fn peer_stops(&mut self, of: Side, stream: StreamId, code: ResetCode) {
        self.peer(of, |peer| peer.stop(stream, code.0));
        self.run();
    }

    /// What the session has sent on a stream: its messages, and how it ended so far.
    pub(super) fn peer_reads(&mut self, of: Side, stream: StreamId) -> (Vec<Message>, Read) {
        self.run();
        let mut reader = MessageReader::new(draft(), usize::MAX);
        let mut messages = Vec::new();
        loop {
            match self.peer(of, |peer| peer.read(stream)) {
                Read::Data(data) => {
                    reader.push(data);
                    while let Some(message) = reader.poll().expect("the session speaks properly") {
                        messages.push(message);
                    }
                }
                end @ (Read::Fin | Read::Reset(_) | Read::Blocked) => return (messages, end),
            }
        }
    }

    /// The code of the one REQUEST_ERROR the session has sent on a stream before its FIN.
    pub(super) fn peer_reads_error(&mut self, of: Side, stream: StreamId) -> RequestErrorCode {
        match self.peer_reads(of, stream) {
            (messages, Read::Fin) => match &messages[..] {
                [Message::RequestError(error)] => error.code,
                other => panic!("the session sent {other:?}"),
            },
            (messages, end) => panic!("the session sent {messages:?} and then {end:?}"),
        }
    }
}

pub(super) fn namespace(text: &str) -> Namespace {
    Namespace::new(text.split('/').filter(|field| !field.is_empty())).expect("a valid namespace")
}

pub(super) fn track(name: &str) -> FullTrackName {
    let name = TrackName::new(name).expect("a valid name");
    FullTrackName::new(namespace("a/b"), name).expect("a valid full name")
}

pub(super) fn subscribe(id: u64, name: &str) -> Message {
    let parameters = Parameters::default();
    Message::Subscribe(Subscribe {
        request_id: id,
        track: track(name),
        parameters,
    })
}

pub(super) fn publish(id: u64, name: &str, track_alias: u64) -> Message {
    Message::Publish(Publish {
        request_id: id,
        track: track(name),
        track_alias,
        parameters: Parameters::default(),
        properties: Properties::EMPTY,
    })
}

pub(super) fn update(id: u64) -> Message {
    Message::RequestUpdate(RequestUpdate {
        request_id: id,
        parameters: Parameters::default(),
    })
}

pub(super) fn fetch_ok(end: Location) -> FetchOk {
    FetchOk {
        end_of_track: false,
        end,
        parameters: Parameters::default(),
        properties: Properties::EMPTY,
    }
}

pub(super) fn subscribe_ok(track_alias: u64) -> SubscribeOk {
    let (parameters, properties) = (Parameters::default(), Properties::EMPTY);
    SubscribeOk {
        track_alias,
        parameters,
        properties,
    }
}

pub(super) fn request_error(code: RequestErrorCode) -> RequestError {
    RequestError::new(code, "")
}

pub(super) fn ok() -> RequestOk {
    RequestOk::default()
}

pub(super) fn done() -> PublishDone {
    let code = PublishDoneCode::TRACK_ENDED;
    PublishDone {
        code,
        stream_count: None,
        reason: String::new(),
    }
}

pub(super) fn goaway(request_id: Option<u64>) -> GoAway {
    GoAway {
        request_id,
        ..GoAway::default()
    }
}

/// A mandatory track property, which a subscriber has to understand.
pub(super) fn mandatory() -> Properties {
    Properties::builder().int(0x4000, 1).build()
}

pub(super) fn datagram(track_alias: u64, object: u64) -> ObjectDatagram {
    ObjectDatagram {
        track_alias,
        group: 0,
        object,
        priority: None,
        end_of_group: false,
        properties: Properties::EMPTY,
        status: ObjectStatus::Normal,
        payload: Bytes::from_static(b"payload"),
    }
}

pub(super) fn header(track_alias: u64, group: u64) -> SubgroupHeader {
    SubgroupHeader {
        track_alias,
        group,
        subgroup: SubgroupId::Zero,
        priority: None,
        has_properties: false,
        end_of_group: true,
        first_object: true,
    }
}

pub(super) fn object(id: u64, payload_len: u64) -> ObjectHeader {
    let (properties, status) = (Properties::EMPTY, ObjectStatus::Normal);
    ObjectHeader {
        id,
        properties,
        status,
        payload_len,
    }
}

/// The bytes of a subgroup with one object of five bytes.
pub(super) fn subgroup(track_alias: u64, group: u64) -> Vec<u8> {
    let mut out = BytesMut::new();
    header(track_alias, group).encode(draft(), &mut out);
    object(0, 5).encode_in_subgroup(None, false, draft(), &mut out);
    out.extend_from_slice(b"hello");
    out.to_vec()
}
