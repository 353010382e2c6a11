//! The stage of a story: a relay, origins that publish a file, and a player.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_client::target::Target;
use weir_live::packaging::Packaging;
use weir_live::playout::BufferChoice;
use weir_live::source::Source;
use weir_live::{
    Choice, Ingest, Item, Join, Origin, OriginConfig, PublishFlow, Timebase, Viewer, ViewerConfig,
    strategy,
};
use weir_moqt::draft::Draft;
use weir_moqt::name::Namespace;
use weir_relay::registry::{Member, RelayId, simulated::SimulatedFleet};
use weir_relay::{Config, Limits, Relay};
use weir_sim::{NodeConfig, NodeId, SERVER_NAME, Sim};

/// 36 frames with audio.
pub(crate) const AUDIO_VIDEO: &[u8] = include_bytes!("../media/audio-video.mp4");

/// What an origin publishes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Show {
    pub(crate) strategy: &'static str,
    pub(crate) flow: PublishFlow,
    pub(crate) packaging: Packaging,
    pub(crate) pace: Pace,
}

/// The pace of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Everything at once, without an end.
    AtOnce,
    /// This many frames, all at once except the last, which comes a second later with the end of the stream.
    Until(usize),
    /// Each frame at its decode time, then the end of the stream.
    Live,
}

impl Show {
    /// The default strategy with LOC, everything at once.
    pub(crate) fn usual(flow: PublishFlow) -> Self {
        Self {
            strategy: "weir",
            flow,
            packaging: Packaging::Loc,
            pace: Pace::AtOnce,
        }
    }
}

/// A stream that was ingested in advance.
#[derive(Debug)]
struct Ready {
    items: VecDeque<(Instant, Item)>,
    ends: bool,
}

impl Source for Ready {
    fn poll(&mut self, now: Instant) -> Option<(Instant, Item)> {
        self.next_at().filter(|at| *at <= now)?;
        self.items.pop_front()
    }

    fn next_at(&self) -> Option<Instant> {
        self.items.front().map(|(at, _)| *at)
    }

    fn is_over(&self) -> bool {
        self.ends && self.items.is_empty()
    }
}

/// A relay that keeps objects for a given time, with nodes for origins and a player.
pub(crate) struct Stage {
    pub(crate) sim: Sim,
    pub(crate) relay: NodeId,
    /// The relays of clients that are created later, in order of preference.
    pub(crate) relays: Vec<NodeId>,
    pub(crate) nodes: [NodeId; 3],
}

impl Stage {
    pub(crate) fn new(cache_age_max: Duration) -> Self {
        Self::seeded(7, cache_age_max)
    }

    pub(crate) fn seeded(seed: u64, cache_age_max: Duration) -> Self {
        let limits = Limits {
            cache_age_max,
            ..Limits::default()
        };
        Self::with_limits(seed, limits)
    }

    pub(crate) fn with_limits(seed: u64, limits: Limits) -> Self {
        let mut sim = Sim::new(seed);
        let server = Some(sim.server_tls(&Draft::alpns()));
        let relay = sim.add_node(NodeConfig {
            server,
            ..NodeConfig::default()
        });
        let nodes = [(); 3].map(|()| sim.add_node(NodeConfig::default()));
        let config = Config {
            limits,
            ..Config::default()
        };
        sim.start(relay, Relay::new(config));
        Self {
            sim,
            relay,
            relays: vec![relay],
            nodes,
        }
    }

    /// Adds a relay of a fleet.
    pub(crate) fn add_relay(&mut self, identity: u64, fleet: &SimulatedFleet) -> NodeId {
        let server = Some(self.sim.server_tls(&Draft::alpns()));
        let node = self.sim.add_node(NodeConfig {
            server,
            ..NodeConfig::default()
        });
        let mut relay = Relay::new(Config {
            identity,
            drain_max: Duration::from_secs(10),
            ..Config::default()
        });
        let member = Member {
            id: RelayId(identity),
            name: identity.to_string(),
            target: Arc::new(self.target_at(node)),
        };
        let registry = Box::new(fleet.join(member));
        relay.join_fleet(self.sim.now(), RelayId(identity), registry);
        self.sim.start(node, relay);
        node
    }

    fn target_at(&self, relay: NodeId) -> Target {
        Target::new(
            self.sim.address(relay),
            SERVER_NAME,
            self.sim.client_config(&Draft::alpns()),
        )
    }

    fn target(&self) -> Target {
        let others = self.relays[1..].iter();
        Target {
            alternatives: others
                .map(|&relay| Arc::new(self.target_at(relay)))
                .collect(),
            ..self.target_at(self.relays[0])
        }
    }

    /// Returns the clock that all nodes share.
    fn timebase(&self) -> Timebase {
        Timebase {
            at: self.sim.instant(Duration::ZERO),
            us: 0,
        }
    }

    /// Publishes on one of the nodes.
    pub(crate) fn publish(&mut self, node: usize, show: Show) {
        let mut ingest = Ingest::new();
        ingest.push(AUDIO_VIDEO);
        let items = std::iter::from_fn(|| ingest.poll().expect("a whole stream"));
        let now = self.sim.now();
        let mut left = match show.pace {
            Pace::AtOnce | Pace::Live => usize::MAX,
            Pace::Until(frames) => frames,
        };
        let items = items.map_while(|item| {
            left = left.checked_sub(usize::from(matches!(item, Item::Frame(_))))?;
            let media_us = match &item {
                Item::Init(_) => 0,
                Item::Frame(frame) => frame.decode_us,
                Item::Audio {
                    presentation_us, ..
                } => *presentation_us,
            };
            let delay = match show.pace {
                Pace::Live => Duration::from_micros(media_us.unsigned_abs()),
                Pace::AtOnce | Pace::Until(_) => Duration::from_secs(u64::from(left == 0)),
            };
            Some((now + delay, item))
        });
        let source = Ready {
            items: items.collect(),
            ends: show.pace != Pace::AtOnce,
        };
        self.publish_from(node, show, Box::new(source));
    }

    /// Publishes the items of a source on one of the nodes.
    pub(crate) fn publish_from(&mut self, node: usize, show: Show, source: Box<dyn Source>) {
        let config = OriginConfig {
            target: self.target(),
            namespace: namespace(),
            flow: show.flow,
            strategy: strategy::by_name(show.strategy).expect("a known name"),
            fits_relay: false,
            packaging: show.packaging,
            timebase: self.timebase(),
            source,
        };
        self.sim.start(self.nodes[node], Origin::new(config));
    }

    /// Returns the configuration of a player of these tracks.
    pub(crate) fn player_of(&self, strategy: &str, tracks: &[&str]) -> ViewerConfig {
        ViewerConfig {
            target: self.target(),
            namespace: namespace(),
            choice: Choice::Known {
                tracks: tracks.iter().map(|&track| track.to_owned()).collect(),
                settings: strategy::by_name(strategy).expect("a known name").player(),
            },
            join: Join::Current,
            buffer: BufferChoice::Strategy,
            rendezvous_timeout: Duration::from_secs(2),
            reconnect_timeout: Duration::ZERO,
            timebase: self.timebase(),
        }
    }

    /// Plays these tracks on the last node.
    pub(crate) fn play(&mut self, tracks: &[&str]) {
        self.play_by("weir", tracks);
    }

    pub(crate) fn play_by(&mut self, strategy: &str, tracks: &[&str]) {
        self.play_with(self.player_of(strategy, tracks));
    }

    pub(crate) fn play_with(&mut self, config: ViewerConfig) {
        self.sim.start(self.nodes[2], Viewer::new(config));
    }

    pub(crate) fn viewer(&self) -> &Viewer {
        let viewer = self.sim.app::<Viewer>(self.nodes[2]);
        assert_eq!(viewer.failure(), None);
        viewer
    }
}

fn namespace() -> Namespace {
    Namespace::new(["live"]).expect("short")
}
