//! `weir bench find-max`: the largest load that a relay carries, and what breaks first.

use std::{fs, path::Path, process::ExitCode, time::Duration};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use weir_net::Stop;
use weir_report::{
    relay::{html, live_view::Moment},
    search::{
        Answer, Dimension, Probe, ProbeOutcome, Record, RecordedSearch, Step, heading, next, row,
    },
};

use super::{
    bench::{self, BenchArguments},
    print_line, print_out,
    progress::Progress,
};
use crate::{
    run::{
        self, Machine, OwnRelay, Plan, RelayChoice,
        relays::StartedRelay,
        search::{Method, Onlooker, Search},
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
    #[command(flatten)]
    run: BenchArguments,
    /// What the load is made of
    #[arg(long, value_enum, default_value_t = By::Subscribers, value_name = "DIMENSION")]
    by: By,
    /// Load of the first probe [default: 100 subscribers, 1 meeting, or the profile's kbit/s]
    #[arg(long, value_name = "LOAD")]
    from: Option<u64>,
    /// Smallest load that is tried [default: 1, or the smallest bit rate that the profile can have]
    #[arg(long, value_name = "LOAD")]
    least: Option<u64>,
    /// Largest load that is tried [default: 50000 subscribers, 5000 meetings, 1000000 kbit/s, if there can be so many]
    #[arg(long, value_name = "LOAD")]
    most: Option<u64>,
    /// How close the two sides of the boundary have to come, in per cent
    #[arg(long, value_name = "PER_CENT", default_value_t = 5)]
    precision: u64,
    /// Probes of each side of the boundary
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    repeats: u32,
    /// How many of the repeats have to hold
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    needed: u32,
    /// Seconds from the last subscriber's join to the first object of a probe
    #[arg(long, value_name = "SECONDS", default_value_t = 1)]
    settle: u64,
    /// Seconds that a probe sends and is judged by, after one that is not judged
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    steady: u64,
    /// Seconds between two probes of one relay
    #[arg(long, value_name = "SECONDS", default_value_t = 2)]
    cool_down: u64,
    /// Seconds after which no further probe is begun
    #[arg(long, value_name = "SECONDS")]
    max_time: Option<u64>,
    /// Probes after which the search ends
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    probes_max: usize,
    /// Let probes run to their end that cannot hold any more, by far
    #[arg(long)]
    whole_probes: bool,
    /// Do not put the load at which the relay broke on a null relay, to prove that the generator could make it
    #[arg(long)]
    no_calibration: bool,
    /// Go on with the search that stands in the file of --json
    #[arg(long, requires = "json")]
    resume: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum By {
    /// Subscribers of one publisher
    Subscribers,
    /// Meetings of --clients-per-meeting clients
    Meetings,
    /// Bit rate of the profile, in kbit/s
    Bitrate,
}

pub(super) fn run(arguments: &FindMaxArguments) -> anyhow::Result<ExitCode> {
    let machine = Machine::this();
    let plan = match (arguments.by, arguments.run.meetings) {
        (By::Subscribers, Some(_)) => {
            bail!("--meetings: goes with --by meetings or --by bitrate")
        }
        // How many there are is what is searched.
        (By::Meetings, None) => {
            let mut one = arguments.run.clone();
            one.meetings = Some(1);
            bench::plan(&one, &machine)?
        }
        (By::Subscribers | By::Meetings | By::Bitrate, _) => bench::plan(&arguments.run, &machine)?,
    };
    bench::check_both_sides(&plan)?;
    if arguments.run.archive.is_some() {
        bail!("--archive: a search has many runs; --json keeps what each of its probes found");
    }
    if let Some(problem) = plan.calibration_problem()
        && !arguments.no_calibration
    {
        bail!("{problem}; say --no-calibration");
    }
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
    let mut search = Search::new(method(arguments)?, plan, machine, relay)?;
    let json = arguments.run.json.as_deref();
    if let Some(file) = json.filter(|_| arguments.resume) {
        search.probes = resumed(file, &search.recorded)?;
        let is_over = matches!(
            next(&search.recorded.settings, &search.probes),
            Step::Done(_)
        );
        if is_over && arguments.run.html.is_some() {
            bail!(
                "--html: the search in {} is over, and the report of its largest load was not kept; leave --html out, or \
                 search anew",
                file.display()
            );
        }
    }
    let html = arguments.run.html.as_deref();
    let makes_html = html.is_some_and(|file| fs::symlink_metadata(file).is_err());
    for file in [json, html].into_iter().flatten() {
        bench::check_writable(file)?;
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
    Ok(if is_found {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Writes the report of the largest load that held, or says why there is none to write, and leaves no empty file that was
/// not there before.
fn write_best(file: &Path, is_new: bool, search: &Search) -> anyhow::Result<()> {
    let held = search.probes.iter();
    let held = held.filter(|probe| probe.outcome == ProbeOutcome::Held);
    let largest = held.map(|probe| probe.load).max();
    let reason = match (largest, search.best()) {
        (Some(largest), Some((load, report))) if load == largest => {
            return write(file, &html::render(&report));
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

fn method(arguments: &FindMaxArguments) -> anyhow::Result<Method> {
    if arguments.steady == 0 || arguments.steady > STEADY_SECONDS_MAX {
        bail!("--steady: expected 1 to {STEADY_SECONDS_MAX} seconds");
    }
    if arguments.settle > STEADY_SECONDS_MAX {
        bail!("--settle: expected at most {STEADY_SECONDS_MAX} seconds");
    }
    Ok(Method {
        dimension: match arguments.by {
            By::Subscribers => Dimension::Subscribers,
            By::Meetings => Dimension::Meetings,
            By::Bitrate => Dimension::BitRate,
        },
        from: arguments.from,
        least: arguments.least,
        most: arguments.most,
        precision_percent: arguments.precision,
        repeats: arguments.repeats,
        needed: arguments.needed,
        settle: Duration::from_secs(arguments.settle),
        steady: Duration::from_secs(arguments.steady),
        cool_down: Duration::from_secs(arguments.cool_down),
        time_max: arguments.max_time.map(Duration::from_secs),
        probes_max: arguments.probes_max,
        ends_early: !arguments.whole_probes,
        calibrate: !arguments.no_calibration,
    })
}

/// Shows a search, and keeps its record.
struct Watcher<'a> {
    json: Option<&'a Path>,
    progress: Progress,
}

impl Onlooker for Watcher<'_> {
    /// Without --relay, the run itself starts a fresh one.
    fn prepare(&mut self, _plan: &mut Plan, _stop: &Stop) -> anyhow::Result<Option<StartedRelay>> {
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
    write(&new, &record.to_json())?;
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

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(file, text).with_context(|| format!("{}: cannot be written", file.display()))
}

fn print(line: &str) -> anyhow::Result<()> {
    print_out(&format!("{line}\n"))
}

/// Ten minutes: a longer probe is a run of its own.
const STEADY_SECONDS_MAX: u64 = 600;
