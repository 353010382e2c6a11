//! Properties of every link, tested with random links under random use.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use weir_link::{
    Bitrate, Config, Delay, GilbertElliott, Jitter, Loss, Probability, Queue, Rate, Reordering,
    Trace,
};

use crate::{Deliveries, Story, micros};

/// One operation of a host on a link.
#[derive(Clone, Debug)]
enum Op {
    Wait(Duration),
    Send { size_bytes: usize },
    SetRate(Rate),
    SetQueue(Queue),
    SetDelay(Delay),
    SetLoss(Loss),
    SetBlackhole(bool),
}

fn rates() -> impl Strategy<Value = Rate> {
    prop_oneof![
        Just(Rate::Unlimited),
        (0..10_000_000u64).prop_map(|bits| Rate::Fixed(Bitrate::from_bits_per_second(bits))),
        vec(1..200u32, 1..20).prop_map(|mut times| {
            times.sort_unstable();
            Rate::Trace(Trace::new(times).expect("sorted and above zero"))
        }),
    ]
}

fn queues() -> impl Strategy<Value = Queue> {
    (0..20_000u64, 0..20usize).prop_map(|(bytes_max, packets_max)| Queue {
        bytes_max,
        packets_max,
    })
}

fn delays() -> impl Strategy<Value = Delay> {
    (0..200_000u64, 0..=100u64, 0..3u8).prop_map(|(base, percent, kind)| {
        let spread = micros(base * percent / 100);
        let jitter = match kind {
            0 => Jitter::None,
            1 => Jitter::Uniform(spread),
            _ => Jitter::Normal(spread),
        };
        Delay::new(micros(base), jitter).expect("short, and jitter within it")
    })
}

fn probabilities() -> impl Strategy<Value = Probability> {
    (0.0..=1.0f64).prop_map(|value| Probability::new(value).expect("from 0 to 1"))
}

fn losses() -> impl Strategy<Value = Loss> {
    prop_oneof![
        Just(Loss::None),
        probabilities().prop_map(Loss::Independent),
        (0.0..0.4f64, 1.0..10.0f64).prop_map(|(ratio, burst)| Loss::Burst(
            GilbertElliott::from_bursts(ratio, burst).expect("possible")
        )),
    ]
}

fn configs() -> impl Strategy<Value = Config> {
    let parts = (
        rates(),
        queues(),
        delays(),
        any::<bool>(),
        losses(),
        probabilities(),
        probabilities(),
    );
    parts.prop_map(
        |(rate, queue, delay, keep_order, loss, duplication, reorder)| Config {
            rate,
            queue,
            delay,
            keep_order,
            loss,
            duplication,
            reordering: Reordering::new(reorder, micros(3000)).expect("short"),
        },
    )
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => (0..30_000u64).prop_map(|time| Op::Wait(micros(time))),
        12 => (0..2000usize).prop_map(|size_bytes| Op::Send { size_bytes }),
        1 => rates().prop_map(Op::SetRate),
        1 => queues().prop_map(Op::SetQueue),
        1 => delays().prop_map(Op::SetDelay),
        1 => losses().prop_map(Op::SetLoss),
        1 => any::<bool>().prop_map(Op::SetBlackhole),
    ];
    vec(op, 0..150)
}

/// Runs `ops` until the link is empty. With `polls_often`, also polls the link when it did not ask for it.
fn play(config: Config, ops: &[Op], polls_often: bool) -> (Story, Duration) {
    let mut story = Story::new(config, 42);
    let mut elapsed = Duration::ZERO;
    let mut packet = 0;
    for op in ops {
        let now = story.at(elapsed);
        match op.clone() {
            Op::Wait(time) => {
                if polls_often {
                    for step in 0..7 {
                        story.run_until(elapsed + time * step / 7);
                        let now = story.at(elapsed + time * step / 7);
                        assert_eq!(story.link.poll_packet(now), None, "it did not say so");
                    }
                }
                elapsed += time;
                story.run_until(elapsed);
            }
            Op::Send { size_bytes } => {
                story.send(elapsed, packet, size_bytes);
                packet += 1;
            }
            Op::SetRate(rate) => story.link.set_rate(now, rate),
            Op::SetQueue(queue) => story.link.set_queue(now, queue),
            Op::SetDelay(delay) => story.link.set_delay(now, delay),
            Op::SetLoss(loss) => story.link.set_loss(now, loss),
            Op::SetBlackhole(is_blackhole) => story.link.set_blackhole(now, is_blackhole),
        }
        story.run_until(elapsed);
        check(&story, elapsed);
    }
    story.link.set_rate(
        story.at(elapsed),
        Rate::Fixed(Bitrate::from_megabits_per_second(1)),
    );
    story.run_until(elapsed + Duration::from_hours(1));
    (story, elapsed)
}

/// Checks what holds for every link at any time.
fn check(story: &Story, elapsed: Duration) {
    let stats = story.link.stats();
    let inside = story.link.packets_inside() as u64;
    assert_eq!(
        stats.offered + stats.duplicated,
        stats.delivered + stats.dropped() + inside
    );
    assert_eq!(stats.delivered, story.deliveries.len() as u64);
    assert!(
        story
            .link
            .poll_timeout()
            .is_none_or(|at| at > story.at(elapsed))
    );
    assert!(story.deliveries.is_sorted_by_key(|(at, _)| *at));
}

fn packets(deliveries: &Deliveries) -> impl Iterator<Item = u64> {
    deliveries.iter().map(|(_, packet)| *packet)
}

proptest! {
    #[test]
    fn every_packet_is_accounted_for_and_the_link_runs_dry(config in configs(), ops in ops()) {
        let (story, elapsed) = play(config, &ops, false);
        check(&story, elapsed + Duration::from_hours(1));
        prop_assert_eq!(story.link.packets_inside(), 0);
        prop_assert_eq!(story.link.queue_bytes(), 0);
    }

    #[test]
    fn extra_polls_change_nothing(config in configs(), ops in ops()) {
        let (seldom, _) = play(config.clone(), &ops, false);
        let (often, _) = play(config, &ops, true);
        prop_assert_eq!(seldom.deliveries, often.deliveries);
    }

    #[test]
    fn order_is_kept_where_nothing_is_held_back(config in configs(), ops in ops()) {
        let config = Config { keep_order: true, reordering: Reordering::NONE, ..config };
        let (story, _) = play(config, &ops, false);
        prop_assert!(packets(&story.deliveries).is_sorted());
    }

    #[test]
    fn no_packet_comes_before_its_rate_and_its_delay_allow(
        bits in 1..50_000_000u64,
        base in 0..100_000u64,
        sends in vec((0..20_000u64, 0..2000usize), 1..100),
    ) {
        let rate = Rate::Fixed(Bitrate::from_bits_per_second(bits));
        let delay = Delay::fixed(micros(base)).expect("short");
        let queue = Queue { bytes_max: u64::MAX, packets_max: usize::MAX };
        let mut story = Story::new(Config { rate, delay, queue, ..Config::default() }, 0);
        // The reference: a packet begins when it has been handed in and the one before has left. Times are in units of
        // 1 / bits ns.
        let (mut elapsed, mut left, mut expected) = (Duration::ZERO, 0u128, Vec::new());
        for (packet, (wait, size_bytes)) in (0u64..).zip(&sends) {
            elapsed += micros(*wait);
            story.send(elapsed, packet, *size_bytes);
            left = left.max(elapsed.as_nanos() * u128::from(bits));
            left += *size_bytes as u128 * 8_000_000_000;
            let nanoseconds = u64::try_from(left.div_ceil(bits.into())).expect("not so long");
            expected.push((Duration::from_nanos(nanoseconds) + micros(base), packet));
        }
        prop_assert_eq!(story.finish(), expected);
    }
}
