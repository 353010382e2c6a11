//! Fuzzing of a relay with several threads, whose clients, upstream relay and fleet do anything.

#[path = "hostile.rs"]
mod hostile;

use std::sync::Arc;
use std::time::Duration;

use weir_client::target::Target;
use weir_moqt::draft::Draft;
use weir_moqt::name::Namespace;
use weir_quic::{ClientConfig, Limits as QuicLimits};
use weir_relay::registry::simulated::{SimulatedFleet, SimulatedRegistry};
use weir_relay::registry::{Member, Registry as _, RelayId};
use weir_relay::{Config, Gauges, Limits, Relay, Upstream};
use weir_sim::{NodeConfig, NodeId, SERVER_NAME, Sim};

use self::hostile::{Hostile, Input, Place};

/// Plays `input` as the scripts of three clients, of an upstream relay and of a registry, with a byte of 255 between them.
/// The first byte selects the draft, the second one the number of threads, and whether there is an upstream relay, and a
/// fleet. In a fleet, the first client and the upstream relay are the same relay of it, and there is a third one, which
/// is honest. Checks that threads and relays hear only valid messages, and that nothing is left when all are gone.
///
/// # Panics
/// If a check fails.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    let draft = Draft::ALL[usize::from(input.byte()) % Draft::ALL.len()];
    let shape = input.byte();
    let mut scripts = input.0.split(|byte| *byte == 255);
    let mut sim = Sim::new(1);
    let limits = QuicLimits {
        idle_timeout: Duration::from_secs(3),
        ..QuicLimits::default()
    };
    let config = NodeConfig {
        server: Some(sim.server_tls(&[draft.alpn()])),
        limits,
        ..NodeConfig::default()
    };
    let mut relays = sim.add_group(config.clone(), 2 + u16::from(shape & 1), true);
    let upstream = sim.add_node(config.clone());
    let nodes = [(); 3].map(|()| sim.add_node(NodeConfig::default()));
    let client = sim.client_config(&[draft.alpn()]);
    let mut fleet = (shape & 4 == 4).then(|| Fleet::new(&sim, client.clone(), upstream));
    let first = relays[0];
    for &thread in &relays {
        let mut relay = Relay::new(configuration(0));
        if thread == first && shape & 2 == 2 {
            relay.add_upstream(sim.now(), upstream_at(&sim, client.clone(), upstream));
        }
        if let Some(fleet) = fleet.as_ref().filter(|_| thread == first) {
            fleet.join(&sim, &mut relay, (HERE, thread));
        }
        sim.start(thread, relay);
    }
    if let Some(fleet) = &fleet {
        let honest = sim.add_node(config);
        let mut relay = Relay::new(configuration(1));
        fleet.join(&sim, &mut relay, (HONEST, honest));
        sim.start(honest, relay);
        relays.push(honest);
    }
    for &node in &nodes {
        let script = scripts.next().unwrap_or_default();
        let server = (sim.now(), client.clone(), sim.address(first));
        let place = fleet.as_ref().filter(|_| node == nodes[0]).map(|_| PLACE);
        let hostile = Hostile::new(script, Vec::new(), Some(server));
        sim.start(node, hostile.in_fleet(place));
    }
    let place = fleet.as_ref().map(|_| PLACE);
    let hostile = Hostile::new(scripts.next().unwrap_or_default(), Vec::new(), None);
    sim.start(upstream, hostile.in_fleet(place));
    let is_over = |sim: &Sim| nodes.iter().all(|node| !sim.is_busy(*node));
    match &mut fleet {
        Some(fleet) => fleet.play(&mut sim, scripts.next().unwrap_or_default(), is_over),
        None => drop(sim.run_until(LONGEST, is_over)),
    }
    for node in nodes.into_iter().chain([upstream]) {
        sim.kill(node);
    }
    let end = sim.elapsed() + Duration::from_secs(30);
    sim.run_until(end, |_| false);
    for &relay in &relays {
        let gauges = sim.app::<Relay>(relay).gauges();
        assert_eq!(gauges, Gauges::default(), "nothing is left");
    }
}

fn upstream_at(sim: &Sim, client: ClientConfig, node: NodeId) -> Upstream {
    Upstream {
        name: "upstream".to_owned(),
        target: Arc::new(Target::new(sim.address(node), SERVER_NAME, client)),
        seed: 1,
        whereabouts: None,
    }
}

/// A registry, and the hostile relay in it.
struct Fleet {
    registry: SimulatedFleet,
    client: ClientConfig,
    hostile: SimulatedRegistry,
}

impl Fleet {
    fn new(sim: &Sim, client: ClientConfig, hostile: NodeId) -> Self {
        let registry = SimulatedFleet::new(1, Duration::from_millis(20));
        let hostile = registry.join(member(sim, client.clone(), (HOSTILE, hostile)));
        Self {
            registry,
            client,
            hostile,
        }
    }

    fn join(&self, sim: &Sim, relay: &mut Relay, (number, node): (usize, NodeId)) {
        let member = member(sim, self.client.clone(), (number, node));
        let registry = self.registry.join(member);
        relay.join_fleet(sim.now(), relay_id(number), Box::new(registry));
    }

    /// Plays the registry's script, a step in each quarter of a second, until all clients are done.
    fn play(&mut self, sim: &mut Sim, script: &[u8], is_over: impl Fn(&Sim) -> bool) {
        let mut input = Input(script);
        while sim.elapsed() < LONGEST && !is_over(sim) {
            self.step(sim, &mut input);
            let until = sim.elapsed() + Duration::from_millis(250);
            sim.run_until(until, |_| false);
        }
        self.registry.restore_quorum(sim.now());
        for number in [HERE, HOSTILE, HONEST] {
            self.registry.cut_off(relay_id(number), false);
        }
    }

    fn step(&mut self, sim: &Sim, input: &mut Input<'_>) {
        let (step, now) = (input.byte(), sim.now());
        let fields: &[&str] = [&["a"][..], &["a", "b"], &["."], &[]][usize::from(step >> 4 & 3)];
        let namespace = Namespace::new(fields).expect("it is short");
        let whom = relay_id(usize::from(step >> 4 & 3));
        match step % 8 {
            1 | 2 => self.hostile.register(now, &namespace),
            3 => self.hostile.withdraw(now, &namespace),
            4 => self.registry.cut_off(whom, true),
            5 => self.registry.cut_off(whom, false),
            6 => self.registry.lose_quorum(),
            7 => self.registry.restore_quorum(now),
            _ => {}
        }
        while self.hostile.poll(now).is_some() {}
    }
}

fn member(sim: &Sim, client: ClientConfig, (number, node): (usize, NodeId)) -> Member {
    Member {
        id: relay_id(number),
        name: URLS[number].to_owned(),
        target: Arc::new(Target::new(sim.address(node), SERVER_NAME, client)),
    }
}

fn relay_id(number: usize) -> RelayId {
    RelayId(number as u64)
}

/// The numbers of the relays of a fleet: places in [`URLS`].
const HERE: usize = 0;
const HOSTILE: usize = 1;
const HONEST: usize = 2;
/// The URLs of the relays of a fleet, and one more.
const URLS: &[&str] = &["moqt://here", "moqt://hostile", "moqt://honest", "moqt://x"];
const PLACE: Place = Place {
    number: HOSTILE as u64,
    urls: URLS,
};
/// The longest time of the scripts.
const LONGEST: Duration = Duration::from_secs(15);

/// Returns a relay that forgets soon, and has limits that are reached.
fn configuration(identity: u64) -> Config {
    Config {
        identity,
        limits: Limits {
            tracks_max: 4,
            namespaces_per_session_max: 3,
            subscriptions_per_session_max: 4,
            publications_per_session_max: 4,
            subgroups_per_track_max: 4,
            fetches_per_session_max: 2,
            matches_per_prefix_max: 3,
            cache_bytes_max: 4096,
            cache_track_bytes_max: 2048,
            cache_age_max: Duration::from_secs(1),
            rendezvous_max: Duration::from_secs(2),
            registrations_max: 3,
            ..Limits::default()
        },
        ..Config::default()
    }
}
