//! The host with a virtual clock: many QUIC endpoints with their roles, joined by emulated links.
//!
//! A [`Sim`] runs the same [`App`](weir_quic::App)s as the host with real sockets. It exchanges the same QUIC packets
//! between them, and runs minutes of virtual time in seconds. All random choices derive from one seed: two runs with
//! the same seed and the same calls send the same packets at the same times, in one process or in two.
//! [`Sim::trace_hash`] compares runs.
//!
//! ```text
//! node: App + Endpoint ──▶ link ──▶ App + Endpoint :node
//!                      ◀── link ◀──
//! ```
//!
//! A *node* is an endpoint with its role and one or more socket addresses. Each ordered pair of nodes has a link of its
//! own. Faults and changes are *steps*: closures that run at their virtual time, and can do with the simulation
//! whatever a test can do between two runs.
//!
//! ```text
//! let mut sim = Sim::new(7);
//! let delay = Delay::fixed(Duration::from_millis(10))?;
//! sim.set_default_link(Config { delay, ..Config::default() });
//!
//! let server = Some(sim.server_tls(&["moqt-18"]));
//! let relay = sim.add_node(NodeConfig { server, ..NodeConfig::default() });
//! let load = sim.add_node(NodeConfig::default());
//! sim.start(relay, Relay::new(..));
//! sim.start(load, Load::new(sim.client_config(&["moqt-18"]), sim.address(relay), ..));
//!
//! sim.blackhole(relay, load, Duration::from_secs(3), Duration::from_secs(5));
//! sim.at(Duration::from_secs(8), move |sim| sim.kill(relay));
//! let end = sim.run_until(Duration::from_secs(35), |sim| !sim.is_busy(load));
//! let report = sim.app::<Load>(load).report();
//! ```
//!
//! It is *not* a model of the machine: roles and QUIC take no virtual time, and sockets have no buffers. Packets are
//! lost only by a link, or if nobody has their address.

mod agenda;
mod certificate;
mod clock;
pub mod driven;
mod network;
mod node;
mod sim;
mod trace;

pub use certificate::{Certificate, SERVER_NAME, certificate};
pub use network::Datagram;
pub use node::{AnyApp, NodeConfig, NodeId};
pub use sim::{End, PEER_THREAD_DELAY, Sim};
pub use trace::Traffic;
