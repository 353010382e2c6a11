//! Dispatch: hands events and timers to the owners that they concern, and the effects of each owner to the others.

mod closing;
mod effects;
mod inspection;

pub use self::inspection::TrackState;
pub(crate) use self::inspection::{fleet_state, link_states, registry_due, track_states};
use weir_moqt::{
    data::ObjectDatagram,
    error::{RequestErrorCode, SessionError},
    message::{Publish, RequestError, RequestOk, Setup},
    parameter::Parameters,
    session::{self, Accepted, CloseReason, Request, StreamEnd},
};
use weir_quic::{Event, Handle};
use weir_transport::{Direction, StreamId};

use crate::{
    authority::{Action, Subject},
    catalogue::{Catalogue, Offering, PrefixSubscription, TrackStatusEvent},
    delivery::Delivery,
    fetch::{Fetches, Serving},
    ids::RequestKey,
    links::{Linking, Links},
    sessions::{authorization::joined, peer::Purpose},
    timers::Timer,
    track::Tracks,
    turn::Turn,
};

/// Everything that the relay holds, except its sessions.
#[derive(Default)]
pub(crate) struct Owners {
    tracks: Tracks,
    delivery: Delivery,
    fetches: Fetches,
    catalogue: Catalogue,
    links: Links,
}

impl Owners {
    /// Returns the fetches, with what they are served from.
    fn serving(&mut self) -> Serving<'_> {
        Serving {
            fetches: &mut self.fetches,
            catalogue: &self.catalogue,
            delivery: &mut self.delivery,
            tracks: &mut self.tracks,
        }
    }

    /// Returns the catalogue, with the tracks that it offers and their subscriptions.
    fn offering(&mut self) -> Offering<'_> {
        Offering {
            catalogue: &mut self.catalogue,
            delivery: &mut self.delivery,
            tracks: &mut self.tracks,
        }
    }

    /// Returns the links, with what is exchanged over them.
    fn linking(&mut self) -> Linking<'_> {
        Linking {
            links: &mut self.links,
            catalogue: &mut self.catalogue,
            delivery: &mut self.delivery,
            tracks: &mut self.tracks,
        }
    }

    /// Returns the links to other machines, to be set up.
    pub(crate) fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }

    /// Handles an event of a connection.
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
                let session = peer.session_mut();
                match session.handle_datagram(turn.now, &mut connection, data) {
                    Some((request, datagram)) => {
                        self.on_datagram(turn, (handle, request), datagram);
                    }
                    // A datagram with an unknown Track Alias follows later, as an event of the session.
                    None => self.process_session(turn, handle),
                }
            }
            Event::Readable { handle, stream } => {
                turn.with_session(handle, |session, connection| {
                    session.handle_readable(now, connection, stream);
                });
                self.process_session(turn, handle);
            }
            Event::Opened {
                handle,
                stream,
                direction,
            } => {
                turn.with_session(handle, |session, connection| {
                    session.handle_opened(now, connection, stream, direction);
                });
                self.process_session(turn, handle);
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
                    // Once in a turn, however often the peer raises its limit.
                    turn.timers.set(now, Timer::Streams(handle));
                }
                self.process_session(turn, handle);
            }
            Event::Connected { handle } => self.on_connected(turn, handle),
            Event::Lost { handle, reason } => self.on_lost(turn, handle, &reason.to_string()),
            Event::Finished { handle, stream } => {
                self.delivery.on_finished(handle, stream);
            }
        }
    }

    /// Handles an object that came in a datagram: admits it (`track/admit.rs`), keeps it (`track/keep.rs`), delivers it
    /// (`delivery/fan_out.rs`), and serves the fetches that waited for it.
    fn on_datagram(&mut self, turn: &mut Turn<'_>, sender: RequestKey, datagram: ObjectDatagram) {
        let Some(admitted) = self.tracks.admit_datagram(turn, sender, &datagram) else {
            return;
        };
        let Some(kept) = self.tracks.keep_datagram(turn, admitted, datagram) else {
            return;
        };
        self.delivery.deliver_datagram(turn, admitted.track, &kept);
        self.serving().on_cached(turn, admitted.track);
    }

    /// Delivers what arrived on subgroup streams in this turn: one write per subscriber and subgroup, however many
    /// packets brought the data.
    fn publish_grown(&mut self, turn: &mut Turn<'_>) {
        if !self.tracks.has_grown() {
            return;
        }
        let mut grown = self.tracks.take_grown();
        for (id, log) in grown.drain(..) {
            if let Some(marks) = self.tracks.keep_subgroup(turn, (id, log)) {
                self.delivery
                    .deliver_subgroup(turn, &mut self.tracks, (id, log), marks);
                self.serving().on_cached(turn, id);
            }
        }
        self.tracks.recycle_grown(grown);
    }

    fn on_connected(&mut self, turn: &mut Turn<'_>, handle: Handle) {
        if !self.links.on_connected(turn, handle) {
            turn.on_connected(handle);
        }
        self.process_session(turn, handle);
    }

    fn on_lost(&mut self, turn: &mut Turn<'_>, handle: Handle, reason: &str) {
        self.linking().on_lost(turn, handle, reason);
        let Some(peer) = turn.sessions.remove(handle) else {
            return;
        };
        if !peer.is_link() {
            turn.sessions.keep_counters(*peer.session().counters());
        }
        let deadline = self.delivery.forget_session(handle);
        let deadline = (deadline, Timer::Delivery(handle));
        for (at, timer) in peer.timers().into_iter().chain([deadline]) {
            if let Some(at) = at {
                turn.timers.cancel(at, timer);
            }
        }
        self.tracks.on_session_lost(turn, handle);
        for (request, purpose) in peer.into_requests() {
            self.on_ended(turn, (handle, request), purpose);
        }
        self.fetches.forget_session(handle);
        self.publish_grown(turn);
    }

    /// Handles all events of a session, delivers what arrived with them, and sets the session's timer.
    fn process_session(&mut self, turn: &mut Turn<'_>, handle: Handle) {
        while let Some(event) = turn
            .sessions
            .get(handle)
            .and_then(|peer| peer.session_mut().poll_event())
        {
            self.on_session_event(turn, handle, event);
            self.carry_effects(turn);
        }
        turn.note_early_resets(handle);
        self.publish_grown(turn);
        turn.set_session_timer(handle);
    }

    /// Processes the sessions that closed, or that may have events although no packet came.
    pub(crate) fn process_sessions(&mut self, turn: &mut Turn<'_>) {
        self.carry_effects(turn);
        while let Some(handle) = turn.sessions.next_unprocessed() {
            self.process_session(turn, handle);
            self.carry_effects(turn);
        }
    }

    fn on_session_event(&mut self, turn: &mut Turn<'_>, handle: Handle, event: session::Event) {
        use session::Event as E;
        match event {
            E::Ready { peer } => self.on_ready(turn, handle, &peer),
            E::Request { id, request } => self.on_request(turn, (handle, id), request),
            E::Update { id, parameters, .. } => self.on_update(turn, (handle, id), &parameters),
            E::Accepted { id, ok } => self.on_accepted(turn, (handle, id), ok),
            E::Rejected { id, error } => self.on_rejected(turn, (handle, id), &error),
            E::Updated { id, result } => self.on_updated(turn, (handle, id), result),
            E::StateChanged { id, parameters } => {
                self.tracks
                    .on_state_changed(turn, (handle, id), &parameters);
            }
            E::Done { id, done } => self.tracks.on_publish_done(turn, (handle, id), done),
            E::Closed { id, reason } => self.on_closed(turn, (handle, id), reason),
            E::Subgroup {
                stream,
                request,
                header,
            } => {
                let sender = (handle, request);
                self.tracks.on_subgroup(turn, sender, stream, header);
            }
            E::Object { stream, object } => self.tracks.on_object(turn, handle, stream, object),
            E::Payload { stream, data } => {
                if !self.tracks.on_payload(turn, handle, stream, &data) {
                    let mut serving = self.serving();
                    serving.on_payload(turn, handle, stream, &data);
                }
            }
            E::StreamEnd { stream, end } => self.on_stream_end(turn, handle, stream, end),
            E::Datagram { request, datagram } => {
                self.on_datagram(turn, (handle, request), datagram);
            }
            E::Fetched { stream, request } => {
                let mut serving = self.serving();
                serving.on_stream(turn, (handle, request), stream);
            }
            E::FetchObject { stream, entry } => {
                self.serving().on_entry(turn, handle, stream, entry);
            }
            E::Violated(violation) => {
                tracing::debug!(connection = handle.index(), %violation, "session closed");
                turn.counters.sessions_violated += 1;
                let is_overflow = violation.code == SessionError::AUTH_TOKEN_CACHE_OVERFLOW;
                turn.counters.sessions_token_overflow += u64::from(is_overflow);
                self.on_lost(turn, handle, violation.reason);
            }
            E::Namespace { id, suffix } => {
                self.linking().on_namespace(turn, (handle, id), &suffix);
            }
            E::NamespaceDone { id, suffix } => {
                self.linking()
                    .on_namespace_done(turn, (handle, id), &suffix);
            }
            // A client that sent GOAWAY ends its requests itself.
            E::GoAway(_) => self.on_link_leaving(turn, handle),
            // Tracks that the upstream relay has no room for can still be subscribed to.
            E::PublishBlocked { .. } => {}
            E::RequestGoAway { id, .. } => self.on_request_goaway(turn, (handle, id)),
        }
    }

    fn on_ready(&mut self, turn: &mut Turn<'_>, handle: Handle, setup: &Setup) {
        if turn.is_link(handle) {
            return self.linking().on_ready(turn, handle);
        }
        turn.counters.sessions += 1;
        turn.log_session(handle, setup);
        if self.links.welcome(turn, handle, setup) {
            self.linking().on_ready(turn, handle);
            turn.authorise_session(handle, setup);
        }
    }

    /// Handles the acceptance of a request of the relay.
    fn on_accepted(&mut self, turn: &mut Turn<'_>, id: RequestKey, ok: Accepted) {
        turn.note_answer(id.0);
        let Some(purpose) = turn.purpose(id) else {
            return;
        };
        match (purpose, ok) {
            (Purpose::Source(track), Accepted::Subscribe(ok)) => {
                let demand = self.demand_of(turn, track, id.0);
                self.tracks.on_subscribe_ok(turn, (track, id), &ok, demand);
            }
            (Purpose::UpstreamTrackStatus(requester), Accepted::Ok(ok)) => {
                let event = TrackStatusEvent::Answered(Box::new(ok));
                self.catalogue.on_track_status_event(turn, requester, event);
            }
            (Purpose::Subscriber(track), Accepted::Ok(mut ok)) => {
                // The default in an answer, whatever was offered [moqt-18 §10.2.12].
                ok.parameters.forward.get_or_insert(true);
                let who = (track, id.0, id.1);
                let tracks = &mut self.tracks;
                self.delivery
                    .on_offer_accepted(turn, tracks, who, &ok.parameters);
            }
            (Purpose::RingProbe, Accepted::Ok(ok)) => {
                turn.remove_request(id);
                self.links.on_probe_answered(turn, id.0, &ok);
            }
            (Purpose::UpstreamFetch(_), Accepted::Fetch(ok)) => {
                self.serving().on_fetch_ok(turn, id, &ok);
            }
            (_, Accepted::Subscribe(_) | Accepted::Ok(_) | Accepted::Fetch(_)) => {}
        }
    }

    /// Handles the refusal of a request of the relay.
    fn on_rejected(&mut self, turn: &mut Turn<'_>, id: RequestKey, error: &RequestError) {
        turn.note_answer(id.0);
        match turn.purpose(id) {
            Some(Purpose::UpstreamTrackStatus(requester)) => {
                let event = TrackStatusEvent::Rejected(error.code);
                self.catalogue.on_track_status_event(turn, requester, event);
            }
            Some(Purpose::UpstreamFetch(_)) => self.serving().fail_upstream(turn, id, error.code),
            Some(Purpose::Source(_)) => Tracks::on_subscribe_error(turn, id, error),
            Some(Purpose::Subscriber(_)) => turn.on_offer_rejected(id),
            Some(Purpose::UpstreamPrefix) => {
                turn.remove_request(id);
                self.linking().on_interest_rejected(turn, id, error);
            }
            // The request has not come back to this relay.
            Some(Purpose::RingProbe) => drop(turn.remove_request(id)),
            Some(Purpose::Announcement) => {
                turn.remove_request(id);
                self.links.on_rejected(turn, id, error);
            }
            Some(
                Purpose::Namespace(_)
                | Purpose::Prefix(_)
                | Purpose::Fetch(_)
                | Purpose::TrackStatus
                | Purpose::AwaitsLink,
            )
            | None => {}
        }
    }

    /// Handles a publisher's answer to a change of FORWARD.
    fn on_updated(
        &mut self,
        turn: &mut Turn<'_>,
        id: RequestKey,
        result: Result<RequestOk, RequestError>,
    ) {
        if let Some(track) = turn.published_track(id) {
            let largest = result.ok().and_then(|ok| ok.parameters.largest_object);
            let demand = self.demand_of(turn, track, id.0);
            self.tracks.on_update_ok(turn, (track, id), largest, demand);
        }
    }

    fn on_request(&mut self, turn: &mut Turn<'_>, (handle, id): RequestKey, request: Request) {
        turn.log_request((handle, id), &request);
        if turn.sessions.is_shedding() && !turn.is_link(handle) {
            turn.counters.refused_shedding += 1;
            return turn.refuse(handle, id, RequestErrorCode::EXCESSIVE_LOAD);
        }
        let joined = joined(&request).and_then(|joined| {
            let subject = self.subject(turn, (handle, joined))?;
            Some((joined, subject))
        });
        if turn.is_permitted((handle, id), &request, joined.as_ref()) {
            turn.note_permitted(handle, &request);
            self.on_permitted(turn, (handle, id), request);
            turn.forget_expiry_if_over(handle, id);
        }
    }

    fn on_permitted(&mut self, turn: &mut Turn<'_>, id: RequestKey, request: Request) {
        let Some(request) = self.linking().park(turn, id, request) else {
            return;
        };
        let tracks = &mut self.tracks;
        match request {
            Request::Subscribe(subscribe) => {
                self.delivery.on_subscribe(turn, tracks, id, subscribe);
            }
            Request::Publish(publish) => self.on_publish(turn, id, &publish),
            Request::PublishNamespace(publish) => {
                self.catalogue
                    .on_publish_namespace(turn, id, &publish.namespace);
            }
            Request::TrackStatus(status) => {
                if let Some(answer) = Links::answer_probe(turn, &status.track) {
                    return turn.accept(id, answer);
                }
                self.catalogue
                    .on_track_status(turn, tracks, id, status.track);
            }
            Request::Fetch(fetch) => self.serving().on_fetch(turn, id, &fetch),
            Request::SubscribeNamespace(subscribe) => {
                let subscription = PrefixSubscription::to_namespaces(subscribe.prefix);
                self.offering().on_subscribe_prefix(turn, id, subscription);
            }
            Request::SubscribeTracks(subscribe) => {
                let subscription = PrefixSubscription::to_tracks(subscribe);
                self.offering().on_subscribe_prefix(turn, id, subscription);
            }
        }
    }

    fn on_publish(&mut self, turn: &mut Turn<'_>, id: RequestKey, publish: &Publish) {
        if let Some(track) = self.tracks.find_published(turn, id, publish) {
            let demand = self.demand_of(turn, track, id.0);
            self.tracks.publish(turn, (track, id), publish, demand);
        }
    }

    /// Handles a REQUEST_UPDATE of a session.
    fn on_update(&mut self, turn: &mut Turn<'_>, id: RequestKey, parameters: &Parameters) {
        if !turn.permits_update(id.0) {
            return self.fail_update(turn, id, RequestErrorCode::EXCESSIVE_LOAD);
        }
        let needs_permit = !parameters.authorization_tokens.is_empty()
            || parameters.track_namespace_prefix.is_some();
        if needs_permit && !self.is_renewed(turn, id, parameters) {
            return;
        }
        let mut answer = RequestOk::default();
        match turn.purpose(id) {
            Some(Purpose::Prefix(_)) => {
                return self.offering().on_prefix_updated(turn, id, parameters);
            }
            Some(Purpose::Subscriber(track)) => {
                let who = (track, id.0, id.1);
                answer = self
                    .delivery
                    .on_update(turn, &mut self.tracks, who, parameters);
            }
            Some(Purpose::Fetch(_)) => self.serving().on_update(turn, id, parameters),
            Some(_) | None => {}
        }
        turn.grant_update(id.0, id.1, answer);
    }

    /// Checks the new tokens of a REQUEST_UPDATE. Returns false if they do not permit the request. The update is then
    /// refused, and the request ends where the draft says so [moqt-18 §10.9.1].
    fn is_renewed(&mut self, turn: &mut Turn<'_>, id: RequestKey, parameters: &Parameters) -> bool {
        let Some(mut subject) = self.subject(turn, id) else {
            return true;
        };
        if let Some(prefix) = &parameters.track_namespace_prefix {
            subject.namespace.clone_from(prefix);
        }
        match turn.permit_request(id, &parameters.authorization_tokens, &subject) {
            Ok(expires) => {
                turn.note_expiry(id.0, id.1, expires);
                for joining in self.fetches.authorized_by(id.0, id.1).collect::<Vec<_>>() {
                    turn.note_expiry(id.0, joining, expires);
                }
                // The fetch has tokens of its own.
                self.fetches.use_own_authorization(id);
                true
            }
            Err(denial) => {
                turn.count_denial(denial);
                self.fail_update(turn, id, denial.code());
                false
            }
        }
    }

    /// Returns what a request of a session is about, for authorization.
    pub(super) fn subject(&mut self, turn: &mut Turn<'_>, id: RequestKey) -> Option<Subject> {
        let (action, namespace) = match turn.purpose(id)? {
            Purpose::Source(track) => {
                let track = self.tracks.get(track)?;
                (Action::Publish, track.name().namespace.clone())
            }
            Purpose::Subscriber(track) | Purpose::Fetch(track) => {
                let track = self.tracks.get(track)?;
                (Action::Subscribe, track.name().namespace.clone())
            }
            Purpose::Namespace(namespace) => (Action::Publish, namespace),
            Purpose::Prefix(prefix) => (Action::Subscribe, prefix),
            Purpose::UpstreamFetch(_)
            | Purpose::TrackStatus
            | Purpose::UpstreamTrackStatus(_)
            | Purpose::UpstreamPrefix
            | Purpose::Announcement
            | Purpose::RingProbe
            | Purpose::AwaitsLink => return None,
        };
        Some(Subject { action, namespace })
    }

    /// Handles a request that the peer ended.
    fn on_closed(&mut self, turn: &mut Turn<'_>, (handle, id): RequestKey, reason: CloseReason) {
        let is_clean = reason == CloseReason::Fin;
        if self.fetches.is_upstream((handle, id)) {
            return self
                .serving()
                .on_upstream_closed(turn, (handle, id), is_clean);
        }
        if let Some(track) = turn.published_track((handle, id)) {
            self.tracks.on_request_closed(turn, track, (handle, id));
        } else if let Some(peer) = turn.sessions.get(handle)
            && let Some(purpose) = peer.remove(id)
        {
            self.on_ended(turn, (handle, id), purpose);
        }
        if !is_clean {
            turn.note_reset(handle);
        }
    }

    fn on_stream_end(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        stream: StreamId,
        end: StreamEnd,
    ) {
        self.tracks.on_stream_end(turn, handle, stream, end);
        self.serving().on_stream_end(turn, handle, stream, end);
        if end != StreamEnd::Fin {
            turn.note_reset(handle);
        }
    }

    pub(crate) fn on_timer(&mut self, turn: &mut Turn<'_>, timer: Timer) {
        match timer {
            Timer::Session(handle) => {
                if turn.on_session_timer(handle) {
                    self.process_session(turn, handle);
                }
            }
            Timer::Draining => turn.on_draining(),
            Timer::Expiry(handle) => self.on_expiry(turn, handle),
            Timer::Rendezvous(handle, id) => self.delivery.on_rendezvous_over(turn, handle, id),
            Timer::Orphaned(track) => self.on_orphaned(turn, track),
            Timer::Leaving(track) => self.tracks.on_leaving(turn, track),
            Timer::Unanswered(track) => self.on_unanswered(turn, track),
            Timer::UnansweredFetch(handle, id) => self.serving().on_unanswered(turn, (handle, id)),
            Timer::TrackStatus(handle, id) => self.catalogue.on_unanswered(turn, (handle, id)),
            Timer::Delivery(handle) => self.delivery.on_deadline(turn, &mut self.tracks, handle),
            Timer::Upstream(number) => self.links.connect(turn, number),
            Timer::Registry => self.links.on_registry(turn, &mut self.catalogue),
            Timer::FleetLinks => self.linking().close_idle(turn),
            Timer::Awaited(track) => self.on_await_over(turn, track),
            Timer::Ring(number) => self.links.probe(turn, number),
            Timer::InterestsRefused => self.links.send_interests_again(turn),
            Timer::Interests => self.linking().review_interests(turn),
            Timer::Cache => self.tracks.on_cache_due(turn),
            Timer::Fetch(handle, id) => self.serving().serve(turn, (handle, id)),
            Timer::Walks => self.on_walks(turn),
            Timer::Stopped(handle) => {
                self.delivery.on_stopped_due(turn, &mut self.tracks, handle);
            }
            Timer::Streams(handle) => self.serving().resume_pending(turn, handle),
            Timer::Judge => self.on_judge(turn),
            Timer::Trim => self.delivery.on_trim_due(&mut self.tracks),
            Timer::Unauthorized(handle) => turn.on_unauthorized_too_long(handle),
            Timer::Silence(handle) => turn.on_silence_check(handle),
            Timer::Fill(handle, id) => self.serving().on_fill_timeout(turn, (handle, id)),
        }
        self.carry_effects(turn);
    }

    fn on_writable(&mut self, turn: &mut Turn<'_>, handle: Handle, stream: StreamId) {
        let now = turn.now;
        let is_control = turn.with_session(handle, |session, connection| {
            session.handle_writable(now, connection, stream)
        });
        match is_control {
            Some(true) => self.process_session(turn, handle),
            Some(false) => self.serving().resume_stream(turn, handle, stream),
            None => {}
        }
    }
}
