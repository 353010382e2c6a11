//! Peers that exceed flow control: each limit at its value and one past it.
//!
//! An endpoint of this crate never does that. The client is therefore the bare engine, with a TLS session that reports
//! larger limits than the server granted.

use std::{any::Any, cell::RefCell, net::SocketAddr, rc::Rc, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use quinn_proto::{
    ConnectError, Connection, ConnectionError, ConnectionHandle, ConnectionId, DatagramEvent, Dir,
    Endpoint, EndpointConfig, Event, Side as End, StreamId, TransportError, TransportErrorCode,
    crypto::{
        self, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, Session,
        rustls::QuicClientConfig,
    },
    transport_parameters::TransportParameters,
};
use weir_h3::varint;
use weir_quic::{Limits, Lost};
use weir_sim::{SERVER_NAME, certificate};
use weir_transport::{Direction, Read, Transport as _};

use crate::pair::{DELAY, Flight, PROTOCOL, Pair, Setup, Side, losses, read_all};

/// Transport parameters with which a server grants limits (RFC 9000 §18.2).
const INITIAL_MAX_DATA: u64 = 0x04;
const INITIAL_MAX_STREAM_DATA_BIDI_REMOTE: u64 = 0x06;
const INITIAL_MAX_STREAM_DATA_UNI: u64 = 0x07;
const INITIAL_MAX_STREAMS_BIDI: u64 = 0x08;
const INITIAL_MAX_STREAMS_UNI: u64 = 0x09;

/// More than any test grants.
const PLENTY: u64 = 1 << 20;

/// TLS of a client that reports [`PLENTY`] for some transport parameters, whatever the server grants.
struct Credulous {
    honest: Arc<QuicClientConfig>,
    raised: &'static [u64],
}

impl crypto::ClientConfig for Credulous {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        server_name: &str,
        parameters: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let honest = Arc::clone(&self.honest);
        Ok(Box::new(Belief {
            honest: honest.start_session(version, server_name, parameters)?,
            raised: self.raised,
        }))
    }
}

struct Belief {
    honest: Box<dyn Session>,
    raised: &'static [u64],
}

impl Session for Belief {
    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let granted = self.honest.transport_parameters()?;
        Ok(granted.map(|granted| with_plenty(&granted, self.raised)))
    }

    fn initial_keys(&self, id: &ConnectionId, end: End) -> Keys {
        self.honest.initial_keys(id, end)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.honest.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.honest.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.honest.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.honest.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.honest.is_handshaking()
    }

    fn read_handshake(&mut self, data: &[u8]) -> Result<bool, TransportError> {
        self.honest.read_handshake(data)
    }

    fn write_handshake(&mut self, out: &mut Vec<u8>) -> Option<Keys> {
        self.honest.write_handshake(out)
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.honest.next_1rtt_keys()
    }

    fn is_valid_retry(&self, id: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.honest.is_valid_retry(id, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.honest.export_keying_material(output, label, context)
    }
}

/// Returns the parameters with [`PLENTY`] in place of some of the values granted.
fn with_plenty(granted: &TransportParameters, raised: &[u64]) -> TransportParameters {
    let mut wire = Vec::new();
    granted.write(&mut wire);
    let (mut rest, mut out) = (&wire[..], Vec::new());
    while !rest.is_empty() {
        let mut number = || {
            let (number, length) = varint::decode(rest).unwrap();
            rest = &rest[length..];
            number
        };
        let (id, length) = (number(), number());
        let (value, after) = rest.split_at(usize::try_from(length).unwrap());
        rest = after;
        if raised.contains(&id) {
            continue;
        }
        varint::encode(id, &mut out);
        varint::encode(length, &mut out);
        out.extend_from_slice(value);
    }
    for &id in raised {
        let mut value = Vec::new();
        varint::encode(PLENTY, &mut value);
        varint::encode(id, &mut out);
        varint::encode(value.len() as u64, &mut out);
        out.append(&mut value);
    }
    TransportParameters::read(End::Client, &mut &out[..]).unwrap()
}

/// A client that exceeds the limits granted, on its own link to the server of a [`Pair`].
struct Thief {
    endpoint: Endpoint,
    handle: ConnectionHandle,
    connection: Connection,
    /// Packets that the server has sent to this client.
    inbox: Rc<RefCell<Vec<Vec<u8>>>>,
    address: SocketAddr,
    is_connected: bool,
    /// Why the connection was lost.
    lost: Option<ConnectionError>,
}

impl Thief {
    /// Connects to the server of `pair`.
    fn connect(pair: &mut Pair, raised: &'static [u64]) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(certificate().chain);
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![PROTOCOL.into()];
        let honest = Arc::new(QuicClientConfig::try_from(tls).unwrap());
        let config = quinn_proto::ClientConfig::new(Arc::new(Credulous { honest, raised }));
        let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &[0; 64]);
        let mut own = EndpointConfig::new(Arc::new(key));
        own.rng_seed(Some([5; 32]));
        let mut endpoint = Endpoint::new(Arc::new(own), None, true, None);
        let (handle, connection) = endpoint
            .connect(pair.now, config, pair.server_address, SERVER_NAME)
            .unwrap();
        let address = "10.0.0.66:666".parse().unwrap();
        let inbox = Rc::<RefCell<Vec<Vec<u8>>>>::default();
        let packets = Rc::clone(&inbox);
        pair.wire = Box::new(move |flight| {
            let is_mine = flight.destination == address;
            if is_mine {
                packets.borrow_mut().push(flight.data.clone());
            }
            !is_mine
        });
        let mut thief = Self {
            endpoint,
            handle,
            connection,
            inbox,
            address,
            is_connected: false,
            lost: None,
        };
        thief.pass(pair, DELAY * 20);
        assert!(thief.is_connected);
        thief
    }

    /// Lets time pass for both.
    fn pass(&mut self, pair: &mut Pair, time: Duration) {
        let end = pair.now + time;
        while pair.now < end {
            self.turn(pair);
            pair.pass(DELAY);
        }
        self.turn(pair);
    }

    fn turn(&mut self, pair: &mut Pair) {
        let now = pair.now;
        let mut scratch = Vec::new();
        for data in self.inbox.take() {
            let data = BytesMut::from(&data[..]);
            let event =
                self.endpoint
                    .handle(now, pair.server_address, None, None, data, &mut scratch);
            if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
                self.connection.handle_event(event);
            }
        }
        if self.connection.poll_timeout().is_some_and(|at| at <= now) {
            self.connection.handle_timeout(now);
        }
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(reply) = self.endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(reply);
            }
        }
        while let Some(event) = self.connection.poll() {
            match event {
                Event::Connected => self.is_connected = true,
                Event::ConnectionLost { reason } => self.lost = Some(reason),
                _ => {}
            }
        }
        loop {
            scratch.clear();
            let Some(transmit) = self.connection.poll_transmit(now, 1, &mut scratch) else {
                break;
            };
            pair.inject(Flight {
                to: Side::Server,
                from: self.address,
                destination: pair.server_address,
                ecn: transmit.ecn,
                data: scratch.clone(),
            });
        }
    }

    /// Opens a stream and writes to it.
    fn open(&mut self, dir: Dir, bytes: usize) -> StreamId {
        let stream = self.connection.streams().open(dir).unwrap();
        self.write(stream, bytes);
        stream
    }

    fn write(&mut self, stream: StreamId, bytes: usize) {
        let written = self.connection.send_stream(stream).write(&vec![7; bytes]);
        assert_eq!(written, Ok(bytes));
    }
}

/// The parameters that the server grants, those that the thief assumes, and what it does.
struct Theft {
    limits: Limits,
    raised: &'static [u64],
    /// Uses everything that was granted.
    take_all: fn(&mut Thief) -> StreamId,
    /// Exceeds the limit by one, given the last stream.
    take_one: fn(&mut Thief, StreamId),
    code: TransportErrorCode,
}

/// Checks that a client that exceeds a limit by one loses its connection, and that no other connection is affected.
fn expect_caught(theft: &Theft) {
    let mut pair = Pair::with(Setup {
        server: theft.limits.clone(),
        ..Setup::default()
    });
    let (client, server) = pair.connect();
    let mut thief = Thief::connect(&mut pair, theft.raised);
    pair.take_server();

    let last = (theft.take_all)(&mut thief);
    thief.pass(&mut pair, DELAY * 20);
    assert_eq!(thief.lost, None);
    assert_eq!(losses(&pair.take_server()), []);
    assert_eq!(pair.server.counters().violated, 0);

    (theft.take_one)(&mut thief, last);
    thief.pass(&mut pair, DELAY * 20);
    let Some(ConnectionError::ConnectionClosed(close)) = &thief.lost else {
        panic!("{:?}", thief.lost);
    };
    assert_eq!(close.error_code, theft.code);
    let found = losses(&pair.take_server());
    let [Lost::Transport(text)] = &found[..] else {
        panic!("{found:?}");
    };
    assert!(text.starts_with("this side reports: "), "{text}");
    assert_eq!(pair.server.counters().violated, 1);

    // The other client is not affected.
    let mut connection = pair.at_client(client);
    let stream = connection.open(Direction::Uni).unwrap();
    let mut data = Bytes::from_static(b"x");
    connection.write(stream, &mut data).unwrap();
    connection.finish(stream);
    thief.pass(&mut pair, Duration::from_secs(2));
    let read = read_all(&mut pair.at_server(server), stream);
    assert_eq!(read, (vec![b'x'], Read::Fin));
    assert_eq!(losses(&pair.take_client()), []);
    assert_eq!(pair.server.connections(), 1);
    assert_eq!(pair.server.counters().violated, 1);
}

#[test]
fn one_unidirectional_stream_too_many_costs_the_connection() {
    expect_caught(&Theft {
        limits: Limits {
            uni_streams_max: 3,
            ..Limits::default()
        },
        raised: &[INITIAL_MAX_STREAMS_UNI],
        take_all: |thief| {
            thief.open(Dir::Uni, 1);
            thief.open(Dir::Uni, 1);
            thief.open(Dir::Uni, 1)
        },
        take_one: |thief, _| {
            thief.open(Dir::Uni, 1);
        },
        code: TransportErrorCode::STREAM_LIMIT_ERROR,
    });
}

#[test]
fn one_bidirectional_stream_too_many_costs_the_connection() {
    expect_caught(&Theft {
        limits: Limits {
            bidi_streams_max: 2,
            ..Limits::default()
        },
        raised: &[INITIAL_MAX_STREAMS_BIDI],
        take_all: |thief| {
            thief.open(Dir::Bi, 1);
            thief.open(Dir::Bi, 1)
        },
        take_one: |thief, _| {
            thief.open(Dir::Bi, 1);
        },
        code: TransportErrorCode::STREAM_LIMIT_ERROR,
    });
}

#[test]
fn one_byte_too_many_on_a_stream_costs_the_connection() {
    for (dir, raised) in [
        (Dir::Uni, &[INITIAL_MAX_STREAM_DATA_UNI]),
        (Dir::Bi, &[INITIAL_MAX_STREAM_DATA_BIDI_REMOTE]),
    ] {
        expect_caught(&Theft {
            limits: Limits {
                stream_receive_bytes_max: 1000,
                ..Limits::default()
            },
            raised,
            take_all: match dir {
                Dir::Uni => |thief| thief.open(Dir::Uni, 1000),
                Dir::Bi => |thief| thief.open(Dir::Bi, 1000),
            },
            take_one: |thief, stream| thief.write(stream, 1),
            code: TransportErrorCode::FLOW_CONTROL_ERROR,
        });
    }
}

#[test]
fn one_byte_too_many_on_all_streams_together_costs_the_connection() {
    expect_caught(&Theft {
        limits: Limits {
            stream_receive_bytes_max: 1000,
            receive_bytes_max: 1500,
            ..Limits::default()
        },
        raised: &[INITIAL_MAX_DATA],
        take_all: |thief| {
            thief.open(Dir::Uni, 1000);
            thief.open(Dir::Bi, 500)
        },
        // Half of the limit of the stream itself.
        take_one: |thief, stream| thief.write(stream, 1),
        code: TransportErrorCode::FLOW_CONTROL_ERROR,
    });
}

#[test]
fn who_believes_what_is_true_keeps_to_it() {
    let mut pair = Pair::with(Setup {
        server: Limits {
            uni_streams_max: 1,
            stream_receive_bytes_max: 1000,
            ..Limits::default()
        },
        ..Setup::default()
    });
    let mut honest = Thief::connect(&mut pair, &[]);
    let stream = honest.open(Dir::Uni, 1000);
    assert_eq!(honest.connection.streams().open(Dir::Uni), None);
    let written = honest.connection.send_stream(stream).write(b"x");
    assert_eq!(written, Err(quinn_proto::WriteError::Blocked));
}
