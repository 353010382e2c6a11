//! Stories of live streams in virtual time: origin, relay and player, with a link that is too slow.

mod stage;

use std::time::Duration;

use stage::{Run, Slow, Stage, constant, dip};
use weir_live::PublishFlow;
use weir_quic::Congestion;

/// The seed of this run.
fn seed() -> u64 {
    let seed = std::env::var("WEIR_SEED").ok();
    seed.map_or(7, |seed| seed.parse().expect("WEIR_SEED is a number"))
}

fn through_the_dip(strategy: &'static str) -> Run {
    through_the_dip_at(Slow::Down, strategy)
}

fn through_the_dip_at(slow: Slow, strategy: &'static str) -> Run {
    let mut stage = Stage::new(strategy, seed());
    stage.slow = slow;
    let run = stage.run(&dip(), Duration::from_secs(31));
    assert_eq!(run.failure, None, "{strategy}");
    run
}

#[test]
fn a_good_link_shows_everything_with_every_strategy() {
    for name in weir_live::strategy::NAMES {
        let run = Stage::new(name, seed()).run(&constant(2_000), Duration::from_secs(8));
        let (delays, figures) = (run.delays(), run.figures);
        println!("{name}: {figures:?}");
        assert!(figures.shown > 0.97, "{name} shows {}", figures.shown);
        assert!(
            delays.latency_mean < 0.35,
            "{name}: {}",
            delays.latency_mean
        );
        assert!(
            figures.freeze_longest < 0.2,
            "{name}: {}",
            figures.freeze_longest
        );
    }
}

#[test]
fn whoever_subscribes_under_a_namespace_gets_the_stream_as_well() {
    let mut stage = Stage::new("weir", seed());
    stage.flow = PublishFlow::Namespace;
    let run = stage.run(&constant(2_000), Duration::from_secs(8));
    let (delays, figures) = (run.delays(), run.figures);
    println!("{figures:?}");
    assert!(figures.shown > 0.97, "{}", figures.shown);
    assert!(delays.latency_mean < 0.35, "{}", delays.latency_mean);
}

#[test]
fn through_a_relay_that_is_not_ours_each_group_is_one_stream() {
    for (implementation, is_cut) in [
        (Some("weir/9.9.9"), true),
        (Some("relay/1.0"), false),
        (None, false),
    ] {
        let mut stage = Stage::new("weir", seed());
        stage.fits_relay = true;
        stage.relay.implementation = implementation.map(str::to_owned);
        let run = stage.run(&constant(500), Duration::from_secs(20));
        println!("{implementation:?}: {:?}", run.figures);
        // The keyframe's stream is one, and the rest of the group is cut at the next keyframe.
        assert_eq!(
            run.published.streams_reset > 0,
            is_cut,
            "{implementation:?}"
        );
        assert!(run.figures.shown > 0.4, "{}", run.figures.shown);
        assert!(
            run.figures.freeze_longest < 1.5,
            "{}",
            run.figures.freeze_longest
        );
    }
}

#[test]
fn the_baseline_shows_everything_and_never_catches_up() {
    let run = through_the_dip("baseline");
    let (before, after) = (run.latency_between(4, 8), run.latency_between(27, 31));
    assert!(before < 0.4, "{before}");
    assert!(after > 5.0, "it still plays what was new long ago: {after}");
}

#[test]
fn without_disposable_frames_the_latency_grows_more_slowly() {
    let (layers, baseline) = (
        through_the_dip("deprioritize-b"),
        through_the_dip("baseline"),
    );
    let (layers, baseline) = (
        layers.latency_between(20, 31),
        baseline.latency_between(20, 31),
    );
    assert!(layers < baseline - 1.0, "{layers} {baseline}");
    assert!(layers > 2.0, "but it does not shrink: {layers}");
}

#[test]
fn skipping_old_groups_comes_back_to_the_edge_but_starves_in_between() {
    let run = through_the_dip("skip");
    let (before, after) = (run.latency_between(4, 8), run.latency_between(27, 31));
    assert!(before < 0.4 && after < 1.2, "{before} {after}");
    assert!(
        run.shown_between(14, 20) <= 15,
        "each keyframe pre-empts the one before"
    );
    assert!(
        run.figures.freeze_longest > 4.0,
        "{}",
        run.figures.freeze_longest
    );
}

#[test]
fn protected_keyframes_keep_the_picture_moving() {
    let (run, skip) = (through_the_dip("weir"), through_the_dip("skip"));
    let after = run.latency_between(27, 31);
    assert!(after < 0.35, "{after}");
    assert!(
        run.delays().latency_mean < 0.5,
        "{}",
        run.delays().latency_mean
    );
    assert!(
        run.figures.freeze_longest < 1.2,
        "{}",
        run.figures.freeze_longest
    );
    assert!(
        run.delays().age_mean < skip.delays().age_mean / 1.5,
        "{}",
        skip.delays().age_mean
    );
    assert!(
        run.shown_between(9, 20) >= 11,
        "one keyframe after the other"
    );
}

/// The controllers that a relay may use.
const CONTROLLERS: [Congestion; 2] = [Congestion::Cubic, Congestion::LOW_LATENCY];
/// Seeds of the stories with different controllers.
const SEEDS: [u64; 3] = [1, 2, 3];

/// A relay whose controller fills the queue delays every keyframe by more than a group. The player used to refuse them
/// all, and froze to the end.
#[test]
fn the_picture_moves_whatever_controller_the_relay_has() {
    for seed in SEEDS {
        for congestion in CONTROLLERS {
            let mut stage = Stage::new("weir", seed);
            stage.congestion = Some(congestion);
            let run = stage.run(&constant(500), Duration::from_secs(35));
            let (shown, freeze) = (run.figures.shown, run.figures.freeze_longest);
            let age = run.delays().age_mean;
            println!("seed {seed}, {congestion:?}: {shown}, {freeze} s, age {age} s");
            assert!(shown >= 0.5 && freeze < 0.5, "{shown} {freeze}");
            assert!(age < 0.7, "{age}");
            let run = stage.run(&dip(), Duration::from_secs(31));
            let freeze = run.figures.freeze_longest;
            println!("seed {seed}, {congestion:?}: {freeze} s through the dip");
            assert!(freeze < 1.2, "{freeze}");
        }
    }
}

/// A page in a browser cannot limit what is in flight. Behind CUBIC its keyframes are late, and none is refused for it.
#[test]
fn keyframes_that_are_late_in_the_network_are_not_refused() {
    for seed in SEEDS {
        let mut stage = Stage::new("weir", seed);
        stage.congestion = Some(Congestion::Cubic);
        stage.may_limit = false;
        let run = stage.run(&constant(500), Duration::from_secs(35));
        let (shown, freeze) = (run.figures.shown, run.figures.freeze_longest);
        println!("seed {seed}: {shown}, {freeze} s");
        assert!(shown >= 0.4 && freeze < 2.0, "{shown} {freeze}");
    }
}

#[test]
fn a_longer_target_shows_more_and_is_later() {
    for seed in SEEDS {
        let mut last: Option<(f64, f64)> = None;
        for target in [300, 500, 1000] {
            let mut stage = Stage::new("weir", seed);
            stage.target = Duration::from_millis(target);
            let run = stage.run(&constant(500), Duration::from_secs(35));
            let (shown, age) = (run.figures.shown, run.delays().age_mean);
            println!("seed {seed}, {target} ms: {shown} at an age of {age} s");
            if let Some((less, earlier)) = last.replace((shown, age)) {
                assert!(shown > less && age > earlier, "{target} ms");
            }
        }
    }
}

#[test]
fn skip_never_shows_more_at_an_equal_age() {
    for seed in SEEDS {
        for (congestion, target) in CONTROLLERS.into_iter().zip([500, 1000]) {
            let run = |strategy, target| {
                let mut stage = Stage::new(strategy, seed);
                stage.congestion = Some(congestion);
                stage.target = Duration::from_millis(target);
                stage.run(&constant(500), Duration::from_secs(35))
            };
            let (ours, skip) = (run("weir", target), run("skip", target));
            let age = (ours.delays().age_mean, skip.delays().age_mean);
            let (ours, skip) = (ours.figures, skip.figures);
            println!("seed {seed}, {congestion:?}, {target} ms: {ours:?} {skip:?}");
            assert!(age.0 < age.1, "{age:?}");
            assert!(ours.shown >= skip.shown - 0.01);
            assert!(ours.freeze_longest <= skip.freeze_longest);
        }
    }
}

#[test]
fn equal_seeds_give_equal_streams() {
    let run = || {
        Stage::new("weir", seed())
            .run(&dip(), Duration::from_secs(12))
            .records
    };
    assert_eq!(run(), run());
}

#[test]
fn the_origin_sends_in_the_order_of_the_strategy_too() {
    let run = |strategy| through_the_dip_at(Slow::Up, strategy);
    let skip = run("skip");
    let (before, after) = (skip.latency_between(4, 8), skip.latency_between(27, 31));
    assert!(
        before < 0.4 && after < 1.2,
        "newest first: {before} {after}"
    );
    let (layers, baseline) = (run("deprioritize-b"), run("baseline"));
    let late = |run: &Run| run.latency_between(20, 31);
    let (layers, baseline) = (late(&layers), late(&baseline));
    assert!(
        layers < baseline - 1.0,
        "base before B: {layers} {baseline}"
    );
}

#[test]
fn it_does_so_where_the_ranks_of_groups_begin_over_too() {
    for strategy in ["baseline", "deprioritize-b", "skip"] {
        let usual = through_the_dip_at(Slow::Up, strategy);
        let mut stage = Stage::new(strategy, seed());
        stage.slow = Slow::Up;
        stage.begins_ms = 1_946;
        let run = stage.run(&dip(), Duration::from_secs(31));
        assert_eq!(run.failure, None, "{strategy}");
        let over = run
            .records
            .iter()
            .filter(|one| one.group >= weir_moqt::priority::RANKED_GROUPS);
        let over = over.filter_map(|one| one.available_us).min();
        let over = over.expect("it goes beyond");
        assert!(
            (9_000_000..16_000_000).contains(&over),
            "on the slow link: {over}"
        );
        let (shown, usually) = (run.shown_between(9, 31), usual.shown_between(9, 31));
        println!("{strategy}: {shown} shown, usually {usually}");
        assert!(shown * 10 >= usually * 9, "{strategy}: {shown} {usually}");
        let latency = |run: &Run| run.latency_between(9, 31);
        let (late, usually) = (latency(&run), latency(&usual));
        println!("{strategy}: {late} s late, usually {usually}");
        assert!(late <= usually * 1.1, "{strategy}: {late} {usually}");
    }
}

#[test]
fn a_relay_gives_disposable_frames_up_by_itself_when_their_time_is_over() {
    let mut stage = Stage::new("weir", seed());
    stage.target = Duration::from_millis(300);
    let run = stage.run(&dip(), Duration::from_secs(31));
    let (relayed, published) = (run.relayed, run.published);
    println!("{relayed:?} {published:?}");
    // For the origin, a frame is delivered when the relay has it.
    let disposable = published.frames * 2 / 3;
    assert!(published.streams_reset < disposable / 2, "{published:?}");
    assert!(relayed.streams_reset_timeout > 100, "{relayed:?}");
    for name in ["baseline", "skip"] {
        let relayed = through_the_dip(name).relayed;
        assert_eq!(relayed.streams_reset_timeout, 0, "{name}");
    }
}

#[test]
fn the_end_of_a_stream_is_waited_for_as_long_as_it_arrives() {
    let mut stage = Stage::new("baseline", seed());
    stage.slow = Slow::Up;
    stage.made = Some(Duration::from_secs(6));
    // The last frame becomes available in the seventh second, and is sent in the eighteenth.
    let run = stage.run(&constant(200), Duration::from_secs(40));
    assert_eq!(run.failure, None);
    assert!(run.is_over);
    assert_eq!(run.published.frames, 144);
    let last = run.records.iter().map(|one| one.number).max();
    assert_eq!(last, Some(143));
    let first = run.records.iter().map(|one| one.number).min();
    let count = 144 - first.expect("some came");
    assert_eq!(run.records.len() as u64, count, "all that it joined");
}

#[test]
fn an_origin_whose_last_frames_do_not_arrive_says_so() {
    let failure = |silence_max| {
        let mut stage = Stage::new("baseline", seed());
        stage.slow = Slow::Up;
        stage.made = Some(Duration::from_secs(6));
        stage.relay.limits.publisher_silence_max = silence_max;
        // After eight seconds nothing arrives.
        let profile = vec![(Duration::ZERO, 200), (Duration::from_secs(8), 0)];
        let run = stage.run(&profile, Duration::from_secs(30));
        run.failure.expect("it did not deliver")
    };
    let patient = failure(Duration::ZERO);
    assert!(
        patient.starts_with("the end of the stream did not arrive"),
        "{patient}"
    );
    let impatient = failure(Duration::from_millis(2500));
    assert!(
        impatient.ends_with("\"the publisher is silent\""),
        "{impatient}"
    );
}
