//! Fuzzing of a relay with several threads, whose clients and upstream relay do anything.

#[path = "hostile.rs"]
mod hostile;

use std::sync::Arc;
use std::time::Duration;

use weir_client::target::Target;
use weir_moqt::draft::Draft;
use weir_quic::Limits as QuicLimits;
use weir_relay::{Config, Gauges, Limits, Relay, Upstream};
use weir_sim::{NodeConfig, SERVER_NAME, Sim};

use self::hostile::{Hostile, Input};

/// Plays `input` as the scripts of three clients and of an upstream relay, with a byte of 255 between them. The first byte
/// selects the draft, the second one the number of threads, and whether there is an upstream relay. Checks that the
/// threads and the upstream relay hear only valid messages, and that nothing is left when all are gone.
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
    let threads = sim.add_group(config.clone(), 2 + u16::from(shape & 1), true);
    let upstream = sim.add_node(config);
    let nodes = [(); 3].map(|()| sim.add_node(NodeConfig::default()));
    let client = sim.client_config(&[draft.alpn()]);
    for (place, &thread) in threads.iter().enumerate() {
        let mut relay = Relay::new(configuration());
        if place == 0 && shape & 2 == 2 {
            let target = Target::new(sim.address(upstream), SERVER_NAME, client.clone());
            let upstream = Upstream {
                name: "upstream".to_owned(),
                target: Arc::new(target),
                seed: 1,
                whereabouts: None,
            };
            relay.add_upstream(sim.now(), upstream);
        }
        sim.start(thread, relay);
    }
    for &node in &nodes {
        let script = scripts.next().unwrap_or_default();
        let server = (sim.now(), client.clone(), sim.address(threads[0]));
        sim.start(node, Hostile::new(script, Vec::new(), Some(server)));
    }
    sim.start(
        upstream,
        Hostile::new(scripts.next().unwrap_or_default(), Vec::new(), None),
    );
    sim.run_until(Duration::from_secs(15), |sim| {
        nodes.iter().all(|node| !sim.is_busy(*node))
    });
    for node in nodes.into_iter().chain([upstream]) {
        sim.kill(node);
    }
    let end = sim.elapsed() + Duration::from_secs(30);
    sim.run_until(end, |_| false);
    for &thread in &threads {
        let gauges = sim.app::<Relay>(thread).gauges();
        assert_eq!(gauges, Gauges::default(), "nothing is left");
    }
}

/// Returns a relay that forgets soon, and has limits that are reached.
fn configuration() -> Config {
    Config {
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
            ..Limits::default()
        },
        ..Config::default()
    }
}
