//! Late subscribers receive what is sent once, the init segment and the catalog, from the relay or from the origin.
//! Also: how a player buffers, and follows another publisher; and how all leave.

mod asker;
mod buffering;
mod following;
mod leaving;
mod moving;
mod patience;
mod server;
mod silent;
mod stage;

use std::time::Duration;

use weir_link::{Config as Link, Delay, Loss, Probability};
use weir_live::{Origin, PublishFlow, Viewer};

use self::asker::Asker;
use self::server::Server;
use self::stage::{Pace, Show, Stage};

/// Requests init segment and catalog long after they were published, through a relay that keeps objects for
/// `cache_age_max`. Returns how many objects arrived, and how many fetches the origin answered.
fn fetched(cache_age_max: Duration) -> (u64, u64) {
    let mut stage = Stage::new(cache_age_max);
    stage.publish(0, Show::usual(PublishFlow::Publish));
    stage.sim.run_until(Duration::from_secs(5), |_| false);
    stage.play(&["init", "catalog", "audio-2"]);
    stage.sim.run_until(Duration::from_secs(8), |_| false);
    let origin = stage.sim.app::<Origin>(stage.nodes[0]);
    assert_eq!(origin.failure(), None);
    assert!(origin.counters().audio_objects > 10, "sound passes through");
    // Neither object describes a frame.
    let unknown = stage.viewer().objects_unknown();
    (unknown, origin.counters().fetches_answered)
}

#[test]
fn the_relay_has_them_for_those_who_come_soon() {
    assert_eq!(fetched(Duration::from_mins(1)), (2, 0));
}

#[test]
fn the_origin_has_them_when_the_relay_no_longer_does() {
    assert_eq!(fetched(Duration::from_secs(1)), (2, 2));
}

#[test]
fn who_comes_after_a_publisher_was_killed_and_started_again_gets_the_new_stream() {
    let mut stage = Stage::new(Duration::from_mins(1));
    stage.publish(0, Show::usual(PublishFlow::Publish));
    stage.sim.run_until(Duration::from_secs(5), |_| false);
    let killed = stage.nodes[0];
    stage.sim.kill(killed);
    stage.publish(1, Show::usual(PublishFlow::Publish));
    stage.sim.run_until(Duration::from_secs(6), |_| false);
    stage.play(&["video", "catalog"]);
    stage.sim.run_until(Duration::from_secs(8), |_| false);
    let viewer = stage.viewer();
    assert_eq!(viewer.objects_unknown(), 1, "one catalog");
    // Groups count from the milliseconds at which their publisher began.
    let groups: Vec<u64> = viewer.records().iter().map(|record| record.group).collect();
    assert!(
        !groups.is_empty() && groups.iter().all(|group| *group >= 5000),
        "{groups:?}"
    );
}

#[test]
fn whoever_subscribes_under_a_namespace_gets_what_is_said_once() {
    let mut stage = Stage::new(Duration::from_secs(1));
    stage.publish(0, Show::usual(PublishFlow::Namespace));
    for second in [5, 20] {
        stage.sim.run_until(Duration::from_secs(second), |_| false);
        stage.play(&["init", "catalog"]);
        stage
            .sim
            .run_until(Duration::from_secs(second + 3), |_| false);
        assert_eq!(stage.viewer().objects_unknown(), 2, "at {second} s");
        let viewer = stage.nodes[2];
        stage.sim.kill(viewer);
    }
}

#[test]
fn a_player_leaves_only_when_the_last_streams_have_come() {
    for seed in 0..12 {
        let mut stage = Stage::seeded(seed, Duration::from_mins(1));
        let (relay, viewer) = (stage.relay, stage.nodes[2]);
        let link = |loss| Link {
            delay: Delay::fixed(Duration::from_millis(100)).expect("short"),
            loss,
            ..Link::default()
        };
        stage.sim.set_path(relay, viewer, link(Loss::None));
        stage.play_by("combined", &["video", "video-disposable"]);
        stage.sim.run_until(Duration::from_secs(1), |_| false);
        stage.publish(
            0,
            Show {
                strategy: "combined",
                pace: Pace::Until(5),
                ..Show::usual(PublishFlow::Publish)
            },
        );
        stage.sim.run_until(Duration::from_millis(1900), |_| false);
        let loss = Probability::new(0.2).expect("a share");
        let lossy = link(Loss::Independent(loss));
        stage.sim.set_path(relay, viewer, lossy);
        // The end of a track may overtake its last frames, which are on other streams.
        stage.sim.run_until(Duration::from_secs(9), |_| false);
        let viewer = stage.viewer();
        assert_eq!(viewer.records().len(), 5, "seed {seed}");
        assert!(viewer.ended_us().is_some(), "seed {seed}");
    }
}

#[test]
fn who_asks_under_a_namespace_before_anything_is_known_of_the_stream_is_answered() {
    let mut stage = Stage::new(Duration::from_mins(1));
    stage.play_by("skip", &["init", "catalog", "audio-2"]);
    stage.sim.run_until(Duration::from_secs(1), |_| false);
    stage.publish(0, Show::usual(PublishFlow::Namespace));
    stage.sim.run_until(Duration::from_secs(2), |_| false);
    assert_eq!(stage.viewer().objects_unknown(), 2);
    let sound = stage.viewer().records().len();
    assert!(sound > 20, "and {sound} pieces of sound");
}

#[test]
fn who_asks_for_what_there_is_not_is_told_when_that_is_known() {
    let mut stage = Stage::new(Duration::from_mins(1));
    stage.play(&["audio-7"]);
    stage.sim.run_until(Duration::from_secs(1), |_| false);
    stage.publish(0, Show::usual(PublishFlow::Namespace));
    stage.sim.run_until(Duration::from_secs(5), |_| false);
    let viewer = stage.sim.app::<Viewer>(stage.nodes[2]);
    let failure = viewer.failure().expect("there is no such track");
    assert!(
        failure.starts_with("the relay refused a track"),
        "{failure}"
    );
}

#[test]
fn who_changes_its_mind_before_anything_is_known_of_the_stream_is_answered_in_order() {
    for changes in [vec![], vec![true], vec![true, false]] {
        let mut stage = Stage::new(Duration::from_mins(1));
        stage.sim.start(
            stage.relay,
            Server::new(Asker::new("audio-2", changes.clone())),
        );
        let live = Show {
            pace: Pace::Live,
            ..Show::usual(PublishFlow::Namespace)
        };
        stage.publish(0, live);
        stage.sim.run_until(Duration::from_secs(1), |_| false);
        let origin = stage.sim.app::<Origin>(stage.nodes[0]);
        assert_eq!(origin.failure(), None, "{changes:?}");
        let asker = &stage.sim.app::<Server<Asker>>(stage.relay).answers;
        let expected = std::iter::once("accepted").chain(changes.iter().map(|_| "updated"));
        assert!(
            asker.heard.iter().copied().eq(expected),
            "{changes:?}: {:?}",
            asker.heard
        );
        let is_wanted = changes.last().is_none_or(|&forward| forward);
        let came = asker.subgroups > 0;
        assert_eq!(came, is_wanted, "{changes:?}: {}", asker.subgroups);
    }
}

#[test]
fn so_many_may_ask_before_anything_is_known_and_no_more() {
    for (count, over) in [(16, 0), (17, 1)] {
        let mut stage = Stage::new(Duration::from_mins(1));
        let names: Vec<String> = (0..count).map(|number| format!("none-{number}")).collect();
        let names: Vec<&str> = names.iter().map(|name| &**name).collect();
        stage.play(&names);
        stage.sim.run_until(Duration::from_secs(1), |_| false);
        stage.publish(0, Show::usual(PublishFlow::Namespace));
        stage.sim.run_until(Duration::from_secs(2), |_| false);
        let origin = stage.sim.app::<Origin>(stage.nodes[0]);
        assert_eq!(origin.counters().early_over_limit, over, "{count}");
    }
}
