//! A registry in virtual time. Changes reach each relay after a delay from a seed; relays can be cut off from the registry,
//! and the registry can lose its quorum.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque, btree_map::Entry},
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
    leases: BTreeMap<RelayId, Lease>,
    /// The namespaces of the relays that have a lease.
    registrations: BTreeMap<RelayId, BTreeSet<Namespace>>,
    /// Changes on their way to each relay that the registry reaches, the earliest first.
    inboxes: BTreeMap<RelayId, VecDeque<(Instant, RegistryEvent)>>,
    /// No lease ends before.
    next_end: Option<Instant>,
    /// Relays that cannot reach the registry.
    cut_off: BTreeSet<RelayId>,
    has_quorum: bool,
    /// The longest time until a change reaches a relay.
    delay_max: Duration,
    random: u64,
    /// Number of changes and renewals.
    writes: u64,
}

/// The lease of a relay.
#[derive(Debug)]
struct Lease {
    member: Arc<Member>,
    ends: Instant,
}

impl SimulatedFleet {
    /// Creates an empty registry. A change reaches each relay after up to `delay_max`.
    pub fn new(seed: u64, delay_max: Duration) -> Self {
        let shared = Shared {
            leases: BTreeMap::new(),
            registrations: BTreeMap::new(),
            inboxes: BTreeMap::new(),
            next_end: None,
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
            members: BTreeSet::new(),
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

    /// Gives the quorum back. Every relay has the time of a lease to renew its own.
    pub fn restore_quorum(&self, now: Instant) {
        let mut shared = self.lock();
        shared.has_quorum = true;
        for lease in shared.leases.values_mut() {
            lease.ends = lease.ends.max(now + LEASE);
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

    /// Sends a change to all other relays, each after a delay of its own. Changes do not overtake each other.
    fn send(&mut self, now: Instant, of: RelayId, event: &RegistryEvent) {
        for (&relay, inbox) in &mut self.inboxes {
            if relay == of {
                continue;
            }
            self.random = self.random.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
            let share = f64::from((self.random >> 32) as u32) / f64::from(u32::MAX);
            let arrival = now + self.delay_max.mul_f64(share);
            let arrival = inbox.back().map_or(arrival, |(last, _)| arrival.max(*last));
            inbox.push_back((arrival, event.clone()));
        }
    }

    /// Takes a lease, or extends it.
    fn renew(&mut self, now: Instant, member: &Arc<Member>) {
        self.writes += 1;
        let ends = now + LEASE;
        let member = Arc::clone(member);
        match self.leases.entry(member.id) {
            Entry::Occupied(mut lease) => lease.get_mut().ends = ends,
            Entry::Vacant(free) => {
                let (of, joined) = (member.id, Arc::clone(&member));
                free.insert(Lease { member, ends });
                self.send(now, of, &RegistryEvent::Joined { member: joined });
            }
        }
        self.next_end = Some(self.next_end.map_or(ends, |next| next.min(ends)));
    }

    fn register(&mut self, now: Instant, member: &Arc<Member>, namespace: &Namespace) {
        self.writes += 1;
        let registrations = self.registrations.entry(member.id).or_default();
        if registrations.insert(namespace.clone()) {
            let (namespace, member) = (namespace.clone(), Arc::clone(member));
            let of = member.id;
            self.send(now, of, &RegistryEvent::Found { namespace, member });
        }
    }

    fn withdraw(&mut self, now: Instant, relay: RelayId, namespace: &Namespace) {
        self.writes += 1;
        let registrations = self.registrations.get_mut(&relay);
        if registrations.is_some_and(|all| all.remove(namespace)) {
            let namespace = namespace.clone();
            self.send(now, relay, &RegistryEvent::Lost { namespace, relay });
        }
    }

    /// Ends the leases whose time is over.
    fn end_leases(&mut self, now: Instant) {
        if !self.has_quorum || self.next_end.is_none_or(|next| next > now) {
            return;
        }
        let ended = self.leases.extract_if(.., |_, lease| lease.ends <= now);
        for (relay, _) in ended.collect::<Vec<_>>() {
            for namespace in self.registrations.remove(&relay).into_iter().flatten() {
                self.send(now, relay, &RegistryEvent::Lost { namespace, relay });
            }
            self.send(now, relay, &RegistryEvent::Left { relay });
        }
        self.next_end = self.leases.values().map(|lease| lease.ends).min();
    }
}

/// The registry as one relay of a simulation uses it.
#[derive(Debug)]
pub struct SimulatedRegistry {
    fleet: SimulatedFleet,
    member: Arc<Member>,
    own: BTreeSet<Namespace>,
    /// The registrations that were reported.
    known: BTreeSet<(RelayId, Namespace)>,
    /// The relays that were reported.
    members: BTreeSet<RelayId>,
    events: VecDeque<RegistryEvent>,
    /// When the registry was last looked at.
    looked_at: Option<Instant>,
    /// When the registry was last reached.
    confirmed: Option<Instant>,
    /// When the lease is renewed; `None` while the registry cannot be reached.
    renew_at: Option<Instant>,
    is_stale: bool,
}

impl SimulatedRegistry {
    /// Reports what has changed.
    fn look(&mut self, now: Instant) {
        let fleet = self.fleet.clone();
        let mut shared = fleet.lock();
        shared.end_leases(now);
        let id = self.member.id;
        if !shared.is_reachable(id) {
            shared.inboxes.remove(&id);
            self.renew_at = None;
            let since = *self.confirmed.get_or_insert(now);
            if !self.is_stale && now.saturating_duration_since(since) >= STALE_AFTER {
                self.is_stale = true;
                self.events.push_back(RegistryEvent::Stale);
            }
            return;
        }
        self.confirmed = Some(now);
        match self.renew_at {
            Some(at) if at > now => {}
            Some(_) => {
                self.renew_at = Some(now + RENEWAL);
                shared.renew(now, &self.member);
            }
            None => self.begin(now, &mut shared),
        }
        let inbox = shared.inboxes.entry(id).or_default();
        while let Some((_, event)) = inbox.pop_front_if(|(arrival, _)| *arrival <= now) {
            self.report(event);
        }
        if self.is_stale {
            self.is_stale = false;
            self.events.push_back(RegistryEvent::Current);
        }
    }

    /// Writes everything, and reads everything, after the registry was out of reach.
    fn begin(&mut self, now: Instant, shared: &mut Shared) {
        self.renew_at = Some(now + RENEWAL);
        shared.renew(now, &self.member);
        for namespace in &self.own {
            shared.register(now, &self.member, namespace);
        }
        let registered = shared.registrations.get(&self.member.id).cloned();
        let registered = registered.unwrap_or_default();
        for namespace in registered.difference(&self.own) {
            shared.withdraw(now, self.member.id, namespace);
        }
        shared.inboxes.insert(self.member.id, VecDeque::new());
        let (mut gone, mut left) = (self.known.clone(), self.members.clone());
        let id = self.member.id;
        for (&relay, lease) in shared.leases.iter().filter(|(relay, _)| **relay != id) {
            left.remove(&relay);
            let member = Arc::clone(&lease.member);
            self.report(RegistryEvent::Joined { member });
            let namespaces = shared.registrations.get(&relay);
            for namespace in namespaces.into_iter().flatten() {
                gone.remove(&(relay, namespace.clone()));
                self.report(RegistryEvent::Found {
                    namespace: namespace.clone(),
                    member: Arc::clone(&lease.member),
                });
            }
        }
        for (relay, namespace) in gone {
            self.report(RegistryEvent::Lost { namespace, relay });
        }
        for relay in left {
            self.report(RegistryEvent::Left { relay });
        }
    }

    /// Reports an event, unless it says what was reported before.
    fn report(&mut self, event: RegistryEvent) {
        let is_news = match &event {
            RegistryEvent::Joined { member } => self.members.insert(member.id),
            RegistryEvent::Left { relay } => self.members.remove(relay),
            RegistryEvent::Found { namespace, member } => {
                self.known.insert((member.id, namespace.clone()))
            }
            RegistryEvent::Lost { namespace, relay } => {
                self.known.remove(&(*relay, namespace.clone()))
            }
            RegistryEvent::Stale | RegistryEvent::Current => true,
        };
        if is_news {
            self.events.push_back(event);
        }
    }
}

impl Registry for SimulatedRegistry {
    fn register(&mut self, now: Instant, namespace: &Namespace) {
        self.own.insert(namespace.clone());
        let mut shared = self.fleet.lock();
        if self.renew_at.is_some() && shared.is_reachable(self.member.id) {
            shared.register(now, &self.member, namespace);
        }
    }

    fn withdraw(&mut self, now: Instant, namespace: &Namespace) {
        self.own.remove(namespace);
        let mut shared = self.fleet.lock();
        if shared.is_reachable(self.member.id) {
            shared.withdraw(now, self.member.id, namespace);
        } else {
            // Everything is compared when the registry is reached again.
            self.renew_at = None;
        }
    }

    fn poll(&mut self, now: Instant) -> Option<RegistryEvent> {
        if self.events.is_empty() && self.looked_at.is_none_or(|at| at < now) {
            self.looked_at = Some(now);
            self.look(now);
        }
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        // In virtual time, nobody can wake another node: a registry looks at intervals instead.
        let pause = if self.events.is_empty() {
            LOOK_PAUSE
        } else {
            Duration::ZERO
        };
        self.looked_at.map(|at| at + pause)
    }
}

impl Drop for SimulatedRegistry {
    fn drop(&mut self) {
        // The lease goes on until its end.
        self.fleet.lock().inboxes.remove(&self.member.id);
    }
}

/// The pause between two looks at the registry.
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// Knuth's linear congruential generator; its upper bits are good enough to spread delays.
const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
const INCREMENT: u64 = 1_442_695_040_888_963_407;
