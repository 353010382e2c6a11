//! Stories of live streams: origin, relay and player in virtual time, over a link that is too slow.

mod stage;

use std::time::Duration;

use stage::{Run, Stage, constant, dip};
use weir_live::PublishFlow;

/// The seed of this run.
fn seed() -> u64 {
    let seed = std::env::var("WEIR_SEED").ok();
    seed.map_or(7, |seed| seed.parse().expect("WEIR_SEED is a number"))
}

fn through_the_dip(strategy: &'static str) -> Run {
    Stage::new(strategy, seed()).run(&dip(), Duration::from_secs(31))
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

#[test]
fn equal_seeds_give_equal_streams() {
    let run = || {
        Stage::new("weir", seed())
            .run(&dip(), Duration::from_secs(12))
            .records
    };
    assert_eq!(run(), run());
}
