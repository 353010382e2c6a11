//! One endpoint: many connections, one timer wheel, one outbox.

mod admission;
mod events;
mod layer;

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Instant,
};

use bytes::BytesMut;
use quinn_proto::{
    ConnectionHandle, ConnectionId, DatagramEvent, EcnCodepoint, ServerConfig, TokenMemoryCache,
    Transmit, TransportConfig,
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use weir_transport::Transport as _;

use crate::{
    ClientConfig, ConfigError, Connection, EndpointConfig, Event, Limits, Outbox, Packets, Qlog,
    Shard,
    config::TimeSource,
    connection::{EngineConnection, Way},
    connection_id::SeededConnectionIds,
    datagrams::Shared,
    peer_thread::{ThreadConnections, message::Packet},
    slots::Slots,
    tls::ServerTls,
    web_transport::{Offer, WebTransport},
    wheel::{Tick, UNSCHEDULED, Wheel},
};

/// One connection of an endpoint. Stays distinct from any other that the endpoint ever had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Handle {
    /// A small number, reused only after the connection is gone: good for indexing tables.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// Why a connection could not be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The name of the server cannot stand in a certificate.
    #[error("{0:?} is not a valid server name")]
    ServerName(String),
    /// The address cannot be connected to.
    #[error("{0} is not an address to connect to")]
    Address(SocketAddr),
    /// [`Limits::connections_max`] is reached.
    #[error("the limit of {0} connections is reached")]
    TooMany(usize),
    /// The engine refused, for another reason.
    #[error("cannot connect: {0}")]
    Engine(String),
}

/// What an endpoint has done, in numbers that only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections accepted from peers.
    pub accepted: u64,
    /// Incoming connections refused at [`Limits::connections_max`].
    pub refused_connections: u64,
    /// Incoming connections refused at [`Limits::handshakes_max`].
    pub refused_handshakes: u64,
    /// Incoming connections refused because the role wants none.
    pub refused_unwanted: u64,
    /// Incoming connections asked to prove their address.
    pub retried: u64,
    /// Servers that asked for a proof of our address (Retry, RFC 9000 §8.1.2). Anyone who can send us packets can raise it.
    pub retries_received: u64,
    /// Handshakes that failed after they were accepted.
    pub handshakes_failed: u64,
    /// Connections, in handshake or later, on which nothing was heard for the idle time-out.
    pub timed_out: u64,
    /// Connections closed here because the peer broke the rules of QUIC, such as those of flow control.
    pub violated: u64,
    /// Datagrams dropped to make room for newer ones.
    pub datagrams_dropped_oldest: u64,
    /// Datagrams dropped at their deadline.
    pub datagrams_dropped_expired: u64,
    /// Datagrams received and dropped for newer ones before they were fetched.
    pub datagrams_dropped_unread: u64,
    /// WebTransport sessions established.
    pub web_transport_sessions: u64,
    /// HTTP/3 connections closed because no WebTransport session came in time.
    pub web_transport_overdue: u64,
    /// HTTP/3 requests that were answered with an error status, or reset because there were too many.
    pub http3_requests_refused: u64,
    /// HTTP/3 connections closed because the peer broke the rules.
    pub http3_violations: u64,
    /// Streams that named no established WebTransport session, and early streams beyond the limit.
    pub web_transport_streams_refused: u64,
    /// Datagrams of the same kind.
    pub web_transport_datagrams_dropped: u64,
}

/// Many connections as one pure state machine.
///
/// A host feeds it packets and the time; a role gets its events and works on connections through
/// [`connection`](Self::connection); the host sends what [`fill`](Self::fill) collects.
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
    due: Vec<(u32, Tick)>,
    /// Connections that may have packets to send. Each is here at most once, besides those that this
    /// turn is done with.
    dirty: Vec<u32>,
    /// Where in `dirty` the next turn goes on.
    dirty_next: usize,
    /// Connections that may have events.
    active: VecDeque<u32>,
    pub(crate) events: VecDeque<Event>,
    outbox: Outbox,
    /// The engine wants an empty buffer for each batch; it is copied to the outbox from here.
    scratch: Vec<u8>,
    /// Replies to strangers, waiting for the outbox.
    responses: VecDeque<(Transmit, u32, Vec<u8>)>,
    handshakes: usize,
    refuses_incoming: bool,
    opened: u64,
    counters: Counters,
    /// Draws the first connection IDs that clients give their servers (RFC 9000 §7.2).
    initial_ids: StdRng,
    /// Address-validation tokens of servers, for the next connection to each.
    tokens: Arc<TokenMemoryCache>,
    pub(crate) peer_threads: ThreadConnections,
    /// For connections that choose HTTP/3.
    offer: Option<Arc<Offer>>,
    datagrams: Shared,
    /// The last time that was told.
    now: Option<Instant>,
}

impl Endpoint {
    /// An endpoint without connections.
    pub fn new(config: EndpointConfig) -> Result<Self, ConfigError> {
        Self::with_shard(config, Shard::ALONE)
    }

    /// One of several endpoints that share an address, with a connection to each of the others. All are made with the same
    /// seed and TLS: then a token or a stateless reset of one is good for all.
    pub fn with_shard(config: EndpointConfig, shard: Shard) -> Result<Self, ConfigError> {
        let mut generator = StdRng::from_seed(config.seed);
        let reset_key: [u8; 64] = generator.random();
        let token_key: [u8; 32] = generator.random();
        for _ in 0..shard.index() {
            // What is drawn from here on is the shard's own.
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
        let transport = config
            .limits
            .transport(&packets, segmentation_offload, None)?;
        let transport = Arc::new(transport);
        let offer = config
            .server
            .as_ref()
            .and_then(|tls| tls.web_transport.clone());
        let server = config
            .server
            .map(|tls| server_config(tls, token_key, &transport, config.time_source));
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
            active: VecDeque::new(),
            events: peer_threads.initial_events(),
            outbox: Outbox::default(),
            scratch: Vec::with_capacity(packets.joined_max * PACKET_BYTES),
            responses: VecDeque::new(),
            handshakes: 0,
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

    /// Starts a connection to `remote` on the host's socket number `socket`. `server_name` is what the
    /// peer's certificate has to be for.
    pub fn connect(
        &mut self,
        now: Instant,
        config: &ClientConfig,
        remote: SocketAddr,
        server_name: &str,
        socket: u32,
    ) -> Result<Handle, ConnectError> {
        if self.slots.open() >= self.limits.connections_max {
            return Err(ConnectError::TooMany(self.limits.connections_max));
        }
        let initial_id = ConnectionId::new(&self.initial_ids.random::<[u8; INITIAL_ID_BYTES]>());
        let mut client = quinn_proto::ClientConfig::new(config.tls.config.clone());
        client
            .transport_config(
                self.logged_transport()
                    .unwrap_or_else(|| Arc::clone(&self.transport)),
            )
            .token_store(self.tokens.clone())
            .initial_dst_cid_provider(Arc::new(move || initial_id));
        let (handle, engine) = self
            .engine
            .connect(now, client, remote, server_name)
            .map_err(|error| match error {
                quinn_proto::ConnectError::InvalidServerName(name) => {
                    ConnectError::ServerName(name)
                }
                quinn_proto::ConnectError::InvalidRemoteAddress(address) => {
                    ConnectError::Address(address)
                }
                error @ (quinn_proto::ConnectError::EndpointStopping
                | quinn_proto::ConnectError::CidsExhausted
                | quinn_proto::ConnectError::NoDefaultClientConfig
                | quinn_proto::ConnectError::UnsupportedVersion) => {
                    ConnectError::Engine(error.to_string())
                }
            })?;
        self.now = Some(now);
        let handle = self.adopt(handle, engine, socket);
        if let Some(slot) = self.slots.at(handle.index) {
            let request = config.web_transport.clone();
            slot.web_transport = request.map(|request| Box::new(WebTransport::client(request)));
            slot.refusals = Some(Arc::clone(config.tls.refusals()));
        }
        Ok(handle)
    }

    /// The connection behind a handle, unless it is lost or closed.
    #[inline]
    pub fn connection(&mut self, now: Instant, handle: Handle) -> Option<Connection<'_>> {
        let way = if let Some((hot, slot)) = self.slots.usable(handle) {
            Way::Engine(EngineConnection {
                now,
                handle,
                hot,
                slot,
                dirty: &mut self.dirty,
                shared: &mut self.datagrams,
            })
        } else {
            Way::PeerThread(self.peer_threads.view(handle, &mut self.events)?)
        };
        Some(Connection { handle, way })
    }

    /// Number of connections, open, in handshake, or closed and still draining.
    pub fn connections(&self) -> usize {
        self.slots.open()
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        Counters {
            datagrams_dropped_oldest: self.datagrams.dropped.oldest,
            datagrams_dropped_expired: self.datagrams.dropped.expired,
            ..self.counters
        }
    }

    /// A UDP payload came in on the host's socket number `socket`.
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

    /// A UDP payload came in that is for this endpoint, or for none.
    pub(crate) fn handle_own_packet(&mut self, now: Instant, socket: u32, packet: Packet) {
        let Packet {
            remote,
            local,
            ecn,
            data,
        } = packet;
        self.now = Some(now);
        if is_retry(&data) {
            self.counters.retries_received += 1;
        }
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
                if let Some((hot, slot)) = self.slots.both(index) {
                    hot.socket = socket;
                    slot.engine.handle_event(event);
                    self.mark(index);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.admit(now, socket, incoming),
            Some(DatagramEvent::Response(transmit)) => self.respond(transmit, socket),
        }
    }

    /// The next event for the role.
    pub fn poll_event(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let index = self.active.pop_front()?;
            self.slots.hot(index).active = false;
            self.collect_events(index);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let threads = self.peer_threads.poll_timeout();
        self.wheel.next().into_iter().chain(threads).min()
    }

    /// Time has come for some connection's timer. Early calls do nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.peer_threads.handle_timeout(now, &mut self.events);
        self.now = Some(now);
        let mut due = std::mem::take(&mut self.due);
        self.wheel.expire(now, &mut due);
        for (index, tick) in due.drain(..) {
            // Most entries are stale; that must not cost a look at the engine's state.
            if self.slots.hot(index).scheduled.tick != tick {
                continue;
            }
            let Some((hot, slot)) = self.slots.both(index) else {
                continue;
            };
            hot.scheduled = UNSCHEDULED;
            match slot.poll_timeout() {
                Some(deadline) if deadline <= now => {
                    slot.engine.handle_timeout(now);
                    if slot.web_transport.is_some() {
                        self.layer_timeout(now, index);
                    }
                    self.mark(index);
                }
                Some(deadline) => {
                    self.wheel
                        .schedule(now, index, deadline, &mut hot.scheduled);
                }
                None => {}
            }
        }
        // A host that slept finds a whole round of the wheel here.
        due.shrink_to(DUE_KEPT);
        self.due = due;
    }

    /// Collects packets of all connections in the [`outbox`](Self::outbox), until it is full. Returns
    /// whether there is more.
    pub fn fill(&mut self, now: Instant) -> bool {
        while let Some((transmit, socket, data)) = self.responses.pop_front() {
            self.outbox.push(transmit, socket, &data);
        }
        while self.dirty_next < self.dirty.len() {
            if self.outbox.is_full() {
                return true;
            }
            let index = self.dirty[self.dirty_next];
            // One that `fill_from` was called for is clean by now. One that got something from the
            // engine while it was driven is not.
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

    /// Collects the packets of one connection now, while it is in the cache, instead of waiting for
    /// [`fill`](Self::fill). For a role that has just written to it in a fan-out.
    #[inline]
    pub fn fill_from(&mut self, now: Instant, handle: Handle) {
        if !self.outbox.is_full() && self.slots.hot(handle.index).dirty {
            // What does not fit stays marked and leaves with the next `fill`.
            let _complete = self.drive(now, handle.index);
        }
    }

    /// The packets to send. The host clears it.
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

    /// Takes all packets that one connection has to send. Returns false if the outbox filled up.
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
            self.outbox
                .push_from(transmit, hot.socket, &mut self.scratch);
            if self.outbox.is_full() {
                return false;
            }
        }
        hot.dirty = false;
        if let Some(deadline) = slot.poll_timeout() {
            self.wheel
                .schedule(now, index, deadline, &mut hot.scheduled);
        }
        self.relay_endpoint_events(index);
        true
    }

    /// Carries the engine's own messages between a connection and the endpoint.
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
        // A connection can end and be driven before anybody asked for its events.
        self.collect_events(index);
        let Some(slot) = self.slots.remove(index) else {
            return;
        };
        self.handshakes -= usize::from(slot.handshaking);
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
            self.active.push_back(index);
        }
    }
}

/// Whether a packet is a Retry of QUIC version 1 (RFC 9000 §17.2.5).
#[inline]
fn is_retry(packet: &[u8]) -> bool {
    matches!(packet, [0xf0..=0xff, 0, 0, 0, 1, ..])
}

/// The engine's configuration of a server whose address-validation tokens are sealed with `token_key`.
fn server_config(
    tls: ServerTls,
    token_key: [u8; 32],
    transport: &Arc<TransportConfig>,
    time_source: Arc<dyn TimeSource>,
) -> ServerConfig {
    let key = aws_lc_rs::hkdf::Salt::new(aws_lc_rs::hkdf::HKDF_SHA256, &[]).extract(&token_key);
    let mut server = ServerConfig::new(tls.config, Arc::new(key));
    server
        .transport_config(Arc::clone(transport))
        // Each incoming connection is accepted or refused at once, so no more than one ever waits.
        .max_incoming(1)
        .incoming_buffer_size(INCOMING_BYTES_MAX)
        .incoming_buffer_size_total(INCOMING_BYTES_TOTAL_MAX)
        .time_source(Arc::new(EngineTime(time_source)));
    server
}

/// Our time source in the engine's dress.
struct EngineTime(Arc<dyn TimeSource>);

impl quinn_proto::TimeSource for EngineTime {
    fn now(&self) -> std::time::SystemTime {
        self.0.now()
    }
}

/// Twenty bytes, the most there can be: nobody guesses a client's first keys.
const INITIAL_ID_BYTES: usize = 20;
/// Room for one packet, as a rule.
const PACKET_BYTES: usize = 1500;
/// Early packets kept for one incoming connection until it is accepted, which happens at once.
const INCOMING_BYTES_MAX: u64 = 64 << 10;
/// The same for all incoming connections together.
const INCOMING_BYTES_TOTAL_MAX: u64 = 8 << 20;
/// Due entries of the timer wheel that room is kept for: 64 KiB.
const DUE_KEPT: usize = 4096;
