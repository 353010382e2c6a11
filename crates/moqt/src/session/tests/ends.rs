//! The ends of requests: FIN, reset and `STOP_SENDING`, from either side, reported at most once.

use weir_transport::{Direction, Read, StreamId};

use super::pair::{
    Pair, config, done, each_seed, namespace, ok, publish, request_error, subscribe, subscribe_ok,
    track,
};
use crate::error::{RequestErrorCode, ResetCode};
use crate::message::Message;
use crate::parameter::Parameters;
use crate::property::Properties;
use crate::session::{CloseReason, Event, RequestId, Side};

const ID: RequestId = RequestId(0);
const OWN: StreamId = StreamId(1);

/// A server with the peer's request 0, and the stream of it.
fn with_request(request: Message) -> (Pair, StreamId) {
    let (mut pair, _) = Pair::alone_ready(config(Side::Server));
    let stream = pair.peer_opens(Side::Server, Direction::Bi, &[request]);
    assert!(matches!(
        pair.events(Side::Server)[..],
        [Event::Request { .. }]
    ));
    (pair, stream)
}

#[test]
fn a_subscriber_that_only_finishes_its_side_stays() {
    // Peers that never update send FIN right after the request.
    let (mut pair, stream) = with_request(subscribe(0, "t"));
    pair.peer_finishes(Side::Server, stream);
    assert_eq!(pair.events(Side::Server), []);
    pair.server(|session, view| {
        session.subscribe_ok(view, ID, subscribe_ok(1));
        session.publish_done(view, ID, done());
    });
    let (messages, end) = pair.peer_reads(Side::Server, stream);
    assert_eq!((messages.len(), end), (2, Read::Fin));
    assert_eq!(pair.session(Side::Server).requests_len(), 0);
}

#[test]
fn a_subscriber_that_stops_is_gone_even_after_its_fin() {
    for finishes in [false, true] {
        let (mut pair, stream) = with_request(subscribe(0, "t"));
        if finishes {
            pair.peer_finishes(Side::Server, stream);
        }
        pair.peer_stops(Side::Server, stream, ResetCode::CANCELLED);
        let reason = CloseReason::Stopped(ResetCode::CANCELLED);
        assert_eq!(
            pair.events(Side::Server),
            [Event::Closed { id: ID, reason }]
        );
        assert_eq!(pair.session(Side::Server).requests_len(), 0);
    }
}

#[test]
fn a_reset_ends_any_request() {
    for request in [subscribe(0, "t"), publish(0, "t", 1)] {
        let (mut pair, stream) = with_request(request);
        pair.peer_resets(Side::Server, stream, ResetCode::GOING_AWAY);
        let reason = CloseReason::Reset(ResetCode::GOING_AWAY);
        assert_eq!(
            pair.events(Side::Server),
            [Event::Closed { id: ID, reason }]
        );
        assert_eq!(pair.peer_reads(Side::Server, stream).1, Read::Reset(1));
        assert_eq!(pair.session(Side::Server).requests_len(), 0);
    }
}

#[test]
fn a_publisher_that_finishes_without_done_is_gone() {
    let (mut pair, stream) = with_request(publish(0, "t", 1));
    pair.server(|session, view| session.request_ok(view, ID, ok()));
    pair.peer_finishes(Side::Server, stream);
    let reason = CloseReason::Fin;
    assert_eq!(
        pair.events(Side::Server),
        [Event::Closed { id: ID, reason }]
    );
    assert_eq!(pair.session(Side::Server).requests_len(), 0);
}

#[test]
fn a_publisher_that_reads_no_answers_stays() {
    let (mut pair, stream) = with_request(publish(0, "t", 1));
    pair.server(|session, view| session.request_ok(view, ID, ok()));
    pair.peer_stops(Side::Server, stream, ResetCode::CANCELLED);
    assert_eq!(pair.events(Side::Server), []);
    pair.peer_sends(Side::Server, stream, &[Message::PublishDone(done())]);
    assert_eq!(
        pair.events(Side::Server),
        [Event::Done {
            id: ID,
            done: done()
        }]
    );
    pair.peer_finishes(Side::Server, stream);
    assert_eq!(pair.session(Side::Server).requests_len(), 0);
}

#[test]
fn a_namespace_lives_until_both_directions_are_gone() {
    for stop_first in [false, true] {
        let (mut pair, _) = Pair::alone_ready(config(Side::Server));
        let id = pair
            .server(|session, view| {
                session.publish_namespace(view, namespace("a"), Parameters::default())
            })
            .unwrap();
        pair.run();
        pair.peer_sends(Side::Server, OWN, &[Message::RequestOk(ok())]);
        pair.events(Side::Server);
        if stop_first {
            pair.peer_stops(Side::Server, OWN, ResetCode::CANCELLED);
            assert_eq!(pair.events(Side::Server), []);
            pair.peer_finishes(Side::Server, OWN);
        } else {
            pair.peer_finishes(Side::Server, OWN);
            assert_eq!(pair.events(Side::Server), []);
            pair.peer_stops(Side::Server, OWN, ResetCode::CANCELLED);
        }
        assert!(matches!(
            pair.events(Side::Server)[..],
            [Event::Closed { id: found, .. }] if found == id
        ));
        assert_eq!(pair.session(Side::Server).requests_len(), 0);
    }
}

#[test]
fn a_refusal_is_heard_even_if_the_stop_overtakes_it() {
    let (mut pair, _) = Pair::alone_ready(config(Side::Server));
    let none = Parameters::default();
    let id = pair
        .server(|session, view| session.publish(view, track("t"), 1, none, Properties::EMPTY))
        .unwrap();
    pair.run();
    pair.peer_stops(Side::Server, OWN, ResetCode::CANCELLED);
    let error = request_error(RequestErrorCode::UNINTERESTED);
    pair.peer_sends(Side::Server, OWN, &[Message::RequestError(error.clone())]);
    pair.peer_finishes(Side::Server, OWN);
    assert_eq!(pair.events(Side::Server), [Event::Rejected { id, error }]);
    assert_eq!(pair.session(Side::Server).requests_len(), 0);
}

#[test]
fn a_subscriber_of_an_offer_leaves_by_stopping() {
    let (mut pair, _) = Pair::alone_ready(config(Side::Server));
    let none = Parameters::default();
    let id = pair
        .server(|session, view| session.publish(view, track("t"), 1, none, Properties::EMPTY))
        .unwrap();
    pair.run();
    pair.peer_sends(Side::Server, OWN, &[Message::RequestOk(ok())]);
    pair.peer_finishes(Side::Server, OWN);
    assert_eq!(
        pair.events(Side::Server).len(),
        1,
        "a finished subscriber still listens"
    );
    pair.peer_stops(Side::Server, OWN, ResetCode::CANCELLED);
    let reason = CloseReason::Stopped(ResetCode::CANCELLED);
    assert_eq!(pair.events(Side::Server), [Event::Closed { id, reason }]);
    assert_eq!(pair.session(Side::Server).requests_len(), 0);
}

#[test]
fn a_response_that_ends_without_an_answer_ends_the_request() {
    type End = fn(&mut Pair);
    let ends: [(End, CloseReason); 2] = [
        (
            |pair| pair.peer_finishes(Side::Server, OWN),
            CloseReason::Fin,
        ),
        (
            |pair| pair.peer_resets(Side::Server, OWN, ResetCode::INTERNAL_ERROR),
            CloseReason::Reset(ResetCode::INTERNAL_ERROR),
        ),
    ];
    for (end, reason) in ends {
        let (mut pair, _) = Pair::alone_ready(config(Side::Server));
        let id = pair
            .server(|session, view| session.subscribe(view, track("t"), Parameters::default()))
            .unwrap();
        pair.run();
        end(&mut pair);
        assert_eq!(pair.events(Side::Server), [Event::Closed { id, reason }]);
        assert_eq!(pair.session(Side::Server).requests_len(), 0);
    }
}

#[test]
fn a_cancel_resets_and_stops_and_is_heard_once() {
    each_seed(|seed| {
        for by_server in [false, true] {
            let mut pair = Pair::ready(seed);
            let id = pair.client_subscribes();
            pair.run_events(Side::Server);
            pair.server(|session, view| session.subscribe_ok(view, id, subscribe_ok(1)));
            pair.run_events(Side::Client);
            let by = if by_server {
                Side::Server
            } else {
                Side::Client
            };
            let of = by.peer();
            pair.with(by, |session, view| {
                session.cancel(view, id, ResetCode::TOO_FAR_BEHIND);
            });
            let events = pair.run_events(of);
            assert!(
                matches!(&events[..], [Event::Closed {
                    reason: CloseReason::Reset(code) | CloseReason::Stopped(code), ..
                }] if *code == ResetCode::TOO_FAR_BEHIND),
                "{events:?}"
            );
            assert_eq!(pair.events(by), []);
            for side in [by, of] {
                assert_eq!(pair.session(side).requests_len(), 0);
            }
        }
    });
}

#[test]
fn a_stream_that_says_nothing_is_nothing() {
    let (mut pair, _) = Pair::alone_ready(config(Side::Server));
    for direction in [Direction::Bi, Direction::Uni] {
        let stream = pair.peer_opens(Side::Server, direction, &[]);
        pair.peer_finishes(Side::Server, stream);
        let stream = pair.peer_opens(Side::Server, direction, &[]);
        pair.peer_resets(Side::Server, stream, ResetCode::CANCELLED);
    }
    let stream = pair.peer_opens(Side::Server, Direction::Bi, &[]);
    pair.peer_writes(Side::Server, stream, &[3]);
    pair.peer_stops(Side::Server, stream, ResetCode::CANCELLED);
    assert_eq!(pair.events(Side::Server), []);
    assert_eq!(pair.closed(Side::Server), None);
}
