//! The cache: what it keeps, and what it evicts.

use bytes::Bytes;
use weir_moqt::{
    data::{ObjectHeader, ObjectStatus, SubgroupHeader},
    error::ResetCode,
    location::Location,
    parameter::Parameters,
    property::{MAX_CACHE_DURATION, Properties},
};
use weir_sim::NodeId;

use crate::{
    actor::Manner,
    archive::{ALL, Serving},
    fetching::{all_of, published, whole_group},
    stage::{Asked, Setting, Stage, millis, object, payload, plain, secs, story},
};

/// Tracks with one object of 1000 bytes each.
fn tracks(stage: &mut Stage, names: &[&str]) -> Vec<Asked> {
    let publisher = stage.client();
    let publish = |name: &&str| {
        let publication = stage.publish(publisher, name);
        stage.wait(millis(50));
        stage.datagram(publication, 0, 0, &[7; 1000]);
        stage.wait(millis(50));
        publication
    };
    names.iter().map(publish).collect()
}

#[test]
fn the_oldest_group_of_all_tracks_makes_room() {
    let mut setting = Setting::default();
    story(&setting, |stage| {
        tracks(stage, &["a--1"]);
        assert!((1000..1800).contains(&stage.gauges().cache_bytes));
    });
    setting.relay.cache_bytes_max = 3 * 1800;
    story(&setting, |stage| {
        tracks(stage, &["a--1", "a--2", "a--3"]);
        assert_eq!(stage.gauges().cache_objects, 3, "below the limit");
        assert_eq!(stage.counters().cache_groups_evicted, 0);
    });
    setting.relay.cache_bytes_max = 3 * 1200;
    story(&setting, |stage| {
        tracks(stage, &["a--1", "a--2", "a--3"]);
        let gauges = stage.gauges();
        assert_eq!((gauges.cache_objects, gauges.tracks), (2, 3), "above it");
        assert!(gauges.cache_bytes <= 3600);
        let client = stage.client();
        let [old, new] = ["a--1", "a--3"].map(|name| stage.fetch(client, name, (0, 0), (0, 0)));
        stage.step("what is left", secs(11));
        assert_eq!(stage.fetched(old).objects(), []);
        assert_eq!(stage.fetched(new).objects().len(), 1);
    });
}

#[test]
fn tracks_that_nobody_uses_are_bounded() {
    let mut setting = Setting::default();
    setting.relay.tracks_resting_max = 2;
    story(&setting, |stage| {
        let publications = tracks(stage, &["a--1", "a--2", "a--3"]);
        for &publication in &publications[..2] {
            stage.publish_done(publication, 0);
        }
        stage.step("two at the limit", millis(500));
        let gauges = stage.gauges();
        assert_eq!((gauges.tracks, gauges.tracks_resting), (1, 2));
        assert_eq!(gauges.cache_objects, 3);
        stage.publish_done(publications[2], 0);
        stage.step("one past it", millis(500));
        let gauges = stage.gauges();
        assert_eq!((gauges.tracks, gauges.tracks_resting), (0, 2));
        assert_eq!(gauges.cache_objects, 2);
        assert_eq!(stage.counters().tracks_resting_forgotten, 1);
        let client = stage.client();
        let fetch = stage.fetch(client, "a--2", (0, 0), (0, 0));
        stage.step("one that rests is fetched", millis(200));
        assert_eq!(stage.fetched(fetch).objects().len(), 1);
    });
}

#[test]
fn objects_that_arrive_in_part_are_bounded_together() {
    let mut setting = Setting::default();
    setting.relay.cache_partial_bytes_max = 1000;
    story(&setting, |stage| {
        let first = published(stage, 0);
        let others = [stage.client(), stage.client()];
        let [second, third] = [(others[0], "a--y"), (others[1], "a--z")]
            .map(|(node, track)| stage.publish(node, track));
        stage.wait(millis(50));
        let begin = |stage: &mut Stage, from: Asked, group: u64, bytes: usize, sent: usize| {
            let mut stream = stage.open(from, group);
            stage.object_with(from, &mut stream, &object(0, bytes), &vec![1; sent]);
            stage.wait(millis(50));
            stream
        };
        let streams = [first, second].map(|from| (from, begin(stage, from, 7, 600, 500)));
        stage.step("500 bytes from each of two", millis(50));
        assert_eq!(stage.counters().cache_objects_too_large, 0, "at the limit");
        begin(stage, third, 7, 600, 1);
        stage.step("one byte past it", millis(50));
        assert_eq!(stage.counters().cache_objects_too_large, 1);
        for (from, stream) in streams {
            stage.write(from, stream.stream, vec![1; 100].into(), true);
        }
        stage.step("the rest", millis(50));
        assert_eq!(stage.gauges().cache_objects, 2);
        let cut = begin(stage, first, 9, 2000, 500);
        assert_eq!(stage.counters().cache_objects_too_large, 1);
        begin(stage, first, 10, 600, 1);
        stage.step("all the room of one session is taken", millis(50));
        assert_eq!(stage.counters().cache_objects_too_large, 2);
        stage.reset(first, &cut, ResetCode::CANCELLED);
        stage.wait(millis(50));
        let stream = begin(stage, first, 11, 501, 500);
        let last = Bytes::from_static(&[1]);
        stage.write(first, stream.stream, last, true);
        stage.step("and free again", millis(50));
        assert_eq!(stage.gauges().cache_objects, 3);
        assert_eq!(stage.counters().cache_objects_too_large, 2);
    });
}

#[test]
fn objects_that_are_fetched_are_bounded_together() {
    let mut setting = Setting::default();
    setting.relay.cache_fetched_partial_bytes_max = 8000;
    story(&setting, |stage| {
        let publication = published(stage, 0);
        stage.group(publication, 7, 1, 100);
        stage.direct(publication.node, |actor| {
            actor.archive.fill(0, 0, 1, 5500);
            actor.archive.serving = Serving::Serve;
        });
        let client = stage.client();
        let fetch = stage.fetch(client, "a--x", (0, 0), (0, 0));
        stage.step("an object of several packets", millis(300));
        assert_eq!(stage.counters().fetched_objects_dropped, 1);
        stage.expect_complete(fetch);
        assert_eq!(stage.fetched(fetch).places(5500), []);
        let unknown = (true, Location::new(0, 0));
        assert_eq!(stage.fetched(fetch).ranges(), [unknown]);
        stage.direct(publication.node, |actor| actor.archive.fill(0, 0, 1, 3500));
        let small = stage.fetch(client, "a--x", (0, 0), (0, 0));
        stage.step("and a smaller one", millis(300));
        assert_eq!(stage.fetched(small).places(3500), [(0, 0)]);
        assert_eq!(stage.counters().fetched_objects_dropped, 1);
        assert_eq!(stage.counters().cache_objects_too_large, 0);
    });
}

#[test]
fn who_sends_only_beginnings_leaves_room_for_what_others_send_and_fetch() {
    let mut setting = Setting::default();
    setting.relay.cache_partial_bytes_max = 10_000;
    setting.relay.cache_fetched_partial_bytes_max = 10_000;
    story(&setting, |stage| {
        let [idler, archive, client] = [(); 3].map(|()| stage.client());
        let begun = stage.publish(idler, "b--x");
        stage.wait(millis(50));
        for group in 0..8 {
            let mut stream = stage.open(begun, group);
            stage.object_with(begun, &mut stream, &object(0, 2000), &[1; 1250]);
        }
        stage.step("eight objects that never end", millis(100));
        stage.direct(archive, |actor| {
            actor.archive.fill(0, 0, 1, 4500);
            actor.archive.serving = Serving::Serve;
        });
        let publication = stage.publish(archive, "a--y");
        stage.announce(archive, "a");
        stage.wait(millis(50));
        let fetch = stage.fetch(client, "a--x", (0, 0), (0, 0));
        stage.step("an object of several packets is fetched", millis(300));
        assert_eq!(stage.fetched(fetch).places(4500), [(0, 0)]);
        stage.group(publication, 0, 1, 4500);
        stage.step("another one is published", millis(300));
        assert_eq!(stage.gauges().cache_objects, 2);
    });
}

#[test]
fn a_publisher_that_counts_anew_is_not_mixed_with_the_one_before() {
    story(&Setting::default(), |stage| {
        let publication = published(stage, 4);
        stage.sim.shutdown(publication.node);
        stage.step("the publisher falls", millis(200));
        stage.connect(publication.node);
        let again = stage.publish_with(
            publication.node,
            "a--x",
            Parameters::default(),
            Properties::EMPTY,
        );
        stage.wait(millis(100));
        whole_group(stage, again, 0);
        stage.step("it begins again", millis(100));
        assert_eq!(stage.gauges().cache_objects, 3);
        let client = stage.client();
        let fetch = stage.fetch(client, "a--x", (0, 0), (0, ALL));
        stage.step("a fetch", millis(200));
        assert_eq!(stage.expect_complete(fetch), Location::new(0, ALL));
        assert_eq!(stage.fetched(fetch).places(500), all_of([0]));
    });
}

#[test]
fn a_relay_without_a_cache_still_serves_what_publishers_have() {
    let mut setting = Setting::default();
    setting.relay.cache_track_bytes_max = 0;
    story(&setting, |stage| {
        let publication = published(stage, 3);
        assert_eq!(stage.gauges().cache_objects, 0);
        stage.direct(publication.node, |actor| {
            actor.archive.fill(0, 2, 3, 500);
            actor.archive.serving = Serving::Serve;
        });
        let client = stage.client();
        for _ in 0..2 {
            let fetch = stage.fetch(client, "a--x", (0, 0), (2, ALL));
            stage.step("a fetch", millis(300));
            stage.expect_complete(fetch);
            assert_eq!(stage.fetched(fetch).places(500), all_of(0..3));
        }
        assert!(stage.gauges().cache_objects <= 1);
    });
}

/// A client that announced `a`, and has groups `0..=4` of 3 objects, which stay in caches for a second.
fn brief_archive(stage: &mut Stage) -> NodeId {
    let node = stage.client();
    stage.direct(node, |actor| {
        actor.archive.fill(0, 4, 3, 500);
        actor.archive.properties = Properties::builder().int(MAX_CACHE_DURATION, 1000).build();
        actor.archive.serving = Serving::Serve;
    });
    stage.announce(node, "a");
    stage.step("an archive", millis(50));
    node
}

#[test]
fn what_is_too_old_to_be_served_is_fetched_again() {
    story(&Setting::default(), |stage| {
        let archive = brief_archive(stage);
        let client = stage.client();
        for round in 1..4 {
            for _ in 0..2 {
                let fetch = stage.fetch(client, "a--x", (0, 0), (0, 2));
                stage.step("a fetch", millis(200));
                stage.expect_complete(fetch);
                assert_eq!(stage.fetched(fetch).places(500), all_of([0]));
                assert_eq!(stage.fetched(fetch).ranges(), []);
                assert_eq!(stage.fetched_from(archive).len(), round, "asked once");
            }
            assert_eq!(stage.gauges().cache_objects, 3);
            stage.step("the objects are too old now", millis(1200));
        }
    });
}

#[test]
fn what_is_too_old_is_requested_with_what_is_missing_around_it() {
    story(&Setting::default(), |stage| {
        let archive = brief_archive(stage);
        let client = stage.client();
        stage.fetch(client, "a--x", (3, 0), (3, ALL));
        stage.step("a group that grows old", millis(1200));
        stage.fetch(client, "a--x", (2, 0), (2, ALL));
        stage.step("a group that is fresh", millis(200));
        let fetch = stage.fetch(client, "a--x", (1, 0), (4, 2));
        stage.step("all of it", millis(300));
        stage.expect_complete(fetch);
        assert_eq!(stage.fetched(fetch).places(500), all_of(1..5));
        assert_eq!(stage.fetched(fetch).ranges(), []);
        let mut asked = stage.fetched_from(archive).split_off(2);
        asked.sort_unstable();
        let at = Location::new;
        let expected = [
            (at(1, 0), at(1, ALL)),
            (at(3, 0), at(3, 2)),
            (at(4, 0), at(4, 2)),
        ];
        assert_eq!(asked, expected);
    });
}

#[test]
fn a_track_may_begin_anew_once_nobody_subscribes_to_it() {
    story(&Setting::default(), |stage| {
        let mut round = |objects: u64, bytes: usize| {
            let [publisher, subscriber] = [stage.client(), stage.client()];
            stage.direct(publisher, |actor| actor.manner = Manner::Accept(7));
            stage.announce(publisher, "a");
            stage.wait(millis(50));
            let subscription = stage.subscribe(subscriber, "a--x");
            stage.step("subscribe: the publisher is asked", millis(100));
            let source = stage.source(publisher, 0, 7);
            let header = SubgroupHeader {
                end_of_group: true,
                ..plain(0)
            };
            let mut stream = stage.open_with(source, header);
            for id in 0..objects {
                stage.object(source, &mut stream, id, &payload(0, id, bytes));
            }
            stage.finish(source, &stream);
            stage.step("a group, and its end", millis(100));
            assert_eq!(stage.counters().tracks_malformed, 0);
            stage.expect_objects(subscription, &[0], objects, bytes);
            stage.cancel(subscription);
            stage.step("nobody wants it any more", millis(100));
            stage.sim.shutdown(publisher);
            stage.step("the publisher goes", millis(100));
        };
        round(3, 500);
        // Another publisher counts from 0 again, and its group is longer than the cached one.
        round(6, 100);
    });
}

#[test]
fn what_a_former_publisher_ruled_out_does_not_bind_the_next_one() {
    story(&Setting::default(), |stage| {
        let [first, second, subscriber, late] = [(); 4].map(|()| stage.client());
        let publication = stage.publish(first, "a--x");
        stage.wait(millis(50));
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.wait(millis(50));
        stage.group(publication, 0, 2, 300);
        let mut stream = stage.open(publication, 1);
        let end = ObjectHeader {
            status: ObjectStatus::EndOfTrack,
            ..object(0, 0)
        };
        stage.object_with(publication, &mut stream, &end, b"");
        stage.finish(publication, &stream);
        stage.step("a group, and the end of the track", millis(100));
        assert!(stage.outcome(subscription).done.is_none());
        stage.sim.shutdown(first);
        stage.step("the publisher goes", millis(100));
        // Another publisher announces a larger location, and sends what follows.
        let so_far = Parameters {
            largest_object: Some(Location::new(4, 0)),
            ..Parameters::default()
        };
        let publication = stage.publish_with(second, "a--x", so_far, Properties::EMPTY);
        stage.step("another one goes on behind that end", millis(100));
        let subscription = stage.subscribe(late, "a--x");
        stage.wait(millis(50));
        stage.group(publication, 5, 2, 300);
        stage.step("a group of it", millis(200));
        stage.expect_objects(subscription, &[5], 2, 300);
        assert_eq!(stage.counters().objects_ruled_out, 0);
        assert_eq!(stage.counters().tracks_malformed, 0);
    });
}
