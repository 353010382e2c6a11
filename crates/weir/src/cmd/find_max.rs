//! `weir bench find-max`: the largest load that a relay carries, and what breaks first.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, bail};
use clap::Args;
use weir_net::Stop;
use weir_report::{
    relay::{html, live_view::Moment},
    search::{Answer, Probe, ProbeOutcome, Record, RecordedSearch, Step, heading, next, row},
};

use super::bench::Outputs;
use crate::{
    harness::{child::ChildGroup, machine::Machine, own_relay::OwnRelay},
    output::{check_writable, exit_code, print_line, print_out, write_file},
    progress::Progress,
    run::{
        self, Plan, RelayChoice,
        options::RunOptions,
        search::{By, Method, Onlooker, Search},
    },
    signals,
};

/// Find the largest load that a relay carries, and what breaks first
///
/// Brackets by doubling, bisects, and repeats both sides of the boundary. Without --relay, each probe gets a fresh
/// relay of weir's own, so that no probe pays for the one before. Exit code 0: a limit was found, or the largest
/// load allowed held; 1: not, or it could not be calibrated; 2: nothing was measured.
#[derive(Debug, Args)]
pub(super) struct FindMaxArguments {
    /// Profile in the INI form of the draft's Appendix A
    profile: PathBuf,
    #[command(flatten)]
    options: RunOptions,
    #[command(flatten)]
    outputs: Outputs,
    #[command(flatten)]
    method: Method,
    /// Continue the search recorded in the file of --json
    #[arg(long, requires = "json")]
    resume: bool,
}

pub(super) fn run(arguments: &FindMaxArguments) -> anyhow::Result<ExitCode> {
    let outputs = &arguments.outputs;
    let (json, html) = (outputs.json.as_deref(), outputs.html.as_deref());
    let mut search = search(arguments)?;
    let makes_html = html.is_some_and(|file| fs::symlink_metadata(file).is_err());
    for file in [json, html].into_iter().flatten() {
        check_writable(file)?;
    }
    print(&heading(search.recorded.dimension.unit()))?;
    for probe in &search.probes {
        print(&row(probe))?;
    }
    let stop = signals::stop_on_signals()?;
    let mut watcher = Watcher {
        json,
        progress: Progress::new(),
    };
    let broken_off = search.go(&stop, &mut watcher);
    watcher.progress.end();
    let record = search.record(broken_off?);
    if let Some(file) = json {
        keep(file, &record)?;
    }
    print(&format!("\n{}", record.sentence))?;
    if let Some(file) = html {
        write_best(file, makes_html, &search)?;
    }
    let is_found = match record.answer {
        Answer::Found { .. } | Answer::AtLeast { .. } => record.calibration_problem.is_none(),
        Answer::Nothing { .. } | Answer::Generator { .. } | Answer::Open { .. } => false,
    };
    Ok(exit_code(is_found))
}

/// The search, with the probes of an earlier one if it is to go on.
fn search(arguments: &FindMaxArguments) -> anyhow::Result<Search> {
    let machine = Machine::this();
    let plan = plan(arguments, &machine)?;
    let relay = match &plan.relay {
        RelayChoice::Own(OwnRelay::Weir { threads, .. }) if *threads > 1 => {
            format!("weir on {threads} threads")
        }
        RelayChoice::Own(_) => "weir".to_owned(),
        RelayChoice::At { url, .. } => url.to_string(),
    };
    if let Some(problem) = run::cores(&plan, &machine).problem() {
        print_line(&format!("weir: {problem}"));
    }
    check(&arguments.method)?;
    let mut search = Search::new(arguments.method, plan, machine, relay)?;
    let outputs = &arguments.outputs;
    let Some(file) = outputs.json.as_deref().filter(|_| arguments.resume) else {
        return Ok(search);
    };
    search.probes = resumed(file, &search.recorded)?;
    let step = next(&search.recorded.settings, &search.probes);
    if matches!(step, Step::Done(_)) && outputs.html.is_some() {
        bail!(
            "--html: the search in {} is over, and the report of its largest load was not kept; leave --html out, or \
             search anew",
            file.display()
        );
    }
    Ok(search)
}

/// What probes are made from.
fn plan(arguments: &FindMaxArguments, machine: &Machine) -> anyhow::Result<Plan> {
    let mut options = arguments.options.clone();
    match (arguments.method.by, options.meetings) {
        (By::Subscribers | By::Publishers, Some(_)) => {
            bail!("--meetings: goes with --by meetings, bitrate or tracks")
        }
        // How many there are is what is searched.
        (By::Meetings, None) => options.meetings = Some(1),
        (_, _) => {}
    }
    let plan = options.plan(&arguments.profile, machine)?;
    plan.check_both_sides()?;
    if arguments.outputs.archive.is_some() {
        bail!("--archive: a search has many runs; --json keeps what each of its probes found");
    }
    if let Some(problem) = plan.calibration_problem()
        && !arguments.method.no_calibration
    {
        bail!("{problem}; say --no-calibration");
    }
    Ok(plan)
}

/// Writes the report of the largest load that held, or says why there is none to write, and leaves no empty file that was
/// not there before.
fn write_best(file: &Path, is_new: bool, search: &Search) -> anyhow::Result<()> {
    let held = search.probes.iter();
    let held = held.filter(|probe| probe.outcome == ProbeOutcome::Held);
    let largest = held.map(|probe| probe.load).max();
    let reason = match (largest, search.best()) {
        (Some(largest), Some((load, report))) if load == largest => {
            return write_file(file, &html::render(&report));
        }
        (Some(largest), _) => format!(
            "the largest load that held, {largest} {}, was probed before the search was resumed, and its report was not \
             kept",
            search.recorded.dimension.unit()
        ),
        (None, _) => "no load held".to_owned(),
    };
    print_line(&format!("weir: {}: not written: {reason}", file.display()));
    // It was made to see whether it could be.
    let is_empty = |file: fs::Metadata| file.is_file() && file.len() == 0;
    if is_new && fs::symlink_metadata(file).is_ok_and(is_empty) {
        fs::remove_file(file).with_context(|| format!("{}: cannot be removed", file.display()))?;
    }
    Ok(())
}

fn check(method: &Method) -> anyhow::Result<()> {
    if !(1..=STEADY_SECONDS_MAX).contains(&method.steady_seconds) {
        bail!("--steady: expected 1 to {STEADY_SECONDS_MAX} seconds");
    }
    if method.settle_seconds > STEADY_SECONDS_MAX {
        bail!("--settle: expected at most {STEADY_SECONDS_MAX} seconds");
    }
    Ok(())
}

/// Shows a search, and keeps its record.
struct Watcher<'a> {
    json: Option<&'a Path>,
    progress: Progress,
}

impl Onlooker for Watcher<'_> {
    /// Without --relay, the run itself starts a fresh one.
    fn prepare(&mut self, _plan: &mut Plan, _stop: &Stop) -> anyhow::Result<Option<ChildGroup>> {
        Ok(None)
    }

    fn see(&mut self, moment: &Moment) {
        self.progress.show(moment);
    }

    fn note(&mut self, probe: &Probe, record: &Record) -> anyhow::Result<()> {
        self.progress.end();
        print(&row(probe))?;
        self.json.map_or(Ok(()), |file| keep(file, record))
    }
}

/// Writes a record. A search that is broken off while it writes must not lose what it had.
fn keep(file: &Path, record: &Record) -> anyhow::Result<()> {
    let new = file.with_extension("new");
    write_file(&new, &record.to_json())?;
    fs::rename(&new, file).with_context(|| format!("{}: cannot be written", file.display()))
}

fn resumed(file: &Path, search: &RecordedSearch) -> anyhow::Result<Vec<Probe>> {
    let name = || file.display().to_string();
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(name),
    };
    if text.is_empty() {
        return Ok(Vec::new());
    }
    Ok(Record::resume(&text, search).with_context(name)?.probes)
}

fn print(line: &str) -> anyhow::Result<()> {
    print_out(&format!("{line}\n"))
}

/// Ten minutes: a longer probe is a run of its own.
const STEADY_SECONDS_MAX: u64 = 600;
