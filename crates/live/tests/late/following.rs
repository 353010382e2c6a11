//! A player follows each catalog that replaces the previous one.

use std::time::Duration;

use weir_link::{Config as Link, Delay, Loss, Probability};
use weir_live::packaging::Packaging;
use weir_live::{Choice, Join, PublishFlow, Viewer, ViewerConfig};

use crate::stage::{Pace, Show, Stage};

/// LOC, with all frames on one track.
const FIRST: Show = Show {
    strategy: "weir",
    flow: PublishFlow::Publish,
    packaging: Packaging::Loc,
    pace: Pace::Live,
};
/// CMAF on two tracks.
const SECOND: Show = Show {
    strategy: "combined",
    packaging: Packaging::Cmaf,
    ..FIRST
};

/// Starts a player, and a publisher a second later.
fn begin(stage: &mut Stage, join: Join, reconnect_timeout: Duration, show: Show) {
    let config = ViewerConfig {
        choice: Choice::Catalog,
        join,
        reconnect_timeout,
        ..stage.player_of("weir", &[])
    };
    stage.play_with(config);
    stage.sim.run_until(Duration::from_secs(1), |_| false);
    stage.publish(0, show);
}

/// Returns the played tracks, and the packaging of the first.
fn played(viewer: &Viewer) -> (Vec<&str>, Packaging) {
    let video = &viewer.plan().expect("it has read a catalog").video;
    let names = video.iter().map(|track| &*track.name).collect();
    (names, video[0].packaging())
}

/// Counts the shown frames that arrived after this second.
fn shown_after(viewer: &Viewer, second: i64) -> usize {
    let records = viewer.records().iter();
    let late = records.filter(|record| record.arrived_us > second * 1_000_000);
    late.filter(|record| record.shown_us.is_some()).count()
}

#[test]
fn a_publisher_that_was_killed_and_comes_back_with_other_tracks_is_followed() {
    for (seed, share) in (0..12)
        .map(|seed| (seed, 0.0))
        .chain((12..24).map(|seed| (seed, 0.1)))
    {
        for (first, second, tracks) in [
            (FIRST, SECOND, &["video", "video-disposable"][..]),
            (SECOND, FIRST, &["video"]),
        ] {
            let mut stage = Stage::seeded(seed, Duration::from_mins(1));
            let (relay, viewer) = (stage.relay, stage.nodes[2]);
            begin(&mut stage, Join::Next, Duration::ZERO, first);
            stage.sim.run_until(Duration::from_millis(2200), |_| false);
            assert_eq!(played(stage.viewer()).1, first.packaging, "seed {seed}");
            let killed = stage.nodes[0];
            stage.sim.kill(killed);
            let link = Link {
                delay: Delay::fixed(Duration::from_millis(10)).expect("short"),
                loss: Loss::Independent(Probability::new(share).expect("a share")),
                ..Link::default()
            };
            stage.sim.set_path(relay, viewer, link);
            stage.sim.run_until(Duration::from_secs(4), |_| false);
            // The relay does not yet know that the first publisher has left.
            stage.publish(1, second);
            stage.sim.run_until(Duration::from_secs(7), |_| false);
            let viewer = stage.viewer();
            assert_eq!(viewer.catalogs_followed(), 1, "seed {seed}");
            assert_eq!(played(viewer), (tracks.to_vec(), second.packaging));
            let shown = shown_after(viewer, 4);
            assert!(shown >= 10, "seed {seed}: {shown}");
            assert_eq!(viewer.objects_unknown(), 0, "seed {seed}");
        }
    }
}

#[test]
fn a_publisher_that_stopped_is_waited_for_as_long_as_was_asked() {
    for (patience, followed) in [(0, 0), (2, 0), (20, 1)] {
        let mut stage = Stage::new(Duration::from_mins(1));
        let patience = Duration::from_secs(patience);
        begin(&mut stage, Join::Current, patience, FIRST);
        stage.sim.run_until(Duration::from_secs(9), |_| false);
        assert_eq!(stage.viewer().records().len(), 36);
        stage.publish(1, SECOND);
        stage.sim.run_until(Duration::from_secs(15), |_| false);
        let viewer = stage.viewer();
        assert_eq!(viewer.catalogs_followed(), followed);
        if followed == 1 {
            assert_eq!(played(viewer).1, Packaging::Cmaf);
            assert!(shown_after(viewer, 9) > 20, "{patience:?}");
            let numbers = viewer.records().iter().map(|record| record.number);
            let last = numbers.max().expect("some came");
            assert_eq!(
                last + 1,
                viewer.records().len() as u64,
                "one after the other"
            );
        }
        // No other publisher follows.
        stage.sim.run_until(Duration::from_mins(1), |_| false);
        let viewer = stage.sim.app::<Viewer>(stage.nodes[2]);
        let over = viewer.ended_us().expect("the stream is over");
        assert_eq!(over > 9_000_000, followed == 1, "{over}");
        assert!(weir_quic::App::is_finished(viewer), "{patience:?}");
    }
}

#[test]
fn a_publisher_that_was_killed_and_comes_back_as_it_was_is_followed_at_once() {
    for strategy in weir_live::strategy::NAMES {
        for packaging in Packaging::ALL {
            let show = Show {
                strategy,
                packaging,
                ..FIRST
            };
            let mut stage = Stage::new(Duration::from_mins(1));
            begin(&mut stage, Join::Next, Duration::ZERO, show);
            stage.sim.run_until(Duration::from_millis(2200), |_| false);
            let killed = stage.nodes[0];
            stage.sim.kill(killed);
            stage.sim.run_until(Duration::from_secs(4), |_| false);
            // Media time starts over, with an unchanged catalog.
            stage.publish(1, show);
            stage.sim.run_until(Duration::from_secs(7), |_| false);
            let viewer = stage.viewer();
            assert_eq!(viewer.catalogs_followed(), 0, "{strategy}");
            assert_eq!(viewer.publishers_followed(), 1, "{strategy}");
            let shown = shown_after(viewer, 4);
            assert!(shown >= 30, "{strategy} shows {shown}");
            let first = viewer
                .records()
                .iter()
                .rposition(|one| one.arrived_us < 4_000_000);
            let first = first.expect("it played before") + 1;
            let numbers = viewer.records().iter().map(|one| one.number);
            let before = numbers.clone().take(first).max().expect("some came");
            let after = numbers.skip(first).min();
            assert_eq!(after, Some(before + 1), "{strategy} counts on");
        }
    }
}
