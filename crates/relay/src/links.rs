//! Links: sessions with other relays that this relay exchanges tracks with.
//!
//! A link is a MOQT session, either with another thread of the process (`peer_threads.rs`) or with an upstream relay on
//! another machine (`upstreams.rs`). Nothing above this module distinguishes them. A track crosses a link once, however
//! many clients of the other relay subscribe to it.
//!
//! Every thread has a link to all others, and announces to them what its own clients publish. Upstream relays are asked
//! for what no client and no other thread has, and are sent the namespaces that those publish. What came over a link is
//! not passed on over a link of the same kind ([`PeerKind::serves`]), so nothing circulates. One thread owns the links to
//! upstream relays: it announces the empty namespace to the other threads, which then ask it for what nobody announced.
//! So a process has one copy of a track, whatever its number of threads. The same thread has the links to relays of its
//! fleet (`fleet.rs`), which find each other through a registry.

mod asking;
mod fleet;
mod interests;
mod parked;
mod peer_threads;
mod renewal;
mod rings;
mod tree;
mod upstreams;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use weir_moqt::{
    error::{PublishDoneCode, ResetCode},
    limits::Limits,
    message::{MESSAGE_BYTES_MAX, PublishDone, RequestError, RequestOk},
    name::{FullTrackName, Namespace},
    parameter::Parameters,
    session::Request,
};
use weir_quic::Handle;

use self::{fleet::Fleet, interests::Interests, rings::Probe, upstreams::Upstreams};
pub use self::{
    fleet::{FleetRelay, FleetState},
    upstreams::{LinkCredentials, LinkState, Upstream, Whereabouts},
};
use crate::{
    Config,
    catalogue::{
        Catalogue,
        walks::{self, Steps, Walk},
    },
    delivery::{Delivery, Scope},
    ids::{RequestKey, TrackId},
    sessions::peer::{PeerKind, Purpose},
    timers::{Timer, Timers},
    track::Tracks,
    turn::Turn,
};

/// The established links, and what was announced over them.
#[derive(Debug, Default)]
pub(crate) struct Links {
    ready: Vec<(PeerKind, Handle)>,
    /// Namespaces announced over links of a kind, with the relay's own PUBLISH_NAMESPACE requests for them.
    announced: BTreeMap<(PeerKind, Namespace), Vec<RequestKey>>,
    /// Tracks published with PUBLISH that upstream relays may ask for, by their namespace.
    published: BTreeMap<Namespace, BTreeSet<TrackId>>,
    /// Tracks that links were asked to wait for a short time ago.
    awaited: BTreeSet<TrackId>,
    interests: Interests,
    upstreams: Upstreams,
    fleet: Option<Fleet>,
}

/// The links, and what is exchanged over them.
pub(crate) struct Linking<'a> {
    pub(crate) links: &'a mut Links,
    pub(crate) catalogue: &'a mut Catalogue,
    pub(crate) delivery: &'a mut Delivery,
    pub(crate) tracks: &'a mut Tracks,
}

impl Links {
    /// Adds an upstream relay, to be asked after those that were added before.
    pub(crate) fn add_upstream(&mut self, timers: &mut Timers, now: Instant, upstream: Upstream) {
        self.upstreams.add(timers, now, upstream);
    }

    /// Returns whether no link is established.
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Returns the links to other machines.
    pub(crate) fn states(&self) -> impl Iterator<Item = (Option<Handle>, LinkState)> {
        self.upstreams.states()
    }

    /// Returns the established links to other machines.
    pub(crate) fn established(&self) -> impl Iterator<Item = Handle> {
        let links = self.ready.iter();
        links
            .filter(|(kind, _)| kind.is_remote_link())
            .map(|&(_, handle)| handle)
    }

    /// Returns whether links may be asked to wait for a publisher of a track. If so, the next time is after a pause, since
    /// not every relay waits.
    fn may_await(&mut self, turn: &mut Turn<'_>, track: TrackId) -> bool {
        let may_await = self.awaited.insert(track);
        if may_await {
            let again = turn.now + AWAIT_PAUSE;
            turn.timers.set(again, Timer::Awaited(track));
        }
        may_await
    }

    /// Handles the end of the pause before links may be asked again to wait for a track.
    fn end_await_pause(&mut self, track: TrackId) {
        self.awaited.remove(&track);
    }

    /// Starts to connect to an upstream relay whose timer is due.
    pub(crate) fn connect(&mut self, turn: &mut Turn<'_>, number: usize) {
        self.upstreams.connect(turn, number);
    }

    /// Asks an upstream relay whether requests return to this relay.
    pub(crate) fn probe(&mut self, turn: &mut Turn<'_>, number: usize) {
        self.upstreams.probe(turn, number);
    }

    /// Handles the answer to such a question: closes the link if the upstream relays form a ring.
    pub(crate) fn on_probe_answered(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        ok: &RequestOk,
    ) {
        if Probe::new(turn.config.identity).is_own(ok) {
            self.upstreams.on_ring(turn, handle);
        }
    }

    /// Returns the answer to a TRACK_STATUS request that this relay itself sent, and that came back.
    pub(crate) fn answer_probe(turn: &Turn<'_>, track: &FullTrackName) -> Option<RequestOk> {
        Probe::new(turn.config.identity).answer(track)
    }

    /// Returns whether a request is another relay's question whether its requests return to it. It needs no rights.
    pub(crate) fn is_ring_probe(request: &Request) -> bool {
        matches!(request, Request::TrackStatus(status) if rings::is_probe(&status.track))
    }

    /// Begins the session of a link whose handshake is complete. Returns false if the connection is no link.
    pub(crate) fn on_connected(&mut self, turn: &mut Turn<'_>, handle: Handle) -> bool {
        let connection = turn.endpoint.connection(turn.now, handle);
        if let Some(thread) = connection.and_then(|connection| connection.peer_thread()) {
            turn.on_peer_thread_connected(handle, thread);
            return true;
        }
        self.upstreams.on_connected(turn, handle)
    }

    /// Handles the refusal of a request that the relay sent over a link for itself. `what` is its kind.
    pub(crate) fn on_rejected(
        &mut self,
        turn: &mut Turn<'_>,
        (handle, id): RequestKey,
        (what, error): (&str, &RequestError),
    ) {
        if self.note_refusal(turn, handle, what, error) {
            return;
        }
        turn.counters.link_requests_refused += 1;
        let upstream = self.upstreams.name(handle).unwrap_or_default();
        let (code, reason) = (error.code, error.reason.escape_debug());
        tracing::info!(upstream, id = id.0, %code, "refused by the upstream relay: {reason}");
    }

    /// Returns whether upstream relays are told of a namespace by this one.
    fn is_announced(&self, namespace: &Namespace) -> bool {
        let name = (PeerKind::Upstream, namespace.clone());
        self.announced.contains_key(&name)
    }

    fn is_used(&self, turn: &Turn<'_>, kind: PeerKind) -> bool {
        match kind {
            PeerKind::Client | PeerKind::Relay | PeerKind::Child | PeerKind::Fleet => false,
            PeerKind::Sibling => turn.has_peer_threads(),
            PeerKind::Upstream => !self.upstreams.is_empty() || self.fleet.is_some(),
        }
    }

    fn ready(&self, kind: PeerKind) -> Vec<Handle> {
        let links = self.ready.iter().filter(|(other, _)| *other == kind);
        links.map(|&(_, handle)| handle).collect()
    }

    fn is_ready(&self, handle: Handle) -> bool {
        self.ready.iter().any(|&(_, other)| other == handle)
    }

    /// Announces a namespace of a session of the kind `from` over all links that it is passed on over, unless it was
    /// announced already. What is announced to upstream relays is registered in the fleet, too.
    pub(crate) fn announce(&mut self, turn: &mut Turn<'_>, from: PeerKind, namespace: &Namespace) {
        for kind in ANNOUNCED_TO {
            let name = (kind, namespace.clone());
            if !from.serves(kind) || !self.is_used(turn, kind) || self.announced.contains_key(&name)
            {
                continue;
            }
            self.announced.insert(name, Vec::new());
            if kind == PeerKind::Upstream
                && let Some(fleet) = &mut self.fleet
            {
                fleet.register(turn.now, namespace);
            }
            for handle in self.ready(kind) {
                self.announce_to(turn, (kind, handle), namespace);
            }
        }
    }

    fn announce_to(
        &mut self,
        turn: &mut Turn<'_>,
        (kind, handle): (PeerKind, Handle),
        namespace: &Namespace,
    ) {
        let sent = turn.with_session(handle, |session, connection| {
            session.publish_namespace(connection, namespace.clone(), Parameters::default())
        });
        let Some(Ok(request)) = sent else {
            turn.counters.link_requests_unsent += 1;
            return;
        };
        turn.insert_request((handle, request), Purpose::Announcement);
        let announcements = self.announced.entry((kind, namespace.clone()));
        announcements.or_default().push((handle, request));
    }

    /// Withdraws the announcements of a namespace over links that no session announces it for any more.
    pub(crate) fn withdraw(
        &mut self,
        turn: &mut Turn<'_>,
        catalogue: &Catalogue,
        namespace: &Namespace,
    ) {
        for kind in ANNOUNCED_TO {
            let is_published = kind == PeerKind::Upstream && self.published.contains_key(namespace);
            if is_published || catalogue.is_announced_for(namespace, kind) {
                continue;
            }
            if let Some(announcements) = self.announced.remove(&(kind, namespace.clone())) {
                end(turn, announcements);
                if kind == PeerKind::Upstream {
                    self.review_later(turn);
                    if let Some(fleet) = &mut self.fleet {
                        fleet.withdraw(turn.now, namespace);
                    }
                }
            }
        }
    }
}

impl Linking<'_> {
    /// Handles the SETUP of the relay behind a new link: announces and offers everything that is passed on over it. A
    /// relay of the fleet that connected asks for what it wants.
    pub(crate) fn on_ready(&mut self, turn: &mut Turn<'_>, handle: Handle) {
        let kind = turn.kind(handle);
        if kind == PeerKind::Client {
            return;
        }
        self.links.ready.push((kind, handle));
        self.walk(turn, Walk::Announced(handle));
        match kind {
            PeerKind::Client | PeerKind::Relay | PeerKind::Child => {}
            PeerKind::Sibling => {
                let tracks: Vec<_> = self.tracks.under(&Namespace::EMPTY).collect();
                for track in tracks {
                    self.offer_to(turn, track, handle);
                }
            }
            PeerKind::Upstream | PeerKind::Fleet => self.links.upstreams.on_ready(turn, handle),
        }
    }

    /// Announces the next namespaces over a new link, from one on.
    fn announce_next(&mut self, turn: &mut Turn<'_>, handle: Handle, from: &Namespace) -> Steps {
        let kind = turn.kind(handle);
        let announced = self.links.announced.range((kind, from.clone())..);
        let announced = announced.take_while(|((other, _), _)| *other == kind);
        let mut next: Vec<_> = announced.take(walks::NOTIFICATIONS_MAX + 1).collect();
        let rest = (next.len() > walks::NOTIFICATIONS_MAX).then(|| next.pop());
        let rest = rest
            .flatten()
            .map(|((_, namespace), _)| walks::start(namespace));
        // Those that were announced meanwhile were announced over this link, too.
        let is_new = |requests: &[RequestKey]| requests.iter().all(|(link, _)| *link != handle);
        let next = next.into_iter().filter(|(_, requests)| is_new(requests));
        let next: Vec<_> = next.map(|((_, namespace), _)| namespace.clone()).collect();
        let work = next.len() * walks::NOTIFICATION_WORK;
        for namespace in next {
            self.links.announce_to(turn, (kind, handle), &namespace);
        }
        Steps { rest, work }
    }

    /// Handles a link that can be asked for namespaces that no session announced: asks it for the tracks that are waited
    /// for.
    pub(crate) fn on_fallback(&mut self, turn: &mut Turn<'_>, handle: Handle) {
        let is_first = self.catalogue.fallbacks().is_empty();
        let rank = self.links.upstreams.rank(handle);
        self.catalogue.insert_fallback(rank, handle);
        self.watch_link(turn, handle);
        if is_first && turn.kind(handle) == PeerKind::Upstream {
            // The other threads ask this one.
            let everything = Namespace::EMPTY;
            self.links.announce(turn, PeerKind::Upstream, &everything);
        }
        self.ask_for_all(turn);
    }

    /// Handles a link that cannot be asked any more for namespaces that no session announced.
    pub(crate) fn on_fallback_lost(&mut self, turn: &mut Turn<'_>, handle: Handle) {
        if !self.catalogue.remove_fallback(handle) {
            return;
        }
        self.unwatch_link(turn, handle);
        if self.catalogue.fallbacks().is_empty() {
            let everything = (PeerKind::Sibling, Namespace::EMPTY);
            if let Some(announcements) = self.links.announced.remove(&everything) {
                end(turn, announcements);
            }
        }
    }

    /// Handles the loss of a connection, which may be that of a link.
    pub(crate) fn on_lost(&mut self, turn: &mut Turn<'_>, handle: Handle, reason: &str) {
        if self.links.is_ready(handle) {
            self.links.ready.retain(|&(_, other)| other != handle);
            for announcements in self.links.announced.values_mut() {
                announcements.retain(|&(other, _)| other != handle);
            }
        }
        self.links.upstreams.on_lost(turn, handle, reason);
        if let Some(fleet) = &mut self.links.fleet {
            fleet.trees.forget_session(handle);
        }
        self.on_fallback_lost(turn, handle);
    }

    /// Offers a track that a session publishes to the other threads, and announces its namespace to upstream relays.
    pub(crate) fn offer(&mut self, turn: &mut Turn<'_>, id: TrackId) {
        for handle in self.links.ready(PeerKind::Sibling) {
            self.offer_to(turn, id, handle);
        }
        if !self.links.is_used(turn, PeerKind::Upstream) {
            return;
        }
        if let Some(track) = self.tracks.get(id)
            && track.is_published_for(PeerKind::Upstream)
        {
            let namespace = track.name().namespace.clone();
            let tracks = self.links.published.entry(namespace.clone());
            tracks.or_default().insert(id);
            self.links.announce(turn, PeerKind::Sibling, &namespace);
        }
    }

    fn offer_to(&mut self, turn: &mut Turn<'_>, id: TrackId, handle: Handle) {
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        if track.is_published_for(PeerKind::Sibling) && !self.delivery.has_subscriber(id, handle) {
            // Objects are forwarded until the other relay reports that it has no subscriber, so subscribers that wait
            // there miss none. If the offer cannot be sent, the other relay can still subscribe.
            let _offered = self
                .delivery
                .publish(turn, (id, track), handle, &Parameters::default());
        }
    }

    /// Withdraws the namespace of a track that no session publishes any more, if that was its last track.
    pub(crate) fn withdraw_unpublished(&mut self, turn: &mut Turn<'_>, id: TrackId) {
        if self.links.published.is_empty() {
            return;
        }
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        if track.is_published_for(PeerKind::Upstream) {
            return;
        }
        let namespace = &track.name().namespace;
        let Some(tracks) = self.links.published.get_mut(namespace) else {
            return;
        };
        tracks.remove(&id);
        if tracks.is_empty() {
            self.links.published.remove(namespace);
            self.links.withdraw(turn, self.catalogue, namespace);
        }
    }

    /// Subscribes over links to a track that other sessions publish as well, if the relays behind the links announced
    /// it: each relay passes on only what its own clients publish.
    fn ask(&mut self, turn: &mut Turn<'_>, id: TrackId) {
        if self.links.ready.is_empty() {
            return;
        }
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        let namespace = &track.name().namespace;
        for handle in self.catalogue.announcers_of(turn, namespace) {
            if self.links.is_ready(handle) {
                let demand = self.delivery.demand(id, turn.kind(handle));
                self.tracks.ask(turn, id, handle, demand);
            }
        }
    }

    /// Ends the subscriptions of links to a track that no publisher serves them any more. Other relays may still have
    /// the track, and each finds out for itself whether it has ended.
    pub(crate) fn end_unserved(&mut self, turn: &mut Turn<'_>, id: TrackId) {
        for kind in SERVED_TO {
            let has_some = |&(other, _): &(PeerKind, Handle)| {
                other == kind || (other, kind) == (PeerKind::Relay, PeerKind::Child)
            };
            if !self.links.ready.iter().any(has_some) {
                continue;
            }
            let Some(track) = self.tracks.get(id) else {
                return;
            };
            if track.is_sent_for(kind) {
                continue;
            }
            let done = PublishDone::new(MOVED, "no session here publishes it any more");
            let awaits = PeerKind::Fleet.serves(kind) && self.links.awaits(id);
            let is_asking = track.is_asking_for(kind) || awaits;
            self.delivery.end(turn, id, Scope::Kind(kind), &done);
            if !is_asking {
                self.delivery.refuse_pending_links(turn, id, kind);
            }
        }
    }
}

/// The kinds of links that namespaces are announced over.
const ANNOUNCED_TO: [PeerKind; 2] = [PeerKind::Sibling, PeerKind::Upstream];
/// The kinds of sessions that are served only while some publisher serves them.
const SERVED_TO: [PeerKind; 4] = [
    PeerKind::Sibling,
    PeerKind::Upstream,
    PeerKind::Relay,
    PeerKind::Child,
];

/// Ends the relay's own announcements.
fn end(turn: &mut Turn<'_>, announcements: Vec<RequestKey>) {
    for request in announcements {
        if turn.remove_request(request).is_some() {
            turn.cancel(request, ResetCode::CANCELLED);
        }
    }
}

/// The PUBLISH_DONE code over a link if no session publishes the track that the link is served from.
const MOVED: PublishDoneCode = PublishDoneCode::GOING_AWAY;

/// Returns whether a PUBLISH_DONE over a link does not end the track itself: the other relay has lost its publisher, or
/// this relay fell too far behind or lost its rights.
pub(crate) fn is_moved(code: PublishDoneCode) -> bool {
    code == MOVED || code == PublishDoneCode::TOO_FAR_BEHIND || renewal::is_loss_of_rights(code)
}

/// Returns the limits of a session with another relay. It carries the requests of all clients of that relay, and has to
/// fit whatever that relay accepted.
fn link_limits(config: &Config) -> Limits {
    let limits = &config.session_limits;
    let tracks = config.limits.tracks_max.saturating_mul(2);
    let requests = tracks.saturating_add(config.limits.namespaces_max);
    Limits {
        requests_max: limits.requests_max.max(requests),
        requests_local_max: limits.requests_local_max.max(requests),
        streams_max: limits.streams_max.max(requests),
        outgoing_bytes_max: limits.outgoing_bytes_max.max(OUTGOING_BYTES_MAX),
        incomplete_bytes_max: limits.incomplete_bytes_max.max(OUTGOING_BYTES_MAX),
        message_bytes_max: MESSAGE_BYTES_MAX,
        object_header_bytes_max: limits
            .object_header_bytes_max
            .saturating_add(HEADER_GROWTH_BYTES_MAX),
        ..limits.clone()
    }
}

/// The pause before links are asked again for a track that subscribers wait for.
const AWAIT_PAUSE: Duration = Duration::from_secs(1);
/// How much longer the fields before an object's payload may be than those that the publisher sent. The relay writes in
/// full the fields that the publisher left out or encoded as differences.
const HEADER_GROWTH_BYTES_MAX: usize = 64;
/// Bytes of control messages that may be queued on one stream to another relay, and of those that may be incomplete on
/// all streams from it.
const OUTGOING_BYTES_MAX: usize = 8 << 20;
