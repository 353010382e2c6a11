//! What every registry has to do, as two sequences of steps for tests.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use weir_moqt::name::Namespace;

use super::{LEASE, RENEWAL, Registry, RegistryEvent, RelayId, STALE_AFTER};

/// A registry under test, and its time.
pub trait Setting {
    /// Returns the registry as the relay with this number uses it.
    fn join(&mut self, relay: RelayId) -> Box<dyn Registry>;

    /// Lets a short time pass. Returns the time after it.
    fn pass(&mut self) -> Instant;

    /// Takes the registry away from all relays, or gives it back. It may have lost everything meanwhile.
    fn set_reachable(&mut self, is_reachable: bool);
}

/// One relay of the sequence, and what it was told.
struct Participant {
    id: RelayId,
    registry: Box<dyn Registry>,
    known: BTreeSet<(String, u64)>,
    members: BTreeSet<u64>,
    is_current: bool,
    /// How often something was found, and was lost. What was known before counts, too.
    finds: usize,
    losses: usize,
}

impl Participant {
    fn take_events(&mut self, now: Instant) {
        while let Some(event) = self.registry.poll(now) {
            match event {
                RegistryEvent::Joined { member } => {
                    assert_ne!(member.id, self.id, "a relay is not told of itself");
                    self.members.insert(member.id.0);
                }
                RegistryEvent::Left { relay } => {
                    self.members.remove(&relay.0);
                }
                RegistryEvent::Found { namespace, member } => {
                    assert_ne!(member.id, self.id, "a relay is not told of itself");
                    self.known.insert((namespace.to_string(), member.id.0));
                    self.finds += 1;
                }
                RegistryEvent::Lost { namespace, relay } => {
                    let lost = (namespace.to_string(), relay.0);
                    self.known.remove(&lost);
                    self.losses += 1;
                }
                RegistryEvent::Stale => self.is_current = false,
                RegistryEvent::Current => self.is_current = true,
            }
        }
    }
}

/// The relays of the sequence.
struct Scene<'a> {
    setting: &'a mut dyn Setting,
    relays: BTreeMap<u64, Participant>,
    now: Instant,
}

impl<'a> Scene<'a> {
    fn new(setting: &'a mut dyn Setting) -> Self {
        let now = setting.pass();
        Self {
            setting,
            relays: BTreeMap::new(),
            now,
        }
    }

    fn join(&mut self, number: u64) {
        let id = RelayId(number);
        let relay = Participant {
            id,
            registry: self.setting.join(id),
            known: BTreeSet::new(),
            members: BTreeSet::new(),
            is_current: false,
            finds: 0,
            losses: 0,
        };
        self.relays.insert(number, relay);
    }

    fn register(&mut self, number: u64, namespace: &str) {
        let now = self.now;
        if let Some(relay) = self.relays.get_mut(&number) {
            relay.registry.register(now, &space(namespace));
        }
    }

    fn withdraw(&mut self, number: u64, namespace: &str) {
        let now = self.now;
        if let Some(relay) = self.relays.get_mut(&number) {
            relay.registry.withdraw(now, &space(namespace));
        }
    }

    fn pass(&mut self) {
        self.now = self.setting.pass();
        for relay in self.relays.values_mut() {
            relay.take_events(self.now);
        }
    }

    fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.pass();
        }
    }

    /// Waits until a relay knows exactly these registrations.
    fn expect(&mut self, step: &str, number: u64, known: &[(&str, u64)]) {
        let known = known.iter();
        let known: BTreeSet<_> = known
            .map(|&(namespace, relay)| (namespace.to_owned(), relay))
            .collect();
        self.wait_until(step, |relays| relays[&number].known == known);
    }

    /// Waits until a relay knows exactly these others.
    fn expect_members(&mut self, step: &str, number: u64, members: &[u64]) {
        let members: BTreeSet<_> = members.iter().copied().collect();
        self.wait_until(step, |relays| relays[&number].members == members);
    }

    fn wait_until(&mut self, step: &str, is_so: impl Fn(&BTreeMap<u64, Participant>) -> bool) {
        let until = self.now + PATIENCE;
        while !is_so(&self.relays) {
            let known = || -> Vec<_> {
                let relays = self.relays.values();
                relays
                    .map(|relay| (relay.known.len(), relay.known.first()))
                    .collect()
            };
            assert!(self.now < until, "{step}: the relays know {:?}", known());
            self.pass();
        }
    }
}

/// Checks a registry. Takes about half a minute of its time.
///
/// # Panics
/// If the registry does something else.
pub fn check(setting: &mut dyn Setting) {
    let mut scene = Scene::new(setting);
    scene.join(1);
    scene.join(2);
    scene.wait_until("the first relays join", all_are_current);
    scene.expect_members("relays without namespaces are known", 1, &[2]);
    scene.register(1, "x");
    scene.expect("a namespace is found", 2, &[("x", 1)]);
    scene.register(2, "x");
    scene.register(2, "y");
    scene.expect("two relays have it", 1, &[("x", 2), ("y", 2)]);
    let both = [("x", 1), ("x", 2), ("y", 2)];
    scene.join(3);
    scene.wait_until("a relay joins late", all_are_current);
    assert_eq!(
        scene.relays[&3].known.len(),
        3,
        "everything comes before `Current`"
    );
    scene.expect("and knows everything", 3, &both);
    scene.withdraw(1, "x");
    scene.expect("one withdraws it", 3, &[("x", 2), ("y", 2)]);
    scene.register(1, "x");
    scene.expect("and registers it again", 3, &both);
    let losses = scene.relays[&3].losses;
    scene.wait(LEASE + RENEWAL);
    assert_eq!(scene.relays[&3].losses, losses, "leases are renewed");
    scene.expect("after the time of a lease", 3, &both);
    drop(scene.relays.remove(&2));
    scene.expect("a relay is gone", 3, &[("x", 1)]);
    scene.expect_members("with its lease", 1, &[3]);
    scene.join(4);
    scene.register(4, "w");
    scene.expect("another one has come", 3, &[("w", 4), ("x", 1)]);
    scene.expect_members("and is known", 3, &[1, 4]);

    scene.setting.set_reachable(false);
    let all_are_stale =
        |relays: &BTreeMap<u64, Participant>| relays.values().all(|it| !it.is_current);
    scene.wait_until("the registry cannot be reached", all_are_stale);
    scene.register(1, "z");
    drop(scene.relays.remove(&4));
    scene.wait(STALE_AFTER);
    scene.expect("what is known stays", 3, &[("w", 4), ("x", 1)]);
    scene.setting.set_reachable(true);
    let back_at = scene.now;
    scene.wait_until("the registry is back", all_are_current);
    let took = scene.now.saturating_duration_since(back_at);
    assert!(took < LEASE, "current {took:?} after the registry was back");
    let known = &scene.relays[&3].known;
    assert!(
        known.contains(&("w".to_owned(), 4)),
        "what may still be there stays for the time of a lease: {known:?}"
    );
    scene.expect("with what came meanwhile", 3, &[("x", 1), ("z", 1)]);
    scene.expect_members("without the relay that left", 3, &[1]);
    scene.wait(LEASE + RENEWAL);
    scene.expect("and stays", 3, &[("x", 1), ("z", 1)]);
}

/// Checks a registry with many namespaces of one relay, of which half as many as `changes` come and go each second, for a time.
///
/// # Panics
/// If the registry loses something, reports something twice, or falls behind so far that a lease ends.
pub fn check_many(
    setting: &mut dyn Setting,
    namespaces: usize,
    (changes, time): (usize, Duration),
) {
    let name = |number: usize| format!("n{number}");
    let mut scene = Scene::new(setting);
    scene.join(1);
    scene.join(2);
    scene.wait_until("both join", all_are_current);
    for number in 0..namespaces {
        scene.register(1, &name(number));
    }
    scene.wait_until("all are found", |relays| {
        relays[&2].known.len() == namespaces
    });
    let (began, mut gone) = (scene.now, 0);
    while scene.now < began + time {
        scene.pass();
        let milliseconds = scene.now.saturating_duration_since(began).as_millis();
        let due = usize::try_from(milliseconds).unwrap_or_default() * changes / 2000;
        while gone < due {
            scene.withdraw(1, &name(gone));
            scene.register(1, &name(namespaces + gone));
            gone += 1;
        }
    }
    let left: BTreeSet<_> = (gone..gone + namespaces)
        .map(|number| (name(number), 1))
        .collect();
    scene.wait_until("all changes are known", |relays| relays[&2].known == left);
    let relay = &scene.relays[&2];
    assert_eq!((relay.finds, relay.losses), (namespaces + gone, gone));
    assert!(all_are_current(&scene.relays));
}

fn all_are_current(relays: &BTreeMap<u64, Participant>) -> bool {
    relays.values().all(|relay| relay.is_current)
}

fn space(field: &str) -> Namespace {
    Namespace::new([field]).expect("one short field")
}

/// How long a registry may take for a step.
const PATIENCE: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weir_client::target::Target;
    use weir_quic::{
        ClientConfig,
        tls::{ClientTls, Trust},
    };

    use super::{
        super::{Member, simulated::SimulatedFleet},
        *,
    };
    use crate::tests::epoch;

    /// A registry in virtual time.
    struct Virtual {
        fleet: SimulatedFleet,
        now: Instant,
    }

    impl Setting for Virtual {
        fn join(&mut self, relay: RelayId) -> Box<dyn Registry> {
            let client = ClientConfig {
                tls: ClientTls::new(Trust::Anyone, &["moqt-18"]).unwrap(),
                web_transport: None,
            };
            let target = Target::new(([127, 0, 0, 1], 4443).into(), "localhost", client);
            let name = relay.to_string();
            let target = Arc::new(target);
            let id = relay;
            Box::new(self.fleet.join(Member { id, name, target }))
        }

        fn pass(&mut self) -> Instant {
            self.now += Duration::from_millis(50);
            self.now
        }

        fn set_reachable(&mut self, is_reachable: bool) {
            if is_reachable {
                self.fleet.restore_quorum(self.now);
            } else {
                self.fleet.lose_quorum();
            }
        }
    }

    #[test]
    fn the_simulated_registry_does_what_a_registry_has_to_do() {
        for seed in 0..20 {
            let fleet = SimulatedFleet::new(seed, Duration::from_millis(500));
            check(&mut Virtual {
                fleet,
                now: epoch(),
            });
        }
    }

    #[test]
    fn ten_thousand_namespaces_change_five_hundred_times_a_second() {
        let fleet = SimulatedFleet::new(3, Duration::from_millis(500));
        let mut setting = Virtual {
            fleet: fleet.clone(),
            now: epoch(),
        };
        check_many(&mut setting, 10_000, (500, Duration::from_secs(10)));
        // Two relays renew their leases, and each change is one message.
        let writes = fleet.writes();
        assert!((15_000..15_020).contains(&writes), "{writes}");
    }

    #[test]
    fn a_relay_that_is_cut_off_is_stale_and_its_registrations_end() {
        let fleet = SimulatedFleet::new(7, Duration::from_millis(500));
        let mut setting = Virtual {
            fleet: fleet.clone(),
            now: epoch(),
        };
        let mut scene = Scene::new(&mut setting);
        scene.join(1);
        scene.join(2);
        scene.register(1, "x");
        scene.expect("found", 2, &[("x", 1)]);
        fleet.cut_off(RelayId(1), true);
        scene.wait_until("cut off", |relays| !relays[&1].is_current);
        scene.expect("the lease ends", 2, &[]);
        assert!(scene.relays[&2].is_current);
        fleet.cut_off(RelayId(1), false);
        scene.expect("it is back", 2, &[("x", 1)]);
        assert!(scene.relays[&1].is_current);
    }

    #[test]
    fn what_is_withdrawn_while_the_registry_is_out_of_reach_is_gone_afterwards() {
        let fleet = SimulatedFleet::new(7, Duration::from_millis(20));
        let mut setting = Virtual {
            fleet: fleet.clone(),
            now: epoch(),
        };
        let mut scene = Scene::new(&mut setting);
        scene.join(1);
        scene.join(2);
        scene.register(1, "x");
        scene.register(1, "y");
        scene.expect("found", 2, &[("x", 1), ("y", 1)]);
        fleet.cut_off(RelayId(1), true);
        scene.withdraw(1, "x");
        fleet.cut_off(RelayId(1), false);
        scene.register(2, "z");
        scene.expect("time goes on", 1, &[("z", 2)]);
        scene.expect("it is back before its lease ends", 2, &[("y", 1)]);
    }
}
