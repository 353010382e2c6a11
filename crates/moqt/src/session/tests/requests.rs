//! Requests of each kind from the first message to the last answer, and their updates.

use weir_transport::{Direction, StreamId};

use super::pair::{
    Pair, config, config_with, done, each_seed, fetch_ok, namespace, ok, request_error,
    subscribe_ok, track, update,
};
use crate::error::{RequestErrorCode, ResetCode, SessionError};
use crate::location::Location;
use crate::message::{
    Fetch, FetchKind, Message, Publish, PublishNamespace, Subscribe, SubscribeOk, TrackStatus,
};
use crate::parameter::{GroupOrder, Parameters};
use crate::property::Properties;
use crate::session::{Accepted, CloseReason, Event, Refused, Request, RequestId, Session, Side};

#[test]
fn a_subscription_from_subscribe_to_done() {
    each_seed(|seed| {
        let mut pair = Pair::ready(seed);
        let parameters = Parameters {
            subscriber_priority: Some(3),
            ..Parameters::default()
        };
        let id = pair
            .client(|session, view| session.subscribe(view, track("t"), parameters.clone()))
            .unwrap();
        assert_eq!(id, RequestId(0));
        let request = Request::Subscribe(Subscribe {
            request_id: 0,
            track: track("t"),
            parameters,
        });
        assert_eq!(
            pair.run_events(Side::Server),
            [Event::Request { id, request }]
        );

        pair.server(|session, view| session.subscribe_ok(view, id, subscribe_ok(7)));
        let accepted = Accepted::Subscribe(subscribe_ok(7));
        assert_eq!(
            pair.run_events(Side::Client),
            [Event::Accepted { id, ok: accepted }]
        );

        pair.server(|session, view| session.publish_done(view, id, done()));
        let events = pair.run_events(Side::Client);
        let reason = CloseReason::Fin;
        assert_eq!(
            events,
            [
                Event::Done { id, done: done() },
                Event::Closed { id, reason }
            ]
        );
        assert_eq!(pair.events(Side::Server), [], "the end came from here");
        pair.assert_no_requests();
    });
}

#[test]
fn a_subscription_from_publish_to_done() {
    each_seed(|seed| {
        let mut pair = Pair::ready(seed);
        let id = pair
            .server(|session, view| {
                let (none, properties) = (Parameters::default(), Properties::EMPTY);
                session.publish(view, track("t"), 4, none, properties)
            })
            .unwrap();
        assert_eq!(id, RequestId(1));
        let events = pair.run_events(Side::Client);
        let [
            Event::Request {
                request: Request::Publish(Publish { track_alias: 4, .. }),
                ..
            },
        ] = &events[..]
        else {
            panic!("{events:?}");
        };
        pair.client(|session, view| session.request_ok(view, id, ok()));
        let accepted = Event::Accepted {
            id,
            ok: Accepted::Ok(ok()),
        };
        assert_eq!(pair.run_events(Side::Server), [accepted]);

        // The subscriber updates what the publisher opened.
        pair.client(|session, view| session.update(view, id, Parameters::default()))
            .unwrap();
        let update = Event::Update {
            id,
            update_id: RequestId(0),
            parameters: Parameters::default(),
        };
        assert_eq!(pair.run_events(Side::Server), [update]);
        pair.server(|session, view| session.update_ok(view, id, ok()));
        assert_eq!(
            pair.run_events(Side::Client),
            [Event::Updated {
                id,
                result: Ok(ok())
            }]
        );

        pair.server(|session, view| session.publish_done(view, id, done()));
        assert_eq!(
            pair.run_events(Side::Client)[0],
            Event::Done { id, done: done() }
        );
        pair.assert_no_requests();
    });
}

#[test]
fn a_publication_may_end_before_it_is_answered() {
    each_seed(|seed| {
        for accept in [true, false] {
            let mut pair = Pair::ready(seed);
            let id = pair
                .server(|session, view| {
                    let (none, properties) = (Parameters::default(), Properties::EMPTY);
                    session.publish(view, track("t"), 4, none, properties)
                })
                .unwrap();
            pair.server(|session, view| session.publish_done(view, id, done()));
            let events = pair.run_events(Side::Client);
            assert!(matches!(
                events[..],
                [Event::Request { .. }, Event::Done { .. }]
            ));
            assert_eq!(
                pair.session(Side::Client).requests_len(),
                1,
                "it still wants its answer"
            );
            pair.client(|session, view| {
                if accept {
                    session.request_ok(view, id, ok());
                } else {
                    let error = request_error(RequestErrorCode::UNINTERESTED);
                    session.request_error(view, id, error);
                }
            });
            assert_eq!(pair.run_events(Side::Server), []);
            pair.assert_no_requests();
        }
    });
}

#[test]
fn a_publication_that_ends_before_it_is_answered_may_be_forgotten() {
    each_seed(|seed| {
        let mut pair = Pair::ready(seed);
        let id = pair
            .server(|session, view| {
                let (none, properties) = (Parameters::default(), Properties::EMPTY);
                session.publish(view, track("t"), 4, none, properties)
            })
            .unwrap();
        pair.server(|session, view| session.publish_done(view, id, done()));
        pair.run_events(Side::Client);
        pair.client(|session, view| session.forget(view, id));
        assert_eq!(pair.run_events(Side::Server), []);
        assert_eq!(pair.events(Side::Client), []);
        pair.assert_no_requests();
    });
}

#[test]
fn a_refused_request_is_over_on_both_sides() {
    each_seed(|seed| {
        let mut pair = Pair::ready(seed);
        let id = pair.client_subscribes();
        pair.run_events(Side::Server);
        let error = request_error(RequestErrorCode::DOES_NOT_EXIST);
        pair.server(|session, view| session.request_error(view, id, error.clone()));
        assert_eq!(
            pair.run_events(Side::Client),
            [Event::Rejected { id, error }]
        );
        assert_eq!(pair.events(Side::Server), []);
        pair.assert_no_requests();
        let update = pair.client(|session, view| session.update(view, id, Parameters::default()));
        assert_eq!(update, Err(Refused::Over));
    });
}

#[test]
fn a_track_status_is_one_question_and_one_answer() {
    each_seed(|seed| {
        let mut pair = Pair::ready(seed);
        let id = pair
            .client(|session, view| session.track_status(view, track("t"), Parameters::default()))
            .unwrap();
        let events = pair.run_events(Side::Server);
        let asked = |request: &Request| {
            matches!(request, Request::TrackStatus(TrackStatus { track: found, .. })
                if *found == track("t"))
        };
        assert!(matches!(&events[..], [Event::Request { request, .. }] if asked(request)));
        let mut answer = ok();
        answer.parameters.largest_object = Some(Location::new(4, 2));
        answer.properties = Properties::builder().int(0x22, 2).build();
        pair.server(|session, view| session.request_ok(view, id, answer.clone()));
        let events = pair.run_events(Side::Client);
        let reason = CloseReason::Fin;
        let accepted = Event::Accepted {
            id,
            ok: Accepted::Ok(answer),
        };
        assert_eq!(events, [accepted, Event::Closed { id, reason }]);
        pair.assert_no_requests();
    });
}

#[test]
fn what_a_role_has_forgotten_closes_untold() {
    let (mut pair, _) = Pair::alone_ready(config(Side::Client));
    let id = pair
        .client(|session, view| session.track_status(view, track("t"), Parameters::default()))
        .unwrap();
    pair.run();
    let stream = StreamId(0);
    pair.peer_sends(Side::Client, stream, &[Message::RequestOk(ok())]);
    assert_eq!(pair.events(Side::Client).len(), 1);
    pair.client(|session, view| session.forget(view, id));
    pair.peer_finishes(Side::Client, stream);
    assert_eq!(pair.events(Side::Client), []);
    assert_eq!(pair.session(Side::Client).requests_len(), 0);
}

#[test]
fn a_namespace_is_offered_and_withdrawn() {
    each_seed(|seed| {
        let mut pair = Pair::ready(seed);
        let id = pair
            .client(|session, view| {
                session.publish_namespace(view, namespace("a/b"), Parameters::default())
            })
            .unwrap();
        let events = pair.run_events(Side::Server);
        let [
            Event::Request {
                request: Request::PublishNamespace(offer),
                ..
            },
        ] = &events[..]
        else {
            panic!("{events:?}");
        };
        let parameters = Parameters::default();
        let expected = PublishNamespace {
            request_id: 0,
            namespace: namespace("a/b"),
            parameters,
        };
        assert_eq!(*offer, expected);
        pair.server(|session, view| session.request_ok(view, id, ok()));
        pair.run_events(Side::Client);
        pair.client(|session, view| session.cancel(view, id, ResetCode::CANCELLED));
        let events = pair.run_events(Side::Server);
        assert!(matches!(events[..], [Event::Closed { .. }]), "{events:?}");
        assert_eq!(pair.events(Side::Client), []);
        pair.assert_no_requests();
    });
}

#[test]
fn a_fetch_asks_accepts_and_finishes() {
    each_seed(|seed| {
        let mut pair = Pair::ready(seed);
        let kind = FetchKind::Standalone {
            track: track("t"),
            start: Location::new(1, 0),
            end: Location::new(2, u64::MAX),
        };
        let parameters = Parameters {
            group_order: Some(GroupOrder::Descending),
            ..Parameters::default()
        };
        let id = pair
            .client(|session, view| session.fetch(view, kind.clone(), parameters.clone()))
            .unwrap();
        let request = Request::Fetch(Fetch {
            request_id: 0,
            kind,
            parameters,
        });
        assert_eq!(
            pair.run_events(Side::Server),
            [Event::Request { id, request }]
        );
        let ok = fetch_ok(Location::new(2, 5));
        pair.server(|session, view| {
            session.fetch_ok(view, id, ok.clone());
            session.finish(view, id);
        });
        let accepted = Event::Accepted {
            id,
            ok: Accepted::Fetch(ok),
        };
        let reason = CloseReason::Fin;
        assert_eq!(
            pair.run_events(Side::Client),
            [accepted, Event::Closed { id, reason }]
        );
        pair.run();
        pair.assert_no_requests();
    });
}

#[test]
fn updates_are_answered_in_order() {
    each_seed(|seed| {
        let mut pair = Pair::ready(seed);
        let id = pair.client_subscribes();
        for priority in [1, 2] {
            let parameters = Parameters {
                subscriber_priority: Some(priority),
                ..Parameters::default()
            };
            pair.client(|session, view| session.update(view, id, parameters))
                .unwrap();
        }
        let events = pair.run_events(Side::Server);
        for (event, (update_id, priority)) in events[1..].iter().zip([(2, 1), (4, 2)]) {
            let parameters = Parameters {
                subscriber_priority: Some(priority),
                ..Parameters::default()
            };
            assert_eq!(
                *event,
                Event::Update {
                    id,
                    update_id: RequestId(update_id),
                    parameters
                }
            );
        }

        let error = request_error(RequestErrorCode::INVALID_RANGE);
        pair.server(|session, view| {
            session.subscribe_ok(view, id, subscribe_ok(7));
            session.update_ok(view, id, ok());
            session.update_error(view, id, error.clone());
            session.publish_done(view, id, done());
        });
        let events = pair.run_events(Side::Client);
        assert_eq!(
            events[1..4],
            [
                Event::Updated {
                    id,
                    result: Ok(ok())
                },
                Event::Updated {
                    id,
                    result: Err(error)
                },
                Event::Done { id, done: done() },
            ]
        );
    });
}

#[test]
fn a_refused_update_of_a_namespace_ends_it() {
    each_seed(|seed| {
        let mut pair = Pair::ready(seed);
        let id = pair
            .client(|session, view| {
                session.publish_namespace(view, namespace("a"), Parameters::default())
            })
            .unwrap();
        pair.run();
        pair.server(|session, view| session.request_ok(view, id, ok()));
        pair.run();
        pair.client(|session, view| session.update(view, id, Parameters::default()))
            .unwrap();
        pair.run_events(Side::Client);
        let error = request_error(RequestErrorCode::UNAUTHORIZED);
        pair.server(|session, view| session.update_error(view, id, error.clone()));
        let reason = CloseReason::Fin;
        let updated = Event::Updated {
            id,
            result: Err(error),
        };
        assert_eq!(
            pair.run_events(Side::Client),
            [updated, Event::Closed { id, reason }]
        );
        pair.assert_no_requests();
    });
}

#[test]
fn answers_to_what_is_over_are_no_misuse() {
    let mut pair = Pair::ready(1);
    let id = pair.client_subscribes();
    pair.client(|session, view| session.cancel(view, id, ResetCode::CANCELLED));
    pair.run();
    pair.server(|session, view| {
        session.subscribe_ok(view, id, subscribe_ok(1));
        session.request_ok(view, id, ok());
        session.request_error(view, id, request_error(RequestErrorCode::TIMEOUT));
        session.update_ok(view, id, ok());
        session.update_error(view, id, request_error(RequestErrorCode::TIMEOUT));
        session.publish_done(view, id, done());
        session.finish(view, id);
        session.cancel(view, id, ResetCode::CANCELLED);
        session.forget(view, id);
    });
    assert_eq!(pair.run_events(Side::Client), []);
}

#[test]
fn requests_wait_for_streams_in_order() {
    each_seed(|seed| {
        let mut pair = Pair::ready(seed);
        pair.link.limit_streams(Side::Client, Direction::Bi, 1);
        let ids: Vec<RequestId> = ["a", "b", "c"]
            .into_iter()
            .map(|name| {
                pair.client(|session, view| {
                    session.subscribe(view, track(name), Parameters::default())
                })
                .unwrap()
            })
            .collect();
        assert_eq!(pair.run_events(Side::Server).len(), 1);
        pair.client(|session, view| session.update(view, ids[1], Parameters::default()))
            .unwrap();
        pair.client(|session, view| session.cancel(view, ids[2], ResetCode::CANCELLED));
        pair.link.limit_streams(Side::Client, Direction::Bi, 9);
        let events = pair.run_events(Side::Server);
        assert!(
            matches!(&events[..], [
                Event::Request { id, .. },
                Event::Update { id: updated, update_id: RequestId(6), .. },
            ] if *id == ids[1] && *updated == ids[1]),
            "{events:?}"
        );
    });
}

#[test]
fn long_properties_are_shared_and_arrive() {
    let properties = Properties::builder().bytes(0x3ff1, vec![7; 20_000]).build();
    each_seed(|seed| {
        let mut pair = Pair::ready(seed);
        pair.link.limit_streams(Side::Client, Direction::Bi, 1);
        // The second one waits for a stream.
        let ids = [1, 2].map(|alias| {
            let name = track(&format!("t{alias}"));
            let properties = properties.clone();
            pair.client(|session, view| {
                session.publish(view, name, alias, Parameters::default(), properties)
            })
            .unwrap()
        });
        for id in ids {
            let events = pair.run_events(Side::Server);
            let mut published = events.iter().filter_map(|event| {
                if let Event::Request {
                    request: Request::Publish(publish),
                    ..
                } = event
                {
                    Some(&publish.properties)
                } else {
                    None
                }
            });
            let arrived = published.next().expect("one offer arrives");
            assert!(
                *arrived == properties,
                "its properties are not those that were sent"
            );
            pair.client(|session, view| session.cancel(view, id, ResetCode::CANCELLED));
            pair.link.limit_streams(Side::Client, Direction::Bi, 2);
        }
    });
    let session = Session::new(config(Side::Server));
    let message = Message::SubscribeOk(SubscribeOk {
        properties: properties.clone(),
        ..subscribe_ok(1)
    });
    let pieces = session.encode_shared(&message).unwrap();
    assert_eq!(pieces.concat(), session.encode(&message).unwrap());
    assert_eq!(pieces[1].as_ptr(), properties.as_bytes().as_ptr());
}

#[test]
fn an_offer_may_be_done_before_it_has_a_stream() {
    let mut pair = Pair::ready(5);
    pair.link.limit_streams(Side::Client, Direction::Bi, 0);
    let (none, properties) = (Parameters::default(), Properties::EMPTY);
    let id = pair
        .client(|session, view| session.publish(view, track("t"), 1, none, properties))
        .unwrap();
    pair.client(|session, view| session.publish_done(view, id, done()));
    pair.link.limit_streams(Side::Client, Direction::Bi, 1);
    let events = pair.run_events(Side::Server);
    assert!(matches!(
        events[..],
        [Event::Request { .. }, Event::Done { .. }]
    ));
    pair.server(|session, view| session.request_ok(view, id, ok()));
    pair.run();
    pair.assert_no_requests();
}

#[test]
fn an_update_that_crosses_with_the_end_still_counts_its_id() {
    let (mut pair, _) = Pair::alone_ready(config_with(Side::Server, |_| {}));
    let stream = pair.peer_opens(
        Side::Server,
        Direction::Bi,
        &[super::pair::subscribe(0, "t")],
    );
    let id = RequestId(0);
    pair.server(|session, view| {
        session.subscribe_ok(view, id, subscribe_ok(1));
        session.publish_done(view, id, done());
    });
    pair.events(Side::Server);
    pair.peer_sends(Side::Server, stream, &[update(2)]);
    assert_eq!(pair.events(Side::Server), []);
    pair.peer_sends(Side::Server, stream, &[update(2)]);
    pair.assert_violated(Side::Server, SessionError::INVALID_REQUEST_ID);
}
