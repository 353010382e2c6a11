//! `weir live lab`: compares strategies over slow links.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::Args;
use serde_json::{Value, json};
use weir_link::Bitrate;
use weir_live::strategy;
use weir_quic::Congestion;
use weir_report::lab::{
    Disturbed, DrawnRun, FramesOf, Row, Thresholds, agreement, bound, frames_csv, frames_json,
    legend, page, table, undisturbed, verdicts,
};

use super::{congestion, latency, relay_url};
use crate::harness::machine::{Machine, MachineTime};
use crate::live::{
    browser,
    lab::{self, Run, RunningRelay, Task},
    link_conditions::Conditions,
    material::Material,
    network_profile::NetworkProfile,
    real_time,
};
use crate::numbers::{rate, whole};
use crate::output::{check_writable, exit_code, print_line, print_out, write_file, write_named};
use crate::results::{self, Section};
use crate::time::time;

/// Compare strategies over slow links, in virtual or real time
///
/// Each strategy delivers the frames of a real encode over each profile, through weir's relay and QUIC. In virtual time, the
/// same seed gives the same run. Tables show the median of all seeds; in brackets its 95 % confidence interval from 6 seeds
/// on, or the smallest and largest value.
#[derive(Debug, Args)]
pub(crate) struct LabArguments {
    /// Strategies, with commas between [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    strategies: Vec<String>,
    /// Profiles of the link's rate, with commas between: 500k, CASCADE, INTRA_CASCADE, SPIKE, SLOW_JITTERS, FAST_JITTERS, or
    /// files with a line RATE TIME for each step, such as 1200k 30s [default: all, or none with --trace or
    /// --rate]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    profiles: Vec<String>,
    /// Recorded rate of a link in Mahimahi's form: one line per packet of 1504 bytes, the time in ms at which the link
    /// carries it; repeats at its end. Replaces the built-in profiles, unless --profiles names some; can be repeated
    #[arg(long, value_name = "FILE")]
    trace: Vec<PathBuf>,
    /// Constant rates of the link, such as 700k, with commas between. They replace the built-in profiles, unless --profiles
    /// names some
    #[arg(long, value_delimiter = ',', value_name = "RATES", value_parser = rate)]
    rate: Vec<Bitrate>,
    /// Length of a run over a trace or a constant rate, up to 1day
    #[arg(long, default_value = "60s", value_name = "TIME", value_parser = time)]
    trace_time: Duration,
    /// Exit with 1 if `weir` is worse than `skip` in a row; with --agreement, if a real-time figure is outside its bound
    #[arg(long)]
    require: bool,
    /// Runs of each row, 1 to 1000, with seeds from 1 on
    #[arg(long, default_value_t = 1, value_name = "COUNT", value_parser = whole(1..=1000_u64))]
    seeds: u64,
    #[command(flatten)]
    conditions: Conditions,
    /// Vary delay, queue, jitter and loss, one after the other, instead of one link per profile
    #[arg(long)]
    sweep: bool,
    /// Congestion controllers of the relay, with commas between: cubic, delay
    #[arg(long, value_delimiter = ',', value_name = "NAMES", value_parser = congestion, default_value = "delay")]
    congestion: Vec<Congestion>,
    /// Targets of the latency for the strategy weir, from 100ms to 10s, with commas between [default: 500ms]
    #[arg(long, value_delimiter = ',', value_name = "TIMES", value_parser = latency)]
    target: Vec<Duration>,
    /// Run in real time over real sockets, all strategies over one profile at the same time
    #[arg(long)]
    net: bool,
    /// Run in real time with headless Chromium as the player, one run after the other; frames come from ffmpeg
    #[arg(long, conflicts_with_all = ["net", "sweep"])]
    browser: bool,
    /// Run in virtual and in real time (with --browser: in a browser too), and compare the figures
    #[arg(long, conflicts_with_all = ["net", "sweep"])]
    agreement: bool,
    /// Relays that run already, with commas between, each in place of weir's own, with its own controller: moqt:// or
    /// https://, or NAME=URL, which tables then name; any certificate is accepted
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "URLS",
        requires = "net",
        conflicts_with = "congestion"
    )]
    relay: Vec<String>,
    /// What to stream, with commas between: the committed traces life, zoom and scroll, files with H.264 video (ffmpeg repacks
    /// those without a frame in each fragment) or with a trace, and with --net ffmpeg, which encodes during the run
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "SOURCES",
        default_value = "life",
        conflicts_with = "browser"
    )]
    source: Vec<String>,
    /// A longer pause between two pictures is a freeze
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = time, conflicts_with = "browser")]
    freeze: Duration,
    /// A frame shown later than this after it was captured is not on time
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = time, conflicts_with = "browser")]
    deadline: Duration,
    /// Runs in virtual time at the same time, 1 to 1024 [default: one per core]
    #[arg(long, value_name = "COUNT", value_parser = whole(1..=1024_u64))]
    jobs: Option<u64>,
    /// Write charts and all figures to FILE, as one HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the figures of each run to FILE, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a row for each frame that players received to FILE, as CSV
    #[arg(long, value_name = "FILE")]
    frames_csv: Option<PathBuf>,
    /// Write the frames that players received to FILE, as JSON
    #[arg(long, value_name = "FILE")]
    frames_json: Option<PathBuf>,
    /// Replace the section of this command in a Markdown file, such as docs/results.md, and write its chart beside the file
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
}

impl LabArguments {
    /// Checks that the files that flags name can be written, before the first run.
    fn check_files(&self) -> anyhow::Result<()> {
        let reports = [&self.html, &self.json, &self.results];
        let frames = [&self.frames_csv, &self.frames_json];
        let mut files = reports.into_iter().chain(frames).flatten();
        files.try_for_each(|file| check_writable(file))
    }
}

/// A run, and its parameters.
struct Done {
    task: Task,
    run: Run,
}

pub(super) fn run(arguments: &LabArguments) -> anyhow::Result<ExitCode> {
    arguments.check_files()?;
    let tasks = || tasks(arguments, arguments.seeds);
    let mut before = Vec::new();
    let mut troubles = Troubles::default();
    if arguments.agreement {
        let seeds = arguments.seeds.max(VIRTUAL_SEEDS_MIN);
        before.push(rows(&virtually(arguments, self::tasks(arguments, seeds)?)?));
        if arguments.browser {
            before.push(rows(&really(tasks()?, &mut troubles)?));
        }
    }
    let done = if arguments.browser {
        // One at a time: two browsers would compete for the CPU.
        at_once(tasks()?, 1, |task| browser::run(task).map(Some))?
    } else if arguments.net || arguments.agreement {
        really(tasks()?, &mut troubles)?
    } else {
        virtually(arguments, tasks()?)?
    };
    let rows = rows(&done);
    let runs = rows.first().map_or(0, |row| row.runs.len());
    let mut text = format!("{}\n\n{}", legend(runs), table(&rows));
    let verdict = verdicts(&rows);
    if let Some((against_skip, _)) = &verdict {
        text.push('\n');
        text.push_str(AGAINST_SKIP);
        text.push_str(against_skip);
    }
    let mut holds = verdict.is_some_and(|(_, holds)| holds);
    if !before.is_empty() {
        let (compared, agrees) = agreement(&before, &rows);
        let (ways, last) = ways(arguments);
        let (bound, quiet) = (bound(), troubles.sentence());
        text = format!("{ways}:\n\n{compared}\n{bound}{quiet}\n\n{last} alone. {text}");
        holds = agrees;
    } else if arguments.net {
        let quiet = troubles.sentence();
        text = format!("{text}\n{}\n", quiet.trim_start());
    }
    print_out(&text)?;
    write_named(arguments.html.as_deref(), || {
        page(&rows, &drawn(&done), &command())
    })?;
    if let Some(path) = &arguments.json {
        let runs: Vec<_> = done.iter().map(json_of).collect();
        write_file(path, &serde_json::to_string_pretty(&runs)?)?;
    }
    let frames = || done.iter().map(frames_of).collect::<Vec<_>>();
    write_named(arguments.frames_csv.as_deref(), || frames_csv(&frames()))?;
    write_named(arguments.frames_json.as_deref(), || frames_json(&frames()))?;
    if let Some(path) = &arguments.results {
        let (name, heading) = section(arguments);
        let machine = Machine::this().words();
        let place = if arguments.net || arguments.browser || arguments.agreement {
            format!("on {machine}")
        } else {
            "in virtual time".to_owned()
        };
        let section = Section {
            name,
            heading,
            place: &place,
            command: &command(),
            body: &text,
        };
        results::write_section(path, &section)?;
    }
    Ok(exit_code(holds || !arguments.require))
}

/// Returns a run as `--json` has it.
fn json_of(Done { task, run }: &Done) -> Value {
    json!({
        "link": task.link,
        "controller": task.controller(),
        "strategy": task.label(),
        "seed": task.seed,
        "figures": run.figures,
    })
}

/// Returns the frames of a run.
fn frames_of(Done { task, run }: &Done) -> FramesOf {
    FramesOf {
        link: task.link.clone(),
        controller: task.controller(),
        strategy: task.label(),
        seed: task.seed,
        frames: run.records.clone(),
    }
}

/// Returns the name of the results' section, and its heading.
fn section(arguments: &LabArguments) -> (&'static str, &'static str) {
    match (arguments.net, arguments.sweep) {
        _ if !arguments.relay.is_empty() => ("live-relays", "Live streaming through other relays"),
        _ if arguments.browser => ("live-browser", "Live streaming to a browser"),
        _ if arguments.agreement => (
            "live-agreement",
            "Live streaming in virtual and in real time",
        ),
        (true, _) => ("live-net", "Live streaming in real time"),
        (false, false) if arguments.source != ["life"] => {
            ("live-sources", "Live streaming of other material")
        }
        (false, true) => ("live-sweep", "Live streaming over other links"),
        (false, false) => ("live-lab", "Live streaming in virtual time"),
    }
}

/// Describes the cells of an agreement, and names its last way.
fn ways(arguments: &LabArguments) -> (&'static str, &'static str) {
    if arguments.browser {
        let all = "Medians in virtual time / in real time / in a browser (difference from virtual time), times in seconds";
        (all, "The browser")
    } else {
        let all = "Medians in virtual time / in real time (difference from virtual time), times in seconds";
        (all, "Real time")
    }
}

/// The text before the table of requirements.
const AGAINST_SKIP: &str = "Medians of `weir` against `skip` with the same congestion controller. On each link, `weir` needs a target with a lower \
age, a longest freeze that is not longer, and as many frames shown (99 %):\n\n";

fn command() -> String {
    let command: Vec<String> = std::env::args().skip(1).collect();
    format!("weir {}", command.join(" "))
}

/// Least number of seeds in virtual time for --agreement: enough to show how much runs differ.
const VIRTUAL_SEEDS_MIN: u64 = 10;

/// Returns the parameters of all runs, in the order of the tables.
fn tasks(arguments: &LabArguments, seeds: u64) -> anyhow::Result<Vec<Task>> {
    let strategies: Vec<String> = if arguments.strategies.is_empty() {
        strategy::NAMES.map(str::to_owned).into()
    } else {
        arguments.strategies.clone()
    };
    for name in &strategies {
        lab::named_strategy(name).context("--strategies")?;
    }
    let is_there = |name: &str| strategies.iter().any(|one| one == name);
    ensure!(
        !arguments.require || arguments.agreement || is_there("weir") && is_there("skip"),
        "--require: compares weir with skip; --strategies must name both, or be left out"
    );
    let links = if arguments.sweep {
        arguments.conditions.sweep()
    } else {
        vec![(String::new(), arguments.conditions)]
    };
    let materials: Vec<Material> = arguments
        .source
        .iter()
        .map(|name| Material::find(name))
        .collect::<Result<_, _>>()?;
    let is_encoded = materials.iter().any(|one| matches!(one, Material::Encoder));
    ensure!(
        !is_encoded || arguments.net,
        "--source ffmpeg: needs --net; in virtual time nothing can be encoded"
    );
    let thresholds = Thresholds {
        freeze: arguments.freeze.as_secs_f64(),
        deadline: arguments.deadline.as_secs_f64(),
    };
    let deliveries = deliveries(&hops(arguments)?, &arguments.target, &strategies);
    let mut tasks = Vec::new();
    let profiles = profiles(arguments)?;
    let materials = materials.iter();
    for (material, profile) in
        materials.flat_map(|one| profiles.iter().map(move |profile| (one, profile)))
    {
        let of = material
            .label()
            .map_or_else(String::new, |name| format!("({name})"));
        for (differs, conditions) in &links {
            for ((relay, congestion), (strategy, target)) in &deliveries {
                for seed in 1..=seeds {
                    let name = [&*profile.name, &of, differs].join(" ");
                    let words: Vec<&str> = name.split_whitespace().collect();
                    tasks.push(Task {
                        profile: profile.clone(),
                        conditions: *conditions,
                        link: words.join(" "),
                        material: material.clone(),
                        thresholds,
                        strategy: strategy.clone(),
                        target: *target,
                        congestion: *congestion,
                        relay: relay.clone(),
                        seed,
                    });
                }
            }
        }
    }
    Ok(tasks)
}

/// The relay of a run, if it runs already, and the congestion controller of the relay and the origin that weir starts.
type Hop = (Option<RunningRelay>, Congestion);

/// Returns the relays that run already, or weir's with each controller.
fn hops(arguments: &LabArguments) -> anyhow::Result<Vec<Hop>> {
    if arguments.relay.is_empty() {
        let own = |congestion: &Congestion| (None, *congestion);
        return Ok(arguments.congestion.iter().map(own).collect());
    }
    let running = |text: &String| {
        let text = text.as_str();
        let named = text.split_once('=');
        let named = named.filter(|(name, _)| !name.contains("://"));
        let url = relay_url("--relay", named.map_or(text, |(_, url)| url))?;
        let name = named.map_or_else(|| url.to_string(), |(name, _)| name.to_owned());
        Ok((Some(RunningRelay { name, url }), Congestion::LOW_LATENCY))
    };
    arguments.relay.iter().map(running).collect()
}

/// A relay and controller, a strategy, and its target if not the default.
type Delivery = (Hop, (String, Option<Duration>));

/// Returns each strategy with each relay and controller, and `weir` with each target.
fn deliveries(hops: &[Hop], targets: &[Duration], strategies: &[String]) -> Vec<Delivery> {
    let mut targeted = Vec::new();
    for strategy in strategies {
        if strategy == "weir" && !targets.is_empty() {
            targeted.extend(
                targets
                    .iter()
                    .map(|target| (strategy.clone(), Some(*target))),
            );
        } else {
            targeted.push((strategy.clone(), None));
        }
    }
    let each = |hop: &Hop| {
        let hop = hop.clone();
        targeted.iter().map(move |one| (hop.clone(), one.clone()))
    };
    hops.iter().flat_map(each).collect()
}

fn profiles(arguments: &LabArguments) -> anyhow::Result<Vec<NetworkProfile>> {
    let mut profiles = Vec::new();
    let has_own = !arguments.trace.is_empty() || !arguments.rate.is_empty();
    let all = arguments.profiles.is_empty() && !has_own;
    let names: Vec<&str> = if all {
        NetworkProfile::names().collect()
    } else {
        arguments.profiles.iter().map(|name| &**name).collect()
    };
    for name in names {
        profiles.push(NetworkProfile::find(name).context("--profiles")?);
    }
    let constant = |rate: &Bitrate| NetworkProfile::constant(*rate, arguments.trace_time);
    profiles.extend(arguments.rate.iter().map(constant));
    for path in &arguments.trace {
        let profile = NetworkProfile::load(path, arguments.trace_time);
        profiles.push(profile.context("--trace")?);
    }
    Ok(profiles)
}

/// Makes runs in virtual time, several at once: runs do not influence each other.
fn virtually(arguments: &LabArguments, tasks: Vec<Task>) -> anyhow::Result<Vec<Done>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = arguments.jobs.and_then(|jobs| usize::try_from(jobs).ok());
    at_once(tasks, jobs.unwrap_or(cores), |task| {
        lab::run(task).map(Some)
    })
}

/// Makes runs in real time: all strategies over one link at the same time, unless ffmpeg encodes. A run that the hypervisor
/// disturbed is repeated. A run that fails through a relay of others is left out, so that it costs the other runs nothing.
/// Both are noted in `troubles`.
///
/// # Errors
/// A run through weir's own relay fails, or all runs do.
fn really(tasks: Vec<Task>, troubles: &mut Troubles) -> anyhow::Result<Vec<Done>> {
    let noted = Mutex::new(&mut *troubles);
    let is_encoded = |task: &Task| matches!(task.material, Material::Encoder);
    let jobs = if tasks.iter().any(is_encoded) {
        1
    } else {
        strategy::NAMES.len()
    };
    let done = at_once(tasks, jobs, |task| {
        let make = || {
            let (run, stolen) = MachineTime::stolen_during(|| real_time::run(task));
            anyhow::Ok((run?, stolen))
        };
        let made = undisturbed(make);
        let mut noted = noted.lock().map_err(|_| anyhow!("a run panicked"))?;
        match made {
            Ok((run, disturbed)) => {
                noted.disturbed.again += disturbed.again;
                noted.disturbed.kept += disturbed.kept;
                Ok(Some(run))
            }
            Err(problem) if task.relay.is_some() => {
                let (link, seed) = (&task.link, task.seed);
                let failed = format!(
                    "{} over {link}, seed {seed}: {problem:#}",
                    task.controller()
                );
                print_line(&format!("left out: the controller {failed}"));
                noted.failed.push(failed);
                Ok(None)
            }
            Err(problem) => Err(problem),
        }
    })?;
    match troubles.failed.first() {
        Some(failed) if done.is_empty() => bail!("every run failed; the first: {failed}"),
        _ => Ok(done),
    }
}

/// What a reader of the figures of runs in real time has to know.
#[derive(Debug, Default)]
struct Troubles {
    disturbed: Disturbed,
    /// The runs that failed, with the reason.
    failed: Vec<String>,
}

impl Troubles {
    /// Returns sentences with a blank before them.
    fn sentence(&self) -> String {
        let quiet = self.disturbed.sentence();
        match self.failed.len() {
            0 => quiet,
            count => format!(
                "{quiet} Runs that failed and are left out: {count} ({}).",
                self.failed.join("; ")
            ),
        }
    }
}

/// Makes all runs, up to `jobs` at once. Returns them in order, without those that `make` leaves out.
fn at_once(
    tasks: Vec<Task>,
    jobs: usize,
    make: impl Fn(&Task) -> anyhow::Result<Option<Run>> + Sync,
) -> anyhow::Result<Vec<Done>> {
    let count = tasks.len();
    let waiting = Mutex::new(tasks.into_iter().enumerate());
    let work = || {
        let mut done = Vec::new();
        loop {
            let next = waiting
                .lock()
                .map_err(|_| anyhow!("a run panicked"))?
                .next();
            let Some((place, task)) = next else {
                return anyhow::Ok(done);
            };
            let number = place + 1;
            print_line(&format!(
                "{number} of {count}: {} with the controller {} over {}, seed {}",
                task.label(),
                task.controller(),
                task.link,
                task.seed
            ));
            if let Some(run) = make(&task)? {
                done.push((place, Done { task, run }));
            }
        }
    };
    let mut all = Vec::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs.min(count)).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            all.extend(thread.join().map_err(|_| anyhow!("a run panicked"))??);
        }
        anyhow::Ok(())
    })?;
    all.sort_by_key(|(place, _)| *place);
    Ok(all.into_iter().map(|(_, done)| done).collect())
}

/// Groups runs that differ only in their seed.
fn rows(done: &[Done]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for Done { task, run } in done {
        let (controller, strategy) = (task.controller(), task.label());
        let is_same = |row: &Row| {
            row.link == task.link && row.controller == controller && row.strategy == strategy
        };
        match rows.last_mut() {
            Some(row) if is_same(row) => row.runs.push(run.figures.clone()),
            _ => rows.push(Row {
                link: task.link.clone(),
                controller,
                strategy,
                runs: vec![run.figures.clone()],
            }),
        }
    }
    rows
}

/// Returns the first run of each row, for the charts. Strategies are named with their controller if there are several.
fn drawn(done: &[Done]) -> Vec<DrawnRun> {
    let usual = done.first().map(|done| done.task.controller());
    let is_usual = |done: &Done| Some(done.task.controller()) == usual;
    let has_one = done.iter().all(is_usual);
    let first = done.iter().filter(|done| done.task.seed == 1);
    let drawn = first.map(|Done { task, run }| DrawnRun {
        link: task.link.clone(),
        strategy: if has_one {
            task.label()
        } else {
            format!("{}, {}", task.label(), task.controller())
        },
        latency_mean: run.figures.delays.unwrap_or_default().latency_mean,
        records: run.records.clone(),
        duration_s: task.profile.duration.as_secs_f64(),
    });
    drawn.collect()
}
