//! Subscribers that come late and fetch what they missed.

use weir_moqt::{
    error::RequestErrorCode, location::Location, message::FetchKind, parameter::Parameters,
    property::Properties,
};

use crate::{
    actor::Manner,
    fetching::{all_of, published, whole_group},
    stage::{Asked, Setting, Stage, forward, joining_draft, millis, payload, story},
};

/// The stories of `drafts/past.rs` tell what a fill does in place of a FETCH that joins.
fn joining() -> Setting {
    Setting {
        draft: joining_draft(),
        ..Setting::default()
    }
}

#[test]
fn late_joiners_start_at_a_whole_group_and_miss_nothing() {
    story(&joining(), |stage| {
        let publication = published(stage, 6);
        let mut stream = stage.open(publication, 6);
        for id in 0..2 {
            stage.object(publication, &mut stream, id, &payload(6, id, 500));
        }
        stage.step("group 6 is under way", millis(50));
        let late: Vec<_> = (0..5_u64)
            .map(|groups| {
                let client = stage.client();
                let request = stage.subscribe(client, "a--x");
                let kind = FetchKind::RelativeJoining {
                    request_id: request.id.0,
                    groups,
                };
                let relative = stage.fetch_with(client, kind, Parameters::default());
                let kind = FetchKind::AbsoluteJoining {
                    request_id: request.id.0,
                    start: Location::new(6 - groups, 0),
                    end: Location::MAX,
                };
                let absolute = stage.fetch_with(client, kind, Parameters::default());
                (groups, request, relative, absolute)
            })
            .collect();
        stage.step("five late joiners", millis(100));
        stage.object(publication, &mut stream, 2, &payload(6, 2, 500));
        stage.finish(publication, &stream);
        whole_group(stage, publication, 7);
        stage.step("the track goes on", millis(100));
        for (groups, request, relative, absolute) in late {
            for fetch in [relative, absolute] {
                assert_eq!(stage.expect_complete(fetch), Location::new(6, 1));
                let fetched = stage.fetched(fetch).places(500);
                let objects = stage.outcome(request).objects();
                let live = objects.iter().map(|(group, id, _)| (*group, *id));
                let mut all: Vec<_> = fetched.into_iter().chain(live).collect();
                // Streams of several groups arrive in any order.
                all.sort_unstable();
                assert_eq!(all, all_of(6 - groups..8), "each once, without a gap");
            }
        }
        assert_eq!(stage.fetched_from(publication.node), []);
    });
}

/// Streams have no order, but what has come before a fetch is evaluated counts for it [moqt-18 §10.12.2].
#[test]
fn an_update_that_comes_with_a_fetch_that_joins_counts_for_it() {
    story(&joining(), |stage| {
        published(stage, 2);
        let client = stage.client();
        let request = stage.subscribe_with(client, "a--x", forward(false));
        stage.step("a subscription is paused", millis(100));
        stage.update(request, forward(true));
        let kind = FetchKind::RelativeJoining {
            request_id: request.id.0,
            groups: 0,
        };
        let fetch = stage.fetch_with(client, kind, Parameters::default());
        stage.step("an update and a fetch in one packet", millis(100));
        assert_eq!(stage.expect_complete(fetch), Location::new(1, 2));
        assert_eq!(stage.fetched(fetch).places(500), all_of(1..2));
    });
}

#[test]
fn a_fetch_that_joins_waits_for_its_subscription() {
    story(&joining(), |stage| {
        let publisher = stage.client();
        stage.announce(publisher, "a");
        let client = stage.client();
        stage.wait(millis(50));
        let request = stage.subscribe(client, "a--x");
        let join = |stage: &mut Stage, request: Asked| {
            let kind = FetchKind::RelativeJoining {
                request_id: request.id.0,
                groups: 9,
            };
            stage.fetch_with(client, kind, Parameters::default())
        };
        let fetch = join(stage, request);
        let lost = stage.subscribe(client, "a--y");
        let lost_fetch = join(stage, lost);
        stage.step("nobody has answered", millis(100));
        assert_eq!(stage.actor(publisher).asked.len(), 2);
        stage.direct(publisher, |actor| {
            actor.archive.fill(0, 2, 3, 500);
            actor.archive.serving = crate::archive::Serving::Serve;
        });
        let [(id, _), (other, _)] = stage.actor(publisher).asked[..] else {
            panic!("two subscriptions");
        };
        stage.act(publisher, |session, connection| {
            let ok = weir_moqt::message::SubscribeOk {
                track_alias: 5,
                parameters: Parameters {
                    largest_object: Some(Location::new(2, 2)),
                    ..Parameters::default()
                },
                properties: Properties::EMPTY,
            };
            session.subscribe_ok(connection, id, ok);
            let error = weir_moqt::message::RequestError {
                code: RequestErrorCode::DOES_NOT_EXIST,
                retry_after: None,
                reason: String::new(),
                redirect: None,
            };
            session.request_error(connection, other, error);
        });
        stage.step("one is granted, one is not", millis(200));
        assert_eq!(stage.expect_complete(fetch), Location::new(2, 2));
        assert_eq!(stage.fetched(fetch).places(500), all_of(0..3));
        let code = RequestErrorCode::INVALID_JOINING_REQUEST_ID;
        assert_eq!(stage.refusal(lost_fetch), Some(code));
        assert_eq!(stage.gauges().fetches, 0);
    });
}

#[test]
fn joining_wants_a_live_subscription_and_objects() {
    story(&joining(), |stage| {
        let publication = published(stage, 2);
        stage.publish(publication.node, "a--empty");
        let client = stage.client();
        let asleep = stage.subscribe_with(client, "a--x", forward(false));
        let empty = stage.subscribe(client, "a--empty");
        stage.step("subscriptions", millis(100));
        let joining = |stage: &mut Stage, request_id, group| {
            let kind = FetchKind::AbsoluteJoining {
                request_id,
                start: Location::new(group, 0),
                end: Location::MAX,
            };
            stage.fetch_with(client, kind, Parameters::default())
        };
        let to_sleeper = joining(stage, asleep.id.0, 0);
        let to_empty = joining(stage, empty.id.0, 0);
        let to_nothing = joining(stage, 4000, 0);
        stage.step("are joined", millis(100));
        for fetch in [to_sleeper, to_empty] {
            assert_eq!(stage.refusal(fetch), Some(RequestErrorCode::INVALID_RANGE));
        }
        let code = RequestErrorCode::INVALID_JOINING_REQUEST_ID;
        assert_eq!(stage.refusal(to_nothing), Some(code));
        assert_eq!(stage.counters().refused_joining, 1);

        whole_group(stage, publication, 2);
        stage.update(asleep, forward(true));
        stage.wait(millis(50));
        let awake = joining(stage, asleep.id.0, 1);
        let beyond = joining(stage, asleep.id.0, 3);
        stage.step("it wakes", millis(100));
        assert_eq!(stage.expect_complete(awake), Location::new(2, 2));
        assert_eq!(stage.fetched(awake).places(500), all_of(1..3));
        assert_eq!(stage.refusal(beyond), Some(RequestErrorCode::INVALID_RANGE));
    });
}

#[test]
fn subscribers_that_come_late_share_one_subscription_upstream() {
    story(&Setting::default(), |stage| {
        let publisher = stage.client();
        stage.direct(publisher, |actor| actor.manner = Manner::Accept(9));
        stage.announce(publisher, "a");
        let clients = stage.clients(3);
        stage.wait(millis(50));
        let first = stage.subscribe(clients[0], "a--x");
        stage.step("the first subscriber", millis(100));
        let source = stage.source(publisher, 0, 9);
        whole_group(stage, source, 0);
        let late: Vec<_> = clients[1..]
            .iter()
            .map(|&client| {
                let request = stage.subscribe(client, "a--x");
                let kind = FetchKind::RelativeJoining {
                    request_id: request.id.0,
                    groups: 0,
                };
                (
                    request,
                    stage.fetch_with(client, kind, Parameters::default()),
                )
            })
            .collect();
        stage.step("two more", millis(100));
        whole_group(stage, source, 1);
        stage.step("and more objects", millis(100));
        assert_eq!(
            stage.actor(publisher).asked.len(),
            1,
            "one subscription upstream"
        );
        assert_eq!(stage.fetched_from(publisher), []);
        assert_eq!(stage.outcome(first).objects().len(), 6);
        for (request, fetch) in late {
            assert_eq!(stage.fetched(fetch).places(500), all_of([0]));
            assert_eq!(stage.outcome(request).objects().len(), 3);
        }
    });
}
