//! A role that its owner drives packet by packet, without links: for programs that count what one turn costs.

use std::{net::SocketAddr, sync::Arc, time::Instant};

use bytes::BytesMut;
use weir_quic::{
    App, ConfigError, EcnCodepoint, Endpoint, EndpointConfig, Limits, OriginCounts, Packets, Shard,
};

use crate::clock::TimeOfDay;

/// A role with its endpoint, and the packets that have arrived for it.
pub struct Driven<A> {
    /// The role.
    pub app: A,
    /// The endpoint of the role.
    pub endpoint: Endpoint,
    /// Packets for the next turn.
    pub arrived: Vec<Arrived>,
    address: SocketAddr,
}

/// A packet that has arrived.
#[derive(Clone, Debug)]
pub struct Arrived {
    remote: SocketAddr,
    ecn: Option<EcnCodepoint>,
    data: BytesMut,
}

impl Arrived {
    /// Returns whether the packet belongs to an endpoint of several with one address.
    pub fn is_of(&self, shard: Shard) -> bool {
        Shard::owner(&self.data, shard.count()) == shard.index()
    }
}

/// Returns the configuration of a client's endpoint, whose packets have at most `packet_bytes`. Equal seeds give equal
/// packets, but for TLS.
pub fn endpoint(seed: u8, packet_bytes: u16) -> EndpointConfig {
    EndpointConfig {
        limits: Limits::default(),
        packets: Packets {
            send_bytes_fixed: Some(packet_bytes),
            ..Packets::default()
        },
        server: None,
        seed: [seed; 32],
        time_source: Arc::<TimeOfDay>::default(),
        qlog: None,
        segmentation_offload: true,
        handshake_counts: OriginCounts::default(),
    }
}

impl<A: App> Driven<A> {
    /// Returns a role with a new endpoint at `address`.
    ///
    /// # Errors
    ///
    /// Fails if limits of `config` are beyond those of QUIC.
    pub fn new(app: A, address: SocketAddr, config: EndpointConfig) -> Result<Self, ConfigError> {
        Self::with_shard(app, address, config, Shard::ALONE)
    }

    /// Returns a role with one of several endpoints that speak to each other.
    ///
    /// # Errors
    ///
    /// Fails if limits of `config` are beyond those of QUIC.
    pub fn with_shard(
        app: A,
        address: SocketAddr,
        config: EndpointConfig,
        shard: Shard,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            app,
            endpoint: Endpoint::with_shard(config, shard)?,
            arrived: Vec::new(),
            address,
        })
    }

    /// Returns when the next turn is due if nothing arrives.
    pub fn due(&self) -> Option<Instant> {
        let due = [self.endpoint.poll_timeout(), self.app.poll_timeout()];
        due.into_iter().flatten().min()
    }

    /// Runs the shortest turn that a host runs: one that looks at the clock as soon as it may, and finds its time over. Sends
    /// all packets to `peer`. Returns whether events are left for the next turn.
    pub fn short_turn_and_send(&mut self, now: Instant, peer: &mut Vec<Arrived>) -> bool {
        self.take_arrived(now);
        self.endpoint.pass_events(now, &mut self.app);
        self.endpoint.handle_timeout(now);
        self.endpoint.pass_events(now, &mut self.app);
        self.end_turn(now);
        while self.endpoint.fill(now) {
            self.send(peer);
        }
        self.send(peer);
        self.endpoint.has_events()
    }

    /// Runs a turn as a host does: packets, timers, events, packets. Returns whether more packets are to be sent.
    #[inline]
    pub fn turn(&mut self, now: Instant) -> bool {
        self.take_arrived(now);
        self.pass_events(now);
        self.endpoint.handle_timeout(now);
        self.pass_events(now);
        self.end_turn(now);
        self.endpoint.fill(now)
    }

    /// Runs a turn, and sends all of its packets to `peer`. Returns whether there were any.
    pub fn turn_and_send(&mut self, now: Instant, peer: &mut Vec<Arrived>) -> bool {
        let before = peer.len();
        let mut has_more = self.turn(now);
        self.send(peer);
        while has_more {
            has_more = self.endpoint.fill(now);
            self.send(peer);
        }
        peer.len() > before
    }

    /// Moves the packets that the last turn has filled to `peer`.
    pub fn send(&mut self, peer: &mut Vec<Arrived>) {
        for packet in self.endpoint.outbox().iter() {
            let size = packet.segment_size.unwrap_or(packet.data.len()).max(1);
            // The packets of a train are contiguous, as in a host.
            let mut train = BytesMut::from(packet.data);
            while !train.is_empty() {
                peer.push(Arrived {
                    remote: self.address,
                    ecn: packet.ecn,
                    data: train.split_to(size.min(train.len())),
                });
            }
        }
        self.endpoint.outbox().clear();
    }

    #[inline]
    fn take_arrived(&mut self, now: Instant) {
        for Arrived { remote, ecn, data } in self.arrived.drain(..) {
            self.endpoint.handle_packet(now, 0, remote, None, ecn, data);
        }
    }

    #[inline]
    fn end_turn(&mut self, now: Instant) {
        if self.app.poll_timeout().is_some_and(|due| due <= now) {
            self.app.handle_timeout(now, &mut self.endpoint);
        }
    }

    fn pass_events(&mut self, now: Instant) {
        while let Some(event) = self.endpoint.poll_event() {
            self.app.handle_event(now, &mut self.endpoint, event);
        }
    }
}
