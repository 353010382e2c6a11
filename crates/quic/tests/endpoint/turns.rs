//! Turns: a connection with many events leaves room for others, and none of its events is lost.

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use weir_h3::{
    frame::{self, frame_type},
    settings::{Settings, setting},
};
use weir_quic::{App, Endpoint, Event, Handle, Limits, Lost};
use weir_transport::{Direction, Read, StreamId, Transport as _};

use crate::{
    pair::{DELAY, Pair, Setup, Side, datagrams, read_all},
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
fn what_is_left_for_later_comes_after_the_events_of_others() {
    let mut pair = Pair::new();
    let [(busy, at_busy), (modest, at_modest)] = [pair.connect(), pair.connect()];
    let long = open_with(&mut pair, busy, Direction::Uni, 0);
    for number in 1..MANY {
        deliver(&mut pair);
        let mut data = Bytes::copy_from_slice(&number.to_be_bytes());
        let written = pair.at_client(busy).write(long, &mut data);
        written.expect("there is room");
    }
    pair.at_client(busy).finish(long);
    let short = open_with(&mut pair, modest, Direction::Uni, 7);
    pair.send(Side::Client);
    pair.at_client(busy).close(7, b"all said");
    deliver(&mut pair);
    let mut reader = Reader::default();
    let now = pair.now;
    let mut before = 0;
    while pair.server.pass_events(now, &mut reader) {
        assert!(reader.pieces.len() <= before + 1, "one piece at once");
        before = reader.pieces.len();
    }
    let of = |handle| reader.pieces.iter().filter(move |piece| piece.0 == handle);
    assert_eq!(
        of(at_modest).collect::<Vec<_>>(),
        [&(at_modest, short, vec![0, 7])]
    );
    let place = reader.pieces.iter().position(|piece| piece.0 == at_modest);
    assert!(place.is_some_and(|place| place <= 3), "{place:?}");
    let read: Vec<u8> = of(at_busy).flat_map(|piece| piece.2.clone()).collect();
    let sent: Vec<_> = (0..MANY).flat_map(u16::to_be_bytes).collect();
    assert_eq!(read, sent);
    assert!(of(at_busy).count() > 20, "one packet at a time");
    assert_eq!(reader.lost, [at_busy]);
}

/// A server with a session of WebTransport whose client is the test, which speaks HTTP/3 itself.
struct ByHand {
    pair: Pair,
    client: Handle,
    server: Handle,
    control: StreamId,
    session: StreamId,
}

impl ByHand {
    fn new() -> Self {
        let mut pair = web_transport::setup(Limits::default());
        pair.config.web_transport = None;
        let client = pair.start();
        pair.pass(DELAY * 20);
        let mut settings = vec![0];
        Settings::new(&[(setting::H3_DATAGRAM, 1), (setting::ENABLE_WEBTRANSPORT, 1)])
            .encode(&mut settings);
        let mut request = Vec::new();
        let fields = [
            (":method", "CONNECT"),
            (":protocol", "webtransport"),
            (":scheme", "https"),
            (":authority", "relay.example:4433"),
            (":path", "/live"),
            ("wt-available-protocols", "\"moqt-18\""),
        ];
        frame::encode_headers(&fields, &mut request);
        let mut connection = pair.at_client(client);
        let control = connection.open(Direction::Uni).unwrap();
        connection.write(control, &mut settings.into()).unwrap();
        let session = connection.open(Direction::Bi).unwrap();
        connection.write(session, &mut request.into()).unwrap();
        pair.pass(DELAY * 20);
        let events = pair.take_server();
        let [Event::Connected { handle: server }] = events[..] else {
            panic!("{events:?}");
        };
        Self {
            pair,
            client,
            server,
            control,
            session,
        }
    }
}

#[test]
fn what_the_layer_leaves_for_later_is_read_in_further_turns() {
    let mut by_hand = ByHand::new();
    let pair = &mut by_hand.pair;
    // Empty capsules of an unknown type, in one DATA frame, and the end.
    let mut data = Vec::new();
    frame::encode_head(frame_type::DATA, 10_000, &mut data);
    data.extend([0x21, 0].repeat(5_000));
    let mut connection = pair.at_client(by_hand.client);
    let written = connection.write(by_hand.session, &mut data.into());
    written.unwrap();
    connection.finish(by_hand.session);
    deliver(pair);
    let mut reader = Reader::default();
    let now = pair.now;
    let mut turns = 1;
    while pair.server.pass_events(now, &mut reader) {
        turns += 1;
    }
    assert!(turns >= 3, "{turns}");
    assert_eq!(reader.lost, [by_hand.server]);
}

/// The streams of a connection could fill a megabyte with frames that mean nothing.
#[test]
fn what_the_layer_has_not_read_when_the_connection_ends_stays_unread() {
    let mut by_hand = ByHand::new();
    let pair = &mut by_hand.pair;
    let mut data = [0x21, 0].repeat(4_000);
    // A second SETTINGS frame, which a server that reads it counts as a violation.
    data.extend([4, 0]);
    let mut connection = pair.at_client(by_hand.client);
    let written = connection.write(by_hand.control, &mut data.into());
    assert_eq!(written, Ok(()), "it fits into the window");
    pair.send(Side::Client);
    pair.at_client(by_hand.client).close(7, b"all said");
    deliver(pair);
    // Nobody asks for the events until the connection is forgotten.
    while pair.server.connections() > 0 {
        pair.now += DELAY;
        pair.server.handle_timeout(pair.now);
        pair.server.fill(pair.now);
        pair.server.outbox().clear();
    }
    let mut reader = Reader::default();
    let now = pair.now;
    while pair.server.pass_events(now, &mut reader) {}
    assert_eq!(reader.lost, [by_hand.server]);
    assert_eq!(pair.server.counters().http3_violations, 0);
}

/// Has five datagrams arrive at once.
fn send_five(pair: &mut Pair, publisher: Handle) {
    for number in 0..5_u16 {
        let datagram = Bytes::copy_from_slice(&number.to_be_bytes());
        pair.at_client(publisher)
            .send_datagram(datagram, None)
            .unwrap();
    }
    deliver(pair);
}

#[test]
fn an_object_for_many_is_passed_on_alone() {
    let mut pair = Pair::new();
    let (publisher, _) = pair.connect();
    let audience: Vec<_> = (0..AUDIENCE).map(|_| pair.connect().1).collect();
    pair.settle();
    send_five(&mut pair, publisher);
    let mut role = FanOut::default();
    let now = pair.now;
    role.audience = audience;
    for number in 1..=5 {
        let has_more = pair.server.pass_events(now, &mut role);
        assert_eq!(role.received, number);
        assert_eq!(has_more, number < 5);
        pair.server.outbox().clear();
    }
    role.audience.clear();
    send_five(&mut pair, publisher);
    pair.server.pass_events(now, &mut role);
    assert_eq!(
        role.received, 10,
        "objects for nobody are passed on together"
    );
}

#[test]
fn a_message_for_many_is_passed_on_alone() {
    let mut pair = Pair::new();
    let (publisher, _) = pair.connect();
    let audience: Vec<_> = (0..AUDIENCE).map(|_| pair.connect().1).collect();
    let mut role = FanOut::default();
    for &handle in &audience {
        let stream = pair.at_server(handle).open(Direction::Uni);
        role.streams.push((handle, stream.unwrap()));
    }
    pair.settle();
    send_five(&mut pair, publisher);
    let now = pair.now;
    for number in 1..=5 {
        let has_more = pair.server.pass_events(now, &mut role);
        assert_eq!((role.received, has_more), (number, number < 5));
        while pair.server.fill(now) {
            pair.server.outbox().clear();
        }
        pair.server.outbox().clear();
    }
}

#[test]
fn the_timers_of_many_connections_are_handled_in_parts() {
    let mut pair = Pair::new();
    for _ in 0..CROWD {
        pair.connect();
    }
    pair.wire = Box::new(|_| false);
    pair.now += Limits::default().idle_timeout * 2;
    let now = pair.now;
    let (mut calls, mut open) = (0, pair.server.connections());
    while open > 0 && calls < 20 {
        pair.server.handle_timeout(now);
        while pair.server.fill(now) {
            pair.server.outbox().clear();
        }
        let left = pair.server.connections();
        assert!(open - left <= 256, "{open} became {left} at once");
        assert!(left == 0 || pair.server.poll_timeout().is_some_and(|at| at <= now));
        (calls, open) = (calls + 1, left);
    }
    assert_eq!(calls, 2);
}

/// Reads one piece of a stream at each event, and leaves the rest.
#[derive(Default)]
struct Reader {
    pieces: Vec<(Handle, StreamId, Vec<u8>)>,
    lost: Vec<Handle>,
}

impl App for Reader {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        if let Event::Readable { handle, stream } = event {
            let Some(mut connection) = endpoint.connection(now, handle) else {
                return;
            };
            if let Read::Data(data) = connection.read(stream) {
                self.pieces.push((handle, stream, data.to_vec()));
                connection.read_later(stream);
            }
        } else if let Event::Lost { handle, .. } = event {
            self.lost.push(handle);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _now: Instant, _endpoint: &mut Endpoint) {}

    fn handle_shutdown(&mut self, _now: Instant, _endpoint: &mut Endpoint) {}

    fn is_finished(&self) -> bool {
        false
    }
}

/// Sends each datagram to all of an audience, in datagrams or on streams.
#[derive(Default)]
struct FanOut {
    audience: Vec<Handle>,
    streams: Vec<(Handle, StreamId)>,
    received: usize,
}

impl App for FanOut {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        if let Event::Datagram { data, .. } = event {
            self.received += 1;
            for &handle in &self.audience {
                let mut connection = endpoint.connection(now, handle).unwrap();
                connection.send_datagram(data.clone(), None).unwrap();
                endpoint.fill_from(now, handle);
            }
            for &(handle, stream) in &self.streams {
                let mut connection = endpoint.connection(now, handle).unwrap();
                connection.write(stream, &mut data.clone()).unwrap();
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _now: Instant, _endpoint: &mut Endpoint) {}

    fn handle_shutdown(&mut self, _now: Instant, _endpoint: &mut Endpoint) {}

    fn is_finished(&self) -> bool {
        false
    }
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

/// Connections that an object is sent to, with a packet for each.
const AUDIENCE: usize = 70;
/// More events than a connection has in one turn.
const MANY: u16 = 60;
/// Clients that fall silent at one time.
const CROWD: usize = 300;
