//! A lab run in virtual time: an origin, weir's relay, and a player behind an emulated link.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use weir_client::target::Target;
use weir_link::{Config as Link, Delay};
use weir_live::packaging::Packaging;
use weir_live::playout::BufferChoice;
use weir_live::source::{FrameTrace, TraceSource};
use weir_live::strategy::{self, Strategy, TARGET_DEFAULT};
use weir_live::{
    Choice, Join, Origin, OriginConfig, PublishFlow, Timebase, Viewer, ViewerConfig, WINDOW_FIRST,
};
use weir_moqt::{draft::Draft, name::Namespace};
use weir_quic::{Congestion, Limits};
use weir_relay::{Config, Relay};
use weir_report::lab::{Figures, FrameRecord, Thresholds};
use weir_sim::{NodeConfig, NodeId, SERVER_NAME, Sim};

use super::link_conditions::Conditions;
use super::material::Material;
use super::network_profile::NetworkProfile;
use crate::run::RelayUrl;

/// The result of a run: figures, and a record of each frame.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) figures: Figures,
    pub(crate) records: Vec<FrameRecord>,
}

/// A run to make: a stream with a delivery strategy over an emulated link.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) profile: NetworkProfile,
    pub(crate) conditions: Conditions,
    pub(crate) material: Material,
    /// What counts as a freeze, and as on time.
    pub(crate) thresholds: Thresholds,
    /// Name of the link: the profile, and how its conditions differ from the given ones.
    pub(crate) link: String,
    pub(crate) strategy: String,
    /// Target of the latency; `None` for the strategy's own.
    pub(crate) target: Option<Duration>,
    /// Congestion controller of relay and origin.
    pub(crate) congestion: Congestion,
    /// A relay that runs already, with a controller of its own; `None` starts weir's.
    pub(crate) relay: Option<RunningRelay>,
    pub(crate) seed: u64,
}

/// A relay that runs already.
#[derive(Clone, Debug)]
pub(crate) struct RunningRelay {
    /// The given name, or else the URL.
    pub(crate) name: String,
    pub(crate) url: RelayUrl,
}

impl Task {
    /// Returns the strategy, and the congestion controller of the run.
    pub(crate) fn delivery(&self) -> anyhow::Result<(Box<dyn Strategy>, Congestion)> {
        let strategy = targeted_strategy(&self.strategy, self.target)?;
        Ok((strategy, self.congestion))
    }

    /// Returns the strategy's name, with the target if it is not the default.
    pub(crate) fn label(&self) -> String {
        let target = self.target.filter(|target| *target != TARGET_DEFAULT);
        let target = target.map(|target| format!(" {}", humantime::format_duration(target)));
        format!("{}{}", self.strategy, target.unwrap_or_default())
    }

    /// Returns the name of the relay's congestion controller, or `of` with the name of a relay that runs already.
    pub(crate) fn controller(&self) -> String {
        match (&self.relay, self.congestion) {
            (Some(relay), _) => format!("of {}", relay.name),
            (None, Congestion::Cubic) => "cubic".to_owned(),
            (None, Congestion::Delay { .. }) => "delay".to_owned(),
        }
    }
}

/// Makes a run in virtual time.
pub(crate) fn run(task: &Task) -> anyhow::Result<Run> {
    let (profile, seed) = (&task.profile, task.seed);
    let (strategy, congestion) = task.delivery()?;
    let (mut sim, [origin, relay, viewer]) = nodes(profile, &task.conditions, congestion, seed)?;
    sim.start(relay, Relay::new(Config::default()));

    let namespace = Namespace::new(["live"])?;
    let target = Target::new(
        sim.address(relay),
        SERVER_NAME,
        sim.client_config(&[Draft::ALL[0].alpn()]),
    );
    let timebase = Timebase {
        at: sim.now(),
        us: 0,
    };
    let viewer_config = ViewerConfig {
        target: target.clone(),
        namespace: namespace.clone(),
        choice: Choice::of(&*strategy),
        join: Join::Next,
        buffer: BufferChoice::Strategy,
        rendezvous_timeout: Duration::ZERO,
        reconnect_timeout: Duration::ZERO,
        timebase,
    };
    let Material::Trace { trace, .. } = &task.material else {
        bail!("--source ffmpeg: needs --net; in virtual time nothing can be encoded");
    };
    let source = trace_source(profile, trace, sim.now(), seed)?;
    sim.start(
        origin,
        Origin::new(OriginConfig {
            target,
            namespace,
            flow: PublishFlow::Publish,
            strategy,
            fits_relay: false,
            packaging: Packaging::Cmaf,
            timebase,
            source: Box::new(source),
        }),
    );
    sim.run_until(JOIN, |_| false);
    sim.start(viewer, Viewer::new(viewer_config));
    sim.run_until(profile.duration, |_| false);

    let (origin, viewer) = (sim.app::<Origin>(origin), sim.app::<Viewer>(viewer));
    if let Some(failure) = origin.failure().or_else(|| viewer.failure()) {
        bail!("the run failed: {failure}");
    }
    let records = viewer.records().to_vec();
    let microseconds = |time: Duration| i64::try_from(time.as_micros());
    let (start, end) = (microseconds(JOIN)?, microseconds(profile.duration)?);
    let frames = origin.counters().frames;
    let figures = Figures::judged(&records, frames, (start, end), task.thresholds);
    Ok(Run { figures, records })
}

/// Returns nodes for an origin, a relay and a viewer, with the emulated link between the last two.
fn nodes(
    profile: &NetworkProfile,
    conditions: &Conditions,
    congestion: Congestion,
    seed: u64,
) -> anyhow::Result<(Sim, [NodeId; 3])> {
    let mut sim = Sim::new(seed);
    sim.set_default_link(Link {
        delay: Delay::fixed(Duration::from_millis(1))?,
        ..Link::default()
    });
    let server = Some(sim.server_tls(&[Draft::ALL[0].alpn()]));
    let relay = sim.add_node(NodeConfig {
        server,
        limits: Limits {
            congestion,
            ..Limits::default()
        },
        ..NodeConfig::default()
    });
    let origin = sim.add_node(NodeConfig::default());
    let viewer = sim.add_node(NodeConfig {
        limits: Limits {
            receive_bytes_max: WINDOW_FIRST,
            ..Limits::default()
        },
        ..NodeConfig::default()
    });
    sim.set_path(relay, viewer, conditions.link()?);
    for (at, rate) in profile.steps.clone() {
        sim.at(at, move |sim| {
            sim.change_link(relay, viewer, |now, link| link.set_rate(now, rate));
        });
    }
    Ok((sim, [origin, relay, viewer]))
}

/// Returns `trace` as the source of a run that begins at `start`. The seed chooses its first group.
pub(crate) fn trace_source(
    profile: &NetworkProfile,
    trace: &FrameTrace,
    start: Instant,
    seed: u64,
) -> anyhow::Result<TraceSource> {
    ensure!(
        profile.duration > BEGIN * 2,
        "the profile {} is too short: expected more than {} s",
        profile.name,
        (BEGIN * 2).as_secs()
    );
    let keyframes = trace.keyframes();
    let first = keyframes[usize::try_from(seed % FIRST_GROUPS)? % keyframes.len()];
    let frames = trace.frames_within(first, profile.duration.saturating_sub(BEGIN));
    Ok(TraceSource::new(
        trace.clone(),
        start + BEGIN,
        first,
        frames,
    ))
}

/// Returns the strategy with this name. The error lists all names.
pub(crate) fn named_strategy(name: &str) -> anyhow::Result<Box<dyn Strategy>> {
    let names = || strategy::NAMES.join(", ");
    strategy::by_name(name).with_context(|| {
        format!(
            "there is no strategy {name:?}; expected one of: {}",
            names()
        )
    })
}

/// Returns the strategy with this name and, if it has one, this target of the latency.
pub(crate) fn targeted_strategy(
    name: &str,
    target: Option<Duration>,
) -> anyhow::Result<Box<dyn Strategy>> {
    let strategy = named_strategy(name)?;
    let Some(target) = target else {
        return Ok(strategy);
    };
    ensure!(
        strategy.target().is_some(),
        "--target: the strategy {name} has no target; expected --strategy weir"
    );
    Ok(strategy::by_name_and_target(name, target).unwrap_or(strategy))
}

/// Returns the help of a flag that names a strategy, with the names of all strategies.
pub(crate) fn strategy_help(purpose: &str) -> String {
    let [names @ .., last] = strategy::NAMES;
    let names = names.join(", ");
    format!("{purpose}: {names} or {last}")
}

/// Returns the congestion controller that a strategy wants.
pub(crate) fn wanted_congestion(strategy: &dyn Strategy) -> Congestion {
    if strategy.wants_short_queues() {
        Congestion::LOW_LATENCY
    } else {
        Congestion::Cubic
    }
}

/// When the player starts.
pub(crate) const JOIN: Duration = Duration::from_millis(400);
/// When the stream begins.
pub(crate) const BEGIN: Duration = Duration::from_secs(1);
/// Groups of a trace with which runs begin, if it has so many.
const FIRST_GROUPS: u64 = 97;
