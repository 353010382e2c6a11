//! A relay benchmark on real sockets: its relay, its load generator, and their observation.

mod generator;
pub(crate) mod limit_searches;
pub(crate) mod options;
mod plan;
mod preset;
pub(crate) mod relay_file;
pub(crate) mod relay_rounds;
mod scrape;
pub(crate) mod search;
mod target;
mod threads;
mod token;
mod trust;
mod watch;

use std::time::Instant;

use anyhow::Context as _;
use weir_bench::{
    clock::RunClock,
    outcome::{self, Judged, Surroundings},
    profile::Mode,
    publisher::PublishFlow,
    scenario::Roles,
    subscriber::SubscribeFlow,
};
use weir_moqt::draft::Draft;
use weir_net::{Stop, clock};
use weir_quic::tls::Acknowledgements;
use weir_report::relay::{Calibration, Cores, Run, archive::Archive, live_view::Moment};

use crate::harness::{
    machine::{Machine, MachineTime},
    own_relay::{ChildRelay, OwnRelay},
};

pub(crate) use self::plan::{CoreChoice, Meetings, Plan, RelayChoice};
pub(crate) use self::target::{RelayUrl, target as client_target};
pub(crate) use self::token::{ClientTokens, token};
pub(crate) use self::trust::{TrustArguments, TrustChoice};
use self::{
    generator::{BrokenOff, Generator},
    scrape::Scraper,
    threads::Hosted,
    watch::Watch,
};

/// The results of a run.
pub(crate) struct Ran {
    /// The measurement; incomplete if the run was ended early.
    pub(crate) archive: Archive,
    /// Why the calibration of --calibrate failed, if it did.
    pub(crate) calibration_problem: Option<String>,
}

/// Runs a benchmark, and its calibration if the plan asks for one. `say` shows the progress, once a second.
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
    // The measurement stays, also if the calibration fails.
    match made.filter(|_| !stop.is_requested()) {
        Some(Ok(calibration)) => ran.archive.report = ran.archive.report.calibrated(calibration),
        Some(Err(error)) => ran.calibration_problem = Some(format!("{error:#}")),
        None => ran.calibration_problem = Some("it was interrupted".to_owned()),
    }
    Ok(ran)
}

/// Repeats the load of `plan` on a null relay, and returns the results of the generator. The null relay runs on the relay's
/// core, or on one that the generator does not use. This process makes both sides of the run.
pub(crate) fn calibrate(
    plan: &Plan,
    machine: &Machine,
    stop: &Stop,
    mut say: impl FnMut(&Moment),
) -> anyhow::Result<Calibration> {
    let core = plan.cores.for_null_relay(machine);
    let null = Plan {
        relay: RelayChoice::Own(OwnRelay::Null { core }),
        // A null relay supports only SUBSCRIBE to an announced namespace.
        flow: PublishFlow::PublishNamespace,
        subscribe_flow: SubscribeFlow::Subscribe,
        tokens: ClientTokens::default(),
        trust: TrustChoice::Anyone,
        metrics_url: None,
        role: Some(Mode::Both),
        await_subscribers: None,
        has_common_clock: true,
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
    let (broken_off, stolen_percent) =
        MachineTime::stolen_during(|| generator.conduct((plan, &url), stop, &mut watch, &mut say));
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
    let (mut relay, mut seen) = watch.finish(plan, implementation);
    seen.stolen_percent = stolen_percent;
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
        has_common_clock: plan.has_common_clock,
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

/// Returns the parameters of a run for its report.
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
        publishers_requested: if plan.part() == Mode::Subscriber {
            0
        } else {
            plan.publishers_total() as u64
        },
        audience: audience(plan),
        cores: cores(plan, machine),
        kernel: machine.kernel.clone(),
        cpu_model: machine.cpu_model.clone(),
        interrupted: None,
        ended_early_by: Vec::new(),
        partial: false,
    }
}

/// Returns the part of the run that is judged: all but the start that the plan leaves out.
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

/// Returns the subscribers of this process as the relay meets them; empty if it has none.
fn audience(plan: &Plan) -> weir_report::relay::Audience {
    if plan.part() == Mode::Publisher {
        return weir_report::relay::Audience::default();
    }
    let audience = &plan.profile.audience;
    let (sockets, threads) = plan.sockets_and_threads();
    let kind = match audience.acknowledgements {
        Acknowledgements::Delayed => "delayed",
        Acknowledgements::Immediate => "immediate",
    };
    weir_report::relay::Audience {
        sockets: sockets as u64,
        threads: threads as u64,
        acknowledgements: kind.to_owned(),
        receive_pause_ms: audience.receive_pause.as_secs_f64() * 1e3,
        reply_spread_ms: audience.reply_spread.as_secs_f64() * 1e3,
        acknowledged: None,
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

/// Returns the clock of one-way latency, in words (decision 34).
fn latency_clock(plan: &Plan) -> &'static str {
    let roles = Roles { given: plan.role };
    if roles.share_a_clock(&plan.profile) {
        "one clock: publishers and subscribers in one process"
    } else if plan.has_common_clock {
        "wall clocks of two processes, synchronised (--synchronized-clocks)"
    } else {
        "wall clocks of two processes that may differ: latency decides nothing (--synchronized-clocks)"
    }
}

/// Returns the cores of relay, publishers and subscribers.
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

/// Returns the drafts that weir supports, as ALPN names, the preferred one first.
pub(crate) fn protocols() -> Vec<&'static str> {
    Draft::ALL.iter().map(|draft| draft.alpn()).collect()
}
