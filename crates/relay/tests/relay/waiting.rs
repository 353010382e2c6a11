//! Subscribers that arrive before the publisher.

use weir_moqt::{
    error::{RequestErrorCode, ResetCode},
    location::Location,
    parameter::{Filter, Parameters},
    session::CloseReason,
};

use crate::{
    actor::Manner,
    stage::{Setting, forward, millis, rendezvous, secs, story},
};

#[test]
fn without_a_publisher_there_is_no_track() {
    story(&Setting::default(), |stage| {
        let subscriber = stage.client();
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.step("subscribe to nothing", millis(50));
        let code = RequestErrorCode::DOES_NOT_EXIST;
        assert_eq!(stage.refusal(subscription), Some(code));
        assert_eq!(stage.counters().refused_does_not_exist, 1);
        assert_eq!(stage.gauges().tracks, 0);
        assert_eq!(stage.gauges().waiting, 0);
    });
}

#[test]
fn those_who_wait_get_the_track_that_is_published() {
    story(&Setting::default(), |stage| {
        let subscriber = stage.client();
        let subscription = stage.subscribe_with(subscriber, "a--x", rendezvous(secs(10)));
        stage.step("wait", secs(5));
        assert_eq!(stage.gauges().waiting, 1);
        assert!(stage.outcome(subscription).answer.is_none());
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        stage.step("publish", millis(50));
        assert!(stage.is_accepted(subscription));
        stage.datagram(publication, 0, 0, b"datagram");
        stage.group(publication, 1, 3, 100);
        stage.step("objects", secs(10));
        stage.expect_objects(subscription, &[1], 3, 100);
        assert_eq!(stage.outcome(subscription).datagram_places(), [(0, 0)]);
        assert_eq!(stage.gauges().waiting, 0);
    });
}

#[test]
fn those_who_wait_are_asked_for_when_their_namespace_comes() {
    story(&Setting::default(), |stage| {
        let subscriber = stage.client();
        let subscription = stage.subscribe_with(subscriber, "a-b--x", rendezvous(secs(10)));
        stage.step("wait", secs(5));
        let (stranger, publisher) = (stage.client(), stage.client());
        stage.direct(publisher, |actor| actor.manner = Manner::Accept(42));
        stage.announce(stranger, "b");
        stage.announce(publisher, "a");
        stage.step("a namespace", millis(100));
        assert!(stage.is_accepted(subscription));
        assert!(stage.actor(stranger).asked.is_empty());
        assert_eq!(stage.actor(publisher).asked.len(), 1);
        let subscribe = &stage.actor(publisher).asked[0].1;
        assert_eq!(subscribe.track.to_string(), "a-b--x");
        assert_eq!(subscribe.parameters.forward, Some(true));
        let source = stage.source(publisher, 0, 42);
        stage.group(source, 1, 3, 100);
        stage.step("objects", secs(10));
        stage.expect_objects(subscription, &[1], 3, 100);
    });
}

#[test]
fn nobody_waits_longer_than_agreed() {
    let mut setting = Setting::default();
    setting.relay.rendezvous_max = secs(4);
    story(&setting, |stage| {
        let (one, other) = (stage.client(), stage.client());
        let begin = stage.sim.now();
        let short = stage.subscribe_with(one, "a--x", rendezvous(secs(2)));
        let long = stage.subscribe_with(other, "a--x", rendezvous(secs(60)));
        stage.step("wait in vain", secs(10));
        for (subscription, time) in [(short, secs(2)), (long, secs(4))] {
            let code = RequestErrorCode::TIMEOUT;
            assert_eq!(stage.refusal(subscription), Some(code));
            let answered = stage.outcome(subscription).answered_at.unwrap();
            assert_eq!(answered - begin, time + millis(20));
        }
        assert_eq!(stage.counters().refused_timeout, 2);
        assert_eq!(stage.gauges().tracks, 0);
    });
}

#[test]
fn a_publishers_refusal_reaches_the_subscriber() {
    let code = RequestErrorCode::UNAUTHORIZED;
    refuse(code, code);
}

#[test]
fn a_refusal_of_a_kind_unknown_reaches_the_subscriber() {
    let code = RequestErrorCode(0x1234_5678);
    refuse(code, code);
}

#[test]
fn redirects_are_not_followed() {
    refuse(RequestErrorCode::REDIRECT, RequestErrorCode::DOES_NOT_EXIST);
}

/// Checks that a subscriber gets `expected` if the publisher declines with `code`.
fn refuse(code: RequestErrorCode, expected: RequestErrorCode) {
    story(&Setting::default(), |stage| {
        let publisher = stage.client();
        stage.direct(publisher, |actor| actor.manner = Manner::Decline(code));
        stage.announce(publisher, "a");
        stage.step("a namespace", millis(50));
        let subscriber = stage.client();
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.step("subscribe", millis(100));
        assert_eq!(stage.refusal(subscription), Some(expected));
        assert_eq!(stage.gauges().tracks, 0);
    });
}

#[test]
fn one_of_two_publishers_is_enough() {
    story(&Setting::default(), |stage| {
        let (unwilling, willing) = (stage.client(), stage.client());
        let code = RequestErrorCode::UNAUTHORIZED;
        stage.direct(unwilling, |actor| actor.manner = Manner::Decline(code));
        stage.direct(willing, |actor| actor.manner = Manner::Accept(42));
        stage.announce(unwilling, "a");
        stage.announce(willing, "a");
        stage.step("two of one namespace", millis(50));
        let subscriber = stage.client();
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.step("subscribe", millis(100));
        assert!(stage.is_accepted(subscription));
        let source = stage.source(willing, 0, 42);
        stage.group(source, 1, 2, 10);
        stage.step("objects", millis(100));
        stage.expect_objects(subscription, &[1], 2, 10);
    });
}

#[test]
fn a_silent_publisher_is_given_ten_seconds() {
    story(&Setting::default(), |stage| {
        let publisher = stage.client();
        stage.announce(publisher, "a");
        stage.step("a namespace", millis(50));
        let subscriber = stage.client();
        let begin = stage.sim.now();
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.step("subscribe", secs(11));
        let code = RequestErrorCode::TIMEOUT;
        assert_eq!(stage.refusal(subscription), Some(code));
        let answered = stage.outcome(subscription).answered_at.unwrap();
        assert_eq!(answered - begin, secs(10) + millis(20));
        let asked = stage.asked(publisher, 0);
        let cancelled = CloseReason::Reset(ResetCode::CANCELLED);
        let closed = stage.actor(publisher).exchanges[&asked].closed;
        assert_eq!(closed, Some(cancelled), "the publisher is asked no longer");
        assert_eq!(stage.gauges().tracks, 0);
    });
}

#[test]
fn a_publisher_that_goes_away_unasked_ends_the_wait() {
    story(&Setting::default(), |stage| {
        let publisher = stage.client();
        stage.announce(publisher, "a");
        stage.step("a namespace", millis(50));
        let subscriber = stage.client();
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.step("subscribe", secs(1));
        stage.sim.shutdown(publisher);
        stage.step("the publisher leaves", millis(50));
        let code = RequestErrorCode::DOES_NOT_EXIST;
        assert_eq!(stage.refusal(subscription), Some(code));
        assert_eq!(stage.gauges().tracks, 0);
        assert_eq!(stage.gauges().namespaces, 0);
    });
}

#[test]
fn an_update_of_a_request_that_waits_is_answered_after_it() {
    story(&Setting::default(), |stage| {
        let subscriber = stage.client();
        let subscription = stage.subscribe_with(subscriber, "a--x", rendezvous(secs(10)));
        stage.step("wait", millis(100));
        let start = Location::new(1, 2);
        stage.update(subscription, forward(false));
        stage.update(
            subscription,
            Parameters {
                filter: Some(Filter::AbsoluteStart(start)),
                ..forward(true)
            },
        );
        stage.step("change one's mind twice", millis(100));
        assert_eq!(stage.outcome(subscription).updates_answered, 0);
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        stage.step("publish", millis(100));
        assert!(stage.is_accepted(subscription));
        assert_eq!(stage.outcome(subscription).updates_answered, 2);
        stage.group(publication, 1, 4, 10);
        stage.step("objects", millis(100));
        let objects = stage.outcome(subscription).objects();
        let ids: Vec<_> = objects.iter().map(|(_, id, _)| *id).collect();
        assert_eq!(ids, [2, 3]);
    });
}

#[test]
fn those_who_stop_waiting_are_forgotten() {
    story(&Setting::default(), |stage| {
        let publisher = stage.client();
        stage.announce(publisher, "a");
        stage.step("a namespace", millis(50));
        let (one, other) = (stage.client(), stage.client());
        let asking = stage.subscribe(one, "a--x");
        let waiting = stage.subscribe_with(other, "b--y", rendezvous(secs(30)));
        stage.step("wait", millis(100));
        assert_eq!(stage.gauges().waiting, 2);
        stage.cancel(asking);
        stage.sim.shutdown(waiting.node);
        stage.step("one gives up, the other leaves", millis(100));
        assert_eq!(stage.gauges().waiting, 0);
        assert_eq!(stage.gauges().tracks, 0);
        let asked = stage.asked(publisher, 0);
        assert!(stage.actor(publisher).exchanges[&asked].closed.is_some());
        assert_eq!(stage.counters().refused_timeout, 0);
    });
}
