//! FETCH of objects that the cache does not have: one request to the publisher for all fetches that wait.

use proptest::{collection::vec, prelude::*};
use weir_moqt::{
    error::{RequestErrorCode, ResetCode},
    location::Location,
    message::FetchKind,
    parameter::{GroupOrder, Parameters},
    property::Properties,
    session::StreamEnd,
};
use weir_sim::NodeId;

use crate::{
    archive::{ALL, Serving, standalone},
    fetching::all_of,
    stage::{Asked, Setting, Stage, has_fills, millis, payload, plain, secs, story},
};

/// A client that announced `a`, and has groups `first..=last` of 3 objects of every track in it.
fn archivist(stage: &mut Stage, first: u64, last: u64) -> NodeId {
    let node = stage.client();
    stage.direct(node, |actor| {
        actor.archive.fill(first, last, 3, 500);
        actor.archive.serving = Serving::Serve;
    });
    stage.announce(node, "a");
    stage.step("an archive", millis(50));
    node
}

fn serving(stage: &mut Stage, node: NodeId, serving: Serving) {
    stage.direct(node, |actor| actor.archive.serving = serving);
}

fn fill_timeout(timeout: std::time::Duration) -> Parameters {
    Parameters {
        fill_timeout: Some(timeout),
        ..Parameters::default()
    }
}

#[test]
fn what_one_fetched_the_next_gets_from_the_cache() {
    story(&Setting::default(), |stage| {
        let archive = archivist(stage, 3, 9);
        let properties = Properties::builder().int(0x0e, 7).build();
        stage.direct(archive, |actor| {
            actor.archive.properties = properties.clone();
            actor.archive.serving = Serving::ServeWhole;
        });
        for round in 0..2 {
            let client = stage.client();
            let fetch = stage.fetch(client, "a--x", (2, 0), (20, ALL));
            stage.step("a fetch of everything", millis(300));
            assert_eq!(stage.expect_complete(fetch), Location::new(9, 2));
            assert_eq!(stage.fetched(fetch).places(500), all_of(3..10));
            let ok = stage.fetched(fetch).ok.clone().unwrap();
            assert!(ok.end_of_track, "round {round}");
            assert_eq!(ok.properties, properties);
            let kind = standalone("a--x", (4, 1), (8, 1));
            let order = Parameters {
                group_order: Some(GroupOrder::Descending),
                ..Parameters::default()
            };
            let part = stage.fetch_with(client, kind, order);
            stage.step("and of a part", millis(300));
            assert_eq!(stage.expect_complete(part), Location::new(8, 1));
            assert_eq!(stage.fetched(part).places(500).len(), 13);
        }
        let asked = [(Location::new(2, 0), Location::new(20, ALL))];
        assert_eq!(stage.fetched_from(archive), asked, "asked once");
        let gauges = stage.gauges();
        assert_eq!((gauges.tracks, gauges.tracks_resting), (0, 1));
        stage.step("and forgotten in the end", secs(70));
        assert_eq!(stage.gauges().tracks_resting, 0);
        assert_eq!(stage.gauges().cache_bytes, 0);
    });
}

#[test]
fn only_what_is_missing_is_asked_for() {
    for order in [GroupOrder::Ascending, GroupOrder::Descending] {
        story(&Setting::default(), |stage| {
            let archive = archivist(stage, 0, 9);
            let client = stage.client();
            let parameters = Parameters {
                group_order: Some(order),
                ..Parameters::default()
            };
            for (start, end) in [((2, 0), (3, ALL)), ((5, 1), (5, 1))] {
                stage.fetch_with(client, standalone("a--x", start, end), parameters.clone());
                stage.step("a part", millis(200));
            }
            let kind = standalone("a--x", (1, 0), (6, ALL));
            let fetch = stage.fetch_with(client, kind, parameters);
            stage.step("all of it", millis(200));
            assert_eq!(stage.expect_complete(fetch), Location::new(6, ALL));
            let mut groups: Vec<u64> = (1..7).collect();
            if order == GroupOrder::Descending {
                groups.reverse();
            }
            assert_eq!(stage.fetched(fetch).places(500), all_of(groups));
            let mut asked = stage.fetched_from(archive).split_off(2);
            asked.sort_unstable();
            let at = Location::new;
            let expected = if order == GroupOrder::Ascending {
                vec![
                    (at(1, 0), at(1, ALL)),
                    (at(4, 0), at(5, 0)),
                    (at(5, 2), at(6, ALL)),
                ]
            } else {
                vec![
                    (at(1, 0), at(1, ALL)),
                    (at(4, 0), at(4, ALL)),
                    (at(5, 0), at(5, 0)),
                    (at(5, 2), at(5, ALL)),
                    (at(6, 0), at(6, ALL)),
                ]
            };
            assert_eq!(asked, expected);
        });
    }
}

#[test]
fn several_who_want_the_same_wait_for_one_answer() {
    story(&Setting::default(), |stage| {
        let archive = archivist(stage, 0, 4);
        let clients = stage.clients(5);
        let fetches: Vec<Asked> = clients
            .iter()
            .map(|&client| stage.fetch(client, "a--x", (0, 0), (4, 2)))
            .collect();
        stage.step("five fetches", millis(300));
        for fetch in fetches {
            stage.expect_complete(fetch);
            assert_eq!(stage.fetched(fetch).places(500), all_of(0..5));
        }
        assert_eq!(stage.fetched_from(archive).len(), 1);
        assert_eq!(stage.counters().fetches_upstream, 1);
    });
}

#[test]
fn a_subscription_and_the_past_before_it_come_from_two_places() {
    story(&Setting::default(), |stage| {
        let publisher = stage.client();
        stage.direct(publisher, |actor| {
            actor.archive.fill(0, 5, 3, 500);
            actor.archive.serving = Serving::Serve;
        });
        let largest = Parameters {
            largest_object: Some(Location::new(5, 2)),
            ..Parameters::default()
        };
        let publication = stage.publish_with(publisher, "a--x", largest, Properties::EMPTY);
        let client = stage.client();
        stage.wait(millis(50));
        let request = stage.subscribe(client, "a--x");
        let kind = FetchKind::RelativeJoining {
            request_id: request.id.0,
            groups: 2,
        };
        let fetch = stage.fetch_with(client, kind, Parameters::default());
        stage.step(
            "a subscriber of a track that the relay has not seen",
            millis(200),
        );
        stage.group(publication, 6, 3, 500);
        stage.step("goes on", millis(100));
        assert_eq!(stage.expect_complete(fetch), Location::new(5, 2));
        assert_eq!(stage.fetched(fetch).places(500), all_of(3..6));
        stage.expect_objects(request, &[6], 3, 500);
    });
}

#[test]
fn what_a_publisher_refuses_is_refused() {
    let codes = [
        (
            RequestErrorCode::DOES_NOT_EXIST,
            RequestErrorCode::DOES_NOT_EXIST,
        ),
        (
            RequestErrorCode::UNAUTHORIZED,
            RequestErrorCode::UNAUTHORIZED,
        ),
        (
            RequestErrorCode::NOT_SUPPORTED,
            RequestErrorCode::NOT_SUPPORTED,
        ),
    ];
    story(&Setting::default(), |stage| {
        for (code, expected) in codes {
            let archive = archivist(stage, 0, 1);
            serving(stage, archive, Serving::Decline(code));
            let client = stage.client();
            let fetch = stage.fetch(client, "a--x", (0, 0), (1, 0));
            stage.step("a fetch", millis(200));
            assert_eq!(stage.refusal(fetch), Some(expected));
            stage.sim.shutdown(archive);
            stage.wait(millis(100));
        }
        let client = stage.client();
        let fetch = stage.fetch(client, "b--x", (0, 0), (1, 0));
        stage.step("a fetch of what nobody has", millis(200));
        assert_eq!(stage.refusal(fetch), Some(RequestErrorCode::DOES_NOT_EXIST));
        let archive = archivist(stage, 0, 1);
        let fetch = stage.fetch(client, "a--x", (2, 0), (3, 0));
        stage.step("a fetch of what is not there yet", millis(200));
        assert_eq!(stage.refusal(fetch), Some(RequestErrorCode::INVALID_RANGE));
        let own = stage.fetch(archive, "a--x", (0, 0), (1, 0));
        stage.step("nobody is asked for what it wants itself", millis(200));
        assert_eq!(stage.refusal(own), Some(RequestErrorCode::DOES_NOT_EXIST));
        assert_eq!(stage.gauges().tracks, 0);
    });
}

#[test]
fn another_publisher_is_asked_when_one_declines() {
    story(&Setting::default(), |stage| {
        let first = archivist(stage, 0, 1);
        serving(
            stage,
            first,
            Serving::Decline(RequestErrorCode::NOT_SUPPORTED),
        );
        let second = archivist(stage, 0, 1);
        let client = stage.client();
        for track in ["a--x", "a--y"] {
            let fetch = stage.fetch(client, track, (0, 0), (1, 2));
            stage.step("a fetch", millis(300));
            stage.expect_complete(fetch);
            assert_eq!(stage.fetched(fetch).places(500), all_of(0..2));
        }
        assert_eq!(stage.fetched_from(first).len(), 1, "it is not asked again");
        assert_eq!(stage.fetched_from(second).len(), 2);
    });
}

#[test]
fn what_stays_unknown_is_marked() {
    story(&Setting::default(), |stage| {
        let archive = archivist(stage, 0, 9);
        let client = stage.client();
        for (start, end) in [((2, 0), (2, ALL)), ((4, 1), (4, 1))] {
            stage.fetch(client, "a--x", start, end);
        }
        stage.step("two parts", millis(200));
        let at = Location::new;
        let expected = [(true, at(1, ALL)), (false, at(2, ALL)), (true, at(4, 0))];
        for case in 0..3 {
            let parameters = match case {
                0 => fill_timeout(millis(0)),
                1 => {
                    serving(stage, archive, Serving::Ignore);
                    fill_timeout(millis(300))
                }
                _ => {
                    let code = RequestErrorCode::INTERNAL_ERROR;
                    serving(stage, archive, Serving::Decline(code));
                    Parameters::default()
                }
            };
            let asked = stage.fetched_from(archive).len();
            let kind = standalone("a--x", (1, 0), (4, 1));
            let fetch = stage.fetch_with(client, kind, parameters);
            stage.step("a fetch of more", millis(250));
            assert_eq!(stage.fetched(fetch).end.is_none(), case == 1);
            stage.step("and it is over", millis(200));
            assert_eq!(stage.expect_complete(fetch), at(4, 1));
            let expected_objects = [(2, 0), (2, 1), (2, 2), (4, 1)];
            assert_eq!(stage.fetched(fetch).places(500), expected_objects);
            assert_eq!(stage.fetched(fetch).ranges(), expected);
            assert_eq!(stage.fetched_from(archive).len() > asked, case > 0);
            assert_eq!(stage.gauges().fetches_upstream, 0);
        }
        let nothing = stage.fetch_with(
            client,
            standalone("a--y", (0, 0), (1, 0)),
            fill_timeout(millis(0)),
        );
        stage.step("nothing at all is at hand", millis(200));
        assert_eq!(stage.refusal(nothing), Some(RequestErrorCode::TIMEOUT));
    });
}

#[test]
fn who_gives_up_is_not_answered_upstream_either() {
    story(&Setting::default(), |stage| {
        let archive = archivist(stage, 0, 9);
        serving(stage, archive, Serving::Stall(600));
        let clients = stage.clients(2);
        let fetches = clients
            .iter()
            .map(|&client| stage.fetch(client, "a--x", (0, 0), (9, 2)))
            .collect::<Vec<_>>();
        stage.step("two fetches, one answer, which stalls", millis(300));
        assert_eq!(stage.gauges().fetches_upstream, 1);
        assert_eq!(stage.fetched(fetches[0]).objects().len(), 1);
        stage.cancel(fetches[0]);
        stage.step("one gives up", millis(200));
        assert_eq!(stage.gauges().fetches_upstream, 1);
        stage.sim.shutdown(clients[1]);
        stage.step("the other leaves", millis(200));
        assert_eq!(
            (stage.gauges().fetches, stage.gauges().fetches_upstream),
            (0, 0)
        );
        let (id, _) = stage.actor(archive).archive.asked[0];
        let exchange = &stage.actor(archive).exchanges[&id];
        assert!(exchange.closed.is_some(), "the publisher hears of it");
        let stream = exchange.fetched.stream.expect("it was opened");
        let code = ResetCode::CANCELLED.0;
        assert!(stage.actor(archive).stopped.contains(&(stream, code)));
        assert_eq!(stage.gauges().tracks, 0);
    });
}

#[test]
fn a_publisher_that_vanishes_leaves_the_rest_unknown() {
    story(&Setting::default(), |stage| {
        let archive = archivist(stage, 0, 9);
        serving(stage, archive, Serving::Stall(600));
        let client = stage.client();
        let fetch = stage.fetch(client, "a--x", (0, 0), (9, 2));
        stage.step("an answer that stalls", millis(300));
        stage.sim.shutdown(archive);
        stage.step("its publisher leaves", millis(300));
        stage.expect_complete(fetch);
        assert_eq!(stage.fetched(fetch).places(500), [(0, 0)]);
        assert_eq!(stage.fetched(fetch).ranges(), [(true, Location::new(9, 2))]);
    });
}

#[test]
fn an_answer_against_the_order_is_not_passed_on() {
    story(&Setting::default(), |stage| {
        let archive = archivist(stage, 0, 3);
        serving(stage, archive, Serving::Reverse);
        let client = stage.client();
        let fetch = stage.fetch(client, "a--x", (0, 0), (3, 2));
        stage.step("a publisher that answers backwards", millis(300));
        assert_eq!(stage.counters().fetches_malformed, 1);
        assert!(stage.fetched(fetch).objects().len() <= 1);
        assert_eq!(stage.gauges().fetches_upstream, 0);
        assert_ne!(
            stage.fetched(fetch).end,
            Some(StreamEnd::Reset(ResetCode::CANCELLED))
        );
    });
}

#[test]
fn a_grant_of_nothing_is_no_range() {
    story(&Setting::default(), |stage| {
        let archive = archivist(stage, 0, 3);
        serving(stage, archive, Serving::GrantNothing);
        let client = stage.client();
        for parameters in [Parameters::default(), fill_timeout(secs(1))] {
            let kind = standalone("a--x", (1, 2), (3, 2));
            let fetch = stage.fetch_with(client, kind, parameters);
            stage.step("a publisher that grants less than nothing", millis(300));
            // Ends are inclusive from draft-20 on, so no end means nothing: the publisher loses its session.
            let code = if has_fills(stage.draft) {
                RequestErrorCode::DOES_NOT_EXIST
            } else {
                RequestErrorCode::INVALID_RANGE
            };
            assert_eq!(stage.refusal(fetch), Some(code));
            assert_eq!(stage.gauges().fetches_upstream, 0);
        }
    });
}

#[test]
fn an_answer_is_not_read_faster_than_it_is_taken() {
    let mut setting = Setting::default();
    setting.client.stream_receive_bytes_max = 16_384;
    setting.client.receive_bytes_max = 65_536;
    setting.quic.stream_receive_bytes_max = 100_000;
    setting.quic.send_bytes_max = 100_000;
    setting.relay.cache_track_bytes_max = 300_000;
    setting.relay.cache_bytes_max = 300_000;
    story(&setting, |stage| {
        let archive = archivist(stage, 0, 0);
        stage.direct(archive, |actor| actor.archive.fill(0, 99, 10, 2000));
        let client = stage.client();
        let fetch = stage.fetch(client, "a--x", (0, 0), (99, 9));
        let mut most = 0;
        for _ in 0..60 {
            stage.wait(millis(100));
            most = most.max(stage.gauges().cache_bytes);
        }
        stage.step("two megabytes through a small window", secs(10));
        stage.expect_complete(fetch);
        let places = stage.fetched(fetch).places(2000);
        let expected: Vec<_> = (0..100)
            .flat_map(|group| (0..10).map(move |id| (group, id)))
            .collect();
        assert_eq!(places, expected);
        assert_eq!(stage.fetched(fetch).ranges(), []);
        assert!(most <= 300_000);
        assert_eq!(stage.fetched_from(archive).len(), 1);
    });
}

#[test]
fn what_follows_an_object_that_is_dropped_is_awaited() {
    let mut setting = Setting::default();
    setting.relay.cache_object_bytes_max = 2000;
    for order in [GroupOrder::Ascending, GroupOrder::Descending] {
        // Early in the answer, before the relay knows its end, and late.
        for dropped in [1, 11] {
            story(&setting, |stage| {
                let archive = archivist(stage, 0, 20);
                let group = match order {
                    GroupOrder::Ascending => dropped,
                    GroupOrder::Descending => 19 - dropped,
                };
                let large = Location::new(group, 1);
                stage.direct(archive, |actor| {
                    actor.archive.objects.insert(large, vec![7; 2001]);
                });
                let client = stage.client();
                let parameters = Parameters {
                    group_order: Some(order),
                    ..Parameters::default()
                };
                stage.fetch(client, "a--x", (20, 0), (20, 0));
                stage.step("the relay knows the track", millis(200));
                let kind = standalone("a--x", (0, 0), (19, 2));
                let fetch = stage.fetch_with(client, kind, parameters);
                stage.step("an answer with an object that is too large", millis(500));
                assert_eq!(stage.counters().fetched_objects_dropped, 1);
                assert_eq!(stage.expect_complete(fetch), Location::new(19, 2));
                let mut groups: Vec<u64> = (0..20).collect();
                if order == GroupOrder::Descending {
                    groups.reverse();
                }
                let mut expected = all_of(groups);
                expected.retain(|&place| place != (group, 1));
                assert_eq!(stage.fetched(fetch).places(500), expected);
                assert_eq!(stage.fetched(fetch).ranges(), [(true, large)]);
                assert_eq!(stage.fetched_from(archive).len(), 2);
            });
        }
    }
}

#[test]
fn a_publisher_that_never_ends_its_answers_is_still_asked() {
    let mut setting = Setting::default();
    setting.session.requests_local_max = 1;
    story(&setting, |stage| {
        let archive = archivist(stage, 3, 9);
        serving(stage, archive, Serving::ServeAndStay);
        let client = stage.client();
        for track in ["a--x", "a--y", "a--z"] {
            let fetch = stage.fetch(client, track, (3, 0), (9, ALL));
            stage.step("a fetch of everything", millis(300));
            assert_eq!(stage.expect_complete(fetch), Location::new(9, 2));
        }
    });
}

#[test]
fn fetches_upstream_are_bounded() {
    let mut setting = Setting::default();
    setting.relay.fetches_upstream_per_session_max = 2;
    story(&setting, |stage| {
        let archive = archivist(stage, 0, 1);
        serving(stage, archive, Serving::Stall(10));
        let client = stage.client();
        let fetches = ["a--x", "a--y", "a--z"].map(|track| {
            let fetch = stage.fetch(client, track, (0, 0), (1, 2));
            stage.wait(millis(100));
            fetch
        });
        stage.step("two at the limit, one past it", millis(200));
        assert_eq!(stage.gauges().fetches_upstream, 2);
        assert_eq!(stage.counters().fetches_upstream_refused, 1);
        let code = RequestErrorCode::DOES_NOT_EXIST;
        assert_eq!(stage.refusal(fetches[2]), Some(code));
        assert_eq!(stage.refusal(fetches[1]), None);
    });
}

/// A group and an object.
type Place = (u64, u64);

/// Fetches any range of a track of which the relay has some objects and the publisher has all.
fn any_range(ranges: &[(Place, Place, bool)], live: &[Place]) {
    let mut setting = Setting::default();
    setting.link.delay = weir_link::Delay::fixed(millis(1)).expect("short");
    let mut stage = Stage::new(crate::stage::seed(), setting);
    let publisher = stage.client();
    let publication = stage.publish(publisher, "a--x");
    let client = stage.client();
    stage.subscribe(client, "a--x");
    stage.wait(millis(20));
    stage.direct(publisher, |actor| {
        actor.archive.fill(0, 4, 3, 40);
        actor.archive.serving = Serving::Serve;
    });
    for &(group, first) in live {
        let mut stream = stage.open_with(publication, plain(group));
        for id in first..3 {
            stage.object(publication, &mut stream, id, &payload(group, id, 40));
        }
        stage.finish(publication, &stream);
        stage.wait(millis(5));
    }
    let mut last = stage.open(publication, 4);
    stage.object(publication, &mut last, 2, &payload(4, 2, 40));
    stage.wait(millis(20));
    for &(one, other, is_descending) in ranges {
        let (start, end) = (one.min(other), one.max(other));
        let order = if is_descending {
            GroupOrder::Descending
        } else {
            GroupOrder::Ascending
        };
        let parameters = Parameters {
            group_order: Some(order),
            ..Parameters::default()
        };
        let fetch = stage.fetch_with(client, standalone("a--x", start, end), parameters);
        stage.wait(millis(100));
        let mut expected: Vec<_> = all_of(0..5)
            .into_iter()
            .filter(|&place| start <= place && place <= end)
            .collect();
        if is_descending {
            expected.sort_by_key(|&(group, id)| (std::cmp::Reverse(group), id));
        }
        let largest = Location::new(4, 2);
        let reach = stage.expect_complete(fetch);
        assert_eq!(reach, largest.min(Location::new(end.0, end.1)));
        assert_eq!(stage.fetched(fetch).places(40), expected);
        assert_eq!(stage.fetched(fetch).ranges(), []);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 40,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_range_is_whole_wherever_it_comes_from(
        ranges in vec(
            ((0..5_u64, 0..3_u64), (0..5_u64, prop_oneof![0..3_u64, Just(ALL)]), any::<bool>()),
            1..6,
        ),
        live in proptest::collection::btree_map(0..4_u64, 0..3_u64, 0..4),
    ) {
        any_range(&ranges, &live.into_iter().collect::<Vec<_>>());
    }
}
