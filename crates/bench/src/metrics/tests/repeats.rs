//! Messages and objects that arrive more than once.

use super::*;
use crate::profile::StreamMapping;

#[test]
fn what_is_repeated_keeps_no_track_open() {
    // START twice, then an object twice.
    for (last, repeated) in [(0, 1), (2, 2)] {
        let mut bench = Bench::new(&profile(2, 1));
        let sent = bench.send_all();
        for sent in &sent[..=last] {
            bench.receive(sent, sent.item.at);
        }
        let idle_at = sent[last].item.at + bench.plan.idle_timeout();
        let before_idle = idle_at.checked_sub(MS).expect("later than that");
        let received = bench.receive(&sent[repeated], before_idle);
        assert!(
            matches!(received, Received::Start | Received::Repeated),
            "{received:?}"
        );
        bench.wait_until(before_idle);
        assert!(!bench.receiver.has_ended());
        bench.wait_until(idle_at);
        assert_eq!(bench.result().end, Some(End::Idle));
    }
}

#[test]
fn a_stream_that_is_reset_again_cuts_nothing_off_twice() {
    let mut bench = Bench::new(&profile(2, 4));
    let sent = bench.send_all();
    for sent in &sent[..4] {
        bench.receive(sent, sent.item.at);
    }
    // The second half of the group, then parts of it again, then all of it.
    let group = sent[2].item.group;
    for next_object in [2, 3, u64::MAX, 2] {
        bench
            .receiver
            .handle_reset(&bench.plan, group, 0, next_object);
    }
    // The first object of the next group is lost on the second path.
    for sent in &sent[7..] {
        bench.receive(sent, sent.item.at);
    }
    let delivery = bench.result().delivery;
    assert_eq!((delivery.cut_by_reset, delivery.dropped), (2, 1));
}

#[test]
fn a_reset_behind_the_highest_number_cuts_nothing_off() {
    for mapping in StreamMapping::ALL {
        let mut bench = Bench::new(&TrackProfile {
            stream_mapping: mapping,
            ..profile(2, 4)
        });
        let sent = bench.send_all();
        let group = sent[2].item.group;
        for subgroup in [0, 1] {
            let receiver = &mut bench.receiver;
            receiver.handle_reset(&bench.plan, group, subgroup, u64::MAX);
        }
        assert_eq!(bench.result().delivery.cut_by_reset, 0, "{mapping:?}");
    }
}

#[test]
fn what_a_joining_fetch_brings_is_received_and_measures_nothing_else() {
    let mut bench = Bench::new(&TrackProfile {
        late_join: true,
        ..profile(3, 4)
    });
    let sent = bench.send_all();
    let data: Vec<&Sent> = sent.iter().filter(|sent| sent.number().is_some()).collect();
    // The subscription begins with the second group.
    for sent in &data[4..] {
        bench.receive(sent, sent.item.at + 5 * MS);
    }
    let before = bench.result();
    assert_eq!(
        (before.completion.lost_objects, before.delivery.lost_join),
        (4, 4)
    );
    let late = data[11].item.at + 900 * MS;
    let past = |bench: &mut Bench, sent: &Sent| {
        let (now, delivered) = (bench.origin + late, sent.delivered());
        bench
            .receiver
            .handle_past_object(now, &bench.plan, &delivered)
    };
    for (number, sent) in (0..).zip(&data[..4]) {
        assert_eq!(past(&mut bench, sent), Received::Past { number });
    }
    // An object that came by both ways counts once.
    assert_eq!(past(&mut bench, data[5]), Received::Repeated);
    let after = bench.result();
    assert_eq!(
        (
            after.completion.objects_received,
            after.completion.lost_objects
        ),
        (12, 0)
    );
    assert_eq!(
        (
            after.delivery.reordered,
            after.delivery.late,
            after.delivery.duplicates
        ),
        (0, 0, 1)
    );
    assert_eq!(after.latency, before.latency);
    assert_eq!(after.variance, before.variance);
    let rates = [before, after].map(|one| one.completion.average_bits_per_second);
    assert!((rates[0] - rates[1]).abs() < 1e-6, "{rates:?}");
}
