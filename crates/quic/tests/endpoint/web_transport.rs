//! WebTransport sessions between two endpoints: establishment, data, ends, and hostile peers.

use std::time::Duration;

use bytes::Bytes;
use weir_quic::{
    Carrier, ClientConfig, EndpointConfig, Event, Handle, Limits, Lost, SendDatagramError,
    tls::{ClientTls, ServerTls, Trust, certificate_hash},
    web_transport::{Offer, Request, SETUP_TIME_MAX},
};
use weir_sim::certificate;
use weir_transport::{Direction, Read, StreamId, Transport as _, WriteError};

use crate::pair::{DELAY, Dice, PROTOCOL, Pair, Setup, config, datagrams, losses, read_all};

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// A server that speaks raw QUIC and WebTransport.
fn server(limits: Limits) -> EndpointConfig {
    let made = certificate();
    let tls = ServerTls::new(made.chain, made.key, &[PROTOCOL, weir_h3::ALPN]).unwrap();
    EndpointConfig {
        server: Some(tls.with_web_transport(Offer {
            protocols: names(&["moqt-18"]),
            paths: names(&["/live"]),
            ..Offer::default()
        })),
        ..config(limits, None)
    }
}

fn client(alpns: &[&str], path: &str, protocols: &[&str]) -> ClientConfig {
    ClientConfig {
        tls: ClientTls::new(Trust::Roots(certificate().chain), alpns).unwrap(),
        web_transport: Some(Request {
            authority: "relay.example:4433".to_owned(),
            path: path.to_owned(),
            protocols: names(protocols),
            origin: None,
        }),
    }
}

pub(crate) fn setup(limits: Limits) -> Pair {
    let mut pair = Pair::with(Setup::default());
    pair.server = weir_quic::Endpoint::new(server(limits)).unwrap();
    pair.config = client(&[weir_h3::ALPN], "/live?x=1", &["moqt-22", "moqt-18"]);
    pair
}

/// Two ends of a session.
pub(crate) fn connected() -> (Pair, Handle, Handle) {
    let mut pair = setup(Limits::default());
    let (client, server) = pair.connect();
    (pair, client, server)
}

#[test]
fn a_session_stands_three_round_trips_after_the_first_packet() {
    let mut pair = setup(Limits::default());
    let start = pair.now;
    let handle = pair.start();
    let is_connected = |event: &Event| matches!(event, Event::Connected { .. });
    while !pair.client_events.iter().any(is_connected) {
        pair.pass(DELAY / 10);
        assert!(pair.now < start + DELAY * 20);
    }
    // The handshake, whose answer carries the settings, and the request.
    let took = pair.now - start;
    assert!(took <= DELAY * 4 + DELAY / 5, "{took:?}");
    let events = pair.take_server();
    let Some(Event::Connected { handle: server }) = events.first() else {
        panic!("{events:?}");
    };
    let connection = pair.at_server(*server);
    assert_eq!(connection.protocol().as_deref(), Some("moqt-18"));
    let Carrier::WebTransport(Some(request)) = connection.carrier() else {
        panic!("{:?}", connection.carrier());
    };
    assert_eq!(request.path, "/live?x=1");
    assert_eq!(request.authority, "relay.example:4433");
    assert_eq!(
        pair.at_client(handle).protocol().as_deref(),
        Some("moqt-18")
    );
    let counters = pair.server.counters();
    assert_eq!(
        (counters.web_transport_sessions, counters.http3_violations),
        (1, 0)
    );
}

#[test]
fn a_client_that_offers_both_gets_what_the_server_prefers() {
    let mut pair = setup(Limits::default());
    pair.config = client(&[weir_h3::ALPN, PROTOCOL], "/live", &["moqt-18"]);
    let (client, server) = pair.connect();
    assert_eq!(pair.at_client(client).protocol().as_deref(), Some(PROTOCOL));
    assert_eq!(pair.at_server(server).carrier(), Carrier::Quic);
    assert_eq!(pair.at_client(client).carrier(), Carrier::Quic);
    let data = Bytes::from_static(b"raw");
    pair.at_client(client).send_datagram(data, None).unwrap();
    pair.pass(DELAY * 2);
    assert_eq!(datagrams(&pair.take_server()), [Bytes::from_static(b"raw")]);
}

#[test]
fn streams_both_ways_look_like_any_others() {
    let (mut pair, client, server) = connected();
    let mut ends = Vec::new();
    for direction in [Direction::Uni, Direction::Bi] {
        let stream = pair.at_client(client).open(direction).unwrap();
        let mut data = Bytes::from_static(b"to the server");
        pair.at_client(client).write(stream, &mut data).unwrap();
        pair.at_client(client).finish(stream);
        ends.push((stream, direction));
        let stream = pair.at_server(server).open(direction).unwrap();
        let mut data = Bytes::from_static(b"to the client");
        pair.at_server(server).write(stream, &mut data).unwrap();
        pair.at_server(server).finish(stream);
        ends.push((stream, direction));
    }
    pair.pass(DELAY * 4);
    let opened = |events: &[Event]| {
        let found = events.iter().filter_map(|event| match event {
            Event::Opened {
                stream, direction, ..
            } => Some((*stream, *direction)),
            _ => None,
        });
        let mut found: Vec<_> = found.collect();
        found.sort_by_key(|(_, direction)| *direction == Direction::Bi);
        found
    };
    assert_eq!(opened(&pair.take_server()), [ends[0], ends[2]]);
    assert_eq!(opened(&pair.take_client()), [ends[1], ends[3]]);
    for (number, (stream, _)) in ends.into_iter().enumerate() {
        let (mut connection, text) = if number % 2 == 0 {
            (pair.at_server(server), b"to the server")
        } else {
            (pair.at_client(client), b"to the client")
        };
        let (data, end) = read_all(&mut connection, stream);
        assert_eq!(data, text);
        assert_eq!(end, Read::Fin);
    }
}

#[test]
fn codes_of_streams_arrive_as_they_were() {
    let (mut pair, client, server) = connected();
    let stream = pair.at_client(client).open(Direction::Bi).unwrap();
    let mut data = Bytes::from_static(b"x");
    pair.at_client(client).write(stream, &mut data).unwrap();
    pair.pass(DELAY * 2);
    let (_, end) = read_all(&mut pair.at_server(server), stream);
    assert_eq!(end, Read::Blocked);
    pair.at_client(client).reset(stream, 0x1234);
    pair.at_server(server).reset(stream, 0x21);
    pair.at_client(client).stop(stream, 0);
    pair.pass(DELAY * 4);
    assert_eq!(pair.at_server(server).read(stream), Read::Reset(0x1234));
    let other = pair.at_server(server).open(Direction::Uni).unwrap();
    let mut data = Bytes::from_static(b"y");
    pair.at_server(server).write(other, &mut data).unwrap();
    pair.pass(DELAY * 2);
    pair.take_server();
    pair.at_client(client).stop(other, 0x11);
    pair.pass(DELAY * 2);
    let stopped = |event: &Event| matches!(event, Event::Stopped { stream, code: 0x11, .. } if *stream == other);
    let events = pair.take_server();
    assert!(events.iter().any(stopped), "{events:?}");
    let mut data = Bytes::from_static(b"z");
    assert_eq!(
        pair.at_server(server).write(other, &mut data),
        Err(WriteError::Stopped(0x11))
    );
}

#[test]
fn a_datagram_as_large_as_fits_and_one_byte_more() {
    let (mut pair, client, server) = connected();
    pair.pass(Duration::from_secs(1));
    let size_max = pair.at_client(client).datagram_size_max().unwrap();
    let fits = Bytes::from(vec![1; size_max]);
    pair.at_client(client)
        .send_datagram(fits.clone(), None)
        .unwrap();
    let over = Bytes::from(vec![1; size_max + 1]);
    assert_eq!(
        pair.at_client(client).send_datagram(over, None),
        Err(SendDatagramError::TooLarge(size_max))
    );
    let empty = Bytes::new();
    pair.at_client(client)
        .send_datagram(empty.clone(), None)
        .unwrap();
    pair.take_server();
    pair.pass(DELAY * 2);
    assert_eq!(datagrams(&pair.take_server()), [fits, empty]);
    let down = Bytes::from_static(b"down");
    pair.at_server(server)
        .send_datagram(down.clone(), None)
        .unwrap();
    pair.pass(DELAY * 2);
    assert_eq!(datagrams(&pair.take_client()), [down]);
}

#[test]
fn a_congested_session_keeps_the_newest_datagrams() {
    let (mut pair, client, _) = connected();
    for number in 0..2000_u16 {
        let mut data = vec![0; 1000];
        data[..2].copy_from_slice(&number.to_be_bytes());
        pair.at_client(client)
            .send_datagram(data.into(), None)
            .unwrap();
    }
    pair.pass(Duration::from_secs(2));
    let received = datagrams(&pair.take_server());
    let dropped = pair.at_client(client).stats().datagrams_dropped_oldest;
    assert_eq!(received.len() as u64 + dropped, 2000);
    assert!(dropped > 0 && received.iter().all(|data| data.len() == 1000));
    assert_eq!(pair.client.counters().datagrams_dropped_oldest, dropped);
    assert_eq!(received.last().unwrap()[..2], 1999_u16.to_be_bytes());
}

#[test]
fn datagrams_of_a_session_that_nobody_fetches_in_time_are_counted_at_once() {
    let mut pair = setup(Limits {
        // Space for three of 600 bytes, with an overhead of 32 bytes each.
        datagram_receive_bytes_max: 2048,
        ..Limits::default()
    });
    let (client, server) = pair.connect();
    for (sent, dropped) in [(3, 0), (4, 1), (5, 3)] {
        for _ in 0..sent {
            let data = Bytes::from(vec![7; 600]);
            pair.at_client(client).send_datagram(data, None).unwrap();
        }
        pair.pass(DELAY * 2);
        assert_eq!(datagrams(&pair.take_server()).len(), 3);
        assert_eq!(pair.server.counters().datagrams_dropped_unread, dropped);
        let stats = pair.at_server(server).stats();
        assert_eq!(stats.datagrams_dropped_unread, dropped);
    }
}

#[test]
fn either_side_ends_the_session_with_code_and_reason() {
    for by_client in [true, false] {
        let (mut pair, client, server) = connected();
        if by_client {
            pair.at_client(client).close(0x15, b"no draft");
            assert!(pair.client.connection(pair.now, client).is_none());
        } else {
            pair.at_server(server).close(0x15, b"no draft");
            assert!(pair.server.connection(pair.now, server).is_none());
        }
        pair.pass(DELAY * 6);
        let (told, silent) = if by_client {
            (pair.take_server(), pair.take_client())
        } else {
            (pair.take_client(), pair.take_server())
        };
        let expected = Lost::Application {
            code: 0x15,
            reason: "no draft".to_owned(),
        };
        assert_eq!(losses(&told), [expected]);
        assert!(losses(&silent).is_empty());
        pair.pass(Duration::from_secs(10));
        assert_eq!(
            (pair.client.connections(), pair.server.connections()),
            (0, 0)
        );
    }
}

#[test]
fn a_refused_session_says_why() {
    for (path, protocols, text) in [
        ("/other", &["moqt-18"][..], "status 404"),
        ("/live", &["moqt-22"], "status 406"),
        ("/live", &[], "status 400"),
    ] {
        let mut pair = setup(Limits::default());
        pair.config = client(&[weir_h3::ALPN], path, protocols);
        pair.start();
        pair.pass(DELAY * 20);
        let lost = losses(&pair.take_client());
        assert!(
            matches!(&lost[..], [Lost::WebTransport(reason)] if reason.contains(text)),
            "{lost:?}"
        );
        assert_eq!(pair.server.counters().http3_requests_refused, 1);
        let is_connected = |event: &Event| matches!(event, Event::Connected { .. });
        assert!(!pair.take_server().iter().any(is_connected));
    }
}

#[test]
fn a_client_that_opens_no_session_is_closed_in_time() {
    let mut pair = setup(Limits {
        idle_timeout: Duration::from_mins(1),
        ..Limits::default()
    });
    // The client negotiates the ALPN and does nothing else.
    pair.config.web_transport = None;
    let client = pair.start();
    pair.pass(SETUP_TIME_MAX / 2);
    assert!(losses(&pair.take_client()).is_empty());
    assert!(pair.client.connection(pair.now, client).is_some());
    pair.pass(SETUP_TIME_MAX);
    let lost = losses(&pair.take_client());
    assert!(
        matches!(&lost[..], [Lost::Application { code: 0x10c, .. }]),
        "{lost:?}"
    );
    pair.pass(Duration::from_secs(5));
    assert_eq!(pair.server.connections(), 0);
    assert_eq!(pair.server.counters().web_transport_sessions, 0);
}

#[test]
fn set_up_survives_losses() {
    for seed in 1..20 {
        let mut pair = setup(Limits::default());
        let mut dice = Dice(seed);
        pair.wire = Box::new(move |_| dice.roll(10) > 0);
        let client = pair.start();
        // If the first answers are lost, the estimated round trip is long.
        pair.pass(Duration::from_secs(25));
        let is_connected = |event: &Event| matches!(event, Event::Connected { .. });
        let events = pair.take_client();
        assert!(events.iter().any(is_connected), "seed {seed}: {events:?}");
        let stream = pair.at_client(client).open(Direction::Uni).unwrap();
        let mut data = Bytes::from(vec![9; 20_000]);
        pair.at_client(client).write(stream, &mut data).unwrap();
        pair.at_client(client).finish(stream);
        pair.pass(Duration::from_secs(20));
        let events = pair.take_server();
        let Some(Event::Connected { handle }) = events.first() else {
            panic!("seed {seed}: {events:?}");
        };
        let (data, end) = read_all(&mut pair.at_server(*handle), stream);
        assert_eq!((data.len(), end), (20_000, Read::Fin), "seed {seed}");
    }
}

#[test]
fn peers_that_allow_little_still_get_a_session() {
    // One stream of each kind and few bytes: the least that a session needs.
    let mut pair = setup(Limits {
        uni_streams_max: 1,
        bidi_streams_max: 1,
        stream_receive_bytes_max: 64,
        receive_bytes_max: 64,
        ..Limits::default()
    });
    let (client, _) = pair.connect();
    assert_eq!(pair.at_client(client).open(Direction::Uni), None);
    assert_eq!(pair.at_client(client).open(Direction::Bi), None);
}

#[test]
fn strangers_on_http3_break_nothing() {
    for seed in 1..60 {
        let mut pair = setup(Limits::default());
        pair.config.web_transport = None;
        let client = pair.start();
        pair.pass(DELAY * 6);
        let mut dice = Dice(seed);
        for _ in 0..dice.roll(20) {
            let Some(mut connection) = pair.client.connection(pair.now, client) else {
                break;
            };
            let direction = [Direction::Uni, Direction::Bi][dice.roll(2)];
            let Some(stream) = connection.open(direction) else {
                break;
            };
            let first = [0, 1, 2, 3, 4, 0x21, 0x40, 0xff][dice.roll(8)];
            let length = 1 + dice.roll(30);
            let mut data: Vec<u8> = (0..length)
                .map(|_| u8::try_from(dice.roll(256)).unwrap() & [0xff, 0x07][dice.roll(2)])
                .collect();
            data[0] = first;
            connection.write(stream, &mut data.into()).unwrap();
            match dice.roll(4) {
                0 => connection.finish(stream),
                1 => connection.reset(stream, 7),
                _ => {}
            }
            if dice.roll(3) == 0 {
                connection
                    .send_datagram(vec![first; length].into(), None)
                    .unwrap();
            }
            pair.pass(DELAY);
        }
        pair.pass(SETUP_TIME_MAX + Duration::from_mins(1));
        assert_eq!(pair.server.connections(), 0, "seed {seed}");
    }
}

#[test]
fn a_server_is_known_by_the_hash_of_its_certificate() {
    let hash = certificate_hash(&certificate().chain[0]);
    let mut wrong = hash;
    wrong[31] ^= 1;
    for (hashes, is_trusted) in [
        (vec![hash], true),
        (vec![wrong, hash], true),
        (vec![wrong], false),
        (Vec::new(), false),
    ] {
        let mut pair = setup(Limits::default());
        pair.config.tls = ClientTls::new(Trust::Hashes(hashes), &[weir_h3::ALPN]).unwrap();
        pair.start();
        pair.pass(DELAY * 20);
        let events = pair.take_client();
        let is_connected = |event: &Event| matches!(event, Event::Connected { .. });
        assert_eq!(events.iter().any(is_connected), is_trusted);
        if !is_trusted {
            assert!(matches!(&losses(&events)[..], [Lost::Tls(_)]), "{events:?}");
        }
    }
}

#[test]
fn nothing_can_be_done_before_the_session_stands() {
    let mut pair = setup(Limits::default());
    let client = pair.start();
    let mut connection = pair.at_client(client);
    assert_eq!(connection.open(Direction::Uni), None);
    assert_eq!(connection.read(StreamId(0)), Read::Blocked);
    connection.close(0, b"changed my mind");
    pair.pass(Duration::from_secs(10));
    assert!(losses(&pair.take_client()).is_empty());
    assert_eq!(pair.client.connections(), 0);
}

#[test]
fn what_ranks_higher_overtakes_what_waits() {
    let raw = || {
        let mut pair = Pair::new();
        let (client, server) = pair.connect();
        (pair, client, server)
    };
    for (mut pair, client, server) in [raw(), connected()] {
        let is_raw = pair.at_client(client).carrier() == Carrier::Quic;
        let mut begun = Vec::new();
        // The first stream is being sent when the others come.
        for (priority, bytes) in [(5, 100_000), (5, 300_000), (9, 300_000)] {
            let mut connection = pair.at_client(client);
            let stream = connection.open(Direction::Uni).unwrap();
            connection.set_priority(stream, priority);
            let mut data = Bytes::from(vec![0; bytes]);
            connection.write(stream, &mut data).unwrap();
            assert!(data.is_empty(), "all of it is taken");
            connection.finish(stream);
            begun.push(stream);
            pair.pass(DELAY / 2);
        }
        let mut finished = Vec::new();
        for _ in 0..200 {
            pair.pass(DELAY);
            pair.take_server();
            for &stream in &begun {
                if read_all(&mut pair.at_server(server), stream).1 == Read::Fin {
                    finished.push(stream);
                }
            }
        }
        assert_eq!(finished, [begun[0], begun[2], begun[1]], "raw: {is_raw}");
    }
}
