//! A relay of the simplest kind: it forwards one publisher's tracks to everybody who subscribes.

use std::collections::BTreeMap;
use std::time::Instant;

use bytes::BytesMut;
use weir_moqt::data::{ObjectDatagram, SubgroupHeader};
use weir_moqt::draft::Draft;
use weir_moqt::error::RequestErrorCode;
use weir_moqt::limits::Limits;
use weir_moqt::message::{PublishDone, RequestError, RequestOk, Setup, SubscribeOk};
use weir_moqt::name::FullTrackName;
use weir_moqt::parameter::Parameters;
use weir_moqt::session::{Accepted, Config, Event as SessionEvent, Request, RequestId};
use weir_moqt::session::{Session, Side, StreamEnd};
use weir_moqt::transport::{Direction, StreamId, Transport as _};
use weir_quic::{App, Endpoint, Event, Handle};

/// How the relay misbehaves.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    /// Every object of these MOQT groups is lost on the way to every subscriber.
    pub(super) lose_groups: Option<(u64, u64)>,
    /// Subscriptions are refused.
    pub(super) refuse: bool,
    /// Streams of this MOQT group are reset at the object of that ID.
    pub(super) reset_at: Option<(u64, u64)>,
    /// Extension headers are dropped.
    pub(super) drop_properties: bool,
    /// The first byte of every object is none that a message begins with.
    pub(super) garble: bool,
    /// The first byte behind the tag of every object is changed.
    pub(super) corrupt: bool,
}

/// Sessions, tracks and who wants them.
pub(super) struct TestRelay {
    pub(super) faults: Faults,
    peers: BTreeMap<Handle, Session>,
    tracks: BTreeMap<FullTrackName, Track>,
    publisher: Option<Handle>,
    /// Outgoing streams by the publisher's stream.
    streams: BTreeMap<StreamId, Forwarded>,
    /// Streams that the publisher opened.
    pub(super) streams_forwarded: u64,
}

#[derive(Default)]
struct Track {
    /// The relay's SUBSCRIBE, or the publisher's PUBLISH.
    upstream: Option<RequestId>,
    accepted: bool,
    alias: u64,
    subscribers: Vec<(Handle, RequestId)>,
}

struct Forwarded {
    header: SubgroupHeader,
    previous: Option<u64>,
    copies: Vec<(Handle, StreamId)>,
}

impl TestRelay {
    pub(super) fn new(faults: Faults) -> Self {
        Self {
            faults,
            peers: BTreeMap::new(),
            tracks: BTreeMap::new(),
            publisher: None,
            streams: BTreeMap::new(),
            streams_forwarded: 0,
        }
    }

    fn act(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        action: impl FnOnce(&mut Session, &mut weir_quic::Connection<'_>),
    ) {
        if let Some(session) = self.peers.get_mut(&handle)
            && let Some(mut connection) = endpoint.connection(now, handle)
        {
            action(session, &mut connection);
        }
    }

    fn drain(&mut self, now: Instant, endpoint: &mut Endpoint, handle: Handle) {
        while let Some(event) = self.peers.get_mut(&handle).and_then(Session::poll_event) {
            self.on_session_event(now, endpoint, handle, event);
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "no test makes the others happen"
    )]
    fn on_session_event(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        from: Handle,
        event: SessionEvent,
    ) {
        match event {
            SessionEvent::Request { id, request } => {
                self.on_request(now, endpoint, from, id, request);
            }
            SessionEvent::Accepted {
                id,
                ok: Accepted::Subscribe(ok),
            } => {
                let track = self
                    .tracks
                    .values_mut()
                    .find(|track| track.upstream == Some(id));
                let track = track.expect("the relay subscribed to it");
                (track.accepted, track.alias) = (true, ok.track_alias);
                let (alias, waiting) = (track.alias, track.subscribers.clone());
                for (handle, request) in waiting {
                    self.accept(now, endpoint, handle, request, alias);
                }
            }
            SessionEvent::Done { id, done } => self.on_done(now, endpoint, id, &done),
            SessionEvent::Subgroup {
                stream,
                request,
                header,
            } => {
                self.on_subgroup(now, endpoint, stream, request, header);
            }
            SessionEvent::Object { stream, mut object } => {
                if self.faults.drop_properties {
                    object.properties = weir_moqt::property::Properties::EMPTY;
                }
                let reset = self.faults.reset_at;
                let forwarded = self.streams.get_mut(&stream).expect("it has begun");
                if reset == Some((forwarded.header.group, object.id)) {
                    for (handle, copy) in std::mem::take(&mut forwarded.copies) {
                        endpoint.connection(now, handle).unwrap().reset(copy, 2);
                    }
                }
                let mut bytes = BytesMut::new();
                let has_properties = forwarded.header.has_properties;
                object.encode_in_subgroup(
                    forwarded.previous,
                    has_properties,
                    Draft::Draft18,
                    &mut bytes,
                );
                forwarded.previous = Some(object.id);
                self.write(now, endpoint, stream, &bytes.freeze());
            }
            SessionEvent::Payload { stream, data } => self.write(now, endpoint, stream, &data),
            SessionEvent::StreamEnd { stream, end } => {
                let forwarded = self.streams.remove(&stream).expect("it has begun");
                for (handle, copy) in forwarded.copies {
                    let mut connection = endpoint.connection(now, handle).unwrap();
                    match end {
                        StreamEnd::Fin => connection.finish(copy),
                        StreamEnd::Reset(code) => connection.reset(copy, code.0),
                    }
                }
            }
            SessionEvent::Datagram { request, datagram } => {
                self.on_datagram(now, endpoint, request, &datagram);
            }
            SessionEvent::Violated(violation) => panic!("{violation:?}"),
            _ => {}
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "no client asks for the others"
    )]
    fn on_request(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        from: Handle,
        id: RequestId,
        request: Request,
    ) {
        match request {
            Request::PublishNamespace(_) => {
                self.publisher = Some(from);
                self.act(now, endpoint, from, |session, connection| {
                    session.request_ok(connection, id, RequestOk::default());
                });
            }
            Request::Publish(publish) => {
                self.publisher = Some(from);
                let track = self.tracks.entry(publish.track).or_default();
                (track.upstream, track.accepted) = (Some(id), true);
                track.alias = publish.track_alias;
                self.act(now, endpoint, from, |session, connection| {
                    session.request_ok(connection, id, RequestOk::default());
                });
            }
            Request::Subscribe(_) if self.faults.refuse => {
                self.act(now, endpoint, from, |session, connection| {
                    let error = RequestError {
                        code: RequestErrorCode::UNAUTHORIZED,
                        retry_after: None,
                        reason: "not you".to_owned(),
                        redirect: None,
                    };
                    session.request_error(connection, id, error);
                });
            }
            Request::Subscribe(subscribe) => {
                let track = self.tracks.entry(subscribe.track.clone()).or_default();
                track.subscribers.push((from, id));
                let (accepted, alias) = (track.accepted, track.alias);
                if accepted {
                    self.accept(now, endpoint, from, id, alias);
                } else if track.upstream.is_none() {
                    self.ask_publisher(now, endpoint, subscribe.track);
                }
            }
            other => panic!("not expected: {other:?}"),
        }
    }

    fn ask_publisher(&mut self, now: Instant, endpoint: &mut Endpoint, name: FullTrackName) {
        let publisher = self.publisher.expect("the publisher was first");
        let mut upstream = None;
        let wanted = name.clone();
        self.act(now, endpoint, publisher, |session, connection| {
            upstream = session
                .subscribe(connection, wanted, Parameters::default())
                .ok();
        });
        self.tracks.entry(name).or_default().upstream = upstream;
    }

    fn accept(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        to: Handle,
        request: RequestId,
        track_alias: u64,
    ) {
        self.act(now, endpoint, to, |session, connection| {
            let ok = SubscribeOk {
                track_alias,
                parameters: Parameters::default(),
                properties: weir_moqt::property::Properties::EMPTY,
            };
            session.subscribe_ok(connection, request, ok);
        });
    }

    fn on_done(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        upstream: RequestId,
        done: &PublishDone,
    ) {
        let track = self
            .tracks
            .values_mut()
            .find(|track| track.upstream == Some(upstream));
        for (handle, request) in std::mem::take(&mut track.unwrap().subscribers) {
            self.act(now, endpoint, handle, |session, connection| {
                session.publish_done(connection, request, done.clone());
            });
        }
    }

    fn subscribers(&self, upstream: RequestId) -> Vec<(Handle, RequestId)> {
        let track = self
            .tracks
            .values()
            .find(|track| track.upstream == Some(upstream));
        track
            .expect("the relay subscribed to it")
            .subscribers
            .clone()
    }

    fn loses(&self, group: u64) -> bool {
        self.faults
            .lose_groups
            .is_some_and(|(from, to)| (from..=to).contains(&group))
    }

    fn on_datagram(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        upstream: RequestId,
        datagram: &ObjectDatagram,
    ) {
        if self.loses(datagram.group) {
            return;
        }
        let mut bytes = BytesMut::new();
        let mut datagram = datagram.clone();
        if self.faults.drop_properties {
            datagram.properties = weir_moqt::property::Properties::EMPTY;
        }
        datagram.encode(Draft::Draft18, &mut bytes);
        if self.faults.corrupt && datagram.payload.len() > 61 {
            let behind_tag = bytes.len() - datagram.payload.len() + 61;
            bytes[behind_tag] ^= 1;
        }
        if self.faults.garble {
            let first = bytes.len() - datagram.payload.len();
            bytes[first] = 0x99;
        }
        let bytes = bytes.freeze();
        for (handle, _) in self.subscribers(upstream) {
            if let Some(mut connection) = endpoint.connection(now, handle) {
                connection
                    .send_datagram(bytes.clone(), None)
                    .expect("it fits");
            }
        }
    }

    fn on_subgroup(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        stream: StreamId,
        upstream: RequestId,
        header: SubgroupHeader,
    ) {
        self.streams_forwarded += 1;
        let mut copies = Vec::new();
        if !self.loses(header.group) {
            for (handle, _) in self.subscribers(upstream) {
                if let Some(mut connection) = endpoint.connection(now, handle) {
                    let copy = connection
                        .open(Direction::Uni)
                        .expect("the limit is not reached");
                    copies.push((handle, copy));
                }
            }
        }
        self.streams.insert(
            stream,
            Forwarded {
                header,
                previous: None,
                copies,
            },
        );
        let mut bytes = BytesMut::new();
        header.encode(Draft::Draft18, &mut bytes);
        self.write(now, endpoint, stream, &bytes.freeze());
    }

    fn write(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        stream: StreamId,
        bytes: &bytes::Bytes,
    ) {
        for (handle, copy) in &self.streams[&stream].copies {
            if let Some(mut connection) = endpoint.connection(now, *handle) {
                connection
                    .write(*copy, &mut bytes.clone())
                    .expect("there is room");
            }
        }
    }
}

impl App for TestRelay {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        let handle = crate::handles::handle_of(&event);
        if let Event::Connected { .. } = event {
            let config = Config {
                draft: Draft::Draft18,
                side: Side::Server,
                limits: Limits::default(),
                setup: Setup {
                    implementation: Some("test relay".to_owned()),
                    ..Setup::default()
                },
            };
            self.peers.insert(handle, Session::new(config));
        }
        let mut arrived = None;
        self.act(now, endpoint, handle, |session, connection| match event {
            Event::Connected { .. } => session.start(now, connection),
            Event::Opened {
                stream, direction, ..
            } => {
                session.handle_opened(now, connection, stream, direction);
            }
            Event::Readable { stream, .. } => session.handle_readable(now, connection, stream),
            Event::Writable { stream, .. } => {
                session.handle_writable(now, connection, stream);
            }
            Event::Stopped { stream, code, .. } => {
                session.handle_stopped(now, connection, stream, code);
            }
            Event::StreamsAvailable { direction, .. } => {
                session.handle_streams_available(now, connection, direction);
            }
            Event::Datagram { data, .. } => {
                arrived = session.handle_datagram(now, connection, data);
            }
            Event::Lost { .. } | Event::Finished { .. } => {}
        });
        if let Some((request, datagram)) = arrived {
            self.on_datagram(now, endpoint, request, &datagram);
        }
        self.drain(now, endpoint, handle);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _now: Instant, _endpoint: &mut Endpoint) {}

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        endpoint.close_all(now, 0, b"dying");
        self.peers.clear();
    }

    fn is_finished(&self) -> bool {
        false
    }
}
