//! Turns: a connection with many events leaves room for others, and none of its events is lost.

use bytes::{Bytes, BytesMut};
use weir_quic::{Event, Handle, Limits, Lost};
use weir_transport::{Direction, StreamId, Transport as _};

use crate::{
    pair::{Pair, Setup, Side, datagrams, read_all},
    web_transport,
};

#[test]
fn a_busy_connection_waits_while_others_have_their_turn() {
    let mut pair = Pair::new();
    let [(busy, at_busy), (modest, at_modest)] = [pair.connect(), pair.connect()];
    for number in 0..MANY {
        open_with(&mut pair, busy, Direction::Uni, number);
        let datagram = Bytes::copy_from_slice(&number.to_be_bytes());
        pair.at_client(busy).send_datagram(datagram, None).unwrap();
    }
    let stream = open_with(&mut pair, modest, Direction::Bi, 0);
    deliver(&mut pair);
    assert!(pair.server.has_events());
    let told: Vec<_> = std::iter::from_fn(|| pair.server.poll_event()).collect();
    assert!(!pair.server.has_events());

    let opened = |one| {
        let opened = told.iter().filter_map(move |event| match *event {
            Event::Opened { handle, stream, .. } if handle == one => Some(stream),
            _ => None,
        });
        opened.collect::<Vec<_>>()
    };
    assert_eq!(opened(at_modest), [stream]);
    let busy_streams: Vec<_> = (0..u64::from(MANY)).map(|n| StreamId(4 * n + 2)).collect();
    assert_eq!(opened(at_busy), busy_streams);
    let is_modest =
        |event: &Event| matches!(event, Event::Opened { handle, .. } if *handle == at_modest);
    let before = told.iter().position(is_modest).unwrap();
    assert!(before <= 20, "{before} events came before it");
    let sent: Vec<_> = (0..MANY).flat_map(u16::to_be_bytes).collect();
    assert_eq!(datagrams(&told).concat(), sent);
}

#[test]
fn a_busy_session_of_web_transport_loses_nothing() {
    let (mut pair, client, server) = web_transport::connected();
    for number in 0..MANY {
        open_with(&mut pair, client, Direction::Uni, number);
        let datagram = Bytes::copy_from_slice(&number.to_be_bytes());
        pair.at_client(client)
            .send_datagram(datagram, None)
            .unwrap();
    }
    deliver(&mut pair);
    let told: Vec<_> = std::iter::from_fn(|| pair.server.poll_event()).collect();
    let mut read = Vec::new();
    for event in &told {
        if let Event::Opened { stream, .. } = *event {
            read.extend(read_all(&mut pair.at_server(server), stream).0);
        }
    }
    let sent: Vec<_> = (0..MANY).flat_map(u16::to_be_bytes).collect();
    assert_eq!(read, sent);
    assert_eq!(datagrams(&told).concat(), sent);
    assert!(!pair.server.has_events());
}

#[test]
fn the_end_of_a_connection_comes_after_what_arrived_before() {
    let mut pair = Pair::new();
    let (client, server) = pair.connect();
    for number in 0..MANY {
        let stream = open_with(&mut pair, client, Direction::Uni, number);
        pair.at_client(client).finish(stream);
    }
    pair.send(Side::Client);
    pair.at_client(client).close(7, b"all said");
    deliver(&mut pair);
    let mut read = Vec::new();
    loop {
        match pair.server.poll_event().expect("the end comes") {
            Event::Readable { handle, stream } => {
                assert_eq!(handle, server);
                read.extend(read_all(&mut pair.at_server(server), stream).0);
            }
            Event::Lost { reason, .. } => {
                let reason_given = Lost::Application {
                    code: 7,
                    reason: "all said".to_owned(),
                };
                assert_eq!(reason, reason_given);
                break;
            }
            _ => {}
        }
    }
    let sent: Vec<_> = (0..MANY).flat_map(u16::to_be_bytes).collect();
    assert_eq!(read, sent);
    assert!(!pair.server.has_events());
}

#[test]
fn dropped_datagrams_of_a_busy_connection_are_counted() {
    let mut pair = Pair::with(Setup {
        server: Limits {
            datagram_receive_bytes_max: 2500,
            ..Limits::default()
        },
        ..Setup::default()
    });
    let (client, server) = pair.connect();
    for number in 0..MANY {
        let mut data = BytesMut::zeroed(100);
        data[..2].copy_from_slice(&number.to_be_bytes());
        let data = data.freeze();
        pair.at_client(client).send_datagram(data, None).unwrap();
    }
    deliver(&mut pair);
    let told: Vec<_> = std::iter::from_fn(|| pair.server.poll_event()).collect();
    let received = datagrams(&told);
    let first = u16::from_be_bytes([received[0][0], received[0][1]]);
    assert_eq!(usize::from(first) + received.len(), usize::from(MANY));
    assert!((10..40).contains(&received.len()), "{}", received.len());
    let dropped = pair.at_server(server).stats().datagrams_dropped_unread;
    assert_eq!(dropped, u64::from(first));
    assert_eq!(pair.server.counters().datagrams_dropped_unread, dropped);
}

/// Opens a stream and writes a number to it.
fn open_with(pair: &mut Pair, client: Handle, direction: Direction, number: u16) -> StreamId {
    let mut connection = pair.at_client(client);
    let stream = connection.open(direction).unwrap();
    let mut data = Bytes::copy_from_slice(&number.to_be_bytes());
    connection.write(stream, &mut data).unwrap();
    stream
}

/// Passes all packets of the client to the server at once, which handles no event yet.
fn deliver(pair: &mut Pair) {
    pair.send(Side::Client);
    while let Some((_, flight)) = pair.in_flight.pop_first() {
        assert_eq!(flight.to, Side::Server);
        let data = BytesMut::from(&flight.data[..]);
        pair.server
            .handle_packet(pair.now, 0, flight.from, None, flight.ecn, data);
    }
}

/// More events than a connection has in one turn.
const MANY: u16 = 60;
