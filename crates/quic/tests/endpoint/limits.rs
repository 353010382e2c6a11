//! Each limit at its value and one past it.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use weir_quic::{ConfigError, ConnectError, Endpoint, Event, Limits, Lost};
use weir_sim::SERVER_NAME;
use weir_transport::{Direction, Read, Transport as _, WriteError};

use crate::pair::{DELAY, PROTOCOL, Pair, Setup, Side, config, losses, read_all};

pub(crate) fn server_with(server: Limits) -> Pair {
    Pair::with(Setup {
        server,
        ..Setup::default()
    })
}

pub(crate) fn refusal() -> Lost {
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
