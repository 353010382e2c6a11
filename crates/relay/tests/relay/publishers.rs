//! Publishers that go, come back, and share a track.

use std::time::Duration;

use weir_link::{Delay, Loss, Probability};
use weir_moqt::{
    data::SubgroupHeader,
    error::{PublishDoneCode, ResetCode},
    session::StreamEnd,
};

use crate::{
    actor::Manner,
    stage::{Asked, Setting, Stage, millis, object, payload, plain, secs, story},
};

/// How a publisher vanishes, and how long it takes the relay to notice.
#[derive(Clone, Copy, Debug)]
enum Exit {
    Killed,
    CutOff,
    Closed,
    Withdrawn,
}

const EXITS: [Exit; 4] = [Exit::Killed, Exit::CutOff, Exit::Closed, Exit::Withdrawn];

fn setting() -> Setting {
    let mut setting = Setting::default();
    setting.quic.idle_timeout = secs(3);
    setting.client.keep_alive = Some(secs(1));
    setting
}

fn leave(stage: &mut Stage, publication: Asked, exit: Exit) {
    let (node, relay) = (publication.node, stage.relay);
    match exit {
        Exit::Killed => stage.sim.kill(node),
        Exit::Closed => stage.sim.shutdown(node),
        Exit::CutOff => {
            let now = stage.sim.elapsed();
            for (from, to) in [(node, relay), (relay, node)] {
                stage.sim.blackhole(from, to, now, now + secs(60));
            }
        }
        Exit::Withdrawn => stage.cancel(publication),
    }
    stage.step(&format!("the publisher leaves: {exit:?}"), secs(5));
}

#[test]
fn subscribers_are_kept_until_the_publisher_is_back() {
    for exit in EXITS {
        story(&setting(), |stage| {
            let (first, second) = (stage.client(), stage.client());
            let publication = stage.publish(first, "a--x");
            let subscriber = stage.client();
            let subscription = stage.subscribe(subscriber, "a--x");
            stage.wait(millis(50));
            stage.group(publication, 1, 3, 100);
            let mut cut = stage.open(publication, 2);
            stage.object(publication, &mut cut, 0, b"cut");
            stage.step("objects", millis(100));
            leave(stage, publication, exit);
            assert_eq!(stage.gauges().subscriptions, 1);
            assert_eq!(stage.gauges().subgroups, 0);
            let publication = stage.publish(second, "a--x");
            stage.step("another takes over", millis(100));
            stage.group(publication, 1, 3, 100);
            stage.group(publication, 3, 3, 100);
            stage.step("objects", secs(10));
            let outcome = stage.outcome(subscription);
            let streams: Vec<_> = outcome.streams.iter().collect();
            let groups: Vec<_> = streams.iter().map(|stream| stream.header.group).collect();
            assert_eq!(groups, [1, 2, 1, 3], "who starts again is heard");
            let cut = StreamEnd::Reset(ResetCode::CANCELLED);
            assert_eq!(streams[1].end, Some(cut));
            assert_eq!(streams[3].objects.len(), 3);
            assert!(outcome.done.is_none());
        });
    }
}

#[test]
fn a_publisher_that_does_not_come_back_ends_the_track() {
    for exit in EXITS {
        story(&setting(), |stage| {
            let publisher = stage.client();
            let publication = stage.publish(publisher, "a--x");
            let subscriber = stage.client();
            let subscription = stage.subscribe(subscriber, "a--x");
            stage.wait(millis(50));
            stage.group(publication, 1, 3, 100);
            stage.step("objects", millis(100));
            leave(stage, publication, exit);
            stage.step("nobody comes", secs(6));
            let done = stage.outcome(subscription).done.as_ref().unwrap();
            assert_eq!(done.code, PublishDoneCode::TRACK_ENDED);
            assert_eq!(done.stream_count, Some(1));
            assert_eq!(stage.gauges().tracks, 0);
            assert_eq!(stage.gauges().subscriptions, 0);
        });
    }
}

#[test]
fn an_announced_namespace_is_asked_again() {
    story(&setting(), |stage| {
        let publishers = [stage.client(), stage.client()];
        for node in publishers {
            stage.direct(node, |actor| actor.manner = Manner::Accept(42));
        }
        let [first, second] = publishers;
        stage.announce(first, "a");
        let subscriber = stage.client();
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.step("one publisher", millis(100));
        let source = stage.source(first, 0, 42);
        stage.group(source, 1, 2, 100);
        stage.wait(millis(100));
        stage.sim.kill(first);
        stage.step("is killed", secs(5));
        stage.announce(second, "a");
        stage.step("another announces the namespace", millis(100));
        let source = stage.source(second, 0, 42);
        stage.group(source, 2, 2, 100);
        stage.step("objects", secs(10));
        stage.expect_objects(subscription, &[1, 2], 2, 100);
        assert!(stage.outcome(subscription).done.is_none());
    });
}

#[test]
fn a_publisher_that_never_answers_does_not_keep_a_track_alive() {
    story(&setting(), |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        let subscriber = stage.client();
        let subscription = stage.subscribe(subscriber, "a--x");
        let silent = stage.client();
        stage.announce(silent, "a");
        stage.step("a namespace", millis(100));
        assert_eq!(
            stage.actor(silent).asked.len(),
            1,
            "every publisher is asked"
        );
        leave(stage, publication, Exit::Closed);
        stage.step("nobody answers", secs(1));
        assert!(stage.outcome(subscription).done.is_some());
        assert_eq!(stage.gauges().tracks, 0);
    });
}

/// Ten groups and PUBLISH_DONE at once, over a link that loses packets.
fn rush(setting: &Setting) {
    story(setting, |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        stage.settle(&[publication]);
        let subscribers = stage.clients(3);
        let subscriptions: Vec<_> = subscribers
            .iter()
            .map(|&subscriber| stage.subscribe(subscriber, "a--x"))
            .collect();
        stage.settle(&subscriptions);
        for group in 0..10 {
            stage.group(publication, group, 20, 1000);
        }
        stage.publish_done(publication, 10);
        stage.step("all at once", secs(20));
        let groups: Vec<_> = (0..10).collect();
        for &subscription in &subscriptions {
            stage.expect_objects(subscription, &groups, 20, 1000);
            let outcome = stage.outcome(subscription);
            let done = outcome.done.as_ref().expect("the track has ended");
            assert_eq!(done.stream_count, Some(10));
            assert_eq!(done.code, PublishDoneCode::TRACK_ENDED);
            assert_eq!(done.reason, "that is all");
        }
        assert_eq!(stage.gauges().tracks, 0);
    });
}

#[test]
fn the_end_of_a_track_follows_its_streams() {
    rush(&Setting::default());
}

#[test]
fn the_end_of_a_track_follows_its_streams_despite_loss() {
    let mut setting = Setting::default();
    setting.link.loss = Loss::Independent(Probability::new(0.05).unwrap());
    rush(&setting);
}

#[test]
fn the_end_of_a_track_follows_streams_that_take_long() {
    let mut setting = Setting::default();
    setting.relay.done_linger = millis(500);
    setting.link.rate = weir_link::Rate::Fixed(weir_link::Bitrate::from_megabits_per_second(1));
    rush(&setting);
}

#[test]
fn streams_that_never_come_are_not_waited_for() {
    story(&Setting::default(), |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        let subscriber = stage.client();
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.wait(millis(100));
        stage.group(publication, 1, 3, 100);
        let mut open = stage.open(publication, 2);
        stage.object(publication, &mut open, 0, b"stuck");
        stage.publish_done(publication, 5);
        let begin = stage.sim.now();
        stage.step("an end with two streams missing and one open", secs(1));
        assert!(stage.outcome(subscription).done.is_none());
        stage.step("the rest does not come", secs(5));
        let outcome = stage.outcome(subscription);
        assert_eq!(outcome.done.as_ref().unwrap().stream_count, Some(2));
        let waited = outcome.done_at.unwrap() - begin;
        assert!((secs(2)..secs(5)).contains(&waited), "{waited:?}");
        let cut = StreamEnd::Reset(ResetCode::CANCELLED);
        assert_eq!(outcome.streams[1].end, Some(cut));
        assert_eq!(stage.gauges().tracks, 0);
    });
}

#[test]
fn datagrams_may_follow_the_last_word_for_a_moment() {
    let mut setting = Setting::default();
    setting.link.delay = Delay::fixed(millis(10)).unwrap();
    story(&setting, |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        let subscriber = stage.client();
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.wait(millis(100));
        stage.datagram(publication, 1, 0, b"in time");
        stage.wait(millis(20));
        stage.publish_done(publication, 0);
        stage.step("the end", millis(50));
        stage.datagram(publication, 1, 1, b"overtaken");
        stage.step("a datagram", secs(1));
        let outcome = stage.outcome(subscription);
        assert_eq!(outcome.datagram_places(), [(1, 0), (1, 1)]);
        assert_eq!(outcome.done.as_ref().unwrap().stream_count, Some(0));
    });
}

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
