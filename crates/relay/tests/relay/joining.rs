//! Subscribers that join a track while it is being published.

use weir_moqt::{
    data::SubgroupId,
    error::RequestErrorCode,
    location::Location,
    parameter::{Filter, Parameters},
};

use crate::stage::{
    Asked, Outgoing, Setting, Stage, has_fills, millis, object, payload, secs, story,
};

fn filter(filter: Filter) -> Parameters {
    Parameters {
        filter: Some(filter),
        ..Parameters::default()
    }
}

/// Publishes group 4 in full, and objects 0 to 2 of group 5.
fn under_way(stage: &mut Stage) -> (Asked, Outgoing) {
    let publisher = stage.client();
    let publication = stage.publish(publisher, "a--x");
    stage.wait(millis(50));
    stage.group(publication, 4, 5, 200);
    let mut stream = stage.open(publication, 5);
    for id in 0..3 {
        stage.object(publication, &mut stream, id, &payload(5, id, 200));
    }
    stage.step("a track is under way", millis(50));
    (publication, stream)
}

/// Publishes objects 3 and 4 of group 5, and groups 6 to 8 in full.
fn go_on(stage: &mut Stage, publication: Asked, mut stream: Outgoing) {
    for id in 3..5 {
        stage.object(publication, &mut stream, id, &payload(5, id, 200));
        stage.wait(millis(10));
    }
    stage.finish(publication, &stream);
    for group in 6..9 {
        stage.group(publication, group, 5, 200);
        stage.wait(millis(10));
    }
    stage.step("it has gone on", millis(50));
}

/// Returns the locations of the objects received.
fn places(stage: &Stage, subscription: Asked) -> Vec<(u64, u64)> {
    let objects = stage.outcome(subscription).objects();
    for (group, id, received) in &objects {
        assert_eq!(*received, payload(*group, *id, 200));
    }
    objects.iter().map(|(group, id, _)| (*group, *id)).collect()
}

fn range(from: u64, group: u64) -> impl Iterator<Item = (u64, u64)> {
    (from..5).map(move |id| (group, id))
}

#[test]
fn without_a_filter_everything_that_still_comes_is_delivered() {
    for parameters in [Parameters::default(), filter(Filter::LargestObject)] {
        story(&Setting::default(), |stage| {
            let (publication, stream) = under_way(stage);
            let subscriber = stage.client();
            let subscription = stage.subscribe_with(subscriber, "a--x", parameters.clone());
            stage.step("a subscriber comes", millis(50));
            let largest = Location::new(5, 2);
            let ok = stage.outcome(subscription).ok.clone().unwrap();
            assert_eq!(ok.parameters.largest_object, Some(largest));
            go_on(stage, publication, stream);
            let mut expected = vec![(5, 3), (5, 4)];
            expected.extend((6..9).flat_map(|group| range(0, group)));
            assert_eq!(places(stage, subscription), expected);
            let streams = &stage.outcome(subscription).streams;
            assert_eq!(streams[0].header.subgroup, SubgroupId::Explicit(0));
            assert!(!streams[0].header.first_object, "it is not the first");
            assert!(streams[1].header.first_object);
            assert_eq!(streams[1].header.subgroup, SubgroupId::Zero);
        });
    }
}

#[test]
fn a_subgroup_named_by_its_first_object_keeps_its_name_for_late_joiners() {
    story(&Setting::default(), |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        stage.wait(millis(50));
        let header = weir_moqt::data::SubgroupHeader {
            subgroup: SubgroupId::FirstObject,
            end_of_group: true,
            priority: Some(7),
            ..crate::stage::plain(1)
        };
        let mut stream = stage.open_with(publication, header);
        stage.object(publication, &mut stream, 40, b"first");
        stage.object_with(publication, &mut stream, &object(50, 6), b"sec");
        stage.step("in the middle of an object", millis(50));
        let subscriber = stage.client();
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.step("a subscriber comes", millis(50));
        stage.write(publication, stream.stream, b"ond"[..].into(), false);
        stage.object(publication, &mut stream, 60, b"third");
        stage.finish(publication, &stream);
        stage.step("the rest", millis(50));
        let streams = &stage.outcome(subscription).streams;
        assert_eq!(streams.len(), 1);
        assert_eq!(streams[0].header.subgroup, SubgroupId::Explicit(40));
        assert_eq!(streams[0].header.priority, Some(7));
        assert!(streams[0].header.end_of_group);
        let objects = stage.outcome(subscription).objects();
        assert_eq!(objects, [(1, 60, b"third".to_vec())]);
    });
}

#[test]
fn the_next_group_is_delivered_whole() {
    story(&Setting::default(), |stage| {
        let (publication, stream) = under_way(stage);
        let subscriber = stage.client();
        let parameters = filter(Filter::NextGroupStart);
        let subscription = stage.subscribe_with(subscriber, "a--x", parameters);
        stage.step("a subscriber comes", millis(50));
        go_on(stage, publication, stream);
        stage.expect_objects(subscription, &[6, 7, 8], 5, 200);
    });
}

#[test]
fn an_absolute_start_is_kept_to_the_object() {
    story(&Setting::default(), |stage| {
        let (publication, stream) = under_way(stage);
        let [early, late] = [Location::new(4, 0), Location::new(7, 2)].map(|start| {
            let subscriber = stage.client();
            let parameters = filter(Filter::AbsoluteStart(start));
            stage.subscribe_with(subscriber, "a--x", parameters)
        });
        stage.step("subscribers come", millis(50));
        go_on(stage, publication, stream);
        let mut expected = vec![(5, 3), (5, 4)];
        expected.extend((6..9).flat_map(|group| range(0, group)));
        assert_eq!(places(stage, early), expected);
        let expected: Vec<_> = range(2, 7).chain(range(0, 8)).collect();
        assert_eq!(places(stage, late), expected);
    });
}

#[test]
fn an_absolute_range_ends_with_its_group() {
    story(&Setting::default(), |stage| {
        let (publication, stream) = under_way(stage);
        let parameters = filter(Filter::AbsoluteRange {
            start: Location::new(6, 1),
            end: Location::new(7, u64::MAX),
        });
        let subscriber = stage.client();
        let subscription = stage.subscribe_with(subscriber, "a--x", parameters);
        stage.step("a subscriber comes", millis(50));
        go_on(stage, publication, stream);
        for group in 6..9 {
            stage.datagram(publication, group, 9, b"");
        }
        stage.wait(millis(50));
        let expected: Vec<_> = range(1, 6).chain(range(0, 7)).collect();
        assert_eq!(places(stage, subscription), expected);
        let datagrams = stage.outcome(subscription).datagram_places();
        assert_eq!(datagrams, [(6, 9), (7, 9)]);
    });
}

#[test]
fn a_range_that_is_over_is_refused() {
    story(&Setting::default(), |stage| {
        let (_, _) = under_way(stage);
        let [over, current] = [4, 5].map(|end_group| {
            let subscriber = stage.client();
            let start = Location::ZERO;
            let end = Location::new(end_group, u64::MAX);
            let parameters = filter(Filter::AbsoluteRange { start, end });
            stage.subscribe_with(subscriber, "a--x", parameters)
        });
        stage.step("subscribers come", millis(50));
        assert!(stage.is_accepted(current));
        // From draft-20 on such a filter is valid [moqt-22 §3.3.1].
        let is_refused = !has_fills(stage.draft);
        let code = is_refused.then_some(RequestErrorCode::INVALID_RANGE);
        assert_eq!(stage.refusal(over), code);
        assert_eq!(stage.counters().refused_range, u64::from(is_refused));
        assert_eq!(stage.gauges().subscriptions, if is_refused { 1 } else { 2 });
    });
}

#[test]
fn a_changed_range_takes_effect_at_once() {
    story(&Setting::default(), |stage| {
        let (publication, mut stream) = under_way(stage);
        let subscriber = stage.client();
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.wait(millis(50));
        stage.object(publication, &mut stream, 3, &payload(5, 3, 200));
        stage.step("one object", millis(50));
        stage.update(subscription, filter(Filter::NextGroupStart));
        stage.step("from the next group on", millis(50));
        stage.object(publication, &mut stream, 4, &payload(5, 4, 200));
        stage.finish(publication, &stream);
        stage.group(publication, 6, 5, 200);
        stage.wait(secs(1));
        let mut expected = vec![(5, 3)];
        expected.extend(range(0, 6));
        assert_eq!(places(stage, subscription), expected);
        let streams = &stage.outcome(subscription).streams;
        assert!(matches!(
            streams[0].end,
            Some(weir_moqt::session::StreamEnd::Reset(_))
        ));
    });
}

#[test]
fn a_start_within_the_present_group_is_kept_to_the_object() {
    story(&Setting::default(), |stage| {
        let (publication, mut stream) = under_way(stage);
        let subscriber = stage.client();
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.wait(millis(50));
        stage.object(publication, &mut stream, 3, &payload(5, 3, 200));
        stage.step("one object", millis(50));
        let start = Location::new(5, 6);
        stage.update(subscription, filter(Filter::AbsoluteStart(start)));
        stage.step("not before object 6", millis(50));
        for id in 4..8 {
            stage.object(publication, &mut stream, id, &payload(5, id, 200));
            stage.wait(millis(10));
        }
        stage.finish(publication, &stream);
        stage.step("four more", millis(50));
        assert_eq!(places(stage, subscription), [(5, 3), (5, 6), (5, 7)]);
    });
}

#[test]
fn objects_that_overtake_their_publish_are_delivered_in_order() {
    story(&Setting::default(), |stage| {
        let subscriber = stage.client();
        let parameters = crate::stage::rendezvous(secs(9));
        let subscription = stage.subscribe_with(subscriber, "a--x", parameters);
        let publisher = stage.client();
        stage.step("wait for the track", millis(50));
        let early = stage.coming(publisher);
        for group in 0..20 {
            stage.group(early, group, 1, 50);
        }
        stage.datagram(early, 0, 9, b"early");
        stage.step("objects of nothing known", millis(100));
        assert!(stage.outcome(subscription).answer.is_none());
        stage.publish(publisher, "a--x");
        stage.step("and now the track", millis(100));
        stage.expect_objects(subscription, &(0..20).collect::<Vec<_>>(), 1, 50);
        let streams = &stage.outcome(subscription).streams;
        assert!(streams.is_sorted_by_key(|arrival| (arrival.stream, arrival.header.group)));
        assert!(streams.is_sorted_by_key(|arrival| arrival.header.group));
        assert_eq!(stage.outcome(subscription).datagram_places(), [(0, 9)]);
    });
}
