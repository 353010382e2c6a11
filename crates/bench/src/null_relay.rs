//! The null relay: it forwards objects, and does only what MOQT requires of it beside that.
//!
//! The null relay has no cache, no authorization, no fairness limits, no history of objects, and it announces no tracks. It serves
//! to calibrate a load generator: a load that the generator cannot make here, it cannot make against any relay. It is
//! *not* a relay for production. Tests let it misbehave (`Faults`).

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

/// Faults that tests inject; by default none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// MOQT groups, from and to, whose objects are lost for every subscriber.
    pub(crate) lose_groups: Option<(u64, u64)>,
    /// Refuses subscriptions.
    pub(crate) refuse: bool,
    /// MOQT group and object at which streams are reset.
    pub(crate) reset_at: Option<(u64, u64)>,
    /// Drops extension headers.
    pub(crate) drop_properties: bool,
    /// Replaces the first byte of every object by one that no message type has.
    pub(crate) garble: bool,
    /// Changes the last byte of every object in a datagram.
    pub(crate) corrupt: bool,
    /// MOQT groups whose datagrams are sent with another Group ID.
    pub(crate) move_groups: Option<(u64, u64)>,
    /// After each object in a datagram, sends a copy that claims to be of another run.
    pub(crate) echo_another_run: bool,
    /// Replaces the count in COMPLETION of a datagram track: so many objects, each in a group of its own.
    pub(crate) forge_completion: Option<u64>,
}

/// Counts of forwarded objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forwarding {
    /// Streams that publishers opened.
    pub streams: u64,
    /// Copies of streams that were given up because the subscriber's connection accepted neither the stream nor its
    /// bytes.
    pub copies_given_up: u64,
}

/// The null relay: sessions, tracks, and the subscriptions to them.
#[derive(Debug, Default)]
pub struct NullRelay {
    faults: Faults,
    peers: BTreeMap<Handle, Peer>,
    /// The publisher of each namespace.
    namespaces: BTreeMap<Vec<Vec<u8>>, (Namespace, Handle)>,
    numbers: BTreeMap<FullTrackName, usize>,
    tracks: Vec<Track>,
    /// Tracks by the requests that their objects arrive on.
    upstream: BTreeMap<(Handle, RequestId), usize>,
    /// Outgoing streams by the publisher's stream.
    streams: BTreeMap<(Handle, StreamId), Forwarded>,
    /// Data queued for blocked streams.
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
    /// Returns a relay without sessions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a relay with faults.
    #[cfg(test)]
    pub(crate) fn with_faults(faults: Faults) -> Self {
        Self {
            faults,
            ..Self::default()
        }
    }

    /// Returns what was forwarded so far.
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
            | SessionEvent::StateChanged { .. }
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

    /// Returns the number of a track, which is also its alias towards subscribers; `None` if there are too many tracks.
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

    /// Subscribes to every track that has subscribers, no source, and an announced namespace.
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

    /// Accepts the subscribers that wait for a track when its objects start to flow. If the track already has another
    /// source, there are none.
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

    /// Removes a source and returns its track, unless another source has replaced it.
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

    /// Handles a publisher's refusal of a subscription.
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

    /// Handles a request that its peer has ended: a subscription, or a track's source without `PUBLISH_DONE`.
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

    /// Handles a lost session, and the end of what it published.
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
