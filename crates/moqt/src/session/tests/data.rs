//! Objects: by datagram, subgroup and fetch; before their alias is known and after their
//! subscription has ended.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use weir_transport::{Direction, StreamId, Transport};

use super::link::View;
use super::pair::{
    Pair, config, datagram, done, draft, each_seed, header, namespace, object, ok, publish,
    request_error, subgroup, subscribe_ok,
};
use crate::data::{encode_padding_datagram, encode_padding_stream};
use crate::error::{RequestErrorCode, ResetCode};
use crate::limits::Limits;
use crate::message::Message;
use crate::parameter::Parameters;
use crate::session::{Accepted, Event, RequestId, Side, StreamEnd};

pub(super) const SIDE: Side = Side::Client;
/// The first own request stream.
pub(super) const OWN: StreamId = StreamId(0);

/// A client with an established subscription under alias 7.
fn subscribed() -> (Pair, RequestId) {
    let (mut pair, _) = Pair::alone_ready(config(SIDE));
    let id = subscribe(&mut pair);
    pair.peer_sends(SIDE, OWN, &[Message::SubscribeOk(subscribe_ok(7))]);
    pair.events(SIDE);
    (pair, id)
}

fn subscribe(pair: &mut Pair) -> RequestId {
    let id = pair.client_subscribes();
    pair.run();
    id
}

/// Sends bytes on a new data stream of the peer.
pub(super) fn peer_stream(pair: &mut Pair, data: &[u8]) -> StreamId {
    let stream = pair.peer_opens(SIDE, Direction::Uni, &[]);
    pair.peer_writes(SIDE, stream, data);
    stream
}

fn hello(stream: StreamId, request: RequestId) -> Vec<Event> {
    vec![
        Event::Subgroup {
            stream,
            request,
            header: header(7, 0),
        },
        Event::Object {
            stream,
            object: object(0, 5),
        },
        Event::Payload {
            stream,
            data: Bytes::from_static(b"hello"),
        },
    ]
}

/// Returns the events with adjacent payloads of a stream joined, since the link cuts at arbitrary places.
pub(super) fn joined(events: Vec<Event>) -> Vec<Event> {
    let mut joined: Vec<Event> = Vec::new();
    for event in events {
        if let (
            Some(Event::Payload {
                stream: last,
                data: before,
            }),
            Event::Payload { stream, data },
        ) = (joined.last_mut(), &event)
            && last == stream
        {
            *before = [&before[..], &data[..]].concat().into();
            continue;
        }
        joined.push(event);
    }
    joined
}

#[test]
fn datagrams_are_returned_at_once() {
    let (mut pair, id) = subscribed();
    assert_eq!(pair.datagram(SIDE, &datagram(7, 0)), Some(id));
    assert_eq!(pair.events(SIDE), []);
}

#[test]
fn subgroups_are_passed_on_to_their_end() {
    let (mut pair, id) = subscribed();
    let stream = peer_stream(&mut pair, &subgroup(7, 0));
    assert_eq!(joined(pair.events(SIDE)), hello(stream, id));
    pair.peer_finishes(SIDE, stream);
    let end = StreamEnd::Fin;
    assert_eq!(pair.events(SIDE), [Event::StreamEnd { stream, end }]);

    let stream = peer_stream(&mut pair, &subgroup(7, 0)[..3]);
    pair.peer_resets(SIDE, stream, ResetCode::DELIVERY_TIMEOUT);
    let end = StreamEnd::Reset(ResetCode::DELIVERY_TIMEOUT);
    assert_eq!(
        pair.events(SIDE).pop(),
        Some(Event::StreamEnd { stream, end })
    );
}

#[test]
fn both_sides_agree_whatever_the_order() {
    each_seed(|seed| {
        let mut pair = Pair::ready(seed);
        let id = pair.client_subscribes();
        pair.run_events(Side::Server);
        // The answer and two groups race.
        let streams = pair.server(|session, view| {
            session.subscribe_ok(view, id, subscribe_ok(7));
            [0, 1].map(|group| {
                let stream = view.open(Direction::Uni).unwrap();
                view.write(stream, &mut subgroup(7, group).into()).unwrap();
                view.finish(stream);
                stream
            })
        });
        let events = joined(pair.run_events(SIDE));
        let accepted = Event::Accepted {
            id,
            ok: Accepted::Subscribe(subscribe_ok(7)),
        };
        assert_eq!(events[0], accepted);
        for (stream, group) in streams.into_iter().zip([0, 1]) {
            let of_stream = |event: &&Event| {
                matches!(event, Event::Subgroup { stream: found, .. }
                    | Event::Object { stream: found, .. }
                    | Event::StreamEnd { stream: found, .. } if *found == stream)
            };
            let found: Vec<_> = events.iter().filter(of_stream).cloned().collect();
            let expected = [
                Event::Subgroup {
                    stream,
                    request: id,
                    header: header(7, group),
                },
                Event::Object {
                    stream,
                    object: object(0, 5),
                },
                Event::StreamEnd {
                    stream,
                    end: StreamEnd::Fin,
                },
            ];
            assert_eq!(found, expected);
        }
        assert_eq!(
            *pair.session(SIDE).counters(),
            crate::session::Counters::default()
        );
    });
}

#[test]
fn what_comes_before_its_alias_waits_for_it() {
    let (mut pair, _) = Pair::alone_ready(config(SIDE));
    let id = subscribe(&mut pair);
    for n in 0..2 {
        assert_eq!(pair.datagram(SIDE, &datagram(7, n)), None);
    }
    let stream = peer_stream(&mut pair, &subgroup(7, 0));
    pair.peer_finishes(SIDE, stream);
    assert_eq!(pair.events(SIDE), []);
    assert_eq!(
        pair.session(SIDE).poll_timeout(),
        Some(pair.now + Limits::default().unknown_alias_timeout)
    );
    pair.peer_sends(SIDE, OWN, &[Message::SubscribeOk(subscribe_ok(7))]);
    let mut expected = vec![
        Event::Accepted {
            id,
            ok: Accepted::Subscribe(subscribe_ok(7)),
        },
        Event::Datagram {
            request: id,
            datagram: datagram(7, 0),
        },
        Event::Datagram {
            request: id,
            datagram: datagram(7, 1),
        },
    ];
    expected.extend(hello(stream, id));
    expected.push(Event::StreamEnd {
        stream,
        end: StreamEnd::Fin,
    });
    assert_eq!(joined(pair.events(SIDE)), expected);
    assert_eq!(pair.session(SIDE).poll_timeout(), None);
}

#[test]
fn an_offer_brings_its_alias_too() {
    let (mut pair, _) = Pair::alone_ready(config(SIDE));
    pair.datagram(SIDE, &datagram(7, 0));
    pair.peer_opens(SIDE, Direction::Bi, &[publish(1, "t", 7)]);
    let events = pair.events(SIDE);
    let request = RequestId(1);
    let late = Event::Datagram {
        request,
        datagram: datagram(7, 0),
    };
    assert_eq!(events[1..], [late]);
    assert_eq!(
        pair.datagram(SIDE, &datagram(7, 1)),
        Some(request),
        "even before the answer"
    );
    let error = request_error(RequestErrorCode::UNINTERESTED);
    let stream = peer_stream(&mut pair, &subgroup(7, 0));
    pair.client(|session, view| session.request_error(view, request, error));
    assert_eq!(pair.datagram(SIDE, &datagram(7, 2)), None);
    assert!(
        is_stopped(&mut pair, stream),
        "unwanted objects are stopped"
    );
}

/// Returns whether the peer was told to stop sending on a stream.
pub(super) fn is_stopped(pair: &mut Pair, stream: StreamId) -> bool {
    pair.run();
    pair.peer(SIDE, |peer| {
        peer.write(stream, &mut Bytes::from_static(&[0]))
    })
    .is_err()
}

#[test]
fn what_nobody_explains_is_given_up() {
    let (mut pair, _) = Pair::alone_ready(config(SIDE));
    pair.datagram(SIDE, &datagram(7, 0));
    let stream = peer_stream(&mut pair, &subgroup(7, 0));
    let timeout = Limits::default().unknown_alias_timeout;
    pair.wait_until_just_before(timeout);
    assert!(!is_stopped(&mut pair, stream));
    pair.wait(Duration::from_nanos(1));
    assert!(is_stopped(&mut pair, stream));
    assert_eq!(pair.events(SIDE), []);
    let counters = pair.session(SIDE).counters();
    assert_eq!(
        (
            counters.datagrams_unknown_expired,
            counters.streams_unknown_expired
        ),
        (1, 1)
    );
    assert_eq!(pair.session(SIDE).poll_timeout(), None);
}

#[test]
fn objects_after_a_cancel_are_dropped_quietly() {
    let (mut pair, id) = subscribed();
    let open = peer_stream(&mut pair, &subgroup(7, 0));
    pair.events(SIDE);
    pair.client(|session, view| session.cancel(view, id, ResetCode::CANCELLED));
    assert!(is_stopped(&mut pair, open));
    assert_eq!(pair.datagram(SIDE, &datagram(7, 1)), None);
    let late = peer_stream(&mut pair, &subgroup(7, 1));
    assert!(is_stopped(&mut pair, late));
    assert_eq!(pair.events(SIDE), []);
    let counters = pair.session(SIDE).counters();
    assert_eq!((counters.datagrams_late, counters.streams_late), (1, 1));
    assert_eq!(pair.session(SIDE).poll_timeout(), None);
}

#[test]
fn an_alias_that_comes_back_is_waited_for() {
    let (mut pair, id) = subscribed();
    pair.client(|session, view| session.cancel(view, id, ResetCode::CANCELLED));
    let again = subscribe(&mut pair);
    let stream = peer_stream(&mut pair, &subgroup(7, 0));
    pair.datagram(SIDE, &datagram(7, 1));
    let second = StreamId(4);
    pair.peer_sends(SIDE, second, &[Message::SubscribeOk(subscribe_ok(7))]);
    let events = joined(pair.events(SIDE));
    let request = again;
    assert_eq!(
        events[1],
        Event::Datagram {
            request,
            datagram: datagram(7, 1)
        }
    );
    assert_eq!(events[2..], hello(stream, again));
}

#[test]
fn objects_after_done_are_welcome_for_a_while() {
    let (mut pair, id) = subscribed();
    pair.peer_sends(SIDE, OWN, &[Message::PublishDone(done())]);
    pair.peer_finishes(SIDE, OWN);
    pair.events(SIDE);
    assert_eq!(pair.session(SIDE).requests_len(), 0);
    assert_eq!(pair.datagram(SIDE, &datagram(7, 1)), Some(id));
    let stream = peer_stream(&mut pair, &subgroup(7, 0));
    assert_eq!(joined(pair.events(SIDE)), hello(stream, id));

    let linger = Limits::default().done_linger;
    pair.wait_until_just_before(linger);
    assert_eq!(pair.datagram(SIDE, &datagram(7, 2)), Some(id));
    pair.wait(Duration::from_nanos(1));
    assert_eq!(pair.datagram(SIDE, &datagram(7, 3)), None);
    assert_eq!(pair.session(SIDE).counters().datagrams_late, 1);
    pair.peer_finishes(SIDE, stream);
    let end = StreamEnd::Fin;
    assert_eq!(
        pair.events(SIDE),
        [Event::StreamEnd { stream, end }],
        "open streams go on"
    );
}

#[test]
fn a_role_may_have_enough_after_done() {
    let (mut pair, id) = subscribed();
    let stream = peer_stream(&mut pair, &subgroup(7, 0));
    pair.peer_sends(SIDE, OWN, &[Message::PublishDone(done())]);
    pair.client(|session, view| session.forget(view, id));
    assert!(is_stopped(&mut pair, stream));
    assert_eq!(pair.datagram(SIDE, &datagram(7, 1)), None);
    assert_eq!(pair.session(SIDE).poll_timeout(), None);
}

#[test]
fn a_lingering_alias_may_be_given_to_another_track() {
    let (mut pair, id) = subscribed();
    pair.peer_sends(SIDE, OWN, &[Message::PublishDone(done())]);
    pair.peer_finishes(SIDE, OWN);
    assert_eq!(pair.datagram(SIDE, &datagram(7, 1)), Some(id));
    pair.peer_opens(SIDE, Direction::Bi, &[publish(1, "other", 7)]);
    assert_eq!(pair.datagram(SIDE, &datagram(7, 1)), Some(RequestId(1)));
    assert_eq!(pair.closed(SIDE), None);
}

#[test]
fn one_track_may_come_by_two_requests() {
    let (mut pair, id) = subscribed();
    pair.peer_opens(SIDE, Direction::Bi, &[publish(1, "t", 7)]);
    assert_eq!(pair.closed(SIDE), None);
    assert_eq!(pair.datagram(SIDE, &datagram(7, 1)), Some(id));
    pair.client(|session, view| session.cancel(view, id, ResetCode::CANCELLED));
    assert_eq!(pair.datagram(SIDE, &datagram(7, 1)), Some(RequestId(1)));
}

#[test]
fn a_role_stops_a_stream_it_does_not_want() {
    let (mut pair, _) = subscribed();
    let stream = peer_stream(&mut pair, &subgroup(7, 0));
    pair.events(SIDE);
    pair.client(|session, view| {
        session.stop_data(view, stream, ResetCode::CANCELLED);
        session.stop_data(view, stream, ResetCode::CANCELLED);
        session.stop_data(view, OWN, ResetCode::CANCELLED);
    });
    assert!(is_stopped(&mut pair, stream));
    assert_eq!(pair.events(SIDE), []);
}

#[test]
fn padding_is_discarded_and_counted() {
    let (mut pair, _) = Pair::alone_ready(config(SIDE));
    let mut out = BytesMut::new();
    encode_padding_stream(draft(), &mut out);
    out.extend_from_slice(&[0; 100]);
    let stream = peer_stream(&mut pair, &out);
    pair.peer_finishes(SIDE, stream);
    let mut out = BytesMut::new();
    encode_padding_datagram(draft(), &mut out);
    out.extend_from_slice(&[0; 20]);
    assert_eq!(pair.datagram_bytes(SIDE, out.freeze()), None);
    assert_eq!(pair.events(SIDE), []);
    assert_eq!(pair.session(SIDE).counters().padding_bytes, 105 + 25);
}

#[test]
fn the_role_knows_its_own_streams() {
    let mut pair = Pair::ready(1);
    let now = pair.now;
    let data = pair.client(|_, view| view.open(Direction::Uni).unwrap());
    let id = pair
        .client(|session, view| {
            session.publish_namespace(view, namespace("a"), Parameters::default())
        })
        .unwrap();
    pair.run();
    pair.server(|session, view| session.request_ok(view, id, ok()));
    pair.run();
    pair.client(|session, view| {
        assert!(!session.handle_writable(now, view, data));
        assert!(!session.handle_stopped(now, view, data, 1));
        assert!(session.handle_writable(now, view, OWN));
        assert!(
            session.handle_writable(now, view, StreamId(2)),
            "the control stream"
        );
        session.handle_readable(now, view, data);
    });
}

#[test]
fn a_stream_of_many_small_objects_is_read_in_pieces() {
    const OBJECTS: u64 = 5000;
    let (mut pair, _) = subscribed();
    let stream = pair.peer_opens(SIDE, Direction::Uni, &[]);
    let mut data = BytesMut::new();
    header(7, 0).encode(draft(), &mut data);
    for id in 0..OBJECTS {
        let previous = id.checked_sub(1);
        object(id, 1).encode_in_subgroup(previous, false, draft(), &mut data);
        data.extend_from_slice(b"a");
    }
    let mut data = data.freeze();
    let mut server = View {
        link: &mut pair.link,
        side: Side::Server,
    };
    server.write(stream, &mut data).expect("the link takes it");
    // All of it has come before the session is told.
    while pair.link.step().is_some() {}
    let now = pair.now;
    pair.client(|session, view| session.handle_opened(now, view, stream, Direction::Uni));
    let mut objects = Vec::new();
    let mut pieces = 0;
    loop {
        let events = pair.events(SIDE);
        // A piece of the link has at most 64 bytes.
        assert!(events.len() <= 300, "{} events at once", events.len());
        for event in events {
            if let Event::Object { object, .. } = event {
                objects.push(object.id);
            }
        }
        pieces += 1;
        if objects.len() as u64 == OBJECTS {
            break;
        }
        pair.step();
    }
    assert!(objects.into_iter().eq(0..OBJECTS));
    assert!(pieces > 30, "{pieces} pieces");
}
