//! Tracks that break the rules, wishes for new groups, and subscriptions that move.

use weir_moqt::{
    data::{ObjectHeader, ObjectStatus},
    error::{PublishDoneCode, ResetCode},
    message::GoAway,
    parameter::Parameters,
    property::Properties,
    session::CloseReason,
};

use crate::{
    actor::Manner,
    stage::{Asked, Setting, Stage, millis, object, plain, secs, story},
};

fn under_way(stage: &mut Stage) -> (Asked, Asked) {
    let [publisher, subscriber] = [stage.client(), stage.client()];
    let publication = stage.publish(publisher, "a--x");
    stage.wait(millis(50));
    let subscription = stage.subscribe(subscriber, "a--x");
    stage.step("subscribe", millis(50));
    (publication, subscription)
}

fn end_of(id: u64, status: ObjectStatus) -> ObjectHeader {
    ObjectHeader {
        status,
        ..object(id, 0)
    }
}

fn expect_malformed(stage: &Stage, publication: Asked, subscription: Asked) {
    let done = stage.outcome(subscription).done.as_ref();
    let code = done.map(|done| done.code);
    assert_eq!(code, Some(PublishDoneCode::MALFORMED_TRACK));
    let closed = stage.outcome(publication).closed;
    let malformed = ResetCode::MALFORMED_TRACK;
    let is_it = matches!(closed,
        Some(CloseReason::Reset(code) | CloseReason::Stopped(code)) if code == malformed);
    assert!(is_it, "{closed:?}");
    assert_eq!(stage.counters().tracks_malformed, 1);
    let gauges = stage.gauges();
    assert_eq!((gauges.subscriptions, gauges.subgroups), (0, 0));
}

#[test]
fn objects_after_the_end_of_their_group_end_the_track() {
    for status in [ObjectStatus::EndOfGroup, ObjectStatus::EndOfTrack] {
        story(&Setting::default(), |stage| {
            let (publication, subscription) = under_way(stage);
            stage.group(publication, 0, 2, 50);
            let mut first = stage.open(publication, 1);
            stage.object(publication, &mut first, 0, b"first");
            stage.object_with(publication, &mut first, &end_of(1, status), b"");
            stage.finish(publication, &first);
            stage.step("a group and its end", millis(100));
            assert!(stage.outcome(subscription).done.is_none());
            assert_eq!(
                stage.outcome(subscription).streams.len(),
                2,
                "the end is passed on"
            );
            stage.datagram(publication, 1, 2, b"one more");
            stage.step("and one more object", millis(500));
            expect_malformed(stage, publication, subscription);
            assert!(stage.outcome(subscription).datagrams.is_empty());
            let again = stage.publish(publication.node, "a--x");
            stage.step("the publisher mends its ways", millis(100));
            assert!(stage.is_accepted(again));
        });
    }
}

#[test]
fn a_finished_stream_may_be_the_end_of_its_group() {
    story(&Setting::default(), |stage| {
        let (publication, subscription) = under_way(stage);
        let mut header = plain(1);
        header.end_of_group = true;
        let mut stream = stage.open_with(publication, header);
        stage.object(publication, &mut stream, 0, b"only one");
        stage.finish(publication, &stream);
        stage.step("a group of one", millis(100));
        stage.datagram(publication, 1, 1, b"one more");
        stage.step("and one more object", millis(500));
        expect_malformed(stage, publication, subscription);
    });
}

#[test]
fn an_object_with_a_property_for_tracks_only_ends_the_track() {
    story(&Setting::default(), |stage| {
        let (publication, subscription) = under_way(stage);
        let mut header = plain(0);
        header.has_properties = true;
        // Type 0x4000, an integer: mandatory for tracks.
        let mut stream = stage.open_with(publication, header);
        let odd = ObjectHeader {
            properties: Properties::builder().int(0x4000, 1).build(),
            ..object(0, 3)
        };
        stage.object_with(publication, &mut stream, &odd, b"odd");
        stage.step("an odd object", millis(500));
        expect_malformed(stage, publication, subscription);
        assert!(stage.outcome(subscription).streams.is_empty());
    });
}

fn wish(group: u64) -> Parameters {
    Parameters {
        new_group_request: Some(group),
        ..Parameters::default()
    }
}

fn wishes(stage: &Stage, publication: Asked) -> Vec<u64> {
    let updates = stage.outcome(publication).updates.iter();
    updates
        .filter_map(|update| update.new_group_request)
        .collect()
}

#[test]
fn wishes_for_a_new_group_reach_the_publisher_once() {
    story(&Setting::default(), |stage| {
        let [publisher, one, other] = [stage.client(), stage.client(), stage.client()];
        let properties = Properties::builder().int(0x30, 1).build();
        let dynamic = stage.publish_with(publisher, "a--x", Parameters::default(), properties);
        let fixed = stage.publish(publisher, "a--y");
        stage.wait(millis(50));
        stage.group(dynamic, 4, 1, 50);
        stage.wait(millis(50));
        stage.subscribe_with(other, "a--y", wish(0));
        let subscription = stage.subscribe_with(one, "a--x", wish(0));
        stage.step("subscribe and wish for a group", millis(50));
        let second = stage.subscribe_with(other, "a--x", wish(0));
        stage.step("another does", millis(50));
        assert_eq!(wishes(stage, dynamic), [0]);
        assert!(
            wishes(stage, fixed).is_empty(),
            "it makes no groups on demand"
        );
        stage.update(second, wish(4));
        stage.update(subscription, wish(5));
        stage.step("a group that is there, and the next", millis(50));
        assert_eq!(wishes(stage, dynamic), [0, 5]);
        stage.group(dynamic, 5, 1, 50);
        stage.step("it comes", millis(50));
        stage.update(second, wish(0));
        stage.step("wish again", millis(50));
        assert_eq!(wishes(stage, dynamic), [0, 5, 0]);
    });
}

#[test]
fn a_subscription_that_is_to_move_is_made_anew() {
    story(&Setting::default(), |stage| {
        let [publisher, subscriber] = [stage.client(), stage.client()];
        stage.direct(publisher, |actor| actor.manner = Manner::Accept(9));
        stage.announce(publisher, "a");
        stage.wait(millis(50));
        let subscription = stage.subscribe_with(subscriber, "a--x", wish(7));
        stage.step("subscribe", millis(100));
        let (first, request) = &stage.actor(publisher).asked[0];
        assert_eq!(
            request.parameters.new_group_request,
            Some(7),
            "the wish goes along"
        );
        let first = *first;
        stage.direct(publisher, |actor| actor.manner = Manner::Accept(10));
        stage.act(publisher, |session, connection| {
            let goaway = GoAway {
                new_session_uri: String::new(),
                timeout: Some(secs(1)),
                request_id: None,
            };
            session.request_goaway(connection, first, goaway);
        });
        stage.step("the publisher wants it moved", millis(100));
        assert_eq!(stage.actor(publisher).asked.len(), 2);
        let source = stage.source(publisher, 1, 10);
        stage.group(source, 1, 3, 50);
        stage.step("objects", millis(100));
        stage.expect_objects(subscription, &[1], 3, 50);
        assert!(stage.outcome(subscription).done.is_none());
    });
}
