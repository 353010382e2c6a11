//! FETCH of objects that the relay forwarded: from the cache, without a request to publishers.

use bytes::Bytes;
use weir_moqt::{
    data::{FetchEntry, FetchObject, ObjectDatagram, ObjectHeader, ObjectStatus, SubgroupId},
    error::{RequestErrorCode, ResetCode},
    location::Location,
    parameter::{Filter, GroupOrder, Parameters},
    property::Properties,
    session::StreamEnd,
};
use weir_relay::Gauges;
use weir_transport::Transport as _;

use crate::{
    archive::{ALL, Serving, standalone},
    stage::{Asked, Setting, Stage, millis, object, payload, plain, secs, story},
};

/// Sets up a publisher, a subscriber of its track `a--x`, and groups `0..groups` of 3 objects, each with a known end.
pub(crate) fn published(stage: &mut Stage, groups: u64) -> Asked {
    let publisher = stage.client();
    let publication = stage.publish(publisher, "a--x");
    let listener = stage.client();
    stage.subscribe(listener, "a--x");
    stage.wait(millis(100));
    for group in 0..groups {
        whole_group(stage, publication, group);
    }
    stage.step("a track has a past", millis(100));
    publication
}

pub(crate) fn whole_group(stage: &mut Stage, publication: Asked, group: u64) {
    let header = weir_moqt::data::SubgroupHeader {
        end_of_group: true,
        ..plain(group)
    };
    let mut stream = stage.open_with(publication, header);
    for id in 0..3 {
        stage.object(publication, &mut stream, id, &payload(group, id, 500));
    }
    stage.finish(publication, &stream);
    stage.wait(millis(20));
}

fn descending() -> Parameters {
    Parameters {
        group_order: Some(GroupOrder::Descending),
        ..Parameters::default()
    }
}

pub(crate) fn all_of(groups: impl IntoIterator<Item = u64>) -> Vec<(u64, u64)> {
    let groups = groups.into_iter();
    groups
        .flat_map(|group| (0..3).map(move |id| (group, id)))
        .collect()
}

#[test]
fn a_range_comes_unaltered_once_and_in_the_order_of_its_groups() {
    story(&Setting::default(), |stage| {
        let publication = published(stage, 5);
        let client = stage.client();
        let up = stage.fetch(client, "a--x", (1, 1), (3, ALL));
        let down = stage.fetch_with(client, standalone("a--x", (1, 1), (3, 1)), descending());
        stage.step("two fetches", millis(200));
        assert_eq!(stage.expect_complete(up), Location::new(3, ALL));
        let expected = [
            (1, 1),
            (1, 2),
            (2, 0),
            (2, 1),
            (2, 2),
            (3, 0),
            (3, 1),
            (3, 2),
        ];
        assert_eq!(stage.fetched(up).places(500), expected);
        assert_eq!(stage.expect_complete(down), Location::new(3, 1));
        let expected = [(3, 0), (3, 1), (2, 0), (2, 1), (2, 2), (1, 1), (1, 2)];
        assert_eq!(stage.fetched(down).places(500), expected);
        for fetch in [up, down] {
            assert_eq!(stage.fetched(fetch).ranges(), []);
            assert!(!stage.fetched(fetch).ok.as_ref().unwrap().end_of_track);
        }
        assert_eq!(stage.fetched_from(publication.node), []);
        assert_eq!(
            (stage.gauges().fetches, stage.gauges().fetches_upstream),
            (0, 0)
        );
        assert_eq!(stage.counters().fetches_served, 2);
    });
}

#[test]
fn a_range_beyond_the_largest_object_ends_there() {
    story(&Setting::default(), |stage| {
        published(stage, 3);
        let client = stage.client();
        let open = stage.fetch(client, "a--x", (1, 0), (99, 7));
        let beyond = stage.fetch(client, "a--x", (2, 3), (99, 7));
        let backwards = stage.fetch(client, "a--x", (2, 3), (2, 2));
        stage.step("fetches", millis(200));
        assert_eq!(stage.expect_complete(open), Location::new(2, 2));
        assert_eq!(stage.fetched(open).places(500), all_of(1..3));
        for refused in [beyond, backwards] {
            assert_eq!(
                stage.refusal(refused),
                Some(RequestErrorCode::INVALID_RANGE)
            );
        }
        assert_eq!(stage.counters().refused_range, 2);
    });
}

#[test]
fn the_end_of_a_track_is_told() {
    story(&Setting::default(), |stage| {
        let publication = published(stage, 2);
        let mut stream = stage.open(publication, 2);
        let end = ObjectHeader {
            status: ObjectStatus::EndOfTrack,
            ..object(0, 0)
        };
        stage.object_with(publication, &mut stream, &end, b"");
        stage.finish(publication, &stream);
        stage.step("the track ends", millis(100));
        let client = stage.client();
        let all = stage.fetch(client, "a--x", (0, 0), (9, 0));
        let part = stage.fetch(client, "a--x", (0, 0), (1, ALL));
        stage.step("fetches", millis(200));
        assert_eq!(stage.expect_complete(all), Location::new(2, 0));
        assert!(stage.fetched(all).ok.as_ref().unwrap().end_of_track);
        assert_eq!(stage.fetched(all).places(500), all_of(0..2));
        stage.expect_complete(part);
        assert!(!stage.fetched(part).ok.as_ref().unwrap().end_of_track);
    });
}

#[test]
fn datagrams_subgroups_priorities_and_properties_are_kept() {
    story(&Setting::default(), |stage| {
        let publication = published(stage, 0);
        let properties = Properties::builder().int(0x3e8, 77).build();
        let datagram = |object, end_of_group| ObjectDatagram {
            track_alias: 0,
            group: 4,
            object,
            priority: Some(9),
            end_of_group,
            properties: properties.clone(),
            status: ObjectStatus::Normal,
            payload: Bytes::from_static(b"datagram"),
        };
        stage.datagram_with(publication, datagram(5, true));
        stage.datagram_with(publication, datagram(1, false));
        for (number, ids) in [(0, [0, 3]), (7, [2, 4])] {
            let header = weir_moqt::data::SubgroupHeader {
                subgroup: SubgroupId::Explicit(number),
                priority: Some(20),
                has_properties: true,
                ..plain(4)
            };
            let mut stream = stage.open_with(publication, header);
            for id in ids {
                let header = ObjectHeader {
                    properties: properties.clone(),
                    ..object(id, 6)
                };
                stage.object_with(publication, &mut stream, &header, b"stream");
            }
            stage.finish(publication, &stream);
        }
        stage.step("a group of many kinds", millis(200));
        let client = stage.client();
        let fetch = stage.fetch(client, "a--x", (4, 0), (4, ALL));
        stage.step("is fetched", millis(200));
        stage.expect_complete(fetch);
        let found: Vec<_> = stage.fetched(fetch).entries.clone();
        let expected: Vec<_> = [Some(0), None, Some(7), Some(0), Some(7), None]
            .into_iter()
            .zip(0..)
            .map(|(subgroup, id)| {
                let is_datagram = subgroup.is_none();
                let payload: &[u8] = if is_datagram { b"datagram" } else { b"stream" };
                let object = FetchObject {
                    group: 4,
                    subgroup,
                    object: id,
                    priority: if is_datagram { 9 } else { 20 },
                    properties: properties.clone(),
                    payload_len: payload.len() as u64,
                };
                (FetchEntry::Object(object), payload.to_vec())
            })
            .collect();
        assert_eq!(found, expected);
    });
}

#[test]
fn gaps_that_the_publisher_tells_of_are_no_reason_to_ask() {
    story(&Setting::default(), |stage| {
        let publication = published(stage, 1);
        // Groups 1 to 3 do not exist, nor objects 0 and 1 of group 4.
        let properties = Properties::builder().int(0x3c, 3).int(0x3e, 2).build();
        let header = weir_moqt::data::SubgroupHeader {
            has_properties: true,
            ..plain(4)
        };
        let mut stream = stage.open_with(publication, header);
        let first = ObjectHeader {
            properties,
            ..object(2, 500)
        };
        stage.object_with(publication, &mut stream, &first, &payload(4, 2, 500));
        let end = ObjectHeader {
            status: ObjectStatus::EndOfGroup,
            ..object(3, 0)
        };
        stage.object_with(publication, &mut stream, &end, b"");
        stage.finish(publication, &stream);
        whole_group(stage, publication, 5);
        stage.step("a gap", millis(100));
        let client = stage.client();
        for parameters in [Parameters::default(), descending()] {
            let is_down = parameters.group_order.is_some();
            let fetch = stage.fetch_with(client, standalone("a--x", (0, 0), (5, ALL)), parameters);
            stage.step("is fetched", millis(200));
            stage.expect_complete(fetch);
            let mut groups = [all_of([0]), vec![(4, 2)], all_of([5])];
            if is_down {
                groups.reverse();
            }
            assert_eq!(stage.fetched(fetch).places(500), groups.concat());
            assert_eq!(stage.fetched(fetch).ranges(), []);
        }
        assert_eq!(stage.fetched_from(publication.node), []);
    });
}

#[test]
fn an_object_that_is_still_coming_is_waited_for() {
    story(&Setting::default(), |stage| {
        let publication = published(stage, 1);
        let mut stream = stage.open(publication, 1);
        let whole = payload(1, 0, 500);
        stage.object_with(publication, &mut stream, &object(0, 500), &whole[..100]);
        stage.step("in the middle of an object", millis(50));
        let client = stage.client();
        let fetch = stage.fetch(client, "a--x", (0, 0), (1, 0));
        stage.step("a fetch", millis(100));
        assert_eq!(stage.fetched(fetch).objects().len(), 3);
        assert_eq!(stage.fetched(fetch).end, None);
        let rest = Bytes::copy_from_slice(&whole[100..]);
        stage.write(publication, stream.stream, rest, true);
        stage.step("the rest", millis(100));
        stage.expect_complete(fetch);
        let expected: Vec<_> = all_of([0]).into_iter().chain([(1, 0)]).collect();
        assert_eq!(stage.fetched(fetch).places(500), expected);
        assert_eq!(stage.fetched_from(publication.node), []);
    });
}

#[test]
fn fetches_of_a_session_are_bounded() {
    let mut setting = Setting::default();
    setting.relay.fetches_per_session_max = 2;
    story(&setting, |stage| {
        let publication = published(stage, 1);
        let mut stream = stage.open(publication, 1);
        stage.object_with(publication, &mut stream, &object(0, 9), b"cut");
        let client = stage.client();
        let fetches: Vec<_> = (0..3)
            .map(|_| stage.fetch(client, "a--x", (0, 0), (1, 0)))
            .collect();
        stage.step("two at the limit, one past it", millis(100));
        assert_eq!(stage.gauges().fetches, 2);
        let code = RequestErrorCode::EXCESSIVE_LOAD;
        assert_eq!(stage.refusal(fetches[2]), Some(code));
        assert_eq!(stage.counters().refused_limit_fetches, 1);
        stage.cancel(fetches[0]);
        stage.wait(millis(50));
        let another = stage.fetch(client, "a--x", (0, 0), (0, ALL));
        stage.step("there is room again", millis(100));
        stage.expect_complete(another);
        let stopped = stage.fetched(fetches[1]).stream.unwrap();
        stage.act(client, |session, connection| {
            session.stop_data(connection, stopped, ResetCode::CANCELLED);
        });
        stage.step("a stream is stopped", millis(100));
        assert_eq!(stage.gauges().fetches, 0);
        assert_eq!(stage.counters().fetches_cancelled, 2);
    });
}

#[test]
fn a_slow_reader_holds_up_nobody_and_nothing() {
    let mut setting = Setting::default();
    setting.client.stream_receive_bytes_max = 20_000;
    setting.client.receive_bytes_max = 40_000;
    story(&setting, |stage| {
        let publication = published(stage, 0);
        for group in 0..20 {
            stage.group(publication, group, 4, 20_000);
            stage.wait(millis(20));
        }
        let client = stage.client();
        let slow = stage.fetch(client, "a--x", (0, 0), (0, 3));
        let quick = stage.fetch(client, "a--x", (1, 0), (1, 3));
        stage.step("two fetches share a connection", secs(3));
        for fetch in [slow, quick] {
            stage.expect_complete(fetch);
            assert_eq!(stage.fetched(fetch).places(20_000).len(), 4);
        }
    });
}

#[test]
fn nothing_is_left_of_a_thousand_fetches() {
    let mut setting = Setting::default();
    setting.relay.cache_age_max = secs(2);
    story(&setting, |stage| {
        let publication = published(stage, 3);
        let client = stage.client();
        for round in 0..50 {
            let fetches: Vec<_> = (0..20)
                .map(|_| stage.fetch(client, "a--x", (0, 0), (2, ALL)))
                .collect();
            stage.wait(millis(round));
            for fetch in fetches {
                stage.cancel(fetch);
            }
            whole_group(stage, publication, 3 + round);
        }
        let nodes = [publication.node, client];
        stage.step("a thousand fetches later", millis(100));
        assert_eq!(
            (stage.gauges().fetches, stage.gauges().fetches_upstream),
            (0, 0)
        );
        for node in nodes {
            stage.sim.shutdown(node);
        }
        stage.step("everybody leaves", secs(20));
        let gauges = stage.gauges();
        let listener = Gauges {
            sessions: 1,
            ..Gauges::default()
        };
        assert_eq!(gauges, listener);
    });
}

#[test]
fn what_is_too_old_is_not_served() {
    let mut setting = Setting::default();
    setting.relay.fill_max = millis(200);
    story(&setting, |stage| {
        let publisher = stage.client();
        let properties = Properties::builder().int(0x04, 1000).build();
        let parameters = Parameters::default();
        let publication = stage.publish_with(publisher, "a--x", parameters, properties);
        let listener = stage.client();
        stage.subscribe_with(
            listener,
            "a--x",
            Parameters {
                filter: Some(Filter::LargestObject),
                ..Parameters::default()
            },
        );
        stage.wait(millis(100));
        whole_group(stage, publication, 0);
        stage.wait(millis(600));
        whole_group(stage, publication, 1);
        stage.wait(millis(600));
        let fetch = stage.fetch(listener, "a--x", (0, 0), (1, ALL));
        stage.step("one group is too old", secs(1));
        stage.expect_complete(fetch);
        assert_eq!(stage.fetched(fetch).places(500), all_of([1]));
        assert_eq!(stage.fetched(fetch).ranges(), [(true, Location::new(0, 2))]);
        let first = &stage.fetched_from(publisher)[0];
        assert_eq!(*first, (Location::new(0, 0), Location::new(0, 2)));
        assert_eq!(stage.counters().fetches_waited_out, 1);
        assert_ne!(
            stage.fetched(fetch).end,
            Some(StreamEnd::Reset(ResetCode::CANCELLED))
        );
    });
}

#[test]
fn an_update_changes_the_priority_and_is_answered() {
    story(&Setting::default(), |stage| {
        let publication = published(stage, 1);
        let mut stream = stage.open(publication, 1);
        stage.object_with(publication, &mut stream, &object(0, 9), b"cut");
        let client = stage.client();
        let fetch = stage.fetch(client, "a--x", (0, 0), (1, 0));
        stage.step("a fetch waits", millis(100));
        stage.update(
            fetch,
            Parameters {
                subscriber_priority: Some(3),
                ..Parameters::default()
            },
        );
        stage.step("it is updated", millis(100));
        assert_eq!(stage.outcome(fetch).updates_answered, 1);
        assert_eq!(stage.outcome(fetch).update_errors, []);
        stage.act(publication.node, |_, connection| {
            connection.reset(stream.stream, 1);
        });
        stage.step("the object never comes", secs(11));
        stage.expect_complete(fetch);
        let ranges = [(false, Location::new(0, ALL)), (true, Location::new(1, 0))];
        assert_eq!(stage.fetched(fetch).ranges(), ranges);
    });
}

#[test]
fn an_update_of_a_fetch_that_waits_is_answered_after_it() {
    let mut setting = Setting::default();
    setting.relay.fill_max = millis(500);
    story(&setting, |stage| {
        let client = stage.client();
        let archive = stage.client();
        stage.announce(archive, "a");
        stage.wait(millis(50));
        let refused = stage.fetch(client, "a--x", (0, 0), (1, 0));
        stage.wait(millis(50));
        let mut urgent = || {
            let parameters = Parameters {
                subscriber_priority: Some(3),
                ..Parameters::default()
            };
            stage.update(refused, parameters);
        };
        urgent();
        urgent();
        stage.step("two updates of a fetch that nobody answers", secs(1));
        assert_eq!(stage.refusal(refused), Some(RequestErrorCode::TIMEOUT));
        stage.direct(archive, |actor| {
            actor.archive.fill(0, 1, 3, 500);
            actor.archive.serving = Serving::Serve;
        });
        let served = stage.fetch(client, "a--x", (0, 0), (1, 2));
        let parameters = Parameters {
            subscriber_priority: Some(3),
            ..Parameters::default()
        };
        stage.update(served, parameters);
        stage.step("an update right behind a fetch", secs(1));
        stage.expect_complete(served);
        assert_eq!(stage.fetched(served).places(500), all_of(0..2));
        assert_eq!(stage.outcome(served).updates_answered, 1);
        assert_eq!(stage.gauges().fetches, 0);
    });
}
