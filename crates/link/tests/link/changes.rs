//! Changes of a link's settings while packets are inside.

use weir_link::{Config, GilbertElliott, Loss, Probability, Queue, Rate, Trace};

use crate::{Story, delay, kilobits, micros, millis};

#[test]
fn the_rest_of_a_packet_goes_at_the_new_rate() {
    let mut story = Story::new(
        Config {
            rate: kilobits(80),
            ..Config::default()
        },
        0,
    );
    story.send(millis(0), 0, 1000); // 100 ms
    story.send(millis(0), 1, 1000);
    story.run_until(millis(25));
    story.link.set_rate(story.at(millis(25)), kilobits(8)); // 750 bytes are left: 750 ms
    story.run_until(millis(400));
    story.link.set_rate(story.at(millis(400)), kilobits(80)); // 375 bytes are left: 37.5 ms
    assert_eq!(story.finish(), [(micros(437_500), 0), (micros(537_500), 1)]);
}

#[test]
fn a_pause_leaves_the_packet_where_it_was() {
    let mut story = Story::new(
        Config {
            rate: kilobits(80),
            ..Config::default()
        },
        0,
    );
    story.send(millis(0), 0, 1000);
    story.link.set_rate(story.at(millis(40)), kilobits(0));
    story.run_until(millis(1000));
    story.link.set_rate(story.at(millis(1000)), kilobits(80));
    assert_eq!(story.finish(), [(millis(1060), 0)]);
}

#[test]
fn setting_the_same_rate_changes_nothing_however_often() {
    let run = |changes: bool| {
        let mut story = Story::new(
            Config {
                rate: kilobits(100),
                ..Config::default()
            },
            0,
        );
        for packet in 0..20 {
            story.send(millis(packet), packet, 999);
            if changes {
                story.link.set_rate(story.at(millis(packet)), kilobits(100));
            }
        }
        story.finish()
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn an_unlimited_rate_empties_the_queue_at_once() {
    let mut story = Story::new(
        Config {
            rate: kilobits(8),
            ..Config::default()
        },
        0,
    );
    for packet in 0..5 {
        story.send(millis(0), packet, 1000);
    }
    story.link.set_rate(story.at(millis(10)), Rate::Unlimited);
    let deliveries = story.finish();
    assert_eq!(deliveries.len(), 5);
    assert!(deliveries.iter().all(|(at, _)| *at == millis(10)));
}

#[test]
fn a_packet_goes_over_from_a_rate_to_a_trace_and_back() {
    let trace = || Rate::Trace(Trace::new(vec![10]).expect("a good trace"));
    let mut story = Story::new(
        Config {
            rate: kilobits(8),
            ..Config::default()
        },
        0,
    );
    story.send(millis(0), 0, 4000);
    story.link.set_rate(story.at(millis(996)), trace()); // 3004 bytes are left
    story.link.set_rate(story.at(millis(1010)), kilobits(8)); // one opportunity passed: 1500 bytes
    assert_eq!(story.finish(), [(millis(2510), 0)]);

    let mut story = Story::new(
        Config {
            rate: trace(),
            ..Config::default()
        },
        0,
    );
    story.send(millis(15), 0, 3000);
    assert_eq!(story.finish(), [(millis(30), 0)]);
}

#[test]
fn opportunities_that_others_used_do_not_count_for_the_packet_being_sent() {
    let trace = Rate::Trace(Trace::new(vec![10]).expect("a good trace"));
    let mut story = Story::new(
        Config {
            rate: trace,
            ..Config::default()
        },
        0,
    );
    for packet in 0..3 {
        story.send(millis(0), packet, 1504); // at 10 and at 20
    }
    story.send(millis(0), 3, 3008); // 1504 bytes of it at 40
    story.run_until(millis(45));
    story.link.set_rate(story.at(millis(45)), kilobits(1504)); // 188 bytes each millisecond
    assert_eq!(
        story.finish(),
        [(10, 0), (20, 1), (30, 2), (53, 3)].map(|(at, packet)| (millis(at), packet))
    );
}

#[test]
fn a_smaller_queue_keeps_what_it_has() {
    let mut story = Story::new(
        Config {
            rate: kilobits(8),
            ..Config::default()
        },
        0,
    );
    for packet in 0..5 {
        story.send(millis(0), packet, 1000);
    }
    story.link.set_queue(
        story.at(millis(0)),
        Queue {
            bytes_max: 1000,
            packets_max: 1,
        },
    );
    story.send(millis(1), 5, 1000);
    assert_eq!(story.link.stats().dropped_queue_bytes, 1);
    assert_eq!(story.finish().len(), 5);
}

#[test]
fn a_shorter_delay_overtakes_only_where_order_is_not_kept() {
    for keep_order in [true, false] {
        let config = Config {
            delay: delay(millis(100)),
            keep_order,
            ..Config::default()
        };
        let mut story = Story::new(config, 0);
        story.send(millis(0), 0, 1);
        story
            .link
            .set_delay(story.at(millis(10)), delay(millis(20)));
        story.send(millis(10), 1, 1);
        let expected = if keep_order {
            [(millis(100), 0), (millis(100), 1)]
        } else {
            [(millis(30), 1), (millis(100), 0)]
        };
        assert_eq!(story.finish(), expected);
    }
}

#[test]
fn a_black_hole_swallows_what_leaves_the_sender_while_it_lasts() {
    let mut story = Story::new(
        Config {
            rate: kilobits(80),
            delay: delay(millis(30)),
            ..Config::default()
        },
        0,
    );
    for packet in 0..4 {
        story.send(millis(0), packet, 1000); // they leave at 100, 200, 300, 400 ms
    }
    story.link.set_blackhole(story.at(millis(110)), true); // packet 0 is on its way
    story.link.set_blackhole(story.at(millis(350)), false);
    assert_eq!(story.link.stats().blackholed, 2);
    assert_eq!(story.finish(), [(millis(130), 0), (millis(430), 3)]);
}

#[test]
fn loss_can_be_switched_on_and_off() {
    let mut story = Story::new(Config::default(), 0);
    story.send(millis(0), 0, 1);
    story
        .link
        .set_loss(story.at(millis(1)), Loss::Independent(Probability::ONE));
    story.send(millis(1), 1, 1);
    story.link.set_loss(story.at(millis(2)), Loss::None);
    story.send(millis(2), 2, 1);
    assert_eq!(story.link.stats().lost, 1);
    assert_eq!(story.finish(), [(millis(0), 0), (millis(2), 2)]);
}

#[test]
fn burst_loss_begins_in_its_good_state_whenever_it_is_set() {
    let stuck = GilbertElliott {
        good_to_bad: Probability::ONE,
        bad_to_good: Probability::ZERO,
        loss_in_good: Probability::ZERO,
        loss_in_bad: Probability::ONE,
    };
    let mut story = Story::new(Config::default(), 0);
    for packet in 0..6 {
        if packet % 3 == 0 {
            story
                .link
                .set_loss(story.at(millis(packet)), Loss::Burst(stuck));
        }
        story.send(millis(packet), packet, 1);
    }
    assert_eq!(story.finish(), [(millis(0), 0), (millis(3), 3)]);
}
