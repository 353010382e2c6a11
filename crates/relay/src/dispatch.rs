//! Dispatch: hands events and timers to the owners that they concern, and the effects of each owner to the others.

mod closing;
mod inspection;
mod requests;

use std::collections::VecDeque;

pub use self::inspection::TrackState;
pub(crate) use self::inspection::{fleet_state, link_states, registry_due, track_states};
use weir_moqt::{
    data::ObjectDatagram,
    error::SessionError,
    message::Setup,
    name::{FullTrackName, Namespace},
    session::{self, RequestId, StreamEnd},
};
use weir_quic::{Event, Handle};
use weir_transport::{Direction, StreamId};

use crate::{
    catalogue::{
        Catalogue, Offering,
        walks::{self, Steps, Walk},
    },
    delivery::Delivery,
    effect::Effect,
    fetch::{Fetches, Serving},
    ids::{RequestKey, TrackId},
    links::{Linking, Links},
    registry::RelayId,
    sessions::{greedy::Greedy, peer::Purpose},
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
    /// Sessions that are to be closed because they hold the most.
    greedy: Greedy,
    /// Sessions that are gone, with their requests that have not been ended yet.
    ending: VecDeque<(Handle, VecDeque<(RequestId, Purpose)>)>,
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
            Event::Readable { handle, stream } if turn.leaves_unread(handle, stream) => {}
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
        self.end_later(turn, handle, peer.into_requests().into_iter().collect());
    }

    /// Handles all events of a session, delivers what arrived with them, and sets the session's timer.
    fn process_session(&mut self, turn: &mut Turn<'_>, handle: Handle) {
        turn.sessions.note_processed(handle);
        while let Some(event) = turn.poll_event(handle) {
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
            E::Done { id, done } => {
                self.links.note_done(turn, handle, &done);
                self.tracks.on_publish_done(turn, (handle, id), done);
            }
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
                self.on_lost(turn, handle, &violation.text());
            }
            E::Namespace { id, suffix } => {
                self.linking().on_namespace(turn, (handle, id), &suffix);
            }
            E::NamespaceDone { id, suffix } => {
                self.linking()
                    .on_namespace_done(turn, (handle, id), &suffix);
            }
            // A client that sent GOAWAY ends its requests itself.
            E::GoAway(_) => self.linking().on_link_leaving(turn, handle),
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
            Timer::Unanswered(track) => self.linking().on_unanswered(turn, track),
            Timer::UnansweredFetch(handle, id) => self.serving().on_unanswered(turn, (handle, id)),
            Timer::TrackStatus(handle, id) => self.catalogue.on_unanswered(turn, (handle, id)),
            Timer::Delivery(handle) => self.delivery.on_deadline(turn, &mut self.tracks, handle),
            Timer::Upstream(number) => self.links.connect(turn, number),
            Timer::LinkReplaced(number) => self.linking().on_overlap_over(turn, number),
            Timer::Registry => self.links.on_registry(turn, &mut self.catalogue),
            Timer::FleetLinkSlow(relay) => self.linking().on_fleet_link_slow(turn, relay),
            Timer::FleetLinks => self.linking().close_idle(turn),
            Timer::Redirected(track) => {
                if self.links.end_redirect_pause(turn, track) {
                    self.linking().ask_next(turn, track);
                }
            }
            Timer::Awaited(track) => self.linking().on_await_over(turn, track),
            Timer::Ring(number) => self.links.probe(turn, number),
            Timer::InterestsRefused => self.linking().send_interests_again(turn),
            Timer::Interests => self.linking().review_interests(turn),
            Timer::Cache => self.tracks.on_cache_due(turn),
            Timer::Fetch(handle, id) => self.serving().serve(turn, (handle, id)),
            Timer::Walks => self.on_walks(turn),
            Timer::Stopped(handle) => {
                self.delivery.on_stopped_due(turn, &mut self.tracks, handle);
            }
            Timer::Streams(handle) => self.serving().resume_pending(turn, handle),
            Timer::Verifying(handle) => {
                turn.end_pause(handle);
                self.process_session(turn, handle);
            }
            Timer::Judge => self.on_judge(turn),
            Timer::Greedy => self.close_greedy(turn),
            Timer::Ending => self.end_requests(turn),
            Timer::Trim => self.delivery.on_trim_due(turn, &mut self.tracks),
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

    /// Handles `STOP_SENDING` of a stream.
    fn on_stopped(&mut self, turn: &mut Turn<'_>, handle: Handle, stream: StreamId, code: u64) {
        let now = turn.now;
        let is_control = turn.with_session(handle, |session, connection| {
            session.handle_stopped(now, connection, stream, code)
        });
        match is_control {
            Some(true) => self.process_session(turn, handle),
            Some(false) => {
                if self.serving().on_stopped(turn, handle, stream) {
                    turn.counters.streams_stopped += 1;
                } else {
                    self.delivery.note_stopped(turn, handle, stream);
                }
                turn.note_reset(handle);
            }
            None => {}
        }
    }

    /// Carries out the effects of a step, in order, including the effects that these cause.
    fn carry_effects(&mut self, turn: &mut Turn<'_>) {
        while let Some(effect) = turn.effects.pop_front() {
            self.carry(turn, effect);
        }
    }

    fn carry(&mut self, turn: &mut Turn<'_>, effect: Effect) {
        match effect {
            Effect::CloseSession(handle, code, reason) => {
                self.close_session(turn, handle, code, &reason);
            }
            Effect::DrainContinues => turn.continue_drain(),
            Effect::DrainOver => turn.end_drain(),
            Effect::RequestEnded(handle, id, purpose) => self.on_ended(turn, (handle, id), purpose),
            Effect::UpdateFailed(handle, id, code) => self.fail_update(turn, (handle, id), code),
            Effect::NamespaceAnnounced(namespace, handle) => {
                self.linking().on_announced(turn, namespace, handle);
            }
            Effect::NamespaceWithdrawn(namespace) => {
                self.links.withdraw(turn, &self.catalogue, &namespace);
            }
            Effect::NamespaceRegistered(namespace) => {
                self.linking().on_registered(turn, &namespace);
            }
            Effect::FleetLinkChanged(relay, link) => self.on_fleet_link(turn, relay, link),
            Effect::FallbackFound(handle) => self.linking().on_fallback(turn, handle),
            Effect::LinkReplaced(old, new) => self.linking().on_link_replaced(turn, old, new),
            Effect::FallbackLost(handle) => self.linking().on_fallback_lost(turn, handle),
            Effect::PrefixWanted(kind, prefix) => {
                self.linking().on_prefix_wanted(turn, (kind, prefix));
            }
            Effect::PrefixUnwanted(kind, prefix) => {
                self.linking().on_prefix_unwanted(turn, (kind, prefix));
            }
            Effect::TrackWanted {
                track,
                by,
                new_group,
            } => self.linking().on_wanted(turn, track, by, new_group),
            Effect::NewGroupWanted(track, group) => self.tracks.request_group(turn, track, group),
            Effect::DemandChanged(track) => self.linking().on_demand_changed(turn, track),
            Effect::Established(track) => {
                // One copy is enough.
                let fallbacks = self.catalogue.fallbacks();
                self.tracks.cancel_asked(turn, track, fallbacks);
                self.delivery.admit_pending(turn, &mut self.tracks, track);
            }
            Effect::Published { track, is_new } => self.on_published(turn, track, is_new),
            Effect::OfferAwaited(track) => self.offering().offer_awaited(turn, track),
            Effect::PublisherGone(track, publisher, code) => {
                self.on_publisher_gone(turn, track, publisher, code);
            }
            Effect::LinksUnserved(track) => self.linking().end_unserved(turn, track),
            Effect::SubscriptionsAnswered(track) => {
                self.serving().on_subscriptions_answered(turn, track);
            }
            Effect::MaybeDrained(track, handle, id) => {
                self.delivery.end_if_drained(turn, track, handle, id);
            }
            Effect::LogRead(track, log) => {
                self.delivery.trim_subgroup(&mut self.tracks, track, log);
            }
            Effect::Malformed(track, publisher) => self.on_malformed(turn, track, publisher),
            Effect::Released(track) => self.forget_if_unused(turn, track),
        }
    }

    /// Continues what requests ask for under their prefixes.
    fn on_walks(&mut self, turn: &mut Turn<'_>) {
        self.catalogue.on_walks_due();
        let mut work = 0;
        while work < walks::WORK_PER_TURN
            && let Some((walk, from)) = self.catalogue.take_walk()
        {
            let steps = match &walk {
                Walk::Prefix(id) => self.offering().send_matches(turn, *id, &from),
                Walk::Parked => self.permit_parked(turn, from),
                Walk::Announcer(..)
                | Walk::Waiting(_)
                | Walk::Moving { .. }
                | Walk::Announced(_)
                | Walk::Interests
                | Walk::Found(_) => self.linking().step(turn, &walk, from),
            };
            work += steps.work + 1;
            self.catalogue.walk_on(turn, walk, steps);
        }
        self.catalogue.arm_walks(turn);
    }

    /// Handles a track that a session published, and offers it to the sessions with a matching SUBSCRIBE_TRACKS.
    fn on_published(&mut self, turn: &mut Turn<'_>, id: TrackId, is_new: bool) {
        if is_new {
            self.offering().offer_all(turn, id);
        }
        self.linking().offer(turn, id);
        self.linking().end_unserved(turn, id);
    }

    /// Handles a link to a relay of the fleet that was established, or was lost or could not be established. What waited
    /// for it continues.
    fn on_fleet_link(&mut self, turn: &mut Turn<'_>, relay: RelayId, link: Option<Handle>) {
        self.linking().on_fleet_link(turn, relay, link);
        let start = walks::start(&Namespace::EMPTY);
        if let Some(start) = self.catalogue.begin_walk(turn, &Walk::Parked, start) {
            let steps = self.permit_parked(turn, start);
            self.catalogue.walk_on(turn, Walk::Parked, steps);
        }
    }

    /// Continues the next requests that have waited for a link.
    fn permit_parked(&mut self, turn: &mut Turn<'_>, from: FullTrackName) -> Steps {
        for number in 0..walks::PARKED_MAX {
            let Some((key, request)) = self.links.take_unparked() else {
                return Steps {
                    rest: None,
                    work: number * walks::PARKED_WORK,
                };
            };
            if let Some(peer) = turn.sessions.get(key.0) {
                peer.end_wait(key.1);
            }
            self.on_permitted(turn, key, request);
            turn.forget_expiry_if_over(key.0, key.1);
        }
        Steps {
            rest: Some(from),
            work: walks::PARKED_MAX * walks::PARKED_WORK,
        }
    }
}
