//! The stage of a story: a relay, the probe and its bystander.

use std::time::{Duration, Instant};

use weir_client::target::Target;
use weir_moqt::message::Setup;
use weir_probe::{Bystander, Case, Config, Edition, Kind, Outcome, Probe, Scout, Verdict};
use weir_quic::{
    App, ClientConfig, Limits,
    web_transport::{Offer, Request},
};
use weir_relay::Relay;
use weir_sim::{NodeConfig, NodeId, SERVER_NAME, Sim};

/// Returns the seed of this run.
pub(crate) fn seed() -> u64 {
    let seed = std::env::var("WEIR_SEED").ok();
    let seed = seed.map_or(7, |seed| seed.parse().expect("WEIR_SEED is a number"));
    println!("WEIR_SEED={seed}");
    seed
}

/// What a run of the probe showed.
pub(crate) struct Shown {
    pub(crate) sim: Sim,
    pub(crate) relay: NodeId,
    pub(crate) probe: NodeId,
    bystander: NodeId,
    begin: Instant,
}

/// Returns the edition that a relay of these protocols chooses, or why there is none.
pub(crate) fn preferred(
    protocols: &[&'static str],
    is_web_transport: bool,
) -> Result<Edition, String> {
    let mut sim = Sim::new(seed());
    let node = relay_node(
        &mut sim,
        Relay::new(weir_relay::Config::default()),
        protocols,
        Limits::default(),
    );
    let target = target(&sim, node, &Edition::alpns(), is_web_transport);
    let scout = client(&mut sim);
    let (begin, limit) = (sim.now(), Duration::from_secs(10));
    sim.start(scout, Scout::new(target, begin, begin + limit / 2));
    sim.run_until(limit, |sim| sim.app::<Scout>(scout).is_finished());
    let found = sim.app::<Scout>(scout).found();
    found
        .cloned()
        .unwrap_or_else(|| Err("it does not end".to_owned()))
}

/// Adds a relay that offers these protocols.
fn relay_node(
    sim: &mut Sim,
    relay: impl App + 'static,
    protocols: &[&'static str],
    limits: Limits,
) -> NodeId {
    let server = sim
        .server_tls(&[protocols, &[weir_h3::ALPN]].concat())
        .with_web_transport(Offer {
            protocols: protocols.iter().map(|&one| one.to_owned()).collect(),
            ..Offer::default()
        });
    let node = sim.add_node(NodeConfig {
        limits,
        server: Some(server),
        ..NodeConfig::default()
    });
    sim.start(node, relay);
    node
}

/// Runs the cases of an edition against a relay in virtual time.
pub(crate) fn run(
    seed: u64,
    relay: impl App + 'static,
    edition: Edition,
    cases: Vec<Case>,
    is_web_transport: bool,
) -> Shown {
    let limits = Limits::default();
    run_within(limits, seed, relay, edition, cases, is_web_transport)
}

/// Does the same with other limits of the relay's connections.
pub(crate) fn run_within(
    limits: Limits,
    seed: u64,
    relay: impl App + 'static,
    edition: Edition,
    cases: Vec<Case>,
    is_web_transport: bool,
) -> Shown {
    let mut sim = Sim::new(seed);
    let node = relay_node(&mut sim, relay, &Edition::alpns(), limits);
    let target = target(&sim, node, &[edition.alpn()], is_web_transport);
    let (one, other) = (client(&mut sim), client(&mut sim));
    let begin = sim.instant(Duration::from_secs(1));
    let config = config(target.clone(), edition, begin, seed);
    sim.start(
        other,
        Bystander::new(target, edition, "bystander", sim.now()),
    );
    sim.start(one, Probe::new(config, cases, |_, _| {}));
    let limit = Duration::from_hours(10);
    sim.run_until(limit, |sim| sim.app::<Probe>(one).is_finished());
    sim.shutdown(other);
    sim.run_until(limit, |sim| sim.app::<Bystander>(other).is_finished());
    Shown {
        sim,
        relay: node,
        probe: one,
        bystander: other,
        begin,
    }
}

/// Runs cases against a relay that is shut down 200 ms after the first one begins. Returns how long the relay stays after
/// that, and its counters.
pub(crate) fn run_and_leave(
    seed: u64,
    relay: Relay,
    edition: Edition,
    cases: Vec<Case>,
) -> (Duration, weir_relay::Counters) {
    let mut sim = Sim::new(seed);
    let node = relay_node(&mut sim, relay, &Edition::alpns(), Limits::default());
    let (one, other) = (client(&mut sim), client(&mut sim));
    let begin = sim.instant(Duration::from_secs(1));
    let target = target(&sim, node, &[edition.alpn()], false);
    let config = config(target.clone(), edition, begin, seed);
    let bystander = Bystander::new(target, edition, "bystander", sim.now());
    sim.start(other, bystander);
    sim.start(one, Probe::new(config, cases, |_, _| {}));
    sim.run_until(Duration::from_millis(1200), |_| false);
    sim.shutdown(node);
    let left = sim.now();
    sim.run_until(Duration::from_mins(10), |sim| {
        sim.app::<Relay>(node).is_finished()
    });
    assert!(sim.app::<Relay>(node).is_finished());
    let counters = sim.app::<Relay>(node).counters();
    (sim.now().duration_since(left), counters)
}

fn config(target: Target, edition: Edition, begin: Instant, seed: u64) -> Config {
    Config {
        target,
        edition,
        patience: Duration::from_secs(5),
        quiet: Duration::from_millis(300),
        begin,
        namespace: "probe".to_owned(),
        seed,
    }
}

fn client(sim: &mut Sim) -> NodeId {
    sim.add_node(NodeConfig {
        limits: Limits {
            keep_alive: Some(Duration::from_secs(5)),
            ..Limits::default()
        },
        ..NodeConfig::default()
    })
}

fn target(sim: &Sim, relay: NodeId, protocols: &[&'static str], is_web_transport: bool) -> Target {
    let (protocols, web_transport, setup) = if is_web_transport {
        let request = Request {
            authority: "relay.example".to_owned(),
            path: "/".to_owned(),
            protocols: protocols.iter().map(|&one| one.to_owned()).collect(),
            origin: None,
        };
        (WEB_TRANSPORT, Some(request), Setup::default())
    } else {
        let setup = Setup {
            path: Some("/".to_owned()),
            authority: Some("relay.example:4443".to_owned()),
            ..Setup::default()
        };
        (protocols, None, setup)
    };
    let client = ClientConfig {
        web_transport,
        ..sim.client_config(protocols)
    };
    Target {
        setup,
        ..Target::new(sim.address(relay), SERVER_NAME, client)
    }
}

/// The protocol of connections that carry WebTransport.
const WEB_TRANSPORT: &[&str] = &[weir_h3::ALPN];

impl Shown {
    /// Returns all cases with their outcomes.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = (&Case, &Outcome)> {
        let probe = self.sim.app::<Probe>(self.probe);
        probe.cases().iter().zip(probe.outcomes())
    }

    /// Returns the cases that failed, each with its reason.
    pub(crate) fn failed(&self) -> Vec<String> {
        let failed = self
            .outcomes()
            .filter_map(|(case, outcome)| match &outcome.verdict {
                Verdict::Failed {
                    is_unreached,
                    expected,
                    found,
                } => Some(format!(
                    "{}: {}expected {expected}: {found}",
                    case.name,
                    if *is_unreached { "not reached: " } else { "" }
                )),
                Verdict::Passed | Verdict::Skipped(_) => None,
            });
        failed.collect()
    }

    /// Returns the names of the cases that passed.
    pub(crate) fn passed(&self) -> Vec<&str> {
        let passed = self
            .outcomes()
            .filter(|(_, one)| one.verdict == Verdict::Passed);
        passed.map(|(case, _)| case.name.as_str()).collect()
    }

    /// Returns what the bystander lost since the first case.
    pub(crate) fn bystander_lost(&self) -> (u64, u64) {
        let bystander = self.sim.app::<Bystander>(self.bystander);
        let figures = bystander.figures(self.begin, self.sim.now());
        if let Some(failure) = bystander.failure() {
            println!("the bystander failed: {failure}");
        }
        (figures.lost, figures.planned)
    }

    pub(crate) fn counters(&self) -> weir_relay::Counters {
        self.of_relay(Relay::counters)
    }

    /// Returns something of the relay at the end.
    pub(crate) fn of_relay<A: App + 'static, T>(&self, get: impl Fn(&A) -> T) -> T {
        get(self.sim.app::<A>(self.relay))
    }
}

/// Returns the cases of an edition of a kind.
pub(crate) fn of_kind(edition: Edition, kind: Kind) -> Vec<Case> {
    let cases = weir_probe::cases(edition, None).into_iter();
    cases.filter(|case| case.kind == kind).collect()
}
