//! GOAWAY of a peer for requests of the relay.

use weir_moqt::{
    error::PublishDoneCode,
    message::GoAway,
    parameter::Parameters,
    session::{CloseReason, RequestId},
};
use weir_sim::NodeId;

use crate::{
    actor::Manner,
    archive::Serving,
    fetching::all_of,
    stage::{Setting, Stage, millis, payload, secs, space, story},
};

/// Sends a client's GOAWAY for a request of the relay.
fn wish_to_move(stage: &mut Stage, node: NodeId, id: RequestId) {
    stage.act(node, |session, connection| {
        let goaway = GoAway {
            new_session_uri: String::new(),
            timeout: Some(secs(1)),
            request_id: None,
        };
        session.request_goaway(connection, id, goaway);
    });
}

#[test]
fn a_subscription_that_is_to_move_is_made_anew() {
    story(&Setting::default(), |stage| {
        let [publisher, subscriber] = [stage.client(), stage.client()];
        let wish = Parameters {
            new_group_request: Some(7),
            ..Parameters::default()
        };
        stage.direct(publisher, |actor| actor.manner = Manner::Accept(9));
        stage.announce(publisher, "a");
        stage.wait(millis(50));
        let subscription = stage.subscribe_with(subscriber, "a--x", wish);
        stage.step("subscribe", millis(100));
        let (first, request) = &stage.actor(publisher).asked[0];
        assert_eq!(
            request.parameters.new_group_request,
            Some(7),
            "the wish goes along"
        );
        let first = *first;
        stage.direct(publisher, |actor| actor.manner = Manner::Accept(10));
        wish_to_move(stage, publisher, first);
        stage.step("the publisher wants it moved", millis(100));
        assert_eq!(stage.actor(publisher).asked.len(), 2);
        let source = stage.source(publisher, 1, 10);
        stage.group(source, 1, 3, 50);
        stage.step("objects", millis(100));
        stage.expect_objects(subscription, &[1], 3, 50);
        assert!(stage.outcome(subscription).done.is_none());
    });
}

#[test]
fn a_fetch_and_a_question_that_are_to_move_are_made_anew() {
    story(&Setting::default(), |stage| {
        let [publisher, client] = [stage.client(), stage.client()];
        stage.announce(publisher, "a");
        stage.direct(publisher, |actor| actor.archive.fill(0, 2, 3, 500));
        stage.wait(millis(50));
        let fetch = stage.fetch(client, "a--x", (0, 0), (2, 2));
        let question = stage.track_status(client, "a--y");
        stage.step("a fetch and a question, both not answered", millis(100));
        let (asked, inquired) = {
            let archive = &stage.actor(publisher).archive;
            (archive.asked[0].0, archive.track_statuses[0])
        };
        stage.direct(publisher, |actor| {
            actor.archive.serving = Serving::Serve;
            actor.archive.standing = Some(Ok(weir_moqt::location::Location::new(3, 4)));
        });
        wish_to_move(stage, publisher, asked);
        wish_to_move(stage, publisher, inquired);
        stage.step("the publisher wants them moved", millis(200));
        for old in [asked, inquired] {
            let closed = stage.actor(publisher).exchanges[&old].closed;
            assert!(
                matches!(
                    closed,
                    Some(CloseReason::Reset(_) | CloseReason::Stopped(_))
                ),
                "{closed:?}"
            );
        }
        assert_eq!(stage.fetched(fetch).places(500), all_of(0..3));
        let answer = stage.outcome(question).answer.clone().unwrap().unwrap();
        let largest = weir_moqt::location::Location::new(3, 4);
        assert_eq!(answer.largest_object, Some(largest));
        assert_eq!(stage.counters().requests_renewed, 2);
    });
}

#[test]
fn an_offer_that_is_to_move_ends_and_is_made_anew() {
    story(&Setting::default(), |stage| {
        let [publisher, client] = [stage.client(), stage.client()];
        let source = stage.publish(publisher, "a--x");
        stage.wait(millis(50));
        stage.collect(client, space("a"), Parameters::default());
        stage.step("an offer", millis(100));
        let first = stage.offered(client, 0);
        stage.group(source, 1, 3, 100);
        stage.wait(millis(100));
        wish_to_move(stage, client, first.id);
        stage.step("it is to move", millis(100));
        let done = stage.outcome(first).done.as_ref().map(|done| done.code);
        assert_eq!(done, Some(PublishDoneCode::GOING_AWAY));
        let second = stage.offered(client, 1);
        stage.group(source, 2, 3, 100);
        stage.step("objects", millis(100));
        assert!(stage.outcome(second).done.is_none());
        // Both have the same alias, so the client may attribute the objects to either.
        let objects = [first, second].map(|offer| stage.outcome(offer).objects().len());
        assert_eq!(objects.iter().sum::<usize>(), 6);
    });
}

#[test]
fn wishes_to_move_are_bounded() {
    let mut setting = Setting::default();
    setting.relay.updates_per_second_max = 2;
    story(&setting, |stage| {
        let [publisher, subscriber] = [stage.client(), stage.client()];
        stage.direct(publisher, |actor| actor.manner = Manner::Accept(9));
        stage.announce(publisher, "a");
        stage.wait(millis(50));
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.step("subscribe", millis(100));
        for place in 0..3 {
            let alias = 10 + place as u64;
            stage.direct(publisher, |actor| actor.manner = Manner::Accept(alias));
            let last = stage.asked(publisher, place);
            wish_to_move(stage, publisher, last);
            stage.wait(millis(50));
        }
        assert_eq!(
            stage.actor(publisher).asked.len(),
            3,
            "at the limit, and past it"
        );
        assert_eq!(stage.counters().updates_refused, 1);
        let source = stage.source(publisher, 2, 11);
        let mut stream = stage.open(source, 1);
        stage.object(source, &mut stream, 0, &payload(1, 0, 50));
        stage.finish(source, &stream);
        stage.step("the last one lives", millis(100));
        stage.expect_objects(subscription, &[1], 1, 50);
    });
}
