//! Several threads at one address: a track is published on one, and its subscribers are on all.

use weir_moqt::{
    error::{PublishDoneCode, RequestErrorCode},
    location::Location,
    name::Namespace,
    parameter::{Filter, Parameters},
};
use weir_relay::{Gauges, Relay};
use weir_sim::NodeId;

use crate::{
    actor::{Heard, Manner},
    stage::{Asked, Setting, Stage, forward, millis, rendezvous, secs, space, story},
};

impl Stage {
    /// Creates a client that has connected to thread number `thread` of the relay, after as many attempts as chance
    /// requires.
    pub(crate) fn client_on(&mut self, thread: usize) -> NodeId {
        let thread = self.threads[thread];
        for _ in 0..100 {
            let before = self.sim.app::<Relay>(thread).gauges().sessions;
            let node = self.client();
            if self.sim.app::<Relay>(thread).gauges().sessions > before {
                return node;
            }
            self.sim.shutdown(node);
            self.wait(millis(50));
        }
        panic!("chance does not find that thread");
    }

    /// Returns the gauges of one thread of the relay.
    pub(crate) fn gauges_of(&self, thread: usize) -> Gauges {
        self.sim.app::<Relay>(self.threads[thread]).gauges()
    }
}

pub(crate) fn two() -> Setting {
    Setting {
        threads: 2,
        ..Setting::default()
    }
}

/// A publisher on the first thread, subscribers on both.
struct Cast {
    publisher: NodeId,
    here: Vec<NodeId>,
    there: Vec<NodeId>,
}

fn cast(stage: &mut Stage) -> Cast {
    let mut on = |thread, count: usize| {
        (0..count)
            .map(|_| stage.client_on(thread))
            .collect::<Vec<_>>()
    };
    Cast {
        publisher: on(0, 1)[0],
        here: on(0, 2),
        there: on(1, 3),
    }
}

impl Cast {
    fn subscribe(&self, stage: &mut Stage, track: &str) -> Vec<Asked> {
        let all = self.here.iter().chain(&self.there);
        all.map(|&node| stage.subscribe(node, track)).collect()
    }
}

fn expect_datagrams(stage: &Stage, subscription: Asked, places: &[(u64, u64)]) {
    assert_eq!(stage.outcome(subscription).datagram_places(), places);
}

#[test]
fn an_object_crosses_once_and_reaches_all() {
    for is_steered in [true, false] {
        let setting = Setting {
            is_steered,
            ..two()
        };
        story(&setting, |stage| {
            let cast = cast(stage);
            let publication = stage.publish(cast.publisher, "a--x");
            stage.wait(millis(50));
            let subscriptions = cast.subscribe(stage, "a--x");
            stage.step("all subscribe", millis(100));
            stage.group(publication, 1, 3, 5000);
            stage.datagram(publication, 2, 0, b"datagram");
            stage.step("objects", millis(200));
            for &subscription in &subscriptions {
                stage.expect_objects(subscription, &[1], 3, 5000);
                expect_datagrams(stage, subscription, &[(2, 0)]);
            }
            let counters = stage.counters();
            assert_eq!(counters.objects_crossed, 4, "once each for the three there");
            assert_eq!(
                (counters.datagrams_received, counters.datagrams_sent),
                (1, 5)
            );
            assert_eq!(counters.stream_objects_received, 3);
            assert_eq!(
                (stage.gauges_of(0).crossings, stage.gauges_of(1).crossings),
                (1, 0)
            );
            stage.publish_done(publication, 1);
            stage.step("the end", secs(1));
            for subscription in subscriptions {
                let done = stage.outcome(subscription).done.as_ref().unwrap();
                assert_eq!(done.code, PublishDoneCode::TRACK_ENDED);
                assert_eq!(done.stream_count, Some(1));
            }
            let gauges = stage.gauges();
            assert_eq!(
                (gauges.tracks, gauges.crossings, gauges.subgroups),
                (0, 0, 0)
            );
        });
    }
}

#[test]
fn the_crossing_rests_as_soon_as_the_last_subscriber_there_leaves() {
    story(&two(), |stage| {
        let cast = cast(stage);
        let publication = stage.publish(cast.publisher, "a--x");
        stage.wait(millis(50));
        let subscriptions = cast.subscribe(stage, "a--x");
        stage.step("all subscribe", millis(100));
        stage.datagram(publication, 0, 0, b"one");
        stage.step("an object", millis(100));
        assert_eq!(stage.counters().objects_crossed, 1);
        for &subscription in &subscriptions[2..] {
            stage.cancel(subscription);
        }
        stage.step("those there leave", millis(100));
        stage.datagram(publication, 0, 1, b"two");
        stage.group(publication, 1, 2, 100);
        stage.step("more objects", millis(100));
        assert_eq!(
            stage.counters().objects_crossed,
            1,
            "nobody there wants them"
        );
        stage.expect_objects(subscriptions[0], &[1], 2, 100);
        let next = Parameters {
            filter: Some(Filter::NextGroupStart),
            ..Parameters::default()
        };
        let back = stage.subscribe_with(cast.there[0], "a--x", next);
        stage.step("one comes back", millis(100));
        let ok = stage.outcome(back).ok.clone().unwrap();
        let largest = Location {
            group: 1,
            object: 1,
        };
        assert_eq!(
            ok.parameters.largest_object,
            Some(largest),
            "as it stands now"
        );
        stage.datagram(publication, 1, 7, b"of the group under way");
        stage.group(publication, 2, 2, 100);
        stage.step("the next group", millis(100));
        stage.expect_objects(back, &[2], 2, 100);
        expect_datagrams(stage, back, &[]);
    });
}

#[test]
fn an_asked_publisher_is_asked_once_and_let_go_when_all_have_left() {
    story(&two(), |stage| {
        let cast = cast(stage);
        stage.direct(cast.publisher, |actor| actor.manner = Manner::Accept(42));
        stage.announce(cast.publisher, "a");
        stage.step("a namespace", millis(50));
        let subscriptions = cast.subscribe(stage, "a--x");
        stage.step("all subscribe", millis(100));
        assert_eq!(stage.actor(cast.publisher).asked.len(), 1);
        let source = stage.source(cast.publisher, 0, 42);
        stage.group(source, 1, 3, 100);
        stage.step("a group", millis(100));
        for &subscription in &subscriptions {
            stage.expect_objects(subscription, &[1], 3, 100);
        }
        for &subscription in &subscriptions[..2] {
            stage.cancel(subscription);
        }
        stage.step("those beside it leave", millis(100));
        stage.group(source, 2, 3, 100);
        stage.step("a group", millis(100));
        stage.expect_objects(subscriptions[2], &[1, 2], 3, 100);
        for &subscription in &subscriptions[2..] {
            stage.cancel(subscription);
        }
        stage.step("all leave", millis(100));
        let outcome = &stage.actor(cast.publisher).exchanges[&source.id];
        assert!(outcome.closed.is_some(), "the relay's subscription ended");
        let gauges = stage.gauges();
        assert_eq!((gauges.tracks, gauges.crossings), (0, 0));
    });
}

#[test]
fn who_waits_there_misses_nothing_of_a_publisher_that_comes() {
    story(&two(), |stage| {
        let cast = cast(stage);
        let waiting = stage.subscribe_with(cast.there[0], "a--x", rendezvous(secs(9)));
        stage.step("one waits", millis(100));
        let coming = stage.coming(cast.publisher);
        for group in 0..20 {
            stage.group(coming, group, 1, 100);
        }
        stage.publish(cast.publisher, "a--x");
        stage.step("objects and a publisher", millis(200));
        let groups: Vec<u64> = (0..20).collect();
        stage.expect_objects(waiting, &groups, 1, 100);
        let missing = stage.subscribe(cast.there[1], "b--y");
        stage.step("another track", millis(100));
        assert_eq!(
            stage.refusal(missing),
            Some(RequestErrorCode::DOES_NOT_EXIST)
        );
    });
}

#[test]
fn a_publisher_may_vanish_and_come_back_on_the_other_thread() {
    story(&two(), |stage| {
        let cast = cast(stage);
        stage.publish(cast.publisher, "a--x");
        stage.wait(millis(50));
        let subscriptions = cast.subscribe(stage, "a--x");
        stage.step("all subscribe", millis(100));
        stage.sim.shutdown(cast.publisher);
        stage.step("the publisher goes", secs(1));
        let other = stage.client_on(1);
        let again = stage.publish(other, "a--x");
        stage.step("and comes back elsewhere", millis(100));
        stage.group(again, 5, 3, 100);
        stage.datagram(again, 6, 0, b"datagram");
        stage.step("objects", secs(10));
        for &subscription in &subscriptions {
            stage.expect_objects(subscription, &[5], 3, 100);
            expect_datagrams(stage, subscription, &[(6, 0)]);
            assert_eq!(stage.outcome(subscription).done, None);
        }
        stage.sim.shutdown(other);
        stage.step("the publisher goes for good", secs(4));
        assert_eq!(
            stage.outcome(subscriptions[4]).done,
            None,
            "it could come back"
        );
        stage.step("and is given up", secs(3));
        for subscription in subscriptions {
            assert!(stage.outcome(subscription).done.is_some());
        }
    });
}

#[test]
fn who_comes_back_on_the_other_thread_before_its_fall_is_noticed_is_heard() {
    story(&two(), |stage| {
        let cast = cast(stage);
        let publication = stage.publish(cast.publisher, "a--x");
        stage.wait(millis(50));
        let subscriptions = cast.subscribe(stage, "a--x");
        stage.wait(millis(50));
        stage.group(publication, 0, 1, 100);
        stage.datagram(publication, 1, 0, b"datagram");
        stage.step("objects", millis(50));
        let other = stage.client_on(1);
        stage.sim.kill(cast.publisher);
        stage.step("the publisher falls, and nobody knows", millis(100));
        let again = stage.publish(other, "a--x");
        stage.step("it is back on the other thread", millis(100));
        stage.group(again, 0, 1, 100);
        stage.datagram(again, 1, 0, b"datagram");
        stage.step("the same numbers", millis(100));
        for &subscription in &subscriptions {
            let objects = stage.outcome(subscription).objects();
            assert_eq!(objects.len(), 2);
            expect_datagrams(stage, subscription, &[(1, 0), (1, 0)]);
        }
        stage.publish_done(again, 1);
        stage.step("the end, as soon as the first is found dead", secs(60));
        for &subscription in &subscriptions {
            assert!(stage.outcome(subscription).done.is_some());
        }
    });
}

#[test]
fn two_publishers_on_two_threads_are_one_to_everybody() {
    story(&two(), |stage| {
        let cast = cast(stage);
        let other = stage.client_on(1);
        let first = stage.publish(cast.publisher, "a--x");
        let second = stage.publish(other, "a--x");
        stage.wait(millis(50));
        let subscriptions = cast.subscribe(stage, "a--x");
        stage.step("all subscribe", millis(100));
        for publication in [first, second] {
            stage.group(publication, 1, 3, 100);
            stage.datagram(publication, 2, 0, b"datagram");
            stage.step("the same from each", millis(30));
        }
        stage.cancel(first);
        stage.step("one leaves", millis(100));
        stage.group(second, 3, 2, 100);
        stage.step("the other goes on", secs(8));
        for &subscription in &subscriptions {
            let mut places: Vec<_> = stage.outcome(subscription).objects();
            places.sort();
            let places: Vec<_> = places.iter().map(|(group, id, _)| (*group, *id)).collect();
            assert_eq!(places, [(1, 0), (1, 1), (1, 2), (3, 0), (3, 1)]);
            expect_datagrams(stage, subscription, &[(2, 0)]);
            assert_eq!(stage.outcome(subscription).done, None);
        }
        stage.cancel(second);
        stage.step("nobody is left", secs(7));
        for subscription in subscriptions {
            assert!(
                stage.outcome(subscription).done.is_some(),
                "nobody keeps it alive"
            );
        }
    });
}

#[test]
fn names_are_known_on_all_threads() {
    story(&two(), |stage| {
        let cast = cast(stage);
        let watching = stage.watch(cast.there[0], Namespace::EMPTY);
        let collecting = stage.collect(cast.there[1], space("a"), Parameters::default());
        let one = stage.announce(cast.publisher, "a");
        let same = stage.announce(cast.here[0], "a");
        let publication = stage.publish(cast.publisher, "a--x");
        stage.step("two announce, one publishes", millis(100));
        assert_eq!(stage.heard(watching), [Heard::Came(space("a"))]);
        assert!(stage.is_accepted(collecting));
        let offer = stage.offered(cast.there[1], 0);
        stage.group(publication, 1, 3, 100);
        stage.step("a group", millis(100));
        stage.expect_objects(offer, &[1], 3, 100);
        stage.cancel(one);
        stage.step("one withdraws", millis(100));
        assert_eq!(stage.heard(watching).len(), 1, "the other still has it");
        stage.cancel(same);
        stage.step("both have", millis(100));
        assert_eq!(stage.heard(watching)[1], Heard::Went(space("a")));
        let late = stage.collect(cast.there[0], space("a"), Parameters::default());
        stage.step("who comes late is offered it too", millis(100));
        assert!(stage.is_accepted(late));
        let offer = &stage.actor(cast.there[0]).offered[0].1;
        let largest = Location {
            group: 1,
            object: 2,
        };
        assert_eq!(offer.parameters.largest_object, Some(largest));
    });
}

#[test]
fn paused_subscribers_pause_the_crossing() {
    story(&two(), |stage| {
        let cast = cast(stage);
        let publication = stage.publish(cast.publisher, "a--x");
        stage.wait(millis(50));
        let paused = stage.subscribe_with(cast.there[0], "a--x", forward(false));
        stage.step("a subscriber that wants nothing yet", millis(100));
        assert!(stage.is_accepted(paused));
        stage.datagram(publication, 0, 0, b"unwanted");
        stage.wait(millis(100));
        assert_eq!(stage.counters().objects_crossed, 0);
        stage.update(paused, forward(true));
        stage.step("it wants", millis(100));
        stage.datagram(publication, 0, 1, b"wanted");
        stage.step("and gets", millis(100));
        expect_datagrams(stage, paused, &[(0, 1)]);
    });
}

#[test]
fn when_all_have_left_nothing_is_held() {
    story(&two(), |stage| {
        let cast = cast(stage);
        stage.announce(cast.publisher, "b");
        let publication = stage.publish(cast.publisher, "a--x");
        stage.wait(millis(50));
        cast.subscribe(stage, "a--x");
        stage.step("all subscribe", millis(100));
        stage.group(publication, 1, 3, 100);
        stage.step("a group", millis(100));
        for node in cast.here.iter().chain(&cast.there).chain([&cast.publisher]) {
            stage.sim.shutdown(*node);
        }
        stage.step("all leave", secs(60));
        for thread in [0, 1] {
            let gauges = stage.gauges_of(thread);
            let held = Gauges {
                tracks_resting: gauges.tracks_resting,
                cache_objects: gauges.cache_objects,
                cache_bytes: gauges.cache_bytes,
                ..Gauges::default()
            };
            assert_eq!(gauges, held);
        }
    });
}

#[test]
fn who_pauses_keeps_a_track_that_another_thread_publishes_too() {
    for is_done in [true, false] {
        let mut setting = two();
        setting.relay.publisher_linger = secs(1);
        story(&setting, |stage| {
            let cast = cast(stage);
            let other = stage.client_on(1);
            let publication = stage.publish(cast.publisher, "a--x");
            stage.wait(millis(50));
            let subscription = stage.subscribe(cast.here[0], "a--x");
            stage.step("subscribe beside the publisher", millis(50));
            stage.update(subscription, forward(false));
            stage.step("pause", millis(50));
            let second = stage.publish(other, "a--x");
            stage.step("a second publisher, there", millis(50));
            if is_done {
                stage.publish_done(publication, 0);
            } else {
                stage.cancel(publication);
            }
            stage.step("the first one goes", secs(5));
            assert!(stage.outcome(subscription).done.is_none());
            stage.update(subscription, forward(true));
            stage.step("go on", millis(50));
            stage.group(second, 1, 3, 100);
            stage.step("objects", millis(100));
            stage.expect_objects(subscription, &[1], 3, 100);
            stage.publish_done(second, 1);
            stage.step("the end", secs(1));
            let done = stage.outcome(subscription).done.as_ref().unwrap();
            assert_eq!(done.code, PublishDoneCode::TRACK_ENDED);
            assert_eq!(done.stream_count, Some(1));
        });
    }
}

#[test]
fn a_publisher_that_comes_back_counts_anew_beside_one_that_rests_elsewhere() {
    story(&two(), |stage| {
        let cast = cast(stage);
        let other = stage.client_on(1);
        let first = stage.publish(cast.publisher, "a--x");
        stage.wait(millis(50));
        let subscription = stage.subscribe(cast.here[0], "a--x");
        stage.step("subscribe", millis(50));
        let second = stage.publish(other, "a--x");
        stage.step("a second publisher, there", millis(50));
        stage.datagram(first, 0, 0, b"datagram");
        stage.step("an object", millis(50));
        stage.update(subscription, forward(false));
        stage.step("pause: the one there rests", millis(50));
        stage.cancel(first);
        stage.step("the one here goes", millis(500));
        let again = stage.publish(cast.publisher, "a--x");
        stage.update(subscription, forward(true));
        stage.step("it comes back", millis(50));
        stage.datagram(again, 0, 0, b"datagram");
        stage.step("and begins at group 0", millis(50));
        expect_datagrams(stage, subscription, &[(0, 0), (0, 0)]);
        stage.publish_done(again, 0);
        stage.publish_done(second, 0);
    });
}
