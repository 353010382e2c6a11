//! Hands events and timers to the owners of what they concern, and each owner's effects to the others.

use std::collections::BTreeMap;

use weir_moqt::{
    error::{RequestErrorCode, SessionError},
    message::{RequestError, RequestOk, Setup},
    session::{self, Accepted, CloseReason, Request, RequestId, StreamEnd},
};
use weir_quic::{Event, Handle};
use weir_transport::{Direction, StreamId};

use crate::{
    Gauges, TrackState,
    cache::Ledger,
    catalogue::namespaces::{Announcements, Interests},
    catalogue::track_status::Inquiry,
    effect::Effect,
    fetch::served::{Fetch, FetchId},
    fetch::upstream_fetch::Feeder,
    links::peer_threads::Neighbours,
    sessions::Sessions,
    timers::Timer,
    track::admit::CUT,
    track::subgroup::{Subgroup, SubgroupId},
    track::table::{TrackId, Tracks},
    turn::Turn,
};

/// Everything that the relay holds, but for its sessions.
#[derive(Default)]
pub(crate) struct Owners {
    pub(crate) tracks: Tracks,
    /// Announced namespaces.
    pub(crate) namespaces: Announcements,
    /// Prefixes of which sessions want to know the namespaces, and those of which they want the tracks.
    pub(crate) namespace_interests: Interests,
    pub(crate) track_interests: Interests,
    pub(crate) ledger: Ledger,
    /// What peers fetch.
    pub(crate) fetches: BTreeMap<FetchId, Box<Fetch>>,
    /// What the relay fetches.
    pub(crate) feeders: BTreeMap<FetchId, Feeder>,
    /// How tracks stand, asked of publishers.
    pub(crate) inquiries: BTreeMap<(Handle, RequestId), Inquiry>,
    /// Subgroups that grew in this turn.
    pub(crate) grown: Vec<(TrackId, SubgroupId)>,
    pub(crate) neighbours: Neighbours,
}

impl Owners {
    /// What is held now. Looks at every track.
    pub(crate) fn gauges(&self, sessions: &Sessions) -> Gauges {
        let mut gauges = Gauges {
            sessions: sessions.len() as u64,
            lag_bytes: sessions.lag_bytes(),
            tracks: self.tracks.len() as u64,
            namespaces: self.namespaces_here(sessions),
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

    /// Every track. Looks at all of them.
    pub(crate) fn track_states(&self) -> impl Iterator<Item = TrackState<'_>> {
        self.tracks.iter().map(|track| TrackState {
            name: &track.name,
            publishers: track.sources.len(),
            subscribers: track.subscribers.len(),
            waiting: track.waiting.len(),
            largest: track.largest,
            log_bytes: track.subgroups.iter().map(Subgroup::held).sum(),
        })
    }

    fn on_lost(&mut self, turn: &mut Turn<'_>, handle: Handle) {
        let Some(mut peer) = turn.sessions.remove(handle) else {
            return;
        };
        if peer.is_neighbour {
            self.forget_neighbour(handle);
        } else {
            turn.sessions.keep_counters(*peer.session.counters());
        }
        if let Some(at) = peer.timer {
            turn.timers.cancel(at, Timer::Session(handle));
        }
        if let Some(at) = peer.expiry_timer {
            turn.timers.cancel(at, Timer::Expiry(handle));
        }
        if let Some(at) = peer.deliveries.disarm() {
            turn.timers.cancel(at, Timer::Delivery(handle));
        }
        for inbound in peer.inbound.values() {
            let _sound = self.end_stream(turn, handle, inbound, CUT);
        }
        for (request, part) in peer.requests {
            self.part_gone(turn, handle, request, part);
        }
        self.publish_grown(turn);
    }

    /// Ends a session from here.
    pub(crate) fn close_session(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        code: SessionError,
        reason: &str,
    ) {
        turn.with_session(handle, |session, connection| {
            session.close(connection, code, reason);
        });
        self.on_lost(turn, handle);
    }

    /// Deals with all that a session has to say, sends on what came with it, and keeps its timer.
    pub(crate) fn settle(&mut self, turn: &mut Turn<'_>, handle: Handle) {
        while let Some(event) = turn
            .sessions
            .get(handle)
            .and_then(|peer| peer.session.poll_event())
        {
            self.on_session_event(turn, handle, event);
            self.carry_effects(turn);
        }
        self.note_early_resets(turn, handle);
        self.publish_grown(turn);
        let Some(peer) = turn.sessions.get(handle) else {
            return;
        };
        if let Some(at) = peer.session.poll_timeout()
            && peer.timer.is_none_or(|timer| at < timer)
        {
            if let Some(later) = peer.timer.replace(at) {
                turn.timers.cancel(later, Timer::Session(handle));
            }
            turn.timers.set(at, Timer::Session(handle));
        }
    }

    fn on_session_event(&mut self, turn: &mut Turn<'_>, handle: Handle, event: session::Event) {
        use session::Event as E;
        match event {
            E::Ready { peer } => self.on_ready(turn, handle, &peer),
            E::Request { id, request } => self.on_request(turn, handle, id, request),
            E::Update { id, parameters, .. } => {
                self.on_update_asked(turn, handle, id, &parameters);
            }
            E::Accepted {
                id,
                ok: Accepted::Subscribe(ok),
            } => {
                self.on_source_accepted(turn, handle, id, &ok);
            }
            E::Accepted {
                id,
                ok: Accepted::Ok(ok),
            } => {
                self.on_inquiry_answered(turn, (handle, id), &ok);
                self.on_offer_accepted(turn, handle, id, &ok);
            }
            E::Accepted {
                id,
                ok: Accepted::Fetch(ok),
            } => self.on_feeder_granted(turn, (handle, id), &ok),
            E::Rejected { id, error } => self.on_rejected(turn, handle, id, &error),
            E::Closed { id, reason } if self.feeders.contains_key(&(handle, id)) => {
                let is_clean = reason == CloseReason::Fin;
                self.on_feeder_closed(turn, (handle, id), is_clean);
            }
            E::Fetched { stream, request } => {
                self.on_feeder_stream(turn, (handle, request), stream);
            }
            E::FetchObject { stream, entry } => {
                self.on_feeder_entry(turn, handle, stream, entry);
            }
            E::Done { id, done } => self.on_source_done(turn, handle, id, done),
            E::Closed { id, reason } => {
                self.on_closed(turn, handle, id);
                if reason != CloseReason::Fin {
                    self.note_reset(turn, handle);
                }
            }
            E::Subgroup {
                stream,
                request,
                header,
            } => {
                self.on_subgroup(turn, handle, stream, request, header);
            }
            E::Object { stream, object } => self.on_object(turn, handle, stream, object),
            E::Payload { stream, data } => {
                if !self.on_payload(turn, handle, stream, &data) {
                    self.on_feeder_payload(turn, handle, stream, &data);
                }
            }
            E::StreamEnd { stream, end } => {
                self.on_stream_end(turn, handle, stream, end);
                self.on_feeder_end(turn, handle, stream, end);
                if end != StreamEnd::Fin {
                    self.note_reset(turn, handle);
                }
            }
            E::Datagram { request, datagram } => {
                self.on_datagram(turn, (handle, request), datagram);
            }
            E::Updated { id, result } => self.on_updated(turn, handle, id, result),
            E::Violated(violation) => {
                tracing::debug!(connection = handle.index(), %violation, "session closed");
                turn.counters.sessions_violated += 1;
                let is_overflow = violation.code == SessionError::AUTH_TOKEN_CACHE_OVERFLOW;
                turn.counters.sessions_token_overflow += u64::from(is_overflow);
                self.on_lost(turn, handle);
            }
            // Answers to requests that the relay does not make, and notices that need no answer: a client
            // that is going away ends its requests itself.
            E::Namespace { .. }
            | E::NamespaceDone { .. }
            | E::PublishBlocked { .. }
            | E::GoAway(_) => {}
            E::RequestGoAway { id, .. } => self.on_request_goaway(turn, handle, id),
        }
    }

    /// A request of the relay's was refused.
    fn on_rejected(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        id: RequestId,
        error: &RequestError,
    ) {
        let who = (handle, id);
        if self.inquiries.contains_key(&who) {
            self.on_inquiry_rejected(turn, who, error);
        } else if self.feeders.contains_key(&who) {
            self.fail_feeder(turn, who, error.code);
        } else {
            self.on_source_rejected(turn, handle, id, error);
            self.on_offer_rejected(turn, handle, id);
        }
    }

    fn on_ready(&mut self, turn: &mut Turn<'_>, handle: Handle, setup: &Setup) {
        if turn.is_neighbour(handle) {
            return self.on_neighbour_ready(turn, handle);
        }
        turn.counters.sessions += 1;
        self.authorise_session(turn, handle, setup);
    }

    /// A publisher answered to whether objects are wanted.
    fn on_updated(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        id: RequestId,
        result: Result<RequestOk, RequestError>,
    ) {
        let Some(track_id) = turn.sessions.get(handle).and_then(|peer| peer.source(id)) else {
            return;
        };
        let largest = result.ok().and_then(|ok| ok.parameters.largest_object);
        if turn.is_neighbour(handle) {
            self.on_neighbour_updated(turn, track_id, (handle, id), largest);
        } else if let (Some(largest), Some(track)) = (largest, self.tracks.get(track_id)) {
            track.observe(largest);
        }
        // There is room for the next update, if the last one did not fit.
        self.update_upstream(turn, track_id);
    }

    fn on_request(&mut self, turn: &mut Turn<'_>, handle: Handle, id: RequestId, request: Request) {
        if turn.sessions.shedder.is_shedding() && !turn.is_neighbour(handle) {
            turn.counters.refused_shedding += 1;
            turn.refuse(handle, id, RequestErrorCode::EXCESSIVE_LOAD);
        } else if self.is_permitted(turn, handle, id, &request) {
            self.on_permitted(turn, handle, id, request);
            turn.settle_expiry(handle, id);
        }
    }

    fn on_permitted(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        id: RequestId,
        request: Request,
    ) {
        match request {
            Request::Subscribe(subscribe) => {
                self.on_subscribe(turn, handle, id, subscribe);
            }
            Request::Publish(publish) => self.on_publish(turn, handle, id, &publish),
            Request::PublishNamespace(publish) => {
                self.on_publish_namespace(turn, handle, id, &publish.namespace);
            }
            Request::TrackStatus(status) => {
                self.on_track_status(turn, handle, id, status.track);
            }
            Request::Fetch(fetch) => self.on_fetch(turn, handle, id, &fetch),
            Request::SubscribeNamespace(subscribe) => {
                self.on_subscribe_namespace(turn, handle, id, subscribe.prefix);
            }
            Request::SubscribeTracks(subscribe) => {
                self.on_subscribe_tracks(turn, handle, id, subscribe);
            }
        }
    }

    /// The peer ended one of its requests.
    fn on_closed(&mut self, turn: &mut Turn<'_>, handle: Handle, id: RequestId) {
        let Some(peer) = turn.sessions.get(handle) else {
            return;
        };
        if let Some(track) = peer.source(id) {
            self.on_source_closed(turn, track, (handle, id));
        } else if let Some(part) = peer.remove(id) {
            self.part_gone(turn, handle, id, part);
        }
    }

    pub(crate) fn on_timer(&mut self, turn: &mut Turn<'_>, timer: Timer) {
        let now = turn.now;
        match timer {
            Timer::Session(handle) => {
                if let Some(peer) = turn.sessions.get(handle) {
                    peer.timer = None;
                }
                let acted = turn.with_session(handle, |session, connection| {
                    session.handle_timeout(now, connection);
                });
                // Without its connection it would want to be woken for the same again, for ever.
                if acted.is_some() {
                    self.settle(turn, handle);
                }
            }
            Timer::Draining => self.on_draining(turn),
            Timer::Expiry(handle) => self.on_expiry(turn, handle),
            Timer::Rendezvous(handle, request) => {
                self.on_waited(turn, handle, request);
            }
            Timer::Orphaned(track) => self.on_orphaned(turn, track),
            Timer::Leaving(track) => self.on_leaving(turn, track),
            Timer::Inquiry(handle, request) => {
                self.on_inquiry_late(turn, (handle, request));
            }
            Timer::Delivery(handle) => self.on_delivery_due(turn, handle),
            Timer::Cache => self.on_cache_due(turn),
            Timer::Fill(handle, request) => self.on_fill_over(turn, (handle, request)),
        }
    }

    fn on_writable(&mut self, turn: &mut Turn<'_>, handle: Handle, stream: StreamId) {
        let now = turn.now;
        let is_control = turn.with_session(handle, |session, connection| {
            session.handle_writable(now, connection, stream)
        });
        match is_control {
            Some(true) => self.settle(turn, handle),
            Some(false) => self.resume_stream(turn, handle, stream),
            None => {}
        }
    }

    fn on_stopped(&mut self, turn: &mut Turn<'_>, handle: Handle, stream: StreamId, code: u64) {
        let now = turn.now;
        let is_control = turn.with_session(handle, |session, connection| {
            session.handle_stopped(now, connection, stream, code)
        });
        match is_control {
            Some(true) => self.settle(turn, handle),
            Some(false) => {
                self.stop_stream(turn, handle, stream);
                self.note_reset(turn, handle);
            }
            None => {}
        }
    }

    /// Hands the effects of a step to their owners, and the effects of these.
    pub(crate) fn carry_effects(&mut self, turn: &mut Turn<'_>) {
        while let Some(effect) = turn.effects.pop_front() {
            self.carry(turn, effect);
        }
    }

    fn carry(&mut self, turn: &mut Turn<'_>, effect: Effect) {
        match effect {
            Effect::CloseSession(handle, code, reason) => {
                self.close_session(turn, handle, code, &reason);
            }
            Effect::RequestEnded(handle, id, part) => self.part_gone(turn, handle, id, part),
            Effect::UpdateFailed(handle, id, code) => self.fail_update(turn, handle, id, code),
            Effect::NamespaceAnnounced(namespace, handle) => {
                self.on_announced(turn, &namespace, handle);
            }
            Effect::DemandChanged(track) => self.update_upstream(turn, track),
            Effect::JoinsSettled(track) => self.settle_joins(turn, track),
            Effect::MaybeDrained(track, handle, id) => {
                self.dismiss_if_drained(turn, track, handle, id);
            }
            Effect::CutSubscription(track, handle, id, code) => {
                self.cut_subscriber(turn, track, (handle, id), code);
            }
            Effect::Malformed(track, publisher) => self.on_malformed(turn, track, publisher),
            Effect::Cached(track) => self.refill(turn, track),
            Effect::Released(track) => self.forget_if_unused(turn, track),
        }
    }

    /// Settles the sessions that closed, or that may have something to say though nothing came.
    pub(crate) fn settle_all(&mut self, turn: &mut Turn<'_>) {
        while let Some(handle) = turn.sessions.next_unsettled() {
            self.settle(turn, handle);
            self.carry_effects(turn);
        }
    }

    pub(crate) fn on_event(&mut self, turn: &mut Turn<'_>, event: Event) {
        let now = turn.now;
        match event {
            Event::Datagram { handle, data } => {
                let Some(peer) = turn.sessions.get(handle) else {
                    return;
                };
                let Some(mut connection) = turn.endpoint.connection(turn.now, handle) else {
                    return;
                };
                match peer
                    .session
                    .handle_datagram(turn.now, &mut connection, data)
                {
                    Some((request, datagram)) => {
                        self.on_datagram(turn, (handle, request), datagram);
                    }
                    None => self.settle(turn, handle),
                }
            }
            Event::Readable { handle, stream } => {
                turn.with_session(handle, |session, connection| {
                    session.handle_readable(now, connection, stream);
                });
                self.settle(turn, handle);
            }
            Event::Opened {
                handle,
                stream,
                direction,
            } => {
                turn.with_session(handle, |session, connection| {
                    session.handle_opened(now, connection, stream, direction);
                });
                self.settle(turn, handle);
            }
            Event::Writable { handle, stream } => self.on_writable(turn, handle, stream),
            Event::Stopped {
                handle,
                stream,
                code,
            } => {
                self.on_stopped(turn, handle, stream, code);
            }
            Event::StreamsAvailable { handle, direction } => {
                turn.with_session(handle, |session, connection| {
                    session.handle_streams_available(now, connection, direction);
                });
                if direction == Direction::Uni {
                    self.resume_pending(turn, handle);
                }
                self.settle(turn, handle);
            }
            Event::Connected { handle } => self.on_connected(turn, handle),
            Event::Lost { handle, .. } => self.on_lost(turn, handle),
            Event::Finished { handle, stream } => {
                if let Some(peer) = turn.sessions.get(handle) {
                    peer.deliveries.remove(stream);
                }
            }
        }
    }
}
