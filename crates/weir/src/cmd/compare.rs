//! `weir bench compare`: several relays in turns, and a table of them.

mod league;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::{Args, Parser};
use weir_bench::profile::load;
use weir_net::Stop;
use weir_report::{
    comparison::{Comparison, Entry, html, markdown, terminal},
    relay::{Report, live_view::Moment},
    search::Probe,
};

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
/// made; 1: not, or a relay could not be started for one, or one could not be calibrated; 2: nothing was measured.
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
    let is_calibrated = turns.not_calibrated.is_none();
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
    Ok(if comparison.broken_off.is_none() && is_calibrated {
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
    if let Some(core) = relay.core {
        line.push(format!("--relay-cores={core}"));
    }
    line.extend(described.arguments.iter().cloned());
    line.extend(relay.arguments.iter().cloned());
    let trusts = |word: &String| word == "--insecure" || word.starts_with("--ca");
    if !line.iter().any(trusts) {
        line.push("--insecure".to_owned());
    }
    line
}

fn parse_plan(
    described: &Described,
    line: &[String],
    relay: &DescribedRelay,
    machine: &Machine,
) -> anyhow::Result<Plan> {
    let plan = || -> anyhow::Result<Plan> {
        let parsed =
            RunLine::try_parse_from(line).map_err(|error| anyhow::anyhow!("{}", error.render()))?;
        check_files(described, &parsed.run)?;
        let mut plan = bench::plan(&parsed.run, machine)?;
        bench::check_both_sides(&plan)?;
        if !relay.drafts.is_empty() {
            let is_named = |draft: &&str| relay.drafts.iter().any(|one| one == draft);
            plan.drafts.retain(is_named);
        }
        Ok(plan)
    };
    plan().with_context(|| format!("relay {:?}", relay.name))
}

/// Refuses files of single runs: there are many, and each would take the place of the one before.
fn check_files(described: &Described, run: &BenchArguments) -> anyhow::Result<()> {
    for (flag, file) in [
        ("--archive", &run.archive),
        ("--html", &run.html),
        ("--json", &run.json),
    ] {
        let is_shared = || {
            described
                .arguments
                .iter()
                .any(|word| word.starts_with(flag))
        };
        if file.is_some() {
            let place = if is_shared() { " of all relays" } else { "" };
            bail!(
                "arguments{place}: {flag}: there are many runs; `weir bench compare --json` keeps what each of them found"
            );
        }
    }
    Ok(())
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
    /// What is wrong with who has which core, in words.
    core_problems: BTreeSet<String>,
    /// Why a relay could not be started for a run, if that happened.
    not_started: Option<String>,
    /// The first run that was to be calibrated and is not, and why.
    not_calibrated: Option<String>,
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
        let mut turns = Self {
            described,
            profile,
            machine,
            place,
            entries,
            core_problems: BTreeSet::new(),
            not_started: None,
            not_calibrated: None,
        };
        // What is wrong with the arguments of any relay is found before the first is started.
        for relay in &turns.described.relay {
            let plan = turns.plan(relay, std::process::id())?;
            let problem = core_problem(relay, &plan, &turns.machine);
            turns.core_problems.extend(problem);
        }
        for problem in &turns.core_problems {
            print_line(&format!("weir: {problem}"));
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
        Ok(self.not_started.clone())
    }

    /// One relay's turn; false if it was interrupted.
    fn turn(&mut self, number: usize, round: u32, stop: &Stop) -> anyhow::Result<bool> {
        let relay = &self.described.relay[number];
        let label = format!(
            "{}, run {} of {}",
            relay.name,
            round + 1,
            self.described.repeats
        );
        let started = match self.place.start(relay, stop) {
            Ok(Some(started)) => started,
            Ok(None) => return Ok(false),
            // Before anything was measured, nothing is lost by putting the file right first.
            Err(error) if self.entries.iter().all(|entry| entry.runs.is_empty()) => {
                return Err(error);
            }
            Err(error) => {
                let reason = format!("{error:#}");
                let subscribers = self.plan(relay, std::process::id())?.subscribers_total();
                self.note(number, &label, Probe::failed(subscribers as u64, &reason));
                self.not_started.get_or_insert(reason);
                return Ok(true);
            }
        };
        let plan = self.plan(relay, started.pid())?;
        let warmed_up = self.warm_up(relay, started.pid(), stop)?;
        if stop.is_requested() {
            return Ok(false);
        }
        let outcome = self.measure(&plan, &label, stop);
        drop(started);
        if stop.is_requested() {
            return Ok(false);
        }
        let subscribers = plan.subscribers_total() as u64;
        let probe = match outcome {
            Ok((report, not_calibrated)) => {
                if let Some(problem) = not_calibrated {
                    let problem = format!("{label}: not calibrated: {problem}");
                    print_line(&problem);
                    self.not_calibrated.get_or_insert(problem);
                }
                let entry = &mut self.entries[number];
                entry.draft.clone_from(&report.run.draft);
                if entry.version.is_empty() {
                    entry.version = report.relay.implementation.clone().unwrap_or_default();
                }
                let mut probe = Probe::of(subscribers, &report);
                if let Some(warmed_up) = warmed_up {
                    probe.figures.bytes_per_session = warmed_up.bytes_per_session;
                }
                probe
            }
            Err(error) => Probe::failed(subscribers, &format!("{error:#}")),
        };
        self.note(number, &label, probe);
        Ok(true)
    }

    /// Lets a relay do what does not count; none if the file wants no such run. What its first sessions made it grow is
    /// only to be seen here: for the next ones it has the memory already.
    fn warm_up(
        &self,
        relay: &DescribedRelay,
        pid: u32,
        stop: &Stop,
    ) -> anyhow::Result<Option<WarmedUp>> {
        if self.described.warm_up_seconds == 0 {
            return Ok(None);
        }
        let mut plan = self.plan(relay, pid)?;
        let seconds = Duration::from_secs(self.described.warm_up_seconds);
        plan.profile = load::with_windows(&plan.profile, SETTLE, seconds);
        plan.calibrate = false;
        let outcome = self.measure(&plan, &format!("{}, warming up", relay.name), stop);
        // One that fails says so in the run that counts.
        let cost = outcome.ok().and_then(|(report, _)| report.relay.cost);
        Ok(Some(WarmedUp {
            bytes_per_session: cost.and_then(|cost| cost.bytes_per_session),
        }))
    }

    /// A run has come to its end.
    fn note(&mut self, number: usize, label: &str, probe: Probe) {
        let row = weir_report::search::row(&probe);
        print_line(&format!("{label}: {}", row.trim_start()));
        self.entries[number].runs.push(probe);
    }

    /// A run's report, and why it is not calibrated although it was to be.
    fn measure(
        &self,
        plan: &Plan,
        label: &str,
        stop: &Stop,
    ) -> anyhow::Result<(Report, Option<String>)> {
        let mut progress = Progress::new();
        let outcome = run::run(plan, &self.machine, stop, |moment| {
            progress.show(&Moment {
                label: label.to_owned(),
                ..moment.clone()
            });
        });
        let ran = outcome?;
        Ok((ran.archive.report, ran.calibration_problem))
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
        let mut plan = parse_plan(described, &line, relay, &self.machine)?;
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
        let mut setting = vec![setting];
        let problems = self.core_problems.iter();
        setting.extend(problems.map(|problem| format!("{problem}.")));
        setting.extend(self.not_calibrated.map(|problem| format!("{problem}.")));
        Comparison::new(setting, self.entries, broken_off)
    }
}

/// What the run before those that count has shown.
#[derive(Clone, Copy, Debug)]
struct WarmedUp {
    /// What the first sessions of the process made it grow, each.
    bytes_per_session: Option<f64>,
}

/// What is wrong with the cores that a relay and its generator have.
fn core_problem(relay: &DescribedRelay, plan: &Plan, machine: &Machine) -> Option<String> {
    let problem = run::cores(plan, machine).problem()?;
    Some(format!("{}: {problem}", relay.name))
}

/// From the join of the last subscriber to the first object.
const SETTLE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "profile = \"audio-short.ini\"\nsubscribers = 2\n\
        [[relay]]\nname = \"one\"\nstart = [\"one\"]\nurl = \"moqt://127.0.0.1:4443\"\n";

    /// What a run of the first relay of a file is made from, or what is wrong with it.
    fn planned(text: &str, cores: usize) -> anyhow::Result<Plan> {
        let described: Described = toml::from_str(text)?;
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles"));
        let relay = &described.relay[0];
        let profile = folder.join(&described.profile);
        let line = run_line(&described, relay, &profile, std::process::id());
        let machine = Machine {
            kernel: String::new(),
            cpu_model: String::new(),
            cores: (0..cores).collect(),
            online: (0..cores).collect(),
        };
        parse_plan(&described, &line, relay, &machine)
    }

    #[test]
    fn a_relay_has_the_core_and_the_drafts_of_the_file() {
        let plan = planned(&format!("{FILE}core = 1\ndrafts = [\"moqt-18\"]\n"), 3).unwrap();
        assert_eq!(plan.cores.relay, [1]);
        assert_eq!(
            (plan.cores.publishers, plan.cores.subscribers),
            (Some(0), Some(0))
        );
        assert_eq!(plan.drafts, ["moqt-18"]);
        // `check` of the file refuses drafts that weir does not speak; here it shows that no other one is offered.
        let plan = planned(&format!("{FILE}drafts = [\"moqt-99\"]\n"), 3).unwrap();
        assert!(plan.drafts.is_empty());
        assert_eq!(planned(FILE, 3).unwrap().drafts, run::protocols());
        let error = planned(&format!("{FILE}core = 7\n"), 3).unwrap_err();
        let error = format!("{error:#}");
        assert!(
            error.contains("relay \"one\": --relay-cores: there is no core 7"),
            "{error}"
        );
    }

    #[test]
    fn files_of_single_runs_are_refused_with_their_place() {
        for flag in ["--archive", "--html", "--json"] {
            let own = format!("{FILE}arguments = [\"{flag}\", \"file\"]\n");
            let error = format!("{:#}", planned(&own, 2).unwrap_err());
            let expected = format!("relay \"one\": arguments: {flag}: there are many runs");
            assert!(error.starts_with(&expected), "{error}");
            let shared = format!("arguments = [\"{flag}=file\"]\n{FILE}");
            let error = format!("{:#}", planned(&shared, 2).unwrap_err());
            assert!(
                error.contains(&format!("arguments of all relays: {flag}")),
                "{error}"
            );
        }
    }
}
