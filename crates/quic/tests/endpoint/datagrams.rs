//! Datagrams: their sizes, those that wait and those that are dropped, with a counter for every drop.

use std::time::Duration;

use bytes::Bytes;
use weir_quic::{Handle, Limits, SendDatagramError};
use weir_transport::Transport as _;

use crate::pair::{DELAY, Pair, Setup, Side, datagrams};

fn numbered(number: u32, size: usize) -> Bytes {
    let mut data = number.to_be_bytes().to_vec();
    data.resize(size, 0);
    data.into()
}

fn numbers(data: &[Bytes]) -> Vec<u32> {
    data.iter()
        .map(|data| u32::from_be_bytes(*data.first_chunk().unwrap()))
        .collect()
}

#[test]
fn the_largest_goes_through_and_one_byte_more_does_not() {
    let mut pair = Pair::new();
    let (client, _) = pair.connect();
    let mut connection = pair.at_client(client);
    let size = connection.datagram_size_max().unwrap();
    assert!(size > 1150, "{size}");
    connection.send_datagram(numbered(1, size), None).unwrap();
    assert_eq!(
        connection.send_datagram(numbered(2, size + 1), None),
        Err(SendDatagramError::TooLarge(size))
    );
    pair.pass(DELAY * 2);
    assert_eq!(datagrams(&pair.take_server()), [numbered(1, size)]);
}

#[test]
fn the_largest_is_the_same_when_others_wait() {
    let mut pair = Pair::new();
    let (client, _) = pair.connect();
    let mut connection = pair.at_client(client);
    let size = connection.datagram_size_max().unwrap();
    for number in 0..30 {
        connection
            .send_datagram(numbered(number, size), None)
            .unwrap();
    }
    assert!(connection.stats().datagram_bytes_waiting > 0);
    assert_eq!(
        connection.send_datagram(numbered(2, size + 1), None),
        Err(SendDatagramError::TooLarge(size))
    );
    pair.pass(DELAY * 20);
    assert_eq!(
        numbers(&datagrams(&pair.take_server())),
        (0..30).collect::<Vec<_>>()
    );
}

#[test]
fn a_peer_without_datagrams_is_sent_none() {
    let mut pair = Pair::with(Setup {
        server: Limits {
            datagram_receive_bytes_max: 0,
            ..Limits::default()
        },
        ..Setup::default()
    });
    let client = pair.start();
    let early = pair.at_client(client).send_datagram(Bytes::new(), None);
    assert_eq!(early, Err(SendDatagramError::Unsupported));
    pair.pass(DELAY * 10);
    let mut connection = pair.at_client(client);
    assert_eq!(connection.datagram_size_max(), None);
    assert_eq!(
        connection.send_datagram(Bytes::new(), None),
        Err(SendDatagramError::Unsupported)
    );
}

#[test]
fn received_ones_that_nobody_fetches_are_dropped_oldest_first() {
    let mut pair = Pair::with(Setup {
        server: Limits {
            // Space for three of 600 bytes, with an overhead of 32 bytes each.
            datagram_receive_bytes_max: 2048,
            ..Limits::default()
        },
        ..Setup::default()
    });
    let (client, server) = pair.connect();
    let unread = |pair: &mut Pair| pair.at_server(server).stats().datagrams_dropped_unread;
    for number in 0..3 {
        let data = numbered(number, 600);
        pair.at_client(client).send_datagram(data, None).unwrap();
    }
    pair.pass(DELAY * 2);
    assert_eq!(numbers(&datagrams(&pair.take_server())), [0, 1, 2]);
    assert_eq!(unread(&mut pair), 0);

    // These arrive together, before the role is asked.
    for number in 3..8 {
        let data = numbered(number, 600);
        pair.at_client(client).send_datagram(data, None).unwrap();
    }
    pair.pass(DELAY * 2);
    assert_eq!(numbers(&datagrams(&pair.take_server())), [5, 6, 7]);
    assert_eq!(unread(&mut pair), 2);
    // The endpoint's counters include drops of live connections, these and later ones.
    assert_eq!(pair.server.counters().datagrams_dropped_unread, 2);
    for number in 8..12 {
        let data = numbered(number, 600);
        pair.at_client(client).send_datagram(data, None).unwrap();
    }
    pair.pass(DELAY * 2);
    assert_eq!(numbers(&datagrams(&pair.take_server())), [9, 10, 11]);
    assert_eq!(unread(&mut pair), 3);
    assert_eq!(pair.server.counters().datagrams_dropped_unread, 3);
    pair.at_server(server).close(0, b"");
    pair.pass(Duration::from_secs(3));
    assert_eq!(pair.server.connections(), 0);
    assert_eq!(pair.server.counters().datagrams_dropped_unread, 3);
}

/// Sends until the path and the engine are full; returns the next number.
fn fill_path(pair: &mut Pair, client: Handle) -> u32 {
    pair.wire = Box::new(|flight| flight.to == Side::Server);
    for number in 0.. {
        let mut connection = pair.at_client(client);
        connection
            .send_datagram(numbered(number, 1000), None)
            .unwrap();
        if connection.stats().datagram_bytes_waiting > 0 {
            return number + 1;
        }
        pair.client.fill_from(pair.now, client);
        pair.flush(Side::Client);
    }
    unreachable!("the path never fills")
}

#[test]
fn waiting_ones_are_dropped_oldest_first() {
    let mut pair = Pair::with(Setup {
        client: Limits {
            datagram_send_bytes_max: 5000,
            ..Limits::default()
        },
        ..Setup::default()
    });
    let (client, _) = pair.connect();
    let next = fill_path(&mut pair, client);
    for number in next..next + 4 {
        let data = numbered(number, 1000);
        pair.at_client(client).send_datagram(data, None).unwrap();
    }
    let stats = pair.at_client(client).stats();
    assert_eq!(
        (stats.datagram_bytes_waiting, stats.datagrams_dropped_oldest),
        (5000, 0)
    );
    assert_eq!(pair.client.counters().datagrams_dropped_oldest, 0);
    let data = numbered(next + 4, 1000);
    pair.at_client(client).send_datagram(data, None).unwrap();
    let stats = pair.at_client(client).stats();
    assert_eq!(
        (stats.datagram_bytes_waiting, stats.datagrams_dropped_oldest),
        (5000, 1)
    );
    assert_eq!(pair.client.counters().datagrams_dropped_oldest, 1);

    pair.wire = Box::new(|_| true);
    pair.pass(Duration::from_secs(5));
    let arrived = numbers(&datagrams(&pair.take_server()));
    let expected: Vec<u32> = (0..next + 5).filter(|number| *number != next - 1).collect();
    assert_eq!(arrived, expected);
    assert_eq!(pair.client.counters().datagrams_dropped_oldest, 1);
    pair.at_client(client).close(0, b"");
    pair.pass(Duration::from_secs(5));
    assert_eq!(pair.client.connections(), 0);
    assert_eq!(pair.client.counters().datagrams_dropped_oldest, 1);
}

#[test]
fn waiting_ones_are_dropped_at_their_deadline() {
    let mut pair = Pair::new();
    let (client, _) = pair.connect();
    let mut next = fill_path(&mut pair, client);
    // Probes make room for a few.
    for _ in 0..20 {
        let data = numbered(next, 1000);
        pair.at_client(client).send_datagram(data, None).unwrap();
        next += 1;
    }
    let soon = Some(pair.now + Duration::from_millis(100));
    let late = Some(pair.now + Duration::from_mins(1));
    for (number, deadline) in [
        (next, soon),
        (next + 1, late),
        (next + 2, soon),
        (next + 3, None),
    ] {
        let data = numbered(number, 1000);
        pair.at_client(client)
            .send_datagram(data, deadline)
            .unwrap();
    }
    pair.pass(Duration::from_secs(1));
    pair.wire = Box::new(|_| true);
    pair.pass(Duration::from_secs(5));
    let arrived = numbers(&datagrams(&pair.take_server()));
    assert_eq!(arrived[arrived.len() - 2..], [next + 1, next + 3]);
    assert_eq!(pair.at_client(client).stats().datagrams_dropped_expired, 2);
    assert_eq!(pair.client.counters().datagrams_dropped_expired, 2);
    pair.at_client(client).close(0, b"");
    pair.pass(Duration::from_secs(5));
    assert_eq!(pair.client.connections(), 0);
    assert_eq!(pair.client.counters().datagrams_dropped_expired, 2);
}
