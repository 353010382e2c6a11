//! Answers while others are outstanding, their order on the stream, and answers that fit no request.

use std::time::Duration;

use weir_transport::Transport;

use super::pair::{Pair, done, each_seed, ok, request_error, subscribe_ok};
use crate::error::RequestErrorCode;
use crate::message::{RequestOk, SubscribeOk};
use crate::parameter::Parameters;
use crate::property::Properties;
use crate::session::{CloseReason, Event, RequestId, Session, Side};

/// A subscription of the client whose SUBSCRIBE the server has read and not answered, with this number of updates.
fn unanswered(seed: u64, updates: usize) -> (Pair, RequestId) {
    let mut pair = Pair::ready(seed);
    let id = pair.client_subscribes();
    for _ in 0..updates {
        pair.client(|session, view| session.update(view, id, Parameters::default()))
            .unwrap();
    }
    assert_eq!(pair.run_events(Side::Server).len(), 1 + updates);
    (pair, id)
}

#[test]
fn the_answer_to_an_update_waits_for_the_one_to_its_request() {
    each_seed(|seed| {
        let (mut pair, id) = unanswered(seed, 3);
        let granted = [1, 2].map(|second| RequestOk {
            parameters: Parameters {
                expires: Some(Duration::from_secs(second)),
                ..Parameters::default()
            },
            ..ok()
        });
        pair.server(|session, view| {
            session.update_ok(view, id, granted[0].clone());
            session.update_ok(view, id, granted[1].clone());
        });
        assert_eq!(pair.run_events(Side::Client), []);
        pair.server(|session, view| {
            session.subscribe_ok(view, id, subscribe_ok(7));
            session.update_ok(view, id, ok());
        });
        let events = pair.run_events(Side::Client);
        assert!(matches!(events[0], Event::Accepted { .. }), "{events:?}");
        let updated = [&granted[0], &granted[1], &ok()].map(|ok| Event::Updated {
            id,
            result: Ok(ok.clone()),
        });
        assert_eq!(events[1..], updated);
    });
}

#[test]
fn a_refused_update_of_what_is_not_answered_refuses_it() {
    each_seed(|seed| {
        let (mut pair, id) = unanswered(seed, 3);
        let error = request_error(RequestErrorCode::UNAUTHORIZED);
        pair.server(|session, view| {
            session.update_ok(view, id, ok());
            session.update_error(view, id, error.clone());
            // Further answers are for a request that is over.
            session.update_ok(view, id, ok());
            session.subscribe_ok(view, id, subscribe_ok(7));
            session.publish_done(view, id, done());
        });
        let events = pair.run_events(Side::Client);
        assert_eq!(events[0], Event::Rejected { id, error });
        for side in [Side::Client, Side::Server] {
            assert_eq!(pair.session(side).requests_len(), 0);
            assert_eq!(pair.closed(side), None);
        }
    });
}

#[test]
fn the_role_hears_of_an_answer_that_does_not_fit() {
    each_seed(|seed| {
        let (mut pair, id) = unanswered(seed, 1);
        let long = Properties::builder().bytes(0x23, vec![0; 65_530]).build();
        let ok = SubscribeOk {
            properties: long,
            ..subscribe_ok(7)
        };
        pair.server(|session, view| {
            session.update_ok(view, id, super::pair::ok());
            session.subscribe_ok(view, id, ok);
        });
        let reason = CloseReason::Fin;
        assert_eq!(
            pair.run_events(Side::Server),
            [Event::Closed { id, reason }]
        );
        let events = pair.events(Side::Client);
        let [Event::Rejected { error, .. }, ..] = &events[..] else {
            panic!("{events:?}");
        };
        assert_eq!(error.code, RequestErrorCode::INTERNAL_ERROR);
        for side in [Side::Client, Side::Server] {
            assert_eq!(pair.session(side).requests_len(), 0);
            assert_eq!(pair.closed(side), None);
        }
    });
}

/// Checks that `answer`, to a subscription that was answered before, is a misuse by the role.
fn misused(answer: impl FnOnce(&mut Session, &mut dyn Transport, RequestId)) {
    let (mut pair, id) = unanswered(1, 0);
    pair.server(|session, view| {
        session.subscribe_ok(view, id, subscribe_ok(1));
        answer(session, view, id);
    });
}

#[test]
#[should_panic(expected = "not the answer to this request")]
fn the_wrong_answer_is_misuse() {
    misused(|session, view, id| session.request_ok(view, id, ok()));
}

#[test]
#[should_panic(expected = "a request was answered twice")]
fn a_second_answer_is_misuse() {
    misused(|session, view, id| session.subscribe_ok(view, id, subscribe_ok(1)));
}

#[test]
#[should_panic(expected = "a request was answered twice")]
fn an_error_after_the_answer_is_misuse() {
    misused(|session, view, id| {
        session.request_error(view, id, request_error(RequestErrorCode::TIMEOUT));
    });
}

#[test]
#[should_panic(expected = "no update of the request waits for an answer")]
fn an_answer_to_no_update_is_misuse() {
    misused(|session, view, id| session.update_ok(view, id, ok()));
}
