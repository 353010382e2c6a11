//! Random choices: loss, jitter, duplication, reordering.

use std::time::Duration;

use weir_link::{
    Config, Delay, GilbertElliott, IN_FLIGHT_PACKETS_MAX, Jitter, Link, Loss, Probability,
    Reordering,
};

use crate::{Deliveries, Story, delay, kilobits, micros, millis};

const SEEDS: std::ops::Range<u64> = 1..6;
const PACKETS: u64 = 100_000;

fn probability(value: f64) -> Probability {
    Probability::new(value).expect("from 0 to 1")
}

/// Sends one packet each millisecond.
fn deliveries(config: &Config, seed: u64, packets: u64) -> Deliveries {
    let mut story = Story::new(config.clone(), seed);
    for packet in 0..packets {
        story.send(millis(packet), packet, 100);
    }
    story.finish()
}

/// Returns the lengths of the runs of missing packets.
fn bursts(deliveries: &Deliveries) -> Vec<u64> {
    let pairs = deliveries.windows(2);
    pairs
        .map(|pair| pair[1].1 - pair[0].1 - 1)
        .filter(|missing| *missing > 0)
        .collect()
}

/// Returns the share of `PACKETS` that did not arrive, in hundredths of a percent.
fn missing(deliveries: &Deliveries) -> u64 {
    (PACKETS - deliveries.len() as u64) * 10_000 / PACKETS
}

#[test]
fn independent_loss_has_its_ratio_and_no_bursts() {
    let config = Config {
        loss: Loss::Independent(probability(0.05)),
        ..Config::default()
    };
    for seed in SEEDS {
        let deliveries = deliveries(&config, seed, PACKETS);
        // The standard deviation of the ratio is 0.07 %.
        assert!(
            (475..=525).contains(&missing(&deliveries)),
            "seed {seed}: {}",
            missing(&deliveries)
        );
        let longest = bursts(&deliveries).into_iter().max();
        assert!(longest < Some(8), "seed {seed}: {longest:?} in a row");
    }
}

#[test]
fn burst_loss_has_its_ratio_and_its_mean_length() {
    let model = GilbertElliott::from_bursts(0.05, 10.0).expect("possible");
    let config = Config {
        loss: Loss::Burst(model),
        ..Config::default()
    };
    for seed in SEEDS {
        let deliveries = deliveries(&config, seed, PACKETS);
        let bursts = bursts(&deliveries);
        let tenths = bursts.iter().sum::<u64>() * 10 / bursts.len() as u64;
        assert!(
            (400..=600).contains(&missing(&deliveries)),
            "seed {seed}: {}",
            missing(&deliveries)
        );
        assert!(
            (85..=115).contains(&tenths),
            "seed {seed}: mean length {tenths} tenths"
        );
    }
}

#[test]
fn burst_loss_may_also_happen_in_the_good_state() {
    let model = GilbertElliott {
        good_to_bad: Probability::ZERO,
        bad_to_good: Probability::ZERO,
        loss_in_good: probability(0.2),
        loss_in_bad: Probability::ONE,
    };
    let config = Config {
        loss: Loss::Burst(model),
        ..Config::default()
    };
    for seed in SEEDS {
        let missing = missing(&deliveries(&config, seed, PACKETS));
        assert!((1950..=2050).contains(&missing), "seed {seed}: {missing}");
    }
}

#[test]
fn a_lost_packet_has_used_its_share_of_the_rate() {
    let config = Config {
        rate: kilobits(8),
        loss: Loss::Independent(probability(0.5)),
        ..Config::default()
    };
    let mut story = Story::new(config, 7);
    for packet in 0..100 {
        story.send(millis(0), packet, 1000);
    }
    let deliveries = story.finish();
    assert!((30..70).contains(&deliveries.len()));
    assert!(
        deliveries
            .iter()
            .all(|(at, packet)| *at == millis(1000 * (packet + 1)))
    );
}

#[test]
fn the_same_seed_gives_the_same_deliveries_and_another_does_not() {
    let config = Config {
        rate: kilobits(1000),
        delay: Delay::new(millis(40), Jitter::Normal(millis(10))).expect("short"),
        keep_order: false,
        loss: Loss::Burst(GilbertElliott::from_bursts(0.1, 3.0).expect("possible")),
        duplication: probability(0.1),
        reordering: Reordering::new(probability(0.1), millis(5)).expect("short"),
        ..Config::default()
    };
    assert_eq!(deliveries(&config, 1, 5000), deliveries(&config, 1, 5000));
    assert_ne!(deliveries(&config, 1, 5000), deliveries(&config, 2, 5000));
}

#[test]
fn loss_does_not_depend_on_the_other_chances() {
    let plain = Config {
        loss: Loss::Independent(probability(0.3)),
        ..Config::default()
    };
    let jittery = Config {
        delay: Delay::new(millis(40), Jitter::Uniform(millis(10))).expect("short"),
        duplication: probability(0.5),
        ..plain.clone()
    };
    let arrived = |config| {
        let mut packets: Vec<u64> = deliveries(config, 9, 5000)
            .into_iter()
            .map(|(_, packet)| packet)
            .collect();
        packets.dedup();
        packets
    };
    assert_eq!(arrived(&plain), arrived(&jittery));
}

#[test]
fn jitter_spreads_as_it_says() {
    for (jitter, widest_ms, mean_deviation_us) in [
        (Jitter::Uniform(millis(20)), 20, 9_500..10_500),
        (Jitter::Normal(millis(10)), 50, 7_600..8_400),
    ] {
        let delay = Delay::new(millis(50), jitter).expect("short");
        let config = Config {
            delay,
            keep_order: false,
            ..Config::default()
        };
        for seed in SEEDS {
            let deviations: Vec<Duration> = deliveries(&config, seed, 20_000)
                .into_iter()
                .map(|(at, packet)| at.abs_diff(millis(packet + 50)))
                .collect();
            let widest = deviations.iter().max();
            assert!(
                widest <= Some(&millis(widest_ms)),
                "seed {seed}: {widest:?}"
            );
            // The mean deviation is half the spread of uniform jitter, and 0.8 of the standard deviation of normal
            // jitter.
            let mean_us = deviations.iter().sum::<Duration>().as_micros() / 20_000;
            assert!(
                mean_deviation_us.contains(&mean_us),
                "seed {seed}: {mean_us} us"
            );
        }
    }
}

#[test]
fn jitter_keeps_order_unless_told_otherwise() {
    let delay = Delay::new(millis(50), Jitter::Uniform(millis(50))).expect("short");
    for seed in SEEDS {
        let ordered = deliveries(
            &Config {
                delay,
                ..Config::default()
            },
            seed,
            5000,
        );
        assert!(
            ordered.is_sorted_by_key(|(_, packet)| *packet),
            "seed {seed}"
        );
        let free = Config {
            delay,
            keep_order: false,
            ..Config::default()
        };
        assert!(!deliveries(&free, seed, 5000).is_sorted_by_key(|(_, packet)| *packet));
    }
}

#[test]
fn a_copy_comes_with_its_packet() {
    let config = Config {
        duplication: Probability::ONE,
        ..Config::default()
    };
    let twice = deliveries(&config, 1, 2);
    assert_eq!(
        twice,
        [
            (millis(0), 0),
            (millis(0), 0),
            (millis(1), 1),
            (millis(1), 1)
        ]
    );
}

#[test]
fn packets_are_duplicated_as_often_as_asked() {
    let config = Config {
        duplication: probability(0.2),
        ..Config::default()
    };
    for seed in SEEDS {
        let copies = deliveries(&config, seed, PACKETS).len() as u64 - PACKETS;
        assert!((19_500..=20_500).contains(&copies), "seed {seed}: {copies}");
    }
}

#[test]
fn a_packet_that_is_held_back_is_passed_and_holds_no_other() {
    let reordering = Reordering::new(probability(0.1), micros(2_500)).expect("short");
    let config = Config {
        delay: delay(millis(10)),
        reordering,
        ..Config::default()
    };
    for seed in SEEDS {
        let deliveries = deliveries(&config, seed, 5000);
        let (held, direct): (Deliveries, Deliveries) = deliveries
            .into_iter()
            .partition(|(at, packet)| *at != millis(10 + packet));
        assert!(
            (400..=600).contains(&held.len()),
            "seed {seed}: {}",
            held.len()
        );
        assert!(
            held.iter()
                .all(|(at, packet)| *at == millis(10 + packet) + micros(2_500))
        );
        assert_eq!(held.len() + direct.len(), 5000);
    }
}

#[test]
fn the_packets_on_the_wire_are_limited() {
    let config = Config {
        delay: delay(millis(10)),
        ..Config::default()
    };
    let story = Story::new(config.clone(), 0);
    let mut link = Link::new(story.start, config, 0);
    for _ in 0..IN_FLIGHT_PACKETS_MAX {
        link.handle_packet(story.start, (), 1);
    }
    assert_eq!(link.stats().dropped(), 0);
    link.handle_packet(story.start, (), 1);
    assert_eq!(link.stats().dropped_in_flight, 1);
    assert!(link.poll_packet(story.at(millis(10))).is_some());
    link.handle_packet(story.at(millis(10)), (), 1);
    assert_eq!(link.stats().dropped(), 1);
}
