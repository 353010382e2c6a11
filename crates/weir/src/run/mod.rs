//! One benchmark run on real sockets: who runs where, in which order, and what is watched meanwhile.

mod child;
pub(crate) mod children;
mod generator;
mod health;
mod hosting;
pub(crate) mod machine;
pub(crate) mod process;
pub(crate) mod relays;
mod scrape;
pub(crate) mod search;
mod seconds;
mod target;
mod watch;

use std::time::{Duration, Instant};

use anyhow::Context as _;
use weir_bench::{
    clock::RunClock,
    outcome::{self, Judged, Surroundings},
    profile::{Mode, Pattern, Profile},
    publisher::PublishFlow,
    qperf::Wire,
    scenario::Roles,
    subscriber::SubscribeFlow,
};
use weir_moqt::{draft::Draft, token::Token};
use weir_net::{Stop, clock};
use weir_report::{
    relay::{Calibration, Cores, Run, archive::Archive, live_view::Moment},
    service_level::ServiceLevel,
};

pub(crate) use self::{
    child::{ChildRelay, OwnRelay},
    machine::{Machine, MachineTime},
    target::{RelayUrl, TrustChoice, is_isolated, look_up, target as client_target},
};
use self::{
    generator::{BrokenOff, Generator},
    hosting::Hosted,
    scrape::Scraper,
    watch::Watch,
};

/// Everything that a run is made from, checked.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) profile_name: String,
    pub(crate) profile: Profile,
    pub(crate) relay: RelayChoice,
    /// Subscribers of a fan-out.
    pub(crate) subscribers: usize,
    /// Meetings instead of a fan-out.
    pub(crate) meetings: Option<Meetings>,
    /// What is done here of a fan-out, whatever the profile says; the rest is another process's to do.
    pub(crate) role: Option<Mode>,
    /// How the benchmark's messages look.
    pub(crate) wire: Wire,
    /// Clients started per second; all at once if zero.
    pub(crate) ramp_per_second: u32,
    pub(crate) flow: PublishFlow,
    pub(crate) subscribe_flow: SubscribeFlow,
    /// Drafts that clients offer, by their ALPN, the preferred one first.
    pub(crate) drafts: Vec<&'static str>,
    /// What every client shows in its SETUP and with its requests.
    pub(crate) tokens: Vec<Token>,
    pub(crate) level: ServiceLevel,
    pub(crate) seed: u64,
    pub(crate) cores: CoreChoice,
    /// One socket for each subscriber instead of one for all.
    pub(crate) socket_per_subscriber: bool,
    pub(crate) no_wait: bool,
    pub(crate) trust: TrustChoice,
    /// Where the relay's own metrics are.
    pub(crate) metrics_url: Option<String>,
    /// How much of the beginning of the data phase is not judged by loss and latency.
    pub(crate) unjudged: Duration,
    /// Whether the run ends as soon as its service level cannot hold any more.
    pub(crate) ends_early: bool,
    /// Whether the same load is put on a null relay afterwards.
    pub(crate) calibrate: bool,
    /// Share of their time that the generator's threads waste on purpose, in per cent.
    pub(crate) waste_percent: u32,
    pub(crate) command_line: String,
}

/// Groups of clients that each publish, and subscribe to all others of their group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meetings {
    pub(crate) meetings: usize,
    pub(crate) clients_per_meeting: usize,
}

impl Plan {
    /// What is done here; the rest is another process's. Clients of meetings do both.
    pub(crate) fn part(&self) -> Mode {
        match self.meetings {
            Some(_) => Mode::Both,
            None => Roles { given: self.role }.part(&self.profile),
        }
    }

    /// The first thing of which only one side is done here, as it stands in the command line or the profile.
    pub(crate) fn one_sided(&self) -> Option<OneSided> {
        if self.meetings.is_some() {
            return None;
        }
        let roles = Roles { given: self.role };
        self.profile.tracks.iter().find_map(|track| {
            let publishes = roles.publishes(track.mode);
            let is_both = publishes && roles.subscribes(track.mode);
            (!is_both).then(|| OneSided {
                publishes,
                named: match (self.role, publishes) {
                    (Some(_), true) => "--role publish".to_owned(),
                    (Some(_), false) => "--role subscribe".to_owned(),
                    (None, true) => format!("[{}]: mode = 1", track.section),
                    (None, false) => format!("[{}]: mode = 2", track.section),
                },
            })
        })
    }

    /// Why this load says nothing of the generator if a null relay is put under it; none if it does.
    pub(crate) fn calibration_problem(&self) -> Option<String> {
        let mut tracks = self.profile.tracks.iter();
        if let Some(track) = tracks.find(|track| track.pattern == Pattern::Fetch) {
            return Some(format!(
                "[{}]: pattern = fetch: a null relay keeps nothing that could be fetched",
                track.section
            ));
        }
        let one_sided = self.one_sided().filter(|one| one.publishes)?;
        Some(format!(
            "{}: a null relay would have nobody to forward to; calibrate where the subscribers are",
            one_sided.named
        ))
    }

    /// Subscribers in all, wherever they are.
    pub(crate) fn subscribers_total(&self) -> usize {
        self.meetings.map_or(self.subscribers, |meetings| {
            meetings
                .meetings
                .saturating_mul(meetings.clients_per_meeting)
        })
    }
}

/// What leaves the other side of a track to another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OneSided {
    /// Whether what is done here is to publish.
    pub(crate) publishes: bool,
    /// The flag, or section and key, that says so.
    pub(crate) named: String,
}

/// Which relay is measured.
#[derive(Clone, Debug)]
pub(crate) enum RelayChoice {
    /// Ours, started for the run.
    Own(OwnRelay),
    /// One that runs already.
    At {
        /// Where it is reached.
        url: RelayUrl,
        /// Its process, if it is on this machine and is to be watched.
        pid: Option<u32>,
        /// Whether that was found by the name of its program.
        by_name: bool,
    },
}

/// Which thread runs on which core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CoreChoice {
    /// Those of the relay; empty if they are not known.
    pub(crate) relay: Vec<usize>,
    pub(crate) publishers: Option<usize>,
    pub(crate) subscribers: Option<usize>,
}

impl CoreChoice {
    /// The core that a null relay stands in on for the relay.
    fn for_null_relay(&self, machine: &Machine) -> Option<usize> {
        let is_free =
            |core: &&usize| Some(**core) != self.publishers && Some(**core) != self.subscribers;
        let mut cores = machine.cores.iter();
        let free = cores.find(is_free).or_else(|| machine.cores.first());
        self.relay.first().or(free).copied()
    }
}

/// What a run has left.
pub(crate) struct Ran {
    /// All that was measured; a part of it if the run was broken off.
    pub(crate) archive: Archive,
    /// Why it is not calibrated, although that was asked for.
    pub(crate) calibration_problem: Option<String>,
}

/// Runs a benchmark, and calibrates it if it is to be.
pub(crate) fn run(
    plan: &Plan,
    machine: &Machine,
    stop: &Stop,
    mut say: impl FnMut(&Moment),
) -> anyhow::Result<Ran> {
    let mut ran = Ran {
        archive: run_once(plan, machine, stop, &mut say)?,
        calibration_problem: None,
    };
    if !plan.calibrate {
        return Ok(ran);
    }
    let made = if stop.is_requested() {
        None
    } else {
        Some(calibrate(plan, machine, stop, &mut say))
    };
    // What was measured before is there whatever comes of it.
    match made.filter(|_| !stop.is_requested()) {
        Some(Ok(calibration)) => ran.archive.report = ran.archive.report.calibrated(calibration),
        Some(Err(error)) => ran.calibration_problem = Some(format!("{error:#}")),
        None => ran.calibration_problem = Some("it was interrupted".to_owned()),
    }
    Ok(ran)
}

/// Puts the load of `plan` on a null relay on the relay's core, or on one that the generator does not have if that is
/// not known, and says how the generator did. What another process publishes to the relay is published here.
pub(crate) fn calibrate(
    plan: &Plan,
    machine: &Machine,
    stop: &Stop,
    mut say: impl FnMut(&Moment),
) -> anyhow::Result<Calibration> {
    let core = plan.cores.for_null_relay(machine);
    let null = Plan {
        relay: RelayChoice::Own(OwnRelay::Null { core }),
        // It only forwards what it is asked for by name.
        flow: PublishFlow::PublishNamespace,
        subscribe_flow: SubscribeFlow::Subscribe,
        tokens: Vec::new(),
        trust: TrustChoice::Anyone,
        metrics_url: None,
        role: Some(Mode::Both),
        ends_early: false,
        calibrate: false,
        ..plan.clone()
    };
    let archive = run_once(&null, machine, stop, |moment| {
        say(&Moment {
            label: "calibration".to_owned(),
            ..moment.clone()
        });
    });
    let archive = archive.context("the calibration against a null relay failed")?;
    Ok(Calibration::of(&archive.report))
}

fn run_once(
    plan: &Plan,
    machine: &Machine,
    stop: &Stop,
    mut say: impl FnMut(&Moment),
) -> anyhow::Result<Archive> {
    let started = clock::now();
    let wall = clock::since_epoch();
    let (own, url, pid) = match &plan.relay {
        RelayChoice::Own(own) => {
            let child = ChildRelay::start(own)?;
            let (url, pid) = (RelayUrl::of_child(child.address), child.pid());
            (Some(child), url, Some(pid))
        }
        RelayChoice::At { url, pid, .. } => (None, url.clone(), *pid),
    };
    let origin_ns = u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX);
    let generator = Generator::start(plan, &url, RunClock::new(started, origin_ns))?;
    let views = generator.threads.iter().map(Hosted::view).collect();
    let scraper = plan.metrics_url.as_deref();
    let scraper = scraper.map(|url| Scraper::start(url, started));
    let scraper = scraper.transpose().context("--relay-metrics")?;
    let mut watch = Watch::new(started, pid, own, views);
    let broken_off = generator.conduct((plan, &url), stop, &mut watch, &mut say);
    let conducted = clock::now();
    let finished = generator.end(broken_off.is_some())?;
    let (interrupted, hopeless) = match broken_off {
        None => (finished.cut_short(&url, &mut watch, conducted), Vec::new()),
        Some(BrokenOff::Because(reason)) => (Some(reason), Vec::new()),
        Some(BrokenOff::Hopeless) => (None, finished.hopeless()),
    };
    finished.check(&url, interrupted.as_deref())?;
    let subscribers = finished.subscribers();
    let implementation = subscribers
        .relay()
        .and_then(|(_, name)| name.map(str::to_owned));
    let judged = judged(plan, watch.released(), started);
    let (mut relay, seen) = watch.finish(plan, implementation);
    if let Some(scraper) = scraper {
        let (counters, metrics) = scraper.finish();
        relay.counters.extend(counters);
        relay.metrics = metrics;
    }
    let run = Run {
        start_time: humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + wall).to_string(),
        duration_ms: (clock::now() - started).as_secs_f64() * 1e3,
        partial: interrupted.is_some(),
        interrupted,
        ..describe(plan, machine, &url)
    }
    .ended_early(hopeless);
    let surroundings = Surroundings {
        run,
        relay,
        generator: seen,
        judged,
    };
    Ok(outcome::archive(
        &plan.profile,
        &finished.plans,
        finished.publishers(),
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
        profile: weir_report::relay::Profile {
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
        publish_flow: flow_name(plan).to_owned(),
        latency_clock: latency_clock(plan).to_owned(),
        subscribers_requested: if plan.part() == Mode::Publisher {
            0
        } else {
            plan.subscribers_total() as u64
        },
        publishers_requested: plan.meetings.map_or(1, |_| plan.subscribers_total() as u64),
        cores: cores(plan, machine),
        kernel: machine.kernel.clone(),
        cpu_model: machine.cpu_model.clone(),
        interrupted: None,
        ended_early_by: Vec::new(),
        partial: false,
    }
}

/// What of the run is judged: all but the beginning, if the schedules ever began.
fn judged(plan: &Plan, released: Option<Instant>, started: Instant) -> Judged {
    let Some(released) = released.filter(|_| !plan.unjudged.is_zero()) else {
        return Judged::default();
    };
    let starts = plan.profile.tracks.iter().map(|track| track.start_delay);
    Judged {
        planned_from: plan.unjudged,
        arrived_from: (released - started) + starts.max().unwrap_or_default() + plan.unjudged,
    }
}

fn flow_name(plan: &Plan) -> &'static str {
    match (plan.flow, plan.subscribe_flow) {
        (PublishFlow::Publish, SubscribeFlow::Subscribe) => "PUBLISH",
        (PublishFlow::Publish, SubscribeFlow::SubscribeNamespace) => "PUBLISH, SUBSCRIBE_NAMESPACE",
        (PublishFlow::Publish, SubscribeFlow::SubscribeTracks) => "PUBLISH, SUBSCRIBE_TRACKS",
        (PublishFlow::PublishNamespace, SubscribeFlow::Subscribe) => "PUBLISH_NAMESPACE",
        (PublishFlow::PublishNamespace, SubscribeFlow::SubscribeNamespace) => {
            "PUBLISH_NAMESPACE, SUBSCRIBE_NAMESPACE"
        }
        (PublishFlow::PublishNamespace, SubscribeFlow::SubscribeTracks) => {
            "PUBLISH_NAMESPACE, SUBSCRIBE_TRACKS"
        }
    }
}

/// Where one-way latency takes its time from (decision 34).
fn latency_clock(plan: &Plan) -> &'static str {
    let roles = Roles { given: plan.role };
    let modes = || plan.profile.tracks.iter().map(|track| track.mode);
    let is_whole = modes().all(|mode| roles.publishes(mode) == roles.subscribes(mode));
    if is_whole {
        "one clock: publishers and subscribers in one process"
    } else {
        "wall clock: publishers in another process, exact only if that is on the same host"
    }
}

/// Who has which cores.
pub(crate) fn cores(plan: &Plan, machine: &Machine) -> Cores {
    let numbers = |cores: &[usize]| {
        let cores = if cores.is_empty() {
            &machine.cores
        } else {
            cores
        };
        cores
            .iter()
            .filter_map(|core| u32::try_from(*core).ok())
            .collect()
    };
    let CoreChoice {
        publishers,
        subscribers,
        ..
    } = &plan.cores;
    Cores {
        relay: match &plan.relay {
            RelayChoice::Own(OwnRelay::Weir { cores, .. }) => numbers(cores),
            RelayChoice::Own(OwnRelay::Null { core }) => numbers(core.as_slice()),
            RelayChoice::At { .. } if plan.cores.relay.is_empty() => Vec::new(),
            RelayChoice::At { .. } => numbers(&plan.cores.relay),
        },
        publishers: numbers(publishers.as_slice()),
        subscribers: numbers(subscribers.as_slice()),
    }
}

/// The drafts that weir speaks, as ALPN names, the preferred one first.
pub(crate) fn protocols() -> Vec<&'static str> {
    Draft::ALL.iter().map(|draft| draft.alpn()).collect()
}
