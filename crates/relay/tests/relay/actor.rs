//! A scripted client of the relay, which publishes and subscribes on command and records what it gets.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    time::Instant,
};

use bytes::Bytes;
use weir_moqt::{
    data::{ObjectDatagram, ObjectHeader, SubgroupHeader},
    draft::Draft,
    error::RequestErrorCode,
    message::{
        Fetch, GoAway, Publish, PublishDone, Redirect, RequestError, RequestOk, Setup, SubscribeOk,
    },
    name::{Namespace, TrackName},
    parameter::Parameters,
    session::{
        Accepted, CloseReason, Config, Event as SessionEvent, Request, RequestId, Session, Side,
        StreamEnd,
    },
};
use weir_quic::{App, ClientConfig, Connection, Endpoint, Event, Handle, Lost};
use weir_sim::{SERVER_NAME, Sim};
use weir_transport::{Direction, StreamId, Transport as _, WriteError};

use crate::archive::{Archive, Fetched, Reply, Serving};

/// How a client answers a SUBSCRIBE.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Manner {
    /// Accepts it under this alias.
    Accept(u64),
    /// Declines it.
    Decline(RequestErrorCode),
    /// Never answers.
    Ignore,
}

/// What a client is told of a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Came(Namespace),
    Went(Namespace),
    Blocked(Namespace, TrackName),
}

/// A request that the client sent or received, and what became of it.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    pub(crate) answer: Option<Result<Parameters, RequestErrorCode>>,
    pub(crate) answered_at: Option<Instant>,
    pub(crate) ok: Option<SubscribeOk>,
    pub(crate) error: Option<RequestError>,
    pub(crate) updates_answered: usize,
    pub(crate) update_errors: Vec<RequestError>,
    /// The parameters of the peer's updates.
    pub(crate) updates: Vec<Parameters>,
    pub(crate) done: Option<PublishDone>,
    pub(crate) done_at: Option<Instant>,
    pub(crate) closed: Option<CloseReason>,
    /// The GOAWAY of the relay for this request.
    pub(crate) goaway: Option<GoAway>,
    pub(crate) datagrams: Vec<(Instant, ObjectDatagram)>,
    pub(crate) streams: Vec<Arrival>,
    pub(crate) fetched: Fetched,
}

/// A subgroup stream as it arrived.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) stream: StreamId,
    pub(crate) header: SubgroupHeader,
    pub(crate) objects: Vec<ArrivedObject>,
    pub(crate) end: Option<StreamEnd>,
}

/// An object of a subgroup stream as it arrived, possibly incomplete.
#[derive(Debug)]
pub(crate) struct ArrivedObject {
    pub(crate) at: Instant,
    pub(crate) header: ObjectHeader,
    pub(crate) payload: Vec<u8>,
    pub(crate) complete_at: Option<Instant>,
}

/// A scripted client.
pub(crate) struct Actor {
    config: ClientConfig,
    relay: SocketAddr,
    setup: Setup,
    begins_at: Option<Instant>,
    handle: Option<Handle>,
    session: Option<Session>,
    pub(crate) manner: Manner,
    pub(crate) exchanges: BTreeMap<RequestId, Exchange>,
    /// SUBSCRIBE requests received from the relay.
    pub(crate) asked: Vec<(RequestId, weir_moqt::message::Subscribe)>,
    /// Tracks that the relay offered with PUBLISH.
    pub(crate) offered: Vec<(RequestId, Publish)>,
    pub(crate) taste: Result<Parameters, RequestErrorCode>,
    /// Namespaces that appeared and disappeared, without their prefix.
    pub(crate) heard: Vec<(RequestId, Heard)>,
    /// The relay's GOAWAY.
    pub(crate) goaway: Option<GoAway>,
    pub(crate) archive: Archive,
    backlogs: BTreeMap<StreamId, Backlog>,
    /// Streams that the relay stopped, with its code.
    pub(crate) stopped: Vec<(StreamId, u64)>,
    pub(crate) lost: Option<Lost>,
    pub(crate) violation: Option<String>,
}

/// Data that waits to be written to one stream.
#[derive(Default)]
struct Backlog {
    chunks: VecDeque<Bytes>,
    is_last: bool,
}

impl Actor {
    /// Creates a client of a draft that connects as soon as it is started.
    pub(crate) fn new(sim: &Sim, relay: SocketAddr, setup: Setup, draft: Draft) -> Self {
        Self {
            config: sim.client_config(&[draft.alpn()]),
            relay,
            setup,
            begins_at: Some(sim.now()),
            handle: None,
            session: None,
            manner: Manner::Ignore,
            exchanges: BTreeMap::new(),
            asked: Vec::new(),
            offered: Vec::new(),
            taste: Ok(Parameters::default()),
            heard: Vec::new(),
            goaway: None,
            archive: Archive::default(),
            backlogs: BTreeMap::new(),
            stopped: Vec::new(),
            lost: None,
            violation: None,
        }
    }

    /// Connects with another configuration.
    pub(crate) fn with_config(self, config: ClientConfig) -> Self {
        Self { config, ..self }
    }

    /// Returns the draft that was negotiated.
    pub(crate) fn draft(&self) -> Draft {
        let session = self.session.as_ref();
        session.expect("it has a session").draft()
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.session.as_ref().is_some_and(Session::is_ready)
    }

    /// Calls a function with the session and the connection, which must exist, then processes the session's events.
    pub(crate) fn with<T>(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        act: impl FnOnce(&mut Session, &mut Connection<'_>) -> T,
    ) -> T {
        let handle = self.handle.expect("it has connected");
        let mut connection = endpoint.connection(now, handle).expect("it is connected");
        let session = self.session.as_mut().expect("it has a session");
        let result = act(session, &mut connection);
        self.hear(now, endpoint);
        result
    }

    /// Writes to an own stream, at once or when there is room.
    pub(crate) fn write(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        stream: StreamId,
        data: Bytes,
        is_last: bool,
    ) {
        let backlog = self.backlogs.entry(stream).or_default();
        backlog.is_last |= is_last;
        if !data.is_empty() {
            backlog.chunks.push_back(data);
        }
        self.flush(now, endpoint, stream);
    }

    fn flush(&mut self, now: Instant, endpoint: &mut Endpoint, stream: StreamId) {
        let Some(mut connection) = self
            .handle
            .and_then(|handle| endpoint.connection(now, handle))
        else {
            return;
        };
        let Some(backlog) = self.backlogs.get_mut(&stream) else {
            return;
        };
        while let Some(chunk) = backlog.chunks.front_mut() {
            match connection.write(stream, chunk) {
                Ok(()) => drop(backlog.chunks.pop_front()),
                Err(WriteError::Blocked) => return,
                Err(WriteError::Stopped(_) | WriteError::Closed) => {
                    self.backlogs.remove(&stream);
                    return;
                }
            }
        }
        if backlog.is_last {
            connection.finish(stream);
            self.backlogs.remove(&stream);
        }
    }

    /// Processes the session's events.
    fn hear(&mut self, now: Instant, endpoint: &mut Endpoint) {
        while let Some(event) = self.session.as_mut().and_then(Session::poll_event) {
            self.on_session_event(now, endpoint, event);
        }
    }

    fn exchange(&mut self, id: RequestId) -> &mut Exchange {
        self.exchanges.entry(id).or_default()
    }

    fn on_session_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: SessionEvent) {
        match event {
            SessionEvent::Request { id, request } => self.on_request(now, endpoint, id, request),
            SessionEvent::Update { id, parameters, .. } => {
                self.exchange(id).updates.push(parameters);
                self.with(now, endpoint, |session, connection| {
                    session.update_ok(connection, id, RequestOk::default());
                });
            }
            SessionEvent::Accepted { id, ok } => {
                let exchange = self.exchange(id);
                exchange.answered_at = Some(now);
                exchange.answer = Some(Ok(match ok {
                    Accepted::Subscribe(ok) => {
                        let parameters = ok.parameters.clone();
                        exchange.ok = Some(ok);
                        parameters
                    }
                    Accepted::Ok(ok) => ok.parameters,
                    Accepted::Fetch(ok) => {
                        let parameters = ok.parameters.clone();
                        exchange.fetched.ok = Some(ok);
                        parameters
                    }
                }));
            }
            SessionEvent::Updated { id, result } => {
                let exchange = self.exchange(id);
                exchange.updates_answered += 1;
                exchange.update_errors.extend(result.err());
            }
            SessionEvent::Rejected { id, error } => {
                let exchange = self.exchange(id);
                exchange.answered_at = Some(now);
                exchange.answer = Some(Err(error.code));
                exchange.error = Some(error);
            }
            SessionEvent::Done { id, done } => {
                let exchange = self.exchange(id);
                assert!(exchange.done.is_none(), "PUBLISH_DONE comes once");
                exchange.done = Some(done);
                exchange.done_at = Some(now);
            }
            SessionEvent::Closed { id, reason } => self.exchange(id).closed = Some(reason),
            SessionEvent::Datagram { request, datagram } => {
                self.exchange(request).datagrams.push((now, datagram));
            }
            SessionEvent::Violated(violation) => self.violation = Some(violation.to_string()),
            event @ (SessionEvent::Subgroup { .. }
            | SessionEvent::Object { .. }
            | SessionEvent::Payload { .. }
            | SessionEvent::StreamEnd { .. }
            | SessionEvent::Fetched { .. }
            | SessionEvent::FetchObject { .. }) => self.on_data(now, event),
            SessionEvent::Ready { .. } | SessionEvent::StateChanged { .. } => {}
            SessionEvent::Namespace { id, suffix } => self.heard.push((id, Heard::Came(suffix))),
            SessionEvent::NamespaceDone { id, suffix } => {
                self.heard.push((id, Heard::Went(suffix)));
            }
            SessionEvent::PublishBlocked { id, suffix, name } => {
                self.heard.push((id, Heard::Blocked(suffix, name)));
            }
            SessionEvent::GoAway(goaway) => self.goaway = Some(goaway),
            SessionEvent::RequestGoAway { id, goaway } => {
                self.exchange(id).goaway = Some(goaway);
            }
        }
    }

    fn on_request(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        id: RequestId,
        request: Request,
    ) {
        let subscribe = match request {
            Request::Subscribe(subscribe) => subscribe,
            Request::Publish(publish) => return self.on_offer(now, endpoint, id, publish),
            Request::Fetch(fetch) => return self.on_fetch(now, endpoint, id, fetch),
            Request::TrackStatus(_) => return self.on_track_status(now, endpoint, id),
            Request::PublishNamespace(_)
            | Request::SubscribeNamespace(_)
            | Request::SubscribeTracks(_) => panic!("the relay asks for {request:?}"),
        };
        self.asked.push((id, subscribe));
        self.exchange(id);
        let properties = self.archive.properties.clone();
        let manner = self.manner;
        self.with(now, endpoint, |session, connection| match manner {
            Manner::Accept(track_alias) => {
                let ok = SubscribeOk {
                    track_alias,
                    parameters: Parameters::default(),
                    properties,
                };
                session.subscribe_ok(connection, id, ok);
            }
            Manner::Decline(code) => {
                let error = RequestError {
                    code,
                    retry_after: None,
                    reason: "not from me".to_owned(),
                    redirect: (code == RequestErrorCode::REDIRECT).then(Redirect::default),
                };
                session.request_error(connection, id, error);
            }
            Manner::Ignore => {}
        });
    }

    fn on_fetch(&mut self, now: Instant, endpoint: &mut Endpoint, id: RequestId, fetch: Fetch) {
        let reply = self.archive.reply(self.draft(), id, &fetch);
        self.archive.asked.push((id, fetch));
        self.exchange(id);
        let Some(Reply { answer, data }) = reply else {
            return;
        };
        self.with(now, endpoint, |session, connection| match answer {
            Ok(ok) => session.fetch_ok(connection, id, ok),
            Err(error) => session.request_error(connection, id, error),
        });
        let Some((data, is_last)) = data else { return };
        let stream = self.with(now, endpoint, |_, connection| {
            connection.open(Direction::Uni)
        });
        let stream = stream.expect("the relay allows enough streams");
        self.exchange(id).fetched.stream = Some(stream);
        self.write(now, endpoint, stream, data, is_last);
        if is_last && self.archive.serving != Serving::ServeAndStay {
            // The end of the request may overtake the data.
            self.with(now, endpoint, |session, connection| {
                session.finish(connection, id);
            });
        }
    }

    fn on_track_status(&mut self, now: Instant, endpoint: &mut Endpoint, id: RequestId) {
        self.archive.track_statuses.push(id);
        self.exchange(id);
        let Some(answer) = self.archive.answer() else {
            return;
        };
        self.with(now, endpoint, |session, connection| match answer {
            Ok(ok) => session.request_ok(connection, id, ok),
            Err(error) => session.request_error(connection, id, error),
        });
    }

    fn on_offer(&mut self, now: Instant, endpoint: &mut Endpoint, id: RequestId, publish: Publish) {
        self.offered.push((id, publish));
        self.exchange(id);
        let taste = self.taste.clone();
        self.with(now, endpoint, |session, connection| match taste {
            Ok(parameters) => {
                let ok = RequestOk {
                    parameters,
                    ..RequestOk::default()
                };
                session.request_ok(connection, id, ok);
            }
            Err(code) => {
                let error = RequestError {
                    code,
                    retry_after: None,
                    reason: "not for me".to_owned(),
                    redirect: None,
                };
                session.request_error(connection, id, error);
            }
        });
    }

    fn on_data(&mut self, now: Instant, event: SessionEvent) {
        let Some(event) = self.on_fetched(event) else {
            return;
        };
        if let SessionEvent::Subgroup {
            stream,
            request,
            header,
        } = event
        {
            self.exchange(request).streams.push(Arrival {
                stream,
                header,
                objects: Vec::new(),
                end: None,
            });
        } else if let SessionEvent::Object { stream, object } = event {
            self.arrival(stream).objects.push(ArrivedObject {
                at: now,
                header: object,
                payload: Vec::new(),
                complete_at: None,
            });
        } else if let SessionEvent::Payload { stream, data } = event {
            let object = self.arrival(stream).objects.last_mut();
            let object = object.expect("it has begun");
            object.payload.extend(data);
            if object.payload.len() as u64 == object.header.payload_len {
                object.complete_at = Some(now);
            }
        } else if let SessionEvent::StreamEnd { stream, end } = event {
            self.arrival(stream).end = Some(end);
        }
    }

    /// Records the events of a fetch; returns other events.
    fn on_fetched(&mut self, event: SessionEvent) -> Option<SessionEvent> {
        if let SessionEvent::Fetched { stream, request } = event {
            self.exchange(request).fetched.stream = Some(stream);
            return None;
        }
        let (SessionEvent::FetchObject { stream, .. }
        | SessionEvent::Payload { stream, .. }
        | SessionEvent::StreamEnd { stream, .. }) = event
        else {
            return Some(event);
        };
        let mut fetches = self
            .exchanges
            .values_mut()
            .map(|exchange| &mut exchange.fetched);
        let Some(fetched) = fetches.find(|fetched| fetched.stream == Some(stream)) else {
            return Some(event);
        };
        if let SessionEvent::FetchObject { entry, .. } = event {
            fetched.entries.push((entry, Vec::new()));
        } else if let SessionEvent::Payload { data, .. } = event {
            if let Some((_, payload)) = fetched.entries.last_mut() {
                payload.extend(data);
            }
        } else if let SessionEvent::StreamEnd { end, .. } = event {
            fetched.end = Some(end);
        }
        None
    }

    fn arrival(&mut self, stream: StreamId) -> &mut Arrival {
        let mut arrivals = self
            .exchanges
            .values_mut()
            .flat_map(|exchange| exchange.streams.iter_mut().rev());
        let arrival = arrivals.find(|arrival| arrival.stream == stream);
        arrival.expect("the stream has begun")
    }
}

impl Exchange {
    /// Returns the complete objects received on streams, in the order in which the streams began.
    pub(crate) fn objects(&self) -> Vec<(u64, u64, Vec<u8>)> {
        let mut found = Vec::new();
        for arrival in &self.streams {
            for object in &arrival.objects {
                if object.payload.len() as u64 == object.header.payload_len {
                    let place = (arrival.header.group, object.header.id);
                    found.push((place.0, place.1, object.payload.clone()));
                }
            }
        }
        found
    }

    /// Returns the groups and objects received in datagrams, in order.
    pub(crate) fn datagram_places(&self) -> Vec<(u64, u64)> {
        let datagrams = self.datagrams.iter();
        datagrams
            .map(|(_, datagram)| (datagram.group, datagram.object))
            .collect()
    }
}

impl App for Actor {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        match event {
            Event::Connected { handle } => {
                let mut connection = endpoint.connection(now, handle).expect("it is connected");
                let protocol = connection.protocol().unwrap_or_default();
                let draft = Draft::from_alpn(protocol.as_bytes());
                let mut session = Session::new(Config {
                    draft: draft.expect("a draft was negotiated"),
                    side: Side::Client,
                    limits: weir_moqt::limits::Limits::default(),
                    setup: self.setup.clone(),
                });
                session.start(now, &mut connection);
                self.session = Some(session);
            }
            Event::Lost { reason, .. } => self.lost = Some(reason),
            Event::Datagram { data, .. } => {
                let received = self.with(now, endpoint, |session, connection| {
                    session.handle_datagram(now, connection, data)
                });
                if let Some((request, datagram)) = received {
                    self.exchange(request).datagrams.push((now, datagram));
                }
            }
            Event::Opened {
                stream, direction, ..
            } => self.with(now, endpoint, |session, connection| {
                session.handle_opened(now, connection, stream, direction);
            }),
            Event::Readable { stream, .. } => self.with(now, endpoint, |session, connection| {
                session.handle_readable(now, connection, stream);
            }),
            Event::Writable { stream, .. } => {
                let is_sessions = self.with(now, endpoint, |session, connection| {
                    session.handle_writable(now, connection, stream)
                });
                if !is_sessions {
                    self.flush(now, endpoint, stream);
                }
            }
            Event::Stopped { stream, code, .. } => {
                let is_sessions = self.with(now, endpoint, |session, connection| {
                    let is_sessions = session.handle_stopped(now, connection, stream, code);
                    if !is_sessions {
                        connection.reset(stream, code);
                    }
                    is_sessions
                });
                if !is_sessions {
                    self.backlogs.remove(&stream);
                    self.stopped.push((stream, code));
                }
            }
            Event::StreamsAvailable { direction, .. } => {
                self.with(now, endpoint, |session, connection| {
                    session.handle_streams_available(now, connection, direction);
                });
            }
            Event::Finished { .. } => {}
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let session = self.session.as_ref().filter(|_| self.lost.is_none());
        let session = session.and_then(Session::poll_timeout);
        self.begins_at.into_iter().chain(session).min()
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if self.begins_at.take_if(|at| *at <= now).is_some() {
            let handle = endpoint.connect(now, &self.config, self.relay, SERVER_NAME, 0);
            self.handle = Some(handle.expect("a client may connect"));
        }
        if self.session.is_some() && self.lost.is_none() && self.violation.is_none() {
            self.with(now, endpoint, |session, connection| {
                session.handle_timeout(now, connection);
            });
        }
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        endpoint.close_all(now, 0, b"leaving");
        self.session = None;
    }

    fn is_finished(&self) -> bool {
        false
    }
}
