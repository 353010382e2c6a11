//! The simulation: nodes, links, steps, and the loop that runs them.

use std::any::{Any, type_name};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use weir_link::{Config, Link, Probability, Stats};
use weir_quic::tls::{ClientTls, ServerTls, Trust};
use weir_quic::{App, ClientConfig, Endpoint, EndpointConfig, Shard};

use crate::agenda::{Agenda, Task};
use crate::certificate::certificate;
use crate::clock::Clock;
use crate::network::{Datagram, Network, Owner, derived};
use crate::node::{AnyApp, Node, NodeConfig, NodeId};
use crate::trace::{Moment, Traffic};

/// A network of nodes in virtual time.
///
/// Misuse panics, since it is a mistake in the test: a node or a type that does not exist, an address assigned twice.
pub struct Sim {
    seed: u64,
    clock: Clock,
    agenda: Agenda,
    network: Network,
    nodes: Vec<Node>,
    /// Nodes that must run a turn before time moves on.
    dirty: Vec<usize>,
    /// The number of running nodes whose roles have work left.
    busy_nodes: usize,
    steps: Vec<Option<Step>>,
    steps_left: usize,
}

type Step = Box<dyn FnOnce(&mut Sim)>;

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The condition of the run holds.
    Finished,
    /// The deadline has passed.
    Deadline,
    /// Nothing is left that could happen.
    Idle,
}

impl Sim {
    /// Returns a simulation without nodes. All random choices derive from `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            clock: Clock::new(),
            agenda: Agenda::default(),
            network: Network::new(seed),
            nodes: Vec::new(),
            dirty: Vec::new(),
            busy_nodes: 0,
            steps: Vec::new(),
            steps_left: 0,
        }
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Returns the virtual time since the start.
    pub fn elapsed(&self) -> Duration {
        self.clock.elapsed()
    }

    /// Returns the instant `elapsed` after the start.
    pub fn instant(&self, elapsed: Duration) -> Instant {
        self.clock.at(elapsed)
    }

    /// Returns TLS settings for a node that accepts connections, with the [`certificate`] and the simulation's time of
    /// day.
    pub fn server_tls(&self, protocols: &[&str]) -> ServerTls {
        let certificate = certificate();
        let time = self.clock.time_of_day();
        ServerTls::with_time(certificate.chain, certificate.key, protocols, Some(time))
            .expect("the certificate belongs to its key")
    }

    /// Returns TLS settings for a node that connects to a server with the [`certificate`]. The server name is
    /// [`SERVER_NAME`](crate::SERVER_NAME).
    ///
    /// The settings remember TLS sessions, so runs that must be equal must not share them.
    pub fn client_config(&self, protocols: &[&str]) -> ClientConfig {
        let time = self.clock.time_of_day();
        let trust = Trust::Roots(certificate().chain);
        let tls = ClientTls::with_time(trust, protocols, Some(time))
            .expect("the certificate is a well-formed one");
        ClientConfig {
            tls,
            web_transport: None,
        }
    }

    /// Adds a node, which has an address and is not started.
    pub fn add_node(&mut self, config: NodeConfig) -> NodeId {
        let id = self.nodes.len();
        self.nodes.push(Node::new(id, config, &mut self.network));
        NodeId(id)
    }

    /// Adds `count` nodes that share an address, as the threads of one process do. With `is_steered` a packet reaches
    /// the node of its connection, as with kernel steering; otherwise all packets reach the first node. Messages
    /// between the nodes take [`PEER_THREAD_DELAY`].
    pub fn add_group(&mut self, config: NodeConfig, count: u16, is_steered: bool) -> Vec<NodeId> {
        let first = self.add_node(config);
        for _ in 1..count {
            let id = self.nodes.len();
            self.nodes.push(Node::sibling(id, &self.nodes[first.0]));
        }
        let group = (first.0..self.nodes.len()).map(NodeId).collect();
        for (index, node) in (0..count).zip(&mut self.nodes[first.0..]) {
            node.shard =
                Shard::new(index, count).expect("a group has a size that can be told apart");
            node.is_steered = is_steered;
        }
        group
    }

    /// Starts a node with a role, or restarts it. A restart keeps nothing except the address.
    pub fn start(&mut self, node: NodeId, app: impl App + 'static) {
        self.kill(node);
        let node_state = &mut self.nodes[node.0];
        let shard = node_state.shard;
        // Nodes with one address share a seed.
        let first = node.0 - usize::from(shard.index());
        let path = [ENDPOINT_SEEDS, first as u64, node_state.starts];
        let mut random = derived(self.seed, path);
        let mut seed = [0; 32];
        for part in seed.chunks_exact_mut(8) {
            part.copy_from_slice(&random.next_u64().to_le_bytes());
        }
        let config = EndpointConfig {
            limits: node_state.config.limits.clone(),
            server: node_state.config.server.clone(),
            seed,
            time_source: self.clock.time_of_day(),
            qlog: None,
            packets: weir_quic::Packets::default(),
            segmentation_offload: node_state.config.segmentation_offload,
            handshake_counts: weir_quic::OriginCounts::default(),
        };
        let endpoint = Endpoint::with_shard(config, shard);
        node_state.messages.clear();
        node_state.starts += 1;
        let endpoint = endpoint.expect("the node's limits are within QUIC's");
        node_state.endpoint = Some(Box::new(endpoint));
        node_state.app = Some(Box::new(app));
        self.recount(node.0);
        self.mark(node.0);
    }

    /// Stops a node like a crash: it sends nothing more, and packets to it are lost. Its role stays for
    /// [`app`](Self::app). Does nothing to a node that is not running.
    pub fn kill(&mut self, node: NodeId) {
        self.nodes[node.0].endpoint = None;
        self.recount(node.0);
    }

    /// Asks a running node to stop, as a signal does. Its role may close its sessions first.
    pub fn shutdown(&mut self, node: NodeId) {
        self.with(node, |now, app, endpoint| {
            app.handle_shutdown(now, endpoint);
        });
    }

    /// Changes a node's address, as a NAT does. The node does not know, and packets to the old address are lost.
    pub fn rebind(&mut self, node: NodeId, address: SocketAddr) {
        self.nodes[node.0].rebind(address, &mut self.network);
    }

    /// Returns the address of a node's first socket.
    pub fn address(&self, node: NodeId) -> SocketAddr {
        self.nodes[node.0].address()
    }

    /// Whether a node is running and its role has work left.
    pub fn is_busy(&self, node: NodeId) -> bool {
        self.nodes[node.0].is_busy()
    }

    /// Returns the role of a node that was started with this type, also after the node was killed.
    pub fn app<A: App + 'static>(&self, node: NodeId) -> &A {
        let app = self.nodes[node.0].app.as_deref().map(|app| app as &dyn Any);
        let app = app.and_then(|app| app.downcast_ref());
        app.unwrap_or_else(|| panic!("{node:?} was not started with a {}", type_name::<A>()))
    }

    /// Calls a function with the role and the endpoint of a running node.
    pub fn with_app<A: App + 'static, R>(
        &mut self,
        node: NodeId,
        work: impl FnOnce(Instant, &mut A, &mut Endpoint) -> R,
    ) -> R {
        self.with(node, |now, app, endpoint| {
            let app = (app as &mut dyn Any).downcast_mut();
            let app = app
                .unwrap_or_else(|| panic!("{node:?} was not started with a {}", type_name::<A>()));
            work(now, app, endpoint)
        })
    }

    /// Sets the configuration of links between pairs of nodes that have not exchanged a packet.
    pub fn set_default_link(&mut self, config: Config) {
        self.network.set_default_config(config);
    }

    /// Sets the probability with which one bit of a datagram, in its QUIC header or its last 16 bytes, is flipped on its way.
    /// A network that is checked by UDP's checksum alone lets some of these through.
    pub fn set_corruption(&mut self, corruption: Probability) {
        self.network.set_corruption(corruption);
    }

    /// Replaces the link in one direction between two nodes. Packets in the old one are lost.
    pub fn set_link(&mut self, from: NodeId, to: NodeId, config: Config) {
        self.network
            .replace_link(self.clock.now(), from.0, to.0, config);
    }

    /// Replaces the links in both directions between two nodes by equal links. Packets in the old ones are lost.
    pub fn set_path(&mut self, one: NodeId, other: NodeId, config: Config) {
        self.set_link(one, other, config.clone());
        self.set_link(other, one, config);
    }

    /// Replaces the links of several pairs of nodes, each from its first to its second node, by one shared link, such
    /// as a bottleneck of several connections. Packets in the old ones are lost. [`change_link`](Self::change_link) for
    /// one pair then applies to all.
    pub fn share_link(&mut self, pairs: &[(NodeId, NodeId)], config: Config) {
        let pairs: Vec<_> = pairs.iter().map(|(from, to)| (from.0, to.0)).collect();
        self.network.share_link(self.clock.now(), &pairs, config);
    }

    /// Changes the link in one direction between two nodes, and keeps the packets in it.
    pub fn change_link(
        &mut self,
        from: NodeId,
        to: NodeId,
        change: impl FnOnce(Instant, &mut Link<Datagram>),
    ) {
        let now = self.clock.now();
        let index = self.network.link_index(now, from.0, to.0);
        change(now, self.network.link(index));
        self.network.schedule(&mut self.agenda, index);
    }

    /// Returns the counters of the link in one direction between two nodes.
    pub fn link_stats(&self, from: NodeId, to: NodeId) -> Stats {
        self.network
            .existing_link(from.0, to.0)
            .map(Link::stats)
            .unwrap_or_default()
    }

    /// Drops all packets in one direction between two nodes from `begin` to `end`.
    pub fn blackhole(&mut self, from: NodeId, to: NodeId, begin: Duration, end: Duration) {
        for (at, is_blackhole) in [(begin, true), (end, false)] {
            self.at(at, move |sim| {
                sim.change_link(from, to, |now, link| link.set_blackhole(now, is_blackhole));
            });
        }
    }

    /// Runs a step when this much virtual time has passed since the start, or at once if it has already.
    pub fn at(&mut self, elapsed: Duration, step: impl FnOnce(&mut Self) + 'static) {
        let at = self.clock.at(elapsed).max(self.clock.now());
        self.agenda.enter(at, Task::Step(self.steps.len()));
        self.steps.push(Some(Box::new(step)));
        self.steps_left += 1;
    }

    /// Runs until no step is left and all roles have finished, but at most until `deadline` after the start.
    pub fn run(&mut self, deadline: Duration) -> End {
        self.run_until(deadline, |sim| sim.busy_nodes == 0 && sim.steps_left == 0)
    }

    /// Runs until `is_done`, which is called after each event, but at most until `deadline` after the start.
    pub fn run_until(&mut self, deadline: Duration, mut is_done: impl FnMut(&Self) -> bool) -> End {
        let deadline = self.clock.at(deadline);
        let mut rounds = 0;
        loop {
            self.turn_nodes();
            if is_done(self) {
                return End::Finished;
            }
            let Some(next) = self.agenda.next() else {
                return End::Idle;
            };
            if next > deadline {
                self.clock.advance(deadline.max(self.clock.now()));
                return End::Deadline;
            }
            rounds = if next > self.clock.now() {
                0
            } else {
                rounds + 1
            };
            assert!(
                rounds < ROUNDS_MAX,
                "time stands still at {:?}",
                self.elapsed()
            );
            self.clock.advance(next.max(self.clock.now()));
            while let Some((at, task)) = self.agenda.pop(self.clock.now()) {
                self.perform(at, task);
            }
        }
    }

    /// Returns a hash of time, source, destination and length of every datagram so far. Equal runs have equal hashes.
    pub fn trace_hash(&self) -> u64 {
        self.network.trace().hash()
    }

    /// Returns what the nodes have sent to each other so far.
    pub fn traffic(&self) -> Traffic {
        self.network.trace().traffic()
    }

    fn perform(&mut self, at: Instant, task: Task) {
        match task {
            Task::Step(index) => {
                if let Some(step) = self.steps[index].take() {
                    self.steps_left -= 1;
                    step(self);
                }
            }
            Task::Link(index) => {
                if self.network.alarm_rings(index, at) {
                    self.deliver(index);
                }
            }
            Task::Node(index) => {
                if self.nodes[index].alarm.rings(at) {
                    self.mark(index);
                }
            }
            Task::Messages(index) => self.deliver_messages(index),
        }
    }

    /// Delivers the packets that have arrived on a link.
    fn deliver(&mut self, link: usize) {
        let now = self.clock.now();
        let elapsed = self.clock.elapsed();
        while let Some(datagram) = self.network.link(link).poll_packet(now) {
            let owner = self.network.owner(datagram.destination);
            let owner = owner.map(|owner| self.steered(owner, &datagram.data));
            let endpoint = owner.and_then(|owner| self.nodes[owner.node].endpoint.as_mut());
            let Some((owner, endpoint)) = owner.zip(endpoint) else {
                self.network.record(elapsed, Moment::Unroutable, &datagram);
                continue;
            };
            self.network.record(elapsed, Moment::Delivered, &datagram);
            endpoint.handle_packet(
                now,
                owner.socket,
                datagram.source,
                None,
                datagram.ecn,
                datagram.data,
            );
            self.mark(owner.node);
        }
        self.network.schedule(&mut self.agenda, link);
    }

    /// Returns which node receives a packet to `owner`.
    fn steered(&self, owner: Owner, packet: &[u8]) -> Owner {
        let Node {
            shard, is_steered, ..
        } = &self.nodes[owner.node];
        if !is_steered {
            return owner;
        }
        let node = owner.node + usize::from(Shard::owner(packet, shard.count()));
        Owner { node, ..owner }
    }

    /// Takes the messages of a node for its peer threads.
    fn collect_messages(&mut self, index: usize) {
        let shard = self.nodes[index].shard;
        let first = index - usize::from(shard.index());
        let at = self.clock.now() + PEER_THREAD_DELAY;
        for peer in (0..shard.count()).filter(|&other| other != shard.index()) {
            let Some(endpoint) = &mut self.nodes[index].endpoint else {
                return;
            };
            let messages = std::mem::take(endpoint.messages_to(peer));
            let to = first + usize::from(peer);
            if !messages.is_empty() {
                let entry = (at, shard.index(), messages);
                self.nodes[to].messages.push_back(entry);
                self.agenda.enter(at, Task::Messages(to));
            }
        }
    }

    /// Delivers the messages that have arrived.
    fn deliver_messages(&mut self, index: usize) {
        let now = self.clock.now();
        let node = &mut self.nodes[index];
        while node.messages.front().is_some_and(|&(at, ..)| at <= now)
            && let Some((_, from, messages)) = node.messages.pop_front()
        {
            if let Some(endpoint) = &mut node.endpoint {
                endpoint.handle_messages(now, from, messages);
            }
        }
        self.mark(index);
    }

    /// Calls a function with the role and the endpoint of a running node.
    fn with<R>(
        &mut self,
        node: NodeId,
        work: impl FnOnce(Instant, &mut dyn AnyApp, &mut Endpoint) -> R,
    ) -> R {
        let Node { endpoint, app, .. } = &mut self.nodes[node.0];
        let (endpoint, app) = endpoint
            .as_deref_mut()
            .zip(app.as_deref_mut())
            .unwrap_or_else(|| panic!("{node:?} does not run"));
        let result = work(self.clock.now(), app, endpoint);
        self.recount(node.0);
        self.mark(node.0);
        result
    }

    /// Adds a node to the list of those that must run a turn.
    fn mark(&mut self, node: usize) {
        if !std::mem::replace(&mut self.nodes[node].is_dirty, true) {
            self.dirty.push(node);
        }
    }

    fn turn_nodes(&mut self) {
        for next in 0..self.dirty.len() {
            let index = self.dirty[next];
            let node = &mut self.nodes[index];
            node.is_dirty = false;
            node.turn(&self.clock, &mut self.network, &mut self.agenda);
            self.collect_messages(index);
            self.recount(index);
        }
        self.dirty.clear();
    }

    /// Updates the count of busy nodes for one of them.
    fn recount(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        self.busy_nodes -= usize::from(node.counts_as_busy);
        node.counts_as_busy = node.is_busy();
        self.busy_nodes += usize::from(node.counts_as_busy);
    }
}

/// The delay of a message between nodes with the same address.
pub const PEER_THREAD_DELAY: Duration = Duration::from_micros(20);
/// The first element of the path of endpoint seeds.
const ENDPOINT_SEEDS: u64 = 2;
/// More rounds than this at one time mean that packets circulate for ever.
const ROUNDS_MAX: u32 = 100_000;
