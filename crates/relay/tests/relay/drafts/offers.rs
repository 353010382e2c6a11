//! SUBSCRIBE_TRACKS between drafts: each subscription begins with its parameters, and PUBLISH repeats what the draft says.

use weir_moqt::{
    draft::Draft,
    error::{RequestErrorCode, ResetCode},
    location::Location,
    message::Publish,
    parameter::{Filter, GroupOrder, Parameters, RangeCondition, RangeFilter, RangeFilterKind},
    property::Properties,
    session::{Refused, RequestId, StreamEnd},
};
use weir_sim::NodeId;

use super::{client, each_pair, expect_fetched, has_fills, properties};
use crate::{
    fetching::{published, whole_group},
    stage::{Asked, Setting, Stage, forward, millis, secs, space},
    timeouts,
};

/// The first object that the subscribers of these stories want.
const START: Location = Location::new(200, 0);

/// Returns the parameters of a SUBSCRIBE_TRACKS, as far as a draft has them there.
fn wanted(draft: Draft) -> Parameters {
    if draft < Draft::Draft19 {
        return Parameters::default();
    }
    Parameters {
        filter: Some(Filter::AbsoluteStart(START)),
        subscriber_priority: Some(9),
        group_order: Some(GroupOrder::Descending),
        object_delivery_timeout: Some(secs(20)),
        subgroup_delivery_timeout: Some(secs(30)),
        include_properties: has_fills(draft).then_some(false),
        ..Parameters::default()
    }
}

/// Returns the parameters of the PUBLISH that follows from it, for a track without objects.
fn repeated(draft: Draft) -> Parameters {
    let wanted = wanted(draft);
    if has_fills(draft) {
        return Parameters {
            forward: Some(true),
            include_properties: None,
            ..wanted
        };
    }
    Parameters {
        forward: Some(true),
        group_order: wanted.group_order,
        ..Parameters::default()
    }
}

fn offer(stage: &Stage, node: NodeId, place: usize) -> Publish {
    stage.actor(node).offered[place].1.clone()
}

#[test]
fn a_subscription_of_subscribe_tracks_begins_with_its_parameters() {
    each_pair(&Setting::default(), |stage, pair| {
        let [publisher, subscriber] = pair.clients(stage);
        let draft = pair.subscriber;
        stage.collect(subscriber, space("a"), wanted(draft));
        stage.wait(millis(50));
        let none = Parameters::default();
        let publication = stage.publish_with(publisher, "a--x", none, properties(900));
        stage.step("publish", millis(100));
        let publish = offer(stage, subscriber, 0);
        assert_eq!(publish.parameters, repeated(draft));
        let expected = if has_fills(draft) {
            Properties::EMPTY
        } else {
            properties(900)
        };
        assert_eq!(publish.properties, expected);
        for group in 199..202 {
            stage.group(publication, group, 2, 50);
        }
        stage.step("objects", millis(100));
        let groups: &[u64] = if draft < Draft::Draft19 {
            &[199, 200, 201]
        } else {
            &[200, 201]
        };
        stage.expect_objects(stage.offered(subscriber, 0), groups, 2, 50);
    });
}

#[test]
fn the_group_order_and_the_timeouts_of_subscribe_tracks_are_kept() {
    each_pair(&timeouts::setting(), |stage, pair| {
        if pair.subscriber < Draft::Draft19 {
            return;
        }
        let [publisher, subscriber] = pair.clients(stage);
        let wanted = Parameters {
            group_order: Some(GroupOrder::Descending),
            object_delivery_timeout: Some(secs(3)),
            ..Parameters::default()
        };
        stage.collect(subscriber, space("a"), wanted);
        stage.wait(millis(50));
        let publication = stage.publish(publisher, "a--x");
        stage.step("publish", millis(100));
        timeouts::slow(stage, subscriber);
        for group in 1..=4 {
            stage.group(publication, group, 20, 1000);
        }
        stage.step("more than six seconds' worth", secs(10));
        let outcome = stage.outcome(stage.offered(subscriber, 0));
        let end = |group: u64| {
            let mut streams = outcome.streams.iter();
            let found = streams.find(|stream| stream.header.group == group);
            found.and_then(|stream| stream.end)
        };
        assert_eq!(end(4), Some(StreamEnd::Fin), "the newest group goes first");
        let late = Some(StreamEnd::Reset(ResetCode::DELIVERY_TIMEOUT));
        assert!([None, late].contains(&end(2)), "{:?}", end(2));
    });
}

#[test]
fn an_update_of_subscribe_tracks_changes_later_subscriptions() {
    each_pair(&Setting::default(), |stage, pair| {
        let [publisher, subscriber] = pair.clients(stage);
        let collection = stage.collect(subscriber, space("a"), Parameters::default());
        stage.publish(publisher, "a--x");
        stage.step("publish", millis(100));
        let mut update = Parameters {
            object_delivery_timeout: Some(secs(7)),
            ..Parameters::default()
        };
        if has_fills(pair.subscriber) {
            update.forward = Some(false);
        }
        stage.update(collection, update.clone());
        stage.step("update", millis(50));
        stage.publish(publisher, "a--y");
        stage.step("publish another", millis(100));
        let expected = if has_fills(pair.subscriber) {
            update
        } else {
            forward(true)
        };
        assert_eq!(offer(stage, subscriber, 0).parameters, forward(true));
        assert_eq!(offer(stage, subscriber, 1).parameters, expected);
    });
}

#[test]
fn subscribe_tracks_may_ask_for_new_groups() {
    each_pair(&Setting::default(), |stage, pair| {
        if pair.subscriber < Draft::Draft19 {
            return;
        }
        let [publisher, subscriber] = pair.clients(stage);
        let wish = Parameters {
            new_group_request: Some(0),
            ..Parameters::default()
        };
        stage.collect(subscriber, space("a"), wish);
        stage.wait(millis(50));
        let dynamic = Properties::builder().int(0x30, 1).build();
        let publication = stage.publish_with(publisher, "a--x", Parameters::default(), dynamic);
        stage.step("publish", millis(200));
        let updates = stage.outcome(publication).updates.iter();
        let wishes: Vec<_> = updates.filter_map(|it| it.new_group_request).collect();
        assert_eq!(wishes, [0]);
    });
}

#[test]
fn range_filters_of_subscribe_tracks_are_refused() {
    each_pair(&Setting::default(), |stage, pair| {
        let subscriber = client(stage, pair.subscriber);
        let condition = RangeCondition {
            set: 0,
            property: Some(2),
            ranges: vec![(1, 2)],
        };
        let filter = RangeFilter::new(RangeFilterKind::TrackProperty, &condition);
        let wanted = Parameters {
            range_filters: vec![filter],
            ..Parameters::default()
        };
        let sent = stage.act(subscriber, |session, connection| {
            session.subscribe_tracks(connection, space("a"), wanted)
        });
        if pair.subscriber < Draft::Draft19 {
            return assert_eq!(sent, Err(Refused::NotInDraft));
        }
        let id = stage.noted(subscriber, sent);
        let node = subscriber;
        stage.step("ask for some tracks", millis(50));
        let asked = Asked { node, id, alias: 0 };
        assert_eq!(stage.refusal(asked), Some(RequestErrorCode::INVALID_FILTER));
    });
}

#[test]
fn subscribe_tracks_may_ask_for_the_fill_of_each_track() {
    each_pair(&Setting::default(), |stage, pair| {
        stage.draft = pair.publisher;
        let publication = published(stage, 4);
        let subscriber = client(stage, pair.subscriber);
        let fill = Parameters {
            filter: Some(Filter::AbsoluteStart(Location::new(1, 0))),
            ..Parameters::default()
        };
        let wanted = Parameters {
            filter: Some(Filter::LargestObject),
            fill: Some(Box::new(fill)),
            ..Parameters::default()
        };
        let sent = stage.act(subscriber, |session, connection| {
            session.subscribe_tracks(connection, space("a"), wanted)
        });
        if !has_fills(pair.subscriber) {
            return assert_eq!(sent, Err(Refused::NotInDraft));
        }
        stage.noted(subscriber, sent);
        stage.step("ask for all tracks", millis(100));
        let offered = stage.offered(subscriber, 0);
        let fill = Asked {
            id: RequestId(offered.id.0 | 1 << 63),
            ..offered
        };
        whole_group(stage, publication, 4);
        stage.step("the track goes on", millis(100));
        expect_fetched(stage, fill, 1..4);
        stage.expect_objects(offered, &[4], 3, 500);
        stage.publish_done(publication, 5);
        stage.step("the end", millis(500));
        let done = stage.outcome(offered).done.as_ref();
        let streams = done.and_then(|done| done.stream_count);
        assert_eq!(streams, Some(2), "the fill counts");

        let publisher = client(stage, pair.publisher);
        let later = stage.publish(publisher, "a--y");
        stage.step("a track without a past", millis(100));
        stage.group(later, 5, 2, 50);
        stage.step("has no fill", millis(100));
        stage.expect_objects(stage.offered(subscriber, 1), &[5], 2, 50);
        let served = stage.counters().fetches_served;
        assert_eq!(served, 1);
    });
}
