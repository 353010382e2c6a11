//! Rates, traces, and the queue before them.

use std::time::Duration;

use weir_link::{Bitrate, Config, Queue, Rate, Trace};

use crate::{Story, delay, kilobits, millis};

#[test]
fn packets_take_exactly_their_share_of_the_rate() {
    // Single packets do not last whole nanoseconds at these rates and sizes, so errors would add up.
    for (bits_per_second, size_bytes, packets) in [
        (3, 1, 50),
        (7_000, 33, 1000),
        (999_983, 1201, 5000),
        (30_000_000_019, 7, 5000),
    ] {
        let rate = Rate::Fixed(Bitrate::from_bits_per_second(bits_per_second));
        let queue = Queue {
            bytes_max: u64::MAX,
            packets_max: usize::MAX,
        };
        let config = Config {
            rate,
            queue,
            ..Config::default()
        };
        let mut story = Story::new(config, 0);
        for packet in 0..packets {
            story.send(Duration::ZERO, packet, size_bytes);
        }
        let deliveries = story.finish();
        assert_eq!(deliveries.len() as u64, packets);
        for (at, packet) in deliveries {
            let bits = u128::from(packet + 1) * size_bytes as u128 * 8;
            let exact = (bits * 1_000_000_000).div_ceil(bits_per_second.into());
            assert_eq!(
                at.as_nanos(),
                exact,
                "{bits_per_second} bit/s, packet {packet}"
            );
        }
    }
}

#[test]
fn time_without_packets_is_not_saved_up() {
    let mut story = Story::new(
        Config {
            rate: kilobits(8),
            ..Config::default()
        },
        0,
    );
    story.send(millis(0), 0, 100);
    story.send(millis(5_000), 1, 100);
    story.send(millis(5_000), 2, 100);
    assert_eq!(
        story.finish(),
        [(millis(100), 0), (millis(5_100), 1), (millis(5_200), 2)]
    );
}

#[test]
fn a_rate_of_zero_holds_everything() {
    let mut story = Story::new(
        Config {
            rate: Rate::Fixed(Bitrate::ZERO),
            ..Config::default()
        },
        0,
    );
    story.send(millis(0), 0, 100);
    assert_eq!(story.link.poll_timeout(), None);
    story.link.set_rate(story.at(millis(10)), kilobits(8));
    assert_eq!(story.finish(), [(millis(110), 0)]);
}

#[test]
fn the_queue_is_full_at_its_bytes_and_not_before() {
    let queue = Queue {
        bytes_max: 3000,
        packets_max: 100,
    };
    let mut story = Story::new(
        Config {
            rate: kilobits(8),
            queue,
            ..Config::default()
        },
        0,
    );
    // One packet is being sent, three are queued.
    for packet in 0..4 {
        story.send(millis(0), packet, 1000);
    }
    assert_eq!(
        (story.link.queue_bytes(), story.link.stats().dropped()),
        (3000, 0)
    );

    story.send(millis(0), 4, 1);
    assert_eq!(story.link.stats().dropped_queue_bytes, 1);

    // There is room again as soon as the first packet has left.
    story.send(millis(1000), 5, 1000);
    story.send(millis(1000), 6, 1);
    assert_eq!(story.link.stats().dropped_queue_bytes, 2);

    // The queue is shorter later; the peak stays.
    story.send(millis(4500), 7, 10);
    assert_eq!(
        (
            story.link.queue_bytes(),
            story.link.stats().queue_bytes_peak
        ),
        (10, 3000)
    );
    let packets: Vec<u64> = story
        .finish()
        .into_iter()
        .map(|(_, packet)| packet)
        .collect();
    assert_eq!(packets, [0, 1, 2, 3, 5, 7]);
}

#[test]
fn the_queue_is_full_at_its_packets_and_not_before() {
    let queue = Queue {
        bytes_max: u64::MAX,
        packets_max: 2,
    };
    let mut story = Story::new(
        Config {
            rate: kilobits(8),
            queue,
            ..Config::default()
        },
        0,
    );
    for packet in 0..4 {
        story.send(millis(0), packet, 10);
    }
    let stats = story.link.stats();
    assert_eq!(
        (
            stats.offered,
            stats.dropped_queue_packets,
            stats.dropped_queue_bytes
        ),
        (4, 1, 0)
    );
    assert_eq!(story.finish().len(), 3);
}

#[test]
fn without_a_queue_one_packet_passes_at_a_time() {
    let queue = Queue {
        bytes_max: 0,
        packets_max: 0,
    };
    let mut story = Story::new(
        Config {
            rate: kilobits(8),
            queue,
            ..Config::default()
        },
        0,
    );
    story.send(millis(0), 0, 100);
    story.send(millis(99), 1, 100);
    story.send(millis(100), 2, 100);
    assert_eq!(story.finish(), [(millis(100), 0), (millis(200), 2)]);
}

#[test]
fn a_trace_gives_each_opportunity_to_whoever_waits() {
    let trace = Trace::parse("10\n20\n20\n50\n").expect("a good trace");
    let config = Config {
        rate: Rate::Trace(trace),
        delay: delay(millis(1)),
        ..Config::default()
    };
    let mut story = Story::new(config, 0);
    story.send(millis(0), 0, 1000); // at 10, with a part of packet 1
    story.send(millis(0), 1, 1000); // at 20
    story.send(millis(0), 2, 1504); // at 20 and 20
    story.send(millis(0), 3, 100); // in what is left at 20
    story.send(millis(20), 4, 100); // just missed: at 50
    story.send(millis(51), 5, 3000); // at 60 and 70
    story.send(millis(71), 6, 1); // at 100: what packet 5 left over is gone
    assert_eq!(
        story.finish(),
        [
            (11, 0),
            (21, 1),
            (21, 2),
            (21, 3),
            (51, 4),
            (71, 5),
            (101, 6)
        ]
        .map(|(at, packet)| (millis(at), packet))
    );
}

#[test]
fn a_busy_trace_carries_its_mean_rate() {
    let trace = Trace::new(vec![1, 1, 3, 8, 8, 8, 10]).expect("a good trace");
    let mean = trace.mean_rate().bits_per_second();
    let queue = Queue {
        bytes_max: u64::MAX,
        packets_max: usize::MAX,
    };
    let config = Config {
        rate: Rate::Trace(trace),
        queue,
        ..Config::default()
    };
    let mut story = Story::new(config, 0);
    for packet in 0..10_000 {
        story.send(millis(0), packet, 376);
    }
    story.run_until(millis(1000));
    assert_eq!(story.link.stats().delivered_bytes * 8, mean);
}
