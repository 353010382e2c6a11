//! One endpoint with its role, as a node of a simulation.

use std::any::Any;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Instant;

use bytes::BytesMut;
use weir_quic::tls::ServerTls;
use weir_quic::{App, Endpoint, Limits, Packet, Shard, ThreadMessage};

use crate::agenda::{Agenda, Alarm, Task};
use crate::clock::Clock;
use crate::network::{Datagram, Network, Owner};

/// The ID of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) usize);

/// A role that can be cast back to its own type.
pub trait AnyApp: App + Any {}

impl<A: App + Any> AnyApp for A {}

/// The configuration of a node's endpoint. By default a client with the default limits.
#[derive(Clone)]
pub struct NodeConfig {
    /// Limits of the endpoint and its connections.
    pub limits: Limits,
    /// Certificate and protocols, for a node that accepts connections; see
    /// [`Sim::server_tls`](crate::Sim::server_tls).
    pub server: Option<ServerTls>,
    /// The address of the node's first socket. Socket `n` has a port higher by `n`. With `None` the node gets an IPv4
    /// address of its own, and ports from 4433 on.
    pub address: Option<SocketAddr>,
    /// Whether packets for one peer are built in batches, as a real host does. Their sizes may then be padded to be
    /// equal.
    pub segmentation_offload: bool,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            server: None,
            address: None,
            segmentation_offload: true,
        }
    }
}

/// A node's state.
pub(crate) struct Node {
    id: usize,
    pub(crate) config: NodeConfig,
    /// The address of socket 0.
    address: SocketAddr,
    /// The number of sockets with an address.
    sockets: u32,
    /// How often the node was started. Each start has its own randomness.
    pub(crate) starts: u64,
    /// The endpoint of a running node.
    pub(crate) endpoint: Option<Box<Endpoint>>,
    /// The role of a started node. It stays for inspection after the node is killed.
    pub(crate) app: Option<Box<dyn AnyApp>>,
    pub(crate) alarm: Alarm,
    /// Whether the node is in the list of nodes that must run a turn.
    pub(crate) is_dirty: bool,
    /// Whether the simulation counts the node as busy.
    pub(crate) counts_as_busy: bool,
    /// The node's number among several with one address.
    pub(crate) shard: Shard,
    /// Whether packets to this address reach the node that their connection ID names.
    pub(crate) is_steered: bool,
    /// Messages from peer threads, each with its time of arrival and the number of its sender.
    pub(crate) messages: VecDeque<(Instant, u16, Vec<ThreadMessage>)>,
}

impl Node {
    pub(crate) fn new(id: usize, config: NodeConfig, network: &mut Network) -> Self {
        let address = config.address.unwrap_or_else(|| default_address(id));
        let mut node = Self::stopped(id, config, address);
        node.claim_sockets(0, network);
        node
    }

    /// Returns a further node with the address of `first`.
    pub(crate) fn sibling(id: usize, first: &Self) -> Self {
        Self {
            sockets: 1,
            ..Self::stopped(id, first.config.clone(), first.address)
        }
    }

    /// Returns a node that was never started and has no socket.
    fn stopped(id: usize, config: NodeConfig, address: SocketAddr) -> Self {
        Self {
            id,
            config,
            address,
            sockets: 0,
            starts: 0,
            endpoint: None,
            app: None,
            alarm: Alarm::default(),
            is_dirty: false,
            counts_as_busy: false,
            shard: Shard::ALONE,
            is_steered: false,
            messages: VecDeque::new(),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether the node runs and its role has work left.
    pub(crate) fn is_busy(&self) -> bool {
        let app = self.app.as_ref().filter(|_| self.endpoint.is_some());
        app.is_some_and(|app| !app.is_finished())
    }

    /// Moves all sockets to new addresses.
    pub(crate) fn rebind(&mut self, address: SocketAddr, network: &mut Network) {
        assert!(self.shard == Shard::ALONE, "nodes with one address stay");
        for socket in 0..self.sockets {
            network.release(self.socket_address(socket));
        }
        let sockets = std::mem::take(&mut self.sockets);
        self.address = address;
        self.claim_sockets(sockets.saturating_sub(1), network);
    }

    /// Runs the role and the endpoint at this time, and sends their packets.
    pub(crate) fn turn(&mut self, clock: &Clock, network: &mut Network, agenda: &mut Agenda) {
        let Some(mut endpoint) = self.endpoint.take() else {
            return;
        };
        let mut app = self.app.take().expect("a node that runs has a role");
        let now = clock.now();
        let mut rounds = 0;
        while self.turn_once(clock, &mut endpoint, app.as_mut(), network, agenda) {
            rounds += 1;
            assert!(
                rounds < ROUNDS_MAX,
                "node {} never comes to rest at {now:?}",
                self.id
            );
        }
        let timeout = endpoint
            .poll_timeout()
            .into_iter()
            .chain(app.poll_timeout())
            .min();
        self.alarm.set(agenda, Task::Node(self.id), timeout);
        self.endpoint = Some(endpoint);
        self.app = Some(app);
    }

    /// Runs one turn. Returns whether something happened that needs another turn.
    fn turn_once(
        &mut self,
        clock: &Clock,
        endpoint: &mut Endpoint,
        app: &mut dyn AnyApp,
        network: &mut Network,
        agenda: &mut Agenda,
    ) -> bool {
        let now = clock.now();
        let is_due = |timeout: Option<Instant>| timeout.is_some_and(|at| at <= now);
        let mut is_active = false;
        if is_due(endpoint.poll_timeout()) {
            endpoint.handle_timeout(now);
            is_active = true;
        }
        while let Some(event) = endpoint.poll_event() {
            app.handle_event(now, endpoint, event);
            is_active = true;
            if endpoint.outbox().is_full() {
                self.send(clock, endpoint, network, agenda);
            }
        }
        if is_due(app.poll_timeout()) {
            app.handle_timeout(now, endpoint);
            is_active = true;
        }
        loop {
            let has_more = endpoint.fill(now);
            self.send(clock, endpoint, network, agenda);
            if !has_more {
                return is_active;
            }
        }
    }

    /// Sends the packets of the endpoint.
    fn send(
        &mut self,
        clock: &Clock,
        endpoint: &mut Endpoint,
        network: &mut Network,
        agenda: &mut Agenda,
    ) {
        let (now, elapsed) = (clock.now(), clock.elapsed());
        for packet in endpoint.outbox().iter() {
            if packet.socket >= self.sockets {
                self.claim_sockets(packet.socket, network);
            }
            let Packet {
                destination,
                ecn,
                data,
                ..
            } = packet;
            let source = self.socket_address(packet.socket);
            for data in data.chunks(packet.segment_size.unwrap_or(data.len()).max(1)) {
                let data = BytesMut::from(data);
                let datagram = Datagram {
                    source,
                    destination,
                    ecn,
                    data,
                };
                network.send(now, elapsed, agenda, self.id, datagram);
            }
        }
        endpoint.outbox().clear();
    }

    /// Assigns addresses to the sockets up to number `last`.
    fn claim_sockets(&mut self, last: u32, network: &mut Network) {
        for socket in self.sockets..=last {
            let owner = Owner {
                node: self.id,
                socket,
            };
            network.claim(self.socket_address(socket), owner);
        }
        self.sockets = last + 1;
    }

    fn socket_address(&self, socket: u32) -> SocketAddr {
        let port = u32::from(self.address.port()) + socket;
        let port = u16::try_from(port).expect("a node has no more sockets than its ports allow");
        SocketAddr::new(self.address.ip(), port)
    }
}

/// Returns the default address of a node, from 10.0.0.1 upwards.
fn default_address(id: usize) -> SocketAddr {
    let number = u32::try_from(id + 1)
        .ok()
        .filter(|number| *number < 1 << 24);
    let number = number.expect("a simulation has fewer than 16 million nodes");
    SocketAddr::from(((10 << 24 | number).to_be_bytes(), PORT))
}

/// The port of a node's first socket, unless its configuration has an address.
const PORT: u16 = 4433;
/// A node that runs more turns at one time than this would never stop.
const ROUNDS_MAX: u32 = 100_000;
