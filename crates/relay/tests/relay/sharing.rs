//! Several publishers of one track.

use std::time::Duration;

use weir_moqt::{data::SubgroupHeader, error::ResetCode, session::StreamEnd};

use crate::{
    actor::Manner,
    slow::slow_down,
    stage::{Asked, Setting, Stage, millis, object, payload, plain, secs, story},
};

/// Two publishers of one track and a subscriber.
fn pair(stage: &mut Stage) -> ([Asked; 2], Asked) {
    let publishers = [stage.client(), stage.client()];
    let publications = publishers.map(|node| stage.publish(node, "a--x"));
    let subscriber = stage.client();
    let subscription = stage.subscribe(subscriber, "a--x");
    stage.step("two publishers, one track", millis(100));
    (publications, subscription)
}

#[test]
fn what_two_publishers_send_is_delivered_once() {
    for lag in [Duration::ZERO, millis(30), secs(1)] {
        story(&Setting::default(), |stage| {
            let (publications, subscription) = pair(stage);
            let begin = stage.sim.elapsed();
            for (place, publication) in publications.into_iter().enumerate() {
                for group in 0..20_u64 {
                    let at = begin + millis(50 * group);
                    let at = if place == 1 { at + lag } else { at };
                    stage.at(at, move |stage| {
                        stage.group(publication, group, 5, 300);
                        stage.datagram(publication, group, 100, b"datagram");
                    });
                }
            }
            stage.step("the same objects twice", secs(4));
            stage.expect_objects(subscription, &(0..20).collect::<Vec<_>>(), 5, 300);
            let datagrams = stage.outcome(subscription).datagram_places();
            assert_eq!(
                datagrams,
                (0..20).map(|group| (group, 100)).collect::<Vec<_>>()
            );
            assert_eq!(stage.counters().duplicates, 20 * 6);
            assert_eq!(stage.gauges().subgroups, 0);
        });
    }
}

#[test]
fn one_publisher_goes_on_where_the_other_was_cut() {
    story(&Setting::default(), |stage| {
        let (publications, subscription) = pair(stage);
        let header = SubgroupHeader {
            subgroup: weir_moqt::data::SubgroupId::FirstObject,
            ..plain(1)
        };
        let mut streams = publications.map(|from| stage.open_with(from, header));
        let mut send = |stage: &mut Stage, place: usize, id: u64| {
            let data = payload(1, id, 300);
            stage.object(publications[place], &mut streams[place], id, &data);
            stage.wait(millis(5));
        };
        for id in 0..3 {
            send(stage, 0, id);
        }
        for id in 0..2 {
            send(stage, 1, id);
        }
        let header = object(3, 300);
        let [first, second] = &mut streams;
        stage.object_with(publications[0], first, &header, b"only the beginning");
        stage.step("both in the middle of a group", millis(50));
        stage.sim.shutdown(publications[0].node);
        stage.step("one is gone", millis(50));
        for id in 2..6 {
            stage.object(publications[1], second, id, &payload(1, id, 300));
            stage.wait(millis(5));
        }
        stage.finish(publications[1], second);
        stage.step("the other goes on", millis(50));
        stage.expect_objects(subscription, &[1], 6, 300);
        let streams = &stage.outcome(subscription).streams;
        assert_eq!(streams.len(), 2);
        assert_eq!(streams[0].end, Some(StreamEnd::Reset(ResetCode::CANCELLED)));
        assert_eq!(streams[1].end, Some(StreamEnd::Fin));
        let number = weir_moqt::data::SubgroupId::Explicit(0);
        assert_eq!(streams[1].header.subgroup, number);
        assert!(stage.outcome(subscription).done.is_none());
    });
}

#[test]
fn the_track_ends_with_its_last_publisher() {
    story(&Setting::default(), |stage| {
        let (publications, subscription) = pair(stage);
        stage.publish_done(publications[0], 0);
        stage.step("one is done", secs(5));
        assert!(stage.outcome(subscription).done.is_none());
        let again = stage.publish(publications[0].node, "a--x");
        stage.step("and begins again", millis(100));
        assert!(stage.is_accepted(again));
        stage.publish_done(publications[1], 0);
        stage.step("the other is done", secs(5));
        assert!(stage.outcome(subscription).done.is_none());
        stage.publish_done(again, 0);
        stage.step("both are", secs(5));
        assert!(stage.outcome(subscription).done.is_some());
        assert_eq!(stage.gauges().tracks, 0);
    });
}

#[test]
fn what_two_publishers_send_slowly_is_delivered_once() {
    story(&Setting::default(), |stage| {
        let (publications, subscription) = pair(stage);
        let [mut first, mut second] = publications.map(|from| stage.open(from, 1));
        for id in 0..20 {
            let data = payload(1, id, 100);
            stage.object(publications[0], &mut first, id, &data);
            stage.wait(millis(250));
            stage.object(publications[1], &mut second, id, &data);
            stage.wait(millis(250));
        }
        stage.finish(publications[0], &first);
        stage.finish(publications[1], &second);
        stage.step("one group in ten seconds, twice", millis(100));
        stage.expect_objects(subscription, &[1], 20, 100);
        assert_eq!(stage.outcome(subscription).streams.len(), 1);
        assert_eq!(stage.counters().duplicates, 20);
    });
}

#[test]
fn what_two_publishers_send_rarely_is_delivered_once() {
    story(&Setting::default(), |stage| {
        let (publications, subscription) = pair(stage);
        let mut streams = publications.map(|from| stage.open(from, 1));
        // Whichever publisher is first continues, after a silence longer than the delay between publishers.
        for (id, first) in (0..).zip([0, 1, 1, 0, 1]) {
            let data = payload(1, id, 100);
            for place in [first, 1 - first] {
                stage.object(publications[place], &mut streams[place], id, &data);
                stage.wait(millis(50));
            }
            stage.step("one object twice", secs(6));
        }
        for (publication, stream) in publications.iter().zip(&streams) {
            stage.finish(*publication, stream);
        }
        stage.step("the end of the group, twice", secs(10));
        stage.expect_objects(subscription, &[1], 5, 100);
        assert_eq!(stage.outcome(subscription).objects().len(), 5);
        assert_eq!(stage.counters().duplicates, 5);
        let streams = stage.outcome(subscription).streams.iter();
        let cut = Some(StreamEnd::Reset(ResetCode::CANCELLED));
        let ends: Vec<_> = streams.map(|stream| stream.end).collect();
        assert_eq!(ends, [cut, cut, cut, Some(StreamEnd::Fin)]);
        assert_eq!(stage.gauges().subgroups, 0);
    });
}

#[test]
fn a_publisher_in_the_middle_of_a_large_object_is_not_silent() {
    story(&Setting::default(), |stage| {
        let (publications, subscription) = pair(stage);
        let [mut slow, mut quick] = publications.map(|from| stage.open(from, 1));
        let first = payload(1, 0, 300);
        stage.object_with(publications[0], &mut slow, &object(0, 300), &first[..100]);
        stage.wait(millis(50));
        stage.object(publications[1], &mut quick, 0, &first);
        stage.step("half of it", secs(3));
        stage.write(
            publications[0],
            slow.stream,
            first[100..200].to_vec().into(),
            false,
        );
        stage.step("more of it", secs(3));
        stage.object(publications[1], &mut quick, 1, &payload(1, 1, 300));
        stage.step("the other is ahead", secs(1));
        stage.write(
            publications[0],
            slow.stream,
            first[200..].to_vec().into(),
            false,
        );
        stage.object(publications[0], &mut slow, 1, &payload(1, 1, 300));
        stage.finish(publications[0], &slow);
        stage.finish(publications[1], &quick);
        stage.step("all of it", millis(100));
        stage.expect_objects(subscription, &[1], 2, 300);
        assert_eq!(stage.outcome(subscription).streams.len(), 1);
    });
}

#[test]
fn who_is_behind_gets_all_that_a_silent_publisher_has_sent() {
    // Data waits in the connection, or in the relay.
    for send_bytes_max in [1 << 20, 30_000] {
        let mut setting = Setting::default();
        setting.quic.send_bytes_max = send_bytes_max;
        story(&setting, |stage| {
            let (publications, subscription) = pair(stage);
            slow_down(stage, subscription, 20_000);
            let [mut silent, mut other] = publications.map(|from| stage.open(from, 1));
            for id in 0..6 {
                let data = payload(1, id, 20_000);
                stage.object(publications[0], &mut silent, id, &data);
            }
            stage.step("120 kB over a link that takes ten seconds for it", secs(6));
            let data = payload(1, 6, 20_000);
            stage.object(publications[1], &mut other, 6, &data);
            stage.finish(publications[1], &other);
            stage.step("another publisher goes on", secs(20));
            stage.expect_objects(subscription, &[1], 7, 20_000);
            let streams = stage.outcome(subscription).streams.iter();
            let ends: Vec<_> = streams.map(|stream| stream.end).collect();
            let cut = Some(StreamEnd::Reset(ResetCode::CANCELLED));
            assert_eq!(ends, [cut, Some(StreamEnd::Fin)]);
            assert_eq!(stage.gauges().subgroups, 0);
        });
    }
}

#[test]
fn who_falls_silent_in_an_object_that_others_have_repeated_may_complete_it() {
    story(&Setting::default(), |stage| {
        let (publications, subscription) = pair(stage);
        let [mut slow, mut quick] = publications.map(|from| stage.open(from, 1));
        let data = |id| payload(1, id, 300);
        stage.object_with(publications[0], &mut slow, &object(0, 300), &data(0)[..100]);
        stage.wait(millis(50));
        stage.object(publications[1], &mut quick, 0, &data(0));
        stage.step("a part of an object, and all of it", secs(6));
        stage.object(publications[1], &mut quick, 1, &data(1));
        stage.step("who had all of it goes on", secs(1));
        let rest = data(0).split_off(100);
        stage.write(publications[0], slow.stream, rest.into(), false);
        for id in 1..3 {
            stage.object(publications[0], &mut slow, id, &data(id));
            stage.wait(millis(50));
        }
        stage.object(publications[1], &mut quick, 2, &data(2));
        stage.finish(publications[0], &slow);
        stage.finish(publications[1], &quick);
        stage.step("the first is back", secs(11));
        stage.expect_objects(subscription, &[1], 3, 300);
        assert_eq!(stage.counters().duplicates, 3);
        assert_eq!(stage.gauges().subgroups, 0);
        assert_eq!(stage.gauges().cache_objects, 3);
        let streams = &stage.outcome(subscription).streams;
        assert!(streams.iter().all(|stream| stream.end.is_some()));
    });
}

#[test]
fn an_object_that_another_sends_in_place_of_a_silent_publisher_comes_once() {
    story(&Setting::default(), |stage| {
        let (publications, subscription) = pair(stage);
        let [mut slow, mut quick] = publications.map(|from| stage.open(from, 1));
        let data = |id| payload(1, id, 300);
        stage.object_with(publications[0], &mut slow, &object(0, 300), &data(0)[..100]);
        stage.step("a part of an object", secs(6));
        stage.object(publications[1], &mut quick, 0, &data(0));
        stage.step("another has all of it", millis(50));
        let rest = data(0).split_off(100);
        stage.write(publications[0], slow.stream, rest.into(), false);
        stage.object(publications[0], &mut slow, 1, &data(1));
        stage.object(publications[1], &mut quick, 1, &data(1));
        stage.finish(publications[0], &slow);
        stage.finish(publications[1], &quick);
        stage.step("both go on", secs(11));
        stage.expect_objects(subscription, &[1], 2, 300);
        assert_eq!(stage.gauges().subgroups, 0);
    });
}

#[test]
fn who_starts_again_after_the_last_word_is_heard() {
    story(&Setting::default(), |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        let subscriber = stage.client();
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.wait(millis(100));
        stage.group(publication, 0, 2, 100);
        stage.datagram(publication, 0, 9, b"datagram");
        stage.wait(millis(50));
        stage.publish_done(publication, 2);
        stage.step("the end, but for one stream", millis(100));
        let again = stage.publish(publisher, "a--x");
        stage.step("the same publisher begins again", millis(100));
        stage.group(again, 0, 2, 100);
        stage.datagram(again, 0, 9, b"datagram");
        stage.step("with the same numbers", secs(5));
        let outcome = stage.outcome(subscription);
        assert_eq!(outcome.objects().len(), 4);
        assert_eq!(outcome.datagram_places(), [(0, 9), (0, 9)]);
        assert!(outcome.done.is_none());
    });
}

#[test]
fn who_announced_the_namespace_is_asked_when_the_publisher_leaves() {
    story(&Setting::default(), |stage| {
        let (announcer, publisher) = (stage.client(), stage.client());
        stage.direct(announcer, |actor| actor.manner = Manner::Accept(42));
        stage.announce(announcer, "a");
        let publication = stage.publish(publisher, "a--x");
        let subscriber = stage.client();
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.step("one publishes, the other could", millis(100));
        assert!(stage.actor(announcer).asked.is_empty());
        stage.cancel(publication);
        stage.step("the one leaves", millis(100));
        let source = stage.source(announcer, 0, 42);
        stage.group(source, 3, 2, 100);
        stage.step("the other takes over", secs(10));
        stage.expect_objects(subscription, &[3], 2, 100);
        assert!(stage.outcome(subscription).done.is_none());
    });
}

#[test]
fn who_was_asked_is_asked_no_longer_when_the_track_ends() {
    story(&Setting::default(), |stage| {
        let (silent, publisher) = (stage.client(), stage.client());
        let publication = stage.publish(publisher, "a--x");
        let subscriber = stage.client();
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.wait(millis(50));
        stage.announce(silent, "a");
        stage.step("a namespace", millis(100));
        stage.publish_done(publication, 0);
        stage.step("the end", millis(100));
        assert!(stage.outcome(subscription).done.is_some());
        assert_eq!(stage.gauges().tracks, 0);
        let asked = stage.asked(silent, 0);
        assert!(stage.actor(silent).exchanges[&asked].closed.is_some());
    });
}
