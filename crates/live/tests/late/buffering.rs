//! The viewer decides how much a player buffers.

use std::time::Duration;

use weir_live::playout::BufferChoice;
use weir_live::{Choice, PublishFlow, ViewerConfig};
use weir_report::lab::Figures;

use crate::stage::{Pace, Show, Stage};

/// Returns the mean latency in microseconds of a stream without jitter, played by its catalog or by known tracks.
fn latency(buffer: BufferChoice, reads_catalog: bool) -> f64 {
    let mut stage = Stage::new(Duration::from_mins(1));
    let mut config = ViewerConfig {
        buffer,
        ..stage.player_of("weir", &["video"])
    };
    if reads_catalog {
        config.choice = Choice::Catalog;
    }
    stage.play_with(config);
    stage.sim.run_until(Duration::from_secs(1), |_| false);
    stage.publish(
        0,
        Show {
            pace: Pace::Live,
            ..Show::usual(PublishFlow::Publish)
        },
    );
    stage.sim.run_until(Duration::from_secs(8), |_| false);
    let figures = Figures::of_received(stage.viewer().records(), 0, 8_000_000);
    assert!(figures.shown > 0.5, "{buffer}: {figures:?}");
    figures.delays.expect("availability is told").latency_mean
}

#[test]
fn the_more_is_to_be_buffered_the_later_is_what_is_seen() {
    for reads_catalog in [true, false] {
        // Without jitter, the adaptive target is at its minimum.
        let choices = [
            BufferChoice::Adaptive,
            BufferChoice::Strategy,
            BufferChoice::Fixed(Duration::from_millis(300)),
        ];
        let latencies = choices.map(|choice| latency(choice, reads_catalog));
        assert!(
            latencies.is_sorted_by(|one, next| one < next),
            "{latencies:?}"
        );
        let strategy = BufferChoice::Fixed(Duration::from_millis(100));
        let told = latency(strategy, reads_catalog);
        assert!((told - latencies[1]).abs() < f64::EPSILON, "{told}");
    }
}
