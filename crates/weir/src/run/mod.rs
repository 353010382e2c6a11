//! One benchmark run on real sockets: who runs where, in which order, and what is watched meanwhile.

mod child;
mod hosting;
mod machine;
pub(crate) mod process;
mod target;
mod watch;

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use weir_bench::{
    archive::Archive,
    clock::RunClock,
    metrics::TrackPlan,
    outcome::{self, Surroundings},
    profile::{Profile, TrackProfile},
    publisher::{PublishFlow, PublisherConfig, PublisherRole},
    report::{Cores, Run},
    scenario::Scenario,
    service_level::ServiceLevel,
    subscriber::{SubscribeRequest, SubscriberConfig, SubscriberRole},
};
use weir_moqt::draft::Draft;
use weir_net::{Stop, clock};

use self::{
    child::ChildRelay,
    hosting::{Gate, Hosted, PublisherHost, SubscriberHost},
    watch::{Watch, Window},
};
pub(crate) use self::{
    machine::Machine,
    target::{RelayUrl, TrustChoice},
};

/// Everything that a run is made from, checked.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) profile_name: String,
    pub(crate) profile: Profile,
    pub(crate) relay: RelayChoice,
    pub(crate) subscribers: usize,
    pub(crate) ramp_per_second: u32,
    pub(crate) flow: PublishFlow,
    pub(crate) level: ServiceLevel,
    pub(crate) seed: u64,
    pub(crate) cores: CoreChoice,
    /// One socket for each subscriber instead of one for all.
    pub(crate) socket_per_subscriber: bool,
    pub(crate) no_wait: bool,
    pub(crate) trust: TrustChoice,
    pub(crate) command_line: String,
}

/// Which relay is measured.
#[derive(Clone, Debug)]
pub(crate) enum RelayChoice {
    /// Ours, started for the run.
    Own,
    /// One that runs already; its process may be watched if it is on this machine.
    At { url: RelayUrl, pid: Option<u32> },
}

/// Which thread runs on which core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CoreChoice {
    pub(crate) relay: Option<usize>,
    pub(crate) publishers: Option<usize>,
    pub(crate) subscribers: Option<usize>,
}

/// Runs a benchmark and returns all that was measured; a part of it if it was broken off.
pub(crate) fn run(
    plan: &Plan,
    machine: &Machine,
    stop: &Stop,
    mut say: impl FnMut(&str),
) -> anyhow::Result<Archive> {
    let started = clock::now();
    let wall = clock::since_epoch();
    let own = match plan.relay {
        RelayChoice::Own => Some(ChildRelay::start(plan.cores.relay)?),
        RelayChoice::At { .. } => None,
    };
    let (url, pid) = match (&plan.relay, &own) {
        (RelayChoice::At { url, pid }, _) => (url.clone(), *pid),
        (RelayChoice::Own, Some(child)) => (RelayUrl::of_child(child.address), Some(child.pid())),
        (RelayChoice::Own, None) => bail!("the relay did not start"),
    };
    let origin_ns = u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX);
    let generator = Generator::start(plan, &url, RunClock::new(started, origin_ns))?;
    let views = (generator.publishers.view(), generator.subscribers.view());
    let mut watch = Watch::new(started, pid, own, views.0, views.1);
    let interrupted = generator.conduct(plan, stop, &mut watch, &mut say);
    let roles = generator.end(interrupted.is_some())?;
    roles.check(&url, interrupted.as_deref())?;
    let subscribers = roles.subscribers.role();
    let implementation = subscribers
        .relay()
        .and_then(|(_, name)| name.map(str::to_owned));
    let (relay, seen) = watch.finish(plan, implementation);
    let run = Run {
        start_time: humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + wall).to_string(),
        duration_ms: (clock::now() - started).as_secs_f64() * 1e3,
        partial: interrupted.is_some(),
        interrupted,
        ..describe(plan, machine, &url)
    };
    let surroundings = Surroundings {
        run,
        relay,
        generator: seen,
    };
    let publishers = roles.publishers.role();
    Ok(outcome::archive(
        &plan.profile,
        &roles.plans,
        publishers,
        subscribers,
        &plan.level,
        surroundings,
    ))
}

/// What is known of a run before it begins.
fn describe(plan: &Plan, machine: &Machine, url: &RelayUrl) -> Run {
    Run {
        weir_version: env!("CARGO_PKG_VERSION").to_owned(),
        command_line: plan.command_line.clone(),
        profile: weir_bench::report::Profile {
            name: plan.profile_name.clone(),
            text: plan.profile.to_ini(),
        },
        seed: plan.seed,
        run_id: format!("{:016x}", plan.seed),
        start_time: String::new(),
        duration_ms: 0.0,
        relay_url: url.to_string(),
        draft: None,
        transport: url.scheme.transport().to_owned(),
        publish_flow: flow_name(plan.flow).to_owned(),
        latency_clock: "one clock: publishers and subscribers in one process".to_owned(),
        subscribers_requested: plan.subscribers as u64,
        publishers_requested: 1,
        cores: cores(&plan.cores, machine, matches!(plan.relay, RelayChoice::Own)),
        kernel: machine.kernel.clone(),
        cpu_model: machine.cpu_model.clone(),
        interrupted: None,
        partial: false,
    }
}

/// The load generator at work: publishers and subscribers on threads of their own.
struct Generator {
    plans: Arc<[TrackPlan]>,
    publishers: Hosted<PublisherHost>,
    subscribers: Hosted<SubscriberHost>,
    gate: Gate,
    /// Asks the two threads to stop.
    stop: Stop,
}

/// The roles of a run that is over.
struct Roles {
    plans: Arc<[TrackPlan]>,
    publishers: PublisherHost,
    subscribers: SubscriberHost,
}

impl Generator {
    fn start(plan: &Plan, url: &RelayUrl, run_clock: RunClock) -> anyhow::Result<Self> {
        let target = target::target(url, &plan.trust, socket_count(plan))?;
        let plans: Arc<[TrackPlan]> = (0_u64..)
            .zip(&plan.profile.tracks)
            .map(|(number, track)| TrackPlan::new(track, number, plan.seed, run_clock))
            .collect();
        let scenario = Scenario::fan_out(&plan.profile, plan.subscribers, plan.seed)
            .with_context(|| plan.profile_name.clone())?;
        let stop = Stop::new().context("cannot make an event descriptor")?;
        let gate = Gate::new(plan.no_wait);
        let publishers = PublisherConfig {
            target: target::Target {
                sockets: 1,
                ..target.clone()
            },
            plans: Arc::clone(&plans),
            publishers: scenario.publishers,
            flow: plan.flow,
            session_limits: weir_moqt::limits::Limits::default(),
        };
        let subscribers = SubscriberConfig {
            target,
            plans: Arc::clone(&plans),
            subscribers: scenario.subscribers,
            request: SubscribeRequest::default(),
            ramp_per_second: plan.ramp_per_second,
            start_timeout: START_TIMEOUT,
            verify_content: true,
            session_limits: weir_moqt::limits::Limits::default(),
        };
        let role = PublisherRole::new(publishers, run_clock.origin());
        let core = plan.cores.publishers;
        let publishers = hosting::start_publishers(role, &gate, core, &stop, url)?;
        let role = SubscriberRole::new(subscribers);
        let core = plan.cores.subscribers;
        let sockets = socket_count(plan);
        let subscribers = hosting::start_subscribers(role, &gate, core, &stop, url, sockets)?;
        Ok(Self {
            plans,
            publishers,
            subscribers,
            gate,
            stop,
        })
    }

    /// Leads the run to its end; returns why it was broken off, if it was.
    fn conduct(
        &self,
        plan: &Plan,
        stop: &Stop,
        watch: &mut Watch,
        say: &mut impl FnMut(&str),
    ) -> Option<String> {
        let started = clock::now();
        let (publishers, subscribers) = (self.publishers.view(), self.subscribers.view());
        let ramp = plan.subscribers as u64 / u64::from(plan.ramp_per_second.max(1));
        let patience = START_TIMEOUT + Duration::from_secs(ramp) * 2;
        let lengths = plan
            .profile
            .tracks
            .iter()
            .map(|track| track.total_transmit_time() + track.ttl.max(Duration::from_secs(2)));
        let length = lengths.max().unwrap_or_default() + END_TIMEOUT;
        let mut released = None;
        loop {
            if stop.wait(STEP) {
                return Some("interrupted".to_owned());
            }
            let now = clock::now();
            if let Some(line) = watch.look(now) {
                say(&line);
            }
            if let Some(death) = watch.relay_death() {
                return Some(death);
            }
            if self.publishers.is_done()
                && (self.subscribers.is_done() || publishers.progress().failed > 0)
            {
                return None;
            }
            let progress = publishers.progress();
            if now - started > START_TIMEOUT && progress.ready + progress.failed == 0 {
                return Some(format!("no answer within {} s", START_TIMEOUT.as_secs()));
            }
            let is_late = now - started > patience;
            if publishers.has_announced() || is_late {
                self.gate.admit_subscribers();
            }
            let is_ready = subscribers.is_subscribed() && publishers.is_served();
            if released.is_none() && (is_ready || is_late) {
                watch.on_connected();
                self.gate.release();
                released = Some(now);
                watch.set_window(window(&plan.profile, now));
            }
            if released.is_some_and(|released| now - released > length) {
                return Some("the run did not end in time".to_owned());
            }
        }
    }

    /// Waits for the threads, after asking them to stop if the run was broken off.
    fn end(self, is_broken_off: bool) -> anyhow::Result<Roles> {
        if is_broken_off || !self.publishers.is_done() || !self.subscribers.is_done() {
            self.stop.request();
        }
        Ok(Roles {
            plans: self.plans,
            publishers: self.publishers.join()?,
            subscribers: self.subscribers.join()?,
        })
    }
}

impl Roles {
    /// Whether there is anything to report; if not, why.
    fn check(&self, url: &RelayUrl, interrupted: Option<&str>) -> anyhow::Result<()> {
        if let Some(problem) = self.publishers.refused_release() {
            bail!("{problem}");
        }
        let publishers = self.publishers.role();
        let has_met = publishers.progress().ready > 0 || self.subscribers.role().relay().is_some();
        if !has_met {
            let failure = publishers
                .failures()
                .next()
                .map(|(_, reason)| reason.to_owned());
            let failure = failure.or_else(|| interrupted.map(str::to_owned));
            bail!(
                "{url}: {}",
                failure.unwrap_or_else(|| "no session could be set up".to_owned())
            );
        }
        Ok(())
    }
}

/// The steady part of the data phase, in which all tracks send: a second or a tenth of it after the last has
/// begun, until the first ends.
fn window(profile: &Profile, released: std::time::Instant) -> Window {
    let begin = profile
        .tracks
        .iter()
        .map(|track| track.start_delay)
        .max()
        .unwrap_or_default();
    let ends = profile.tracks.iter().map(TrackProfile::total_transmit_time);
    let end = ends.min().unwrap_or_default();
    let settle = (end.saturating_sub(begin) / 10).min(Duration::from_secs(1));
    Window {
        from: released + begin + settle,
        to: released + end.max(begin + settle),
    }
}

fn socket_count(plan: &Plan) -> u32 {
    if plan.socket_per_subscriber {
        u32::try_from(plan.subscribers).unwrap_or(u32::MAX).max(1)
    } else {
        1
    }
}

fn flow_name(flow: PublishFlow) -> &'static str {
    match flow {
        PublishFlow::Publish => "PUBLISH",
        PublishFlow::PublishNamespace => "PUBLISH_NAMESPACE",
    }
}

fn cores(choice: &CoreChoice, machine: &Machine, is_own: bool) -> Cores {
    let numbers = |core: Option<usize>| {
        let cores = core.map_or_else(|| machine.cores.clone(), |core| vec![core]);
        cores
            .into_iter()
            .filter_map(|core| u32::try_from(core).ok())
            .collect()
    };
    Cores {
        relay: if is_own {
            numbers(choice.relay)
        } else {
            Vec::new()
        },
        publishers: numbers(choice.publishers),
        subscribers: numbers(choice.subscribers),
    }
}

/// The drafts that clients offer, as ALPN names.
pub(crate) fn protocols() -> Vec<&'static str> {
    Draft::ALL.iter().map(|draft| draft.alpn()).collect()
}

/// How often the run is looked at.
const STEP: Duration = Duration::from_millis(20);
/// How long a relay may take to let clients in, after the last has started.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How much longer than its profile says a run may take.
const END_TIMEOUT: Duration = Duration::from_secs(20);
