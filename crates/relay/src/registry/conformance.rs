//! What every registry has to do, as one sequence of steps for tests.

use std::{
    collections::BTreeMap,
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
    known: Vec<(String, u64)>,
    is_current: bool,
    /// How often something was lost.
    losses: usize,
}

impl Participant {
    fn take_events(&mut self, now: Instant) {
        while let Some(event) = self.registry.poll(now) {
            match event {
                RegistryEvent::Found { namespace, member } => {
                    assert_ne!(member.id, self.id, "a relay is not told of itself");
                    let found = (namespace.to_string(), member.id.0);
                    if !self.known.contains(&found) {
                        self.known.push(found);
                        self.known.sort();
                    }
                }
                RegistryEvent::Lost { namespace, relay } => {
                    let lost = (namespace.to_string(), relay.0);
                    self.known.retain(|known| *known != lost);
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

impl Scene<'_> {
    fn join(&mut self, number: u64) {
        let id = RelayId(number);
        let relay = Participant {
            id,
            registry: self.setting.join(id),
            known: Vec::new(),
            is_current: false,
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
        let known: Vec<_> = known
            .iter()
            .map(|&(namespace, relay)| (namespace.to_owned(), relay))
            .collect();
        self.wait_until(step, |relays| relays[&number].known == known);
    }

    fn wait_until(&mut self, step: &str, is_so: impl Fn(&BTreeMap<u64, Participant>) -> bool) {
        let until = self.now + PATIENCE;
        while !is_so(&self.relays) {
            let known: Vec<_> = self.relays.values().map(|relay| &relay.known).collect();
            assert!(self.now < until, "{step}: the relays know {known:?}");
            self.pass();
        }
    }
}

/// Checks a registry. Takes about half a minute of its time.
///
/// # Panics
/// If the registry does something else.
pub fn check(setting: &mut dyn Setting) {
    let now = setting.pass();
    let relays = BTreeMap::new();
    let mut scene = Scene {
        setting,
        relays,
        now,
    };
    scene.join(1);
    scene.join(2);
    let all_are_current =
        |relays: &BTreeMap<u64, Participant>| relays.values().all(|it| it.is_current);
    scene.wait_until("the first relays join", all_are_current);
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

    scene.setting.set_reachable(false);
    let all_are_stale =
        |relays: &BTreeMap<u64, Participant>| relays.values().all(|it| !it.is_current);
    scene.wait_until("the registry cannot be reached", all_are_stale);
    scene.register(1, "z");
    scene.wait(STALE_AFTER);
    scene.expect("what is known stays", 3, &[("x", 1)]);
    scene.setting.set_reachable(true);
    scene.wait_until("the registry is back", all_are_current);
    scene.expect("with what came meanwhile", 3, &[("x", 1), ("z", 1)]);
    scene.wait(LEASE + RENEWAL);
    scene.expect("and stays", 3, &[("x", 1), ("z", 1)]);
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
    fn a_relay_that_is_cut_off_is_stale_and_its_registrations_end() {
        let fleet = SimulatedFleet::new(7, Duration::from_millis(500));
        let mut setting = Virtual {
            fleet: fleet.clone(),
            now: epoch(),
        };
        let now = setting.now;
        let mut scene = Scene {
            setting: &mut setting,
            relays: BTreeMap::new(),
            now,
        };
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
}
