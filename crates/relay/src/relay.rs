//! The relay as a role: what happens on connections and sessions, and who deals with it.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use weir_moqt::{
    error::{RequestErrorCode, SessionError},
    message::{RequestError, RequestOk, Setup},
    session::{self, Accepted, CloseReason, Request, RequestId, Session, StreamEnd},
};
use weir_quic::{App, Connection, Endpoint, Event, Handle};
use weir_transport::{Direction, StreamId};

use crate::{
    Authority, Config, Counters, Gauges, Open, Shedder,
    cache::Ledger,
    draining::Stage,
    feeder::Feeder,
    fetch::{Fetch, FetchId},
    incoming::CUT,
    namespaces::{Announcements, Interests},
    neighbours::Neighbours,
    peer::Peers,
    standing::Inquiry,
    subgroup::{Subgroup, SubgroupId},
    timers::{Timer, Timers},
    tracks::{TrackId, Tracks},
};

/// A MOQT relay.
pub struct Relay {
    pub(crate) config: Config,
    pub(crate) peers: Peers,
    pub(crate) tracks: Tracks,
    /// Announced namespaces.
    pub(crate) namespaces: Announcements,
    /// Prefixes of which sessions want to know the namespaces, and those of which they want the tracks.
    pub(crate) namespace_interests: Interests,
    pub(crate) track_interests: Interests,
    pub(crate) timers: Timers,
    pub(crate) ledger: Ledger,
    /// What peers fetch.
    pub(crate) fetches: BTreeMap<FetchId, Box<Fetch>>,
    /// What the relay fetches.
    pub(crate) feeders: BTreeMap<FetchId, Feeder>,
    /// How tracks stand, asked of publishers.
    pub(crate) inquiries: BTreeMap<(Handle, RequestId), Inquiry>,
    /// Sessions that may have something to say though nothing came.
    pub(crate) restless: Vec<Handle>,
    /// Subgroups that grew in this turn.
    pub(crate) grown: Vec<(TrackId, SubgroupId)>,
    /// Sessions that closed their connection while another one was dealt with.
    fallen: Vec<Handle>,
    pub(crate) counters: Counters,
    /// Of the sessions that are gone.
    pub(crate) session_counters: session::Counters,
    pub(crate) authority: Arc<dyn Authority>,
    pub(crate) shedder: Shedder,
    pub(crate) stage: Stage,
    pub(crate) neighbours: Neighbours,
}

impl Relay {
    /// A relay without sessions, which is open to everybody.
    pub fn new(config: Config) -> Self {
        Self::with_authority(config, Arc::new(Open))
    }

    /// A relay without sessions, in which `authority` decides who may do what.
    pub fn with_authority(config: Config, authority: Arc<dyn Authority>) -> Self {
        Self {
            shedder: Shedder::new(config.load.clone()),
            config,
            authority,
            peers: Peers::default(),
            tracks: Tracks::default(),
            namespaces: Announcements::default(),
            namespace_interests: Interests::default(),
            track_interests: Interests::default(),
            timers: Timers::default(),
            ledger: Ledger::default(),
            fetches: BTreeMap::new(),
            feeders: BTreeMap::new(),
            inquiries: BTreeMap::new(),
            restless: Vec::new(),
            grown: Vec::new(),
            fallen: Vec::new(),
            counters: Counters::default(),
            session_counters: session::Counters::default(),
            stage: Stage::default(),
            neighbours: Neighbours::default(),
        }
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// What is held now. Looks at every track.
    pub fn gauges(&self) -> Gauges {
        let mut gauges = Gauges {
            sessions: self.peers.len() as u64,
            lag_bytes: self.peers.lag_bytes(),
            tracks: self.tracks.len() as u64,
            namespaces: self.namespaces_here(),
            prefixes: (self.namespace_interests.len() + self.track_interests.len()) as u64,
            tracks_resting: self.tracks.resting_len() as u64,
            fetches: self.fetches.len() as u64,
            fetches_upstream: self.feeders.len() as u64,
            cache_objects: self.ledger.objects(),
            cache_bytes: self.ledger.bytes(),
            ..Gauges::default()
        };
        for track in self.tracks.iter() {
            let crossings = track.neighbours_len();
            gauges.crossings += crossings as u64;
            gauges.subscriptions += (track.subscribers.len() - crossings) as u64;
            let waiting = track.waiting.iter().filter(|waiting| !waiting.is_neighbour);
            gauges.waiting += waiting.count() as u64;
            gauges.subgroups += track.subgroups.len() as u64;
            gauges.log_bytes += track.subgroups.iter().map(Subgroup::held).sum::<u64>();
        }
        gauges
    }

    /// Does something with a session and its connection, if both are still there.
    pub(crate) fn with_session<T>(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        act: impl FnOnce(&mut Session, &mut Connection<'_>) -> T,
    ) -> Option<T> {
        let peer = self.peers.get(handle)?;
        let mut connection = endpoint.connection(now, handle)?;
        let result = act(&mut peer.session, &mut connection);
        if peer.session.is_closed() {
            self.fallen.push(handle);
        }
        Some(result)
    }

    fn on_lost(&mut self, now: Instant, endpoint: &mut Endpoint, handle: Handle) {
        let Some(mut peer) = self.peers.remove(handle) else {
            return;
        };
        if peer.is_neighbour {
            self.forget_neighbour(handle);
        } else {
            self.session_counters = self.session_counters.plus(*peer.session.counters());
        }
        if let Some(at) = peer.timer {
            self.timers.cancel(at, Timer::Session(handle));
        }
        if let Some(at) = peer.expiry_timer {
            self.timers.cancel(at, Timer::Expiry(handle));
        }
        if let Some(at) = peer.deliveries.disarm() {
            self.timers.cancel(at, Timer::Delivery(handle));
        }
        for inbound in peer.inbound.values() {
            let _sound = self.end_stream(now, handle, inbound, CUT);
        }
        for (request, part) in peer.requests {
            self.part_gone(now, endpoint, handle, request, part);
        }
        self.publish_grown(now, endpoint);
    }

    /// Ends a session from here.
    pub(crate) fn close_session(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        code: SessionError,
        reason: &str,
    ) {
        self.with_session(now, endpoint, handle, |session, connection| {
            session.close(connection, code, reason);
        });
        self.on_lost(now, endpoint, handle);
    }

    /// Deals with all that a session has to say, sends on what came with it, and keeps its timer.
    pub(crate) fn settle(&mut self, now: Instant, endpoint: &mut Endpoint, handle: Handle) {
        while let Some(event) = self
            .peers
            .get(handle)
            .and_then(|peer| peer.session.poll_event())
        {
            self.on_session_event(now, endpoint, handle, event);
        }
        self.note_early_resets(now, endpoint, handle);
        self.publish_grown(now, endpoint);
        let Some(peer) = self.peers.get(handle) else {
            return;
        };
        if let Some(at) = peer.session.poll_timeout()
            && peer.timer.is_none_or(|timer| at < timer)
        {
            if let Some(later) = peer.timer.replace(at) {
                self.timers.cancel(later, Timer::Session(handle));
            }
            self.timers.set(at, Timer::Session(handle));
        }
    }

    fn on_session_event(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        event: session::Event,
    ) {
        use session::Event as E;
        match event {
            E::Ready { peer } => self.on_ready(now, endpoint, handle, &peer),
            E::Request { id, request } => self.on_request(now, endpoint, handle, id, request),
            E::Update { id, parameters, .. } => {
                self.on_update_asked(now, endpoint, handle, id, &parameters);
            }
            E::Accepted {
                id,
                ok: Accepted::Subscribe(ok),
            } => {
                self.on_source_accepted(now, endpoint, handle, id, &ok);
            }
            E::Accepted {
                id,
                ok: Accepted::Ok(ok),
            } => {
                self.on_inquiry_answered(now, endpoint, (handle, id), &ok);
                self.on_offer_accepted(now, endpoint, handle, id, &ok);
            }
            E::Accepted {
                id,
                ok: Accepted::Fetch(ok),
            } => self.on_feeder_granted(now, endpoint, (handle, id), &ok),
            E::Rejected { id, error } => self.on_rejected(now, endpoint, handle, id, &error),
            E::Closed { id, reason } if self.feeders.contains_key(&(handle, id)) => {
                let is_clean = reason == CloseReason::Fin;
                self.on_feeder_closed(now, endpoint, (handle, id), is_clean);
            }
            E::Fetched { stream, request } => {
                self.on_feeder_stream(now, endpoint, (handle, request), stream);
            }
            E::FetchObject { stream, entry } => {
                self.on_feeder_entry(now, endpoint, handle, stream, entry);
            }
            E::Done { id, done } => self.on_source_done(now, endpoint, handle, id, done),
            E::Closed { id, reason } => {
                self.on_closed(now, endpoint, handle, id);
                if reason != CloseReason::Fin {
                    self.note_reset(now, endpoint, handle);
                }
            }
            E::Subgroup {
                stream,
                request,
                header,
            } => {
                self.on_subgroup(now, endpoint, handle, stream, request, header);
            }
            E::Object { stream, object } => self.on_object(now, endpoint, handle, stream, object),
            E::Payload { stream, data } => {
                if !self.on_payload(now, endpoint, handle, stream, &data) {
                    self.on_feeder_payload(now, endpoint, handle, stream, &data);
                }
            }
            E::StreamEnd { stream, end } => {
                self.on_stream_end(now, endpoint, handle, stream, end);
                self.on_feeder_end(now, endpoint, handle, stream, end);
                if end != StreamEnd::Fin {
                    self.note_reset(now, endpoint, handle);
                }
            }
            E::Datagram { request, datagram } => {
                self.on_datagram(now, endpoint, (handle, request), datagram);
            }
            E::Updated { id, result } => self.on_updated(now, endpoint, handle, id, result),
            E::Violated(violation) => {
                tracing::debug!(connection = handle.index(), %violation, "session closed");
                self.counters.sessions_violated += 1;
                let is_overflow = violation.code == SessionError::AUTH_TOKEN_CACHE_OVERFLOW;
                self.counters.sessions_token_overflow += u64::from(is_overflow);
                self.on_lost(now, endpoint, handle);
            }
            // Answers to requests that the relay does not make, and notices that need no answer: a client
            // that is going away ends its requests itself.
            E::Namespace { .. }
            | E::NamespaceDone { .. }
            | E::PublishBlocked { .. }
            | E::GoAway(_) => {}
            E::RequestGoAway { id, .. } => self.on_request_goaway(now, endpoint, handle, id),
        }
    }

    /// A request of the relay's was refused.
    fn on_rejected(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        id: RequestId,
        error: &RequestError,
    ) {
        let who = (handle, id);
        if self.inquiries.contains_key(&who) {
            self.on_inquiry_rejected(now, endpoint, who, error);
        } else if self.feeders.contains_key(&who) {
            self.fail_feeder(now, endpoint, who, error.code);
        } else {
            self.on_source_rejected(now, endpoint, handle, id, error);
            self.on_offer_rejected(now, endpoint, handle, id);
        }
    }

    fn on_ready(&mut self, now: Instant, endpoint: &mut Endpoint, handle: Handle, setup: &Setup) {
        if self.is_neighbour(handle) {
            return self.on_neighbour_ready(now, endpoint, handle);
        }
        self.counters.sessions += 1;
        self.authorise_session(now, endpoint, handle, setup);
    }

    /// A publisher answered to whether objects are wanted.
    fn on_updated(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        id: RequestId,
        result: Result<RequestOk, RequestError>,
    ) {
        let Some(track_id) = self.peers.get(handle).and_then(|peer| peer.source(id)) else {
            return;
        };
        let largest = result.ok().and_then(|ok| ok.parameters.largest_object);
        if self.is_neighbour(handle) {
            self.on_neighbour_updated(now, endpoint, track_id, (handle, id), largest);
        } else if let (Some(largest), Some(track)) = (largest, self.tracks.get(track_id)) {
            track.observe(largest);
        }
        // There is room for the next update, if the last one did not fit.
        self.update_upstream(now, endpoint, track_id);
    }

    fn on_request(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        id: RequestId,
        request: Request,
    ) {
        if self.shedder.is_shedding() && !self.is_neighbour(handle) {
            self.counters.refused_shedding += 1;
            self.refuse(now, endpoint, handle, id, RequestErrorCode::EXCESSIVE_LOAD);
        } else if self.is_permitted(now, endpoint, handle, id, &request) {
            self.on_permitted(now, endpoint, handle, id, request);
            self.settle_expiry(handle, id);
        }
    }

    fn on_permitted(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        id: RequestId,
        request: Request,
    ) {
        match request {
            Request::Subscribe(subscribe) => {
                self.on_subscribe(now, endpoint, handle, id, subscribe);
            }
            Request::Publish(publish) => self.on_publish(now, endpoint, handle, id, &publish),
            Request::PublishNamespace(publish) => {
                self.on_publish_namespace(now, endpoint, handle, id, &publish.namespace);
            }
            Request::TrackStatus(status) => {
                self.on_track_status(now, endpoint, handle, id, status.track);
            }
            Request::Fetch(fetch) => self.on_fetch(now, endpoint, handle, id, &fetch),
            Request::SubscribeNamespace(subscribe) => {
                self.on_subscribe_namespace(now, endpoint, handle, id, subscribe.prefix);
            }
            Request::SubscribeTracks(subscribe) => {
                self.on_subscribe_tracks(now, endpoint, handle, id, subscribe);
            }
        }
    }

    /// The peer ended one of its requests.
    fn on_closed(&mut self, now: Instant, endpoint: &mut Endpoint, handle: Handle, id: RequestId) {
        let Some(peer) = self.peers.get(handle) else {
            return;
        };
        if let Some(track) = peer.source(id) {
            self.on_source_closed(now, endpoint, track, (handle, id));
        } else if let Some(part) = peer.remove(id) {
            self.part_gone(now, endpoint, handle, id, part);
        }
    }

    fn on_timer(&mut self, now: Instant, endpoint: &mut Endpoint, timer: Timer) {
        match timer {
            Timer::Session(handle) => {
                if let Some(peer) = self.peers.get(handle) {
                    peer.timer = None;
                }
                let acted = self.with_session(now, endpoint, handle, |session, connection| {
                    session.handle_timeout(now, connection);
                });
                // Without its connection it would want to be woken for the same again, for ever.
                if acted.is_some() {
                    self.settle(now, endpoint, handle);
                }
            }
            Timer::Draining => self.on_draining(now, endpoint),
            Timer::Expiry(handle) => self.on_expiry(now, endpoint, handle),
            Timer::Rendezvous(handle, request) => {
                self.on_waited(now, endpoint, handle, request);
            }
            Timer::Orphaned(track) => self.on_orphaned(now, endpoint, track),
            Timer::Leaving(track) => self.on_leaving(now, endpoint, track),
            Timer::Inquiry(handle, request) => {
                self.on_inquiry_late(now, endpoint, (handle, request));
            }
            Timer::Delivery(handle) => self.on_delivery_due(now, endpoint, handle),
            Timer::Cache => self.on_cache_due(now),
            Timer::Fill(handle, request) => self.on_fill_over(now, endpoint, (handle, request)),
        }
    }

    fn on_writable(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        stream: StreamId,
    ) {
        let is_control = self.with_session(now, endpoint, handle, |session, connection| {
            session.handle_writable(now, connection, stream)
        });
        match is_control {
            Some(true) => self.settle(now, endpoint, handle),
            Some(false) => self.resume_stream(now, endpoint, handle, stream),
            None => {}
        }
    }

    fn on_stopped(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        stream: StreamId,
        code: u64,
    ) {
        let is_control = self.with_session(now, endpoint, handle, |session, connection| {
            session.handle_stopped(now, connection, stream, code)
        });
        match is_control {
            Some(true) => self.settle(now, endpoint, handle),
            Some(false) => {
                self.stop_stream(now, endpoint, handle, stream);
                self.note_reset(now, endpoint, handle);
            }
            None => {}
        }
    }

    /// Clears up after sessions that closed their connection in this turn.
    fn bury_fallen(&mut self, now: Instant, endpoint: &mut Endpoint) {
        while let Some(handle) = self.fallen.pop().or_else(|| self.restless.pop()) {
            self.settle(now, endpoint, handle);
        }
    }

    fn on_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        match event {
            Event::Datagram { handle, data } => {
                let Some(peer) = self.peers.get(handle) else {
                    return;
                };
                let Some(mut connection) = endpoint.connection(now, handle) else {
                    return;
                };
                match peer.session.handle_datagram(now, &mut connection, data) {
                    Some((request, datagram)) => {
                        self.on_datagram(now, endpoint, (handle, request), datagram);
                    }
                    None => self.settle(now, endpoint, handle),
                }
            }
            Event::Readable { handle, stream } => {
                self.with_session(now, endpoint, handle, |session, connection| {
                    session.handle_readable(now, connection, stream);
                });
                self.settle(now, endpoint, handle);
            }
            Event::Opened {
                handle,
                stream,
                direction,
            } => {
                self.with_session(now, endpoint, handle, |session, connection| {
                    session.handle_opened(now, connection, stream, direction);
                });
                self.settle(now, endpoint, handle);
            }
            Event::Writable { handle, stream } => self.on_writable(now, endpoint, handle, stream),
            Event::Stopped {
                handle,
                stream,
                code,
            } => {
                self.on_stopped(now, endpoint, handle, stream, code);
            }
            Event::StreamsAvailable { handle, direction } => {
                self.with_session(now, endpoint, handle, |session, connection| {
                    session.handle_streams_available(now, connection, direction);
                });
                if direction == Direction::Uni {
                    self.resume_pending(now, endpoint, handle);
                }
                self.settle(now, endpoint, handle);
            }
            Event::Connected { handle } => self.on_connected(now, endpoint, handle),
            Event::Lost { handle, .. } => self.on_lost(now, endpoint, handle),
            Event::Finished { handle, stream } => {
                if let Some(peer) = self.peers.get(handle) {
                    peer.deliveries.remove(stream);
                }
            }
        }
    }
}

impl App for Relay {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        self.on_event(now, endpoint, event);
        self.bury_fallen(now, endpoint);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        while let Some(timer) = self.timers.expired(now) {
            self.on_timer(now, endpoint, timer);
        }
        self.bury_fallen(now, endpoint);
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.drain(now, endpoint);
        self.bury_fallen(now, endpoint);
    }

    fn is_finished(&self) -> bool {
        self.stage == Stage::Over
    }
}
