//! One endpoint with its role, as the simulation hosts it.

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

/// One node of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) usize);

/// A role that can be asked for again by its own type.
pub trait AnyApp: App + Any {}

impl<A: App + Any> AnyApp for A {}

/// What a node's endpoint is made with; a client with the default limits unless told otherwise.
#[derive(Clone)]
pub struct NodeConfig {
    /// Limits of the endpoint and its connections.
    pub limits: Limits,
    /// Certificate and protocols, for a node that accepts connections; see
    /// [`Sim::server_tls`](crate::Sim::server_tls).
    pub server: Option<ServerTls>,
    /// The address of the node's first socket; its socket `n` has a port higher by `n`. If `None`,
    /// the node gets an IPv4 address of its own, and ports from 4433 on.
    pub address: Option<SocketAddr>,
    /// Whether packets for one peer are made in batches as a real host does. Sizes may then be
    /// padded to be equal.
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
    /// The sockets that have their addresses.
    sockets: u32,
    /// How often the node was started; each time has its own randomness.
    pub(crate) starts: u64,
    /// Of a node that runs.
    pub(crate) endpoint: Option<Box<Endpoint>>,
    /// Of a node that was started; it stays for inspection when the node is killed.
    pub(crate) app: Option<Box<dyn AnyApp>>,
    pub(crate) alarm: Alarm,
    /// In the list of nodes that must be turned.
    pub(crate) is_dirty: bool,
    /// Among the nodes that the simulation knows to be busy.
    pub(crate) counts_as_busy: bool,
    /// Which of several nodes with one address it is.
    pub(crate) shard: Shard,
    /// Whether packets to this address go to the node that their connection ID names.
    pub(crate) is_steered: bool,
    /// Messages from peer threads, each with the number of its sender and the time at which it arrives.
    pub(crate) messages: VecDeque<(Instant, u16, Vec<ThreadMessage>)>,
}

impl Node {
    pub(crate) fn new(id: usize, config: NodeConfig, network: &mut Network) -> Self {
        let address = config.address.unwrap_or_else(|| default_address(id));
        let mut node = Self::stopped(id, config, address);
        node.claim_sockets(0, network);
        node
    }

    /// One more node with the address of `first`, which gets what comes there.
    pub(crate) fn sibling(id: usize, first: &Self) -> Self {
        Self {
            sockets: 1,
            ..Self::stopped(id, first.config.clone(), first.address)
        }
    }

    /// A node that was never started and has no socket.
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

    /// Whether the node runs and its role has something left to do.
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

    /// Lets the role and the endpoint do all they have to do at this time, and sends what comes of
    /// it.
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

    /// Returns whether anything happened that calls for another look.
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

    /// Sends what the endpoint has collected.
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

    /// Gives addresses to the sockets up to number `last`.
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

/// 10.0.0.1 for the first node, then upwards.
fn default_address(id: usize) -> SocketAddr {
    let number = u32::try_from(id + 1)
        .ok()
        .filter(|number| *number < 1 << 24);
    let number = number.expect("a simulation has fewer than 16 million nodes");
    SocketAddr::from(((10 << 24 | number).to_be_bytes(), PORT))
}

/// The port of a node's first socket, unless it has an address of its own choice.
const PORT: u16 = 4433;
/// A node that turns more often than this without time passing will not stop.
const ROUNDS_MAX: u32 = 100_000;
