//! Publishers and players with several relays move on when they lose one, or when it sends GOAWAY.

use std::time::{Duration, Instant};

use weir_live::packaging::Packaging;
use weir_live::source::{FrameTrace, LIFE_720P, Source, TraceSource};
use weir_live::{
    Choice, Ingest, Item, Join, Origin, OriginCounters, PublishFlow, Viewer, ViewerConfig,
};
use weir_quic::App as _;
use weir_relay::registry::simulated::SimulatedFleet;
use weir_sim::NodeId;

use crate::stage::{AUDIO_VIDEO, Pace, Show, Stage};

/// Frames of a real encode, with the description of a file.
#[derive(Debug)]
struct Described {
    init: Option<(Instant, Item)>,
    frames: TraceSource,
}

impl Described {
    fn new(now: Instant, seconds: u64) -> Self {
        let mut ingest = Ingest::new();
        ingest.push(AUDIO_VIDEO);
        let init = ingest.poll().expect("a whole stream").expect("an item");
        let trace = FrameTrace::parse(LIFE_720P).expect("committed");
        Self {
            init: Some((now, init)),
            frames: TraceSource::new(trace, now, 0, seconds * 24),
        }
    }
}

impl Source for Described {
    fn poll(&mut self, now: Instant) -> Option<(Instant, Item)> {
        self.init.take().or_else(|| self.frames.poll(now))
    }

    fn next_at(&self) -> Option<Instant> {
        let init = self.init.as_ref().map(|(at, _)| *at);
        init.or_else(|| self.frames.next_at())
    }

    fn is_over(&self) -> bool {
        self.init.is_none() && self.frames.is_over()
    }
}

/// Two relays of a fleet for the publisher, and two for the viewer.
struct Scene {
    stage: Stage,
    hubs: [NodeId; 2],
    edges: [NodeId; 2],
}

impl Scene {
    /// Starts a stream of 40 s, and a player a second later at another relay.
    fn new(seed: u64, flow: PublishFlow) -> Self {
        Self::played_at(seed, flow, false)
    }

    /// Starts a stream, and a player a second later at the publisher's relay or at another one.
    fn played_at(seed: u64, flow: PublishFlow, is_near: bool) -> Self {
        let mut stage = Stage::seeded(seed, Duration::from_mins(1));
        let fleet = SimulatedFleet::new(seed, Duration::from_millis(20));
        let hubs = [1, 2].map(|identity| stage.add_relay(identity, &fleet));
        let edges = [3, 4].map(|identity| stage.add_relay(identity, &fleet));
        stage.sim.run_until(Duration::from_millis(500), |_| false);
        stage.relays = hubs.into();
        let now = stage.sim.now();
        let show = Show {
            strategy: "weir",
            flow,
            packaging: Packaging::Loc,
            pace: Pace::Live,
        };
        stage.publish_from(0, show, Box::new(Described::new(now, 40)));
        stage.sim.run_until(Duration::from_millis(1500), |_| false);
        stage.relays = if is_near { hubs } else { edges }.into();
        let config = ViewerConfig {
            choice: Choice::Catalog,
            join: Join::Next,
            ..stage.player_of("weir", &[])
        };
        stage.play_with(config);
        Self { stage, hubs, edges }
    }

    fn until(&mut self, seconds: u64) {
        self.stage
            .sim
            .run_until(Duration::from_secs(seconds), |_| false);
    }

    fn published(&self) -> OriginCounters {
        let origin = self.stage.sim.app::<Origin>(self.stage.nodes[0]);
        assert_eq!(origin.failure(), None, "{:?}", origin.last_move());
        origin.counters()
    }

    /// Returns the numbers of the frames that did not arrive, once the player has begun.
    fn lost(&self) -> Vec<u64> {
        let records = self.stage.viewer().records().iter();
        let mut numbers: Vec<u64> = records.map(|one| one.number).collect();
        numbers.sort_unstable();
        let all = numbers[0]..40 * 24;
        all.filter(|number| numbers.binary_search(number).is_err())
            .collect()
    }

    /// Returns the longest time without a shown frame, once the player has begun.
    fn gap(&self) -> Duration {
        let shown = self.stage.viewer().records().iter();
        let mut shown: Vec<i64> = shown.filter_map(|record| record.shown_us).collect();
        shown.sort_unstable();
        let gaps = shown.windows(2).map(|pair| pair[1] - pair[0]);
        Duration::from_micros(gaps.max().expect("frames are shown").unsigned_abs())
    }

    /// Asserts that the player has seen the end of the stream, of one publisher.
    fn assert_end(&self) {
        let viewer = self.stage.viewer();
        assert!(viewer.ended_us().is_some() && viewer.is_finished());
        assert_eq!(viewer.catalogs_followed(), 0);
        assert_eq!(viewer.publishers_followed(), 0);
        assert_eq!(viewer.frames_of_former(), 0);
        let last = viewer.records().iter().map(|record| record.number).max();
        assert_eq!(last, Some(40 * 24 - 1), "frame numbers continue");
    }
}

#[test]
fn a_viewer_whose_relay_dies_goes_on_at_the_next_one() {
    for seed in 0..8 {
        let mut scene = Scene::new(seed, PublishFlow::Publish);
        scene.until(10);
        scene.stage.sim.kill(scene.edges[0]);
        scene.until(60);
        assert_eq!(scene.stage.viewer().relays_left(), 1, "seed {seed}");
        assert!(scene.gap() < Duration::from_secs(4), "{:?}", scene.gap());
        scene.assert_end();
    }
}

#[test]
fn a_publisher_whose_relay_dies_goes_on_at_the_next_one() {
    for flow in [PublishFlow::Publish, PublishFlow::Namespace] {
        for seed in 0..4 {
            let mut scene = Scene::new(seed, flow);
            scene.until(10);
            scene.stage.sim.kill(scene.hubs[0]);
            scene.until(60);
            let published = scene.published();
            assert_eq!(published.relays_left, 1);
            assert_eq!(published.frames, 40 * 24);
            assert!(
                (1..4 * 24).contains(&published.frames_skipped),
                "{published:?}"
            );
            assert_eq!(scene.stage.viewer().relays_left(), 0);
            assert!(scene.gap() < Duration::from_secs(5), "{:?}", scene.gap());
            scene.assert_end();
        }
    }
}

#[test]
fn a_publisher_that_follows_goaway_leaves_nothing_out() {
    for flow in [PublishFlow::Publish, PublishFlow::Namespace] {
        for seed in 0..8 {
            let mut scene = Scene::new(seed, flow);
            scene.until(10);
            scene.stage.sim.shutdown(scene.hubs[0]);
            scene.until(60);
            let published = scene.published();
            assert_eq!((published.relays_left, published.frames_skipped), (1, 0));
            assert_eq!(scene.stage.viewer().relays_left(), 0);
            // The viewer's relay finds the next relay of the publisher before the first object is there.
            assert_eq!(scene.lost(), [0; 0], "seed {seed}, {flow:?}");
            assert!(scene.gap() < Duration::from_secs(1), "{:?}", scene.gap());
            scene.assert_end();
        }
    }
}

#[test]
fn a_viewer_that_follows_goaway_loses_nothing() {
    for seed in 0..8 {
        let mut scene = Scene::new(seed, PublishFlow::Publish);
        scene.until(10);
        scene.stage.sim.shutdown(scene.edges[0]);
        scene.until(60);
        assert_eq!(scene.stage.viewer().relays_left(), 1);
        assert_eq!(scene.lost(), [0; 0], "seed {seed}");
        assert!(scene.gap() < Duration::from_secs(1), "{:?}", scene.gap());
        scene.assert_end();
    }
}

#[test]
fn a_publisher_and_a_viewer_that_leave_one_relay_together_lose_nothing() {
    for seed in 0..8 {
        let mut scene = Scene::played_at(seed, PublishFlow::Publish, true);
        scene.until(10);
        scene.stage.sim.shutdown(scene.hubs[0]);
        scene.until(60);
        assert_eq!(scene.stage.viewer().relays_left(), 1);
        assert_eq!(scene.published().frames_skipped, 0);
        assert_eq!(scene.lost(), [0; 0], "seed {seed}");
        assert!(scene.gap() < Duration::from_secs(2), "{:?}", scene.gap());
        scene.assert_end();
    }
}

#[test]
fn a_viewer_without_any_relay_fails_after_a_minute() {
    let mut scene = Scene::new(5, PublishFlow::Publish);
    scene.until(10);
    for edge in scene.edges {
        scene.stage.sim.kill(edge);
    }
    scene.until(60);
    assert_eq!(scene.stage.viewer().failure(), None);
    scene.until(90);
    let viewer = scene.stage.sim.app::<Viewer>(scene.stage.nodes[2]);
    let failure = viewer.failure().expect("there is no relay");
    assert!(failure.starts_with("none of 2 relays serves"), "{failure}");
}
