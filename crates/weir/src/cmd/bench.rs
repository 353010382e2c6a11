//! `weir bench`: measure a relay.

mod cores;
mod level;

use std::{
    io::IsTerminal as _,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use weir_bench::{
    limits::PROFILE_BYTES_MAX,
    profile::{Mode, Profile},
    publisher::PublishFlow,
    qperf::Wire,
    scenario::Roles,
    subscriber::SubscribeFlow,
};
use weir_moqt::token::Token;
use weir_report::relay::{Report, html, json, terminal};

use crate::{
    cmd::{archive_file, print_line, print_out, progress::Progress},
    run::{self, Machine, Meetings, Plan, Ran, RelayChoice, RelayUrl, TrustChoice, process},
    signals,
};

/// Benchmark a relay by draft-evens-moq-bench-00
///
/// Without --relay, weir's own relay is started on a core of its own. Exit code 0: the service level held;
/// 1: it broke, or the run says nothing, or could not be calibrated; 2: nothing was measured.
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchArguments {
    /// Profile in the INI form of the draft's Appendix A
    profile: PathBuf,
    /// Relay to measure, moqt://HOST:PORT[/PATH] or https://HOST:PORT[/PATH] for WebTransport
    #[arg(long, value_name = "URL", env = "WEIR_RELAY")]
    relay: Option<String>,
    /// Process of that relay, if it runs on this machine: its CPU and memory are watched
    #[arg(long, value_name = "PID", requires = "relay")]
    relay_pid: Option<u32>,
    /// The same by the name of its program, of which one process may run
    #[arg(
        long,
        value_name = "NAME",
        requires = "relay",
        conflicts_with = "relay_pid"
    )]
    relay_process: Option<String>,
    /// Prometheus metrics of that relay, http://HOST:PORT/PATH: how its counters grow is reported
    #[arg(long, value_name = "URL", requires = "relay", value_parser = metrics_url)]
    relay_metrics: Option<String>,
    /// Number of subscribers
    #[arg(long, value_name = "COUNT", default_value_t = 200)]
    subscribers: usize,
    /// Meetings instead of one publisher and its subscribers: every client publishes all tracks of the profile, and
    /// subscribes to those of all others of its meeting
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["subscribers", "role"])]
    pub(super) meetings: Option<usize>,
    /// Clients in each meeting [default: 5]
    #[arg(long, value_name = "COUNT")]
    clients_per_meeting: Option<usize>,
    /// What is done here, whatever the profile's `mode` says; the rest is another process's, with the same --seed
    #[arg(long, value_enum, value_name = "ROLE", requires = "relay")]
    role: Option<Role>,
    /// Clients started per second; 0 for all at once, a join storm [default: what the profile says, or 200]
    #[arg(long, value_name = "PER_SECOND")]
    ramp: Option<u32>,
    /// Seconds that every track sends, instead of the profile's own time
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
    /// How publishers offer their tracks
    #[arg(long, value_enum, default_value_t = Flow::Namespace, value_name = "FLOW")]
    publish_flow: Flow,
    /// How subscribers come to their tracks
    #[arg(long, value_enum, default_value_t = Discovery::Subscribe, value_name = "FLOW")]
    subscribe_flow: Discovery,
    /// Messages of the benchmark
    #[arg(long, value_enum, default_value_t = WireName::Draft, value_name = "FORM")]
    wire: WireName,
    /// Token that every client shows in SETUP and with its requests: @FILE, or the token itself, which other users of
    /// this machine can see
    #[arg(long, value_name = "TOKEN", env = "WEIR_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Begin the start delay at once instead of when all subscribers are served
    #[arg(long)]
    no_wait: bool,
    /// What the relay has to achieve [default: loss=0,failed=0,p99<100ms, as far as the profile lets that be seen]
    #[arg(long, value_name = "CLAUSES")]
    slo: Option<String>,
    /// Write the report as JSON
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Write the report as one HTML file
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Keep everything that was measured in one file, for `weir bench report`
    #[arg(long, value_name = "FILE")]
    pub(super) archive: Option<PathBuf>,
    /// Trust any certificate of the relay (its own relay needs no flag)
    #[arg(long, requires = "relay")]
    insecure: bool,
    /// Trust the certificates in this PEM file instead of the system's
    #[arg(
        long,
        value_name = "FILE",
        requires = "relay",
        conflicts_with = "insecure"
    )]
    ca: Option<PathBuf>,
    /// Trust the certificate with this SHA-256 hash, in hexadecimal digits, and no other
    #[arg(long, value_name = "HASH", requires = "relay", conflicts_with_all = ["insecure", "ca"])]
    certificate_hash: Option<String>,
    /// Allow a relay that is neither on this machine nor in a private network
    #[arg(long, requires = "relay")]
    allow_public: bool,
    /// Put the same load on a null relay afterwards, to prove that the generator could make it
    #[arg(long)]
    calibrate: bool,
    /// Waste this share of the time of each of the generator's threads, in per cent: to see that reports notice a slow
    /// generator
    #[arg(long, value_name = "PER_CENT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    waste_cpu: u32,
    /// Threads of weir's own relay
    #[arg(long, value_name = "COUNT", default_value_t = 1, conflicts_with = "relay", value_parser = clap::value_parser!(u16).range(1..=255))]
    relay_threads: u16,
    /// Cores of weir's own relay, one for each of its threads, with commas between; with --relay, those that it was
    /// started on: the null relay of --calibrate takes the first of them, and the generator none
    #[arg(
        long,
        alias = "relay-core",
        value_name = "CORES",
        value_delimiter = ','
    )]
    relay_cores: Vec<usize>,
    /// Core of the publishers [default: the first that the relay does not have]
    #[arg(long, value_name = "CORE")]
    publishers_core: Option<usize>,
    /// Core of the subscribers [default: the same]
    #[arg(long, value_name = "CORE")]
    subscribers_core: Option<usize>,
    /// A UDP socket for each subscriber instead of one for all
    #[arg(long)]
    socket_per_subscriber: bool,
    /// Seed of the synthetic content, and number of the run
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Flow {
    /// `PUBLISH_NAMESPACE`, and wait for SUBSCRIBE
    Namespace,
    /// PUBLISH for each track
    Publish,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Discovery {
    /// SUBSCRIBE for each track by its name
    Subscribe,
    /// `SUBSCRIBE_NAMESPACE`, and SUBSCRIBE for what the relay tells of
    Namespace,
    /// `SUBSCRIBE_TRACKS`, and the relay sends PUBLISH
    Tracks,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum WireName {
    /// Those of draft-evens-moq-bench-00
    Draft,
    /// Those of the older tool qperf, with one large first object in the whole run
    Qperf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Role {
    /// Publish only (mode 1)
    Publish,
    /// Subscribe only (mode 2)
    Subscribe,
    /// Both (mode 3)
    Both,
}

/// The 32 bytes of a hash.
pub(super) fn hash_of(text: &str) -> anyhow::Result<[u8; 32]> {
    let mut hash = [0; 32];
    let digits: Vec<u8> = text
        .chars()
        .filter(|character| *character != ':')
        .map(|character| {
            character
                .to_digit(16)
                .and_then(|digit| u8::try_from(digit).ok())
        })
        .collect::<Option<_>>()
        .filter(|digits: &Vec<u8>| digits.len() == 2 * hash.len())
        .context("expected 64 hexadecimal digits")?;
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    Ok(hash)
}

pub(crate) fn run(arguments: &BenchArguments) -> anyhow::Result<ExitCode> {
    let machine = Machine::this();
    let plan = plan(arguments, &machine)?;
    let files = [&arguments.json, &arguments.html, &arguments.archive];
    for file in files.into_iter().flatten() {
        check_writable(file)?;
    }
    let stop = signals::stop_on_signals()?;
    let mut progress = Progress::new();
    let ran = run::run(&plan, &machine, &stop, |moment| progress.show(moment));
    drop(progress);
    let Ran {
        archive,
        calibration_problem,
    } = ran?;
    if let Some(file) = &arguments.archive {
        archive_file::write(file, &archive)?;
    }
    let report = archive.report;
    write_out(arguments, &report)?;
    if let Some(problem) = &calibration_problem {
        print_line(&format!("weir: not calibrated: {problem}"));
    }
    let held = report.verdict.outcome.is_held();
    Ok(if held && calibration_problem.is_none() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Everything that can be wrong is found here, before anything is started.
pub(super) fn plan(arguments: &BenchArguments, machine: &Machine) -> anyhow::Result<Plan> {
    let name = arguments.profile.display().to_string();
    let mut profile = read_profile(&arguments.profile, &name)?;
    if let Some(seconds) = arguments.seconds {
        for track in &mut profile.tracks {
            track.duration = Duration::from_secs(seconds);
        }
    }
    let role = arguments.role.map(|role| match role {
        Role::Publish => Mode::Publisher,
        Role::Subscribe => Mode::Subscriber,
        Role::Both => Mode::Both,
    });
    if arguments.subscribers == 0 || arguments.subscribers > SUBSCRIBERS_MAX {
        bail!(
            "--subscribers: expected 1 to {SUBSCRIBERS_MAX}, not {}",
            arguments.subscribers
        );
    }
    if matches!(
        (arguments.publish_flow, arguments.subscribe_flow),
        (Flow::Namespace, Discovery::Tracks)
    ) {
        bail!(
            "--subscribe-flow tracks: SUBSCRIBE_TRACKS tells of published tracks only; say --publish-flow publish too"
        );
    }
    let meetings = meetings(arguments)?;
    if meetings.is_some() && profile.audience.is_unruly() {
        bail!("{name}: [audience]: clients of meetings neither read slowly nor come and go");
    }
    let relay = relay(arguments, machine)?;
    let wire = match arguments.wire {
        WireName::Draft => Wire::Draft,
        WireName::Qperf => Wire::Qperf,
    };
    let sight = level::Sight {
        profile: &profile,
        wire,
        relay: &relay,
        roles: Roles { given: role },
        is_meeting: meetings.is_some(),
    };
    let level = level::level(arguments.slo.as_deref(), sight)?;
    let cores = cores::choose(arguments, machine, &relay)?;
    let trust = match (&relay, &arguments.ca) {
        // Its certificate is made a moment before, for this run only.
        (RelayChoice::Own(_), _) => TrustChoice::Anyone,
        (RelayChoice::At { .. }, _) if arguments.insecure => TrustChoice::Anyone,
        (RelayChoice::At { .. }, file) => match &arguments.certificate_hash {
            Some(hash) => TrustChoice::Hash(hash_of(hash).context("--certificate-hash")?),
            None => TrustChoice::Roots(file.clone()),
        },
    };
    let joins_per_second = profile.audience.joins_per_second;
    let plan = Plan {
        profile_name: name,
        profile,
        relay,
        subscribers: arguments.subscribers,
        meetings,
        role,
        ramp_per_second: arguments
            .ramp
            .or(joins_per_second)
            .unwrap_or(JOINS_PER_SECOND),
        flow: match arguments.publish_flow {
            Flow::Namespace => PublishFlow::PublishNamespace,
            Flow::Publish => PublishFlow::Publish,
        },
        subscribe_flow: match arguments.subscribe_flow {
            Discovery::Subscribe => SubscribeFlow::Subscribe,
            Discovery::Namespace => SubscribeFlow::SubscribeNamespace,
            Discovery::Tracks => SubscribeFlow::SubscribeTracks,
        },
        drafts: run::protocols(),
        tokens: tokens(arguments)?,
        wire,
        level,
        seed: arguments.seed.map_or_else(random_seed, Ok)?,
        cores,
        socket_per_subscriber: arguments.socket_per_subscriber,
        no_wait: arguments.no_wait,
        trust,
        metrics_url: arguments.relay_metrics.clone(),
        unjudged: Duration::ZERO,
        ends_early: false,
        calibrate: arguments.calibrate,
        waste_percent: arguments.waste_cpu,
        command_line: command_line(),
    };
    if let Some(problem) = plan.calibration_problem().filter(|_| plan.calibrate) {
        bail!("--calibrate: {problem}");
    }
    Ok(plan)
}

/// Refuses a plan of which another process would do a part, where every run is one of its own.
pub(super) fn check_both_sides(plan: &Plan) -> anyhow::Result<()> {
    if let Some(one_sided) = plan.one_sided() {
        bail!(
            "{}: each run is one of its own, whose publishers and subscribers are in one process; say --role both",
            one_sided.named
        );
    }
    Ok(())
}

/// As in the draft's scenario 3.
const CLIENTS_PER_MEETING: usize = 5;

fn meetings(arguments: &BenchArguments) -> anyhow::Result<Option<Meetings>> {
    let Some(meetings) = arguments.meetings else {
        if arguments.clients_per_meeting.is_some() {
            bail!("--clients-per-meeting: goes with --meetings");
        }
        return Ok(None);
    };
    let clients_per_meeting = arguments.clients_per_meeting.unwrap_or(CLIENTS_PER_MEETING);
    let clients = meetings.saturating_mul(clients_per_meeting);
    if meetings == 0 || clients_per_meeting < 2 || clients > SUBSCRIBERS_MAX {
        bail!(
            "--meetings: expected at least one meeting of at least 2, and at most {SUBSCRIBERS_MAX} clients in all, \
             not {meetings} of {clients_per_meeting}"
        );
    }
    Ok(Some(Meetings {
        meetings,
        clients_per_meeting,
    }))
}

/// The token as it goes over the wire: of the type that is agreed on elsewhere. [moqt-18 §10.2.2]
fn tokens(arguments: &BenchArguments) -> anyhow::Result<Vec<Token>> {
    let Some(text) = &arguments.token else {
        return Ok(Vec::new());
    };
    let value = match text.strip_prefix('@') {
        Some(file) => std::fs::read(file).with_context(|| format!("--token: {file}"))?,
        None => text.clone().into_bytes(),
    };
    let value = value.trim_ascii().to_vec();
    if value.is_empty() || value.len() > TOKEN_BYTES_MAX {
        bail!("--token: expected 1 to {TOKEN_BYTES_MAX} bytes");
    }
    Ok(vec![Token::UseValue {
        token_type: 0,
        value: value.into(),
    }])
}

/// The command line for the report, which is passed on: without the token.
pub(super) fn command_line() -> String {
    let mut words = Vec::new();
    let mut is_token = false;
    for word in std::env::args() {
        words.push(match word.split_once('=') {
            _ if std::mem::take(&mut is_token) => "***".to_owned(),
            Some(("--token", _)) => "--token=***".to_owned(),
            Some(_) | None => word.clone(),
        });
        is_token = word == "--token";
    }
    words.join(" ")
}

fn read_profile(path: &Path, name: &str) -> anyhow::Result<Profile> {
    use std::io::Read as _;
    let file = std::fs::File::open(path).with_context(|| format!("{name}: cannot be opened"))?;
    let mut bytes = Vec::new();
    // One byte more than allowed is enough to know.
    let limit = PROFILE_BYTES_MAX as u64 + 1;
    file.take(limit)
        .read_to_end(&mut bytes)
        .with_context(|| format!("{name}: cannot be read"))?;
    Ok(Profile::parse(name, &bytes)?)
}

/// The relay that is measured.
fn relay(arguments: &BenchArguments, machine: &Machine) -> anyhow::Result<RelayChoice> {
    Ok(match &arguments.relay {
        None => RelayChoice::Own(cores::own_relay(arguments, machine)?),
        Some(url) => {
            let url: RelayUrl = url.parse().context("--relay")?;
            if !url.is_isolated() && !arguments.allow_public {
                bail!(
                    "--relay: {url} is not in a private network; a benchmark is an attack on a relay that \
                     serves others. If it is yours, say --allow-public"
                );
            }
            let by_name = arguments.relay_process.as_deref();
            let found = by_name.map(process::find).transpose();
            RelayChoice::At {
                url,
                pid: found.context("--relay-process")?.or(arguments.relay_pid),
                by_name: by_name.is_some(),
            }
        }
    })
}

fn random_seed() -> anyhow::Result<u64> {
    let mut seed = [0; 8];
    aws_lc_rs::rand::fill(&mut seed)
        .map_err(|_| anyhow::anyhow!("the system gives no random bytes"))?;
    Ok(u64::from_le_bytes(seed))
}

/// Finds out before the run whether its report can be written.
pub(super) fn check_writable(file: &Path) -> anyhow::Result<()> {
    let open = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(file);
    open.map(drop)
        .with_context(|| format!("{}: cannot be written", file.display()))
}

fn write_out(arguments: &BenchArguments, report: &Report) -> anyhow::Result<()> {
    let write = |file: &Path, text: String| {
        std::fs::write(file, text).with_context(|| format!("{}: cannot be written", file.display()))
    };
    if let Some(file) = &arguments.json {
        write(file, json::render(report))?;
    }
    if let Some(file) = &arguments.html {
        write(file, html::render(report))?;
    }
    print_report(report)
}

/// Shows a report on standard output, in colour on a terminal.
pub(super) fn print_report(report: &Report) -> anyhow::Result<()> {
    let (width, colour) = screen();
    print_out(&terminal::render(report, width, colour))
}

/// Columns of standard output, and whether it takes colour.
pub(super) fn screen() -> (usize, bool) {
    let is_terminal = std::io::stdout().is_terminal();
    let size = terminal_size::terminal_size().filter(|_| is_terminal);
    let width = size.map_or(PLAIN_WIDTH, |(width, _)| width.0.into());
    (width, is_terminal && std::env::var_os("NO_COLOR").is_none())
}

/// Clients that join in a second if nobody says otherwise.
const JOINS_PER_SECOND: u32 = 200;
/// Tokens travel in control messages, which have 64 KiB at most.
const TOKEN_BYTES_MAX: usize = 16 << 10;
fn metrics_url(text: &str) -> Result<String, String> {
    if text.starts_with("http://") {
        Ok(text.to_owned())
    } else {
        Err("expected http://HOST:PORT/PATH".to_owned())
    }
}

/// A single process has no more UDP ports than this per address.
const SUBSCRIBERS_MAX: usize = 50_000;
/// Columns when the report does not go to a terminal.
const PLAIN_WIDTH: usize = 100;
