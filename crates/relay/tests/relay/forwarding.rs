//! FORWARD: which subscribers want objects, and what the publisher is told.

use weir_moqt::{
    draft::Draft,
    error::ResetCode,
    property::Properties,
    session::{CloseReason, StreamEnd},
};

use crate::{
    actor::Manner,
    stage::{Asked, Setting, Stage, duplicate, forward, has_fills, millis, payload, story},
};

/// The FORWARD values that the publisher was sent.
fn told(stage: &Stage, publication: Asked) -> Vec<bool> {
    let outcome = stage.outcome(publication);
    let first = match &outcome.answer {
        Some(Ok(parameters)) => parameters.forward,
        Some(Err(_)) | None => None,
    };
    let updates = outcome.updates.iter().map(|update| update.forward);
    std::iter::once(first).chain(updates).flatten().collect()
}

fn pausing() -> Setting {
    Setting {
        pauses_publishers: true,
        ..Setting::default()
    }
}

#[test]
fn a_publisher_is_not_bothered_with_who_wants_its_track() {
    story(&Setting::default(), |stage| {
        let publisher = stage.client();
        let publication = stage.publish_with(publisher, "a--x", forward(false), Properties::EMPTY);
        let [one, other] = [stage.client(), stage.client()];
        let resting = stage.subscribe_with(other, "a--x", forward(false));
        stage.step("publish, subscribe and rest", millis(50));
        // From draft-20 on the acceptance leaves the offer paused, and an update follows.
        let allowed: &[bool] = if has_fills(stage.draft) {
            &[false, true]
        } else {
            &[true]
        };
        assert_eq!(told(stage, publication), allowed, "it may send at any time");
        stage.group(publication, 3, 2, 50);
        stage.step("objects for nobody", millis(50));
        let subscription = stage.subscribe(one, "a--x");
        stage.step("one subscribes", millis(50));
        stage.group(publication, 4, 2, 50);
        stage.step("objects", millis(50));
        stage.cancel(subscription);
        stage.step("one leaves", millis(50));
        stage.expect_objects(subscription, &[4], 2, 50);
        stage.expect_objects(resting, &[], 0, 0);
        assert_eq!(told(stage, publication), allowed);
        stage.publish_done(publication, 2);
        stage.step("the end", millis(500));
        let done = stage.outcome(resting).done.as_ref();
        assert_eq!(done.and_then(|done| done.stream_count), Some(0));
    });
}

#[test]
fn a_published_track_rests_while_nobody_wants_it() {
    story(&pausing(), |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        let [one, other] = [stage.client(), stage.client()];
        stage.step("publish", millis(50));
        assert_eq!(told(stage, publication), [false]);
        let first = stage.subscribe(one, "a--x");
        stage.step("one subscribes", millis(50));
        let second = stage.subscribe(other, "a--x");
        stage.step("another subscribes", millis(50));
        assert_eq!(told(stage, publication), [false, true]);
        stage.cancel(first);
        stage.step("one leaves", millis(50));
        assert_eq!(told(stage, publication), [false, true]);
        stage.cancel(second);
        stage.step("the other leaves", millis(50));
        assert_eq!(told(stage, publication), [false, true, false]);
        let third = stage.subscribe(one, "a--x");
        stage.step("one comes back", millis(50));
        assert_eq!(told(stage, publication), [false, true, false, true]);
        stage.group(publication, 3, 2, 50);
        stage.step("objects", millis(50));
        stage.expect_objects(third, &[3], 2, 50);
        assert!(stage.outcome(first).streams.is_empty());
    });
}

#[test]
fn a_requested_track_is_given_back_by_the_last_subscriber() {
    story(&Setting::default(), |stage| {
        let publisher = stage.client();
        stage.direct(publisher, |actor| actor.manner = Manner::Accept(42));
        stage.announce(publisher, "a");
        let [one, other] = [stage.client(), stage.client()];
        let first = stage.subscribe(one, "a--x");
        let second = stage.subscribe(other, "a--x");
        stage.step("two subscribe", millis(100));
        assert!(stage.is_accepted(first) && stage.is_accepted(second));
        assert_eq!(stage.actor(publisher).asked.len(), 1, "one copy for both");
        stage.cancel(first);
        stage.step("one leaves", millis(50));
        let asked = stage.asked(publisher, 0);
        assert_eq!(stage.actor(publisher).exchanges[&asked].closed, None);
        stage.sim.shutdown(other);
        stage.step("the other's session ends", millis(50));
        let reason = CloseReason::Reset(ResetCode::CANCELLED);
        let closed = stage.actor(publisher).exchanges[&asked].closed;
        assert_eq!(closed, Some(reason));
        assert_eq!(stage.gauges().tracks, 0);
        let third = stage.subscribe(one, "a--x");
        stage.step("one comes back", millis(100));
        assert!(stage.is_accepted(third));
        let source = stage.source(publisher, 1, 42);
        stage.group(source, 1, 2, 50);
        stage.step("objects", millis(50));
        stage.expect_objects(third, &[1], 2, 50);
    });
}

#[test]
fn nothing_is_forwarded_before_it_is_wanted() {
    story(&Setting::default(), |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        let [resting, waking] = [stage.client(), stage.client()];
        let resting = stage.subscribe_with(resting, "a--x", forward(false));
        let waking = stage.subscribe(waking, "a--x");
        stage.step("one of two wants objects", millis(50));
        stage.group(publication, 1, 2, 50);
        stage.datagram(publication, 1, 9, b"");
        stage.step("objects", millis(50));
        stage.expect_objects(resting, &[], 2, 50);
        assert!(stage.outcome(resting).datagrams.is_empty());
        stage.update(resting, forward(true));
        stage.step("now the other wants them too", millis(50));
        assert_eq!(stage.outcome(resting).updates_answered, 1);
        stage.group(publication, 2, 2, 50);
        stage.datagram(publication, 2, 9, b"");
        stage.step("objects", millis(50));
        stage.expect_objects(resting, &[2], 2, 50);
        assert_eq!(stage.outcome(resting).datagram_places(), [(2, 9)]);
        stage.expect_objects(waking, &[1, 2], 2, 50);
    });
}

#[test]
fn a_pause_in_the_middle_of_a_group_resets_its_stream() {
    story(&Setting::default(), |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        let [pausing, other] = [stage.client(), stage.client()];
        let pausing = stage.subscribe(pausing, "a--x");
        let other = stage.subscribe(other, "a--x");
        stage.wait(millis(50));
        let mut stream = stage.open(publication, 1);
        let mut next = 0;
        let mut send = |stage: &mut Stage, name| {
            stage.object(publication, &mut stream, next, &payload(1, next, 50));
            next += 1;
            stage.step(name, millis(50));
        };
        send(stage, "an object for both");
        stage.update(pausing, forward(false));
        stage.step("a pause", millis(50));
        send(stage, "an object for the other");
        stage.update(pausing, forward(true));
        stage.step("the pause is over", millis(50));
        send(stage, "an object for both");
        stage.finish(publication, &stream);
        stage.step("the end", millis(50));
        stage.expect_objects(other, &[1], 3, 50);
        let streams = &stage.outcome(pausing).streams;
        assert_eq!(streams.len(), 2);
        assert_eq!(streams[0].end, Some(StreamEnd::Reset(ResetCode::CANCELLED)));
        assert_eq!(streams[1].end, Some(StreamEnd::Fin));
        assert!(!streams[1].header.first_object);
        let ids = streams
            .iter()
            .map(|arrival| arrival.objects.iter().map(|object| object.header.id));
        let ids: Vec<Vec<_>> = ids.map(Iterator::collect).collect();
        assert_eq!(ids, [[0], [2]]);
    });
}

#[test]
fn a_publisher_that_is_slow_to_answer_ends_up_with_the_last_word() {
    let mut setting = pausing();
    setting.session.updates_max = 4;
    story(&setting, |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        let subscriber = stage.client();
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.step("subscribe", millis(100));
        stage.step("change one's mind all the time", millis(0));
        // From draft-19 on, SETUP permits a subscriber four updates without an answer, too.
        let rounds = if stage.draft == Draft::Draft18 { 5 } else { 4 };
        for round in 0..rounds {
            stage.update(subscription, forward(round % 2 == 1));
            stage.wait(millis(1));
        }
        stage.wait(millis(500));
        let heard = told(stage, publication);
        let alternates = heard.windows(2).all(|pair| pair[0] != pair[1]);
        assert!(alternates && !heard[0], "{heard:?}");
        assert_eq!(heard.last(), Some(&(rounds % 2 == 0)), "{heard:?}");
        stage.update(subscription, forward(true));
        stage.step("and once more", millis(100));
        assert_eq!(told(stage, publication).last(), Some(&true));
    });
}

#[test]
fn a_subscription_is_held_once_per_session() {
    story(&Setting::default(), |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        let repeated = stage.publish(publisher, "a--x");
        let own = stage.subscribe(publisher, "a--x");
        stage.step("publish twice, and subscribe to oneself", millis(50));
        assert!(stage.is_accepted(publication) && stage.is_accepted(own));
        let code = duplicate(stage.draft);
        assert_eq!(stage.refusal(repeated), Some(code));
        let again = stage.subscribe(publisher, "a--x");
        stage.group(publication, 1, 2, 50);
        stage.step("subscribe again", millis(50));
        assert_eq!(stage.refusal(again), Some(code));
        stage.expect_objects(own, &[1], 2, 50);
        assert_eq!(stage.counters().refused_duplicate, 2);
    });
}

#[test]
fn a_requested_track_rests_while_all_its_subscribers_do() {
    story(&pausing(), |stage| {
        let publisher = stage.client();
        stage.direct(publisher, |actor| actor.manner = Manner::Accept(42));
        stage.announce(publisher, "a");
        let subscriber = stage.client();
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.step("subscribe", millis(100));
        stage.update(subscription, forward(false));
        stage.step("pause", millis(100));
        stage.update(subscription, forward(true));
        stage.step("go on", millis(100));
        let source = stage.source(publisher, 0, 42);
        let updates = &stage.outcome(source).updates;
        let told: Vec<_> = updates.iter().map(|update| update.forward).collect();
        assert_eq!(told, [Some(false), Some(true)]);
    });
}
