//! The stage of a story: an origin, a relay, a player, and a link with a changing rate before one of the latter two.

use std::time::Duration;

use weir_client::target::Target;
use weir_link::{Bitrate, Config as Link, Delay, Queue, Rate};
use weir_live::packaging::Packaging;
use weir_live::playout::BufferChoice;
use weir_live::source::{FrameTrace, LIFE_720P, TraceSource};
use weir_live::strategy::Strategy;
use weir_live::{
    Choice, Join, Origin, OriginConfig, OriginCounters, PublishFlow, Timebase, Viewer,
    ViewerConfig, strategy,
};
use weir_moqt::draft::Draft;
use weir_moqt::name::Namespace;
use weir_quic::{Congestion, Limits};
use weir_relay::{Config, Counters, Relay};
use weir_report::lab::{Delays, Figures, FrameRecord};
use weir_sim::{NodeConfig, NodeId, SERVER_NAME, Sim};

/// The rate of the link over time, in kilobits per second.
pub(crate) type Profile = Vec<(Duration, u32)>;

pub(crate) fn constant(kilobits: u32) -> Profile {
    vec![(Duration::ZERO, kilobits)]
}

/// Eight seconds at ample rate, twelve at a third of the stream's rate, then ample again.
pub(crate) fn dip() -> Profile {
    [(0, 1000), (8, 200), (20, 1000)]
        .map(|(at, kilobits)| (Duration::from_secs(at), kilobits))
        .into()
}

/// The result of a stream.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) figures: Figures,
    pub(crate) records: Vec<FrameRecord>,
    /// The relay's counters.
    pub(crate) relayed: Counters,
    pub(crate) published: OriginCounters,
    /// Why the origin failed before the end of the stream, and whether it has ended.
    pub(crate) failure: Option<String>,
    pub(crate) is_over: bool,
}

/// The position of the slow link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slow {
    /// From the origin to the relay.
    Up,
    /// From the relay to the player.
    Down,
}

impl Run {
    /// Returns the delays of frames, from their availability at the origin.
    pub(crate) fn delays(&self) -> Delays {
        self.figures.delays.expect("availability is known")
    }

    /// Counts the frames shown between two seconds of the run.
    pub(crate) fn shown_between(&self, from: i64, until: i64) -> usize {
        let is_within = |shown: i64| (from * 1_000_000..until * 1_000_000).contains(&shown);
        let shown = self.records.iter().filter_map(|record| record.shown_us);
        shown.filter(|shown| is_within(*shown)).count()
    }

    /// Returns the mean latency of frames shown between two seconds of the run, in seconds.
    pub(crate) fn latency_between(&self, from: i64, until: i64) -> f64 {
        let is_within = |shown: i64| (from * 1_000_000..until * 1_000_000).contains(&shown);
        let (mut sum, mut count) = (0.0, 0.0);
        for record in &self.records {
            if let Some(shown) = record.shown_us.filter(|shown| is_within(*shown)) {
                let latency =
                    u32::try_from(shown - record.available_us.expect("known")).expect("short");
                sum += f64::from(latency) / 1e6;
                count += 1.0;
            }
        }
        sum / f64::max(count, 1.0)
    }
}

pub(crate) struct Stage {
    strategy: &'static str,
    seed: u64,
    /// The target of the latency.
    pub(crate) target: Duration,
    /// The congestion controller, if not the one that the strategy wants.
    pub(crate) congestion: Option<Congestion>,
    /// Whether the player may limit what is in flight.
    pub(crate) may_limit: bool,
    /// How the origin offers its tracks.
    pub(crate) flow: PublishFlow,
    /// Whether the origin gives a relay that is not weir's the strategy for other relays.
    pub(crate) fits_relay: bool,
    pub(crate) slow: Slow,
    /// How long the source produces frames; until near the end of the run unless set.
    pub(crate) made: Option<Duration>,
    /// The configuration of the relay.
    pub(crate) relay: Config,
    /// The shared clock at the beginning, in milliseconds. The origin's first Group ID follows from it.
    pub(crate) begins_ms: i64,
}

impl Stage {
    pub(crate) fn new(strategy: &'static str, seed: u64) -> Self {
        Self {
            strategy,
            seed,
            target: strategy::TARGET_DEFAULT,
            congestion: None,
            may_limit: true,
            flow: PublishFlow::Publish,
            fits_relay: false,
            slow: Slow::Down,
            made: None,
            relay: Config::default(),
            begins_ms: 0,
        }
    }

    /// Creates nodes for origin, relay and player, and the links between them.
    fn nodes(&self, strategy: &dyn Strategy, profile: &Profile) -> (Sim, [NodeId; 3]) {
        let mut sim = Sim::new(self.seed);
        let delay = Delay::fixed(Duration::from_millis(1)).expect("short");
        sim.set_default_link(Link {
            delay,
            ..Link::default()
        });
        let congestion = self.congestion;
        let congestion = congestion.unwrap_or_else(|| wanted(strategy));
        let server = Some(sim.server_tls(&Draft::alpns()));
        let limits = Limits {
            congestion,
            ..Limits::default()
        };
        let relay = sim.add_node(NodeConfig {
            server,
            limits: limits.clone(),
            ..NodeConfig::default()
        });
        let origin = sim.add_node(NodeConfig {
            limits,
            ..NodeConfig::default()
        });
        let viewer = sim.add_node(NodeConfig {
            limits: Limits {
                receive_bytes_max: weir_live::WINDOW_FIRST,
                ..Limits::default()
            },
            ..NodeConfig::default()
        });
        let far = Link {
            delay: Delay::fixed(Duration::from_millis(20)).expect("short"),
            queue: Queue {
                bytes_max: 62_500,
                packets_max: 1_000_000,
            },
            ..Link::default()
        };
        let (from, to) = match self.slow {
            Slow::Up => (origin, relay),
            Slow::Down => (relay, viewer),
        };
        sim.set_path(from, to, far);
        for (at, kilobits) in profile.clone() {
            sim.at(at, move |sim| {
                let rate = Rate::Fixed(Bitrate::from_kilobits_per_second(kilobits));
                sim.change_link(from, to, |now, link| link.set_rate(now, rate));
            });
        }
        (sim, [origin, relay, viewer])
    }

    /// Returns a source from one second into the committed trace, and its number of frames.
    fn source(&self, sim: &Sim, duration: Duration) -> (TraceSource, u64) {
        let trace = FrameTrace::parse(LIFE_720P).expect("a good trace");
        let start = sim.instant(Duration::from_secs(1));
        let made = self
            .made
            .unwrap_or_else(|| duration.saturating_sub(Duration::from_millis(1500)));
        let frames = u64::try_from(made.as_millis() * 24 / 1000).expect("few");
        let offset = usize::try_from(self.seed).expect("small") * 45;
        (TraceSource::new(trace, start, offset, frames), frames)
    }

    /// Returns what a viewer received of `published` frames until the last one arrived, with times from the beginning.
    fn received(
        &self,
        viewer: &Viewer,
        counters: OriginCounters,
        frames: u64,
    ) -> (Figures, Vec<FrameRecord>) {
        let begins_us = self.begins_ms * 1000;
        let end_us = 1_000_000 + i64::try_from(frames * 1_000_000 / 24).expect("short");
        let mut records = viewer.records().to_vec();
        for record in &mut records {
            record.arrived_us -= begins_us;
            for at_us in [&mut record.available_us, &mut record.shown_us] {
                *at_us = at_us.map(|us| us - begins_us);
            }
        }
        let figures = Figures::new(&records, counters.frames, 400_000, end_us);
        (figures, records)
    }

    /// Streams for `duration` over a link with 20 ms of delay and a queue of 62.5 kB.
    pub(crate) fn run(&self, profile: &Profile, duration: Duration) -> Run {
        let strategy = strategy::by_name_and_target(self.strategy, self.target);
        let strategy = strategy.expect("a known name");
        let (mut sim, [origin, relay, viewer]) = self.nodes(&*strategy, profile);
        sim.start(relay, Relay::new(self.relay.clone()));
        let namespace = Namespace::new(["live"]).expect("short");
        let target = |sim: &Sim| {
            Target::new(
                sim.address(relay),
                SERVER_NAME,
                sim.client_config(&Draft::alpns()),
            )
        };
        let timebase = Timebase {
            at: sim.now(),
            us: self.begins_ms * 1000,
        };
        let mut choice = Choice::of(&*strategy);
        if let Choice::Known { settings, .. } = &mut choice {
            settings.limits_queue &= self.may_limit;
        }
        let (source, frames) = self.source(&sim, duration);
        let origin_target = target(&sim);
        sim.start(
            origin,
            Origin::new(OriginConfig {
                target: origin_target,
                namespace: namespace.clone(),
                flow: self.flow,
                strategy,
                fits_relay: self.fits_relay,
                packaging: Packaging::Cmaf,
                timebase,
                source: Box::new(source),
            }),
        );
        let viewer_target = target(&sim);
        sim.run_until(Duration::from_millis(400), |_| false);
        sim.start(
            viewer,
            Viewer::new(ViewerConfig {
                target: viewer_target,
                namespace,
                choice,
                join: Join::Next,
                buffer: BufferChoice::Strategy,
                rendezvous_timeout: Duration::ZERO,
                reconnect_timeout: Duration::ZERO,
                timebase,
            }),
        );
        sim.run_until(duration, |_| false);
        let published = sim.app::<Origin>(origin);
        let counters = published.counters();
        let failure = published.failure().map(str::to_owned);
        let is_over = weir_quic::App::is_finished(published);
        let viewer = sim.app::<Viewer>(viewer);
        assert_eq!(viewer.failure(), None);
        let (figures, records) = self.received(viewer, counters, frames);
        Run {
            figures,
            records,
            relayed: sim.app::<Relay>(relay).counters(),
            published: counters,
            failure,
            is_over,
        }
    }
}

/// Returns the congestion controller that a strategy wants.
fn wanted(strategy: &dyn Strategy) -> Congestion {
    if strategy.wants_short_queues() {
        Congestion::LOW_LATENCY
    } else {
        Congestion::Cubic
    }
}
