//! Streams that end in the middle of something, and never continue.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use weir_transport::{Direction, StreamId, Transport};

use super::pair::{
    Pair, config_with, draft, header, object, ok, publish, subgroup, subscribe, update,
};
use crate::error::{ResetCode, SessionError};
use crate::message::Message;
use crate::property::Properties;
use crate::session::{CloseReason, Event, RequestId, Side, StreamEnd};

const SIDE: Side = Side::Server;
const STALL: Duration = Duration::from_secs(10);
const ID: RequestId = RequestId(0);

/// A session that accepted a publication with alias 7, and the stream of the request.
fn published(bytes_max: usize) -> (Pair, StreamId) {
    let (mut pair, _) = Pair::alone_ready(config_with(SIDE, |limits| {
        limits.stall_max = STALL;
        limits.incomplete_bytes_max = bytes_max;
    }));
    let request = pair.peer_opens(SIDE, Direction::Bi, &[publish(ID.0, "t", 7)]);
    pair.server(|session, view| session.request_ok(view, ID, ok()));
    pair.run_events(SIDE);
    assert_eq!(pair.session(SIDE).poll_timeout(), None);
    (pair, request)
}

/// Opens a stream of the peer, and writes to it.
fn opens(pair: &mut Pair, direction: Direction, data: &[u8]) -> StreamId {
    let stream = pair.peer_opens(SIDE, direction, &[]);
    pair.peer_writes(SIDE, stream, data);
    stream
}

/// Returns whether the peer was told to stop sending on a stream.
fn is_stopped(pair: &mut Pair, stream: StreamId) -> bool {
    pair.run();
    let written = pair.peer(SIDE, |peer| peer.write(stream, &mut Bytes::new()));
    written.is_err()
}

fn encoded(message: &Message) -> Bytes {
    let mut bytes = BytesMut::new();
    message.encode(draft(), &mut bytes).unwrap();
    bytes.freeze()
}

/// A subgroup whose object has properties of this many bytes.
fn with_properties(group: u64, bytes: usize) -> Vec<u8> {
    let mut out = BytesMut::new();
    let header = crate::data::SubgroupHeader {
        has_properties: true,
        ..header(7, group)
    };
    header.encode(draft(), &mut out);
    let object = crate::data::ObjectHeader {
        properties: Properties::builder()
            .bytes(0x3f01, Bytes::from(vec![0; bytes]))
            .build(),
        ..object(0, 5)
    };
    object.encode_in_subgroup(None, true, draft(), &mut out);
    out.to_vec()
}

#[test]
fn what_never_continues_is_given_up() {
    let (mut pair, _) = published(1 << 20);
    let whole = subgroup(7, 0);
    let subscribe = encoded(&subscribe(2, "t"));
    let cuts: Vec<(Direction, &[u8])> = vec![
        (Direction::Uni, &whole[..1]),
        (Direction::Uni, &whole[..2]),
        (Direction::Uni, &whole[..whole.len() - 6]),
        (Direction::Uni, &whole[..whole.len() - 1]),
        (Direction::Bi, &subscribe[..1]),
        (Direction::Bi, &subscribe[..subscribe.len() - 1]),
    ];
    let streams: Vec<_> = cuts
        .into_iter()
        .map(|(direction, data)| opens(&mut pair, direction, data))
        .collect();
    pair.run_events(SIDE);
    pair.wait(STALL);
    pair.wait_until_just_before(STALL);
    assert!(streams.iter().all(|&stream| !is_stopped(&mut pair, stream)));
    pair.wait(Duration::from_nanos(1));
    assert!(streams.iter().all(|&stream| is_stopped(&mut pair, stream)));
    let code = ResetCode::EXCESSIVE_LOAD;
    let ends: Vec<_> = [2, 3]
        .map(|place: usize| Event::StreamEnd {
            stream: streams[place],
            end: StreamEnd::Reset(code),
        })
        .into();
    assert_eq!(pair.events(SIDE), ends, "those that the role knows of");
    assert_eq!(pair.session(SIDE).counters().streams_stalled, 6);
    assert_eq!(pair.session(SIDE).waiting_bytes(), 0);
    assert_eq!(pair.session(SIDE).poll_timeout(), None);
    assert_eq!(pair.closed(SIDE), None);
}

#[test]
fn an_update_that_never_ends_ends_its_request() {
    let (mut pair, request) = published(1 << 20);
    let update = encoded(&update(2));
    pair.peer_writes(SIDE, request, &update[..update.len() - 1]);
    pair.run_events(SIDE);
    pair.wait(STALL);
    pair.wait_until_just_before(STALL);
    assert_eq!(pair.events(SIDE), []);
    pair.wait(Duration::from_nanos(1));
    let reason = CloseReason::Reset(ResetCode::EXCESSIVE_LOAD);
    assert_eq!(pair.events(SIDE), [Event::Closed { id: ID, reason }]);
    assert!(is_stopped(&mut pair, request));
}

#[test]
fn who_goes_on_or_pauses_between_objects_is_let_be() {
    let (mut pair, _) = published(1 << 20);
    let whole = subgroup(7, 0);
    let slow = opens(&mut pair, Direction::Uni, &whole[..1]);
    let paused = opens(&mut pair, Direction::Uni, &whole);
    for byte in &whole[1..] {
        pair.wait(STALL);
        pair.peer_writes(SIDE, slow, &[*byte]);
    }
    for _ in 0..10 {
        pair.wait(STALL);
    }
    assert!(!is_stopped(&mut pair, slow) && !is_stopped(&mut pair, paused));
    pair.peer_finishes(SIDE, slow);
    pair.peer_finishes(SIDE, paused);
    pair.wait(STALL);
    assert_eq!(pair.session(SIDE).poll_timeout(), None);
    assert_eq!(pair.session(SIDE).counters().streams_stalled, 0);
}

#[test]
fn incomplete_messages_and_headers_are_bounded() {
    const MAX: usize = 3000;
    let (mut pair, _) = published(MAX);
    let cut = with_properties(0, 2000);
    let message = encoded(&subscribe(2, &"t".repeat(1500)));
    let at = MAX - 1000;
    let first = opens(&mut pair, Direction::Bi, &message[..1000]);
    // The header of the subgroup and what comes before the properties are not held.
    let skipped = cut.len() - 2000;
    let second = opens(&mut pair, Direction::Uni, &cut[..skipped]);
    let held = pair.session(SIDE).waiting_bytes();
    pair.peer_writes(SIDE, second, &cut[skipped..skipped + MAX - held]);
    pair.run_events(SIDE);
    assert_eq!(pair.session(SIDE).waiting_bytes(), MAX, "{at}");
    assert!(!is_stopped(&mut pair, first) && !is_stopped(&mut pair, second));
    pair.peer_writes(SIDE, first, &message[1000..1001]);
    assert!(is_stopped(&mut pair, first), "the one that grows");
    assert!(!is_stopped(&mut pair, second));
    assert_eq!(pair.session(SIDE).counters().incomplete_over_limit, 1);
    pair.peer_writes(SIDE, second, &cut[skipped + MAX - held..]);
    pair.peer_writes(SIDE, second, b"hello");
    pair.peer_finishes(SIDE, second);
    pair.run();
    let end = StreamEnd::Fin;
    let stream = second;
    assert_eq!(
        pair.events(SIDE).pop(),
        Some(Event::StreamEnd { stream, end })
    );
    assert_eq!(pair.session(SIDE).waiting_bytes(), 0);
    assert_eq!(pair.closed(SIDE), None::<SessionError>);
}
