//! One endpoint: many connections, one timer wheel, one outbox.

mod admission;
mod counters;
mod events;
mod layer;
mod outgoing;
pub(crate) mod turns;

pub use self::outgoing::ConnectError;

pub use self::counters::Counters;
use self::turns::Turns;

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Instant,
};

use bytes::BytesMut;
use quinn_proto::{
    ConnectionHandle, DatagramEvent, EcnCodepoint, ServerConfig, TokenMemoryCache, Transmit,
    TransportConfig,
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use weir_transport::Transport as _;

use crate::{
    ConfigError, Connection, EndpointConfig, Event, Limits, OriginCounts, Outbox, Packets, Qlog,
    Shard,
    config::TimeSource,
    connection::{EngineConnection, Way},
    connection_id::SeededConnectionIds,
    datagrams::Shared,
    peer_thread::{ThreadConnections, message::Packet},
    slots::Slots,
    tls::ServerTls,
    web_transport::Offer,
    wheel::Wheel,
};

/// Identifies a connection of an endpoint. Differs from the handles of all earlier connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Handle {
    /// Returns a small number, reused only after the connection is gone, which can index tables.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// Many connections as one sans-I/O state machine.
///
/// A host passes packets and the time to it. A role takes its events and operates on connections through
/// [`connection`](Self::connection). The host then sends the packets that [`fill`](Self::fill) collects.
pub struct Endpoint {
    engine: quinn_proto::Endpoint,
    server: Option<ServerConfig>,
    transport: Arc<TransportConfig>,
    limits: Limits,
    packets: Packets,
    qlog: Option<Qlog>,
    segmentation_offload: bool,
    slots: Slots,
    wheel: Wheel,
    /// Connections with timers that are due.
    due: Vec<u32>,
    /// Connections that may have packets to send. Each is listed at most once, apart from those already processed in
    /// this turn.
    dirty: Vec<u32>,
    /// The index in `dirty` at which the next turn continues.
    dirty_next: usize,
    /// Connections that may have events.
    active: Turns,
    pub(crate) events: VecDeque<Event>,
    outbox: Outbox,
    /// A buffer for the engine, which writes each batch to an empty one; the batch is then copied to the outbox.
    scratch: Vec<u8>,
    /// Replies to packets of unknown connections, waiting for the outbox.
    responses: VecDeque<(Transmit, u32, Vec<u8>)>,
    handshakes: usize,
    /// Incoming connections that wait to be accepted, one in each call of `handle_timeout`.
    arriving: VecDeque<admission::Arrival>,
    handshake_counts: OriginCounts,
    /// When the handshakes of incoming connections have to be over, the oldest first.
    handshake_deadlines: VecDeque<(Instant, Handle)>,
    refuses_incoming: bool,
    opened: u64,
    counters: Counters,
    /// Generates the first Destination Connection IDs of clients (RFC 9000 §7.2).
    initial_ids: StdRng,
    /// Address-validation tokens received from servers, for the next connection to each.
    tokens: Arc<TokenMemoryCache>,
    pub(crate) peer_threads: ThreadConnections,
    /// The WebTransport offer for connections that choose HTTP/3.
    offer: Option<Arc<Offer>>,
    datagrams: Shared,
    /// The time of the last call.
    now: Option<Instant>,
}

impl Endpoint {
    /// Creates an endpoint without connections.
    pub fn new(config: EndpointConfig) -> Result<Self, ConfigError> {
        Self::with_shard(config, Shard::ALONE)
    }

    /// Creates one of several endpoints that share an address, with a connection to each of the others. All need the
    /// same seed and TLS configuration, so that each accepts the tokens and stateless resets of the others.
    pub fn with_shard(config: EndpointConfig, shard: Shard) -> Result<Self, ConfigError> {
        let mut generator = StdRng::from_seed(config.seed);
        let reset_key: [u8; 64] = generator.random();
        let token_key: [u8; 32] = generator.random();
        for _ in 0..shard.index() {
            // Further random numbers differ between shards.
            generator = StdRng::from_seed(generator.random());
        }
        let id_seed: [u8; 32] = generator.random();
        let mut engine_config = quinn_proto::EndpointConfig::new(Arc::new(
            aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &reset_key),
        ));
        engine_config
            .rng_seed(Some(generator.random()))
            .cid_generator(move || Box::new(SeededConnectionIds::new(id_seed, shard)))
            .max_udp_payload_size(config.packets.receive_bytes_max)
            .map_err(|_| ConfigError("receive_bytes_max"))?;
        let segmentation_offload = config.segmentation_offload;
        let packets = config.packets;
        let limits = &config.limits;
        let transport = limits.transport(&packets, segmentation_offload, None)?;
        let transport = Arc::new(transport);
        let offer = config
            .server
            .as_ref()
            .and_then(|tls| tls.web_transport.clone());
        let server = config.server.map(|tls| {
            let transport = (&transport, limits.handshakes_max);
            server_config(tls, token_key, transport, config.time_source)
        });
        let peer_threads = ThreadConnections::new(shard);
        let engine = quinn_proto::Endpoint::new(
            Arc::new(engine_config),
            server.clone().map(Arc::new),
            true,
            None,
        );
        Ok(Self {
            engine,
            server,
            transport,
            limits: config.limits,
            packets,
            qlog: config.qlog,
            segmentation_offload,
            slots: Slots::new(usize::from(shard.count()) - 1),
            wheel: Wheel::new(),
            due: Vec::new(),
            dirty: Vec::new(),
            dirty_next: 0,
            active: Turns::default(),
            events: peer_threads.initial_events(),
            outbox: Outbox::default(),
            scratch: Vec::with_capacity(packets.joined_max * PACKET_BYTES),
            responses: VecDeque::new(),
            handshakes: 0,
            arriving: VecDeque::new(),
            handshake_counts: config.handshake_counts,
            handshake_deadlines: VecDeque::new(),
            refuses_incoming: false,
            opened: 0,
            counters: Counters::default(),
            initial_ids: StdRng::from_seed(generator.random()),
            tokens: Arc::new(TokenMemoryCache::default()),
            peer_threads,
            offer,
            datagrams: Shared::default(),
            now: None,
        })
    }

    /// Returns the connection of a handle, unless it is lost or closed.
    #[inline]
    pub fn connection(&mut self, now: Instant, handle: Handle) -> Option<Connection<'_>> {
        let way = if let Some((hot, slot)) = self.slots.usable(handle) {
            Way::Engine(EngineConnection {
                now,
                handle,
                hot,
                slot,
                dirty: &mut self.dirty,
                turns: &mut self.active,
                shared: &mut self.datagrams,
            })
        } else {
            let (events, turns) = (&mut self.events, &mut self.active);
            Way::PeerThread(self.peer_threads.view(handle, events, turns)?)
        };
        Some(Connection { handle, way })
    }

    /// Returns the number of connections: open, in handshake, or closed and draining.
    pub fn connections(&self) -> usize {
        self.slots.open()
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        Counters {
            datagrams_dropped_oldest: self.datagrams.dropped.oldest,
            datagrams_dropped_expired: self.datagrams.dropped.expired,
            ..self.counters
        }
    }

    /// Handles a UDP payload received on the host's socket number `socket`.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        socket: u32,
        remote: SocketAddr,
        local: Option<IpAddr>,
        ecn: Option<EcnCodepoint>,
        data: BytesMut,
    ) {
        let packet = Packet {
            remote,
            local,
            ecn,
            data,
        };
        match self.peer_threads.owner(&packet.data) {
            Some(connection) => connection.pass_on(packet),
            None => self.handle_own_packet(now, socket, packet),
        }
    }

    /// Handles a UDP payload that belongs to this endpoint, or to none.
    pub(crate) fn handle_own_packet(&mut self, now: Instant, socket: u32, packet: Packet) {
        let Packet {
            remote,
            local,
            ecn,
            data,
        } = packet;
        self.now = Some(now);
        if remote.port() == 0 {
            self.counters.packets_from_port_zero += 1;
            return;
        }
        if is_retry(&data) {
            self.counters.retries_received += 1;
        }
        let payload_bytes = data.len();
        self.scratch.clear();
        match self
            .engine
            .handle(now, remote, local, ecn, data, &mut self.scratch)
        {
            None => {}
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                let Ok(index) = u32::try_from(self.slots.place(handle.0)) else {
                    return;
                };
                if let Some((hot, slot)) = self.slots.both(index)
                    && !slot.loss.hits_received(payload_bytes)
                {
                    hot.socket = socket;
                    let max = u64::from(self.limits.receive_bytes_max);
                    hot.note_received(payload_bytes, max);
                    slot.engine.handle_event(event);
                    self.mark(index);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.admit(now, socket, incoming),
            Some(DatagramEvent::Response(transmit)) => self.respond(transmit, socket),
        }
    }

    /// Returns the next event for the role. A connection with many events has a few of them handled, and then waits until
    /// others have had their turn.
    pub fn poll_event(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            if !self.collect_next() {
                return None;
            }
        }
    }

    /// Collects events of the connection whose turn it is, if any are left. Returns whether there was one.
    fn collect_next(&mut self) -> bool {
        let Some(index) = self.active.next() else {
            return false;
        };
        self.slots.hot(index).active = false;
        let has_more = self.collect_events(index);
        let hot = self.slots.hot(index);
        if has_more && !hot.active {
            hot.active = true;
            self.active.push_busy(index);
        }
        true
    }

    /// Returns whether there are events, or may be.
    pub fn has_events(&self) -> bool {
        !(self.events.is_empty() && self.active.is_empty())
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let threads = self.peer_threads.poll_timeout();
        let left = self.now.filter(|_| !self.due.is_empty());
        let others = [
            threads,
            self.handshake_deadline(),
            self.arriving_since(),
            left,
        ];
        let others = others.into_iter().flatten();
        self.wheel.next().into_iter().chain(others).min()
    }

    /// Handles the timers that are due. Early calls do nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.peer_threads.handle_timeout(now, &mut self.events);
        self.now = Some(now);
        self.accept_next(now);
        self.close_overdue_handshakes(now);
        let mut due = std::mem::take(&mut self.due);
        if due.is_empty() {
            self.wheel.expire(now, &mut due);
        }
        let count = due.len().min(DUE_AT_ONCE);
        for index in due.drain(..count) {
            let Some(slot) = self.slots.at(index) else {
                continue;
            };
            match slot.poll_timeout() {
                Some(deadline) if deadline <= now => {
                    slot.engine.handle_timeout(now);
                    if slot.web_transport.is_some() {
                        self.layer_timeout(now, index);
                    }
                    self.mark(index);
                }
                Some(deadline) => self.wheel.schedule(now, index, deadline),
                None => {}
            }
        }
        self.due = due;
    }

    /// Collects packets of all connections in the [`outbox`](Self::outbox), until it is full. Returns whether there are
    /// more.
    pub fn fill(&mut self, now: Instant) -> bool {
        while let Some((transmit, socket, data)) = self.responses.pop_front() {
            self.outbox.push(transmit, socket, &data);
        }
        while self.dirty_next < self.dirty.len() {
            if self.outbox.is_full() {
                return true;
            }
            let index = self.dirty[self.dirty_next];
            // A connection that `fill_from` was called for is clean. A connection to which the engine gave more data
            // while it was driven is not.
            while self.slots.hot(index).dirty {
                if !self.drive(now, index) {
                    return true;
                }
            }
            self.slots.hot(index).listed = false;
            self.dirty_next += 1;
        }
        self.dirty.clear();
        self.dirty_next = 0;
        false
    }

    /// Collects the packets of one connection at once, while it is in the CPU cache, instead of in the next
    /// [`fill`](Self::fill). For a role that has just written to the connection in a fan-out.
    #[inline]
    pub fn fill_from(&mut self, now: Instant, handle: Handle) {
        if !self.outbox.is_full() && self.slots.hot(handle.index).dirty {
            // A connection with remaining packets stays marked, and they are sent with the next `fill`.
            let _complete = self.drive(now, handle.index);
        }
    }

    /// Returns the packets to send. The host clears them.
    pub fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    /// Closes every connection with an application error code and reason.
    pub fn close_all(&mut self, now: Instant, code: u64, reason: &[u8]) {
        self.peer_threads.close_all(code, reason);
        for index in 0..u32::try_from(self.slots.len()).unwrap_or(u32::MAX) {
            let handle = self.slots.handle(index);
            if let Some(mut connection) = self.connection(now, handle) {
                connection.close(code, reason);
            }
        }
    }

    /// Takes all packets that one connection has to send. Returns false if the outbox became full.
    fn drive(&mut self, now: Instant, index: u32) -> bool {
        let Some((hot, slot)) = self.slots.both(index) else {
            self.slots.hot(index).dirty = false;
            return true;
        };
        let segments = if self.segmentation_offload {
            self.packets.joined_max
        } else {
            1
        };
        loop {
            if !slot.datagrams.is_empty() {
                slot.feed(now, &mut self.datagrams.dropped);
            }
            self.scratch.clear();
            let Some(transmit) = slot.engine.poll_transmit(now, segments, &mut self.scratch) else {
                break;
            };
            if slot.loss.sent {
                continue;
            }
            self.outbox
                .push_from(transmit, hot.socket, &mut self.scratch);
            if self.outbox.is_full() {
                return false;
            }
        }
        hot.dirty = false;
        if let Some(deadline) = slot.poll_timeout() {
            self.wheel.schedule(now, index, deadline);
        }
        self.relay_endpoint_events(index);
        true
    }

    /// Passes the engine's internal messages between a connection and the endpoint.
    fn relay_endpoint_events(&mut self, index: u32) {
        let engine_handle = ConnectionHandle(self.slots.engine_index(index));
        while let Some(slot) = self.slots.at(index)
            && let Some(event) = slot.engine.poll_endpoint_events()
        {
            let drained = event.is_drained();
            let reply = self.engine.handle_event(engine_handle, event);
            if let Some(reply) = reply {
                slot.engine.handle_event(reply);
                self.mark_dirty(index);
            }
            if drained {
                self.forget(index);
            }
        }
    }

    fn forget(&mut self, index: u32) {
        if let Some(slot) = self.slots.at(index)
            && let Some(layer) = &mut slot.web_transport
        {
            layer.abandon_own();
        }
        // A connection can end before anyone asked for its events.
        while self.collect_events(index) {}
        let Some(slot) = self.slots.remove(index) else {
            return;
        };
        self.wheel.cancel(index);
        self.handshakes -= usize::from(slot.handshaking.is_some());
    }

    fn mark_dirty(&mut self, index: u32) {
        let hot = self.slots.hot(index);
        hot.dirty = true;
        if !hot.listed {
            hot.listed = true;
            self.dirty.push(index);
        }
    }

    fn mark(&mut self, index: u32) {
        self.mark_dirty(index);
        let hot = self.slots.hot(index);
        if !hot.active {
            hot.active = true;
            self.active.push(index);
        }
    }
}

/// Connections of which timers are handled at once. A crowd that falls silent at one time ends at one time.
const DUE_AT_ONCE: usize = 256;

/// Returns whether a packet is a Retry of QUIC version 1 (RFC 9000 §17.2.5).
#[inline]
fn is_retry(packet: &[u8]) -> bool {
    matches!(packet, [0xf0..=0xff, 0, 0, 0, 1, ..])
}

/// Returns the engine's configuration of a server. `token_key` encrypts its address-validation tokens.
fn server_config(
    tls: ServerTls,
    token_key: [u8; 32],
    (transport, handshakes_max): (&Arc<TransportConfig>, usize),
    time_source: Arc<dyn TimeSource>,
) -> ServerConfig {
    let key = aws_lc_rs::hkdf::Salt::new(aws_lc_rs::hkdf::HKDF_SHA256, &[]).extract(&token_key);
    let mut server = ServerConfig::new(tls.config, Arc::new(key));
    server
        .transport_config(Arc::clone(transport))
        // Those that wait to be accepted, and one that is refused.
        .max_incoming(handshakes_max.saturating_add(1))
        .incoming_buffer_size(INCOMING_BYTES_MAX)
        .incoming_buffer_size_total(INCOMING_BYTES_TOTAL_MAX)
        .time_source(Arc::new(EngineTime(time_source)));
    server
}

/// The time source in the engine's interface.
struct EngineTime(Arc<dyn TimeSource>);

impl quinn_proto::TimeSource for EngineTime {
    fn now(&self) -> std::time::SystemTime {
        self.0.now()
    }
}

/// Twenty bytes, the maximum, so that nobody can guess a client's Initial keys.
const INITIAL_ID_BYTES: usize = 20;
/// The usual space for one packet.
const PACKET_BYTES: usize = 1500;
/// Early packets kept for one incoming connection until it is accepted, which happens at once.
const INCOMING_BYTES_MAX: u64 = 64 << 10;
/// Early packets kept for all incoming connections together.
const INCOMING_BYTES_TOTAL_MAX: u64 = 8 << 20;
