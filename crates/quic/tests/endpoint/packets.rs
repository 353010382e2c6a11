//! Packets in the outbox: batches, ECN marks, order, and repeatability from a seed.

use std::{
    collections::BTreeMap,
    io::Write,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use weir_quic::{EcnCodepoint, Event, Loss, Qlog};
use weir_sim::SERVER_NAME;
use weir_transport::{Direction, Read, Transport as _};

use crate::pair::{DELAY, Pair, Sent, Setup, Side, datagrams, origin, read_all};

/// Has the server send 200 kB to one client; returns what it sent.
fn bulk(segmentation_offload: bool) -> Vec<Sent> {
    let mut pair = Pair::with(Setup {
        segmentation_offload,
        ..Setup::default()
    });
    let (client, server) = pair.connect();
    pair.sent.clear();
    let mut connection = pair.at_server(server);
    let stream = connection.open(Direction::Uni).unwrap();
    connection
        .write(stream, &mut Bytes::from(vec![3; 200_000]))
        .unwrap();
    connection.finish(stream);
    let mut all = Vec::new();
    for _ in 0..200 {
        pair.pass(DELAY);
        all.extend(read_all(&mut pair.at_client(client), stream).0);
    }
    assert_eq!(all, vec![3; 200_000]);
    pair.sent.retain(|sent| sent.by == Side::Server);
    pair.sent
}

#[test]
fn packets_for_one_peer_come_in_batches_of_equal_size() {
    let sent = bulk(true);
    let batches: Vec<_> = sent
        .iter()
        .filter_map(|sent| Some((sent.segment_size?, sent.data.len())))
        .collect();
    assert!(!batches.is_empty());
    for &(segment, all) in &batches {
        assert!(all > segment, "a batch holds more than one packet");
        assert!(all <= segment * 16);
        assert!((1200..=1452).contains(&segment), "{segment}");
    }
    let largest = batches.iter().map(|(segment, all)| all.div_ceil(*segment));
    assert!(largest.max() > Some(5));
}

#[test]
fn a_host_that_cannot_send_batches_gets_none() {
    let sent = bulk(false);
    assert!(sent.iter().all(|sent| sent.segment_size.is_none()));
    assert!(sent.iter().all(|sent| sent.data.len() <= 1452));
}

#[test]
fn datagrams_of_a_fan_out_leave_once_each() {
    let mut pair = Pair::new();
    let peers: Vec<_> = (0..10).map(|_| pair.connect().1).collect();
    pair.pass(Duration::from_secs(1));
    pair.sent.clear();
    for round in 0..3 {
        for &peer in &peers {
            let data = Bytes::from(vec![round; 100]);
            pair.at_server(peer).send_datagram(data, None).unwrap();
            pair.server.fill_from(pair.now, peer);
        }
    }
    assert_eq!(pair.server.outbox().len(), 30);
    assert!(!pair.server.fill(pair.now), "nothing is left");
    assert_eq!(pair.server.outbox().len(), 30, "nobody was driven in vain");
    pair.flush(Side::Server);
    pair.pass(DELAY * 2);
    assert_eq!(datagrams(&pair.take_client()).len(), 30);
}

#[test]
fn what_does_not_fit_the_outbox_leaves_with_the_next() {
    let mut pair = Pair::new();
    let peers: Vec<_> = (0..50).map(|_| pair.connect()).collect();
    let mut streams = BTreeMap::new();
    for &(_, server) in &peers {
        let mut connection = pair.at_server(server);
        let stream = connection.open(Direction::Uni).unwrap();
        connection
            .write(stream, &mut Bytes::from(vec![4; 20_000]))
            .unwrap();
        connection.finish(stream);
        streams.insert(server, stream);
        pair.server.fill_from(pair.now, server);
    }
    assert!(pair.server.outbox().is_full());
    let len = pair.server.outbox().len();
    assert!(pair.server.fill(pair.now), "there is more");
    pair.server.fill_from(pair.now, peers[49].1);
    assert_eq!(pair.server.outbox().len(), len, "a full one takes nothing");
    pair.flush(Side::Server);
    let mut got = vec![Vec::new(); peers.len()];
    for _ in 0..40 {
        pair.pass(DELAY);
        for (index, (client, server)) in peers.iter().enumerate() {
            let (data, end) = read_all(&mut pair.at_client(*client), streams[server]);
            assert!(!matches!(end, Read::Reset(_)));
            got[index].extend(data);
        }
    }
    assert!(got.iter().all(|got| got.len() == 20_000));
}

#[test]
fn packets_are_marked_until_the_marks_get_lost() {
    let mut pair = Pair::new();
    let (_, server) = pair.connect();
    assert!(
        pair.sent
            .iter()
            .any(|sent| sent.ecn == Some(EcnCodepoint::Ect0))
    );
    let is_marked = |pair: &mut Pair| {
        pair.sent.clear();
        let data = Bytes::from(vec![0; 50]);
        pair.at_server(server).send_datagram(data, None).unwrap();
        pair.pass(DELAY * 10);
        let from_server = pair.sent.iter().find(|sent| sent.by == Side::Server);
        from_server.unwrap().ecn == Some(EcnCodepoint::Ect0)
    };
    assert!(is_marked(&mut pair));
    pair.wire = Box::new(|flight| {
        flight.ecn = None;
        true
    });
    for _ in 0..10 {
        is_marked(&mut pair);
    }
    assert!(!is_marked(&mut pair), "RFC 9000 §13.4.2");
}

#[test]
fn a_client_that_moves_is_followed() {
    let mut pair = Pair::new();
    let (client, server) = pair.connect();
    assert_eq!(pair.at_server(server).remote_address(), pair.client_address);
    pair.client_address = "10.0.0.9:999".parse().unwrap();
    let moved = pair.client_address;
    // Packets to the old address are dropped.
    pair.wire = Box::new(move |flight| flight.to == Side::Server || flight.destination == moved);
    let data = Bytes::from_static(b"from elsewhere");
    pair.at_client(client)
        .send_datagram(data.clone(), None)
        .unwrap();
    pair.pass(DELAY * 10);
    assert_eq!(datagrams(&pair.take_server()), std::slice::from_ref(&data));
    assert_eq!(pair.at_server(server).remote_address(), moved);
    pair.at_server(server)
        .send_datagram(data.clone(), None)
        .unwrap();
    pair.pass(DELAY * 10);
    assert_eq!(datagrams(&pair.take_client()), [data]);
}

/// Returns the packets of a run with a bit of everything, except what TLS randomises or encrypts.
fn trace(seed: u8) -> Vec<(Side, Duration, usize, Vec<u8>)> {
    let mut pair = Pair::with(Setup {
        seed,
        ..Setup::default()
    });
    for _ in 0..3 {
        let (client, server) = pair.connect();
        let mut connection = pair.at_client(client);
        let stream = connection.open(Direction::Uni).unwrap();
        connection
            .write(stream, &mut Bytes::from(vec![1; 9_000]))
            .unwrap();
        let mut connection = pair.at_server(server);
        connection
            .send_datagram(Bytes::from(vec![1; 90]), None)
            .unwrap();
    }
    pair.pass(Duration::from_secs(1));
    let visible = |data: &[u8]| {
        if data[0] & 0x80 == 0 {
            data[1..9].to_vec()
        } else {
            let destination = usize::from(data[5]);
            let source = usize::from(data[6 + destination]);
            data[1..7 + destination + source].to_vec()
        }
    };
    let line = |sent: &Sent| (sent.by, sent.at, sent.data.len(), visible(&sent.data));
    pair.sent.iter().map(line).collect()
}

#[test]
fn equal_seeds_give_equal_packets() {
    let first = trace(1);
    assert!(first.len() > 20);
    assert_eq!(first, trace(1));
    let other = trace(2);
    let ids = |trace: &[(Side, Duration, usize, Vec<u8>)]| trace[0].3.clone();
    assert_ne!(ids(&first), ids(&other));
}

#[derive(Clone, Default)]
struct Logs(Arc<Mutex<BTreeMap<u64, Vec<u8>>>>);

struct Log(Logs, u64);

impl Write for Log {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        let Self(logs, number) = self;
        if let Ok(mut logs) = logs.0.lock() {
            logs.entry(*number).or_default().extend_from_slice(data);
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn each_connection_has_a_log_of_its_own_if_wanted() {
    let logs = Logs::default();
    let opened = logs.clone();
    let mut pair = Pair::with(Setup {
        qlog: Some(Qlog {
            // The second connection has no log.
            open: Arc::new(move |number| {
                (number != 1).then(|| Box::new(Log(opened.clone(), number)) as Box<_>)
            }),
            start: origin(),
        }),
        ..Setup::default()
    });
    for _ in 0..3 {
        pair.connect();
    }
    pair.server.close_all(pair.now, 0, b"");
    pair.pass(Duration::from_secs(3));
    let logs = logs.0.lock().unwrap();
    assert_eq!(logs.keys().copied().collect::<Vec<_>>(), [0, 2]);
    for log in logs.values() {
        let text = String::from_utf8_lossy(log);
        assert!(text.contains("qlog_version"), "{text}");
        assert!(text.lines().count() > 3, "{text}");
    }
}

#[test]
fn packets_lost_on_purpose_are_sent_again_when_nothing_is_lost_any_more() {
    let mut pair = Pair::new();
    let (client, server) = pair.connect();
    let mut connection = pair.at_client(client);
    let stream = connection.open(Direction::Uni).unwrap();
    connection.lose(Loss {
        sent: true,
        ..Loss::NONE
    });
    connection
        .write(stream, &mut Bytes::from_static(b"sent"))
        .unwrap();
    pair.sent.clear();
    pair.pass(DELAY * 20);
    assert_eq!(pair.sent.len(), 0);
    pair.at_client(client).lose(Loss {
        received_above: Some(1000),
        ..Loss::NONE
    });
    pair.pass(DELAY * 40);
    assert_eq!(read_all(&mut pair.at_server(server), stream).0, b"sent");

    // Of what comes, only the large packets are lost.
    let mut connection = pair.at_server(server);
    let stream = connection.open(Direction::Uni).unwrap();
    connection
        .write(stream, &mut Bytes::from(vec![7; 2000]))
        .unwrap();
    pair.pass(DELAY * 4);
    pair.at_server(server)
        .send_datagram(Bytes::from_static(b"small"), None)
        .unwrap();
    pair.pass(DELAY * 4);
    assert_eq!(read_all(&mut pair.at_client(client), stream).0.len(), 0);
    assert_eq!(datagrams(&pair.take_client()).last().unwrap(), "small");
    pair.at_client(client).lose(Loss::NONE);
    let mut all = 0;
    for _ in 0..100 {
        pair.pass(DELAY);
        all += read_all(&mut pair.at_client(client), stream).0.len();
    }
    assert_eq!(all, 2000);
}

#[test]
fn a_connection_may_grant_less_than_its_endpoint() {
    let mut pair = Pair::new();
    let remote = pair.server_address;
    let client = pair
        .client
        .connect_granting(pair.now, &pair.config, remote, SERVER_NAME, 100)
        .unwrap();
    pair.pass(DELAY * 20);
    let is_new = |event: &Event| matches!(event, Event::Connected { .. });
    let events = pair.take_server();
    let server = events.iter().find(|event| is_new(event)).unwrap().handle();
    let mut connection = pair.at_server(server);
    let stream = connection.open(Direction::Uni).unwrap();
    let mut data = Bytes::from(vec![7; 1000]);
    connection.write(stream, &mut data).unwrap_err();
    assert_eq!(data.len(), 900);
    pair.pass(DELAY * 4);
    assert_eq!(
        read_all(&mut pair.at_client(client), stream).0,
        vec![7; 100]
    );
}
