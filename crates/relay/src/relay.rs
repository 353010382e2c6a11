//! The relay as a role: hands the events of its host to the owners that they concern.

use std::{sync::Arc, time::Instant};

use weir_moqt::{draft::Draft, session};
use weir_quic::{App, Endpoint, Event, OriginCounts};

use crate::{
    Authority, Config, Counters, FleetState, Gauges, LinkCredentials, LinkState, Load, Open,
    Overload, Ownership, TrackState, Upstream,
    dispatch::{Owners, fleet_state, link_states, registry_due, track_states},
    effect::Effects,
    registry::{Registry, RelayId},
    sessions::Sessions,
    timers::{Timer, Timers},
    turn::Turn,
};

/// A MOQT relay.
pub struct Relay {
    config: Config,
    authority: Arc<dyn Authority>,
    counters: Counters,
    timers: Timers,
    sessions: Sessions,
    effects: Effects,
    owners: Owners,
}

impl Relay {
    /// Creates a relay without sessions that permits everything.
    pub fn new(config: Config) -> Self {
        Self::with_authority(config, Arc::new(Open))
    }

    /// Creates a relay without sessions, in which `authority` decides who may do what.
    pub fn with_authority(config: Config, authority: Arc<dyn Authority>) -> Self {
        Self {
            sessions: Sessions::new(config.load.clone()),
            config,
            authority,
            counters: Counters::default(),
            timers: Timers::default(),
            effects: Effects::default(),
            owners: Owners::default(),
        }
    }

    /// Counts the sessions of each address together with other relays, so that
    /// [`Limits::sessions_per_address_max`](crate::Limits) holds for all of them.
    #[must_use]
    pub fn with_session_counts(mut self, counts: OriginCounts) -> Self {
        self.sessions.origins = counts;
        self
    }

    /// Shares reserved namespaces with other relays, so that a reservation holds on all of them.
    #[must_use]
    pub fn with_ownership(mut self, ownership: Ownership) -> Self {
        self.sessions.ownership = ownership;
        self
    }

    /// Presents credentials to other relays.
    #[must_use]
    pub fn with_link_credentials(mut self, credentials: Arc<dyn LinkCredentials>) -> Self {
        self.owners.links_mut().set_credentials(credentials);
        self
    }

    /// Returns the counters since the relay was created.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the gauges. Visits every track.
    pub fn gauges(&self) -> Gauges {
        Gauges::of(&self.owners, &self.sessions)
    }

    /// Returns the number of wake-ups that are planned.
    pub fn timers(&self) -> usize {
        self.timers.len()
    }

    /// Returns the number of open sessions in each draft, in the order of [`Draft::ALL`]. Visits every session.
    pub fn sessions_by_draft(&self) -> [u64; Draft::ALL.len()] {
        self.sessions.by_draft()
    }

    /// Returns what sessions did not pass on, including sessions that have ended. Visits every session.
    pub fn session_counters(&self) -> session::Counters {
        self.sessions.session_counters()
    }

    /// Returns the state of every track. Visits all of them.
    pub fn tracks(&self) -> impl Iterator<Item = TrackState<'_>> {
        track_states(&self.owners)
    }

    /// Returns the state of the links to other machines: upstream relays in order of preference, and relays of the fleet.
    pub fn links(&self, now: Instant, endpoint: &mut Endpoint) -> Vec<LinkState> {
        link_states(&self.owners, &self.sessions, now, endpoint)
    }

    /// Returns whether new sessions and requests are refused because of load.
    pub fn is_shedding(&self) -> bool {
        self.sessions.is_shedding()
    }

    /// Returns why new sessions and requests are refused, if they are because of load.
    pub fn overload(&self) -> Option<Overload> {
        self.sessions.shedder.overload()
    }

    /// Adds a relay that is asked for what this one does not have, after those that were added before. Of several threads
    /// with one address, only one may have upstream relays.
    pub fn add_upstream(&mut self, now: Instant, upstream: Upstream) {
        let links = self.owners.links_mut();
        links.add_upstream(&mut self.timers, now, upstream);
    }

    /// Joins a fleet: registers what clients of this relay publish, and asks relays of the fleet for what they have
    /// registered. Of several threads with one address, only the first may join. `own` is the number of this relay in the
    /// registry.
    pub fn join_fleet(&mut self, now: Instant, own: RelayId, registry: Box<dyn Registry>) {
        let links = self.owners.links_mut();
        links.join_fleet(&mut self.timers, now, (own, registry));
    }

    /// Returns what is known of the fleet, if the relay is in one.
    pub fn fleet(&self, now: Instant) -> Option<FleetState> {
        fleet_state(&self.owners, now)
    }

    /// Returns whether the load has to be observed at once, since this many bytes are given out.
    #[inline]
    pub fn is_memory_urgent(&self, heap_bytes: u64) -> bool {
        self.sessions.shedder.is_urgent(heap_bytes)
    }

    /// Observes how the host keeps up. Under too much load, new connections are refused before their handshake, and new
    /// requests with `EXCESSIVE_LOAD` and a retry interval. What is established continues, unless memory runs out: then the
    /// cache is cut, and the sessions that hold the most are closed.
    pub fn observe_load(&mut self, now: Instant, endpoint: &mut Endpoint, load: Load) {
        let (owners, mut turn) = self.turn(now, endpoint);
        turn.observe_load(load);
        turn.note_rules();
        owners.links_mut().note_credentials(&mut turn);
        let excess = turn.sessions.shedder.excess(now, load);
        owners.free_memory(&mut turn, excess);
        owners.process_sessions(&mut turn);
    }

    /// Returns the owners, and what their steps may touch.
    fn turn<'a>(
        &'a mut self,
        now: Instant,
        endpoint: &'a mut Endpoint,
    ) -> (&'a mut Owners, Turn<'a>) {
        let turn = Turn {
            now,
            endpoint,
            config: &self.config,
            authority: &*self.authority,
            counters: &mut self.counters,
            timers: &mut self.timers,
            sessions: &mut self.sessions,
            effects: &mut self.effects,
        };
        (&mut self.owners, turn)
    }
}

impl App for Relay {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        let (owners, mut turn) = self.turn(now, endpoint);
        owners.on_event(&mut turn, event);
        owners.process_sessions(&mut turn);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let due = [self.timers.next(), registry_due(&self.owners)];
        due.into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let (owners, mut turn) = self.turn(now, endpoint);
        // The host reads its sockets before it comes back for the rest.
        turn.endpoint.begin();
        for _ in 0..TIMERS_MAX {
            let Some(timer) = turn.timers.expired(now) else {
                break;
            };
            owners.on_timer(&mut turn, timer);
            if turn.endpoint.has_done_enough() {
                break;
            }
        }
        if registry_due(owners).is_some_and(|at| at <= now) {
            owners.on_timer(&mut turn, Timer::Registry);
        }
        owners.process_sessions(&mut turn);
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let (owners, mut turn) = self.turn(now, endpoint);
        turn.drain();
        owners.process_sessions(&mut turn);
    }

    fn is_finished(&self) -> bool {
        self.sessions.is_finished()
    }
}

/// Timers that one turn handles, so that many at one time do not hold up the packets that arrive.
const TIMERS_MAX: usize = 32;
