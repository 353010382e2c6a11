//! The subcommands, one file each: they parse and wire, nothing else.

mod archive_file;
mod bench;
mod compare;
mod comparison_files;
mod find_max;
mod h3;
mod link;
mod live;
mod null_relay;
mod relay;
mod report;
mod token;

use std::{io::IsTerminal as _, path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use crate::run::options::RunOptions;

/// Measure Media-over-QUIC relays; be one.
#[derive(Debug, Parser)]
#[command(name = "weir", version, propagate_version = true)]
pub(crate) struct Arguments {
    /// What to log on standard error, e.g. `info` or `weir_relay=debug` [default: warn]
    #[arg(long, global = true, env = "WEIR_LOG", value_name = "FILTER")]
    log: Option<String>,
    #[command(subcommand)]
    command: Command,
}

// Variants have no doc comments: those of their arguments are the help of the commands.
#[derive(Debug, Subcommand)]
enum Command {
    Bench(Box<BenchCommand>),
    /// HTTP/3: a server, a load client, and a comparison of servers
    #[command(subcommand)]
    H3(h3::H3Command),
    Link(link::LinkArguments),
    /// Stream live video, and compare ways to do it
    #[command(subcommand)]
    Live(live::LiveCommand),
    /// Run a relay that does nothing but forward
    #[command(hide = true)]
    NullRelay(null_relay::NullRelayArguments),
    Relay(Box<relay::RelayArguments>),
    Token(token::TokenArguments),
}

/// Benchmark a relay by draft-evens-moq-bench-00
///
/// Without --relay, weir's own relay is started on a core of its own. Exit code 0: the service level held;
/// 1: it broke, the run is invalid or partial, or it could not be calibrated; 2: nothing was measured.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct BenchCommand {
    #[command(subcommand)]
    question: Option<Question>,
    /// Profile in the INI form of the draft's Appendix A
    #[arg(required = true)]
    profile: Option<PathBuf>,
    #[command(flatten)]
    options: RunOptions,
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
                let profile = profile.context("expected a PROFILE; see weir bench --help")?;
                bench::run(profile, &self.options, &self.outputs)
            }
        }
    }
}

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let log = self.log.as_deref();
        let is_live = matches!(self.command, Command::Live(_));
        let usual = if is_live { LIVE_LOG } else { "warn" };
        // The relay has settings for its log.
        if !matches!(self.command, Command::Relay(_) | Command::Token(_)) {
            start_log(log.unwrap_or(usual), LogFormat::Text);
        }
        match self.command {
            Command::Bench(arguments) => arguments.run(),
            Command::H3(command) => h3::run(&command),
            Command::Link(arguments) => link::run(&arguments),
            Command::Live(command) => live::run(&command),
            Command::NullRelay(arguments) => null_relay::run(&arguments),
            Command::Relay(arguments) => relay::run(&arguments, log),
            Command::Token(arguments) => token::run(arguments),
        }
    }
}

/// What live streams log unless told otherwise. The decoder of MP4 warns of each box that it does not expect, and a peer can send
/// many.
const LIVE_LOG: &str = "warn,mp4_atom=error";

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogFormat {
    /// For people.
    Text,
    /// One JSON object for each.
    Json,
}

/// Logs what `filter` lets through on standard error from now on.
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

/// Bad arguments, files or addresses: nothing was measured. (1 is a run whose service level broke.)
pub(crate) const EXIT_ERROR: u8 = 2;
