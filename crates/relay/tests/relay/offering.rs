//! SUBSCRIBE_TRACKS: tracks are offered to the sessions that subscribe to a prefix.

use weir_moqt::{
    draft::Draft,
    error::{PublishDoneCode, RequestErrorCode},
    location::Location,
    name::TrackName,
    parameter::{Filter, GroupOrder, Parameters},
    property::Properties,
};

use crate::{
    actor::{Heard::Blocked, Manner},
    slow::{parameters, slow_down, times, windows},
    stage::{Asked, Setting, Stage, forward, millis, name, rendezvous, secs, space, story},
};

fn offers(stage: &Stage, asked: Asked) -> Vec<String> {
    let offered = stage.actor(asked.node).offered.iter();
    offered
        .map(|(_, publish)| publish.track.to_string())
        .collect()
}

#[test]
fn tracks_under_a_prefix_are_offered_and_their_objects_follow() {
    story(&Setting::default(), |stage| {
        let [publisher, collector] = [stage.client(), stage.client()];
        let early = stage.publish(publisher, "a-b--x");
        stage.publish(publisher, "ab--x");
        stage.wait(millis(50));
        stage.group(early, 1, 3, 100);
        stage.wait(millis(50));
        let collection = stage.collect(collector, space("a"), Parameters::default());
        stage.step("ask for all tracks", millis(50));
        assert!(stage.is_accepted(collection));
        assert_eq!(offers(stage, collection), ["a-b--x"]);
        let late = stage.publish(publisher, "a-c--y");
        stage.step("publish another", millis(50));
        assert_eq!(offers(stage, collection), ["a-b--x", "a-c--y"]);
        let (_, offer) = &stage.actor(collector).offered[0];
        let largest = Location {
            group: 1,
            object: 2,
        };
        assert_eq!(offer.parameters.largest_object, Some(largest));
        assert_eq!(offer.parameters.forward, Some(true));
        let [first, second] = [0, 1].map(|place| stage.offered(collector, place));
        stage.group(early, 2, 3, 100);
        stage.group(late, 0, 3, 100);
        stage.step("objects", millis(100));
        stage.expect_objects(first, &[2], 3, 100);
        stage.expect_objects(second, &[0], 3, 100);
        stage.publish_done(early, 2);
        stage.step("one track ends", millis(500));
        let done = stage.outcome(first).done.as_ref().expect("it was told");
        assert_eq!(
            (done.code, done.stream_count),
            (PublishDoneCode::TRACK_ENDED, Some(1))
        );
        stage.cancel(collection);
        stage.step("want no more", millis(50));
        stage.publish(publisher, "a-d--z");
        stage.group(late, 1, 3, 100);
        stage.step("what runs goes on", millis(100));
        assert_eq!(offers(stage, collection).len(), 2);
        stage.expect_objects(second, &[0, 1], 3, 100);
        stage.cancel(second);
        stage.step("end it", millis(100));
        assert_eq!(
            (stage.gauges().subscriptions, stage.gauges().prefixes),
            (0, 0)
        );
        assert_eq!(stage.counters().offers, 2);
    });
}

#[test]
fn nobody_is_offered_what_it_has() {
    story(&Setting::default(), |stage| {
        let [one, other] = [stage.client(), stage.client()];
        let waits = stage.subscribe_with(other, "a--w", rendezvous(secs(9)));
        let own = stage.publish(other, "a--own");
        let both = stage.publish(one, "a--x");
        stage.wait(millis(50));
        let has = stage.subscribe(other, "a--x");
        stage.wait(millis(50));
        let collection = stage.collect(other, space("a"), Parameters::default());
        stage.step("ask for all tracks", millis(50));
        stage.publish(one, "a--w");
        stage.publish(one, "a--own");
        stage.step(
            "publish what it waits for, and what it publishes itself",
            millis(100),
        );
        assert!(stage.is_accepted(collection) && stage.is_accepted(waits));
        assert!(stage.is_accepted(own) && stage.is_accepted(has) && stage.is_accepted(both));
        assert_eq!(offers(stage, collection), Vec::<String>::new());
    });
}

#[test]
fn an_offer_is_taken_as_its_answer_says() {
    story(&Setting::default(), |stage| {
        let [publisher, node] = [stage.client(), stage.client()];
        let start = Location {
            group: 2,
            object: 0,
        };
        stage.direct(node, |actor| {
            actor.taste = Ok(Parameters {
                filter: Some(Filter::AbsoluteRange {
                    start,
                    end: Location::new(3, u64::MAX),
                }),
                ..Parameters::default()
            });
        });
        stage.collect(node, space("a"), Parameters::default());
        stage.wait(millis(50));
        let source = stage.publish(publisher, "a--x");
        stage.step("publish", millis(50));
        let offer = stage.offered(node, 0);
        for group in 1..=4 {
            stage.group(source, group, 2, 50);
        }
        stage.step("objects", millis(100));
        stage.expect_objects(offer, &[2, 3], 2, 50);
        stage.update(offer, forward(false));
        stage.step("rest", millis(50));
        stage.group(source, 3, 2, 50);
        stage.step("objects", millis(100));
        stage.expect_objects(offer, &[2, 3], 2, 50);
    });
}

#[test]
fn who_wants_no_objects_yet_gets_none() {
    story(&Setting::default(), |stage| {
        let [publisher, node, eager] = [(); 3].map(|()| stage.client());
        stage.direct(node, |actor| actor.taste = Ok(forward(false)));
        stage.collect(node, space("a"), forward(false));
        stage.collect(eager, space("a"), forward(false));
        stage.wait(millis(50));
        let source = stage.publish(publisher, "a--x");
        stage.step("publish", millis(50));
        let [offer, default] = [node, eager].map(|node| stage.offered(node, 0));
        for node in [node, eager] {
            let (_, offer) = &stage.actor(node).offered[0];
            assert_eq!(offer.parameters.forward, Some(false));
        }
        stage.group(source, 1, 2, 50);
        stage.step("objects", millis(50));
        stage.expect_objects(offer, &[], 0, 0);
        // An acceptance that does not mention FORWARD sets it to 1.
        stage.expect_objects(default, &[1], 2, 50);
        stage.update(offer, forward(true));
        stage.step("now it wants them", millis(50));
        stage.group(source, 2, 2, 50);
        stage.step("objects", millis(50));
        stage.expect_objects(offer, &[2], 2, 50);
    });
}

#[test]
fn a_rejected_offer_is_over() {
    story(&Setting::default(), |stage| {
        let [publisher, node] = [stage.client(), stage.client()];
        stage.direct(node, |actor| {
            actor.taste = Err(RequestErrorCode::UNINTERESTED);
        });
        stage.collect(node, space("a"), Parameters::default());
        stage.wait(millis(50));
        let source = stage.publish(publisher, "a--x");
        stage.step("publish", millis(50));
        assert_eq!(stage.counters().offers_rejected, 1);
        assert_eq!(stage.gauges().subscriptions, 0);
        stage.group(source, 1, 2, 50);
        stage.wait(millis(50));
        let wanted = stage.subscribe(node, "a--x");
        stage.step("subscribe after all", millis(50));
        assert!(stage.is_accepted(wanted));
    });
}

#[test]
fn tracks_for_which_there_is_no_room_are_named_once() {
    let mut setting = Setting::default();
    setting.relay.subscriptions_per_session_max = 1;
    story(&setting, |stage| {
        let [publisher, node] = [stage.client(), stage.client()];
        let collection = stage.collect(node, space("a"), Parameters::default());
        stage.wait(millis(50));
        stage.publish(publisher, "a--x");
        let blocked = stage.publish(publisher, "a-b--y");
        stage.step("at the limit, and one past it", millis(100));
        assert_eq!(offers(stage, collection), ["a--x"]);
        let y = TrackName::new("y").expect("it is short");
        assert_eq!(stage.heard(collection), [Blocked(space("b"), y)]);
        stage.cancel(stage.offered(node, 0));
        stage.publish_done(blocked, 0);
        stage.step("there is room again", secs(1));
        stage.publish(publisher, "a-b--y");
        stage.step("the track comes again", millis(100));
        assert_eq!(offers(stage, collection).len(), 1, "it stays blocked");
        let wanted = stage.subscribe(node, "a-b--y");
        stage.step("it can be subscribed to", millis(100));
        assert!(stage.is_accepted(wanted));
        assert_eq!(stage.counters().offers_blocked, 1);
    });
}

#[test]
fn a_peer_that_allows_no_stream_is_told_what_it_misses() {
    let mut setting = Setting::default();
    setting.client.bidi_streams_max = 1;
    story(&setting, |stage| {
        let node = stage.client();
        stage.client.bidi_streams_max = 100;
        let publisher = stage.client();
        let collection = stage.collect(node, space("a"), Parameters::default());
        stage.wait(millis(50));
        stage.publish(publisher, "a--x");
        stage.wait(millis(50));
        stage.publish(publisher, "a--y");
        stage.step("one more than it has streams for", millis(100));
        assert_eq!(offers(stage, collection), ["a--x"]);
        let y = TrackName::new("y").expect("it is short");
        assert_eq!(stage.heard(collection), [Blocked(space(""), y)]);
    });
}

#[test]
fn tracks_that_are_only_asked_for_are_not_offered() {
    story(&Setting::default(), |stage| {
        let [publisher, node, subscriber] = [stage.client(), stage.client(), stage.client()];
        stage.direct(publisher, |actor| actor.manner = Manner::Accept(9));
        stage.announce(publisher, "a");
        let collection = stage.collect(node, space("a"), Parameters::default());
        stage.wait(millis(50));
        let wanted = stage.subscribe(subscriber, "a--x");
        stage.step("subscribe", millis(100));
        assert!(stage.is_accepted(wanted));
        assert_eq!(offers(stage, collection), Vec::<String>::new());
    });
}

#[test]
fn a_second_publisher_brings_no_second_offer_and_a_new_start_does() {
    story(&Setting::default(), |stage| {
        let [one, other, node] = [stage.client(), stage.client(), stage.client()];
        stage.collect(node, space("a"), Parameters::default());
        stage.wait(millis(50));
        let first = stage.publish_with(one, "a--x", Parameters::default(), Properties::EMPTY);
        stage.wait(millis(50));
        let second = stage.publish(other, "a--x");
        stage.step("two publishers", millis(50));
        assert_eq!(stage.actor(node).offered.len(), 1);
        stage.publish_done(first, 0);
        stage.publish_done(second, 0);
        stage.step("both are done", secs(3));
        assert!(stage.outcome(stage.offered(node, 0)).done.is_some());
        stage.publish(one, "a--x");
        stage.step("the track starts anew", millis(50));
        assert_eq!(stage.actor(node).offered.len(), 2);
        assert_eq!(stage.actor(node).offered[1].1.track, name("a--x"));
    });
}

/// Asks for the tracks under each of two prefixes over one slow link, with these priorities.
fn two_prefixes(stage: &mut Stage, priorities: [u8; 2]) -> [(Asked, Asked); 2] {
    let (publisher, subscriber) = (stage.client(), stage.client());
    for (namespace, priority) in ["a", "b"].into_iter().zip(priorities) {
        let wanted = parameters(priority, GroupOrder::Ascending);
        stage.collect(subscriber, space(namespace), wanted);
    }
    stage.wait(millis(50));
    let mut places = ["a--x", "b--x"].into_iter().zip(0..);
    let tracks = [(); 2].map(|()| {
        let (track, place) = places.next().expect("there are two");
        let publication = stage.publish(publisher, track);
        stage.step("a track is offered", millis(100));
        (publication, stage.offered(subscriber, place))
    });
    slow_down(stage, tracks[0].1, 60_000);
    tracks
}

#[test]
fn tracks_under_an_urgent_prefix_go_first() {
    for mut setting in windows() {
        // SUBSCRIBE_TRACKS has no priority before.
        setting.draft = setting.draft.max(Draft::Draft19);
        story(&setting, |stage| {
            let [(bulk, to_bulk), (urgent, to_urgent)] = two_prefixes(stage, [200, 10]);
            for group in 0..4 {
                stage.group(bulk, group, 1, 8000);
            }
            stage.step("bulk", millis(100));
            stage.group(urgent, 0, 1, 2000);
            stage.step("and something urgent", secs(15));
            assert_eq!(stage.outcome(to_bulk).objects().len(), 4);
            let (_, complete) = times(stage, to_urgent, 0);
            assert!(complete <= times(stage, to_bulk, 2).0);
        });
    }
}
