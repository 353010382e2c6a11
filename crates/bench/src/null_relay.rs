//! The null relay: it forwards, and does nothing else that MOQT does not force on it.
//!
//! It has no cache, no authority, no limits of fairness, no memory of what was sent, and it tells nobody what there is. A
//! load generator is calibrated against it: what it cannot do here, it cannot do against any relay. What it is *not*:
//! a relay to serve anybody with. Tests let it misbehave (`Faults`).

mod forwarding;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Instant;

use weir_client::peer::{DataEvent, Peer};
use weir_client::send_queue::SendQueue;
use weir_client::turn::Turn;
use weir_moqt::error::{PublishDoneCode, RequestErrorCode, ResetCode, SessionError};
use weir_moqt::limits::Limits;
use weir_moqt::message::{PublishDone, RequestError, RequestOk, Setup, SubscribeOk};
use weir_moqt::name::{FullTrackName, Namespace};
use weir_moqt::parameter::Parameters;
use weir_moqt::property::Properties;
use weir_moqt::session::{Accepted, Event as SessionEvent, Request, RequestId};
use weir_moqt::session::{Session, Side, StreamEnd};
use weir_quic::{App, Connection, Endpoint, Event, Handle};
use weir_transport::{StreamId, Transport as _};

use self::forwarding::Forwarded;
use crate::limits::NULL_RELAY_TRACKS_MAX;

/// How the relay misbehaves; by default it does not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// Every object of these MOQT groups is lost on the way to every subscriber.
    pub(crate) lose_groups: Option<(u64, u64)>,
    /// Subscriptions are refused.
    pub(crate) refuse: bool,
    /// Streams of this MOQT group are reset at the object of that ID.
    pub(crate) reset_at: Option<(u64, u64)>,
    /// Extension headers are dropped.
    pub(crate) drop_properties: bool,
    /// The first byte of every object is none that a message begins with.
    pub(crate) garble: bool,
    /// The last byte of every object in a datagram is changed.
    pub(crate) corrupt: bool,
    /// Datagrams of these MOQT groups come under the number of another group.
    pub(crate) move_groups: Option<(u64, u64)>,
    /// Every object in a datagram is followed by one that says that it is of another run.
    pub(crate) echo_another_run: bool,
    /// COMPLETION in a datagram says that so many objects were sent, each in a group of its own.
    pub(crate) forge_completion: Option<u64>,
}

/// What the relay has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forwarding {
    /// Streams that publishers opened.
    pub streams: u64,
    /// Copies of streams that were given up, since a subscriber took neither the stream nor its bytes.
    pub copies_given_up: u64,
}

/// Sessions, tracks and who wants them.
#[derive(Debug, Default)]
pub struct NullRelay {
    faults: Faults,
    peers: BTreeMap<Handle, Peer>,
    /// Who publishes what is under a namespace.
    namespaces: BTreeMap<Vec<Vec<u8>>, (Namespace, Handle)>,
    numbers: BTreeMap<FullTrackName, usize>,
    tracks: Vec<Track>,
    /// Tracks by the requests on which their objects come.
    upstream: BTreeMap<(Handle, RequestId), usize>,
    /// Outgoing streams by the publisher's stream.
    streams: BTreeMap<(Handle, StreamId), Forwarded>,
    /// What waits before streams that are blocked.
    backlogs: BTreeMap<(Handle, StreamId), SendQueue>,
    done: Forwarding,
    is_closed: bool,
}

#[derive(Debug)]
struct Track {
    name: FullTrackName,
    /// The relay's SUBSCRIBE, or the publisher's PUBLISH.
    source: Option<(Handle, RequestId)>,
    is_flowing: bool,
    subscribers: Vec<(Handle, RequestId)>,
}

impl NullRelay {
    /// A relay without a session.
    pub fn new() -> Self {
        Self::default()
    }

    /// A relay that misbehaves.
    #[cfg(test)]
    pub(crate) fn with_faults(faults: Faults) -> Self {
        Self {
            faults,
            ..Self::default()
        }
    }

    /// What it has done so far.
    pub fn forwarding(&self) -> Forwarding {
        self.done
    }

    fn act<R>(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        action: impl FnOnce(&mut Session, &mut Connection<'_>) -> R,
    ) -> Option<R> {
        let (session, mut connection) = self.peers.get_mut(&handle)?.open(turn)?;
        Some(action(session, &mut connection))
    }

    fn on_connected(&mut self, turn: &mut Turn<'_>, handle: Handle) {
        let now = turn.now;
        let Some(mut connection) = turn.connection(handle) else {
            return;
        };
        let setup = Setup {
            implementation: Some("null relay".to_owned()),
            ..Setup::default()
        };
        let limits = Limits::default();
        if let Some(peer) = Peer::start(now, &mut connection, Side::Server, setup, limits) {
            self.peers.insert(handle, peer);
            self.drain(turn, handle);
        }
    }

    fn drain(&mut self, turn: &mut Turn<'_>, handle: Handle) {
        while let Some(event) = self.peers.get_mut(&handle).and_then(Peer::poll_event) {
            self.on_session_event(turn, handle, event);
        }
    }

    fn on_session_event(&mut self, turn: &mut Turn<'_>, from: Handle, event: SessionEvent) {
        match event {
            SessionEvent::Request { id, request } => {
                self.on_request(turn, from, (id, request));
            }
            SessionEvent::Accepted {
                id,
                ok: Accepted::Subscribe(_),
            } => self.on_flowing(turn, (from, id)),
            SessionEvent::Done { id, done } => self.on_done(turn, (from, id), &done),
            SessionEvent::Rejected { id, error } => {
                self.on_refused(turn, (from, id), &error);
            }
            SessionEvent::Closed { id, .. } => self.on_closed(turn, (from, id)),
            SessionEvent::Subgroup {
                stream,
                request,
                header,
            } => self.on_subgroup(turn, (from, stream), (request, header)),
            SessionEvent::Object { stream, object } => {
                self.on_object(turn, (from, stream), object);
            }
            SessionEvent::Payload { stream, data } => {
                self.write(turn, (from, stream), &data);
            }
            SessionEvent::StreamEnd { stream, end } => {
                self.on_stream_end(turn, (from, stream), end);
            }
            SessionEvent::Datagram { request, datagram } => {
                self.on_datagram(turn, (from, request), datagram);
            }
            SessionEvent::Update { id, .. } => {
                let ok = RequestOk::default();
                self.act(turn, from, |session, connection| {
                    session.update_ok(connection, id, ok);
                });
            }
            SessionEvent::Violated(violation) => {
                if let Some(mut connection) = turn.connection(from) {
                    connection.close(violation.code.0, b"a broken protocol");
                }
            }
            SessionEvent::Ready { .. }
            | SessionEvent::Accepted { .. }
            | SessionEvent::Updated { .. }
            | SessionEvent::Namespace { .. }
            | SessionEvent::NamespaceDone { .. }
            | SessionEvent::PublishBlocked { .. }
            | SessionEvent::GoAway(_)
            | SessionEvent::RequestGoAway { .. }
            | SessionEvent::Fetched { .. }
            | SessionEvent::FetchObject { .. } => {}
        }
    }

    fn on_request(
        &mut self,
        turn: &mut Turn<'_>,
        from: Handle,
        (id, request): (RequestId, Request),
    ) {
        match request {
            Request::PublishNamespace(offer) => {
                let fields = offer.namespace.fields().map(<[u8]>::to_vec).collect();
                if self.namespaces.len() < NULL_RELAY_TRACKS_MAX {
                    self.namespaces.insert(fields, (offer.namespace, from));
                }
                self.act(turn, from, |session, connection| {
                    session.request_ok(connection, id, RequestOk::default());
                });
                self.ask_for_wanted(turn);
            }
            Request::Publish(publish) => {
                let Some(number) = self.number_of(publish.track) else {
                    return self.refuse(turn, (from, id), "too many tracks");
                };
                self.act(turn, from, |session, connection| {
                    session.request_ok(connection, id, RequestOk::default());
                });
                self.upstream.insert((from, id), number);
                self.tracks[number].source = Some((from, id));
                self.on_flowing(turn, (from, id));
            }
            Request::Subscribe(_) if self.faults.refuse => {
                self.refuse(turn, (from, id), "not you");
            }
            Request::Subscribe(subscribe) => {
                let Some(number) = self.number_of(subscribe.track) else {
                    return self.refuse(turn, (from, id), "too many tracks");
                };
                let track = &mut self.tracks[number];
                track.subscribers.push((from, id));
                if track.is_flowing {
                    self.accept(turn, (from, id), number);
                } else if track.source.is_none() {
                    self.ask_for_wanted(turn);
                }
            }
            Request::Fetch(_)
            | Request::TrackStatus(_)
            | Request::SubscribeNamespace(_)
            | Request::SubscribeTracks(_) => {
                self.refuse(turn, (from, id), "the null relay only forwards");
            }
        }
    }

    /// The number of a track, which is its alias towards subscribers; none if there are too many.
    fn number_of(&mut self, name: FullTrackName) -> Option<usize> {
        if let Some(number) = self.numbers.get(&name) {
            return Some(*number);
        }
        let number = self.tracks.len();
        if number >= NULL_RELAY_TRACKS_MAX {
            return None;
        }
        self.numbers.insert(name.clone(), number);
        self.tracks.push(Track {
            name,
            source: None,
            is_flowing: false,
            subscribers: Vec::new(),
        });
        Some(number)
    }

    fn refuse(&mut self, turn: &mut Turn<'_>, (to, id): (Handle, RequestId), reason: &str) {
        let error = RequestError::new(RequestErrorCode::UNAUTHORIZED, reason);
        self.act(turn, to, |session, connection| {
            session.request_error(connection, id, error);
        });
    }

    /// Subscribes to every track that somebody wants, that nobody sends yet, and whose namespace was announced.
    fn ask_for_wanted(&mut self, turn: &mut Turn<'_>) {
        let wanted: Vec<usize> = (0..self.tracks.len())
            .filter(|number| {
                let track = &self.tracks[*number];
                track.source.is_none() && !track.subscribers.is_empty()
            })
            .collect();
        for number in wanted {
            let name = self.tracks[number].name.clone();
            let mut fields: Vec<Vec<u8>> = name.namespace.fields().map(<[u8]>::to_vec).collect();
            let publisher = loop {
                if let Some((_, publisher)) = self.namespaces.get(&fields) {
                    break Some(*publisher);
                }
                if fields.pop().is_none() {
                    break None;
                }
            };
            let Some(publisher) = publisher else { continue };
            let asked = self.act(turn, publisher, |session, connection| {
                session.subscribe(connection, name, Parameters::default())
            });
            if let Some(Ok(id)) = asked {
                self.upstream.insert((publisher, id), number);
                self.tracks[number].source = Some((publisher, id));
            }
        }
    }

    /// Objects of a track come from now on: whoever waits for it is accepted. Nobody does if they came before, from another
    /// publisher or by another request.
    fn on_flowing(&mut self, turn: &mut Turn<'_>, source: (Handle, RequestId)) {
        let Some(number) = self.upstream.get(&source).copied() else {
            return;
        };
        if std::mem::replace(&mut self.tracks[number].is_flowing, true) {
            return;
        }
        for subscriber in self.tracks[number].subscribers.clone() {
            self.accept(turn, subscriber, number);
        }
    }

    fn accept(&mut self, turn: &mut Turn<'_>, (to, id): (Handle, RequestId), number: usize) {
        let ok = SubscribeOk {
            track_alias: number as u64,
            parameters: Parameters::default(),
            properties: Properties::EMPTY,
        };
        self.act(turn, to, |session, connection| {
            session.subscribe_ok(connection, id, ok);
        });
    }

    /// Forgets a source; returns its track, unless another publisher, or another request, took its place.
    fn end_source(&mut self, source: (Handle, RequestId)) -> Option<&mut Track> {
        let track = &mut self.tracks[self.upstream.remove(&source)?];
        track.source.take_if(|one| *one == source)?;
        Some(track)
    }

    fn on_done(&mut self, turn: &mut Turn<'_>, source: (Handle, RequestId), done: &PublishDone) {
        let Some(track) = self.end_source(source) else {
            return;
        };
        if !std::mem::take(&mut track.is_flowing) {
            return;
        }
        for (handle, request) in std::mem::take(&mut track.subscribers) {
            self.act(turn, handle, |session, connection| {
                session.publish_done(connection, request, done.clone());
            });
        }
    }

    /// The publisher does not want to send the track.
    fn on_refused(
        &mut self,
        turn: &mut Turn<'_>,
        source: (Handle, RequestId),
        error: &RequestError,
    ) {
        let Some(track) = self.end_source(source) else {
            return;
        };
        for subscriber in std::mem::take(&mut track.subscribers) {
            self.refuse(turn, subscriber, &error.reason);
        }
    }

    /// A request is over that its peer has ended: a subscription, or the source of a track without `PUBLISH_DONE`.
    fn on_closed(&mut self, turn: &mut Turn<'_>, request: (Handle, RequestId)) {
        for track in &mut self.tracks {
            track.subscribers.retain(|one| *one != request);
        }
        let done = PublishDone {
            code: PublishDoneCode::TRACK_ENDED,
            stream_count: None,
            reason: "the publisher ended it".to_owned(),
        };
        self.on_done(turn, request, &done);
    }

    /// A peer is gone, and with it what it published.
    fn on_lost(&mut self, turn: &mut Turn<'_>, handle: Handle) {
        self.peers.remove(&handle);
        self.namespaces
            .retain(|_, (_, publisher)| *publisher != handle);
        self.backlogs.retain(|(one, _), _| *one != handle);
        for track in &mut self.tracks {
            track.subscribers.retain(|(one, _)| *one != handle);
        }
        let published = (handle, RequestId(0))..=(handle, RequestId(u64::MAX));
        let sources: Vec<_> = self
            .upstream
            .range(published)
            .map(|(key, _)| *key)
            .collect();
        for source in sources {
            let done = PublishDone {
                code: PublishDoneCode::TRACK_ENDED,
                stream_count: None,
                reason: "the publisher is gone".to_owned(),
            };
            self.on_done(turn, source, &done);
        }
        let streams = (handle, StreamId(0))..=(handle, StreamId(u64::MAX));
        let streams: Vec<_> = self.streams.range(streams).map(|(key, _)| *key).collect();
        for stream in streams {
            let end = StreamEnd::Reset(ResetCode::CANCELLED);
            self.on_stream_end(turn, stream, end);
        }
    }
}

impl App for NullRelay {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        let turn = &mut Turn { now, endpoint };
        let handle = event.handle();
        if let Event::Lost { .. } = event {
            return self.on_lost(turn, handle);
        }
        if let Event::Connected { .. } = event {
            return self.on_connected(turn, handle);
        }
        let peer = self.peers.get_mut(&handle);
        match peer.and_then(|peer| peer.handle_event(turn, event)) {
            Some(DataEvent::Writable(stream)) => self.on_writable(turn, (handle, stream)),
            Some(DataEvent::Datagram(request, datagram)) => {
                self.on_datagram(turn, (handle, request), datagram);
            }
            Some(
                DataEvent::Stopped(..) | DataEvent::Acknowledged(_) | DataEvent::StreamsAvailable,
            )
            | None => {}
        }
        self.drain(turn, handle);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _now: Instant, _endpoint: &mut Endpoint) {}

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        endpoint.close_all(now, SessionError::NO_ERROR.0, b"the null relay goes");
        self.peers.clear();
        self.is_closed = true;
    }

    fn is_finished(&self) -> bool {
        self.is_closed
    }
}
