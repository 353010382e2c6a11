//! Two endpoints and the link between them, in virtual time.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use bytes::{Bytes, BytesMut};
use weir_quic::{
    ClientConfig, Connection, EcnCodepoint, Endpoint, EndpointConfig, Event, Handle, Limits, Lost,
    Packets, Qlog, TimeSource,
    tls::{ClientTls, ServerTls, Trust},
};
use weir_sim::{SERVER_NAME, certificate};
use weir_transport::{Read, StreamId, Transport as _};

pub(crate) const PROTOCOL: &str = "weir-test";
/// One-way delay.
pub(crate) const DELAY: Duration = Duration::from_millis(5);

/// One of the two endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    Client,
    Server,
}

/// A packet on the link.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    pub(crate) to: Side,
    pub(crate) from: SocketAddr,
    /// The destination, which distinguishes the clients' addresses.
    pub(crate) destination: SocketAddr,
    pub(crate) ecn: Option<EcnCodepoint>,
    pub(crate) data: Vec<u8>,
}

/// An entry of an outbox, for checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) by: Side,
    pub(crate) at: Duration,
    pub(crate) segment_size: Option<usize>,
    pub(crate) ecn: Option<EcnCodepoint>,
    pub(crate) data: Vec<u8>,
}

pub(crate) struct Pair {
    start: Instant,
    pub(crate) now: Instant,
    pub(crate) client: Endpoint,
    pub(crate) server: Endpoint,
    pub(crate) client_address: SocketAddr,
    pub(crate) server_address: SocketAddr,
    pub(crate) client_events: Vec<Event>,
    pub(crate) server_events: Vec<Event>,
    pub(crate) config: ClientConfig,
    /// Called for each packet: may change it; returns false to drop it.
    pub(crate) wire: Box<dyn FnMut(&mut Flight) -> bool>,
    pub(crate) sent: Vec<Sent>,
    pub(crate) in_flight: BTreeMap<(Instant, u64), Flight>,
    number: u64,
}

struct FixedTime;

impl TimeSource for FixedTime {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_hours(500_000)
    }
}

/// Configuration of both endpoints.
pub(crate) struct Setup {
    pub(crate) client: Limits,
    pub(crate) server: Limits,
    pub(crate) seed: u8,
    pub(crate) segmentation_offload: bool,
    pub(crate) server_protocol: &'static str,
    pub(crate) server_packets: Packets,
    pub(crate) qlog: Option<Qlog>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            client: Limits::default(),
            server: Limits::default(),
            seed: 1,
            segmentation_offload: true,
            server_protocol: PROTOCOL,
            server_packets: Packets::default(),
            qlog: None,
        }
    }
}

/// The origin of a test's time.
pub(crate) fn origin() -> Instant {
    #[expect(
        clippy::disallowed_methods,
        reason = "a test's origin of time; its value is unused"
    )]
    Instant::now()
}

/// Returns the configuration of an endpoint, which accepts connections if a protocol is given.
pub(crate) fn config(limits: Limits, server_protocol: Option<&str>) -> EndpointConfig {
    let server = server_protocol.map(|protocol| {
        let made = certificate();
        ServerTls::new(made.chain, made.key, &[protocol]).unwrap()
    });
    EndpointConfig {
        limits,
        server,
        seed: [0; 32],
        time_source: Arc::new(FixedTime),
        qlog: None,
        packets: Packets::default(),
        segmentation_offload: true,
        handshake_counts: weir_quic::OriginCounts::default(),
    }
}

impl Pair {
    pub(crate) fn new() -> Self {
        Self::with(Setup::default())
    }

    pub(crate) fn with(setup: Setup) -> Self {
        let mut client = config(setup.client, None);
        client.seed = [setup.seed; 32];
        client.segmentation_offload = setup.segmentation_offload;
        let mut server = config(setup.server, Some(setup.server_protocol));
        server.seed = [setup.seed.wrapping_add(100); 32];
        server.segmentation_offload = setup.segmentation_offload;
        server.qlog = setup.qlog;
        server.packets = setup.server_packets;
        let start = origin();
        Self {
            start,
            now: start,
            client: Endpoint::new(client).unwrap(),
            server: Endpoint::new(server).unwrap(),
            client_address: "10.0.0.1:1000".parse().unwrap(),
            server_address: "10.0.0.2:4433".parse().unwrap(),
            client_events: Vec::new(),
            server_events: Vec::new(),
            config: ClientConfig {
                tls: ClientTls::new(Trust::Roots(certificate().chain), &[PROTOCOL]).unwrap(),
                web_transport: None,
            },
            wire: Box::new(|_| true),
            sent: Vec::new(),
            in_flight: BTreeMap::new(),
            number: 0,
        }
    }

    /// Starts a connection.
    pub(crate) fn start(&mut self) -> Handle {
        let remote = self.server_address;
        self.client
            .connect(self.now, &self.config, remote, SERVER_NAME, 0)
            .unwrap()
    }

    /// Starts a connection and waits until it is established at both ends; discards the events.
    pub(crate) fn connect(&mut self) -> (Handle, Handle) {
        let client = self.start();
        self.pass(DELAY * 20);
        let mut server = None;
        for event in self.take_server() {
            if let Event::Connected { handle } = event {
                server = Some(handle);
            }
        }
        let events = self.take_client();
        let connected =
            |event: &Event| matches!(event, Event::Connected { handle } if *handle == client);
        assert!(events.iter().any(connected), "{events:?}");
        (client, server.unwrap())
    }

    pub(crate) fn take_client(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.client_events)
    }

    pub(crate) fn take_server(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.server_events)
    }

    pub(crate) fn at_client(&mut self, handle: Handle) -> Connection<'_> {
        self.client.connection(self.now, handle).unwrap()
    }

    pub(crate) fn at_server(&mut self, handle: Handle) -> Connection<'_> {
        self.server.connection(self.now, handle).unwrap()
    }

    /// Sends a packet to arrive at once.
    pub(crate) fn inject(&mut self, flight: Flight) {
        self.number += 1;
        self.in_flight.insert((self.now, self.number), flight);
    }

    /// Advances time, with everything that happens in it.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.settle();
            let next = [self.client.poll_timeout(), self.server.poll_timeout()]
                .into_iter()
                .flatten()
                .chain(self.in_flight.keys().next().map(|&(at, _)| at))
                .min();
            match next {
                Some(next) if next <= end => self.now = next.max(self.now),
                _ => break,
            }
        }
        self.now = end;
        self.settle();
    }

    /// Processes everything that happens at the current time.
    pub(crate) fn settle(&mut self) {
        loop {
            let mut is_busy = false;
            while let Some((&(at, number), _)) = self.in_flight.first_key_value()
                && at <= self.now
            {
                let flight = self.in_flight.remove(&(at, number)).unwrap();
                is_busy = true;
                let data = BytesMut::from(&flight.data[..]);
                let endpoint = match flight.to {
                    Side::Client => &mut self.client,
                    Side::Server => &mut self.server,
                };
                endpoint.handle_packet(self.now, 0, flight.from, None, flight.ecn, data);
            }
            for side in [Side::Client, Side::Server] {
                is_busy |= self.turn(side);
            }
            if !is_busy {
                return;
            }
        }
    }

    fn turn(&mut self, side: Side) -> bool {
        let (endpoint, events) = match side {
            Side::Client => (&mut self.client, &mut self.client_events),
            Side::Server => (&mut self.server, &mut self.server_events),
        };
        let mut is_busy = false;
        if endpoint.poll_timeout().is_some_and(|at| at <= self.now) {
            endpoint.handle_timeout(self.now);
            is_busy = true;
        }
        while let Some(event) = endpoint.poll_event() {
            events.push(event);
            is_busy = true;
        }
        self.send(side);
        is_busy
    }

    /// Takes what one endpoint has to send and puts it on the link.
    pub(crate) fn send(&mut self, side: Side) {
        loop {
            let endpoint = match side {
                Side::Client => &mut self.client,
                Side::Server => &mut self.server,
            };
            let has_more = endpoint.fill(self.now);
            self.flush(side);
            if !has_more {
                return;
            }
        }
    }

    /// Puts one endpoint's outbox on the link.
    pub(crate) fn flush(&mut self, side: Side) {
        let (endpoint, to, from) = match side {
            Side::Client => (&mut self.client, Side::Server, self.client_address),
            Side::Server => (&mut self.server, Side::Client, self.server_address),
        };
        for packet in endpoint.outbox().iter() {
            self.sent.push(Sent {
                by: side,
                at: self.now - self.start,
                segment_size: packet.segment_size,
                ecn: packet.ecn,
                data: packet.data.to_vec(),
            });
            let size = packet.segment_size.unwrap_or(packet.data.len());
            for data in packet.data.chunks(size) {
                let mut flight = Flight {
                    to,
                    from,
                    destination: packet.destination,
                    ecn: packet.ecn,
                    data: data.to_vec(),
                };
                if (self.wire)(&mut flight) {
                    self.number += 1;
                    self.in_flight
                        .insert((self.now + DELAY, self.number), flight);
                }
            }
        }
        endpoint.outbox().clear();
    }
}

/// Returns the reasons for lost connections among events.
pub(crate) fn losses(events: &[Event]) -> Vec<Lost> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::Lost { reason, .. } => Some(reason.clone()),
            _ => None,
        })
        .collect()
}

/// Returns the datagrams among events.
pub(crate) fn datagrams(events: &[Event]) -> Vec<Bytes> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::Datagram { data, .. } => Some(data.clone()),
            _ => None,
        })
        .collect()
}

/// Reads all available data of a stream; returns it, and the last result.
pub(crate) fn read_all(connection: &mut Connection<'_>, stream: StreamId) -> (Vec<u8>, Read) {
    let mut all = Vec::new();
    loop {
        match connection.read(stream) {
            Read::Data(data) => all.extend_from_slice(&data),
            end => return (all, end),
        }
    }
}

/// Pseudo-random numbers from a seed, for damaging packets.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).unwrap()
    }
}
