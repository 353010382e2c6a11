//! Objects whose content was altered.

use super::*;
use crate::message::DATA_HEADER_BYTES;
use crate::profile::Pattern;

#[test]
fn other_runs_are_not_counted() {
    let mut bench = Bench::new(&profile(2, 1));
    let sent = bench.send_all();
    let mut foreign = sent[2].bytes.clone();
    foreign[36] ^= 1;
    assert_eq!(bench.receive_bytes(&foreign), Received::Foreign);
    let result = bench.result();
    assert_eq!(
        (result.delivery.foreign, result.completion.objects_received),
        (1, 0)
    );
    assert_eq!(result.failure, None);
}

#[test]
fn a_relay_that_renumbers_is_noticed() {
    let mut bench = Bench::new(&profile(3, 2));
    let sent = bench.send_all();
    bench.receive(&sent[0], Duration::ZERO);
    // The first object fixes the offset, whatever it is.
    bench.receive_as(&sent[2], 200 * MS, 50, 0);
    bench.receive_as(&sent[3], 220 * MS, 50, 1);
    assert_eq!(bench.result().delivery.misplaced, 0);
    bench.receive_as(&sent[4], 240 * MS, 50, 2);
    bench.receive_as(&sent[5], 260 * MS, 51, 2);
    assert_eq!(
        (bench.result().delivery.misplaced, bench.receiver.objects()),
        (2, 4)
    );
}

/// The objects counted as corrupt if a relay delivers a whole track and alters every object.
fn corrupt(track: &TrackProfile) -> (u64, u64) {
    let mut bench = Bench::new(track);
    for sent in bench.send_all() {
        let delivered = Delivered {
            intact: false,
            ..sent.delivered()
        };
        bench.receive_delivered(sent.item.at, &delivered);
    }
    let result = bench.result();
    (result.delivery.corrupt, result.completion.objects_received)
}

#[test]
fn changed_content_counts_with_a_latency_and_without() {
    let tagged = profile(2, 4);
    assert_eq!(corrupt(&tagged), (8, 8));
    let fetched = TrackProfile {
        pattern: Pattern::Fetch,
        ..profile(2, 4)
    };
    assert_eq!(corrupt(&fetched), (8, 8));
    let short = TrackProfile {
        first_object_size: ObjectSize::new(60).unwrap(),
        object_size: ObjectSize::new(26).unwrap(),
        ..profile(2, 4)
    };
    assert_eq!(corrupt(&short), (8, 8));
}

#[test]
fn a_changed_copy_of_an_object_counts_too() {
    let mut bench = Bench::new(&profile(2, 1));
    let sent = bench.send_all();
    for sent in &sent {
        bench.receive(sent, sent.item.at);
    }
    assert_eq!(bench.result().delivery.corrupt, 0);
    let mut bench = Bench::new(&profile(2, 1));
    let sent = bench.send_all();
    bench.receive(&sent[0], Duration::ZERO);
    bench.receive(&sent[2], 200 * MS);
    let copy = Delivered {
        intact: false,
        ..sent[2].delivered()
    };
    assert_eq!(bench.receive_delivered(210 * MS, &copy), Received::Repeated);
    let delivery = bench.result().delivery;
    assert_eq!((delivery.corrupt, delivery.duplicates), (1, 1));
}

#[test]
fn a_tag_that_is_gone_was_changed_where_others_have_one() {
    let mut bench = Bench::new(&profile(2, 2));
    let sent = bench.send_all();
    let without_tag = |sent: &Sent| {
        let mut bytes = sent.bytes.clone();
        bytes[DATA_HEADER_BYTES] ^= 1;
        Sent {
            item: sent.item,
            bytes,
        }
    };
    bench.receive(&sent[0], Duration::ZERO);
    // Another tool's publisher writes no tags, and its content is unknown.
    let other = without_tag(&sent[2]);
    let unknown = Delivered {
        intact: false,
        ..other.delivered()
    };
    bench.receive_delivered(200 * MS, &unknown);
    assert_eq!(bench.result().delivery.corrupt, 0);
    bench.receive(&sent[3], 220 * MS);
    bench.receive(&without_tag(&sent[4]), 240 * MS);
    assert_eq!(bench.result().delivery.corrupt, 1);
}

#[test]
fn objects_from_the_future_are_counted() {
    let mut bench = Bench::new(&profile(2, 1));
    let sent = bench.send_all();
    bench.receive(&sent[0], Duration::ZERO);
    bench.receive(&sent[2], 100 * MS);
    bench.receive(&sent[3], 300 * MS);
    assert_eq!(bench.result().delivery.negative_latencies, 1);
}

/// The result of a subscriber that received the first four of eight objects and a COMPLETION with these totals.
fn half_received(objects_sent: u64, groups_sent: u64) -> (Bench, TrackResult) {
    let mut bench = Bench::new(&profile(4, 2));
    for sent in bench.send_all() {
        if sent.number().is_some_and(|number| number < 4) || sent.item.at.is_zero() {
            bench.receive(&sent, sent.item.at);
        }
    }
    let completion = Completion {
        objects_sent,
        groups_sent,
        ..bench.sender.completion()
    };
    assert_eq!(
        bench.receive_bytes(&completion.encode()),
        Received::Completion
    );
    let result = bench.result();
    assert_eq!(result.completion.objects_sent, Some(objects_sent));
    (bench, result)
}

#[test]
fn a_forged_completion_hides_no_loss() {
    for (objects, groups, altered) in [(4, 2, 1), (7, 4, 1), (8, 2, 1), (8, 4, 0)] {
        let (bench, result) = half_received(objects, groups);
        assert_eq!(result.status, Status::Good);
        let delivery = result.delivery;
        assert_eq!((result.completion.lost_objects, delivery.lost_tail), (4, 4));
        assert_eq!(delivery.corrupt, altered, "{objects} in {groups}");
        // A publisher in another process: only COMPLETION is known.
        let remote = bench.receiver.result(&bench.plan, None);
        assert_eq!(remote.completion.lost_objects, objects - 4);
        assert_eq!(remote.delivery.corrupt, 0);
    }
}

#[test]
fn an_honest_completion_is_as_it_was_sent() {
    // A publisher that is stopped early, and one that leaves out expired objects.
    for left_out in [None, Some(5)] {
        let mut bench = Bench::new(&profile(3, 4));
        for index in (0..9).filter(|index| Some(*index) != left_out) {
            let sent = bench.send(index);
            bench.receive(&sent, sent.item.at);
        }
        let completion = bench.sender.completion().encode();
        assert_eq!(bench.receive_bytes(&completion), Received::Completion);
        let result = bench.result();
        let lost = result.completion.lost_objects;
        assert_eq!((lost, result.delivery.corrupt), (0, 0), "{left_out:?}");
    }
    // A fetched object is sent once per fetch, or never if the relay has it.
    for times in [0, 1, 3] {
        let mut bench = Bench::new(&TrackProfile {
            pattern: Pattern::Fetch,
            ..profile(2, 4)
        });
        let sent = bench.send_all();
        bench.sender = TrackSender::default();
        for _ in 0..times {
            bench.send_all();
        }
        for sent in &sent {
            bench.receive(sent, sent.item.at);
        }
        let result = bench.result();
        let lost = result.completion.lost_objects;
        assert_eq!((lost, result.delivery.corrupt), (0, 0), "{times} times");
    }
}
