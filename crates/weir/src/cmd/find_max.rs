//! `weir bench find-max`: the largest load that a relay carries, and what breaks first.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use weir_bench::{
    find_max::{
        self, Answer, Dimension, Probe, Record, RecordedSearch, Settings, Step, heading, load, row,
    },
    profile::Profile,
    report::{Report, html},
};
use weir_net::{Stop, clock};

use super::{
    bench::{self, BenchArguments},
    print_out,
    progress::Progress,
};
use crate::{
    run::{self, Machine, Meetings, Plan, RelayChoice},
    signals,
};

/// Find the largest load that a relay carries, and what breaks first
///
/// Brackets by doubling, bisects, and repeats both sides of the boundary. Without --relay, each probe gets a fresh
/// relay of weir's own, so that no probe pays for the one before. Exit code 0: a limit was found, or the largest
/// load allowed held; 1: not; 2: nothing was measured.
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
    /// Smallest load that is tried
    #[arg(long, value_name = "LOAD", default_value_t = 1)]
    least: u64,
    /// Largest load that is tried [default: 50000 subscribers, 5000 meetings, 1000000 kbit/s]
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
    /// Seconds that a probe sends
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
    let plan = bench::plan(&arguments.run, &machine)?;
    let mut search = Search::new(arguments, plan, machine)?;
    for file in [&arguments.run.json, &arguments.run.html]
        .into_iter()
        .flatten()
    {
        bench::check_writable(file)?;
    }
    print(&heading(search.recorded.dimension.unit()))?;
    for probe in &search.probes {
        print(&row(probe))?;
    }
    let stop = signals::stop_on_signals()?;
    let broken_off = search.go(&stop)?;
    let record = search.record(broken_off);
    print(&format!("\n{}", record.sentence))?;
    if let (Some(file), Some(report)) = (&arguments.run.html, &search.best) {
        write(file, &html::render(report))?;
    }
    let is_found = match record.answer {
        Answer::Found { .. } | Answer::AtLeast { .. } => true,
        Answer::Nothing { .. } | Answer::Generator { .. } | Answer::Open { .. } => false,
    };
    Ok(if is_found {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// A search and what its probes are made with.
struct Search<'a> {
    arguments: &'a FindMaxArguments,
    recorded: RecordedSearch,
    plan: Plan,
    machine: Machine,
    /// The profile with the probes' windows; its bit rate is the user's.
    profile: Profile,
    /// How large the meetings are, if there are any.
    meetings: Meetings,
    probes: Vec<Probe>,
    /// The report of the largest load that held.
    best: Option<Report>,
}

impl<'a> Search<'a> {
    fn new(
        arguments: &'a FindMaxArguments,
        mut plan: Plan,
        machine: Machine,
    ) -> anyhow::Result<Self> {
        if arguments.steady == 0 || arguments.steady > STEADY_SECONDS_MAX {
            bail!("--steady: expected 1 to {STEADY_SECONDS_MAX} seconds");
        }
        if arguments.settle > STEADY_SECONDS_MAX {
            bail!("--settle: expected at most {STEADY_SECONDS_MAX} seconds");
        }
        let asks_for_cpu = plan.level.to_string().contains("cpu");
        if asks_for_cpu && matches!(plan.relay, RelayChoice::At { pid: None, .. }) {
            bail!("--slo: a clause about CPU needs --relay-pid, or nothing can hold it");
        }
        let profile = load::with_windows(
            &plan.profile,
            Duration::from_secs(arguments.settle),
            Duration::from_secs(arguments.steady),
        );
        let (dimension, from, most) = match arguments.by {
            By::Subscribers => (Dimension::Subscribers, 100, bench::SUBSCRIBERS_MAX as u64),
            By::Meetings => (Dimension::Meetings, 1, MEETINGS_MAX),
            By::Bitrate => (
                Dimension::BitRate,
                kilobits(load::bits_per_second(&profile)),
                1_000_000,
            ),
        };
        let most = arguments.most.unwrap_or(most);
        let settings = Settings {
            from: arguments
                .from
                .unwrap_or(from)
                .clamp(arguments.least, most.max(arguments.least)),
            least: arguments.least,
            most,
            precision_percent: arguments.precision,
            repeats: arguments.repeats,
            needed: arguments.needed,
            probes_max: arguments.probes_max,
        };
        if let Some(problem) = settings.problem() {
            bail!("{problem}");
        }
        if dimension == Dimension::Subscribers && most > bench::SUBSCRIBERS_MAX as u64 {
            bail!("--most: expected at most {}", bench::SUBSCRIBERS_MAX);
        }
        plan.profile = profile.clone();
        let meetings = plan.meetings.unwrap_or(Meetings {
            meetings: 1,
            clients_per_meeting: CLIENTS_PER_MEETING,
        });
        let recorded = RecordedSearch {
            dimension,
            settings,
            profile: profile.to_ini(),
            slo: plan.level.to_string(),
            relay: match &plan.relay {
                RelayChoice::Own => "weir".to_owned(),
                RelayChoice::At { url, .. } => url.to_string(),
            },
        };
        let probes = match (&arguments.run.json, arguments.resume) {
            (Some(file), true) => resumed(file, &recorded)?,
            (Some(_) | None, _) => Vec::new(),
        };
        Ok(Self {
            arguments,
            recorded,
            plan,
            machine,
            profile,
            meetings,
            probes,
            best: None,
        })
    }

    /// Makes probes until the search is over; returns why it was broken off, if it was.
    fn go(&mut self, stop: &Stop) -> anyhow::Result<Option<&'static str>> {
        let started = clock::now();
        let mut last = Duration::ZERO;
        while let Step::Probe(load) = find_max::next(&self.recorded.settings, &self.probes) {
            let begun = clock::now();
            if let Some(seconds) = self.arguments.max_time
                && begun - started + last > Duration::from_secs(seconds)
            {
                return Ok(Some("the time was used up"));
            }
            let Some(probe) = self.probe(load, stop)? else {
                return Ok(Some("it was interrupted"));
            };
            print(&row(&probe))?;
            self.probes.push(probe);
            self.write_record(None)?;
            last = clock::now() - begun;
            let is_own = matches!(self.plan.relay, RelayChoice::Own);
            if !is_own && stop.wait(Duration::from_secs(self.arguments.cool_down)) {
                return Ok(Some("it was interrupted"));
            }
        }
        Ok(None)
    }

    /// One probe; none if it was interrupted.
    fn probe(&mut self, load: u64, stop: &Stop) -> anyhow::Result<Option<Probe>> {
        self.fit(load)?;
        let mut progress = Progress::new();
        let outcome = run::run(&self.plan, &self.machine, stop, |line| {
            progress.show(&format!("{load}: {line}"));
        });
        progress.end();
        if stop.is_requested() {
            return Ok(None);
        }
        match outcome {
            Ok(archive) => {
                let report = archive.report;
                let probe = Probe::of(load, &report);
                let best = self.best.as_ref().map(Report::objects_delivered);
                if report.verdict.outcome.is_held()
                    && best.is_none_or(|best| report.objects_delivered() >= best)
                {
                    self.best = Some(report);
                }
                Ok(Some(probe))
            }
            // A relay that never let anyone in is not at its limit: something else is wrong.
            Err(error) if self.probes.is_empty() => Err(error),
            Err(error) => Ok(Some(Probe::failed(load, &format!("{error:#}")))),
        }
    }

    /// Makes the plan one for `load`. Each probe has a number of its own, so that objects of an earlier one that a
    /// relay kept do not count.
    fn fit(&mut self, load: u64) -> anyhow::Result<()> {
        self.plan.seed = self.plan.seed.wrapping_add(1);
        match self.recorded.dimension {
            Dimension::Subscribers => {
                self.plan.subscribers = usize::try_from(load).unwrap_or(usize::MAX);
            }
            Dimension::Meetings => {
                self.plan.meetings = Some(Meetings {
                    meetings: usize::try_from(load).unwrap_or(usize::MAX),
                    ..self.meetings
                });
            }
            Dimension::BitRate => {
                let bits = Duration::from_millis(load).as_secs_f64() * 1e6;
                self.plan.profile = load::with_bits_per_second(&self.profile, bits)
                    .with_context(|| format!("the profile cannot be scaled to {load} kbit/s"))?;
            }
        }
        Ok(())
    }

    fn record(&self, broken_off: Option<&str>) -> Record {
        Record::new(self.recorded.clone(), self.probes.clone(), broken_off)
    }

    fn write_record(&self, broken_off: Option<&str>) -> anyhow::Result<()> {
        let Some(file) = &self.arguments.run.json else {
            return Ok(());
        };
        // A search that is broken off while it writes must not lose what it had.
        let new = file.with_extension("new");
        write(&new, &self.record(broken_off).to_json())?;
        std::fs::rename(&new, file)
            .with_context(|| format!("{}: cannot be written", file.display()))
    }
}

fn resumed(file: &Path, search: &RecordedSearch) -> anyhow::Result<Vec<Probe>> {
    let name = || file.display().to_string();
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(name),
    };
    if text.is_empty() {
        return Ok(Vec::new());
    }
    Ok(Record::resume(&text, search).with_context(name)?.probes)
}

fn write(file: &PathBuf, text: &str) -> anyhow::Result<()> {
    std::fs::write(file, text).with_context(|| format!("{}: cannot be written", file.display()))
}

fn print(line: &str) -> anyhow::Result<()> {
    print_out(&format!("{line}\n"))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate of a profile is far from the ends"
)]
fn kilobits(bits: f64) -> u64 {
    (bits / 1e3).round() as u64
}

/// Clients of a meeting, unless --meetings and --clients-per-meeting say otherwise; as in the draft's scenario 3.
const CLIENTS_PER_MEETING: usize = 5;
/// A process has not many more sockets for their clients.
const MEETINGS_MAX: u64 = 5000;
/// Ten minutes: a longer probe is a run of its own.
const STEADY_SECONDS_MAX: u64 = 600;
