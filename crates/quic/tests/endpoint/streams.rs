//! Streams: send order, ends of all kinds, and the events for them.

use bytes::Bytes;
use weir_quic::{Event, Handle};
use weir_transport::{Direction, Read, StreamId, Transport as _, WriteError};

use crate::pair::{DELAY, Pair, read_all};

fn open_with(
    pair: &mut Pair,
    client: Handle,
    direction: Direction,
    data: &'static [u8],
) -> StreamId {
    let mut connection = pair.at_client(client);
    let stream = connection.open(direction).unwrap();
    connection
        .write(stream, &mut Bytes::from_static(data))
        .unwrap();
    stream
}

#[test]
fn what_ranks_higher_is_sent_first_and_equals_in_order() {
    let mut pair = Pair::new();
    let (client, server) = pair.connect();
    let mut connection = pair.at_client(client);
    let mut streams = Vec::new();
    for priority in [1, 5, 5, -3, 9] {
        let stream = connection.open(Direction::Uni).unwrap();
        connection.set_priority(stream, priority);
        connection
            .write(stream, &mut Bytes::from(vec![0; 30_000]))
            .unwrap();
        connection.finish(stream);
        streams.push(stream);
    }
    let mut finished = Vec::new();
    for _ in 0..100 {
        pair.pass(DELAY);
        pair.take_server();
        for &stream in &streams {
            if read_all(&mut pair.at_server(server), stream).1 == Read::Fin {
                finished.push(stream);
            }
        }
    }
    assert_eq!(
        finished,
        [streams[4], streams[1], streams[2], streams[0], streams[3]]
    );
}

#[test]
fn a_train_of_packets_is_told_once_and_read_in_one_go() {
    let mut pair = Pair::new();
    let (client, server) = pair.connect();
    let stream = open_with(&mut pair, client, Direction::Uni, &[7; 8_000]);
    pair.at_client(client).finish(stream);
    // The packets arrive together, before any event is taken.
    pair.pass(DELAY * 3 / 2);
    let is_readable = |event: &&Event| matches!(event, Event::Readable { .. });
    let told = pair.take_server();
    assert_eq!(told.iter().filter(is_readable).count(), 1, "{told:?}");
    let mut pieces = vec![Bytes::from_static(b"kept")];
    let mut connection = pair.at_server(server);
    assert_eq!(connection.read_all(stream, &mut pieces), Read::Fin);
    assert!(pieces.len() > 6, "one for each packet");
    assert_eq!(pieces.concat(), [&b"kept"[..], &[7; 8_000]].concat());
    assert_eq!(connection.read_all(stream, &mut pieces), Read::Blocked);
}

#[test]
fn what_is_read_in_one_go_ends_with_a_reset_or_goes_on() {
    let mut pair = Pair::new();
    let (client, server) = pair.connect();
    let stream = open_with(&mut pair, client, Direction::Uni, b"one");
    pair.pass(DELAY * 2);
    pair.take_server();
    let mut pieces = Vec::new();
    let read =
        |pair: &mut Pair, pieces: &mut Vec<Bytes>| pair.at_server(server).read_all(stream, pieces);
    assert_eq!(read(&mut pair, &mut pieces), Read::Blocked);
    assert_eq!(pieces.concat(), b"one");
    pair.at_client(client).reset(stream, 9);
    pair.pass(DELAY * 2);
    assert_eq!(read(&mut pair, &mut pieces), Read::Reset(9));
    assert_eq!(pieces.len(), 1);
}

#[test]
fn the_opener_is_heard_of_before_what_it_says() {
    let mut pair = Pair::new();
    let (client, server) = pair.connect();
    let first = open_with(&mut pair, client, Direction::Bi, b"one");
    let second = open_with(&mut pair, client, Direction::Uni, b"two");
    pair.pass(DELAY * 2);
    let mut seen = Vec::new();
    for event in pair.take_server() {
        match event {
            Event::Opened {
                stream, direction, ..
            } => seen.push(("opened", stream, direction)),
            Event::Readable { stream, .. } => {
                let known = seen
                    .iter()
                    .find(|(_, opened, _)| *opened == stream)
                    .unwrap()
                    .2;
                seen.push(("readable", stream, known));
            }
            _ => {}
        }
    }
    for (stream, direction) in [(first, Direction::Bi), (second, Direction::Uni)] {
        assert!(seen.contains(&("opened", stream, direction)));
        assert!(seen.contains(&("readable", stream, direction)));
    }
    assert_eq!(read_all(&mut pair.at_server(server), first).0, b"one");
    assert_eq!(read_all(&mut pair.at_server(server), second).0, b"two");
}

#[test]
fn a_finished_stream_is_told_to_both() {
    let mut pair = Pair::new();
    let (client, server) = pair.connect();
    let stream = open_with(&mut pair, client, Direction::Uni, b"all");
    pair.at_client(client).finish(stream);
    pair.pass(DELAY * 10);
    let finished =
        |event: &Event| matches!(event, Event::Finished { stream: which, .. } if *which == stream);
    assert!(pair.take_client().iter().any(finished));
    let mut connection = pair.at_server(server);
    assert_eq!(
        read_all(&mut connection, stream),
        (b"all".to_vec(), Read::Fin)
    );
    // Another read finds nothing and does no harm.
    assert_eq!(connection.read(stream), Read::Blocked);
    let mut more = Bytes::from_static(b"more");
    assert_eq!(
        pair.at_client(client).write(stream, &mut more),
        Err(WriteError::Closed)
    );
}

#[test]
fn a_reset_reaches_the_reader_with_its_code() {
    let mut pair = Pair::new();
    let (client, server) = pair.connect();
    let stream = open_with(&mut pair, client, Direction::Uni, b"part");
    pair.pass(DELAY * 2);
    assert_eq!(
        read_all(&mut pair.at_server(server), stream),
        (b"part".to_vec(), Read::Blocked)
    );
    pair.take_server();
    pair.at_client(client).reset(stream, 77);
    pair.pass(DELAY * 2);
    let readable =
        |event: &Event| matches!(event, Event::Readable { stream: which, .. } if *which == stream);
    assert!(pair.take_server().iter().any(readable));
    let mut connection = pair.at_server(server);
    assert_eq!(connection.read(stream), Read::Reset(77));
    assert_eq!(connection.read(stream), Read::Blocked);
}

#[test]
fn a_stop_reaches_the_writer_with_its_code() {
    let mut pair = Pair::new();
    let (client, server) = pair.connect();
    let stream = open_with(&mut pair, client, Direction::Uni, b"part");
    pair.pass(DELAY * 2);
    pair.at_server(server).stop(stream, 88);
    pair.pass(DELAY * 2);
    let stopped = |event: &Event| matches!(event, Event::Stopped { stream: which, code: 88, .. } if *which == stream);
    assert!(pair.take_client().iter().any(stopped));
    let mut connection = pair.at_client(client);
    let mut more = Bytes::from_static(b"more");
    assert_eq!(
        connection.write(stream, &mut more),
        Err(WriteError::Stopped(88))
    );
    connection.reset(stream, 88);
    assert_eq!(connection.write(stream, &mut more), Err(WriteError::Closed));
    pair.pass(DELAY * 2);
    assert_eq!(pair.at_server(server).read(stream), Read::Blocked);
}

#[test]
fn streams_that_never_were_harm_nothing() {
    let mut pair = Pair::new();
    let (client, _) = pair.connect();
    let mut connection = pair.at_client(client);
    for stream in [StreamId(4000), StreamId(u64::MAX)] {
        assert_eq!(connection.read(stream), Read::Blocked);
        let mut data = Bytes::from_static(b"x");
        assert_eq!(connection.write(stream, &mut data), Err(WriteError::Closed));
        connection.finish(stream);
        connection.reset(stream, 1);
        connection.stop(stream, 1);
        connection.set_priority(stream, 1);
    }
}

#[test]
fn what_is_read_at_once_is_no_more_than_a_packet_brings() {
    let mut pair = Pair::new();
    let (client, server) = pair.connect();
    let stream = open_with(&mut pair, client, Direction::Uni, b"begin");
    let mut sent = b"begin".to_vec();
    // Most of each packet is a datagram, so that the engine joins the small frames that wait to be read.
    for number in 0..200_u32 {
        let mut connection = pair.at_client(client);
        let piece = number.to_be_bytes().repeat(75);
        sent.extend_from_slice(&piece);
        connection.write(stream, &mut piece.into()).unwrap();
        let datagram = Bytes::from(vec![0; 700]);
        connection.send_datagram(datagram, None).unwrap();
        pair.pass(DELAY);
    }
    pair.pass(DELAY * 20);
    let (mut read, mut sizes) = (Vec::new(), Vec::new());
    while let Read::Data(data) = pair.at_server(server).read(stream) {
        sizes.push(data.len());
        read.extend_from_slice(&data);
    }
    assert_eq!(read, sent);
    assert!(sizes.contains(&2048), "they were joined: {sizes:?}");
    assert!(sizes.iter().all(|&size| size <= 2048), "{sizes:?}");
}
