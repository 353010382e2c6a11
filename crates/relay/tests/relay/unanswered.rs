//! Announcers that answer no request of the relay hold up nobody for long.

use weir_moqt::{
    error::RequestErrorCode,
    location::Location,
    message::SubscribeOk,
    property::Properties,
    session::{RequestId, Session},
};
use weir_quic::Connection;
use weir_sim::NodeId;

use crate::{
    actor::Manner,
    archive::{ALL, Serving},
    stage::{Asked, Setting, Stage, millis, rendezvous, secs, story},
};

/// Creates clients that announce `a` and never answer.
fn silent(stage: &mut Stage, count: usize) -> Vec<NodeId> {
    let nodes = stage.clients(count);
    for &node in &nodes {
        stage.announce(node, "a");
        stage.wait(millis(1));
    }
    nodes
}

/// Creates a client that announces `a` and accepts each SUBSCRIBE.
fn honest(stage: &mut Stage) -> NodeId {
    let node = stage.client();
    stage.direct(node, |actor| actor.manner = Manner::Accept(42));
    stage.announce(node, "a");
    stage.step("announcements", millis(100));
    node
}

/// Checks that a request was granted after `from` and before `to`.
fn expect_granted(stage: &Stage, asked: Asked, begin: std::time::Instant, (from, to): (u64, u64)) {
    assert!(stage.is_accepted(asked), "{:?}", stage.outcome(asked).error);
    let answered = stage.outcome(asked).answered_at.expect("it is answered");
    let took = answered - begin;
    assert!(took >= millis(from) && took < millis(to), "{took:?}");
}

#[test]
fn of_two_announcers_one_may_be_silent() {
    story(&Setting::default(), |stage| {
        silent(stage, 1);
        let publisher = honest(stage);
        let (subscriber, begin) = (stage.client(), stage.sim.now());
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.step("subscribe", secs(1));
        expect_granted(stage, subscription, begin, (0, 100));
        let source = stage.source(publisher, 0, 42);
        stage.group(source, 1, 3, 100);
        stage.step("objects", secs(1));
        stage.expect_objects(subscription, &[1], 3, 100);
    });
}

#[test]
fn silent_announcers_keep_no_place_from_others() {
    let mut setting = Setting::default();
    setting.relay.publishers_per_track_max = 3;
    story(&setting, |stage| {
        let nodes = silent(stage, 3);
        let publisher = honest(stage);
        let (subscriber, begin) = (stage.client(), stage.sim.now());
        let first = stage.subscribe(subscriber, "a--x");
        stage.step("three are asked, and do not answer", secs(1));
        assert!(stage.actor(publisher).asked.is_empty());
        stage.step("so the fourth is asked", secs(2));
        expect_granted(stage, first, begin, (2000, 2100));
        assert_eq!(stage.counters().publishers_unresponsive, 3);
        let begin = stage.sim.now();
        stage.direct(publisher, |actor| actor.manner = Manner::Accept(43));
        let second = stage.subscribe(subscriber, "a--y");
        stage.step("the next track waits for none of them", secs(1));
        expect_granted(stage, second, begin, (0, 100));
        let asked = nodes.iter().map(|&node| stage.actor(node).asked.len());
        assert_eq!(asked.collect::<Vec<_>>(), [2; 3], "they are asked still");
        for subscription in [first, second] {
            stage.cancel(subscription);
        }
        stage.step("nobody subscribes", secs(1));
        assert_eq!(stage.gauges().tracks, 0);
    });
}

#[test]
fn silent_announcers_keep_no_place_from_who_publishes() {
    let mut setting = Setting::default();
    setting.relay.publishers_per_track_max = 2;
    story(&setting, |stage| {
        silent(stage, 2);
        let [subscriber, publisher] = [stage.client(), stage.client()];
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.step("both are asked", millis(100));
        let publication = stage.publish(publisher, "a--x");
        stage.step("another publishes", millis(100));
        assert!(stage.is_accepted(publication));
        assert!(stage.is_accepted(subscription));
        stage.group(publication, 1, 3, 100);
        stage.step("objects", secs(5));
        stage.expect_objects(subscription, &[1], 3, 100);
    });
}

#[test]
fn a_silent_announcer_does_not_hide_another_relay() {
    for patience in [secs(0), secs(20)] {
        story(&Setting::default(), |stage| {
            let edge = stage.edge(&[stage.relay]);
            stage.await_links(edge);
            let publisher = stage.client();
            for track in ["a--x", "a--y"] {
                stage.publish(publisher, track);
            }
            let [hostile, subscriber] = [(); 2].map(|()| stage.client_at(edge));
            stage.announce(hostile, "a");
            stage.step("a silent announcer at the edge", millis(200));
            let begin = stage.sim.now();
            let first = stage.subscribe_with(subscriber, "a--x", rendezvous(patience));
            stage.step("who does not answer", secs(4));
            expect_granted(stage, first, begin, (2000, 2200));
            let begin = stage.sim.now();
            let second = stage.subscribe_with(subscriber, "a--y", rendezvous(patience));
            stage.step("is not waited for again", secs(1));
            expect_granted(stage, second, begin, (0, 200));
            assert_eq!(stage.counters_at(edge).publishers_unresponsive, 1);
        });
    }
}

#[test]
fn silence_is_an_error_in_the_end() {
    story(&Setting::default(), |stage| {
        silent(stage, 1);
        let subscriber = stage.client();
        let first = stage.subscribe(subscriber, "a--x");
        stage.step("the only announcer is silent", secs(5));
        let second = stage.subscribe(subscriber, "a--y");
        stage.step("to everybody", secs(4));
        assert!(stage.outcome(first).answer.is_none(), "it may still answer");
        stage.step("too long", secs(2));
        let code = RequestErrorCode::TIMEOUT;
        assert_eq!(stage.refusal(first), Some(code));
        assert_eq!(stage.refusal(second), None);
        stage.step("for both", secs(5));
        assert_eq!(stage.refusal(second), Some(code));
        assert_eq!(stage.gauges().tracks, 0);
    });
}

#[test]
fn a_late_answer_counts_and_clears_the_name() {
    let mut setting = Setting::default();
    setting.relay.publishers_per_track_max = 1;
    story(&setting, |stage| {
        let publisher = silent(stage, 1)[0];
        let subscriber = stage.client();
        let first = stage.subscribe(subscriber, "a--x");
        stage.step("the only announcer is slow", secs(5));
        let id = stage.asked(publisher, 0);
        stage.act(publisher, |session, connection| {
            answer(session, connection, id);
        });
        stage.step("and answers", millis(100));
        assert!(stage.is_accepted(first));
        let publication = stage.source(publisher, 0, 42);
        stage.group(publication, 1, 3, 100);
        stage.step("objects", secs(1));
        stage.expect_objects(first, &[1], 3, 100);
        let other = honest(stage);
        let begin = stage.sim.now();
        let second = stage.subscribe(subscriber, "a--y");
        stage.step("it is waited for again", secs(1));
        assert!(stage.actor(other).asked.is_empty());
        stage.step("but not longer", secs(2));
        expect_granted(stage, second, begin, (2000, 2100));
    });
}

fn answer(session: &mut Session, connection: &mut Connection<'_>, id: RequestId) {
    let ok = SubscribeOk {
        track_alias: 42,
        parameters: weir_moqt::parameter::Parameters::default(),
        properties: Properties::EMPTY,
    };
    session.subscribe_ok(connection, id, ok);
}

#[test]
fn fetches_go_on_to_the_next_announcer() {
    story(&Setting::default(), |stage| {
        let hostile = silent(stage, 1)[0];
        let publisher = honest(stage);
        stage.direct(publisher, |actor| {
            actor.archive.fill(3, 9, 3, 500);
            actor.archive.serving = Serving::Serve;
        });
        let client = stage.client();
        let first = stage.fetch(client, "a--x", (3, 0), (5, ALL));
        stage.step("the first announcer does not answer", secs(3));
        assert_eq!(stage.expect_complete(first), Location::new(5, ALL));
        assert_eq!(stage.fetched(first).places(500).len(), 9);
        assert_eq!(stage.fetched_from(hostile).len(), 1);
        assert_eq!(stage.counters().publishers_unresponsive, 1);
        let second = stage.fetch(client, "a--y", (3, 0), (5, ALL));
        stage.step("and is asked last from now on", secs(1));
        assert_eq!(stage.expect_complete(second), Location::new(5, ALL));
        assert_eq!(stage.fetched_from(hostile).len(), 1);
    });
}

#[test]
fn a_track_status_goes_on_to_the_next_announcer() {
    story(&Setting::default(), |stage| {
        let hostile = silent(stage, 1)[0];
        let publisher = honest(stage);
        let standing = Ok(Location::new(7, 1));
        stage.direct(publisher, |actor| actor.archive.standing = Some(standing));
        let (client, begin) = (stage.client(), stage.sim.now());
        let first = stage.track_status(client, "a--x");
        stage.step("the first announcer does not answer", secs(3));
        expect_granted(stage, first, begin, (2000, 2100));
        let begin = stage.sim.now();
        let second = stage.track_status(client, "a--y");
        stage.step("and is asked last from now on", secs(1));
        expect_granted(stage, second, begin, (0, 100));
        assert_eq!(stage.actor(hostile).archive.track_statuses.len(), 1);
        assert_eq!(stage.counters().publishers_unresponsive, 1);
    });
}

#[test]
fn an_announcer_that_accepts_and_sends_nothing_hides_no_other() {
    story(&Setting::default(), |stage| {
        let [_silent, publisher] = [(); 2].map(|()| honest(stage));
        let subscriber = stage.client();
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.step("both accept", secs(1));
        assert!(stage.is_accepted(subscription));
        let source = stage.source(publisher, 0, 42);
        stage.group(source, 1, 3, 100);
        stage.step("one sends", secs(1));
        stage.expect_objects(subscription, &[1], 3, 100);
    });
}

/// A live track may be silent for hours, so the relay does not give up a publisher that sends nothing. Only a reserved
/// namespace keeps such a publisher out.
#[test]
fn subscribers_of_an_announcer_that_sends_nothing_wait_at_no_cost() {
    let mut setting = Setting::default();
    setting.client.keep_alive = Some(secs(2));
    story(&setting, |stage| {
        let silent = honest(stage);
        let clients = stage.clients(20).into_iter();
        let subscriptions: Vec<_> = clients.map(|node| stage.subscribe(node, "a--x")).collect();
        stage.step("it accepts", secs(1));
        assert!(subscriptions.iter().all(|it| stage.is_accepted(*it)));
        let before = stage.gauges();
        assert_eq!((before.subscriptions, before.log_bytes), (20, 0));
        stage.step("and sends nothing", secs(120));
        assert_eq!(stage.gauges(), before);
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        stage.wait(millis(100));
        stage.group(publication, 1, 3, 100);
        stage.step("another publishes", secs(1));
        stage.publish_done(publication, 1);
        stage.step("and ends the track, which the first does not", secs(5));
        for &subscription in &subscriptions {
            stage.expect_objects(subscription, &[1], 3, 100);
            assert!(stage.outcome(subscription).done.is_none());
        }
        stage.sim.shutdown(silent);
        stage.step("until it leaves", secs(6));
        for &subscription in &subscriptions {
            assert!(stage.outcome(subscription).done.is_some());
        }
        assert_eq!(stage.gauges().subscriptions, 0);
    });
}

#[test]
fn an_answer_that_is_too_long_to_be_passed_on_is_no_subscription() {
    story(&Setting::default(), |stage| {
        let publisher = honest(stage);
        // The relay's alias takes one byte more than that of the publisher.
        let other = stage.client();
        for number in 0..200 {
            stage.publish(other, &format!("b--{number}"));
        }
        let subscriber = stage.client();
        stage.step("other tracks", millis(500));
        let mut refused = 0;
        for (alias, bytes) in (65_515..65_530).enumerate() {
            let properties = Properties::builder().bytes(0x3ff1, vec![0; bytes]).build();
            stage.direct(publisher, |actor| {
                actor.manner = Manner::Accept(alias as u64);
                actor.archive.properties = properties;
            });
            let before = stage.gauges().subscriptions;
            let subscription = stage.subscribe(subscriber, &format!("a--{bytes}"));
            while stage.outcome(subscription).answered_at.is_none() {
                stage.wait(millis(1));
            }
            let is_accepted = stage.is_accepted(subscription);
            let added = stage.gauges().subscriptions - before;
            assert_eq!(added, u64::from(is_accepted), "with {bytes} bytes");
            refused += u64::from(!is_accepted);
            stage.step("the answer", millis(100));
        }
        assert!(0 < refused && refused < 15, "{refused} are refused");
    });
}
