//! The simulator, with small roles of its own and real QUIC.

mod audience;
mod echo;

mod clean;
mod congestion;
mod determinism;
mod faults;

use std::time::Duration;

use weir_link::{Config, Delay, Loss, Probability};
use weir_sim::{NodeConfig, NodeId, Sim};

use crate::echo::{Courier, Echo, PROTOCOL};

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A link with 10 ms of delay in each direction.
fn short() -> Config {
    Config {
        delay: Delay::fixed(millis(10)).expect("short"),
        ..Config::default()
    }
}

fn lossy(ratio: f64) -> Config {
    Config {
        loss: Loss::Independent(Probability::new(ratio).expect("from 0 to 1")),
        ..short()
    }
}

/// Adds an echo server, and a client that sends it `streams` times `bytes`.
fn echo_pair(sim: &mut Sim, link: Config, streams: u64, bytes: u64) -> (NodeId, NodeId) {
    sim.set_default_link(link);
    let server = sim.add_node(NodeConfig {
        server: Some(sim.server_tls(&[PROTOCOL])),
        ..NodeConfig::default()
    });
    let client = sim.add_node(NodeConfig::default());
    sim.start(server, Echo::default());
    let courier = Courier::new(sim, sim.address(server), streams, bytes);
    sim.start(client, courier);
    (server, client)
}
