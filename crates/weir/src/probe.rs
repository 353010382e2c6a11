//! Hosts the probe and its bystander on real sockets, and makes a report of what they saw.

use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context as _, anyhow, bail};
use weir_net::{SocketConfig, Stop, clock};
use weir_probe::{Bystander, Case, Config, Edition, Kind, Level, Outcome, Probe, Scout, Verdict};
use weir_quic::Limits;
use weir_report::probe::{self as report, Memory, Report};

use crate::{
    event_loop::{self, EventLoop},
    harness::process,
    output,
    run::{RelayUrl, TrustChoice, client_target},
};

/// What is to be probed, and how.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) url: RelayUrl,
    pub(crate) trust: TrustChoice,
    /// The name of the relay in the report; `None` for the one that it sends.
    pub(crate) name: Option<String>,
    pub(crate) seed: u64,
    pub(crate) patience: Duration,
    /// The pause before the first case and after the last.
    pub(crate) settle: Duration,
    /// The relay's process, whose memory is watched.
    pub(crate) relay_pid: Option<u32>,
}

/// Asks the relay which of the editions that have cases it prefers.
pub(crate) fn preferred_edition(plan: &Plan, stop: &Stop) -> anyhow::Result<Edition> {
    let target = client_target(&plan.url, &plan.trust, &Edition::alpns())?;
    let begin = clock::now();
    let mut scout = Scout::new(target, begin, begin + plan.patience);
    event_loop(&plan.url, stop.clone())?.run(&mut scout)?;
    match scout.found() {
        Some(Ok(edition)) => Ok(*edition),
        Some(Err(why)) => bail!("{}: cannot connect: {why}", plan.url),
        None => bail!("{}: cannot connect: no answer", plan.url),
    }
}

/// Runs the cases of an edition against a relay. `on_case` is called with the number and the result of each.
pub(crate) fn run(
    plan: &Plan,
    edition: Edition,
    cases: Vec<Case>,
    stop: &Stop,
    mut on_case: impl FnMut(usize, &report::Case) + Send + 'static,
) -> anyhow::Result<Report> {
    let start_time = clock::since_epoch();
    let target = client_target(&plan.url, &plan.trust, &[edition.alpn()])?;
    let run_name = format!("{:x}", start_time.as_micros());
    let stop_bystander = Stop::new().context("cannot make an event descriptor")?;
    let start = clock::now();
    let namespace = format!("weir-bystander-{run_name}");
    let bystander = Bystander::new(target.clone(), edition, &namespace, start);
    let thread = event_loop(&plan.url, stop_bystander.clone())?;
    let thread = thread.start("weir-bystander", bystander)?;

    stop.wait(plan.settle);
    let before = memory(plan)?;
    let begin = clock::now();
    let config = Config {
        target,
        edition,
        patience: plan.patience,
        quiet: QUIET,
        begin,
        namespace: format!("weir-probe-{run_name}"),
        seed: plan.seed,
    };
    let mut number = 0;
    let mut probe = Probe::new(config, cases, move |case, outcome| {
        number += 1;
        on_case(number, &case_report(case, outcome));
    });
    let ran = event_loop(&plan.url, stop.clone())?.run(&mut probe);
    let end = clock::now();
    stop.wait(plan.settle);
    let after = memory(plan);
    stop_bystander.request();
    let bystander = thread
        .join()
        .map_err(|_| anyhow!("the bystander panicked"))?;
    ran?;
    let (bystander, _) = bystander?;
    if stop.is_requested() {
        bail!(
            "stopped by a signal, after {} cases",
            probe.outcomes().len()
        );
    }
    if !probe.has_connected() {
        let why = bystander.failure().unwrap_or("no answer");
        bail!("{}: cannot connect: {why}", plan.url);
    }
    let memory = before.zip(after?).map(|(before, after)| Memory {
        before_bytes: before.resident_bytes,
        peak_bytes: after.resident_peak_bytes,
        after_bytes: after.resident_bytes,
    });
    let times = (start, begin, end);
    Ok(Report {
        memory,
        ..report_of(plan, &probe, &bystander, times, start_time)
    })
}

/// Returns the report of a run, without the relay's memory. `times` are the start of the bystander, of the first case, and the end
/// of the last.
fn report_of(
    plan: &Plan,
    probe: &Probe,
    bystander: &Bystander,
    times: (Instant, Instant, Instant),
    start_time: Duration,
) -> Report {
    Report {
        schema: report::SCHEMA,
        url: plan.url.to_string(),
        relay: relay_name(plan, probe),
        transport: plan.url.scheme.transport().to_owned(),
        draft: probe.edition().alpn().to_owned(),
        start_time: humantime::format_rfc3339_seconds(UNIX_EPOCH + start_time).to_string(),
        weir_version: env!("CARGO_PKG_VERSION").to_owned(),
        command_line: output::command_line(),
        seed: plan.seed,
        cases: probe
            .cases()
            .iter()
            .zip(probe.outcomes())
            .map(|(case, outcome)| case_report(case, outcome))
            .collect(),
        bystander: parts(bystander, probe, times),
        bystander_failure: bystander.failure().map(str::to_owned),
        memory: None,
    }
}

fn relay_name(plan: &Plan, probe: &Probe) -> String {
    let sent = || probe.implementation().unwrap_or("unnamed relay").to_owned();
    plan.name.clone().unwrap_or_else(sent)
}

fn event_loop(url: &RelayUrl, stop: Stop) -> anyhow::Result<EventLoop> {
    let socket = event_loop::bind(
        event_loop::local_address(url.address),
        SocketConfig::default(),
    )?;
    let limits = Limits {
        keep_alive: Some(KEEP_ALIVE),
        ..Limits::default()
    };
    EventLoop::new(vec![socket], event_loop::endpoint(limits)?, stop)
}

fn memory(plan: &Plan) -> anyhow::Result<Option<weir_report::process::Usage>> {
    let usage = |pid| {
        process::usage(pid).with_context(|| format!("--relay-pid: process {pid} cannot be read"))
    };
    plan.relay_pid.map(usage).transpose()
}

/// Returns a case with its result, as the report has it.
pub(crate) fn case_report(case: &Case, outcome: &Outcome) -> report::Case {
    let (result, details) = match &outcome.verdict {
        Verdict::Passed => (report::Outcome::Passed, String::new()),
        Verdict::Failed {
            is_unreached,
            expected,
            found,
        } => (
            if *is_unreached {
                report::Outcome::Unreached
            } else {
                report::Outcome::Failed
            },
            format!("expected {expected}; {found}"),
        ),
        Verdict::Skipped(reason) => (report::Outcome::Skipped, reason.clone()),
    };
    report::Case {
        name: case.name.clone(),
        kind: kind(case.kind),
        section: case.section.to_owned(),
        requirement: case.requirement.clone(),
        level: level(case.level),
        result,
        details,
        duration_ms: outcome.took.as_secs_f64() * 1000.0,
        messages: outcome.messages,
    }
}

/// Returns the kind of a case, as the report has it.
fn kind(kind: Kind) -> report::Kind {
    match kind {
        Kind::Conformance => report::Kind::Conformance,
        Kind::Robustness => report::Kind::Robustness,
        Kind::Volume => report::Kind::Volume,
    }
}

/// Returns the level of a case, as the report has it.
pub(crate) fn level(level: Level) -> report::Level {
    match level {
        Level::Must => report::Level::Must,
        Level::Should => report::Level::Should,
        Level::Implied => report::Level::Implied,
    }
}

/// Returns what the bystander lost before, during and after the cases of each kind. `times` are the start of the bystander, of
/// the first case, and the end of the last.
fn parts(
    bystander: &Bystander,
    probe: &Probe,
    times: (Instant, Instant, Instant),
) -> Vec<report::Bystander> {
    let (start, begin, end) = times;
    let mut parts = vec![part(bystander, "before the cases", start, begin)];
    let ran = || probe.cases().iter().zip(probe.outcomes());
    for kind in [Kind::Conformance, Kind::Robustness, Kind::Volume] {
        let mut of_kind = ran().filter(|(case, _)| case.kind == kind);
        let Some((_, first)) = of_kind.next() else {
            continue;
        };
        let last = of_kind.next_back().map_or(first, |(_, last)| last);
        let (from, to) = (begin + first.began, begin + last.began + last.took);
        let name = self::kind(kind).name().to_lowercase();
        parts.push(part(bystander, &name, from, to));
    }
    parts.push(part(bystander, "after the cases", end, clock::now()));
    parts
}

fn part(bystander: &Bystander, name: &str, from: Instant, to: Instant) -> report::Bystander {
    let figures = bystander.figures(from, to);
    let milliseconds = |time: Option<Duration>| time.unwrap_or_default().as_secs_f64() * 1000.0;
    report::Bystander {
        during: name.to_owned(),
        planned: figures.planned,
        lost: figures.lost,
        p50_ms: milliseconds(figures.late.quantile(0.5)),
        p99_ms: milliseconds(figures.late.quantile(0.99)),
        max_ms: milliseconds(figures.late.max()),
    }
}

/// How long a case waits for what must not happen.
const QUIET: Duration = Duration::from_millis(300);
/// Interval of pings on connections that wait.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
