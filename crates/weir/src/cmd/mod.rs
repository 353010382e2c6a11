//! The subcommands, one file each: flags, and the calls that they lead to.

mod agent;
mod archive_file;
mod bench;
mod compare;
mod comparison_files;
pub(crate) mod examples;
mod find_max;
mod h3;
mod link;
mod live;
mod null_relay;
mod probe;
mod relay;
mod report;
mod token;

use std::{io::IsTerminal as _, path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use clap::{
    Args, Command, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, error::ErrorKind,
};
use tracing_subscriber::EnvFilter;

use crate::{
    output,
    run::{fleet_flags::AgentsArguments, options::RunOptions},
};

/// Measure Media over QUIC relays, or run one; measure HTTP/3 servers; stream live
#[derive(Debug, Parser)]
#[command(name = "weir", version, propagate_version = true)]
pub(crate) struct Arguments {
    /// Log on standard error: a level (error, warn, info, debug, trace), or TARGET=LEVEL such as `weir_relay=debug`, or
    /// several with commas between [default: warn]
    #[arg(
        long,
        global = true,
        env = "WEIR_LOG",
        value_name = "FILTER",
        value_parser = log_filter,
        display_order = 900
    )]
    log: Option<String>,
    #[command(subcommand)]
    command: Job,
}

// Variants without a doc comment have the help of their arguments.
#[derive(Debug, Subcommand)]
enum Job {
    Agent(Box<agent::AgentArguments>),
    Bench(Box<BenchCommand>),
    /// Serve files over HTTP/3, measure an HTTP/3 server, or compare several
    #[command(subcommand)]
    H3(h3::H3Command),
    Link(link::LinkArguments),
    /// Publish, play or watch live video, or compare ways to deliver it
    #[command(subcommand)]
    Live(Box<live::LiveCommand>),
    /// Run a relay that only forwards, to calibrate the load generator
    #[command(hide = true)]
    NullRelay(null_relay::NullRelayArguments),
    Probe(Box<probe::ProbeArguments>),
    Relay(Box<relay::RelayArguments>),
    Token(token::TokenArguments),
}

/// Measure a MOQT relay by draft-evens-moq-bench-00
///
/// Without --relay, weir starts its own relay on a core of its own. Exit code 0: the service level held;
/// 1: the level broke, the run is invalid or partial, or its calibration could not be made; 2: nothing was measured.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct BenchCommand {
    #[command(subcommand)]
    question: Option<Question>,
    /// Profile: the tracks to send, in the INI form of the draft's Appendix A, such as profiles/audio.ini
    #[arg(required = true)]
    profile: Option<PathBuf>,
    #[command(flatten)]
    options: RunOptions,
    #[command(flatten)]
    agents: AgentsArguments,
    #[command(flatten)]
    outputs: bench::Outputs,
}

#[derive(Debug, Subcommand)]
enum Question {
    FindMax(Box<find_max::FindMaxArguments>),
    Compare(compare::CompareArguments),
    Report(report::ReportArguments),
}

impl BenchCommand {
    fn run(&self) -> anyhow::Result<ExitCode> {
        match &self.question {
            Some(Question::FindMax(arguments)) => find_max::run(arguments),
            Some(Question::Compare(arguments)) => compare::run(arguments),
            Some(Question::Report(arguments)) => report::run(arguments),
            None => {
                let profile = self.profile.as_deref();
                let profile = profile.context("PROFILE is missing: expected a file such as profiles/audio.ini; see `weir bench --help`")?;
                bench::run(profile, &self.options, &self.agents, &self.outputs)
            }
        }
    }
}

impl Arguments {
    /// Returns the definition of the program, with examples in the help of each command.
    pub(crate) fn definition() -> Command {
        examples::add(Self::command())
    }

    /// Returns the parsed command line. Ends the process for help, a version or bad arguments (code 2).
    pub(crate) fn of_this_process() -> Self {
        let matches = Self::definition().try_get_matches();
        match matches.and_then(|mut matches| Self::from_arg_matches_mut(&mut matches)) {
            Ok(arguments) => arguments,
            Err(error) => {
                let has_arguments = std::env::args_os().nth(1).is_some();
                if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                    && !has_arguments
                {
                    output::print_text(examples::FIRST_STEPS);
                    std::process::exit(EXIT_ERROR.into());
                }
                error.exit()
            }
        }
    }

    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let log = self.log.as_deref();
        let is_live = matches!(self.command, Job::Live(_));
        let default = if is_live { LIVE_LOG } else { DEFAULT_LOG };
        // The relay has settings for its log.
        if !matches!(self.command, Job::Relay(_) | Job::Token(_)) {
            start_log(log.unwrap_or(default), LogFormat::Text);
        }
        match self.command {
            Job::Agent(arguments) => agent::run(&arguments),
            Job::Bench(arguments) => arguments.run(),
            Job::H3(command) => h3::run(&command),
            Job::Link(arguments) => link::run(&arguments),
            Job::Live(command) => live::run(&command),
            Job::NullRelay(arguments) => null_relay::run(&arguments),
            Job::Probe(arguments) => probe::run(&arguments),
            Job::Relay(arguments) => relay::run(&arguments, log),
            Job::Token(arguments) => token::run(arguments),
        }
    }
}

/// The default log filter. What the NATS client logs comes as an error of the command too.
const DEFAULT_LOG: &str = "warn,async_nats=off";
/// The default log filter of `weir live`. The MP4 decoder warns of each unknown box, and a peer can send many.
const LIVE_LOG: &str = "warn,mp4_atom=error";

/// The form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Checks the filter of --log. Its error says what is expected.
fn log_filter(text: &str) -> Result<String, String> {
    match EnvFilter::try_new(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("expected a level (error, warn, info, debug, trace), or TARGET=LEVEL such as weir_relay=debug".to_owned()),
    }
}

/// Starts the log on standard error, with the messages that `filter` selects.
fn start_log(filter: &str, format: LogFormat) {
    let filter = EnvFilter::builder().parse_lossy(filter);
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
}

/// Exit code of bad arguments, files or addresses: nothing was measured. Code 1 is a service level that broke.
pub(crate) const EXIT_ERROR: u8 = 2;
