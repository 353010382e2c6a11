//! The fleet: relays that find each other through a registry.
//!
//! The relay registers the namespaces that its clients announce or publish in, and keeps what other relays have registered.
//! When one of its own sessions wants a track of such a namespace, the relay establishes a link to one relay that has it.
//! The link is closed when nothing needs it.
//!
//! A relay serves others of the fleet only from what its own clients publish ([`PeerKind::serves`]), whatever its map of the
//! registry says, and those that were redirected to it (`tree.rs`). So nothing circulates, however old the maps are.

mod state;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use weir_moqt::{error::SessionError, message::Setup, name::Namespace};
use weir_quic::Handle;

pub use self::state::{FleetRelay, FleetState};
use super::{
    Linking, Links,
    parked::Parked,
    tree::{Next, Trees},
    upstreams::Upstreams,
};
use crate::{
    catalogue::Catalogue,
    effect::Effect,
    ids::TrackId,
    registry::{Member, Registry, RegistryEvent, RelayId},
    sessions::peer::PeerKind,
    timers::{Timer, Timers},
    track::Demand,
    turn::Turn,
};

/// What a relay knows of its fleet.
#[derive(Debug)]
pub(super) struct Fleet {
    /// The number of this relay.
    own: RelayId,
    registry: Box<dyn Registry>,
    relays: BTreeMap<RelayId, Known>,
    /// Number of registrations of all other relays.
    registered: usize,
    /// Tracks that wait for the link to a relay.
    waiting: BTreeMap<TrackId, RelayId>,
    pub(super) parked: Parked,
    pub(super) trees: Trees,
    /// Since when the registry cannot be reached.
    stale_since: Option<Instant>,
    /// Whether the timer for links that are no longer needed is set.
    is_armed: bool,
}

/// Another relay of the fleet.
#[derive(Debug)]
struct Known {
    member: Arc<Member>,
    namespaces: BTreeSet<Namespace>,
    link: Option<Link>,
    /// Whether the relay has a lease.
    has_joined: bool,
}

impl Known {
    fn new(member: Arc<Member>) -> Self {
        Self {
            member,
            namespaces: BTreeSet::new(),
            link: None,
            has_joined: false,
        }
    }

    fn is_over(&self) -> bool {
        !self.has_joined && self.namespaces.is_empty() && self.link.is_none()
    }
}

/// The link to another relay.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// Its number among the links to other machines.
    number: usize,
    /// Whether the other relay has sent GOAWAY.
    is_leaving: bool,
    /// Whether nothing needed the link at the last check.
    was_idle: bool,
    /// Whether the link could not be established within [`SLOW_AFTER`].
    is_slow: bool,
}

impl Fleet {
    pub(super) fn register(&mut self, now: Instant, namespace: &Namespace) {
        self.registry.register(now, namespace);
    }

    pub(super) fn withdraw(&mut self, now: Instant, namespace: &Namespace) {
        self.registry.withdraw(now, namespace);
    }

    /// Returns whether a track waits for a link, or to be asked for again.
    pub(super) fn awaits(&self, track: TrackId) -> bool {
        self.waiting.contains_key(&track) || self.trees.is_pausing(track)
    }

    /// Forgets a track that nothing needs any more.
    pub(super) fn forget_track(&mut self, track: TrackId) {
        self.waiting.remove(&track);
        self.trees.forget_track(track);
    }

    /// Returns whether a relay has a lease.
    pub(super) fn has_joined(&self, relay: RelayId) -> bool {
        self.relays
            .get(&relay)
            .is_some_and(|known| known.has_joined)
    }

    /// Returns whether a relay has registered a namespace or a prefix of it.
    pub(super) fn has_registered(&self, relay: RelayId, namespace: &Namespace) -> bool {
        let known = self.relays.get(&relay);
        known.is_some_and(|known| {
            namespace
                .prefixes()
                .any(|it| known.namespaces.contains(&it))
        })
    }

    /// Returns the URL of a relay, without secrets.
    pub(super) fn url(&self, relay: RelayId) -> Option<String> {
        Some(self.relays.get(&relay)?.member.name.clone())
    }

    /// Returns the relay with this URL that can be asked.
    pub(super) fn relay_at(&self, upstreams: &Upstreams, url: &str) -> Option<RelayId> {
        let mut relays = self.relays.iter();
        let found = relays.find(|(id, known)| {
            known.has_joined && known.member.name == url && self.is_usable(upstreams, **id)
        });
        found.map(|(&id, _)| id)
    }

    /// Returns whether a link to a relay can be used, or can be waited for.
    pub(super) fn is_usable(&self, upstreams: &Upstreams, relay: RelayId) -> bool {
        let Some(known) = self.relays.get(&relay) else {
            return false;
        };
        let may_use = |link: Link| !link.is_leaving && !upstreams.is_failing(link.number);
        known.link.is_none_or(may_use)
    }

    /// Returns whether the link to a relay is being established for so long that others are asked first.
    fn is_slow(&self, relay: RelayId) -> bool {
        let known = self.relays.get(&relay);
        known.is_some_and(|known| known.link.is_some_and(|link| link.is_slow))
    }

    /// Returns the relays to ask after one that declined, those with slow links last.
    fn order(&self, relays: &[RelayId], declined: Option<RelayId>) -> Vec<RelayId> {
        let after = declined.and_then(|declined| relays.iter().position(|it| *it == declined));
        let rest = relays[after.map_or(0, |place| place + 1)..].iter();
        let quick = rest.filter(|relay| !self.is_slow(**relay));
        let slow = relays.iter().filter(|relay| self.is_slow(**relay));
        quick.chain(slow).copied().collect()
    }

    /// Begins to establish the link to a relay, unless there is one.
    pub(super) fn open(&mut self, turn: &mut Turn<'_>, upstreams: &mut Upstreams, relay: RelayId) {
        let Some(known) = self.relays.get_mut(&relay) else {
            return;
        };
        if known.link.is_none() {
            known.link = Some(Link {
                number: upstreams.add_of_fleet(turn, self.own, &known.member),
                is_leaving: false,
                was_idle: false,
                is_slow: false,
            });
            let slow_at = turn.now + SLOW_AFTER;
            turn.timers.set(slow_at, Timer::FleetLinkSlow(relay));
        }
        if !self.is_armed {
            self.is_armed = true;
            turn.timers.set(turn.now + IDLE_CHECK, Timer::FleetLinks);
        }
    }

    /// Adds a registration. Returns false if it was known, or if there is no room.
    fn insert(&mut self, turn: &mut Turn<'_>, namespace: &Namespace, member: Arc<Member>) -> bool {
        if member.id == self.own {
            return false;
        }
        let known = self.relays.get(&member.id);
        if known.is_some_and(|known| known.namespaces.contains(namespace)) {
            return false;
        }
        if self.registered >= turn.config.limits.registrations_max {
            turn.counters.registrations_dropped += 1;
            return false;
        }
        self.registered += 1;
        let known = self.relays.entry(member.id);
        let known = known.or_insert_with(|| Known::new(member));
        known.namespaces.insert(namespace.clone())
    }

    /// Adds a relay that has a lease, if there is room.
    fn join(&mut self, turn: &mut Turn<'_>, member: Arc<Member>) {
        if self.relays.len() >= turn.config.limits.registrations_max {
            turn.counters.registrations_dropped += 1;
        } else if member.id != self.own {
            let known = self.relays.entry(member.id);
            known.or_insert_with(|| Known::new(member)).has_joined = true;
        }
    }

    /// Notes that the lease of a relay has ended.
    fn leave(&mut self, relay: RelayId) {
        if let Some(known) = self.relays.get_mut(&relay) {
            known.has_joined = false;
            if known.is_over() {
                self.relays.remove(&relay);
            }
        }
    }

    /// Removes a registration. Returns false if it was not known.
    fn remove(&mut self, namespace: &Namespace, relay: RelayId) -> bool {
        let Some(known) = self.relays.get_mut(&relay) else {
            return false;
        };
        let is_removed = known.namespaces.remove(namespace);
        self.registered -= usize::from(is_removed);
        if known.is_over() {
            self.relays.remove(&relay);
        }
        is_removed
    }
}

impl Links {
    /// Joins a fleet, with a number of this relay.
    pub(crate) fn join_fleet(
        &mut self,
        timers: &mut Timers,
        now: Instant,
        (own, registry): (RelayId, Box<dyn Registry>),
    ) {
        timers.set(now, Timer::Registry);
        self.fleet = Some(Fleet {
            own,
            registry,
            relays: BTreeMap::new(),
            registered: 0,
            waiting: BTreeMap::new(),
            parked: Parked::default(),
            trees: Trees::default(),
            stale_since: Some(now),
            is_armed: false,
        });
    }

    /// Returns what is known of the fleet, if the relay is in one.
    pub(crate) fn fleet_state(&self, now: Instant) -> Option<FleetState> {
        Some(self.fleet.as_ref()?.state(now))
    }

    /// Returns the numbers of other relays of the fleet and of their registrations, and whether these are stale.
    pub(crate) fn fleet_numbers(&self) -> (usize, usize, bool) {
        self.fleet.as_ref().map_or((0, 0, false), Fleet::numbers)
    }

    /// Notes that a session is with another relay of the fleet, if its SETUP says so. Returns false if the session cannot
    /// be served, because it is with this relay itself or has come to the wrong thread; it is then closed.
    pub(crate) fn welcome(&mut self, turn: &mut Turn<'_>, handle: Handle, setup: &Setup) -> bool {
        let Some(relay) = setup.fleet_relay else {
            return true;
        };
        let own = self.fleet.as_ref().map(|fleet| fleet.own.0);
        let reason = if own == Some(relay) {
            "this relay has connected to itself: fleet.url of another relay leads here"
        } else if turn.endpoint.shard().index() != 0 {
            "the first thread serves relays of the fleet"
        } else {
            if let Some(peer) = turn.sessions.get(handle) {
                peer.become_relay();
            }
            if let Some(fleet) = &mut self.fleet {
                fleet.trees.welcome(handle, RelayId(relay));
            }
            return true;
        };
        let code = SessionError::NO_ERROR;
        turn.push(Effect::CloseSession(handle, code, reason.to_owned()));
        false
    }

    /// Returns whether a track waits for a link to a relay of the fleet.
    pub(crate) fn awaits(&self, track: TrackId) -> bool {
        let fleet = self.fleet.as_ref();
        fleet.is_some_and(|fleet| fleet.awaits(track))
    }

    /// Has a track wait no longer for a link that is not established in time.
    pub(crate) fn stop_slow_wait(&mut self, track: TrackId) {
        if let Some(fleet) = &mut self.fleet
            && let Some(&relay) = fleet.waiting.get(&track)
            && fleet.is_slow(relay)
        {
            fleet.waiting.remove(&track);
        }
    }

    /// Forgets a track that nothing needs any more.
    pub(crate) fn forget_track(&mut self, track: TrackId) {
        if let Some(fleet) = &mut self.fleet {
            fleet.forget_track(track);
        }
    }

    /// Returns when the registry is asked for events next, unless it wakes the relay's host.
    pub(crate) fn registry_due(&self) -> Option<Instant> {
        self.fleet.as_ref()?.registry.poll_timeout()
    }

    /// Takes events of the registry, so many at once that others do not wait long. The rest follows in the next turn.
    pub(crate) fn on_registry(&mut self, turn: &mut Turn<'_>, catalogue: &mut Catalogue) {
        let Some(fleet) = &mut self.fleet else {
            return;
        };
        for _ in 0..EVENTS_PER_TURN {
            let Some(event) = fleet.registry.poll(turn.now) else {
                return;
            };
            match event {
                RegistryEvent::Joined { member } => fleet.join(turn, member),
                RegistryEvent::Left { relay } => fleet.leave(relay),
                RegistryEvent::Found { namespace, member } => {
                    let relay = member.id;
                    if fleet.insert(turn, &namespace, member) {
                        catalogue.register(turn, relay, &namespace);
                    }
                }
                RegistryEvent::Lost { namespace, relay } => {
                    if fleet.remove(&namespace, relay) {
                        catalogue.deregister(turn, relay, &namespace);
                    }
                }
                RegistryEvent::Stale => {
                    fleet.stale_since.get_or_insert(turn.now);
                    tracing::warn!(
                        "the registry of the fleet is stale: what it said before counts"
                    );
                }
                RegistryEvent::Current => {
                    fleet.stale_since = None;
                    tracing::info!("the registry of the fleet is up to date");
                }
            }
        }
    }
}

impl Linking<'_> {
    /// Asks the relay of the fleet that this one was redirected to for a track, or else the next one that registered the
    /// namespace, after the one that `declined`. If there is no link to it, the track waits for one. Returns whether a relay was
    /// asked or is waited for.
    pub(crate) fn ask_fleet(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        declined: Option<Handle>,
    ) -> bool {
        let declined = declined.and_then(|handle| self.links.upstreams.relay(handle));
        let (Some(fleet), Some(track)) = (&mut self.links.fleet, self.tracks.get(id)) else {
            return false;
        };
        let demand = self.delivery.demand(id, PeerKind::Fleet);
        if demand.is_unwanted {
            return false;
        }
        let relays = self.catalogue.relays_of(&track.name().namespace);
        let may_follow = fleet.trees.redirected(id).is_some_and(|relay| {
            !fleet.is_slow(relay) && fleet.is_usable(&self.links.upstreams, relay)
        });
        match fleet.trees.next(id, declined, may_follow) {
            Next::Redirected(relay) => {
                if !self.ask_relay(turn, id, relay, demand)
                    && let Some(fleet) = &mut self.links.fleet
                {
                    fleet.trees.pause(turn, id);
                }
                true
            }
            Next::Again => {
                fleet.trees.pause(turn, id);
                true
            }
            Next::Registered(after) => {
                let mut order = fleet.order(&relays, after).into_iter();
                order.any(|relay| self.ask_relay(turn, id, relay, demand))
            }
        }
    }

    /// Handles a link that is not established in time: asks other relays first for the tracks that wait for it.
    pub(crate) fn on_fleet_link_slow(&mut self, turn: &mut Turn<'_>, relay: RelayId) {
        let fleet = self.links.fleet.as_mut();
        let known = fleet.and_then(|fleet| fleet.relays.get_mut(&relay));
        if let Some(link) = known.and_then(|known| known.link.as_mut()) {
            link.is_slow = !self.links.upstreams.is_ready(link.number);
            if link.is_slow {
                self.ask_for_all(turn);
            }
        }
    }

    /// Asks a relay of the fleet for a track, or waits for the link to it. Returns false if the relay cannot be asked.
    pub(super) fn ask_relay(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        relay: RelayId,
        demand: Demand,
    ) -> bool {
        let upstreams = &mut self.links.upstreams;
        let fleet = self.links.fleet.as_mut();
        let Some(fleet) = fleet.filter(|fleet| fleet.is_usable(upstreams, relay)) else {
            return false;
        };
        let link = self.catalogue.fleet_link(relay);
        if let Some(handle) = link {
            if !self.tracks.ask(turn, id, handle, demand) {
                return false;
            }
        } else {
            fleet.open(turn, upstreams, relay);
            fleet.waiting.insert(id, relay);
        }
        fleet.trees.note_asked(id, relay, link.is_some());
        true
    }

    /// Handles a link to a relay of the fleet that was established, or was lost or could not be established. What
    /// waited for it continues.
    pub(crate) fn on_fleet_link(
        &mut self,
        turn: &mut Turn<'_>,
        relay: RelayId,
        link: Option<Handle>,
    ) {
        self.catalogue.set_fleet_link(relay, link);
        let Some(fleet) = &mut self.links.fleet else {
            return;
        };
        if let Some(known) = fleet.relays.get_mut(&relay)
            && let Some(known) = &mut known.link
        {
            known.is_leaving = false;
            known.was_idle &= link.is_none();
            known.is_slow &= link.is_none();
        }
        fleet.waiting.retain(|_, other| *other != relay);
        fleet.parked.unpark(relay);
        self.ask_for_all(turn);
    }

    /// Handles GOAWAY of a relay of the fleet: asks other relays for the tracks that come from it, so that they are not
    /// interrupted.
    pub(crate) fn on_fleet_leaving(&mut self, turn: &mut Turn<'_>, handle: Handle) {
        let Some(relay) = self.links.upstreams.relay(handle) else {
            return;
        };
        self.catalogue.set_fleet_link(relay, None);
        let known = self.links.fleet.as_mut().map(|fleet| &mut fleet.relays);
        if let Some(link) = known.and_then(|relays| relays.get_mut(&relay)?.link.as_mut()) {
            link.is_leaving = true;
        }
        self.ask_for_all(turn);
    }

    /// Returns whether a track comes only from relays of the fleet that have sent GOAWAY.
    pub(crate) fn is_leaving(&mut self, id: TrackId) -> bool {
        let Some(track) = self.tracks.get(id) else {
            return false;
        };
        let publishers = track.publishers().iter();
        let mut sessions = publishers.filter(|it| it.is_established()).peekable();
        let links = &*self.links;
        sessions.peek().is_some() && sessions.all(|publisher| links.is_leaving(publisher.session()))
    }

    /// Closes the links to relays of the fleet that nothing has needed since the last check.
    pub(crate) fn close_idle(&mut self, turn: &mut Turn<'_>) {
        let Some(fleet) = &mut self.links.fleet else {
            return;
        };
        let upstreams = &mut self.links.upstreams;
        let awaited: BTreeSet<RelayId> = fleet.waiting.values().copied().collect();
        let mut is_any_open = false;
        for (&relay, known) in &mut fleet.relays {
            let Some(link) = &mut known.link else {
                continue;
            };
            let handle = self.catalogue.fleet_link(relay);
            let is_idle = match handle {
                Some(handle) => turn.has_no_requests(handle),
                // A link that cannot be established is tried as long as the relay is registered.
                None => !upstreams.is_ready(link.number) && known.namespaces.is_empty(),
            };
            let is_idle = is_idle && !awaited.contains(&relay);
            if is_idle && link.was_idle {
                let connections = upstreams.remove(link.number);
                known.link = None;
                turn.push(Effect::FleetLinkChanged(relay, None));
                for handle in connections {
                    let (code, reason) = (SessionError::NO_ERROR, "nothing needs this link");
                    turn.push(Effect::CloseSession(handle, code, reason.to_owned()));
                }
                continue;
            }
            link.was_idle = is_idle;
            is_any_open = true;
        }
        fleet.relays.retain(|_, known| !known.is_over());
        fleet.is_armed = is_any_open;
        if is_any_open {
            turn.timers.set(turn.now + IDLE_CHECK, Timer::FleetLinks);
        }
    }
}

impl Links {
    fn is_leaving(&self, handle: Handle) -> bool {
        let relay = self.upstreams.relay(handle);
        let known = relay.and_then(|relay| self.fleet.as_ref()?.relays.get(&relay));
        known.is_some_and(|known| known.link.is_some_and(|link| link.is_leaving))
    }
}

impl Turn<'_> {
    fn has_no_requests(&mut self, handle: Handle) -> bool {
        let peer = self.sessions.get(handle);
        peer.is_none_or(|peer| peer.requests().next().is_none())
    }
}

/// Events of the registry that are handled in one turn.
const EVENTS_PER_TURN: usize = 256;
/// How long a link may take to be established, before other relays are asked first. The relay may be dead, which QUIC notices
/// after three seconds.
const SLOW_AFTER: Duration = Duration::from_millis(500);
/// A link that nothing needs is closed at the second check.
const IDLE_CHECK: Duration = Duration::from_secs(5);
