//! The relay's state, for operators: gauges, and the state of each track.

use std::time::Instant;

use weir_moqt::{location::Location, name::FullTrackName};
use weir_quic::Endpoint;

use super::Owners;
use crate::{FleetState, Gauges, LinkState, sessions::Sessions};

/// Returns when the registry of the fleet is asked for events next, if nobody wakes the host before.
pub(crate) fn registry_due(owners: &Owners) -> Option<Instant> {
    owners.links.registry_due()
}

/// The state of a track.
#[derive(Clone, Debug, PartialEq)]
pub struct TrackState<'a> {
    /// Its name.
    pub name: &'a FullTrackName,
    /// Number of sessions that the track comes from.
    pub publishers: usize,
    /// Number of established subscriptions.
    pub subscribers: usize,
    /// Number of requests that wait for a publisher.
    pub waiting: usize,
    /// The largest known location.
    pub largest: Option<Location>,
    /// Number of links between relays of the fleet that the track passes to this one; 0 if it does not come from the fleet.
    pub depth: usize,
    /// Bytes of subgroups that some subscriber has not read.
    pub log_bytes: u64,
}

impl Gauges {
    /// Measures all gauges. Visits every track.
    pub(crate) fn of(owners: &Owners, sessions: &Sessions) -> Self {
        let totals = owners.delivery.totals();
        let (cache_objects, cache_bytes) = owners.tracks.cached();
        let (fleet_relays, fleet_namespaces, is_stale) = owners.links.fleet_numbers();
        let mut gauges = Self {
            sessions: sessions.len() as u64,
            lag_bytes: owners.delivery.lag_bytes(),
            tracks: owners.tracks.len() as u64,
            namespaces: owners.catalogue.client_namespaces() as u64,
            prefixes: owners.catalogue.prefixes_len() as u64,
            tracks_resting: owners.tracks.resting_len() as u64,
            fetches: owners.fetches.served_len() as u64,
            fetches_upstream: owners.fetches.upstream_len() as u64,
            cache_objects,
            cache_bytes,
            crossings: totals.siblings as u64,
            subscriptions: totals.clients as u64,
            waiting: totals.pending as u64,
            fleet_relays: fleet_relays as u64,
            fleet_namespaces: fleet_namespaces as u64,
            fleet_stale: u64::from(is_stale),
            fleet_served: sessions.relays().count() as u64,
            fleet_lag_bytes: sessions
                .relays()
                .map(|handle| owners.delivery.lag_of(handle))
                .sum(),
            links: owners.links.established().count() as u64,
            link_subscriptions: owners
                .links
                .established()
                .map(|handle| sessions.sources_of(handle) as u64)
                .sum(),
            ..Self::default()
        };
        for (id, track) in owners.tracks.iter() {
            let depth = owners.links.hops(id, track).len() as u64;
            gauges.fleet_depth = gauges.fleet_depth.max(depth);
            gauges.subgroups += track.subgroups().len() as u64;
            gauges.log_bytes += track.log_bytes();
        }
        gauges
    }
}

/// Returns what is known of the fleet, if the relay is in one.
pub(crate) fn fleet_state(owners: &Owners, now: Instant) -> Option<FleetState> {
    owners.links.fleet_state(now)
}

/// Returns the state of the links to other machines.
pub(crate) fn link_states(
    owners: &Owners,
    sessions: &Sessions,
    now: Instant,
    endpoint: &mut Endpoint,
) -> Vec<LinkState> {
    let mut states = Vec::new();
    for (handle, mut state) in owners.links.states() {
        if let Some(handle) = handle
            && let Some(connection) = endpoint.connection(now, handle)
        {
            let stats = connection.stats();
            state.bytes_received = stats.bytes_received;
            state.round_trip = Some(stats.round_trip);
            state.subscriptions = sessions.sources_of(handle) as u64;
            state.objects += sessions.objects_of(handle);
        }
        states.push(state);
    }
    states
}

/// Returns the state of every track. Visits all of them.
pub(crate) fn track_states(owners: &Owners) -> impl Iterator<Item = TrackState<'_>> {
    owners.tracks.iter().map(|(id, track)| {
        let (subscribers, waiting) = owners.delivery.lens(id);
        TrackState {
            name: track.name(),
            publishers: track.publishers().len(),
            subscribers,
            waiting,
            largest: track.largest(),
            depth: owners.links.hops(id, track).len(),
            log_bytes: track.log_bytes(),
        }
    })
}
