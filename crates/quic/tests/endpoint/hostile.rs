//! Hostile peers: floods, gaps in packet numbers, and invalid packets.

use std::time::Duration;

use bytes::Bytes;
use weir_quic::{Event, Handle, Limits, Lost};
use weir_transport::{Direction, Transport as _};

use crate::pair::{DELAY, Dice, Flight, Pair, Setup, Side, losses};

/// Printed with each run, and settable to reproduce a failure.
fn seed() -> u64 {
    let seed = std::env::var("WEIR_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(0x5eed);
    println!("WEIR_SEED={seed}");
    seed
}

#[test]
fn ten_thousand_handshakes_that_never_finish_leave_nothing_behind() {
    let mut pair = Pair::new();
    let mut number = 0_u32;
    pair.wire = Box::new(move |flight| {
        // Each from its own address; none receives an answer.
        number += 1;
        let [_, a, b, c] = number.to_be_bytes();
        flight.from.set_ip([11, a, b, c].into());
        flight.to == Side::Server
    });
    for _ in 0..10_000 {
        pair.start();
    }
    pair.send(Side::Client);
    // The attacker does not retry.
    pair.client = Pair::new().client;
    pair.wire = Box::new(|_| false);
    pair.pass(DELAY);
    let limits = Limits::default();
    let counters = pair.server.counters();
    assert_eq!(
        pair.server.connections(),
        limits.handshakes_before_retry_max
    );
    assert_eq!(counters.accepted + counters.retried, 10_000);
    assert_eq!(counters.refused_handshakes, 0);

    pair.pass(limits.idle_timeout * 5 / 4);
    assert_eq!(pair.server.connections(), 0);
    assert_eq!(pair.server.counters().handshakes_failed, counters.accepted);
    pair.wire = Box::new(|_| true);
    pair.take_server();
    pair.connect();
    assert_eq!(
        pair.server.counters().retried,
        counters.retried,
        "no handshake is in flight"
    );
}

/// A client whose congestion window has grown large.
fn warmed_up(pair: &mut Pair) -> (Handle, Handle) {
    let (client, server) = pair.connect();
    let mut connection = pair.at_client(client);
    let stream = connection.open(Direction::Uni).unwrap();
    let mut data = Bytes::from(vec![0; 3_000_000]);
    connection.write(stream, &mut data).unwrap_err();
    for _ in 0..200 {
        pair.pass(DELAY);
        while let weir_transport::Read::Data(_) = pair.at_server(server).read(stream) {}
        let _blocked = pair.at_client(client).write(stream, &mut data);
    }
    assert!(data.is_empty());
    assert!(pair.at_client(client).stats().congestion_window_bytes > 300_000);
    (client, server)
}

/// Sends bytes in separate packets, and drops every other packet.
fn send_gaps(pair: &mut Pair, client: Handle, gaps: usize) {
    let mut connection = pair.at_client(client);
    let stream = connection.open(Direction::Uni).unwrap();
    let mut number = 0;
    pair.wire = Box::new(move |flight| {
        number += 1;
        // Nothing is acknowledged, so nothing is retransmitted for a while.
        flight.to == Side::Server && number % 2 == 0
    });
    for _ in 0..gaps * 2 {
        let mut connection = pair.at_client(client);
        connection
            .write(stream, &mut Bytes::from_static(b"x"))
            .unwrap();
        pair.send(Side::Client);
        pair.pass(Duration::from_micros(5));
    }
    pair.pass(DELAY);
}

#[test]
fn a_peer_that_sends_single_bytes_with_gaps_is_borne_up_to_a_limit() {
    let mut pair = Pair::new();
    let (client, server) = warmed_up(&mut pair);
    send_gaps(&mut pair, client, 900);
    assert_eq!(losses(&pair.take_server()), []);
    assert!(pair.server.connection(pair.now, server).is_some());

    let mut pair = Pair::new();
    let (client, server) = warmed_up(&mut pair);
    send_gaps(&mut pair, client, 2500);
    let lost = losses(&pair.take_server());
    assert!(
        matches!(&lost[..], [Lost::Transport(text)] if text.starts_with("this side reports")),
        "{lost:?}"
    );
    assert!(pair.server.connection(pair.now, server).is_none());
}

/// Returns a damaged packet.
fn broken(dice: &mut Dice, data: &[u8]) -> Vec<u8> {
    let mut data = data.to_vec();
    match dice.roll(4) {
        0 => data.truncate(dice.roll(data.len() + 1)),
        1 => {
            data = (0..dice.roll(1500))
                .map(|_| dice.roll(256).to_le_bytes()[0])
                .collect();
        }
        2 => {
            for _ in 0..=dice.roll(3) {
                let at = dice.roll(data.len().min(40));
                data[at] ^= 1 << dice.roll(8);
            }
        }
        _ => {
            let at = dice.roll(data.len());
            data[at] ^= 1 << dice.roll(8);
        }
    }
    data
}

#[test]
fn broken_packets_beside_the_right_ones_change_nothing() {
    let mut dice = Dice(seed());
    for _ in 0..20 {
        let mut pair = Pair::new();
        pair.start();
        let mut streams = 0;
        for step in 0..60 {
            // Each packet sent is repeated, damaged.
            let seen = pair.sent.len();
            pair.pass(DELAY / 2);
            let copies: Vec<_> = pair.sent[seen..].to_vec();
            for sent in copies {
                for _ in 0..3 {
                    let (to, from) = match sent.by {
                        Side::Client => (Side::Server, pair.client_address),
                        Side::Server => (Side::Client, pair.server_address),
                    };
                    let destination = from;
                    let data = broken(&mut dice, &sent.data);
                    let ecn = sent.ecn;
                    pair.inject(Flight {
                        to,
                        from,
                        destination,
                        ecn,
                        data,
                    });
                }
            }
            for event in pair.take_client() {
                if let Event::Connected { handle } = event {
                    let mut connection = pair.at_client(handle);
                    let stream = connection.open(Direction::Uni).unwrap();
                    connection
                        .write(stream, &mut Bytes::from(vec![9; 5000]))
                        .unwrap();
                    connection.finish(stream);
                    streams += 1;
                }
            }
            assert_eq!(losses(&pair.server_events), [], "at step {step}");
        }
        let finished = pair
            .server_events
            .iter()
            .any(|event| matches!(event, Event::Readable { .. }));
        assert!(streams == 1 && finished);
    }
}

#[test]
fn broken_packets_in_place_of_right_ones_never_panic() {
    let mut dice = Dice(seed());
    for _ in 0..50 {
        let mut pair = Pair::with(Setup {
            server: Limits {
                handshakes_before_retry_max: dice.roll(2),
                ..Limits::default()
            },
            ..Setup::default()
        });
        let mut wire_dice = Dice(dice.0 | 1);
        pair.wire = Box::new(move |flight| {
            if wire_dice.roll(4) == 0 {
                flight.data = broken(&mut wire_dice, &flight.data);
            }
            true
        });
        pair.start();
        pair.pass(Duration::from_secs(3));
        for event in pair.take_client() {
            if let Event::Connected { handle } = event
                && let Some(mut connection) = pair.client.connection(pair.now, handle)
                && let Some(stream) = connection.open(Direction::Bi)
            {
                let _blocked = connection.write(stream, &mut Bytes::from(vec![9; 50_000]));
            }
        }
        pair.pass(Duration::from_secs(3));
        let (now, server) = (pair.now, &mut pair.server);
        server.close_all(now, 0, b"");
        pair.client.close_all(now, 0, b"");
        pair.pass(Duration::from_mins(2));
        assert_eq!(
            (pair.client.connections(), pair.server.connections()),
            (0, 0)
        );
    }
}

#[test]
fn a_flood_of_strangers_is_answered_within_bounds() {
    let mut pair = Pair::with(Setup {
        server: Limits {
            handshakes_max: 0,
            ..Limits::default()
        },
        ..Setup::default()
    });
    for _ in 0..1500 {
        pair.start();
    }
    pair.send(Side::Client);
    pair.client = Pair::new().client;
    pair.pass(DELAY);
    let answers = pair
        .sent
        .iter()
        .filter(|sent| sent.by == Side::Server)
        .count();
    assert_eq!(pair.server.counters().refused_handshakes, 1500);
    assert_eq!(answers, 1024, "for one burst");
}
