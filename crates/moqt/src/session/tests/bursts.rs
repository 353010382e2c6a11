//! Much that is small and comes at once: a session handles some of it, and the rest later and in order.

use bytes::{Bytes, BytesMut};
use weir_transport::{Direction, StreamId, Transport};

use super::pair::{
    Pair, config, draft, header, object, ok, publish, request_error, subscribe, subscribe_ok, track,
};
use crate::data::{FetchEncoder, FetchEntry, FetchHeader, FetchObject};
use crate::error::RequestErrorCode;
use crate::location::Location;
use crate::message::{FetchKind, Message, Setup};
use crate::parameter::{GroupOrder, Parameters};
use crate::property::Properties;
use crate::session::{Event, RequestId, Side, StreamEnd};

/// Most events of one call: 256, one for each stream that waits for its alias, and some to spare.
const EVENTS_MAX: usize = 340;
const CLIENT: Side = Side::Client;
const SERVER: Side = Side::Server;

/// Lets everything arrive. Returns the events of a side, and asserts that no step caused many.
fn run_in_steps(pair: &mut Pair, side: Side) -> Vec<Event> {
    let mut all = Vec::new();
    for _ in 0..5000 {
        pair.step();
        let events = pair.events(side);
        assert!(events.len() <= EVENTS_MAX, "{} events", events.len());
        all.extend(events);
    }
    all
}

/// A subgroup with this many objects of one byte each.
fn tiny_objects(track_alias: u64, group: u64, count: u64) -> BytesMut {
    let mut out = BytesMut::new();
    header(track_alias, group).encode(draft(), &mut out);
    for id in 0..count {
        let previous = id.checked_sub(1);
        object(id, 1).encode_in_subgroup(previous, false, draft(), &mut out);
        out.extend_from_slice(b"x");
    }
    out
}

/// Returns the IDs of the objects of a stream, of which each has its payload.
fn ids_of(events: &[Event], of: StreamId) -> Vec<u64> {
    let (mut ids, mut payloads) = (Vec::new(), 0);
    for event in events {
        if let Event::Object { stream, object } = event
            && *stream == of
        {
            ids.push(object.id);
        } else if let Event::Payload { stream, data } = event
            && *stream == of
        {
            assert_eq!(data, "x");
            payloads += 1;
            assert_eq!(payloads, ids.len());
        }
    }
    assert_eq!(payloads, ids.len());
    ids
}

/// Opens streams of the peer of `side`, writes to each, and finishes it.
fn open_all(pair: &mut Pair, side: Side, data: impl IntoIterator<Item = Bytes>) -> Vec<StreamId> {
    pair.peer(side, |peer| {
        let mut streams = Vec::new();
        for mut data in data {
            let stream = peer.open(Direction::Uni).expect("the link has streams");
            peer.write(stream, &mut data).expect("the link takes it");
            peer.finish(stream);
            streams.push(stream);
        }
        streams
    })
}

#[test]
fn tiny_objects_that_come_in_one_piece_are_reported_in_parts() {
    let (mut pair, _) = Pair::alone_ready(config(CLIENT));
    pair.link.is_whole = true;
    pair.client_subscribes();
    pair.run();
    pair.peer_sends(
        CLIENT,
        StreamId(0),
        &[Message::SubscribeOk(subscribe_ok(7))],
    );
    pair.events(CLIENT);
    let stream = open_all(&mut pair, CLIENT, [tiny_objects(7, 0, 30_000).freeze()])[0];
    let events = run_in_steps(&mut pair, CLIENT);
    assert!(ids_of(&events, stream).into_iter().eq(0..30_000));
    let end = StreamEnd::Fin;
    assert_eq!(events.last(), Some(&Event::StreamEnd { stream, end }));
}

#[test]
fn so_are_those_of_a_fetch() {
    let (mut pair, _) = Pair::alone_ready(config(CLIENT));
    pair.link.is_whole = true;
    let kind = FetchKind::Standalone {
        track: track("t"),
        start: Location::new(0, 0),
        end: Location::new(2, u64::MAX),
    };
    let id = pair
        .client(|session, view| session.fetch(view, kind, Parameters::default()))
        .expect("the client has room for a request");
    pair.run();
    let mut out = BytesMut::new();
    FetchHeader { request_id: id.0 }.encode(draft(), &mut out);
    let mut encoder = FetchEncoder::new(draft(), GroupOrder::Ascending);
    for object in 0..30_000 {
        let entry = FetchEntry::Object(FetchObject {
            group: 0,
            subgroup: Some(0),
            object,
            priority: 128,
            properties: Properties::EMPTY,
            payload_len: 1,
        });
        encoder.encode(&entry, &mut out);
        out.extend_from_slice(b"x");
    }
    let stream = open_all(&mut pair, CLIENT, [out.freeze()])[0];
    let events = run_in_steps(&mut pair, CLIENT);
    let entries = events.iter().filter_map(|event| {
        if let Event::FetchObject { entry, .. } = event
            && let FetchEntry::Object(object) = entry
        {
            Some(object.object)
        } else {
            None
        }
    });
    assert!(entries.eq(0..30_000));
    let end = StreamEnd::Fin;
    assert_eq!(events.last(), Some(&Event::StreamEnd { stream, end }));
}

#[test]
fn messages_after_the_end_of_a_request_are_read_in_parts() {
    let (mut pair, _) = Pair::alone_ready(config(SERVER));
    pair.link.is_whole = true;
    let stream = pair.peer_opens(SERVER, Direction::Bi, &[subscribe(0, "t")]);
    let error = request_error(RequestErrorCode::DOES_NOT_EXIST);
    pair.server(|session, view| session.request_error(view, RequestId(0), error));
    pair.run();
    let mut piece = BytesMut::new();
    while piece.len() < 1200 {
        Message::RequestOk(ok())
            .encode(draft(), &mut piece)
            .unwrap();
    }
    pair.peer(SERVER, |peer| {
        for _ in 0..100 {
            peer.write(stream, &mut piece.clone().freeze()).unwrap();
        }
        peer.finish(stream);
    });
    pair.link.bring_all(stream, CLIENT);
    pair.step();
    let unread = pair.link.unread_len(stream, CLIENT);
    assert!((90..100).contains(&unread), "{unread} of 101 are left");
    pair.run();
    assert_eq!(pair.link.unread_len(stream, CLIENT), 0);
    assert_eq!(pair.session(SERVER).requests_len(), 0);
}

#[test]
fn streams_that_wait_for_their_alias_count_and_are_read_in_parts() {
    let (mut pair, _) = Pair::alone_ready(config(CLIENT));
    pair.link.is_whole = true;
    pair.client_subscribes();
    pair.run();
    let groups = (0..60).map(|group| tiny_objects(7, group, 300).freeze());
    let streams = open_all(&mut pair, CLIENT, groups);
    pair.run();
    assert_eq!(pair.events(CLIENT), []);
    let waiting = pair.session(CLIENT).waiting_bytes();
    assert!((60 * 900..60 * 910).contains(&waiting), "{waiting}");
    pair.peer(CLIENT, |peer| {
        let mut out = BytesMut::new();
        let message = Message::SubscribeOk(subscribe_ok(7));
        message.encode(draft(), &mut out).unwrap();
        peer.write(StreamId(0), &mut out.freeze()).unwrap();
    });
    let events = run_in_steps(&mut pair, CLIENT);
    for stream in streams {
        assert!(ids_of(&events, stream).into_iter().eq(0..300));
        let end = StreamEnd::Fin;
        assert!(events.contains(&Event::StreamEnd { stream, end }));
    }
    assert_eq!(pair.session(CLIENT).waiting_bytes(), 0);
}

#[test]
fn streams_that_came_before_setup_are_read_in_parts() {
    let mut pair = Pair::alone(config(SERVER));
    pair.link.is_whole = true;
    let request = pair.peer_opens(SERVER, Direction::Bi, &[publish(0, "t", 7)]);
    let groups = (0..200).map(|group| tiny_objects(7, group, 300).freeze());
    let streams = open_all(&mut pair, SERVER, groups);
    pair.run();
    assert_eq!(pair.events(SERVER), []);
    pair.peer(SERVER, |peer| {
        let mut out = BytesMut::new();
        let message = Message::Setup(Setup::default());
        message.encode(draft(), &mut out).unwrap();
        let control = peer.open(Direction::Uni).unwrap();
        peer.write(control, &mut out.freeze()).unwrap();
    });
    let events = run_in_steps(&mut pair, SERVER);
    assert!(matches!(events[0], Event::Ready { .. }));
    assert!(matches!(events[1], Event::Request { .. }), "{request:?}");
    for stream in streams {
        assert!(ids_of(&events, stream).into_iter().eq(0..300));
        let end = StreamEnd::Fin;
        assert!(events.contains(&Event::StreamEnd { stream, end }));
    }
    assert_eq!(pair.session(SERVER).waiting_bytes(), 0);
}
