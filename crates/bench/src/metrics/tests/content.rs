//! Objects that are not as they were sent.

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

/// Objects that are counted as corrupt if a relay delivers all of a track and leaves none of them intact.
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
    // A publisher of another make has no tags, and content that nobody knows.
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
fn objects_from_the_future_are_told_of() {
    let mut bench = Bench::new(&profile(2, 1));
    let sent = bench.send_all();
    bench.receive(&sent[0], Duration::ZERO);
    bench.receive(&sent[2], 100 * MS);
    bench.receive(&sent[3], 300 * MS);
    assert_eq!(bench.result().delivery.negative_latencies, 1);
}
