//! Acknowledgements of a client: by its own choice, and as the server asks.

use std::time::Duration;

use bytes::Bytes;
use weir_quic::{Packets, UNACKNOWLEDGED_UNNOTICED, tls::Acknowledgements};
use weir_transport::{Direction, Transport as _};

use crate::pair::{DELAY, Pair, Setup, Side, datagrams, read_all};

/// Sends `count` datagrams to a client, one each `spacing`. The server asks for an acknowledgement after more than `asked`
/// packets, if that is given. Returns the acknowledgements, the packets that the client sent, and the `ACK_FREQUENCY` frames
/// that it received.
fn acknowledged(
    acknowledgements: Acknowledgements,
    asked: Option<u32>,
    (count, spacing): (u64, Duration),
) -> (u64, u64, u64) {
    let mut pair = Pair::with(Setup {
        server_packets: Packets {
            unacknowledged_max: asked,
            ..Packets::default()
        },
        ..Setup::default()
    });
    pair.config.tls = pair.config.tls.clone().acknowledging(acknowledgements);
    let (client, server) = pair.connect();
    // The discovery of the path's MTU is over.
    pair.pass(Duration::from_secs(1));
    pair.sent.clear();
    let before = pair.at_client(client).stats();
    for number in 0..count {
        let data = Bytes::from(number.to_be_bytes().to_vec());
        pair.at_server(server).send_datagram(data, None).unwrap();
        pair.pass(spacing);
    }
    pair.pass(DELAY * 10);
    assert_eq!(datagrams(&pair.take_client()).len() as u64, count);
    let after = pair.at_client(client).stats();
    let sent = pair.sent.iter().filter(|sent| sent.by == Side::Client);
    let sent = sent.count() as u64;
    let acks = after.acks_sent - before.acks_sent;
    assert!(after.payloads_received - before.payloads_received >= count);
    (acks, sent, after.ack_frequencies_received)
}

const AUDIO: (u64, Duration) = (100, Duration::from_millis(20));
const DENSE: (u64, Duration) = (100, Duration::from_millis(2));

#[test]
fn a_client_delays_acknowledgements_unless_it_is_not_to() {
    let (acks, sent, asked) = acknowledged(Acknowledgements::Delayed, None, AUDIO);
    assert!((49..=52).contains(&acks), "{acks}");
    assert_eq!((sent, asked), (acks, 0));
    let (acks, sent, asked) = acknowledged(Acknowledgements::Immediate, None, AUDIO);
    assert!((100..=102).contains(&acks), "{acks}");
    assert_eq!((sent, asked), (acks, 0));
}

#[test]
fn a_server_can_ask_for_fewer_and_a_client_may_refuse() {
    let (acks, _, asked) = acknowledged(Acknowledgements::Delayed, Some(9), DENSE);
    assert!((9..=14).contains(&acks) && asked > 0, "{acks}, {asked}");
    let (acks, _, asked) = acknowledged(Acknowledgements::Immediate, Some(9), DENSE);
    assert!((100..=102).contains(&acks) && asked > 0, "{acks}, {asked}");
}

#[test]
fn every_packet_is_acknowledged_across_updates_of_the_keys() {
    // A connection updates its keys for the first time after 10 to 1000 packets, as chance decides.
    let many = (1_100, Duration::from_millis(2));
    let (acks, ..) = acknowledged(Acknowledgements::Immediate, None, many);
    assert!((1_100..=1_110).contains(&acks), "{acks}");
}

/// Returns how long the first 20 kB of a new connection take to a client that is asked for an acknowledgement after more than
/// `asked` packets.
fn first_answer(asked: u32) -> Duration {
    let mut pair = Pair::with(Setup {
        server_packets: Packets {
            unacknowledged_max: Some(asked),
            ..Packets::default()
        },
        ..Setup::default()
    });
    let (client, server) = pair.connect();
    let mut connection = pair.at_server(server);
    let stream = connection.open(Direction::Uni).unwrap();
    let mut data = Bytes::from(vec![7; 20_000]);
    connection.write(stream, &mut data).unwrap();
    assert!(data.is_empty());
    connection.finish(stream);
    let (mut time, mut received) = (Duration::ZERO, 0);
    while received < 20_000 {
        pair.pass(Duration::from_millis(1));
        time += Duration::from_millis(1);
        received += read_all(&mut pair.at_client(client), stream).0.len();
        assert!(time < Duration::from_secs(1), "{received} bytes");
    }
    time
}

#[test]
fn fewer_acknowledgements_do_not_hold_up_a_new_connection() {
    // The first window, its acknowledgement, and the rest.
    let unnoticed = first_answer(UNACKNOWLEDGED_UNNOTICED);
    assert!(unnoticed <= DELAY * 3 + DELAY / 2, "{unnoticed:?}");
    let held_up = first_answer(10);
    assert!(
        held_up > DELAY * 3 + Duration::from_millis(20),
        "{held_up:?}"
    );
}
