//! `weir bench compare --find-max`: what each relay carries at most.

use std::{collections::BTreeSet, path::Path, process::ExitCode, time::Duration};

use anyhow::{Context as _, bail};
use weir_net::{Stop, clock};
use weir_report::{
    comparison::{Limits, RelayLimit},
    relay::live_view::Moment,
    search::{Dimension, Probe, Record, heading, row},
};

use super::{
    super::{bench, print_line, print_out, progress::Progress},
    CompareArguments, core_problem, parse_plan, run_line,
};
use crate::{
    results,
    run::{
        Machine, Plan, RelayChoice,
        relays::{Described, DescribedRelay, StartedRelay, Workplace},
        search::{Method, Onlooker, Search},
    },
    signals,
};

/// Searches the limit of each relay in each scenario, one after the other; each probe gets a relay that was just
/// started.
pub(super) fn run(
    arguments: &CompareArguments,
    described: &Described,
    folder: &Path,
) -> anyhow::Result<ExitCode> {
    let machine = Machine::this();
    let place = Workplace::new()?;
    let mut profiles = described.find_max.profiles.clone();
    if profiles.is_empty() {
        profiles.push(described.profile.clone());
    }
    let mut versions = Vec::new();
    let mut core_problems = BTreeSet::new();
    for relay in &described.relay {
        versions.push(place.version(relay)?.unwrap_or_default());
        // What is wrong with the arguments is found before the first search.
        for profile in &profiles {
            let plan = plan(described, relay, &folder.join(profile), &machine)?;
            core_problems.extend(core_problem(relay, &plan, &machine));
        }
    }
    for problem in &core_problems {
        print_line(&format!("weir: {problem}"));
    }
    let stop = signals::stop_on_signals()?;
    let started = clock::now();
    let mut searches = Vec::new();
    let mut broken_off = None;
    'all: for profile in &profiles {
        for (relay, version) in described.relay.iter().zip(&versions) {
            if stop.is_requested() {
                broken_off = Some("it was interrupted".to_owned());
                break 'all;
            }
            print_line(&format!("{}, {}:", profile.display(), relay.name));
            print_line(&heading(Dimension::Subscribers.unit()));
            let plan = plan(described, relay, &folder.join(profile), &machine)?;
            let mut search = Search::new(
                method(described, relay),
                plan,
                machine.clone(),
                relay.url.clone(),
            )?;
            let mut league = League {
                place: &place,
                relay,
                progress: Progress::new(),
            };
            let ended = search.go(&stop, &mut league);
            drop(league);
            let record = match ended {
                Ok(reason) => search.record(reason),
                // One relay that cannot be measured leaves the others.
                Err(error) => search.record(Some(format!("{error:#}").as_str())),
            };
            print_line(&format!("  {}", record.sentence));
            let best = search.best();
            let best = best.as_ref().map(|(_, report)| report);
            searches.push(RelayLimit {
                profile: profile.display().to_string(),
                relay: relay.name.clone(),
                version: match version.as_str() {
                    "" => best
                        .and_then(|best| best.relay.implementation.clone())
                        .unwrap_or_default(),
                    version => version.to_owned(),
                },
                draft: best.and_then(|best| best.run.draft.clone()),
                record,
            });
        }
    }
    let mut settings = vec![setting(described, &machine, clock::now() - started)];
    let problems = core_problems.iter();
    settings.extend(problems.map(|problem| format!("{problem}.")));
    let limits = Limits::new(settings, searches, broken_off);
    write(arguments, &limits)?;
    print_out(&limits.terminal())?;
    let are_all_found = limits
        .searches
        .iter()
        .all(|one| one.record.answer.limit().is_some() && one.record.calibration_problem.is_none());
    Ok(if limits.broken_off.is_none() && are_all_found {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn plan(
    described: &Described,
    relay: &DescribedRelay,
    profile: &Path,
    machine: &Machine,
) -> anyhow::Result<Plan> {
    let mut line = run_line(described, relay, profile, std::process::id());
    let slo = described.find_max.slo.as_ref().or(described.slo.as_ref());
    line.extend(slo.map(|slo| format!("--slo={slo}")));
    let plan = parse_plan(described, &line, relay, machine)?;
    if plan.meetings.is_some() {
        bail!(
            "relay {:?}: arguments: --meetings: --find-max searches subscribers",
            relay.name
        );
    }
    // Every limit is calibrated.
    match plan.calibration_problem() {
        Some(problem) => bail!("--find-max: {}: {problem}", profile.display()),
        None => Ok(plan),
    }
}

fn method(described: &Described, relay: &DescribedRelay) -> Method {
    let search = &described.find_max;
    Method {
        dimension: Dimension::Subscribers,
        from: Some(relay.from.unwrap_or(search.from)),
        least: None,
        most: Some(search.most),
        precision_percent: search.precision,
        repeats: search.repeats,
        needed: search.needed,
        settle: Duration::from_secs(1),
        steady: Duration::from_secs(search.steady_seconds),
        // Each probe has a relay of its own.
        cool_down: Duration::ZERO,
        time_max: Some(Duration::from_secs(search.search_seconds)),
        probes_max: PROBES_MAX,
        ends_early: true,
        calibrate: true,
    }
}

fn setting(described: &Described, machine: &Machine, took: Duration) -> String {
    let search = &described.find_max;
    let slo = search.slo.as_ref().or(described.slo.as_ref());
    let is_apart = machine.cores.len() > 1 && described.relay.iter().all(|one| one.core.is_some());
    format!(
        "Service level {}; probes of {} s after one that is not judged, each with a relay just started; both sides of \
         the boundary {} times; {}{}, {} cores; {} minutes in all.",
        slo.map_or("of the program", String::as_str),
        search.steady_seconds,
        search.repeats,
        if is_apart {
            "relays on one core, publishers and subscribers on another; "
        } else {
            ""
        },
        machine.cpu_model,
        machine.cores.len(),
        took.as_secs().div_ceil(60),
    )
}

fn write(arguments: &CompareArguments, limits: &Limits) -> anyhow::Result<()> {
    for (file, text) in [
        (&arguments.json, limits.to_json()),
        (&arguments.html, limits.html()),
        (&arguments.markdown, limits.markdown()),
    ] {
        if let Some(file) = file {
            std::fs::write(file, text)
                .with_context(|| format!("{}: cannot be written", file.display()))?;
        }
    }
    if let Some(file) = &arguments.results {
        let body = format!("## What relays carry\n\n{}", limits.markdown());
        results::write_section(file, "relay-limits", &command(arguments), &body)?;
    }
    Ok(())
}

/// What makes the section again.
fn command(arguments: &CompareArguments) -> String {
    if arguments.file == Path::new("profiles/relays.toml") {
        "make results-relays".to_owned()
    } else {
        bench::command_line()
    }
}

/// Starts a relay for each probe, and shows the probes.
struct League<'a> {
    place: &'a Workplace,
    relay: &'a DescribedRelay,
    progress: Progress,
}

impl Onlooker for League<'_> {
    fn prepare(&mut self, plan: &mut Plan, stop: &Stop) -> anyhow::Result<Option<StartedRelay>> {
        let started = self.place.start(self.relay, stop)?;
        if let (RelayChoice::At { pid, .. }, Some(started)) = (&mut plan.relay, &started) {
            *pid = Some(started.pid());
        }
        Ok(started)
    }

    fn see(&mut self, moment: &Moment) {
        self.progress.show(&Moment {
            label: format!("{}: {}", self.relay.name, moment.label),
            ..moment.clone()
        });
    }

    fn note(&mut self, probe: &Probe, _record: &Record) -> anyhow::Result<()> {
        self.progress.end();
        print_line(&row(probe));
        Ok(())
    }
}

/// More than a search of this precision needs.
const PROBES_MAX: usize = 40;
