//! `weir bench compare`: several relays in turns, and a table of them.

mod league;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::{Args, Parser};
use weir_bench::{
    compare::{Comparison, Entry, html, markdown, terminal},
    find_max::{Probe, load},
    report::{Report, live::Moment},
};
use weir_net::Stop;

use super::{
    bench::{self, BenchArguments},
    print_line, print_out,
    progress::Progress,
};
use crate::{
    results,
    run::{
        self, Machine, Plan,
        relays::{Described, DescribedRelay, Workplace},
    },
    signals,
};

/// Measure several relays in turns and put them in a table
///
/// A TOML file says how each relay is started and reached; profiles/relays.toml is an example. Each turn starts a
/// relay on its core, warms it up, measures it, and ends it with all that it started. Exit code 0: all runs were
/// made; 1: not; 2: nothing was measured.
#[derive(Debug, Args)]
pub(super) struct CompareArguments {
    /// Description of the relays, TOML
    file: PathBuf,
    /// Runs of each relay, instead of what the file says
    #[arg(long, value_name = "COUNT")]
    repeats: Option<u32>,
    /// Measure only the relay of this name; can be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Find the largest number of subscribers that each relay carries, as `find_max` in the file says, instead of
    /// measuring all under one load
    #[arg(long, conflicts_with = "repeats")]
    find_max: bool,
    /// Write the comparison as JSON, with every run
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the table as one HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the table as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write the table as a section of this Markdown file, in place of the one that is there
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
}

/// The arguments of one run, made from the file.
#[derive(Debug, Parser)]
#[command(name = "weir bench", no_binary_name = true)]
struct RunLine {
    #[command(flatten)]
    run: BenchArguments,
}

pub(super) fn run(arguments: &CompareArguments) -> anyhow::Result<ExitCode> {
    let mut described = Described::read(&arguments.file)?;
    if let Some(repeats) = arguments.repeats {
        described.repeats = repeats.clamp(1, 50);
    }
    for name in &arguments.only {
        if !described.relay.iter().any(|relay| relay.name == *name) {
            bail!(
                "--only: there is no relay {name:?} in {}",
                arguments.file.display()
            );
        }
    }
    if !arguments.only.is_empty() {
        described
            .relay
            .retain(|relay| arguments.only.contains(&relay.name));
    }
    let forms: [(&Option<PathBuf>, Form); 3] = [
        (&arguments.json, Comparison::to_json),
        (&arguments.html, html),
        (&arguments.markdown, markdown),
    ];
    for (file, _) in &forms {
        if let Some(file) = file {
            bench::check_writable(file)?;
        }
    }
    let folder = arguments.file.parent().unwrap_or_else(|| Path::new("."));
    if arguments.find_max {
        return league::run(arguments, &described, folder);
    }
    let mut turns = Turns::new(described, folder)?;
    let stop = signals::stop_on_signals()?;
    let broken_off = turns.go(&stop)?;
    let comparison = turns.comparison(broken_off);
    for (file, render) in forms {
        if let Some(file) = file {
            std::fs::write(file, render(&comparison))
                .with_context(|| format!("{}: cannot be written", file.display()))?;
        }
    }
    if let Some(file) = &arguments.results {
        let body = format!("## Relays compared\n\n{}", markdown(&comparison));
        results::write_section(file, "relays-compared", &bench::command_line(), &body)?;
    }
    print_out(&terminal(&comparison))?;
    Ok(if comparison.broken_off.is_none() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The arguments of `weir bench` for one relay, as the file says.
fn run_line(
    described: &Described,
    relay: &DescribedRelay,
    profile: &Path,
    pid: u32,
) -> Vec<String> {
    let mut line = vec![
        profile.display().to_string(),
        format!("--relay={}", relay.url),
        format!("--relay-pid={pid}"),
    ];
    if let Some(flow) = &relay.publish_flow {
        line.push(format!("--publish-flow={flow}"));
    }
    line.extend(described.arguments.iter().cloned());
    line.extend(relay.arguments.iter().cloned());
    let trusts = |word: &String| word == "--insecure" || word.starts_with("--ca");
    if !line.iter().any(trusts) {
        line.push("--insecure".to_owned());
    }
    line
}

fn parse_plan(line: &[String], relay: &DescribedRelay, machine: &Machine) -> anyhow::Result<Plan> {
    let parsed = RunLine::try_parse_from(line)
        .map_err(|error| anyhow::anyhow!("{}", error.render()))
        .with_context(|| format!("relay {:?}", relay.name))?;
    let plan = bench::plan(&parsed.run, machine);
    let plan = plan.and_then(|plan| bench::check_both_sides(&plan).map(|()| plan));
    plan.with_context(|| format!("relay {:?}", relay.name))
}

/// Renders a comparison.
type Form = fn(&Comparison) -> String;

/// All runs, relay by relay and round by round.
struct Turns {
    described: Described,
    profile: PathBuf,
    machine: Machine,
    place: Workplace,
    entries: Vec<Entry>,
}

impl Turns {
    fn new(described: Described, folder: &Path) -> anyhow::Result<Self> {
        let machine = Machine::this();
        let place = Workplace::new()?;
        let profile = folder.join(&described.profile);
        let mut entries = Vec::new();
        for relay in &described.relay {
            entries.push(Entry {
                name: relay.name.clone(),
                version: place.version(relay)?.unwrap_or_default(),
                draft: None,
                runs: Vec::new(),
            });
        }
        let turns = Self {
            described,
            profile,
            machine,
            place,
            entries,
        };
        // What is wrong with the arguments of any relay is found before the first is started.
        for relay in &turns.described.relay {
            turns.plan(relay, std::process::id())?;
        }
        Ok(turns)
    }

    /// Makes the runs; returns why not all, if so. The order rotates, so that no relay is always first.
    fn go(&mut self, stop: &Stop) -> anyhow::Result<Option<String>> {
        let count = self.described.relay.len();
        for round in 0..self.described.repeats {
            for turn in 0..count {
                let number = (turn + round as usize) % count;
                if !self.turn(number, round, stop)? {
                    return Ok(Some("it was interrupted".to_owned()));
                }
            }
        }
        Ok(None)
    }

    /// One relay's turn; false if it was interrupted.
    fn turn(&mut self, number: usize, round: u32, stop: &Stop) -> anyhow::Result<bool> {
        let relay = &self.described.relay[number];
        let Some(started) = self.place.start(relay, stop)? else {
            return Ok(false);
        };
        let plan = self.plan(relay, started.pid())?;
        if self.described.warm_up_seconds > 0 {
            let mut warm = self.plan(relay, started.pid())?;
            let seconds = Duration::from_secs(self.described.warm_up_seconds);
            warm.profile = load::with_windows(&warm.profile, SETTLE, seconds);
            drop(self.measure(&warm, &format!("{}, warming up", relay.name), stop));
        }
        if stop.is_requested() {
            return Ok(false);
        }
        let label = format!(
            "{}, run {} of {}",
            relay.name,
            round + 1,
            self.described.repeats
        );
        let outcome = self.measure(&plan, &label, stop);
        drop(started);
        if stop.is_requested() {
            return Ok(false);
        }
        let subscribers = plan.subscribers_total() as u64;
        let probe = match outcome {
            Ok(report) => {
                check_draft(relay, &report)?;
                let entry = &mut self.entries[number];
                entry.draft.clone_from(&report.run.draft);
                if entry.version.is_empty() {
                    entry.version = report.relay.implementation.clone().unwrap_or_default();
                }
                Probe::of(subscribers, &report)
            }
            Err(error) => Probe::failed(subscribers, &format!("{error:#}")),
        };
        print_line(&format!(
            "{label}: {}",
            weir_bench::find_max::row(&probe).trim_start()
        ));
        self.entries[number].runs.push(probe);
        Ok(true)
    }

    fn measure(&self, plan: &Plan, label: &str, stop: &Stop) -> anyhow::Result<Report> {
        let mut progress = Progress::new();
        let outcome = run::run(plan, &self.machine, stop, |moment| {
            progress.show(&Moment {
                label: label.to_owned(),
                ..moment.clone()
            });
        });
        Ok(outcome?.report)
    }

    fn plan(&self, relay: &DescribedRelay, pid: u32) -> anyhow::Result<Plan> {
        let described = &self.described;
        let mut line = run_line(described, relay, &self.profile, pid);
        if let Some(subscribers) = described.subscribers {
            line.push(format!("--subscribers={subscribers}"));
        }
        if let Some(slo) = &described.slo {
            line.push(format!("--slo={slo}"));
        }
        let mut plan = parse_plan(&line, relay, &self.machine)?;
        if let Some(seconds) = described.seconds {
            let seconds = Duration::from_secs(seconds.max(1));
            plan.profile = load::with_windows(&plan.profile, SETTLE, seconds);
        }
        Ok(plan)
    }

    fn comparison(self, broken_off: Option<String>) -> Comparison {
        let described = &self.described;
        let subscribers = described
            .subscribers
            .map_or_else(String::new, |subscribers| {
                format!("{subscribers} subscribers, ")
            });
        let setting = format!(
            "{}, {subscribers}runs of each relay in turns: {}, {}",
            described.profile.display(),
            described.repeats,
            self.machine.cpu_model
        );
        Comparison::new(vec![setting], self.entries, broken_off)
    }
}

fn check_draft(relay: &DescribedRelay, report: &Report) -> anyhow::Result<()> {
    let Some(draft) = &report.run.draft else {
        return Ok(());
    };
    if !relay.drafts.is_empty() && !relay.drafts.contains(draft) {
        bail!(
            "relay {:?}: spoke {draft}, and is to be measured with {}",
            relay.name,
            relay.drafts.join(" or ")
        );
    }
    Ok(())
}

/// From the join of the last subscriber to the first object.
const SETTLE: Duration = Duration::from_secs(1);
