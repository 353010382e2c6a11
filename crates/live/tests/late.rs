//! Who comes late still gets what is said once: the init segment and the catalog, from the relay or from the origin.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use weir_live::packaging::Packaging;
use weir_live::source::Source;
use weir_live::{
    Ingest, Item, Join, Origin, OriginConfig, Target, Timebase, Viewer, ViewerConfig, strategy,
};
use weir_moqt::draft::Draft;
use weir_moqt::message::Setup;
use weir_moqt::name::Namespace;
use weir_relay::{Config, Limits, Relay};
use weir_sim::{NodeConfig, SERVER_NAME, Sim};

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

/// Publishes, asks for the init segment and the catalog a while later through a relay that keeps objects for so long,
/// and returns how many objects came and how many fetches the origin answered.
fn fetched(cache_age_max: Duration) -> (u64, u64) {
    let mut sim = Sim::new(7);
    let server = Some(sim.server_tls(&[Draft::Draft18.alpn()]));
    let relay = sim.add_node(NodeConfig {
        server,
        ..NodeConfig::default()
    });
    let [origin, viewer] = [(); 2].map(|()| sim.add_node(NodeConfig::default()));
    let limits = Limits {
        cache_age_max,
        ..Limits::default()
    };
    let config = Config {
        limits,
        ..Config::default()
    };
    sim.start(relay, Relay::new(config));
    let mut ingest = Ingest::new();
    ingest.push(AUDIO_VIDEO);
    let items = std::iter::from_fn(|| ingest.poll().expect("a whole stream"));
    let target = |sim: &Sim| Target {
        remote: sim.address(relay),
        server_name: SERVER_NAME.to_owned(),
        client: sim.client_config(&[Draft::Draft18.alpn()]),
        setup: Setup::default(),
    };
    let timebase = Timebase {
        at: sim.now(),
        us: 0,
    };
    let namespace = Namespace::new(["live"]).expect("short");
    let strategy = strategy::by_name("weir").expect("a known name");
    let settings = strategy.player();
    let config = OriginConfig {
        target: target(&sim),
        namespace: namespace.clone(),
        strategy,
        packaging: Packaging::Loc,
        timebase,
        source: Box::new(AtOnce {
            items: items.collect(),
            at: sim.now(),
        }),
    };
    sim.start(origin, Origin::new(config));
    sim.run_until(Duration::from_secs(5), |_| false);
    let config = ViewerConfig {
        target: target(&sim),
        namespace,
        tracks: ["init", "catalog", "audio-2"].map(str::to_owned).into(),
        join: Join::Current,
        patience: Duration::ZERO,
        settings,
        timebase,
    };
    sim.start(viewer, Viewer::new(config));
    sim.run_until(Duration::from_secs(8), |_| false);
    let (origin, viewer) = (sim.app::<Origin>(origin), sim.app::<Viewer>(viewer));
    assert_eq!((origin.failure(), viewer.failure()), (None, None));
    assert!(origin.counters().audio_objects > 10, "sound passes through");
    // Neither says anything about a frame.
    (viewer.objects_unknown(), origin.counters().fetches_answered)
}

#[test]
fn the_relay_has_them_for_those_who_come_soon() {
    assert_eq!(fetched(Duration::from_mins(1)), (2, 0));
}

#[test]
fn the_origin_has_them_when_the_relay_no_longer_does() {
    assert_eq!(fetched(Duration::from_secs(1)), (2, 2));
}
