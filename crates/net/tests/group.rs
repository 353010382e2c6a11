//! Two threads on one port: packets reach the thread of their connection, also after the client's address has changed,
//! and also if the kernel gives them to the wrong thread.

#![expect(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking, and looks only at the events that it is about"
)]

use std::{
    collections::BTreeSet,
    net::{SocketAddr, UdpSocket as PlainSocket},
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use bytes::Bytes;
use weir_net::{
    CHANNEL_ITEMS_MAX, Host, HostConfig, SocketConfig, Stop, Telemetry, TelemetrySnapshot,
    UdpSocket,
    certificate::Certificate,
    clock::{self, SystemClock},
    thread_channels,
};
use weir_quic::{
    App, ClientConfig, Counters, Endpoint, EndpointConfig, Event, Handle, Limits,
    PeerThreadCounters, Shard,
    tls::{ClientTls, ServerTls, Trust},
};
use weir_transport::{Direction, Read, StreamId, Transport as _};

/// Echoes every stream, and records its peers.
#[derive(Default)]
struct Echo {
    clients: Vec<Handle>,
    remotes: BTreeSet<SocketAddr>,
    is_leaving: bool,
}

impl App for Echo {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        match event {
            Event::Connected { handle } => {
                let connection = endpoint.connection(now, handle).unwrap();
                if connection.peer_thread().is_none() {
                    self.clients.push(handle);
                }
            }
            Event::Readable { handle, stream } => {
                let Some(mut connection) = endpoint.connection(now, handle) else {
                    return;
                };
                self.remotes.insert(connection.remote_address());
                while let Read::Data(mut data) = connection.read(stream) {
                    connection.write(stream, &mut data).unwrap();
                }
            }
            _ => {}
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _now: Instant, _endpoint: &mut Endpoint) {}

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        endpoint.close_all(now, 0, b"");
        self.is_leaving = true;
    }

    fn is_finished(&self) -> bool {
        self.is_leaving
    }
}

/// Each client writes on its stream, waits for the echo, and repeats this.
#[derive(Default)]
struct Clients {
    streams: Vec<(Handle, StreamId)>,
    echoed: Vec<usize>,
    lost: usize,
}

impl Clients {
    fn write(&self, now: Instant, endpoint: &mut Endpoint, client: usize) {
        let (handle, stream) = self.streams[client];
        let mut data = Bytes::from(vec![client.to_le_bytes()[0]; ROUND_BYTES]);
        let mut connection = endpoint.connection(now, handle).unwrap();
        connection.write(stream, &mut data).unwrap();
    }
}

impl App for Clients {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        match event {
            Event::Connected { handle } => {
                let mut connection = endpoint.connection(now, handle).unwrap();
                let stream = connection.open(Direction::Bi).unwrap();
                self.streams.push((handle, stream));
                self.echoed.push(0);
                self.write(now, endpoint, self.streams.len() - 1);
            }
            Event::Readable { handle, .. } => {
                let client = self.streams.iter().position(|&(other, _)| other == handle);
                let client = client.unwrap();
                let before = self.echoed[client] / ROUND_BYTES;
                let mut connection = endpoint.connection(now, handle).unwrap();
                while let Read::Data(data) = connection.read(self.streams[client].1) {
                    assert!(data.iter().all(|&byte| usize::from(byte) == client));
                    self.echoed[client] += data.len();
                }
                let rounds = self.echoed[client] / ROUND_BYTES;
                if rounds > before && rounds < ROUNDS {
                    self.write(now, endpoint, client);
                }
            }
            Event::Lost { .. } => self.lost += 1,
            _ => {}
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _now: Instant, _endpoint: &mut Endpoint) {}

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        endpoint.close_all(now, 0, b"");
        self.lost = CLIENTS;
    }

    fn is_finished(&self) -> bool {
        let is_done = |&bytes: &usize| bytes == ROUNDS * ROUND_BYTES;
        self.lost > 0 || self.echoed.len() == CLIENTS && self.echoed.iter().all(is_done)
    }
}

const CLIENTS: usize = 8;
const ROUNDS: usize = 100;
const ROUND_BYTES: usize = 3000;

fn config(server: Option<ServerTls>) -> EndpointConfig {
    EndpointConfig {
        limits: Limits::default(),
        server,
        seed: [3; 32],
        time_source: Arc::new(SystemClock),
        qlog: None,
        packets: weir_quic::Packets::default(),
        segmentation_offload: true,
        handshake_counts: weir_quic::OriginCounts::default(),
    }
}

/// The result of one server thread.
struct Ended {
    app: Echo,
    counters: Counters,
    between: PeerThreadCounters,
    telemetry: TelemetrySnapshot,
}

struct Server {
    address: SocketAddr,
    certificate: rustls::pki_types::CertificateDer<'static>,
    stop: Stop,
    threads: Vec<JoinHandle<Ended>>,
}

/// Starts a server of two threads. With `is_crossed` each reads the other's socket.
fn start_server(is_crossed: bool) -> Server {
    let made = Certificate::self_made(&["localhost".to_owned()]).unwrap();
    let certificate = made.chain[0].clone();
    let tls = ServerTls::new(made.chain, made.key, &["weir-test"]).unwrap();
    let loopback = "127.0.0.1:0".parse().unwrap();
    let mut group = UdpSocket::bind_group(loopback, SocketConfig::default(), THREADS).unwrap();
    group.steering.unwrap();
    let address = group.sockets[0].local_address().unwrap();
    if is_crossed {
        group.sockets.reverse();
    }
    let stop = Stop::new().unwrap();
    let ends = thread_channels(THREADS, CHANNEL_ITEMS_MAX).unwrap();
    let threads = group.sockets.into_iter().zip(ends).zip(0..);
    let over = Arc::new(Barrier::new(usize::from(THREADS)));
    let threads = threads.map(|((socket, channels), index)| {
        let (tls, stop, over) = (tls.clone(), stop.clone(), Arc::clone(&over));
        let run = move || {
            let shard = Shard::new(index, THREADS).unwrap();
            let endpoint = Endpoint::with_shard(config(Some(tls)), shard).unwrap();
            let telemetry = Arc::new(Telemetry::default());
            let host = HostConfig::default();
            let shown = Arc::clone(&telemetry);
            let host = Host::new(host, vec![socket], endpoint, telemetry, stop).unwrap();
            let mut host = host.with_thread_channels(channels);
            let mut app = Echo::default();
            host.run(&mut app).unwrap();
            let ended = Ended {
                app,
                counters: host.endpoint().counters(),
                between: host.endpoint().peer_thread_counters(),
                telemetry: shown.snapshot(),
            };
            // When one socket of the group is closed, the kernel gives its last packets to the other.
            over.wait();
            ended
        };
        #[expect(clippy::disallowed_methods, reason = "a test's second host")]
        thread::spawn(run)
    });
    let threads = threads.collect();
    Server {
        address,
        certificate,
        stop,
        threads,
    }
}

const THREADS: u16 = 2;

/// A NAT between clients and server, which changes its outer address once, in mid-stream.
struct Nat {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    packets: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

fn start_nat(server: SocketAddr) -> Nat {
    let inner = PlainSocket::bind("127.0.0.1:0").unwrap();
    let outer = [0; 2].map(|_| PlainSocket::bind("127.0.0.1:0").unwrap());
    for socket in outer.iter().chain([&inner]) {
        socket.set_nonblocking(true).unwrap();
    }
    let address = inner.local_addr().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let packets = Arc::new(AtomicU64::new(0));
    let (ends, count) = (Arc::clone(&is_over), Arc::clone(&packets));
    #[expect(clippy::disallowed_methods, reason = "a test's network")]
    let thread = thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        let mut client = None;
        while !ends.load(Ordering::Relaxed) {
            let mut is_idle = true;
            while let Ok((size, from)) = inner.recv_from(&mut buffer) {
                client = Some(from);
                let passed = count.fetch_add(1, Ordering::Relaxed);
                let current = &outer[usize::from(passed >= PACKETS_BEFORE_MOVE)];
                current.send_to(&buffer[..size], server).unwrap();
                is_idle = false;
            }
            let moved = count.load(Ordering::Relaxed) > PACKETS_BEFORE_MOVE;
            // Packets to the old address are lost.
            let current = &outer[usize::from(moved)];
            while let Ok((size, _)) = current.recv_from(&mut buffer) {
                inner.send_to(&buffer[..size], client.unwrap()).unwrap();
                is_idle = false;
            }
            if is_idle {
                thread::sleep(Duration::from_micros(200));
            }
        }
    });
    Nat {
        address,
        is_over,
        packets,
        thread,
    }
}

const PACKETS_BEFORE_MOVE: u64 = 700;

/// Runs all clients through the NAT. Returns the results of the server's threads.
fn run(is_crossed: bool) -> Vec<Ended> {
    let server = start_server(is_crossed);
    let nat = start_nat(server.address);
    let trust = Trust::Roots(vec![server.certificate.clone()]);
    let tls = ClientTls::new(trust, &["weir-test"]).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), SocketConfig::default()).unwrap();
    let endpoint = Endpoint::new(config(None)).unwrap();
    let stop = Stop::new().unwrap();
    let mut host = Host::new(
        HostConfig::default(),
        vec![socket],
        endpoint,
        Arc::new(Telemetry::default()),
        stop.clone(),
    )
    .unwrap();
    for _ in 0..CLIENTS {
        let client = ClientConfig {
            tls: tls.clone(),
            web_transport: None,
        };
        let endpoint = host.endpoint();
        let started = endpoint.connect(clock::now(), &client, nat.address, "localhost", 0);
        started.unwrap();
    }
    #[expect(clippy::disallowed_methods, reason = "a test's time limit")]
    thread::spawn(move || {
        stop.wait(Duration::from_mins(5));
        stop.request();
    });
    let mut clients = Clients::default();
    host.run(&mut clients).unwrap();
    server.stop.request();
    let ended = server
        .threads
        .into_iter()
        .map(|thread| thread.join().unwrap());
    let ended = ended.collect();
    nat.is_over.store(true, Ordering::Relaxed);
    nat.thread.join().unwrap();
    assert_eq!(clients.lost, 0);
    assert_eq!(clients.echoed, [ROUNDS * ROUND_BYTES; CLIENTS]);
    assert!(
        nat.packets.load(Ordering::Relaxed) > PACKETS_BEFORE_MOVE,
        "the address changed"
    );
    ended
}

fn check_served(ended: &[Ended]) {
    let clients: usize = ended.iter().map(|thread| thread.app.clients.len()).sum();
    assert_eq!(
        clients, CLIENTS,
        "each client met one thread and stayed with it"
    );
    for thread in ended {
        assert!(!thread.app.clients.is_empty(), "both threads have work");
        assert_eq!(thread.counters.accepted, thread.app.clients.len() as u64);
        assert_eq!(
            thread.app.remotes.len(),
            2,
            "the address changed on the way"
        );
        assert_eq!(thread.between.strays_dropped, 0);
    }
}

#[test]
fn connections_stay_with_their_thread_when_the_client_moves() {
    let ended = run(false);
    check_served(&ended);
    for thread in &ended {
        assert_eq!(thread.between.strays_passed, 0, "the kernel steers right");
        assert!(
            thread.telemetry.messages_sent <= 2,
            "they only take leave of each other"
        );
    }
}

#[test]
fn packets_that_come_to_the_wrong_thread_are_passed_on() {
    let ended = run(true);
    check_served(&ended);
    for thread in &ended {
        assert_eq!(
            thread.between.strays_passed,
            thread.telemetry.packets_received
        );
        assert!(thread.telemetry.messages_received > 0);
        assert!(thread.telemetry.threads_woken > 0);
    }
}
