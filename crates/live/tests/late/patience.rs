//! A player that comes before its publisher, at a relay that does not wait for publishers.

use std::time::Duration;

use weir_live::{Choice, PublishFlow, Viewer, ViewerConfig};
use weir_relay::Limits;

use crate::stage::{Show, Stage};

fn stage() -> Stage {
    let limits = Limits {
        rendezvous_max: Duration::ZERO,
        ..Limits::default()
    };
    Stage::with_limits(7, limits)
}

/// Lets a player come 3 s before the publisher. Returns how many frames were received, and why the player failed, if it did.
fn early(patience: Duration, is_catalog_read: bool) -> (usize, Option<String>) {
    let mut stage = stage();
    let known = stage.player_of("weir", &["video"]);
    let choice = if is_catalog_read {
        Choice::Catalog
    } else {
        known.choice.clone()
    };
    stage.play_with(ViewerConfig {
        rendezvous_timeout: patience,
        choice,
        ..known
    });
    stage.sim.run_until(Duration::from_secs(3), |_| false);
    stage.publish(0, Show::usual(PublishFlow::Publish));
    stage.sim.run_until(Duration::from_secs(6), |_| false);
    let viewer = stage.sim.app::<Viewer>(stage.nodes[2]);
    (
        viewer.records().len(),
        viewer.failure().map(ToOwned::to_owned),
    )
}

#[test]
fn a_player_that_comes_early_asks_again_until_the_publisher_is_there() {
    for is_catalog_read in [true, false] {
        let (frames, failure) = early(Duration::from_secs(10), is_catalog_read);
        assert_eq!(failure, None);
        assert!(frames > 0, "no frame came; catalog: {is_catalog_read}");
    }
}

#[test]
fn a_player_gives_up_when_its_patience_is_over() {
    for (patience, is_catalog_read) in [
        (Duration::ZERO, true),
        (Duration::from_secs(2), true),
        (Duration::from_secs(2), false),
    ] {
        let (frames, failure) = early(patience, is_catalog_read);
        assert_eq!(frames, 0);
        let failure = failure.expect("nobody publishes in time");
        assert!(failure.contains("DOES_NOT_EXIST"), "{failure}");
    }
}
