//! Each limit at its value and one past it.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use weir_quic::{
    ConfigError, ConnectError, Endpoint, Event, Limits, Lost,
    tls::{ClientTls, Trust},
};
use weir_sim::{SERVER_NAME, certificate};
use weir_transport::{Direction, Read, Transport as _, WriteError};

use crate::pair::{DELAY, Flight, PROTOCOL, Pair, Setup, Side, config, losses, read_all};

fn server_with(server: Limits) -> Pair {
    Pair::with(Setup {
        server,
        ..Setup::default()
    })
}

fn refusal() -> Lost {
    let text = "the peer reports: the server refused to accept a new connection";
    Lost::Transport(text.to_owned())
}

#[test]
fn connections_up_to_the_limit_are_accepted() {
    let mut pair = server_with(Limits {
        connections_max: 3,
        ..Limits::default()
    });
    let (_, first) = pair.connect();
    pair.connect();
    pair.connect();
    assert_eq!(pair.server.counters().refused_connections, 0);
    pair.start();
    pair.pass(DELAY * 4);
    assert_eq!(losses(&pair.take_client()), [refusal()]);
    assert_eq!(pair.server.counters().refused_connections, 1);
    assert_eq!(pair.server.counters().accepted, 3);
    assert_eq!(pair.server.connections(), 3);

    // A closed connection makes room once it is drained.
    pair.at_server(first).close(0, b"");
    pair.pass(Duration::from_secs(2));
    assert_eq!(pair.server.connections(), 2);
    pair.connect();
}

#[test]
fn a_client_does_not_connect_past_its_limit() {
    let mut pair = Pair::with(Setup {
        client: Limits {
            connections_max: 1,
            ..Limits::default()
        },
        ..Setup::default()
    });
    let (first, _) = pair.connect();
    let connect = |pair: &mut Pair| {
        let (now, remote) = (pair.now, pair.server_address);
        pair.client
            .connect(now, &pair.config, remote, SERVER_NAME, 0)
    };
    assert_eq!(connect(&mut pair), Err(ConnectError::TooMany(1)));
    pair.at_client(first).close(0, b"");
    pair.pass(Duration::from_secs(2));
    connect(&mut pair).unwrap();
}

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
fn packets_from_port_zero_are_dropped() {
    let mut pair = Pair::new();
    pair.client_address.set_port(0);
    pair.start();
    pair.pass(DELAY * 4);
    let counters = pair.server.counters();
    assert_eq!((counters.accepted, pair.server.connections()), (0, 0));
    assert!(counters.packets_from_port_zero > 0);
    pair.client_address.set_port(1000);
    pair.take_client();
    let (client, server) = pair.connect();
    let dropped = pair.server.counters().packets_from_port_zero;
    // Nor does an established connection move there.
    pair.client_address.set_port(0);
    pair.at_client(client).probe();
    pair.pass(DELAY * 4);
    assert!(pair.server.counters().packets_from_port_zero > dropped);
    assert_ne!(pair.at_server(server).remote_address().port(), 0);
}

fn is_retry(data: &[u8]) -> bool {
    data[0] & 0xf0 == 0xf0
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

#[test]
fn streams_up_to_the_limit_may_be_open() {
    let mut pair = server_with(Limits {
        uni_streams_max: 3,
        bidi_streams_max: 2,
        ..Limits::default()
    });
    let (client, server) = pair.connect();
    for (direction, count) in [(Direction::Uni, 3), (Direction::Bi, 2)] {
        let mut connection = pair.at_client(client);
        let streams: Vec<_> = std::iter::from_fn(|| connection.open(direction)).collect();
        assert_eq!(streams.len(), count);
        for &stream in &streams {
            connection
                .write(stream, &mut Bytes::from_static(b"x"))
                .unwrap();
            connection.finish(stream);
        }
        pair.pass(DELAY * 4);
        pair.take_client();
        assert_eq!(pair.at_client(client).open(direction), None);
        let mut connection = pair.at_server(server);
        assert_eq!(
            read_all(&mut connection, streams[0]),
            (vec![b'x'], Read::Fin)
        );
        if direction == Direction::Bi {
            connection.finish(streams[0]);
        }
        pair.pass(DELAY * 20);
        let available = |event: &Event| matches!(event, Event::StreamsAvailable { direction: which, .. } if *which == direction);
        assert!(pair.take_client().iter().any(available));
        assert!(pair.at_client(client).open(direction).is_some());
        assert_eq!(pair.at_client(client).open(direction), None);
    }
}

#[test]
fn a_stream_that_is_stopped_after_its_end_makes_room_at_once() {
    let mut pair = server_with(Limits {
        uni_streams_max: 1,
        ..Limits::default()
    });
    let (client, server) = pair.connect();
    let mut connection = pair.at_client(client);
    let stream = connection.open(Direction::Uni).unwrap();
    connection
        .write(stream, &mut Bytes::from_static(b"x"))
        .unwrap();
    connection.finish(stream);
    // Until neither side has anything to send.
    pair.pass(Duration::from_secs(1));
    pair.at_server(server).stop(stream, 1);
    pair.pass(DELAY * 4);
    assert!(pair.at_client(client).open(Direction::Uni).is_some());
}

#[test]
fn no_more_is_sent_ahead_than_the_receiver_allows() {
    let mut pair = server_with(Limits {
        stream_receive_bytes_max: 1000,
        receive_bytes_max: 1500,
        ..Limits::default()
    });
    let (client, server) = pair.connect();
    let mut connection = pair.at_client(client);
    let one = connection.open(Direction::Uni).unwrap();
    let other = connection.open(Direction::Uni).unwrap();
    let mut data = Bytes::from(vec![1; 1001]);
    assert_eq!(connection.write(one, &mut data), Err(WriteError::Blocked));
    assert_eq!(data.len(), 1);
    let mut more = Bytes::from(vec![2; 501]);
    assert_eq!(connection.write(other, &mut more), Err(WriteError::Blocked));
    assert_eq!(more.len(), 1);
    pair.pass(DELAY * 10);
    pair.take_client();

    let mut connection = pair.at_server(server);
    assert_eq!(
        read_all(&mut connection, one),
        (vec![1; 1000], Read::Blocked)
    );
    assert_eq!(
        read_all(&mut connection, other),
        (vec![2; 500], Read::Blocked)
    );
    pair.pass(DELAY * 4);
    for (stream, rest) in [(one, &mut data), (other, &mut more)] {
        let writable = |event: &Event| matches!(event, Event::Writable { stream: which, .. } if *which == stream);
        assert!(pair.client_events.iter().any(writable));
        pair.at_client(client).write(stream, rest).unwrap();
    }
}

#[test]
fn no_more_is_kept_for_sending_than_the_sender_allows() {
    let mut pair = Pair::with(Setup {
        client: Limits {
            send_bytes_max: 2000,
            ..Limits::default()
        },
        ..Setup::default()
    });
    let (client, server) = pair.connect();
    let mut connection = pair.at_client(client);
    let stream = connection.open(Direction::Uni).unwrap();
    let mut data = Bytes::from(vec![1; 2001]);
    assert_eq!(
        connection.write(stream, &mut data),
        Err(WriteError::Blocked)
    );
    assert_eq!(data.len(), 1);
    pair.pass(DELAY * 6);
    let is_writable = |event: &Event| matches!(event, Event::Writable { .. });
    assert!(pair.take_client().iter().any(is_writable));
    pair.at_client(client).write(stream, &mut data).unwrap();
    pair.pass(DELAY * 6);
    let (all, _) = read_all(&mut pair.at_server(server), stream);
    assert_eq!(all, vec![1; 2001]);
}

#[test]
fn silence_ends_a_connection_at_the_idle_time_out() {
    let idle_timeout = Duration::from_secs(3);
    let mut pair = server_with(Limits {
        idle_timeout,
        ..Limits::default()
    });
    pair.connect();
    pair.wire = Box::new(|_| false);
    // The last packets of the handshake moved the deadline a little.
    pair.pass(idle_timeout * 9 / 10);
    assert_eq!(losses(&pair.take_client()), []);
    assert_eq!(losses(&pair.take_server()), []);
    pair.pass(idle_timeout / 4);
    assert_eq!(losses(&pair.take_client()), [Lost::TimedOut]);
    assert_eq!(losses(&pair.take_server()), [Lost::TimedOut]);
    assert_eq!(pair.server.counters().timed_out, 1);
    assert_eq!(pair.server.counters().violated, 0);
    assert_eq!(pair.server.connections(), 0);
    assert_eq!(pair.client.connections(), 0);
}

#[test]
fn pings_keep_a_silent_connection() {
    let idle_timeout = Duration::from_secs(3);
    let mut pair = Pair::with(Setup {
        client: Limits {
            keep_alive: Some(Duration::from_secs(1)),
            ..Limits::default()
        },
        server: Limits {
            idle_timeout,
            ..Limits::default()
        },
        ..Setup::default()
    });
    pair.connect();
    let before = pair.sent.len();
    pair.pass(idle_timeout * 10);
    assert_eq!(losses(&pair.take_client()), []);
    assert_eq!(losses(&pair.take_server()), []);
    assert!(pair.sent.len() - before < 150, "a ping each second or so");
}

#[test]
fn limits_that_mean_none_to_the_engine_are_refused() {
    type Change = fn(&mut Limits);
    let wrong: [(&str, Change); 9] = [
        ("connections_max", |limits| limits.connections_max = 1 << 32),
        ("stream_receive_bytes_max", |limits| {
            limits.stream_receive_bytes_max = 0;
        }),
        ("receive_bytes_max", |limits| limits.receive_bytes_max = 0),
        ("send_bytes_max", |limits| limits.send_bytes_max = 0),
        ("datagram_receive_bytes_max", |limits| {
            limits.datagram_receive_bytes_max = 2047;
        }),
        ("idle_timeout", |limits| {
            limits.idle_timeout = Duration::from_micros(999);
        }),
        ("idle_timeout", |limits| limits.idle_timeout = Duration::MAX),
        ("keep_alive", |limits| {
            limits.keep_alive = Some(Duration::ZERO);
        }),
        ("keep_alive", |limits| {
            limits.keep_alive = Some(limits.idle_timeout);
        }),
    ];
    for (name, change) in wrong {
        let mut limits = Limits::default();
        change(&mut limits);
        let error = Endpoint::new(config(limits, Some(PROTOCOL))).err();
        assert_eq!(error, Some(ConfigError(name)));
    }
    let right: [Change; 6] = [
        |limits| limits.connections_max = (1 << 32) - 1,
        |limits| limits.stream_receive_bytes_max = 1,
        |limits| limits.datagram_receive_bytes_max = 2048,
        |limits| limits.datagram_receive_bytes_max = 0,
        |limits| limits.idle_timeout = Duration::from_millis(1),
        |limits| limits.keep_alive = Some(limits.idle_timeout / 2),
    ];
    for change in right {
        let mut limits = Limits::default();
        change(&mut limits);
        assert!(Endpoint::new(config(limits, Some(PROTOCOL))).is_ok());
    }
}

#[test]
fn addresses_and_names_that_cannot_be_are_refused() {
    let mut pair = Pair::new();
    let remote = pair.server_address;
    for (address, name, error) in [
        (
            remote,
            "not a name",
            ConnectError::ServerName("not a name".to_owned()),
        ),
        (
            "0.0.0.0:1".parse().unwrap(),
            "a",
            ConnectError::Address("0.0.0.0:1".parse().unwrap()),
        ),
        (
            "1.1.1.1:0".parse().unwrap(),
            "a",
            ConnectError::Address("1.1.1.1:0".parse().unwrap()),
        ),
    ] {
        let result = pair
            .client
            .connect(pair.now, &pair.config, address, name, 0);
        assert_eq!(result, Err(error));
    }
    assert_eq!(pair.client.connections(), 0);
}

#[test]
fn new_connections_are_accepted_one_after_the_other() {
    let mut pair = Pair::new();
    pair.connect();
    let before = pair.server.counters().accepted;
    for _ in 0..5 {
        pair.start();
    }
    pair.send(Side::Client);
    pair.now += DELAY;
    while let Some((_, flight)) = pair.in_flight.pop_first() {
        let data = BytesMut::from(&flight.data[..]);
        pair.server
            .handle_packet(pair.now, 0, flight.from, None, flight.ecn, data);
    }
    for accepted in 0..3 {
        // Between two of them, the host reads and sends what established connections have.
        assert_eq!(pair.server.counters().accepted, before + accepted);
        assert!(pair.server.poll_timeout() <= Some(pair.now));
        pair.server.handle_timeout(pair.now);
    }
    pair.server.refuse_incoming(true);
    let counters = pair.server.counters();
    assert_eq!(
        (counters.accepted, counters.refused_unwanted),
        (before + 3, 2)
    );
    pair.server.handle_timeout(pair.now);
    assert!(pair.server.poll_timeout() > Some(pair.now));
}
