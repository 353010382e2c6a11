//! Publishers that leave, reconnect, and share a track.

use weir_link::{Delay, Loss, Probability};
use weir_moqt::{
    error::{PublishDoneCode, ResetCode},
    session::StreamEnd,
};

use crate::{
    actor::Manner,
    slow::slow_down,
    stage::{Asked, Setting, Stage, millis, object, payload, secs, story},
};

/// How a publisher leaves without PUBLISH_DONE, and how long it takes the relay to notice.
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

/// A publisher that is killed says nothing. Its viewers must not wait for the idle timeout.
#[test]
fn a_killed_publisher_is_noticed_within_three_seconds() {
    let mut setting = Setting::default();
    setting.client.keep_alive = Some(secs(10));
    story(&setting, |stage| {
        let [publisher, announcer, idle] = [stage.client(), stage.client(), stage.client()];
        let publication = stage.publish(publisher, "a--x");
        let announced = stage.announce(announcer, "b");
        let viewer = stage.client();
        stage.wait(millis(100));
        let seen = stage.subscribe(viewer, "a--x");
        stage.step("publishers that send nothing", secs(60));
        assert!(stage.is_accepted(publication) && stage.is_accepted(announced));
        assert_eq!(stage.gauges().sessions, 4, "they answer pings");
        for moment in 0..5 {
            stage.datagram(publication, moment, 0, b"alive");
            stage.wait(millis(130));
        }
        assert_eq!(stage.outcome(seen).datagram_places().len(), 5);
        stage.sim.kill(publisher);
        stage.step("one is killed", secs(3));
        assert_eq!(stage.counters().publishers_silent, 1);
        assert_eq!(stage.gauges().sessions, 3);
        stage.sim.kill(announcer);
        stage.sim.kill(idle);
        stage.step("another one, and one who publishes nothing", secs(3));
        assert_eq!(stage.counters().publishers_silent, 2);
        assert_eq!(stage.gauges().namespaces, 0);
        assert_eq!(stage.gauges().sessions, 2);
        // Who ended its publications is not watched.
        let [former] = [stage.client()];
        let over = stage.publish(former, "c--x");
        stage.wait(millis(100));
        stage.cancel(over);
        stage.step("the publication ends", secs(3));
        stage.sim.kill(former);
        stage.step("then its session is lost", secs(10));
        assert_eq!(stage.counters().publishers_silent, 2);
    });
}

/// Such a publisher believes in a long round trip, so it repeats what was lost, and answers a ping, only after a while.
#[test]
fn a_publisher_whose_handshake_lost_packets_may_be_silent_for_longer_at_first() {
    story(&Setting::default(), |stage| {
        for objects in [0, 100] {
            let publisher = stage.absent_client();
            let (relay, begin) = (stage.relay, stage.sim.elapsed());
            stage
                .sim
                .blackhole(relay, publisher, begin, begin + millis(900));
            stage.connect(publisher);
            let publication = stage.publish(publisher, &format!("a--{objects}"));
            for group in 0..objects {
                stage.group(publication, group, 1, 10);
                stage.wait(millis(50));
            }
            stage.wait(millis(100));
            stage.sim.kill(publisher);
            stage.step("a publisher is killed", secs(3));
            assert_eq!(stage.gauges().sessions, u64::from(objects == 0));
            stage.step("and noticed, also soon after it came", secs(2));
            assert_eq!(stage.gauges().sessions, 0);
        }
    });
}

#[test]
fn the_silence_of_publishers_may_be_left_to_the_idle_timeout() {
    let mut setting = Setting::default();
    setting.relay.publisher_silence_max = std::time::Duration::ZERO;
    story(&setting, |stage| {
        let publisher = stage.client();
        stage.publish(publisher, "a--x");
        stage.wait(millis(100));
        stage.sim.kill(publisher);
        stage.step("a killed publisher", secs(20));
        assert_eq!(stage.gauges().sessions, 1);
        stage.step("is noticed late", secs(15));
        assert_eq!(
            (stage.gauges().sessions, stage.counters().publishers_silent),
            (0, 0)
        );
    });
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

/// Sends ten groups and PUBLISH_DONE at once, over a link that loses packets.
fn rush(setting: &Setting) {
    story(setting, |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        stage.wait_for_answers(&[publication]);
        let subscribers = stage.clients(3);
        let subscriptions: Vec<_> = subscribers
            .iter()
            .map(|&subscriber| stage.subscribe(subscriber, "a--x"))
            .collect();
        stage.wait_for_answers(&subscriptions);
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

#[test]
fn a_track_that_is_running_out_is_wanted_by_nobody() {
    let mut setting = setting();
    setting.pauses_publishers = true;
    setting.client.uni_streams_max = 1;
    story(&setting, |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        let subscriber = stage.client();
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.wait(millis(50));
        stage.group(publication, 1, 1, 100);
        stage.publish_done(publication, 1);
        stage.step("the end, which the subscriber has no stream for", secs(4));
        assert!(stage.outcome(subscription).done.is_none());
        assert_eq!(stage.gauges().subgroups, 1);
        let again = stage.publish(publisher, "a--x");
        stage.step("the track begins again", millis(100));
        let outcome = stage.outcome(again);
        let answer = outcome.answer.clone().unwrap().unwrap();
        // From draft-20 on, an update says what the acceptance said before.
        let said = outcome.updates.last().unwrap_or(&answer);
        assert_eq!(said.forward, Some(false));
        stage.group(again, 2, 1, 100);
        stage.datagram(again, 2, 9, b"not for the old subscription");
        stage.step("objects nobody asked for", millis(100));
        assert!(stage.outcome(subscription).datagrams.is_empty());
        assert_eq!(stage.gauges().subgroups, 1);
        stage.sim.shutdown(subscriber);
        stage.step("the subscriber leaves", millis(100));
        assert_eq!(stage.gauges().subgroups, 0);
        assert_eq!(stage.gauges().log_bytes, 0);
    });
}

#[test]
fn who_leaves_while_the_publisher_is_away_leaves_nothing_behind() {
    story(&setting(), |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        let subscriber = stage.client();
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.wait(millis(50));
        stage.cancel(publication);
        stage.step("the publisher goes", millis(50));
        stage.cancel(subscription);
        stage.step("the subscriber goes", millis(50));
        assert_eq!(stage.gauges().tracks, 0);
        stage.sim.shutdown(publisher);
        stage.sim.shutdown(subscriber);
        stage.step("both leave", millis(50));
        assert_eq!(stage.wake_up(), None, "no timer is left");
    });
}

#[test]
fn who_comes_back_before_its_fall_is_noticed_is_heard() {
    story(&Setting::default(), |stage| {
        let [first, second, kept, late] = [(); 4].map(|()| stage.client());
        let publication = stage.publish(first, "a--x");
        stage.wait(millis(50));
        let kept = stage.subscribe(kept, "a--x");
        stage.wait(millis(50));
        stage.group(publication, 0, 1, 100);
        stage.datagram(publication, 1, 0, b"datagram");
        let mut cut = stage.open(publication, 2);
        stage.object(publication, &mut cut, 0, b"cut");
        stage.wait(millis(50));
        stage.sim.kill(first);
        stage.step("the publisher falls, and nobody knows", millis(100));
        let again = stage.publish(second, "a--x");
        stage.step("it is back and has published nothing", millis(50));
        let late = stage.subscribe(late, "a--x");
        stage.step("one more subscriber", millis(50));
        let ok = stage.outcome(late).ok.clone().unwrap();
        assert_eq!(ok.parameters.largest_object, None);
        stage.group(again, 0, 1, 100);
        stage.datagram(again, 1, 0, b"datagram");
        stage.group(again, 2, 1, 100);
        stage.publish_done(again, 2);
        stage.step("the same numbers, and the end", secs(1));
        stage.expect_objects(late, &[0, 2], 1, 100);
        assert_eq!(stage.outcome(late).datagram_places(), [(1, 0)]);
        assert_eq!(stage.outcome(kept).datagram_places(), [(1, 0), (1, 0)]);
        for subscription in [kept, late] {
            let done = stage.outcome(subscription).done.as_ref();
            let code = done.map(|done| done.code);
            assert_eq!(
                code,
                Some(PublishDoneCode::TRACK_ENDED),
                "who lingers does not count"
            );
        }
        assert_eq!(stage.counters().duplicates, 0);
        assert_eq!(stage.counters().publishers_anew, 1);
        stage.step("the first session is found dead", secs(60));
        assert_eq!(stage.gauges().tracks, 0);
    });
}

#[test]
fn who_joins_another_that_goes_on_is_one_of_two() {
    story(&Setting::default(), |stage| {
        let [first, second, subscriber] = [(); 3].map(|()| stage.client());
        let publication = stage.publish(first, "a--x");
        stage.wait(millis(50));
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.wait(millis(50));
        stage.group(publication, 0, 2, 100);
        stage.datagram(publication, 1, 0, b"datagram");
        stage.step("one publisher", millis(50));
        let joining = stage.publish(second, "a--x");
        stage.step("another that has published nothing", millis(50));
        stage.group(publication, 2, 2, 100);
        stage.step("the first goes on", millis(50));
        stage.group(joining, 0, 2, 100);
        stage.datagram(joining, 1, 0, b"datagram");
        stage.group(joining, 2, 2, 100);
        stage.step("the other says the same", millis(100));
        stage.expect_objects(subscription, &[0, 2], 2, 100);
        assert_eq!(stage.outcome(subscription).datagram_places(), [(1, 0)]);
        assert_eq!(stage.counters().duplicates, 5);
        stage.publish_done(joining, 2);
        stage.step("and is done", secs(5));
        assert!(stage.outcome(subscription).done.is_none());
    });
}

#[test]
fn late_bytes_of_a_fallen_publisher_do_not_silence_the_one_that_begins_anew() {
    // The new publisher begins with the group that the other was in the middle of, or reaches it later.
    for before in [None, Some(0)] {
        story(&Setting::default(), |stage| {
            let [first, second, subscriber] = [(); 3].map(|()| stage.client());
            let publication = stage.publish(first, "a--x");
            stage.wait(millis(50));
            let subscription = stage.subscribe(subscriber, "a--x");
            stage.wait(millis(50));
            let mut old = stage.open(publication, 1);
            stage.object_with(publication, &mut old, &object(0, 300), &[1; 100]);
            stage.step("in the middle of an object", millis(50));
            let again = stage.publish(second, "a--x");
            stage.step("a newcomer has published nothing", millis(50));
            if let Some(group) = before {
                stage.group(again, group, 1, 200);
                stage.wait(millis(50));
            }
            let late = if before.is_some() { 200 } else { 100 };
            stage.write(publication, old.stream, vec![1; late].into(), false);
            stage.step("late bytes", millis(50));
            stage.group(again, 1, 2, 200);
            stage.step("the newcomer has that object, too", millis(50));
            stage.write(publication, old.stream, vec![1; 200 - late].into(), false);
            stage.step("and that is all", millis(100));
            let received = stage.outcome(subscription).objects();
            for id in 0..2 {
                assert!(received.contains(&(1, id, payload(1, id, 200))), "{id}");
            }
            let counters = stage.counters();
            let found = (counters.duplicates, counters.tracks_malformed);
            assert_eq!((found, counters.publishers_anew), ((0, 0), 1));
        });
    }
}

#[test]
fn who_reads_the_rest_of_an_ended_track_waits_for_nobody() {
    let mut setting = Setting::default();
    setting.relay.publisher_linger = secs(1);
    setting.quic.send_bytes_max = 30_000;
    story(&setting, |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        let subscriber = stage.client();
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.step("subscribe", millis(100));
        slow_down(stage, subscription, 10_000);
        stage.group(publication, 0, 10, 12_500);
        stage.publish_done(publication, 1);
        stage.step("the end, which a slow subscriber reads for 10 s", secs(6));
        assert_eq!(stage.outcome(subscription).done, None);
        assert_eq!(stage.gauges().subscriptions, 1);
        assert_eq!(stage.counters().tracks_abandoned, 0);
        stage.step("until it has read all", secs(10));
        assert!(stage.outcome(subscription).done.is_some());
        assert_eq!(stage.gauges().tracks, 0);
    });
}

#[test]
fn a_publisher_whose_last_subscriber_was_too_slow_is_let_go() {
    let mut setting = Setting::default();
    setting.relay.lag_bytes_max = 40_000;
    setting.quic.send_bytes_max = 30_000;
    story(&setting, |stage| {
        let [publisher, subscriber] = [stage.client(), stage.client()];
        stage.direct(publisher, |actor| actor.manner = Manner::Accept(7));
        stage.announce(publisher, "a");
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.step("subscribe", millis(100));
        let source = stage.source(publisher, 0, 7);
        slow_down(stage, subscription, 10_000);
        stage.group(source, 0, 100, 1_500);
        stage.step("a group that is too large", secs(20));
        let done = stage.outcome(subscription).done.as_ref();
        let code = done.map(|done| done.code);
        assert_eq!(code, Some(PublishDoneCode::TOO_FAR_BEHIND));
        assert!(stage.outcome(source).closed.is_some());
        assert_eq!(stage.gauges().tracks, 0);
    });
}
