//! Who comes late still gets what is said once: the init segment and the catalog, from the relay or from the origin.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use weir_live::packaging::Packaging;
use weir_live::source::Source;
use weir_live::{
    Ingest, Item, Join, Origin, OriginConfig, PublishFlow, Target, Timebase, Viewer, ViewerConfig,
    strategy,
};
use weir_moqt::draft::Draft;
use weir_moqt::message::Setup;
use weir_moqt::name::Namespace;
use weir_relay::{Config, Limits, Relay};
use weir_sim::{NodeConfig, NodeId, SERVER_NAME, Sim};

/// 36 frames and their sound.
const AUDIO_VIDEO: &[u8] = include_bytes!("media/audio-video.mp4");

/// A stream of which everything is there at once, and that does not end.
#[derive(Debug)]
struct AtOnce {
    items: VecDeque<Item>,
    at: Instant,
}

impl Source for AtOnce {
    fn poll(&mut self, _now: Instant) -> Option<(Instant, Item)> {
        self.items.pop_front().map(|item| (self.at, item))
    }

    fn next_at(&self) -> Option<Instant> {
        self.items.front().map(|_| self.at)
    }

    fn is_over(&self) -> bool {
        false
    }
}

/// An origin, a relay that keeps objects for so long, and room for more origins and a player.
struct Stage {
    sim: Sim,
    relay: NodeId,
    nodes: [NodeId; 3],
}

impl Stage {
    fn new(cache_age_max: Duration) -> Self {
        let mut sim = Sim::new(7);
        let server = Some(sim.server_tls(&[Draft::Draft18.alpn()]));
        let relay = sim.add_node(NodeConfig {
            server,
            ..NodeConfig::default()
        });
        let nodes = [(); 3].map(|()| sim.add_node(NodeConfig::default()));
        let limits = Limits {
            cache_age_max,
            ..Limits::default()
        };
        let config = Config {
            limits,
            ..Config::default()
        };
        sim.start(relay, Relay::new(config));
        Self { sim, relay, nodes }
    }

    fn target(&self) -> Target {
        Target {
            remote: self.sim.address(self.relay),
            server_name: SERVER_NAME.to_owned(),
            client: self.sim.client_config(&[Draft::Draft18.alpn()]),
            setup: Setup::default(),
        }
    }

    /// All share one clock, whenever they begin.
    fn timebase(&self) -> Timebase {
        Timebase {
            at: self.sim.instant(Duration::ZERO),
            us: 0,
        }
    }

    /// Publishes all that there is at once on one of the nodes.
    fn publish(&mut self, node: usize, flow: PublishFlow) {
        let mut ingest = Ingest::new();
        ingest.push(AUDIO_VIDEO);
        let items = std::iter::from_fn(|| ingest.poll().expect("a whole stream"));
        let config = OriginConfig {
            target: self.target(),
            namespace: namespace(),
            flow,
            strategy: strategy::by_name("weir").expect("a known name"),
            packaging: Packaging::Loc,
            timebase: self.timebase(),
            source: Box::new(AtOnce {
                items: items.collect(),
                at: self.sim.now(),
            }),
        };
        self.sim.start(self.nodes[node], Origin::new(config));
    }

    /// Plays on the last node.
    fn play(&mut self, tracks: &[&str]) {
        let config = ViewerConfig {
            target: self.target(),
            namespace: namespace(),
            tracks: tracks.iter().map(|&track| track.to_owned()).collect(),
            join: Join::Current,
            patience: Duration::ZERO,
            settings: strategy::by_name("weir").expect("a known name").player(),
            timebase: self.timebase(),
        };
        self.sim.start(self.nodes[2], Viewer::new(config));
    }

    fn viewer(&self) -> &Viewer {
        let viewer = self.sim.app::<Viewer>(self.nodes[2]);
        assert_eq!(viewer.failure(), None);
        viewer
    }
}

fn namespace() -> Namespace {
    Namespace::new(["live"]).expect("short")
}

/// Publishes, asks for the init segment and the catalog a while later through a relay that keeps objects for so long,
/// and returns how many objects came and how many fetches the origin answered.
fn fetched(cache_age_max: Duration) -> (u64, u64) {
    let mut stage = Stage::new(cache_age_max);
    stage.publish(0, PublishFlow::Publish);
    stage.sim.run_until(Duration::from_secs(5), |_| false);
    stage.play(&["init", "catalog", "audio-2"]);
    stage.sim.run_until(Duration::from_secs(8), |_| false);
    let origin = stage.sim.app::<Origin>(stage.nodes[0]);
    assert_eq!(origin.failure(), None);
    assert!(origin.counters().audio_objects > 10, "sound passes through");
    // Neither says anything about a frame.
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
    stage.publish(0, PublishFlow::Publish);
    stage.sim.run_until(Duration::from_secs(5), |_| false);
    let killed = stage.nodes[0];
    stage.sim.kill(killed);
    stage.publish(1, PublishFlow::Publish);
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
    stage.publish(0, PublishFlow::Namespace);
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
