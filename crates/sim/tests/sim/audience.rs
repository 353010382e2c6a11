//! A server that sends each client a datagram at fixed times, and many such clients.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use weir_link::{Config, Delay};
use weir_quic::{App, ClientConfig, Endpoint, Event, Handle};
use weir_sim::{NodeConfig, NodeId, SERVER_NAME, Sim};

const PROTOCOL: &str = "speech";
const PAYLOAD_BYTES: usize = 150;

/// Sends `count` numbered datagrams to every client.
struct Speaker {
    listeners: Vec<Handle>,
    next_at: Instant,
    interval: Duration,
    next: u64,
    count: u64,
}

impl App for Speaker {
    fn handle_event(&mut self, _now: Instant, _endpoint: &mut Endpoint, event: Event) {
        if let Event::Connected { handle } = event {
            self.listeners.push(handle);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (self.next < self.count).then_some(self.next_at)
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if now < self.next_at || self.next == self.count {
            return;
        }
        let mut payload = vec![0; PAYLOAD_BYTES];
        payload[..8].copy_from_slice(&self.next.to_be_bytes());
        let payload = Bytes::from(payload);
        for listener in &self.listeners {
            if let Some(mut connection) = endpoint.connection(now, *listener) {
                connection
                    .send_datagram(payload.clone(), None)
                    .expect("it is small enough");
            }
        }
        self.next += 1;
        self.next_at += self.interval;
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        endpoint.close_all(now, 0, b"");
    }

    fn is_finished(&self) -> bool {
        self.next == self.count
    }
}

/// A client with many connections that receive.
struct Audience {
    config: ClientConfig,
    speaker: SocketAddr,
    size: u32,
    has_own_sockets: bool,
    begins_at: Option<Instant>,
    received: u64,
}

impl App for Audience {
    fn handle_event(&mut self, _now: Instant, _endpoint: &mut Endpoint, event: Event) {
        if let Event::Datagram { data, .. } = event {
            assert_eq!(data.len(), PAYLOAD_BYTES);
            self.received += 1;
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.begins_at
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if self.begins_at.take_if(|at| *at <= now).is_some() {
            for number in 0..self.size {
                let socket = if self.has_own_sockets { number } else { 0 };
                endpoint
                    .connect(now, &self.config, self.speaker, SERVER_NAME, socket)
                    .expect("the connections are within the limit");
            }
        }
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        endpoint.close_all(now, 0, b"");
    }

    fn is_finished(&self) -> bool {
        true
    }
}

/// The nodes and sockets of the listeners.
#[derive(Clone, Copy)]
pub(crate) enum Seats {
    /// All connections on one node and one socket.
    Together,
    /// All on one node, with a socket for each connection.
    OwnSockets,
    /// Each on a node of its own.
    OwnNodes,
}

/// Starts a speech of `count` datagrams, one every 20 ms from the first second on, to `listeners` connections. Returns
/// the listeners' nodes.
pub(crate) fn speech(sim: &mut Sim, listeners: u32, seats: Seats, count: u64) -> Vec<NodeId> {
    let delay = Delay::fixed(Duration::from_millis(10)).expect("short");
    sim.set_default_link(Config {
        delay,
        ..Config::default()
    });
    let server = Some(sim.server_tls(&[PROTOCOL]));
    let speaker = sim.add_node(NodeConfig {
        server,
        ..NodeConfig::default()
    });
    let next_at = sim.instant(Duration::from_secs(1));
    let interval = Duration::from_millis(20);
    sim.start(
        speaker,
        Speaker {
            listeners: Vec::new(),
            next_at,
            interval,
            next: 0,
            count,
        },
    );

    let (nodes, size) = match seats {
        Seats::Together | Seats::OwnSockets => (1, listeners),
        Seats::OwnNodes => (listeners, 1),
    };
    (0..nodes)
        .map(|_| {
            let audience = Audience {
                config: sim.client_config(&[PROTOCOL]),
                speaker: sim.address(speaker),
                size,
                has_own_sockets: matches!(seats, Seats::OwnSockets),
                begins_at: Some(sim.now()),
                received: 0,
            };
            let node = sim.add_node(NodeConfig::default());
            sim.start(node, audience);
            node
        })
        .collect()
}

/// Returns how many datagrams all listeners have received.
pub(crate) fn received(sim: &Sim, listeners: &[NodeId]) -> u64 {
    listeners
        .iter()
        .map(|node| sim.app::<Audience>(*node).received)
        .sum()
}
