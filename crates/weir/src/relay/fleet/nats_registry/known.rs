//! What the registry has of other relays.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use weir_moqt::name::Namespace;
use weir_relay::registry::{LEASE, Member, RegistryEvent, RelayId};

/// The leases and registrations of other relays. A registration counts while its relay has a lease.
#[derive(Default)]
pub(super) struct Known {
    /// The registrations, by key.
    registrations: BTreeMap<String, (Namespace, RelayId)>,
    /// The relays with a lease, by its key.
    relays: BTreeMap<String, Arc<Member>>,
    /// Keys of entries that could not be read.
    ignored: BTreeSet<String>,
}

impl Known {
    /// Returns whether an entry is known.
    pub(super) fn has(&self, key: &str) -> bool {
        self.registrations.contains_key(key) || self.relays.contains_key(key)
    }

    /// Returns whether an entry could not be read.
    pub(super) fn ignores(&self, key: &str) -> bool {
        self.ignored.contains(key)
    }

    /// Notes that an entry cannot be read at present.
    pub(super) fn ignore(&mut self, key: String) {
        self.ignored.insert(key);
    }

    /// Adds a relay with a lease. Returns what is found by that.
    pub(super) fn add_relay(&mut self, key: String, member: &Arc<Member>) -> Vec<RegistryEvent> {
        self.ignored.remove(&key);
        self.relays.insert(key, Arc::clone(member));
        let joined = RegistryEvent::Joined {
            member: Arc::clone(member),
        };
        let found = |namespace| RegistryEvent::Found {
            namespace,
            member: Arc::clone(member),
        };
        let found = self.namespaces_of(member.id).map(found);
        std::iter::once(joined).chain(found).collect()
    }

    /// Adds a registration. Returns what is found by that.
    pub(super) fn add(
        &mut self,
        key: String,
        namespace: Namespace,
        relay: RelayId,
    ) -> Option<RegistryEvent> {
        let named = (namespace.clone(), relay);
        self.registrations.insert(key, named);
        let member = Arc::clone(self.member(relay)?);
        Some(RegistryEvent::Found { namespace, member })
    }

    /// Removes an entry. Returns what is lost by that.
    pub(super) fn remove(&mut self, key: &str) -> Vec<RegistryEvent> {
        self.ignored.remove(key);
        if let Some(member) = self.relays.remove(key) {
            let relay = member.id;
            let lost = |namespace| RegistryEvent::Lost { namespace, relay };
            let lost = self.namespaces_of(relay).map(lost);
            return lost.chain([RegistryEvent::Left { relay }]).collect();
        }
        let Some((namespace, relay)) = self.registrations.remove(key) else {
            return Vec::new();
        };
        let lost = RegistryEvent::Lost { namespace, relay };
        let counted = self.member(relay).map(|_| lost);
        counted.into_iter().collect()
    }

    /// Removes all entries but those with the keys `seen`. Returns what is lost by that.
    pub(super) fn remove_all_but(&mut self, seen: &BTreeSet<String>) -> Vec<RegistryEvent> {
        let keys = self.relays.keys().chain(self.registrations.keys());
        let gone = keys.filter(|key| !seen.contains(*key));
        let gone: Vec<_> = gone.cloned().collect();
        self.ignored.retain(|key| seen.contains(key));
        gone.iter().flat_map(|key| self.remove(key)).collect()
    }

    fn member(&self, relay: RelayId) -> Option<&Arc<Member>> {
        self.relays.values().find(|member| member.id == relay)
    }

    fn namespaces_of(&self, relay: RelayId) -> impl Iterator<Item = Namespace> {
        let all = self.registrations.values();
        let of = all.filter(move |(_, other)| *other == relay);
        of.map(|(namespace, _)| namespace.clone())
    }
}

/// What is still awaited after the servers were reached again: entries that they have lost, and leases that expired meanwhile.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    /// The keys that the servers have told.
    told: BTreeSet<String>,
    until: Option<Instant>,
}

impl Awaited {
    /// Notes an entry. Returns whether it counts at once. A lease that has expired is awaited like one that is not told.
    pub(super) fn note(&mut self, key: &str, has_expired: bool) -> bool {
        if has_expired {
            self.told.remove(key);
        } else {
            self.told.insert(key.to_owned());
        }
        !has_expired
    }

    /// Notes that the servers have told everything that they have: what is missing is awaited for the time of a lease. Returns
    /// false if that time has begun before.
    pub(super) fn start(&mut self, now: Instant) -> bool {
        let is_first = self.until.is_none();
        self.until.get_or_insert(now + LEASE);
        is_first
    }

    /// Returns whether nothing is awaited any more.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// Returns the keys that the servers have told.
    pub(super) fn told(&self) -> &BTreeSet<String> {
        &self.told
    }
}

#[cfg(test)]
mod tests {
    use weir_quic::{
        ClientConfig,
        tls::{ClientTls, Trust},
    };

    use super::*;
    use weir_client::target::Target;

    fn member(number: u64) -> Arc<Member> {
        let client = ClientConfig {
            tls: ClientTls::new(Trust::Anyone, &["moqt-18"]).unwrap(),
            web_transport: None,
        };
        let target = Target::new(([127, 0, 0, 1], 4443).into(), "localhost", client);
        Arc::new(Member {
            id: RelayId(number),
            name: number.to_string(),
            target: Arc::new(target),
        })
    }

    fn add(known: &mut Known, namespace: &str, relay: u64) -> String {
        let key = format!("{namespace}.{relay}");
        let namespace = Namespace::new([namespace]).unwrap();
        said(known.add(key, namespace, RelayId(relay)))
    }

    fn said(events: impl IntoIterator<Item = RegistryEvent>) -> String {
        let words = events.into_iter().map(|event| match event {
            RegistryEvent::Joined { member } => format!("+{}", member.name),
            RegistryEvent::Left { relay } => format!("-{}", relay.0),
            RegistryEvent::Found { namespace, member } => format!("+{namespace}@{}", member.name),
            RegistryEvent::Lost { namespace, relay } => format!("-{namespace}@{}", relay.0),
            RegistryEvent::Stale | RegistryEvent::Current => String::new(),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_is_missing_after_an_interruption_is_awaited_for_a_lease() {
        let now = weir_net::clock::now();
        let mut known = Known::default();
        for relay in [1, 2, 3] {
            let _not_yet = add(&mut known, "a", relay);
            let _found = known.add_relay(relay.to_string(), &member(relay));
        }
        let mut awaited = Awaited::default();
        for key in ["1", "2", "a.1", "a.2", "a.3"] {
            assert!(awaited.note(key, false), "{key} counts");
        }
        // Two leases expired while no relay could renew them, and one of the relays is still there.
        assert!(!awaited.note("1", true) && !awaited.note("2", true));
        assert!(awaited.start(now) && !awaited.start(now + LEASE / 2));
        assert!(awaited.note("1", false));
        assert!(!awaited.is_over(now + LEASE / 2) && awaited.is_over(now + LEASE));
        let lost = said(known.remove_all_but(awaited.told()));
        assert_eq!(lost, "-a@2 -2 -a@3 -3", "what nobody wrote again");
    }

    #[test]
    fn a_registration_counts_while_its_relay_has_a_lease() {
        let mut known = Known::default();
        assert_eq!(add(&mut known, "a", 1), "", "no lease yet");
        assert_eq!(add(&mut known, "b", 2), "");
        let lease = said(known.add_relay("1".to_owned(), &member(1)));
        assert_eq!(lease, "+1 +a@1");
        assert_eq!(add(&mut known, "c", 1), "+c@1");
        assert_eq!(said(known.remove("b.2")), "", "nobody knew it");
        assert_eq!(said(known.remove("1")), "-a@1 -c@1 -1");
        assert_eq!(said(known.remove("a.1")), "", "it is lost already");
        let lease = said(known.add_relay("1".to_owned(), &member(1)));
        assert_eq!(lease, "+1 +c@1");
        known.ignore("bad".to_owned());
        assert!(known.ignores("bad") && known.has("c.1") && known.has("1"));
        let seen = BTreeSet::from(["1".to_owned()]);
        assert_eq!(said(known.remove_all_but(&seen)), "-c@1");
        assert!(!known.ignores("bad") && !known.has("c.1") && known.has("1"));
        known.ignore("2".to_owned());
        assert_eq!(said(known.add_relay("2".to_owned(), &member(2))), "+2");
        assert!(known.has("2") && !known.ignores("2"), "it can be read now");
    }
}
