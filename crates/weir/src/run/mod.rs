//! A relay benchmark on real sockets: its relay, its load generator, and their observation.

mod agents;
mod controller;
mod drafts;
pub(crate) mod fleet_flags;
pub(crate) mod limit_searches;
pub(crate) mod options;
mod plan;
mod preset;
pub(crate) mod relay_file;
pub(crate) mod relay_rounds;
mod scrape;
pub(crate) mod search;
mod target;
mod token;
mod trust;
mod watch;

use std::time::{Duration, Instant};

use anyhow::Context as _;
use weir_bench::{
    clock::RunClock,
    measured::Measured,
    outcome::{self, Judged, Surroundings},
    profile::Mode,
    publisher::PublishFlow,
    scenario::Roles,
    subscriber::SubscribeFlow,
};
use weir_net::{Stop, clock};
use weir_quic::tls::Acknowledgements;
use weir_report::relay::{Calibration, Cores, Generator, Run, archive::Archive, live_view::Moment};

use crate::harness::{
    machine::{Machine, MachineTime},
    own_relay::{ChildRelay, OwnRelay},
};

pub(crate) use self::agents::remote;
pub(crate) use self::drafts::{DraftArguments, protocols};
pub(crate) use self::plan::{CoreChoice, Meetings, Plan, RelayChoice};
pub(crate) use self::target::{RelayUrl, UrlError, resolver, target as client_target};
pub(crate) use self::token::{ClientTokens, token, token_in};
pub(crate) use self::trust::{SentTrust, TrustArguments, TrustChoice, hash_of};
use self::{
    agents::{Agent, AgentLink, Agents, Assignment, Order, Share, track_plans},
    controller::BrokenOff,
    scrape::Scraper,
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
        fleet: None,
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

/// Returns the agents of a run, whose clients have begun to connect.
fn prepared(plan: &Plan, url: &RelayUrl, clock: RunClock, stop: &Stop) -> anyhow::Result<Agents> {
    let (links, shares) = if let Some(fleet) = &plan.fleet {
        (fleet.links(stop)?, fleet.shares())
    } else {
        let own: Box<dyn AgentLink> = Box::new(Agent::default());
        (vec![own], vec![Share::WHOLE])
    };
    let mut agents = Agents::new(links);
    for (number, share) in shares.into_iter().enumerate() {
        let assignment = Assignment {
            plan: plan.clone(),
            url: url.clone(),
            share,
            clock,
        };
        agents.order(number, Order::Prepare(Box::new(assignment)))?;
    }
    if let Some(fleet) = &plan.fleet {
        fleet.await_prepared(stop)?;
    }
    Ok(agents)
}

/// Returns the relay of a run, which is started if it is weir's own: its process, its URL, and its process ID if it is known.
fn relay_of(plan: &Plan) -> anyhow::Result<(Option<ChildRelay>, RelayUrl, Option<u32>)> {
    Ok(match &plan.relay {
        RelayChoice::Own(own) => {
            let child = ChildRelay::start(own)?;
            let (url, pid) = (RelayUrl::of_child(child.address), child.pid());
            (Some(child), url, Some(pid))
        }
        RelayChoice::At { url, pid, .. } => (None, url.clone(), *pid),
    })
}

fn run_once(
    plan: &Plan,
    machine: &Machine,
    stop: &Stop,
    mut say: impl FnMut(&Moment),
) -> anyhow::Result<Archive> {
    let started = clock::now();
    let wall = clock::since_epoch();
    let (own, url, pid) = relay_of(plan)?;
    let origin_ns = u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX);
    let clock = RunClock::new(started, origin_ns);
    let mut agents = prepared(plan, &url, clock, stop)?;
    let scraper = plan.metrics_url.as_deref();
    let scraper = scraper.map(|url| Scraper::start(url, started));
    let scraper = scraper.transpose().context("--relay-metrics")?;
    let mut watch = Watch::new(started, pid, own, &mut agents);
    let (broken_off, stolen_percent) = MachineTime::stolen_during(|| {
        controller::conduct(&mut agents, (plan, &url), stop, &mut watch, &mut say)
    });
    let conducted = clock::now();
    watch.close(&mut agents);
    let plans = track_plans(plan, clock);
    let measured = agents.end(Measured::empty(&plans, plan.subscribers_measured()))?;
    let (interrupted, hopeless) = match broken_off {
        None => {
            let cut_short = controller::cut_short(&measured, &url, &watch, conducted);
            (cut_short, Vec::new())
        }
        Some(BrokenOff::Because(reason) | BrokenOff::Lost(reason)) => (Some(reason), Vec::new()),
        Some(BrokenOff::Hopeless(clauses)) => (None, clauses),
    };
    controller::check(&measured, &url, interrupted.as_deref())?;
    let judged = judged(plan, watch.released(), started);
    let (mut relay, mut seen) = watch.finish(plan, &agents, measured.subscribers.relay.clone());
    seen.stolen_percent = stolen_percent;
    if let Some(fleet) = &plan.fleet {
        fleet.measure_after(stop);
        fleet.describe(&mut seen.agents);
    }
    note_losses(&mut seen, agents.losses());
    if let Some(scraper) = scraper {
        let (counters, metrics) = scraper.finish();
        relay.counters.extend(counters);
        relay.metrics = metrics;
    }
    let clock_error = clock_error(plan);
    let run = Run {
        start_time: humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + wall).to_string(),
        duration_ms: (clock::now() - started).as_secs_f64() * 1e3,
        partial: interrupted.is_some(),
        interrupted,
        clock_error_ms: clock_error.map(|error| error.as_secs_f64() * 1e3),
        ..describe(plan, machine, &url)
    }
    .ended_early(hopeless);
    let surroundings = Surroundings {
        run,
        relay,
        generator: seen,
        judged,
        clock_error,
    };
    Ok(outcome::archive(
        &plan.profile,
        &plans,
        &measured,
        &plan.level,
        surroundings,
    ))
}

/// Marks the generator as unhealthy if agents are lost, which the reasons name.
fn note_losses(generator: &mut Generator, losses: Vec<String>) {
    generator.healthy &= losses.is_empty();
    generator.reasons.extend(losses);
}

/// Returns the largest error of latency because of different clocks; `None` if it is unknown.
fn clock_error(plan: &Plan) -> Option<Duration> {
    match &plan.fleet {
        Some(fleet) => fleet.clock_error(),
        None => plan.has_common_clock.then_some(Duration::ZERO),
    }
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
        clock_error_ms: None,
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
    if plan.fleet.is_some() {
        return "clocks of several hosts, corrected by the offsets of the agents";
    }
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
    let numbers_of_load = |cores: &[usize]| match plan.fleet {
        // Each agent has cores of its own host.
        Some(_) => Vec::new(),
        None => numbers(cores),
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
        publishers: numbers_of_load(publishers),
        subscribers: numbers_of_load(subscribers),
    }
}
