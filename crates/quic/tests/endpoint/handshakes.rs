//! Handshakes of incoming connections: their number, their time, and what they leave.

use std::time::Duration;

use weir_quic::{
    Event, Limits, Lost,
    tls::{ClientTls, Trust},
};
use weir_sim::certificate;
use weir_transport::Transport as _;

use crate::{
    limits::{refusal, server_with},
    pair::{DELAY, Flight, Pair, Setup, Side, losses},
};

/// Drops everything that the server sends to clients whose packets the test has not let through.
fn deaf_clients(flight: &mut Flight) -> bool {
    flight.to == Side::Server
}

#[test]
fn handshakes_up_to_the_limit_are_accepted() {
    let mut pair = server_with(Limits {
        handshakes_max: 2,
        idle_timeout: Duration::from_secs(2),
        ..Limits::default()
    });
    pair.wire = Box::new(deaf_clients);
    pair.start();
    pair.start();
    pair.pass(DELAY * 2);
    assert_eq!(pair.server.counters().accepted, 2);
    assert_eq!(pair.server.counters().refused_handshakes, 0);

    pair.wire = Box::new(|_| true);
    let refused = pair.start();
    let turned_away = Event::Lost {
        handle: refused,
        reason: refusal(),
    };
    pair.wire = Box::new(move |flight| flight.to == Side::Server || flight.data.len() < 200);
    pair.pass(DELAY * 2);
    assert_eq!(pair.server.counters().refused_handshakes, 1);
    let events = format!("{:?}", pair.take_client());
    assert_eq!(events, format!("[{turned_away:?}]"));

    // Handshakes that never complete free their places.
    pair.wire = Box::new(|flight| flight.to == Side::Client);
    pair.pass(Duration::from_secs(40));
    assert_eq!(pair.server.connections(), 0);
    assert_eq!(pair.server.counters().handshakes_failed, 2);
    pair.wire = Box::new(|_| true);
    pair.take_client();
    pair.connect();
}

#[test]
fn handshakes_from_one_address_up_to_its_share_are_accepted() {
    let mut pair = server_with(Limits {
        handshakes_per_address_max: 2,
        ..Limits::default()
    });
    pair.wire = Box::new(|flight| flight.to == Side::Server || is_retry(&flight.data));
    pair.start();
    pair.pass(DELAY * 2);
    let counters = |pair: &Pair| {
        let counters = pair.server.counters();
        let refused = counters.refused_handshakes_address;
        (counters.accepted, counters.retried, refused)
    };
    assert_eq!(counters(&pair), (1, 0, 0));
    // From half of the share on, only who has the address may use it up.
    pair.start();
    pair.pass(DELAY * 4);
    assert_eq!(counters(&pair), (2, 1, 0));
    pair.start();
    pair.pass(DELAY * 2);
    assert_eq!(counters(&pair), (2, 1, 1), "one past it");

    // Another address is not concerned.
    pair.wire = Box::new(|flight| {
        flight.to == Side::Server || flight.destination.ip().to_string() == "10.0.0.9"
    });
    pair.client_address = "10.0.0.9:1000".parse().unwrap();
    pair.connect();
    assert_eq!(counters(&pair), (3, 1, 1));

    // Handshakes that are over make room.
    pair.wire = Box::new(|_| true);
    pair.client_address = "10.0.0.1:1000".parse().unwrap();
    pair.pass(Duration::from_secs(40));
    pair.take_client();
    pair.connect();
}

#[test]
fn handshakes_that_take_too_long_are_closed() {
    let mut pair = server_with(Limits {
        handshake_timeout: Duration::from_secs(10),
        idle_timeout: Duration::from_mins(1),
        ..Limits::default()
    });
    pair.connect();
    // Each Initial that the client repeats restarts the idle timer.
    pair.wire = Box::new(deaf_clients);
    pair.start();
    pair.pass(Duration::from_millis(9_900));
    let counters = pair.server.counters();
    assert_eq!((counters.handshakes_overdue, counters.accepted), (0, 2));
    pair.pass(Duration::from_millis(200));
    let counters = pair.server.counters();
    assert_eq!(counters.handshakes_overdue, 1);
    assert_eq!(counters.handshakes_failed, 1);
    pair.wire = Box::new(|_| false);
    pair.pass(Duration::from_secs(10));
    assert_eq!(pair.server.connections(), 1, "the established one stays");
    assert!(pair.server.poll_timeout().is_none_or(|at| at > pair.now));
}

/// Each PING in an Initial packet restarts the idle timer of the server.
#[test]
fn pings_in_initial_packets_do_not_prolong_a_handshake() {
    for (handshake_secs, is_overdue) in [(300, 0), (10, 1)] {
        let idle_timeout = Duration::from_secs(4);
        let mut pair = Pair::with(Setup {
            client: Limits {
                idle_timeout: Duration::from_mins(5),
                ..Limits::default()
            },
            server: Limits {
                handshake_timeout: Duration::from_secs(handshake_secs),
                idle_timeout,
                ..Limits::default()
            },
            ..Setup::default()
        });
        // The client gets acknowledgements, and never what the handshake goes on with.
        pair.wire = Box::new(|flight| flight.to == Side::Server || flight.data.len() < 200);
        let client = pair.start();
        for _ in 0..60 {
            pair.pass(idle_timeout / 4);
            if let Some(mut connection) = pair.client.connection(pair.now, client) {
                connection.probe();
            }
        }
        let counters = pair.server.counters();
        assert_eq!(counters.accepted, 1);
        assert_eq!(counters.handshakes_overdue, is_overdue);
        assert_eq!(counters.handshakes_failed, is_overdue);
        let mut from_client = pair.sent.iter().filter(|sent| sent.by == Side::Client);
        assert!(
            from_client.all(|sent| sent.data[0] & 0xf0 == 0xc0),
            "only Initial packets"
        );
        assert_eq!(pair.server.connections(), usize::from(is_overdue == 0));
    }
}

#[test]
fn a_client_that_ends_its_handshake_with_its_first_packet_leaves_nothing() {
    let mut pair = Pair::new();
    for _ in 0..10 {
        let client = pair.start();
        pair.at_client(client).close(0, b"");
    }
    pair.pass(DELAY * 2);
    let counters = pair.server.counters();
    assert_eq!((counters.accepted, counters.handshakes_failed), (10, 10));
    assert_eq!(pair.server.connections(), 0);
    assert!(pair.server.poll_timeout().is_none_or(|at| at > pair.now));
    assert_eq!(losses(&pair.take_server()), []);
    pair.connect();
}

/// The client's offer needs several packets, so the engine has accepted the connection before it finds nothing in it.
#[test]
fn who_offers_only_unknown_protocols_is_told_at_once_and_leaves_nothing() {
    let mut pair = Pair::new();
    let names: Vec<String> = (0..100).map(|n| format!("unknown protocol {n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let roots = Trust::Roots(certificate().chain);
    pair.config.tls = ClientTls::new(roots, &names).expect("names that fit");
    pair.start();
    pair.pass(DELAY * 3);
    let counters = pair.server.counters();
    assert_eq!((counters.accepted, counters.handshakes_failed), (1, 1));
    assert_eq!(pair.server.connections(), 0);
    assert_eq!(losses(&pair.take_client()), [Lost::NoApplicationProtocol]);
}

#[test]
fn handshakes_that_clients_end_count_until_they_are_out_of_memory() {
    let mut pair = server_with(Limits {
        handshakes_max: 2,
        ..Limits::default()
    });
    for _ in 0..2 {
        let client = pair.start();
        pair.pass(DELAY * 3 / 2);
        pair.at_client(client).close(0, b"");
        pair.pass(DELAY * 3 / 2);
    }
    assert_eq!(pair.server.counters().handshakes_failed, 2);
    assert_eq!(pair.server.connections(), 2, "the engine is draining them");
    pair.start();
    pair.pass(DELAY * 2);
    assert_eq!(pair.server.counters().refused_handshakes, 1);
    // Three probe timeouts, of a second each without a measured round trip.
    pair.pass(Duration::from_secs(4));
    assert_eq!(pair.server.connections(), 0);
    pair.take_client();
    pair.take_server();
    pair.connect();
}

#[test]
fn no_handshakes_at_all_may_be_allowed() {
    let mut pair = server_with(Limits {
        handshakes_max: 0,
        ..Limits::default()
    });
    pair.start();
    pair.pass(DELAY * 4);
    assert_eq!(losses(&pair.take_client()), [refusal()]);
    assert_eq!(pair.server.counters().refused_handshakes, 1);
}

#[test]
fn newcomers_are_refused_while_the_role_wants_none() {
    let mut pair = Pair::new();
    pair.connect();
    pair.server.refuse_incoming(true);
    pair.start();
    pair.pass(DELAY * 4);
    assert_eq!(losses(&pair.take_client()), [refusal()]);
    let counters = pair.server.counters();
    assert_eq!((counters.accepted, counters.refused_unwanted), (1, 1));
    pair.server.refuse_incoming(false);
    pair.connect();
}

#[test]
fn newcomers_prove_their_address_when_many_handshakes_are_in_flight() {
    let mut pair = server_with(Limits {
        handshakes_before_retry_max: 1,
        ..Limits::default()
    });
    pair.wire = Box::new(deaf_clients);
    pair.start();
    pair.pass(DELAY * 2);
    assert_eq!(pair.server.counters().retried, 0);
    pair.client_address.set_port(2000);
    pair.wire = Box::new(|flight| flight.to == Side::Server || flight.destination.port() == 2000);
    pair.start();
    pair.pass(DELAY * 8);
    let is_connected = |event: &Event| matches!(event, Event::Connected { .. });
    assert!(pair.take_server().iter().any(is_connected));
    assert_eq!(pair.server.counters().retried, 1);
    assert_eq!(pair.client.counters().retries_received, 1);
    assert_eq!(pair.server.counters().accepted, 2);
    assert_eq!(pair.server.counters().refused_handshakes, 0);
}

fn is_retry(data: &[u8]) -> bool {
    data[0] & 0xf0 == 0xf0
}
