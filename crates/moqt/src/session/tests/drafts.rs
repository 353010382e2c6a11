//! What drafts do differently, and roles see the same.

use bytes::BytesMut;
use weir_transport::{Direction, Transport as _};

use super::pair::{Pair, config, done, draft, ok, set_draft, subscribe_ok, track};
use crate::data::{FetchEncoder, FetchEntry, FetchHeader, FetchObject};
use crate::draft::Draft;
use crate::error::{PublishDoneCode, RequestErrorCode, ResetCode, SessionError};
use crate::limits::Limits;
use crate::location::Location;
use crate::message::{
    Fetch, FetchKind, FetchOk, Message, PublishStateNotify, RequestOk, RequestUpdate, Setup,
    Subscribe, SubscribeOk,
};
use crate::parameter::{
    Filter, GroupOrder, Parameters, RangeCondition, RangeFilter, RangeFilterKind,
};
use crate::property::Properties;
use crate::session::{Accepted, Event, Refused, Request, RequestId, Side, StreamEnd};

/// Runs a story in each draft.
pub(super) fn each_draft(story: impl Fn()) {
    for draft in Draft::ALL {
        set_draft(draft);
        story();
    }
}

/// Whether the session's draft has fills.
pub(super) fn has_fills() -> bool {
    !draft().has_joining_fetches()
}

/// Lets the client subscribe, and the server accept.
fn subscribed(pair: &mut Pair) -> RequestId {
    let id = pair.client_subscribes();
    pair.run_events(Side::Server);
    pair.server(|session, view| session.subscribe_ok(view, id, subscribe_ok(7)));
    pair.run_events(Side::Client);
    id
}

fn joining(subscription: RequestId) -> FetchKind {
    FetchKind::RelativeJoining {
        request_id: subscription.0,
        groups: 2,
    }
}

/// Returns the FETCH among the events.
pub(super) fn fetch_in(events: &[Event]) -> (RequestId, Fetch) {
    let fetch = events.iter().find_map(|event| {
        if let Event::Request {
            id,
            request: Request::Fetch(fetch),
        } = event
        {
            Some((*id, fetch.clone()))
        } else {
            None
        }
    });
    fetch.unwrap_or_else(|| panic!("a FETCH among {events:?}"))
}

/// Sends one object in answer to a FETCH.
fn serve(pair: &mut Pair, id: RequestId) {
    let ok = FetchOk {
        end_of_track: false,
        end: Location::new(3, 4),
        parameters: Parameters::none(),
        properties: Properties::EMPTY,
    };
    pair.server(|session, view| {
        session.fetch_ok(view, id, ok);
        let stream = view.open(Direction::Uni).expect("a stream");
        let mut data = BytesMut::new();
        FetchHeader { request_id: id.0 }.encode(draft(), &mut data);
        let entry = FetchEntry::Object(FetchObject {
            group: 3,
            subgroup: Some(0),
            object: 4,
            priority: 128,
            properties: Properties::EMPTY,
            payload_len: 0,
        });
        FetchEncoder::new(draft(), GroupOrder::Ascending).encode(&entry, &mut data);
        view.write(stream, &mut data.freeze()).expect("it fits");
        view.finish(stream);
        session.finish(view, id);
    });
}

#[test]
fn past_objects_of_a_subscription_are_fetched_the_same_in_all_drafts() {
    each_draft(|| {
        let mut pair = Pair::ready(1);
        let subscription = subscribed(&mut pair);
        let asked = pair.client(|session, view| {
            let parameters = Parameters {
                subscriber_priority: Some(200),
                ..Parameters::none()
            };
            session.fetch(view, joining(subscription), parameters)
        });
        let asked = asked.expect("there is room");
        let events = pair.run_events(Side::Server);
        let (id, fetch) = fetch_in(&events);
        assert_eq!((id, &fetch.kind), (asked, &joining(subscription)));
        assert_eq!(fetch.parameters.subscriber_priority, Some(200));
        let updates = events
            .iter()
            .filter(|event| matches!(event, Event::Update { .. }));
        assert_eq!(updates.count(), usize::from(has_fills()));

        serve(&mut pair, id);
        if has_fills() {
            pair.server(|session, view| {
                session.update_ok(view, subscription, RequestOk::default());
            });
        }
        let events = pair.run_events(Side::Client);
        let has = |wanted: &dyn Fn(&Event) -> bool| events.iter().any(wanted);
        assert!(has(
            &|event| matches!(event, Event::Fetched { request, .. } if *request == asked)
        ));
        assert!(has(&|event| matches!(event, Event::FetchObject { .. })));
        assert!(has(&|event| matches!(
            event,
            Event::StreamEnd {
                end: StreamEnd::Fin,
                ..
            }
        )));
        // Where a fill has no acceptance of its own, its stream may end before the answer to the update.
        let accepted = has(
            &|event| matches!(event, Event::Accepted { id, ok: Accepted::Fetch(_) } if *id == asked),
        );
        assert!(accepted || has_fills());
        assert!(!has(&|event| matches!(event, Event::Updated { .. })));

        // The subscription outlives the fetch, and counts its stream where the draft says so.
        pair.server(|session, view| session.publish_done(view, subscription, done()));
        let events = pair.run_events(Side::Client);
        let count = done()
            .stream_count
            .map(|count| count + u64::from(has_fills()));
        let is_done =
            |event: &Event| matches!(event, Event::Done { done, .. } if done.stream_count == count);
        assert!(events.iter().any(is_done), "{events:?}");
        pair.run();
        pair.assert_no_requests();
    });
}

#[test]
fn a_subscription_requests_its_past_at_once_where_the_draft_has_fills() {
    each_draft(|| {
        let largest = Some(Location::new(300, 200));
        for largest in [largest, None] {
            let mut pair = Pair::ready(1);
            let sent = pair.client(|session, view| {
                session.subscribe_with_past(view, track("t"), Parameters::none(), 2)
            });
            let (subscription, fetch) = sent.expect("there is room");
            assert_eq!(fetch.is_some(), has_fills());
            let events = pair.run_events(Side::Server);
            assert_eq!(events.len(), 1 + usize::from(has_fills()));
            let mut ok = subscribe_ok(7);
            ok.parameters.largest_object = largest;
            pair.server(|session, view| session.subscribe_ok(view, subscription, ok));
            if let Some(fetch) = fetch {
                let (id, asked) = fetch_in(&events);
                assert_eq!((id, asked.kind), (fetch, joining(subscription)));
                if largest.is_some() {
                    serve(&mut pair, id);
                } else {
                    let code = RequestErrorCode::INVALID_RANGE;
                    let error = crate::message::RequestError::new(code, "nothing is there");
                    pair.server(|session, view| session.request_error(view, id, error));
                }
            }
            let fetched = pair.run_events(Side::Client).into_iter().find_map(|event| {
                if let Event::Fetched { request, .. } = event {
                    Some(request)
                } else {
                    None
                }
            });
            assert_eq!(fetched, fetch.filter(|_| largest.is_some()));
            pair.server(|session, view| session.publish_done(view, subscription, done()));
            pair.run();
            pair.assert_no_requests();
        }
    });
}

#[test]
fn the_request_for_the_past_ends_with_a_refused_subscription() {
    each_draft(|| {
        let mut pair = Pair::ready(1);
        let sent = pair.client(|session, view| {
            session.subscribe_with_past(view, track("t"), Parameters::none(), 0)
        });
        let (subscription, _) = sent.expect("there is room");
        pair.run_events(Side::Server);
        let code = RequestErrorCode::DOES_NOT_EXIST;
        let error = crate::message::RequestError::new(code, "no");
        pair.server(|session, view| session.request_error(view, subscription, error));
        pair.run();
        assert_eq!(pair.session(Side::Client).requests_len(), 0);
    });
}

#[test]
fn a_refused_fill_resets_a_stream_unless_it_is_empty() {
    each_draft(|| {
        for code in [RequestErrorCode::INVALID_RANGE, RequestErrorCode::TIMEOUT] {
            let mut pair = Pair::ready(1);
            let subscription = subscribed(&mut pair);
            pair.client(|session, view| {
                session.fetch(view, joining(subscription), Parameters::none())
            })
            .expect("there is room");
            let (id, _) = fetch_in(&pair.run_events(Side::Server));
            let error = crate::message::RequestError::new(code, "no");
            pair.server(|session, view| session.request_error(view, id, error));
            let is_reset = |counters: u64| counters > 0;
            let events = pair.run_events(Side::Client);
            let rejected = events
                .iter()
                .any(|event| matches!(event, Event::Rejected { error, .. } if error.code == code));
            assert_eq!(rejected, !has_fills());
            let resets = pair.session(Side::Client).counters().streams_reset_early;
            let ends = events
                .iter()
                .filter(|event| matches!(event, Event::StreamEnd { .. }))
                .count() as u64;
            let expected = has_fills() && code != RequestErrorCode::INVALID_RANGE;
            assert_eq!(is_reset(resets + ends), expected, "{code}");
        }
    });
}

#[test]
fn a_fill_ends_with_its_subscription() {
    each_draft(|| {
        let mut pair = Pair::ready(1);
        let subscription = subscribed(&mut pair);
        pair.client(|session, view| session.fetch(view, joining(subscription), Parameters::none()))
            .expect("there is room");
        let (id, _) = fetch_in(&pair.run_events(Side::Server));
        pair.client(|session, view| session.cancel(view, subscription, ResetCode::CANCELLED));
        let events = pair.run_events(Side::Server);
        let closes = |wanted: RequestId| {
            let is_close =
                |event: &&Event| matches!(event, Event::Closed { id, .. } if *id == wanted);
            events.iter().filter(is_close).count()
        };
        assert_eq!(closes(subscription), 1);
        assert_eq!(closes(id), usize::from(has_fills()));
    });
}

#[test]
fn a_subscribe_with_a_fill_is_a_subscribe_and_a_joining_fetch() {
    for draft in Draft::ALL
        .into_iter()
        .filter(|draft| !draft.has_joining_fetches())
    {
        set_draft(draft);
        let cases = [
            (None, None, Some((Location::ZERO, Location::MAX))),
            (Some(Filter::LargestObject), None, None),
            (
                Some(Filter::AbsoluteStart(Location::new(300, 5))),
                None,
                Some((Location::new(300, 5), Location::MAX)),
            ),
            (
                Some(Filter::LargestObject),
                Some(Filter::AbsoluteRange {
                    start: Location::new(1, 0),
                    end: Location::new(128, 200),
                }),
                Some((Location::new(1, 0), Location::new(128, 200))),
            ),
        ];
        for (filter, of_fill, expected) in cases {
            for forward in [None, Some(false)] {
                let (mut pair, _) = Pair::alone_ready(config(Side::Server));
                let fill = Parameters {
                    filter: of_fill,
                    ..Parameters::none()
                };
                let parameters = Parameters {
                    filter,
                    forward,
                    group_order: Some(GroupOrder::Descending),
                    fill: Some(Box::new(fill)),
                    ..Parameters::none()
                };
                let subscribe = Message::Subscribe(Subscribe {
                    request_id: 0,
                    track: track("t"),
                    parameters,
                });
                pair.peer_opens(Side::Server, Direction::Bi, &[subscribe]);
                let events = pair.events(Side::Server);
                assert!(matches!(
                    events[0],
                    Event::Request {
                        id: RequestId(0),
                        request: Request::Subscribe(_)
                    }
                ));
                let expected = expected.filter(|_| forward.is_none());
                assert_eq!(events.len(), 1 + usize::from(expected.is_some()));
                if let Some((start, end)) = expected {
                    let (id, fetch) = fetch_in(&events);
                    assert_eq!(fetch.parameters.group_order, Some(GroupOrder::Descending));
                    let kind = FetchKind::AbsoluteJoining {
                        request_id: 0,
                        start,
                        end,
                    };
                    assert_eq!(fetch.kind, kind);
                    let mut header = BytesMut::new();
                    FetchHeader { request_id: id.0 }.encode(draft, &mut header);
                    assert_eq!(&header[..], [0x05, 0], "the ID of the SUBSCRIBE");
                }
            }
        }
    }
}

#[test]
fn a_subscriber_sets_the_terms_of_an_offer_as_it_accepts() {
    each_draft(|| {
        let wishes = [None, Some(true), Some(false)];
        for (offered, wanted) in wishes.map(|it| [(true, it), (false, it)]).concat() {
            let mut pair = Pair::ready(1);
            let forward = |forward| Parameters {
                forward,
                ..Parameters::none()
            };
            let id = pair
                .client(|session, view| {
                    let properties = Properties::EMPTY;
                    session.publish(view, track("t"), 7, forward(Some(offered)), properties)
                })
                .expect("there is room");
            pair.run_events(Side::Server);
            let accepted = RequestOk {
                parameters: forward(wanted),
                ..RequestOk::default()
            };
            pair.server(|session, view| session.request_ok(view, id, accepted));
            let mut forwards = offered;
            for event in pair.run_events(Side::Client) {
                if let Event::Accepted {
                    ok: Accepted::Ok(ok),
                    ..
                } = event
                {
                    forwards = ok.parameters.forward.unwrap_or(true);
                } else if let Event::Update { id, parameters, .. } = event {
                    forwards = parameters.forward.unwrap_or(forwards);
                    pair.client(|session, view| session.update_ok(view, id, ok()));
                } else {
                    panic!("{event:?}");
                }
            }
            // An acceptance that does not mention FORWARD has its default [moqt-18 §10.2.12].
            assert_eq!(forwards, wanted.unwrap_or(true), "offered {offered}");
            assert_eq!(
                pair.run_events(Side::Server),
                [],
                "the answer is not the role's"
            );
        }
    });
}

#[test]
fn updates_beyond_the_limit_end_the_request_or_the_session() {
    each_draft(|| {
        let (mut pair, _) = Pair::alone_ready(config(Side::Server));
        let updates_max = Limits::default().updates_max as u64;
        let subscribe = Message::Subscribe(Subscribe {
            request_id: 0,
            track: track("t"),
            parameters: Parameters::none(),
        });
        let stream = pair.peer_opens(Side::Server, Direction::Bi, &[subscribe]);
        for number in 1..=updates_max + 1 {
            let update = Message::RequestUpdate(RequestUpdate {
                request_id: number * 2,
                parameters: Parameters::none(),
            });
            pair.peer_sends(Side::Server, stream, &[update]);
        }
        let expected = draft()
            .setup_has_limits()
            .then_some(SessionError::TOO_MANY_REQUEST_UPDATES);
        assert_eq!(pair.closed(Side::Server), expected);
    });
}

#[test]
fn own_updates_keep_the_limit_in_the_peers_setup() {
    each_draft(|| {
        let mut pair = Pair::alone(config(Side::Client));
        let setup = Setup {
            max_request_updates: Some(1),
            ..Setup::default()
        };
        pair.peer_opens(Side::Client, Direction::Uni, &[Message::Setup(setup)]);
        let id = pair.client_subscribes();
        let mut update =
            || pair.client(|session, view| session.update(view, id, Parameters::none()));
        assert_eq!(update(), Ok(()));
        let second = update();
        assert_eq!(second.is_err(), draft().setup_has_limits());
        assert!(matches!(second, Ok(()) | Err(Refused::Limit)));
    });
}

#[test]
fn range_filters_that_are_not_accepted_fail_the_request() {
    for draft in Draft::ALL
        .into_iter()
        .filter(|draft| draft.setup_has_limits())
    {
        set_draft(draft);
        let filter = |ranges| {
            let condition = RangeCondition {
                set: 0,
                property: None,
                ranges,
            };
            RangeFilter::new(RangeFilterKind::ObjectId, &condition)
        };
        let two = filter(vec![(0, 127), (300, u64::MAX)]);
        for (ranges_max, filters, is_accepted) in [
            (0, vec![two.clone()], false),
            (1, vec![two.clone()], false),
            (2, vec![two.clone()], true),
            (8, vec![two.clone(), two], false),
        ] {
            let mut config = config(Side::Server);
            config.setup.max_filter_ranges = Some(ranges_max);
            let (mut pair, _) = Pair::alone_ready(config);
            let subscribe = Message::Subscribe(Subscribe {
                request_id: 0,
                track: track("t"),
                parameters: Parameters {
                    range_filters: filters,
                    ..Parameters::none()
                },
            });
            let stream = pair.peer_opens(Side::Server, Direction::Bi, &[subscribe]);
            assert_eq!(pair.events(Side::Server).len(), usize::from(is_accepted));
            if !is_accepted {
                let code = pair.peer_reads_error(Side::Server, stream);
                assert_eq!(code, RequestErrorCode::INVALID_FILTER);
            }
        }
    }
}

#[test]
fn an_update_with_range_filters_that_are_not_accepted_ends_the_subscription() {
    for draft in Draft::ALL
        .into_iter()
        .filter(|draft| draft.setup_has_limits())
    {
        set_draft(draft);
        let mut pair = Pair::ready(1);
        let id = subscribed(&mut pair);
        let condition = RangeCondition {
            set: 0,
            property: None,
            ranges: vec![(128, 300)],
        };
        let update = Parameters {
            range_filters: vec![RangeFilter::new(RangeFilterKind::Subgroup, &condition)],
            ..Parameters::none()
        };
        pair.client(|session, view| session.update(view, id, update))
            .expect("there is room");
        let events = pair.run_events(Side::Server);
        assert!(matches!(events[..], [Event::Closed { .. }]), "{events:?}");
        let events = pair.run_events(Side::Client);
        assert!(
            matches!(&events[..],
            [Event::Updated { result: Err(error), .. }, Event::Done { done, .. }, ..]
            if error.code == RequestErrorCode::INVALID_FILTER
                && done.code == PublishDoneCode::UPDATE_FAILED),
            "{events:?}"
        );
    }
}

#[test]
fn a_requester_may_want_no_track_properties() {
    for draft in Draft::ALL
        .into_iter()
        .filter(|draft| !draft.has_joining_fetches())
    {
        set_draft(draft);
        let mut pair = Pair::ready(1);
        let parameters = Parameters {
            include_properties: Some(false),
            ..Parameters::none()
        };
        let id = pair
            .client(|session, view| session.subscribe(view, track("t"), parameters))
            .expect("there is room");
        pair.run_events(Side::Server);
        let ok = SubscribeOk {
            properties: Properties::builder().int(0x0E, 200).build(),
            ..subscribe_ok(7)
        };
        pair.server(|session, view| session.subscribe_ok(view, id, ok));
        let expected = Event::Accepted {
            id,
            ok: Accepted::Subscribe(subscribe_ok(7)),
        };
        assert_eq!(pair.run_events(Side::Client), [expected]);
    }
}

#[test]
fn a_publisher_reports_what_changed() {
    each_draft(|| {
        let mut pair = Pair::ready(1);
        let id = subscribed(&mut pair);
        let parameters = Parameters {
            largest_object: Some(Location::new(128, 300)),
            ..Parameters::none()
        };
        let sent = parameters.clone();
        pair.server(|session, view| session.publish_state_notify(view, id, sent));
        let events = pair.run_events(Side::Client);
        if has_fills() {
            assert_eq!(events, [Event::StateChanged { id, parameters }]);
        } else {
            assert_eq!(events, []);
        }
    });
}

#[test]
fn only_a_publisher_reports_what_changed() {
    for draft in Draft::ALL
        .into_iter()
        .filter(|draft| !draft.has_joining_fetches())
    {
        set_draft(draft);
        let (mut pair, _) = Pair::alone_ready(config(Side::Server));
        let subscribe = Message::Subscribe(Subscribe {
            request_id: 0,
            track: track("t"),
            parameters: Parameters::none(),
        });
        let notify = Message::PublishStateNotify(PublishStateNotify::default());
        pair.peer_opens(Side::Server, Direction::Bi, &[subscribe, notify]);
        pair.assert_violated(Side::Server, SessionError::PROTOCOL_VIOLATION);
    }
}

#[test]
fn a_request_that_a_draft_does_not_have_is_refused_here() {
    each_draft(|| {
        let mut pair = Pair::ready(1);
        let kind = FetchKind::Recent {
            track: track("t"),
            groups: 200,
        };
        let sent =
            pair.client(|session, view| session.fetch(view, kind.clone(), Parameters::none()));
        if has_fills() {
            let (_, fetch) = fetch_in(&pair.run_events(Side::Server));
            assert_eq!(fetch.kind, kind);
        } else {
            assert_eq!(sent, Err(Refused::NotInDraft));
        }
        let parameters = Parameters {
            filter: Some(Filter::Recent { groups: 200 }),
            ..Parameters::none()
        };
        let sent = pair.client(|session, view| session.subscribe(view, track("u"), parameters));
        assert_eq!(sent.is_ok(), has_fills());
        assert!(matches!(sent, Ok(_) | Err(Refused::NotInDraft)));
    });
}
