//! Gaps that publishers declare, and objects that lie in them.

use weir_moqt::{
    data::{ObjectDatagram, ObjectHeader, SubgroupId},
    error::{PublishDoneCode, ResetCode},
    location::Location,
    parameter::Parameters,
    property::{PRIOR_GROUP_ID_GAP, PRIOR_OBJECT_ID_GAP, Properties},
    session::{CloseReason, StreamEnd},
};

use crate::{
    archive::Serving,
    stage::{Asked, Setting, Stage, datagram, millis, object, payload, plain, story},
};

/// How an object is sent.
#[derive(Clone, Copy, Debug)]
enum Way {
    Datagram,
    /// On a stream of its own, in a subgroup with this ID.
    Stream(u64),
    /// The same, with only the first half of its payload.
    Half(u64),
}

/// An object of 100 bytes: how it is sent, its location, and how many groups and objects before it do not exist.
type Step = (Way, (u64, u64), Option<u64>, Option<u64>);

use Way::{Datagram, Half, Stream};

fn properties(groups: Option<u64>, objects: Option<u64>) -> Properties {
    let mut properties = Properties::builder();
    if let Some(gap) = groups {
        properties = properties.int(PRIOR_GROUP_ID_GAP, gap);
    }
    if let Some(gap) = objects {
        properties = properties.int(PRIOR_OBJECT_ID_GAP, gap);
    }
    properties.build()
}

fn send(stage: &mut Stage, from: Asked, (way, (group, id), groups, objects): Step) {
    let properties = properties(groups, objects);
    let payload = payload(group, id, 100);
    let (subgroup, len) = match way {
        Datagram => {
            return stage.datagram_with(
                from,
                ObjectDatagram {
                    properties,
                    ..datagram(group, id, &payload)
                },
            );
        }
        Stream(subgroup) => (subgroup, payload.len()),
        Half(subgroup) => (subgroup, payload.len() / 2),
    };
    let mut header = plain(group);
    header.subgroup = SubgroupId::Explicit(subgroup);
    header.has_properties = true;
    let mut stream = stage.open_with(from, header);
    let object = ObjectHeader {
        properties,
        ..object(id, payload.len())
    };
    stage.object_with(from, &mut stream, &object, &payload[..len]);
    if len == payload.len() {
        stage.finish(from, &stream);
    }
}

fn under_way(stage: &mut Stage) -> (Asked, Asked) {
    let [publisher, subscriber] = [stage.client(), stage.client()];
    let publication = stage.publish(publisher, "a--x");
    stage.wait(millis(50));
    let subscription = stage.subscribe(subscriber, "a--x");
    stage.step("subscribe", millis(50));
    (publication, subscription)
}

/// Returns the number of complete objects that a subscriber received.
fn arrived(stage: &Stage, subscription: Asked) -> usize {
    let outcome = stage.outcome(subscription);
    outcome.objects().len() + outcome.datagrams.len()
}

fn expect_malformed(stage: &Stage, publication: Asked, subscription: Asked) {
    assert_eq!(stage.counters().tracks_malformed, 1);
    let done = stage.outcome(subscription).done.as_ref();
    let code = done.map(|done| done.code);
    assert_eq!(code, Some(PublishDoneCode::MALFORMED_TRACK));
    let closed = stage.outcome(publication).closed;
    let malformed = ResetCode::MALFORMED_TRACK;
    let is_it = matches!(closed,
        Some(CloseReason::Reset(code) | CloseReason::Stopped(code)) if code == malformed);
    assert!(is_it, "{closed:?}");
}

/// Sequences that break the object model with their last object [moqt-18 §12.8, §12.9].
const BROKEN: [&[Step]; 14] = [
    // The object lies in a gap between groups.
    &[
        (Datagram, (10, 0), Some(2), None),
        (Datagram, (9, 0), None, None),
    ],
    &[
        (Datagram, (10, 0), Some(2), None),
        (Stream(0), (8, 7), None, None),
    ],
    &[
        (Stream(0), (10, 0), Some(2), None),
        (Datagram, (8, 0), None, None),
    ],
    &[
        (Stream(0), (10, 0), Some(10), None),
        (Stream(0), (0, 0), None, None),
    ],
    // The object lies in a gap within its group.
    &[
        (Datagram, (1, 5), None, Some(2)),
        (Datagram, (1, 3), None, None),
    ],
    &[
        (Stream(5), (1, 5), None, Some(2)),
        (Stream(3), (1, 4), None, None),
    ],
    // Objects of one group declare different gaps.
    &[
        (Datagram, (10, 0), Some(2), None),
        (Datagram, (10, 1), Some(3), None),
    ],
    &[
        (Stream(0), (10, 0), Some(2), None),
        (Stream(1), (10, 1), Some(1), None),
    ],
    &[
        (Stream(0), (10, 0), Some(2), None),
        (Datagram, (10, 1), Some(0), None),
    ],
    // The gap covers an object that came.
    &[
        (Datagram, (8, 3), None, None),
        (Datagram, (10, 0), Some(2), None),
    ],
    &[
        (Stream(0), (8, 3), None, None),
        (Stream(0), (10, 0), Some(2), None),
    ],
    &[
        (Stream(3), (1, 3), None, None),
        (Stream(5), (1, 5), None, Some(2)),
    ],
    // The gap covers an object of which half came.
    &[
        (Half(0), (8, 3), None, None),
        (Datagram, (10, 0), Some(2), None),
    ],
    &[
        (Half(3), (1, 3), None, None),
        (Stream(5), (1, 5), None, Some(2)),
    ],
];

#[test]
fn what_a_gap_says_is_held_against_what_comes() {
    for cache_bytes in [16 << 20, 0] {
        let mut setting = Setting::default();
        setting.relay.cache_track_bytes_max = cache_bytes;
        for steps in BROKEN {
            story(&setting, |stage| {
                let (publication, subscription) = under_way(stage);
                let (&last, before) = steps.split_last().expect("there are some");
                for &step in before {
                    send(stage, publication, step);
                    stage.step(&format!("{step:?}, cache of {cache_bytes}"), millis(50));
                }
                assert_eq!(stage.counters().tracks_malformed, 0);
                let so_far = arrived(stage, subscription);
                send(stage, publication, last);
                stage.step(&format!("{last:?}"), millis(500));
                expect_malformed(stage, publication, subscription);
                assert_eq!(arrived(stage, subscription), so_far, "it is not passed on");
                let again = stage.publish(publication.node, "a--x");
                stage.step("the publisher mends its ways", millis(100));
                assert!(stage.is_accepted(again));
            });
        }
    }
}

#[test]
fn what_lies_beside_gaps_is_passed_on() {
    story(&Setting::default(), |stage| {
        let (publication, subscription) = under_way(stage);
        let steps: [Step; 10] = [
            (Stream(0), (10, 4), Some(2), Some(2)),
            // The same gap again, or none; and objects that came late, on all sides of the gaps.
            (Stream(5), (10, 5), Some(2), None),
            (Datagram, (10, 6), Some(2), None),
            (Datagram, (10, 7), None, None),
            (Stream(1), (10, 1), None, None),
            (Datagram, (10, 0), Some(2), None),
            (Stream(0), (7, 9), None, None),
            (Datagram, (11, 0), Some(0), None),
            (Stream(0), (12, 3), None, Some(3)),
            // A gap that ends at a known gap.
            (Stream(0), (13, 0), Some(0), Some(0)),
        ];
        for step in steps {
            send(stage, publication, step);
            stage.step(&format!("{step:?}"), millis(20));
        }
        assert_eq!(stage.counters().tracks_malformed, 0);
        assert_eq!(arrived(stage, subscription), steps.len());
        assert_eq!(stage.counters().gaps_declared_forgotten, 0);
    });
}

#[test]
fn gaps_are_told_from_objects_in_a_group_of_many() {
    story(&Setting::default(), |stage| {
        let (publication, subscription) = under_way(stage);
        let mut header = plain(1);
        header.has_properties = true;
        let mut first = stage.open_with(publication, header);
        for number in 0..1000 {
            stage.object(publication, &mut first, 4 * number, &[7]);
        }
        stage.step("a thousand objects", millis(200));
        header.subgroup = SubgroupId::Explicit(1);
        let mut second = stage.open_with(publication, header);
        let mut declare = |stage: &mut Stage, id: u64, gap: u64| {
            let object = ObjectHeader {
                properties: properties(None, Some(gap)),
                ..object(id, 1)
            };
            stage.object_with(publication, &mut second, &object, &[7]);
        };
        for number in (0..800).step_by(8) {
            declare(stage, 4 * number + 2, 1);
        }
        stage.step("a hundred gaps beside them", millis(200));
        assert_eq!(arrived(stage, subscription), 1100);
        assert_eq!(stage.counters().tracks_malformed, 0);
        declare(stage, 4 * 900 + 2, 2);
        stage.step("one that would hold one of them", millis(200));
        expect_malformed(stage, publication, subscription);
    });
}

#[test]
fn who_counts_anew_may_fill_the_gaps_that_were() {
    story(&Setting::default(), |stage| {
        let (publication, subscription) = under_way(stage);
        send(stage, publication, (Stream(0), (10, 5), Some(9), Some(5)));
        stage.step("group 10, and nothing before it", millis(50));
        stage.cancel(publication);
        stage.step("the publisher falls", millis(50));
        let again = stage.publish(publication.node, "a--x");
        stage.step("and comes back", millis(50));
        send(stage, again, (Stream(0), (1, 0), None, None));
        send(stage, again, (Stream(0), (10, 0), Some(2), None));
        stage.step("its groups begin at 1 now", millis(100));
        assert_eq!(stage.counters().tracks_malformed, 0);
        assert_eq!(arrived(stage, subscription), 3);
    });
}

#[test]
fn gaps_that_are_held_against_objects_are_bounded() {
    let mut setting = Setting::default();
    setting.relay.gaps_declared_per_track_max = 2;
    // The cache also remembers only the last gap.
    setting.relay.cache_gaps_per_track_max = 0;
    for past in [false, true] {
        story(&setting, |stage| {
            let (publication, subscription) = under_way(stage);
            for id in [2, 5] {
                send(stage, publication, (Datagram, (0, id), None, Some(1)));
            }
            stage.step("two gaps, at the limit", millis(50));
            if past {
                send(stage, publication, (Datagram, (0, 8), None, Some(1)));
                stage.step("one past it", millis(50));
            }
            assert_eq!(stage.counters().gaps_declared_forgotten, u64::from(past));
            send(stage, publication, (Datagram, (0, 1), None, None));
            stage.step("an object where the first gap was", millis(100));
            let malformed = u64::from(!past);
            assert_eq!(stage.counters().tracks_malformed, malformed);
            if past {
                assert_eq!(arrived(stage, subscription), 4, "the gap is forgotten");
                send(stage, publication, (Datagram, (0, 4), None, None));
                stage.step("an object where the second one is", millis(100));
            }
            expect_malformed(stage, publication, subscription);
        });
    }
}

#[test]
fn an_answer_to_a_fetch_may_not_lie_in_a_gap_that_is_told_meanwhile() {
    for told in [None, Some(2)] {
        story(&Setting::default(), |stage| {
            let [publisher, client] = [(); 2].map(|()| stage.client());
            stage.direct(publisher, |actor| {
                actor.archive.fill(0, 2, 1, 100);
                actor.archive.serving = Serving::Serve;
            });
            let so_far = Parameters {
                largest_object: Some(Location::new(2, 0)),
                ..Parameters::default()
            };
            let publication = stage.publish_with(publisher, "a--x", so_far, Properties::EMPTY);
            stage.wait(millis(50));
            let subscription = stage.subscribe(client, "a--x");
            stage.step("subscribe", millis(50));
            let fetch = stage.fetch(client, "a--x", (0, 0), (2, 0));
            stage.step("a fetch of what was; the relay asks for it", millis(15));
            send(stage, publication, (Stream(0), (3, 0), told, None));
            stage.step(
                "an object, perhaps with a gap, then the answer",
                millis(200),
            );
            let is_told = told.is_some();
            assert_eq!(stage.counters().tracks_malformed, u64::from(is_told));
            assert_eq!(stage.counters().fetches_malformed, u64::from(is_told));
            if is_told {
                expect_malformed(stage, publication, subscription);
                let closed = stage.outcome(fetch).closed;
                assert_eq!(closed, Some(CloseReason::Reset(ResetCode::MALFORMED_TRACK)));
            } else {
                let places = stage.fetched(fetch).places(100);
                assert_eq!(places, [(0, 0), (1, 0), (2, 0)]);
            }
        });
    }
}

#[test]
fn what_an_answer_to_a_fetch_left_out_does_not_come_after_all() {
    for is_asked in [false, true] {
        story(&Setting::default(), |stage| {
            let (publication, subscription) = under_way(stage);
            stage.direct(publication.node, |actor| {
                actor.archive.fill(1, 1, 2, 100);
                actor.archive.fill(2, 2, 1, 100);
                actor.archive.serving = Serving::Serve;
            });
            send(stage, publication, (Stream(0), (1, 6), None, None));
            stage.step("the newest object", millis(50));
            if is_asked {
                let fetch = stage.fetch(subscription.node, "a--x", (1, 1), (1, 5));
                stage.step("a fetch of those before it", millis(200));
                assert_eq!(stage.fetched(fetch).places(100), [(1, 1)]);
            }
            // Objects where the answer had none: a whole datagram, the only object of a stream, the first object of a
            // stream, and one in the middle of a stream.
            send(stage, publication, (Datagram, (1, 2), None, None));
            send(stage, publication, (Stream(7), (1, 5), None, None));
            for (subgroup, ids) in [(8, [3, 7]), (9, [0, 4])] {
                let mut header = plain(1);
                header.subgroup = SubgroupId::Explicit(subgroup);
                let mut stream = stage.open_with(publication, header);
                for id in ids.into_iter().chain([subgroup]) {
                    stage.object(publication, &mut stream, id, &payload(1, id, 100));
                    stage.step(&format!("{id} of subgroup {subgroup}"), millis(20));
                }
                stage.finish(publication, &stream);
            }
            stage.step("the ends of the streams", millis(100));
            let counters = stage.counters();
            assert_eq!(counters.tracks_malformed, 0);
            let outcome = stage.outcome(subscription);
            let mut found = Vec::new();
            for arrival in &outcome.streams {
                assert_eq!(arrival.end, Some(StreamEnd::Fin));
                for object in &arrival.objects {
                    let id = object.header.id;
                    assert_eq!(object.payload, payload(1, id, 100), "{id}");
                    found.push(id);
                }
            }
            found.sort_unstable();
            if is_asked {
                assert_eq!(found, [0, 6, 7, 8, 9]);
                assert_eq!(outcome.datagrams.len(), 0);
                assert_eq!(counters.objects_ruled_out, 4);
                let again = stage.fetch(subscription.node, "a--x", (1, 0), (1, 7));
                stage.step("they are not kept either", millis(200));
                let places = stage.fetched(again).places(100);
                assert_eq!(places, [(1, 0), (1, 1), (1, 6), (1, 7)]);
            } else {
                assert_eq!(found, [0, 3, 4, 5, 6, 7, 8, 9]);
                assert_eq!(outcome.datagrams.len(), 1);
                assert_eq!(counters.objects_ruled_out, 0);
            }
        });
    }
}
