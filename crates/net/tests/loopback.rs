//! Two hosts on loopback with real sockets: datagrams to many clients, echoed streams, invalid certificates and
//! protocols, and a clean stop.

#![expect(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking, and looks only at the events that it is about"
)]

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use weir_net::{
    Host, HostConfig, SocketConfig, Stop, Telemetry, UdpSocket,
    certificate::Certificate,
    clock::{self, SystemClock},
};
use weir_quic::{
    App, ClientConfig, Endpoint, EndpointConfig, Event, Handle, Limits, Lost,
    tls::{ClientTls, ServerTls, Trust},
};
use weir_transport::{Direction, Read, StreamId, Transport as _, WriteError};

/// Sends every peer a datagram every 5 ms, and echoes every stream.
#[derive(Default)]
struct Server {
    peers: Vec<Handle>,
    next: Option<Instant>,
    unsent: Vec<(Handle, StreamId, Bytes)>,
    sent: u64,
    leaving: bool,
}

impl Server {
    fn echo(&mut self, now: Instant, endpoint: &mut Endpoint, handle: Handle, stream: StreamId) {
        let Some(mut connection) = endpoint.connection(now, handle) else {
            return;
        };
        loop {
            match connection.read(stream) {
                Read::Data(mut data) => {
                    if connection.write(stream, &mut data) == Err(WriteError::Blocked) {
                        self.unsent.push((handle, stream, data));
                    }
                }
                Read::Fin => connection.finish(stream),
                Read::Reset(_) | Read::Blocked => return,
            }
        }
    }
}

impl App for Server {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        match event {
            Event::Connected { handle } => {
                self.peers.push(handle);
                self.next.get_or_insert(now);
            }
            Event::Readable { handle, stream } => self.echo(now, endpoint, handle, stream),
            Event::Writable { .. } => {
                for (handle, stream, mut data) in std::mem::take(&mut self.unsent) {
                    let Some(mut connection) = endpoint.connection(now, handle) else {
                        continue;
                    };
                    if connection.write(stream, &mut data) == Err(WriteError::Blocked) {
                        self.unsent.push((handle, stream, data));
                    }
                }
            }
            _ => {}
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.next
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.next = Some(now + Duration::from_millis(5));
        let data = Bytes::from(vec![7; 150]);
        for &handle in &self.peers {
            if let Some(mut connection) = endpoint.connection(now, handle)
                && connection.send_datagram(data.clone(), None).is_ok()
            {
                self.sent += 1;
                endpoint.fill_from(now, handle);
            }
        }
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        endpoint.close_all(now, 9, b"bye");
        self.next = None;
        self.leaving = true;
    }

    fn is_finished(&self) -> bool {
        self.leaving
    }
}

/// What the clients received.
#[derive(Clone, Default)]
struct Seen {
    connected: usize,
    datagrams: usize,
    echoed: usize,
    lost: Vec<Lost>,
}

/// Connects many clients. Each sends 100 kB on a stream and expects them back, and 20 datagrams.
struct Clients {
    wanted: usize,
    seen: Arc<Mutex<Seen>>,
    linger: bool,
}

impl App for Clients {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        let mut seen = self.seen.lock().unwrap();
        match event {
            Event::Connected { handle } => {
                seen.connected += 1;
                let mut connection = endpoint.connection(now, handle).unwrap();
                assert_eq!(connection.protocol().as_deref(), Some("weir-test"));
                let stream = connection.open(Direction::Bi).unwrap();
                let mut data = Bytes::from(vec![5; ECHO_BYTES]);
                connection.write(stream, &mut data).unwrap();
                connection.finish(stream);
            }
            Event::Readable { handle, stream } => {
                let mut connection = endpoint.connection(now, handle).unwrap();
                while let Read::Data(data) = connection.read(stream) {
                    assert!(data.iter().all(|&byte| byte == 5));
                    seen.echoed += data.len();
                }
            }
            Event::Datagram { data, .. } => {
                assert_eq!(data.len(), 150);
                seen.datagrams += 1;
            }
            Event::Lost { reason, .. } => seen.lost.push(reason),
            _ => {}
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _now: Instant, _endpoint: &mut Endpoint) {}

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        endpoint.close_all(now, 0, b"");
        self.linger = false;
        self.wanted = 0;
    }

    fn is_finished(&self) -> bool {
        let seen = self.seen.lock().unwrap();
        seen.lost.len() == self.wanted
            || (!self.linger
                && seen.echoed >= self.wanted * ECHO_BYTES
                && seen.datagrams >= self.wanted * 20)
    }
}

const ECHO_BYTES: usize = 100_000;

fn endpoint(server: Option<ServerTls>) -> Endpoint {
    Endpoint::new(EndpointConfig {
        limits: Limits::default(),
        server,
        seed: [3; 32],
        time_source: Arc::new(SystemClock),
        qlog: None,
        packets: weir_quic::Packets::default(),
        segmentation_offload: true,
        handshake_counts: weir_quic::OriginCounts::default(),
    })
    .unwrap()
}

/// Without GSO and GRO.
const PLAIN: SocketConfig = SocketConfig {
    buffer_bytes: 1 << 20,
    offload: false,
};

fn socket(address: &str, config: SocketConfig) -> UdpSocket {
    UdpSocket::bind(address.parse().unwrap(), config).unwrap()
}

struct Running {
    address: SocketAddr,
    certificate: rustls::pki_types::CertificateDer<'static>,
    stop: Stop,
    thread: thread::JoinHandle<()>,
}

fn start_server() -> Running {
    start_server_on(socket("127.0.0.1:0", SocketConfig::default()))
}

fn start_server_on(socket: UdpSocket) -> Running {
    let made = Certificate::self_made(&["localhost".to_owned()]).unwrap();
    let certificate = made.chain[0].clone();
    let tls = ServerTls::new(made.chain, made.key, &["weir-test"]).unwrap();
    let address = socket.local_address().unwrap();
    let stop = Stop::new().unwrap();
    let server_stop = stop.clone();
    #[expect(clippy::disallowed_methods, reason = "a test's second host")]
    let thread = thread::spawn(move || {
        let telemetry = Arc::new(Telemetry::default());
        let config = HostConfig::default();
        let mut host = Host::new(
            config,
            vec![socket],
            endpoint(Some(tls)),
            telemetry.clone(),
            server_stop,
        )
        .unwrap();
        let began = clock::now();
        host.run(&mut Server::default()).unwrap();
        let busy = telemetry.snapshot().busy;
        assert!(!busy.is_zero() && busy <= clock::now() - began, "{busy:?}");
    });
    Running {
        address,
        certificate,
        stop,
        thread,
    }
}

impl Running {
    fn stop(self) {
        self.stop.request();
        self.thread.join().unwrap();
    }
}

/// Runs clients against a server until they have received everything. Gives up after [`PATIENCE`].
fn run_clients(
    server: &Running,
    count: usize,
    sockets: usize,
    trust: Trust,
    protocols: &[&str],
) -> Seen {
    let sockets = (0..sockets)
        .map(|_| socket("127.0.0.1:0", SocketConfig::default()))
        .collect();
    run_clients_to(server.address, count, sockets, trust, protocols)
}

/// Like `run_clients`, with given sockets and address.
fn run_clients_to(
    address: SocketAddr,
    count: usize,
    sockets: Vec<UdpSocket>,
    trust: Trust,
    protocols: &[&str],
) -> Seen {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let app = Clients {
        wanted: count,
        seen: seen.clone(),
        linger: false,
    };
    run_app(app, address, sockets, trust, protocols);
    seen.lock().unwrap().clone()
}

/// Connects as many clients as `app` wants, and runs `app` to its end.
fn run_app(
    mut app: Clients,
    address: SocketAddr,
    sockets: Vec<UdpSocket>,
    trust: Trust,
    protocols: &[&str],
) {
    let stop = Stop::new().unwrap();
    let telemetry = Arc::new(Telemetry::default());
    let socket_count = u32::try_from(sockets.len()).unwrap();
    let mut host = Host::new(
        HostConfig::default(),
        sockets,
        endpoint(None),
        telemetry.clone(),
        stop.clone(),
    )
    .unwrap();
    let config = ClientConfig {
        tls: ClientTls::new(trust, protocols).unwrap(),
        web_transport: None,
    };
    for number in 0..u32::try_from(app.wanted).unwrap() {
        let socket = number % socket_count;
        host.endpoint()
            .connect(clock::now(), &config, address, "localhost", socket)
            .unwrap();
    }
    let limit = stop.clone();
    #[expect(clippy::disallowed_methods, reason = "a test's time limit")]
    let guard = thread::spawn(move || {
        limit.wait(PATIENCE);
        limit.request();
    });
    host.run(&mut app).unwrap();
    stop.request();
    guard.join().unwrap();
    assert_eq!(telemetry.snapshot().send_errors, 0);
}

#[test]
fn fifty_clients_on_one_socket_get_datagrams_and_streams() {
    let server = start_server();
    let trust = Trust::Roots(vec![server.certificate.clone()]);
    let seen = run_clients(&server, 50, 1, trust, &["weir-test"]);
    assert_eq!((seen.connected, seen.echoed), (50, 50 * ECHO_BYTES));
    assert!(seen.lost.is_empty());
    server.stop();
}

#[test]
fn a_socket_for_each_client_works_too() {
    let server = start_server();
    let seen = run_clients(&server, 20, 20, Trust::Anyone, &["weir-test"]);
    assert_eq!((seen.connected, seen.echoed), (20, 20 * ECHO_BYTES));
    server.stop();
}

#[test]
fn an_unknown_certificate_is_refused_in_words() {
    let server = start_server();
    let stranger = Certificate::self_made(&["localhost".to_owned()]).unwrap();
    let trust = Trust::Roots(stranger.chain);
    let seen = run_clients(&server, 1, 1, trust, &["weir-test"]);
    assert!(matches!(&seen.lost[..], [Lost::Tls(_)]), "{:?}", seen.lost);
    server.stop();
}

#[test]
fn an_unknown_protocol_is_refused_in_words() {
    let server = start_server();
    let seen = run_clients(&server, 1, 1, Trust::Anyone, &["other"]);
    assert_eq!(seen.lost, [Lost::NoApplicationProtocol]);
    server.stop();
}

#[test]
fn a_server_that_stops_says_so() {
    let server = start_server();
    let (stop, seen) = (server.stop.clone(), Arc::new(Mutex::new(Seen::default())));
    let app = Clients {
        wanted: 3,
        seen: seen.clone(),
        linger: true,
    };
    let echoed = seen.clone();
    #[expect(
        clippy::disallowed_methods,
        reason = "stops the server while the clients run"
    )]
    let stopper = thread::spawn(move || {
        // A client with its echo is connected on both sides.
        wait_until(|| echoed.lock().unwrap().echoed == 3 * ECHO_BYTES);
        stop.request();
    });
    let sockets = vec![socket("127.0.0.1:0", SocketConfig::default())];
    run_app(app, server.address, sockets, Trust::Anyone, &["weir-test"]);
    let seen = seen.lock().unwrap().clone();
    let bye = Lost::Application {
        code: 9,
        reason: "bye".to_owned(),
    };
    assert_eq!(seen.lost, [bye.clone(), bye.clone(), bye]);
    stopper.join().unwrap();
    server.stop();
}

/// Checks that clients on `sockets` receive everything from a server at `address`.
fn serves(server: Running, address: SocketAddr, count: usize, sockets: Vec<UdpSocket>) {
    let seen = run_clients_to(address, count, sockets, Trust::Anyone, &["weir-test"]);
    assert_eq!((seen.connected, seen.echoed), (count, count * ECHO_BYTES));
    assert_eq!(seen.lost, []);
    server.stop();
}

#[test]
fn ipv6_works_as_well() {
    let server = start_server_on(socket("[::1]:0", SocketConfig::default()));
    let address = server.address;
    let sockets = vec![socket("[::1]:0", SocketConfig::default())];
    serves(server, address, 5, sockets);
}

#[test]
fn answers_leave_from_the_address_that_was_asked() {
    // The system would reply from 127.0.0.1, and the client would not accept that as a response.
    let server = start_server_on(socket("0.0.0.0:0", SocketConfig::default()));
    let address = SocketAddr::new("127.0.0.2".parse().unwrap(), server.address.port());
    let sockets = vec![socket("127.0.0.1:0", SocketConfig::default())];
    serves(server, address, 5, sockets);
}

#[test]
fn one_ipv6_socket_serves_ipv4_too() {
    for client in ["127.0.0.1:0", "[::1]:0"] {
        let server = start_server_on(socket("[::]:0", SocketConfig::default()));
        let client = socket(client, SocketConfig::default());
        let ip = match client.local_address().unwrap() {
            SocketAddr::V4(_) => "127.0.0.3".parse().unwrap(),
            SocketAddr::V6(address) => (*address.ip()).into(),
        };
        let address = SocketAddr::new(ip, server.address.port());
        serves(server, address, 5, vec![client]);
    }
}

#[test]
fn hosts_without_offload_send_packet_by_packet() {
    let server = start_server_on(socket("127.0.0.1:0", PLAIN));
    let address = server.address;
    let plain = socket("127.0.0.1:0", PLAIN);
    assert!(!plain.has_segmentation());
    serves(server, address, 5, vec![plain]);

    // A socket with segmentation, and one without.
    let server = start_server_on(socket("127.0.0.1:0", SocketConfig::default()));
    let address = server.address;
    serves(server, address, 5, vec![socket("127.0.0.1:0", PLAIN)]);
}

#[test]
fn two_hundred_sockets_are_one_host() {
    let server = start_server();
    let address = server.address;
    let sockets = (0..200).map(|_| socket("127.0.0.1:0", PLAIN)).collect();
    serves(server, address, 200, sockets);
}

/// How long to wait on a busy machine. Only a test that hangs needs longer.
const PATIENCE: Duration = Duration::from_mins(5);

/// Polls a condition, for at most [`PATIENCE`].
fn wait_until(is_there: impl Fn() -> bool) {
    let began = clock::now();
    while !is_there() && clock::now() - began < PATIENCE {
        Stop::new().unwrap().wait(Duration::from_millis(20));
    }
}

/// A role that always has more to send, and does not stop on request.
struct Busy {
    peers: Vec<Handle>,
    /// The number of its peers, for other threads.
    known: Arc<AtomicUsize>,
    asked: Arc<Mutex<Option<Instant>>>,
}

impl App for Busy {
    fn handle_event(&mut self, _now: Instant, _endpoint: &mut Endpoint, event: Event) {
        if let Event::Connected { handle } = event {
            self.peers.push(handle);
            self.known.store(self.peers.len(), Ordering::Relaxed);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(clock::now())
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        for &handle in &self.peers {
            for _ in 0..20 {
                if let Some(mut connection) = endpoint.connection(now, handle) {
                    let _sent = connection.send_datagram(Bytes::from(vec![7; 1000]), None);
                }
            }
            endpoint.fill_from(now, handle);
        }
    }

    fn handle_shutdown(&mut self, now: Instant, _endpoint: &mut Endpoint) {
        *self.asked.lock().unwrap() = Some(now);
    }

    fn is_finished(&self) -> bool {
        false
    }
}

#[test]
fn a_host_under_load_stops_in_time() {
    let made = Certificate::self_made(&["localhost".to_owned()]).unwrap();
    let tls = ServerTls::new(made.chain, made.key, &["weir-test"]).unwrap();
    let server = socket("127.0.0.1:0", SocketConfig::default());
    let address = server.local_address().unwrap();
    let (stop, clients_stop) = (Stop::new().unwrap(), Stop::new().unwrap());
    let config = HostConfig {
        shutdown_limit: Duration::from_millis(200),
        ..HostConfig::default()
    };
    let client_config = ClientConfig {
        tls: ClientTls::new(Trust::Anyone, &["weir-test"]).unwrap(),
        web_transport: None,
    };
    let host = |socket, endpoint, stop: &Stop| {
        let telemetry = Arc::new(Telemetry::default());
        Host::new(config, vec![socket], endpoint, telemetry, stop.clone()).unwrap()
    };
    let (asked, known) = (Arc::new(Mutex::new(None)), Arc::new(AtomicUsize::new(0)));
    let mut app = Busy {
        peers: Vec::new(),
        known: known.clone(),
        asked: asked.clone(),
    };
    let took = thread::scope(|scope| {
        scope.spawn(|| {
            let clients = socket("127.0.0.1:0", SocketConfig::default());
            let mut host = host(clients, endpoint(None), &clients_stop);
            for _ in 0..50 {
                let now = clock::now();
                host.endpoint()
                    .connect(now, &client_config, address, "localhost", 0)
                    .unwrap();
            }
            let mut app = Busy {
                peers: Vec::new(),
                known: Arc::default(),
                asked: Arc::default(),
            };
            host.run(&mut app).unwrap();
        });
        let server = scope.spawn(|| {
            let mut host = host(server, endpoint(Some(tls)), &stop);
            host.run(&mut app).unwrap();
            clock::now()
        });
        wait_until(|| known.load(Ordering::Relaxed) == 50);
        stop.request();
        let stopped = server.join().unwrap();
        clients_stop.request();
        stopped - asked.lock().unwrap().expect("it was asked to take leave")
    });
    assert_eq!(app.peers.len(), 50);
    assert!(took >= Duration::from_millis(200), "{took:?}");
}
