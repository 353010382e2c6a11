//! `weir bench find-max`: searches for the largest load that a relay carries, and for the limit that breaks first.

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
    file_kind::{Kind, explained},
    harness::{child::ChildGroup, machine::Machine, own_relay::OwnRelay},
    output::{check_writable, exit_code, print_line, print_out, write_file},
    progress::Progress,
    run::{
        self, Plan, RelayChoice,
        fleet_flags::AgentsArguments,
        options::RunOptions,
        remote::Fleet,
        search::{By, Method, Observer, Search},
    },
    signals,
};

/// Find the largest load that a relay carries, and the limit that breaks first
///
/// The load doubles until the service level breaks; then the range is halved, and both sides of the limit are repeated.
/// Without --relay, each probe has a new relay of weir's own. Exit code 0: a limit was found, or --most held; 1: no
/// limit was found, or its calibration could not be made; 2: nothing was measured.
#[derive(Debug, Args)]
#[command(
    mut_arg("archive", |argument| argument.hide(true)),
    mut_arg("calibrate", |argument| argument.hide(true)),
    mut_arg("role", |argument| argument.hide(true)),
    mut_arg("seconds", |argument| argument.hide(true))
)]
pub(super) struct FindMaxArguments {
    /// Profile: the tracks to send, in the INI form of the draft's Appendix A, such as profiles/audio.ini
    profile: PathBuf,
    #[command(flatten)]
    options: RunOptions,
    #[command(flatten)]
    agents: AgentsArguments,
    #[command(flatten)]
    outputs: Outputs,
    #[command(flatten)]
    method: Method,
    /// Continue the search that the file of --json records; it must be of the same load, relay and service level
    #[arg(long, requires = "json")]
    resume: bool,
}

pub(super) fn run(arguments: &FindMaxArguments) -> anyhow::Result<ExitCode> {
    let outputs = &arguments.outputs;
    let (json, html) = (outputs.json.as_deref(), outputs.html.as_deref());
    let stop = signals::stop_on_signals()?;
    let fleet = arguments.agents.claim(&stop)?;
    let mut search = search(arguments, fleet.as_ref())?;
    for file in [json, html].into_iter().flatten() {
        check_writable(file)?;
    }
    print(&heading(search.recorded.dimension.unit()))?;
    for probe in &search.probes {
        print(&row(probe))?;
    }
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
        write_best(file, &search)?;
    }
    let is_found = match record.answer {
        Answer::Found { .. } | Answer::AtLeast { .. } => record.calibration_problem.is_none(),
        Answer::Nothing { .. } | Answer::Generator { .. } | Answer::Open { .. } => false,
    };
    Ok(exit_code(is_found))
}

/// Returns the search, with the recorded probes if --resume is given.
fn search(arguments: &FindMaxArguments, fleet: Option<&Fleet>) -> anyhow::Result<Search> {
    let machine = Machine::this();
    let plan = plan(arguments, &machine, fleet)?;
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
    let method = Method {
        // A null relay on this host would prove nothing of the agents.
        no_calibration: arguments.method.no_calibration || fleet.is_some(),
        ..arguments.method
    };
    let mut search = Search::new(method, plan, machine, relay)?;
    let outputs = &arguments.outputs;
    let Some(file) = outputs.json.as_deref().filter(|_| arguments.resume) else {
        return Ok(search);
    };
    search.probes = resumed(file, &search.recorded)?;
    let step = next(&search.recorded.settings, &search.probes);
    if matches!(step, Step::Done(_)) && outputs.html.is_some() {
        bail!(
            "--html: the search in {} is over, and a record holds no report of its largest load. Leave --html out, or \
             start a new search without --resume",
            file.display()
        );
    }
    Ok(search)
}

/// Returns the plan of a probe.
fn plan(
    arguments: &FindMaxArguments,
    machine: &Machine,
    fleet: Option<&Fleet>,
) -> anyhow::Result<Plan> {
    let mut options = arguments.options.clone();
    match (arguments.method.by, options.meetings) {
        (By::Subscribers | By::Publishers, Some(_)) => {
            bail!(
                "--meetings: needs --by meetings, bitrate or tracks; --by subscribers and publishers have no meetings"
            )
        }
        // The search sets their number.
        (By::Meetings, None) => options.meetings = Some(1),
        (_, _) => {}
    }
    let plan = options.plan(&arguments.profile, machine, fleet)?;
    plan.check_both_sides()?;
    if arguments.outputs.archive.is_some() {
        bail!("--archive: a search has many runs; use --json FILE, which records every probe");
    }
    if let Some(problem) = plan.calibration_problem()
        && !arguments.method.no_calibration
        && fleet.is_none()
    {
        bail!("{problem}; add --no-calibration to search without that proof");
    }
    Ok(plan)
}

/// Writes the report of the largest load that held, or prints why there is none.
fn write_best(file: &Path, search: &Search) -> anyhow::Result<()> {
    let held = search.probes.iter();
    let held = held.filter(|probe| probe.outcome == ProbeOutcome::Held);
    let largest = held.map(|probe| probe.load).max();
    let reason = match (largest, search.best()) {
        (Some(largest), Some((load, report))) if load == largest => {
            return write_file(file, &html::render(&report));
        }
        (Some(largest), _) => format!(
            "the largest load that held, {largest} {}, was probed before --resume, and a record holds no reports",
            search.recorded.dimension.unit()
        ),
        (None, _) => "no load held".to_owned(),
    };
    let is_earlier = fs::metadata(file).is_ok_and(|earlier| earlier.len() > 0);
    let earlier = if is_earlier {
        "; the page there is that of an earlier search"
    } else {
        ""
    };
    print_line(&format!(
        "weir: {}: not written: {reason}{earlier}",
        file.display()
    ));
    Ok(())
}

/// Shows the progress of a search, and writes its record.
struct Watcher<'a> {
    json: Option<&'a Path>,
    progress: Progress,
}

impl Observer for Watcher<'_> {
    /// Returns `None`: without --relay, the run itself starts a relay.
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

/// Replaces the record in one step, so that a search that is killed loses nothing.
fn keep(file: &Path, record: &Record) -> anyhow::Result<()> {
    let new = file.with_extension("new");
    write_file(&new, &record.to_json())?;
    fs::rename(&new, file).with_context(|| format!("{}: cannot be written", file.display()))
}

fn resumed(file: &Path, search: &RecordedSearch) -> anyhow::Result<Vec<Probe>> {
    let name = || file.display().to_string();
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!(
            "--resume: {} does not exist; leave --resume out to start a new search",
            file.display()
        ),
        Err(error) => {
            let error = anyhow::Error::new(error).context(name());
            return Err(explained(file, Kind::Search, error));
        }
    };
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let record = Record::resume(&text, search).with_context(name);
    let record = record.map_err(|error| explained(file, Kind::Search, error));
    Ok(record?.probes)
}

fn print(line: &str) -> anyhow::Result<()> {
    print_out(&format!("{line}\n"))
}
