//! Malformed tracks, requests for new groups, and updates of subscriptions.

use weir_moqt::{
    data::{ObjectDatagram, ObjectHeader, ObjectStatus, SubgroupId},
    error::{PublishDoneCode, RequestErrorCode, ResetCode},
    location::Location,
    parameter::Parameters,
    property::{IMMUTABLE, PRIOR_OBJECT_ID_GAP, Properties},
    session::CloseReason,
};

use crate::{
    archive::Serving,
    stage::{Asked, Setting, Stage, datagram, millis, object, payload, plain, story},
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

/// How the second of two publishers contradicts the first. The first sent group 0 with two objects of 300 bytes in
/// subgroup 0, finished, and a datagram at (1, 0).
#[derive(Clone, Copy, Debug)]
enum Contradiction {
    Payload,
    Length,
    Priority,
    Subgroup,
    Preference,
    Datagram,
    DatagramPriority,
    StreamForDatagram,
    LongerSubgroup,
    ShorterSubgroup,
    Gap,
    ImmutableProperty,
}

const CONTRADICTIONS: [Contradiction; 12] = [
    Contradiction::Payload,
    Contradiction::Length,
    Contradiction::Priority,
    Contradiction::Subgroup,
    Contradiction::Preference,
    Contradiction::Datagram,
    Contradiction::DatagramPriority,
    Contradiction::StreamForDatagram,
    Contradiction::LongerSubgroup,
    Contradiction::ShorterSubgroup,
    Contradiction::Gap,
    Contradiction::ImmutableProperty,
];

fn contradict(stage: &mut Stage, from: Asked, how: Contradiction) {
    let mut header = plain(0);
    let mut objects = vec![payload(0, 0, 300), payload(0, 1, 300)];
    let mut properties = Properties::EMPTY;
    match how {
        Contradiction::Payload => objects[1][299] ^= 1,
        Contradiction::Length => objects[1].truncate(299),
        Contradiction::Priority => header.priority = Some(7),
        Contradiction::Subgroup => header.subgroup = SubgroupId::Explicit(1),
        Contradiction::LongerSubgroup => objects.push(payload(0, 2, 300)),
        Contradiction::ShorterSubgroup => drop(objects.pop()),
        Contradiction::ImmutableProperty => {
            header.has_properties = true;
            let inner = Properties::builder().int(0x38, 1).build();
            let inner = inner.as_bytes().clone();
            properties = Properties::builder().bytes(IMMUTABLE, inner).build();
        }
        Contradiction::StreamForDatagram => {
            header.group = 1;
            objects = vec![b"datagram".to_vec()];
        }
        Contradiction::Preference => return stage.datagram(from, 0, 0, &objects[0]),
        Contradiction::Datagram => return stage.datagram(from, 1, 0, b"Datagram"),
        Contradiction::DatagramPriority => {
            return stage.datagram_with(
                from,
                ObjectDatagram {
                    priority: Some(7),
                    ..datagram(1, 0, b"datagram")
                },
            );
        }
        Contradiction::Gap => {
            header.group = 1;
            header.has_properties = true;
            properties = Properties::builder().int(PRIOR_OBJECT_ID_GAP, 3).build();
            let mut stream = stage.open_with(from, header);
            let object = ObjectHeader {
                properties,
                ..object(3, 300)
            };
            return stage.object_with(from, &mut stream, &object, &payload(1, 3, 300));
        }
    }
    let mut stream = stage.open_with(from, header);
    for (id, payload) in (0..).zip(&objects) {
        let object = ObjectHeader {
            properties: properties.clone(),
            ..object(id, payload.len())
        };
        stage.object_with(from, &mut stream, &object, payload);
    }
    stage.finish(from, &stream);
}

#[test]
fn who_contradicts_another_publisher_is_let_go_and_the_other_stays() {
    for how in CONTRADICTIONS {
        story(&Setting::default(), |stage| {
            let [one, other, subscriber, fetcher] = [(); 4].map(|()| stage.client());
            let [good, bad] = [one, other].map(|node| stage.publish(node, "a--x"));
            stage.wait(millis(50));
            let subscription = stage.subscribe(subscriber, "a--x");
            stage.step(&format!("two publishers; {how:?}"), millis(100));
            stage.group(good, 0, 2, 300);
            stage.datagram(good, 1, 0, b"datagram");
            stage.datagram(good, 9, 0, b"the newest");
            stage.wait(millis(50));
            let running = stage.fetch(fetcher, "a--x", (0, 0), (9, 0));
            let waiting = stage.fetch(fetcher, "a--x", (5, 0), (6, 0));
            stage.step("two fetches, of what nobody has", millis(100));
            assert_eq!(stage.counters().tracks_malformed, 0);
            contradict(stage, bad, how);
            stage.step("a contradiction", millis(300));
            expect_malformed(stage, bad, subscription);
            assert!(stage.outcome(good).closed.is_none(), "it did nothing wrong");
            let closed = stage.outcome(running).closed;
            assert_eq!(closed, Some(CloseReason::Reset(ResetCode::MALFORMED_TRACK)));
            assert_eq!(
                stage.refusal(waiting),
                Some(RequestErrorCode::MALFORMED_TRACK)
            );
            let again = stage.subscribe(subscriber, "a--x");
            stage.wait(millis(50));
            stage.group(good, 10, 2, 100);
            stage.step("the other goes on", millis(100));
            stage.expect_objects(again, &[10], 2, 100);
            let fetch = stage.fetch(fetcher, "a--x", (0, 0), (0, 1));
            stage.step("what it sent is remembered", millis(100));
            assert_eq!(stage.fetched(fetch).places(300), [(0, 0), (0, 1)]);
        });
    }
}

#[test]
fn a_publisher_may_not_contradict_itself() {
    for how in CONTRADICTIONS {
        story(&Setting::default(), |stage| {
            let (publication, subscription) = under_way(stage);
            stage.group(publication, 0, 2, 300);
            stage.datagram(publication, 1, 0, b"datagram");
            stage.step(&format!("objects; {how:?}"), millis(100));
            contradict(stage, publication, how);
            stage.step("a contradiction", millis(300));
            expect_malformed(stage, publication, subscription);
        });
    }
}

#[test]
fn nothing_comes_behind_the_end_that_a_fetch_told_of() {
    story(&Setting::default(), |stage| {
        let [archive, publisher, client] = [(); 3].map(|()| stage.client());
        stage.direct(archive, |actor| {
            actor.archive.fill(0, 2, 3, 300);
            actor.archive.serving = Serving::ServeWhole;
        });
        let announcement = stage.announce(archive, "a");
        stage.wait(millis(50));
        let fetch = stage.fetch(client, "a--x", (0, 0), (9, 0));
        stage.step("a fetch, which says that the track ends", millis(200));
        assert_eq!(stage.fetched(fetch).places(300).len(), 9);
        stage.cancel(announcement);
        let so_far = Parameters {
            largest_object: Some(Location::new(2, 2)),
            ..Parameters::default()
        };
        let publication = stage.publish_with(publisher, "a--x", so_far, Properties::EMPTY);
        stage.wait(millis(50));
        let subscription = stage.subscribe(client, "a--x");
        stage.step("it is published all the same", millis(50));
        stage.group(publication, 3, 1, 300);
        stage.step("with one more group", millis(200));
        expect_malformed(stage, publication, subscription);
    });
}

#[test]
fn properties_that_may_change_are_no_contradiction() {
    story(&Setting::default(), |stage| {
        let [one, other, subscriber] = [(); 3].map(|()| stage.client());
        let publications = [one, other].map(|node| stage.publish(node, "a--x"));
        stage.wait(millis(50));
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.wait(millis(50));
        for (publication, value) in publications.into_iter().zip([1, 2]) {
            let mut header = plain(0);
            header.has_properties = true;
            let mut stream = stage.open_with(publication, header);
            let object = ObjectHeader {
                properties: Properties::builder().int(0x38, value).build(),
                ..object(0, 300)
            };
            stage.object_with(publication, &mut stream, &object, &payload(0, 0, 300));
            stage.finish(publication, &stream);
            stage.step("the same object, but for a property", millis(50));
        }
        stage.expect_objects(subscription, &[0], 1, 300);
        assert_eq!(stage.counters().tracks_malformed, 0);
        assert_eq!(stage.counters().duplicates, 1);
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
