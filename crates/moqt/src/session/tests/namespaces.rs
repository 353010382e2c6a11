//! Subscriptions to namespaces and to the tracks in them.

use weir_transport::{Direction, Read, StreamId};

use super::pair::{Pair, each_seed, namespace, ok};
use crate::error::SessionError;
use crate::message::{Message, SubscribeNamespace, SubscribeTracks};
use crate::name::TrackName;
use crate::parameter::Parameters;
use crate::session::{CloseReason, Event, Request, RequestId, Side};

fn subscribed(seed: u64) -> (Pair, RequestId) {
    let mut pair = Pair::ready(seed);
    let id = pair
        .client(|session, view| {
            session.subscribe_namespace(view, namespace("a"), Parameters::default())
        })
        .unwrap();
    let events = pair.run_events(Side::Server);
    let [
        Event::Request {
            request: Request::SubscribeNamespace(request),
            ..
        },
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    let (request_id, prefix, parameters) = (0, namespace("a"), Parameters::default());
    assert_eq!(
        *request,
        SubscribeNamespace {
            request_id,
            prefix,
            parameters
        }
    );
    pair.server(|session, view| session.request_ok(view, id, ok()));
    pair.run_events(Side::Client);
    (pair, id)
}

#[test]
fn namespaces_come_and_go() {
    each_seed(|seed| {
        let (mut pair, id) = subscribed(seed);
        pair.server(|session, view| {
            session.namespace(view, id, namespace("x"));
            session.namespace(view, id, namespace("y/z"));
            session.namespace_done(view, id, namespace("x"));
            session.namespace(view, id, namespace("x"));
        });
        assert_eq!(
            pair.run_events(Side::Client),
            [
                Event::Namespace {
                    id,
                    suffix: namespace("x")
                },
                Event::Namespace {
                    id,
                    suffix: namespace("y/z")
                },
                Event::NamespaceDone {
                    id,
                    suffix: namespace("x")
                },
                Event::Namespace {
                    id,
                    suffix: namespace("x")
                },
            ]
        );
    });
}

#[test]
fn a_new_prefix_changes_what_a_suffix_means() {
    each_seed(|seed| {
        let (mut pair, id) = subscribed(seed);
        pair.server(|session, view| session.namespace(view, id, namespace("b/c")));
        let parameters = Parameters {
            track_namespace_prefix: Some(namespace("a/b")),
            ..Parameters::default()
        };
        pair.client(|session, view| session.update(view, id, parameters))
            .unwrap();
        pair.run();
        pair.server(|session, view| {
            session.update_ok(view, id, ok());
            session.namespace_done(view, id, namespace("c"));
        });
        let events = pair.run_events(Side::Client);
        assert_eq!(
            events[1..],
            [
                Event::Updated {
                    id,
                    result: Ok(ok())
                },
                Event::NamespaceDone {
                    id,
                    suffix: namespace("c")
                },
            ]
        );
        assert_eq!(pair.closed(Side::Client), None);
    });
}

#[test]
fn a_namespace_that_never_came_cannot_go() {
    let (mut pair, id) = subscribed(1);
    pair.server(|session, view| session.namespace_done(view, id, namespace("x")));
    pair.run();
    pair.assert_violated(Side::Client, SessionError::PROTOCOL_VIOLATION);
}

#[test]
fn a_suffix_too_long_for_its_prefix_is_a_violation() {
    let (mut pair, id) = subscribed(1);
    let long = ["f"; 32].join("/");
    pair.server(|session, view| session.namespace(view, id, namespace(&long)));
    pair.run();
    pair.assert_violated(Side::Client, SessionError::PROTOCOL_VIOLATION);
}

#[test]
fn the_end_of_the_publisher_is_one_event() {
    each_seed(|seed| {
        let (mut pair, id) = subscribed(seed);
        pair.server(|session, view| session.finish(view, id));
        let reason = CloseReason::Fin;
        assert_eq!(
            pair.run_events(Side::Client),
            [Event::Closed { id, reason }]
        );
        pair.assert_no_requests();
    });
}

#[test]
fn a_fin_ends_the_subscription_to_namespaces() {
    let (mut pair, _) = Pair::alone_ready(super::pair::config(Side::Server));
    let requests = [
        Message::SubscribeNamespace(SubscribeNamespace {
            request_id: 0,
            prefix: namespace("a"),
            parameters: Parameters::default(),
        }),
        Message::SubscribeTracks(SubscribeTracks {
            request_id: 2,
            prefix: namespace("a"),
            parameters: Parameters::default(),
        }),
    ];
    for request in requests {
        let stream = pair.peer_opens(Side::Server, Direction::Bi, &[request]);
        let id = match &pair.events(Side::Server)[..] {
            [Event::Request { id, .. }] => *id,
            other => panic!("{other:?}"),
        };
        pair.server(|session, view| session.request_ok(view, id, ok()));
        pair.peer_finishes(Side::Server, stream);
        let reason = CloseReason::Fin;
        assert_eq!(pair.events(Side::Server), [Event::Closed { id, reason }]);
        assert_eq!(pair.peer_reads(Side::Server, stream).1, Read::Fin);
        assert_eq!(pair.session(Side::Server).requests_len(), 0);
    }
}

#[test]
fn tracks_come_as_publications_or_as_blocked() {
    each_seed(|seed| {
        let mut pair = Pair::ready(seed);
        let id = pair
            .client(|session, view| {
                session.subscribe_tracks(view, namespace("a"), Parameters::default())
            })
            .unwrap();
        pair.run();
        let name = TrackName::new("t").unwrap();
        pair.server(|session, view| {
            session.request_ok(view, id, ok());
            session.publish_blocked(view, id, namespace("b"), name.clone());
        });
        let events = pair.run_events(Side::Client);
        let blocked = Event::PublishBlocked {
            id,
            suffix: namespace("b"),
            name,
        };
        assert_eq!(events[1..], [blocked]);
    });
}

#[test]
#[should_panic(expected = "not a message for this request")]
fn a_namespace_before_the_ok_is_misuse() {
    let mut pair = Pair::ready(1);
    let id = pair
        .client(|session, view| {
            session.subscribe_namespace(view, namespace("a"), Parameters::default())
        })
        .unwrap();
    pair.run();
    pair.server(|session, view| session.namespace(view, id, namespace("x")));
}

#[test]
fn what_is_for_a_subscription_does_not_fit_namespaces() {
    let (mut pair, _) = Pair::alone_ready(super::pair::config(Side::Client));
    pair.client(|session, view| {
        session.subscribe_namespace(view, namespace("a"), Parameters::default())
    })
    .unwrap();
    pair.run();
    let ok = Message::SubscribeOk(super::pair::subscribe_ok(1));
    pair.peer_sends(Side::Client, StreamId(0), &[ok]);
    pair.assert_violated(Side::Client, SessionError::PROTOCOL_VIOLATION);
}
