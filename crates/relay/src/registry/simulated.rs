//! A registry in virtual time. Changes reach each relay after a delay from a seed; relays can be cut off from the registry,
//! and the registry can lose its quorum.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use weir_moqt::name::Namespace;

use super::{LEASE, Member, RENEWAL, Registry, RegistryEvent, RelayId, STALE_AFTER};

/// The registry that the relays of one simulation share.
#[derive(Clone, Debug)]
pub struct SimulatedFleet {
    shared: Arc<Mutex<Shared>>,
}

/// What the servers of the registry have.
#[derive(Debug)]
struct Shared {
    entries: BTreeMap<(Namespace, RelayId), Entry>,
    /// Relays that cannot reach the registry.
    cut_off: BTreeSet<RelayId>,
    has_quorum: bool,
    /// The longest time until a change reaches a relay.
    delay_max: Duration,
    random: u64,
    /// Number of changes and renewals.
    writes: u64,
}

/// One registration.
#[derive(Debug)]
struct Entry {
    member: Arc<Member>,
    /// When relays see it.
    visible: Instant,
    /// When relays see that it was withdrawn.
    gone: Option<Instant>,
    /// When its lease ends.
    expires: Instant,
}

impl Entry {
    fn is_seen(&self, now: Instant) -> bool {
        self.visible <= now && self.gone.is_none_or(|gone| gone > now) && self.expires > now
    }
}

impl SimulatedFleet {
    /// Creates an empty registry. A change reaches each relay after up to `delay_max`.
    pub fn new(seed: u64, delay_max: Duration) -> Self {
        let shared = Shared {
            entries: BTreeMap::new(),
            cut_off: BTreeSet::new(),
            has_quorum: true,
            delay_max,
            random: seed,
            writes: 0,
        };
        Self {
            shared: Arc::new(Mutex::new(shared)),
        }
    }

    /// Returns the registry as a relay uses it.
    pub fn join(&self, member: Member) -> SimulatedRegistry {
        SimulatedRegistry {
            fleet: self.clone(),
            member: Arc::new(member),
            own: BTreeSet::new(),
            known: BTreeSet::new(),
            events: VecDeque::new(),
            looked_at: None,
            confirmed: None,
            renew_at: None,
            is_stale: true,
        }
    }

    /// Cuts a relay off from the registry, or connects it again.
    pub fn cut_off(&self, relay: RelayId, is_cut_off: bool) {
        let mut shared = self.lock();
        if is_cut_off {
            shared.cut_off.insert(relay);
        } else {
            shared.cut_off.remove(&relay);
        }
    }

    /// Takes away the quorum: the registry takes no changes, and no lease ends.
    pub fn lose_quorum(&self) {
        self.lock().has_quorum = false;
    }

    /// Gives the quorum back. Every relay has the time of a lease to renew its registrations.
    pub fn restore_quorum(&self, now: Instant) {
        let mut shared = self.lock();
        shared.has_quorum = true;
        for entry in shared.entries.values_mut() {
            entry.expires = entry.expires.max(now + LEASE);
        }
    }

    /// Returns the number of changes and renewals that the registry has taken.
    pub fn writes(&self) -> u64 {
        self.lock().writes
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn is_reachable(&self, relay: RelayId) -> bool {
        self.has_quorum && !self.cut_off.contains(&relay)
    }

    /// Returns when a change of this moment reaches the relays.
    fn arrival(&mut self, now: Instant) -> Instant {
        self.random = self.random.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
        let share = f64::from((self.random >> 32) as u32) / f64::from(u32::MAX);
        now + self.delay_max.mul_f64(share)
    }

    fn write(&mut self, now: Instant, member: &Arc<Member>, namespace: &Namespace) {
        self.writes += 1;
        let arrival = self.arrival(now);
        let entry = self.entries.entry((namespace.clone(), member.id));
        let entry = entry.or_insert_with(|| Entry {
            member: Arc::clone(member),
            visible: arrival,
            gone: None,
            expires: now,
        });
        if entry.gone.is_some() || entry.expires <= now {
            entry.visible = arrival;
        }
        entry.gone = None;
        entry.expires = now + LEASE;
    }
}

/// The registry as one relay of a simulation uses it.
#[derive(Debug)]
pub struct SimulatedRegistry {
    fleet: SimulatedFleet,
    member: Arc<Member>,
    own: BTreeSet<Namespace>,
    /// What was reported.
    known: BTreeSet<(Namespace, RelayId)>,
    events: VecDeque<RegistryEvent>,
    /// When the registry was last looked at.
    looked_at: Option<Instant>,
    /// When the registry was last reached.
    confirmed: Option<Instant>,
    /// When the registrations are renewed; `None` while the registry cannot be reached.
    renew_at: Option<Instant>,
    is_stale: bool,
}

impl SimulatedRegistry {
    /// Reports what has changed.
    fn look(&mut self, now: Instant) {
        let fleet = self.fleet.clone();
        let mut shared = fleet.lock();
        if !shared.is_reachable(self.member.id) {
            self.renew_at = None;
            let since = *self.confirmed.get_or_insert(now);
            if !self.is_stale && now.saturating_duration_since(since) >= STALE_AFTER {
                self.is_stale = true;
                self.events.push_back(RegistryEvent::Stale);
            }
            return;
        }
        self.confirmed = Some(now);
        if self.renew_at.is_none_or(|at| at <= now) {
            self.renew_at = Some(now + RENEWAL);
            for namespace in &self.own {
                shared.write(now, &self.member, namespace);
            }
        }
        shared.entries.retain(|_, entry| entry.expires > now);
        for (key, entry) in &shared.entries {
            let is_new = key.1 != self.member.id && entry.is_seen(now);
            if is_new && self.known.insert(key.clone()) {
                self.events.push_back(RegistryEvent::Found {
                    namespace: key.0.clone(),
                    member: Arc::clone(&entry.member),
                });
            }
        }
        let is_gone = |key: &(Namespace, RelayId)| {
            let entry = shared.entries.get(key);
            entry.is_none_or(|entry| !entry.is_seen(now))
        };
        let gone = self.known.extract_if(.., is_gone);
        let lost = gone.map(|(namespace, relay)| RegistryEvent::Lost { namespace, relay });
        self.events.extend(lost);
        if self.is_stale {
            self.is_stale = false;
            self.events.push_back(RegistryEvent::Current);
        }
    }
}

impl Registry for SimulatedRegistry {
    fn register(&mut self, now: Instant, namespace: &Namespace) {
        self.own.insert(namespace.clone());
        let mut shared = self.fleet.lock();
        if shared.is_reachable(self.member.id) {
            shared.write(now, &self.member, namespace);
        }
    }

    fn withdraw(&mut self, now: Instant, namespace: &Namespace) {
        self.own.remove(namespace);
        let mut shared = self.fleet.lock();
        if !shared.is_reachable(self.member.id) {
            return;
        }
        shared.writes += 1;
        let arrival = shared.arrival(now);
        if let Some(entry) = shared.entries.get_mut(&(namespace.clone(), self.member.id)) {
            entry.gone = Some(arrival.max(entry.visible));
        }
    }

    fn poll(&mut self, now: Instant) -> Option<RegistryEvent> {
        if self.events.is_empty() && self.looked_at.is_none_or(|at| at < now) {
            self.looked_at = Some(now);
            self.look(now);
        }
        self.events.pop_front()
    }
}

/// Knuth's linear congruential generator; its upper bits are good enough to spread delays.
const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
const INCREMENT: u64 = 1_442_695_040_888_963_407;
