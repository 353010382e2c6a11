//! Sockets whose packets leave later than they could.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    net::SocketAddr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use weir_net::{
    Host, HostConfig, SocketConfig, Stop, Telemetry, UdpSocket,
    clock::{self, SystemClock},
};
use weir_quic::{
    App, ClientConfig, Endpoint, EndpointConfig, Event, Limits, Packets,
    tls::{ClientTls, Trust},
};

/// A role that only waits for its end.
struct Idle(bool);

impl App for Idle {
    fn handle_event(&mut self, _: Instant, _: &mut Endpoint, _: Event) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _: Instant, _: &mut Endpoint) {}

    fn handle_shutdown(&mut self, _: Instant, _: &mut Endpoint) {
        self.0 = true;
    }

    fn is_finished(&self) -> bool {
        self.0
    }
}

fn socket() -> UdpSocket {
    let any = "127.0.0.1:0".parse().unwrap();
    UdpSocket::bind(any, SocketConfig::default()).unwrap()
}

#[test]
fn the_packets_of_a_delayed_socket_leave_after_its_delay() {
    let peer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let remote = peer.local_addr().unwrap();
    let sockets = vec![socket(), socket()];
    let locals: Vec<SocketAddr> = sockets
        .iter()
        .map(|socket| socket.local_address().unwrap())
        .collect();
    let endpoint = Endpoint::new(EndpointConfig {
        limits: Limits::default(),
        server: None,
        seed: [3; 32],
        time_source: Arc::new(SystemClock),
        qlog: None,
        packets: Packets::default(),
        segmentation_offload: true,
        handshake_counts: weir_quic::OriginCounts::default(),
    });
    let stop = Stop::new().unwrap();
    let host = Host::new(
        HostConfig::default(),
        sockets,
        endpoint.unwrap(),
        Arc::new(Telemetry::default()),
        stop.clone(),
    );
    let mut host = host.unwrap().with_send_delays(vec![Duration::ZERO, DELAY]);
    let config = ClientConfig {
        tls: ClientTls::new(Trust::Anyone, &["weir-test"]).unwrap(),
        web_transport: None,
    };
    let began = clock::now();
    // The delayed one is the first to connect.
    for socket in [1, 0] {
        host.endpoint()
            .connect(began, &config, remote, "localhost", socket)
            .unwrap();
    }
    #[expect(clippy::disallowed_methods, reason = "a test's peer")]
    let arrived = thread::spawn(move || {
        let mut packet = [0; 2048];
        let (_, first) = peer.recv_from(&mut packet).unwrap();
        // Nobody answers, so the other client repeats itself meanwhile.
        while peer.recv_from(&mut packet).unwrap().1 == first {}
        let late = clock::now() - began;
        stop.request();
        (first, late)
    });
    host.run(&mut Idle(false)).unwrap();
    let (first, late) = arrived.join().unwrap();
    assert_eq!(first, locals[0]);
    assert!(late >= DELAY, "{late:?}");
}

const DELAY: Duration = Duration::from_millis(100);
