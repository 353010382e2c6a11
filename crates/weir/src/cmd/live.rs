//! `weir live`: publishes and plays live streams, and compares ways to deliver them.

mod lab;
mod play;
mod publish;
mod watch;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use weir_client::target::Target;
use weir_live::strategy::Strategy;
use weir_moqt::name::Namespace;
use weir_quic::Congestion;

use crate::live::lab::{named_strategy, strategy_help, targeted_strategy};
use crate::run::{DraftArguments, RelayUrl, TrustArguments, client_target, resolver, token};
use crate::time::time;

#[derive(Debug, Subcommand)]
pub(crate) enum LiveCommand {
    Publish(publish::PublishArguments),
    Play(play::PlayArguments),
    Watch(watch::WatchArguments),
    Lab(Box<lab::LabArguments>),
}

pub(crate) fn run(command: &LiveCommand) -> anyhow::Result<ExitCode> {
    match command {
        LiveCommand::Publish(arguments) => publish::run(arguments),
        LiveCommand::Play(arguments) => play::run(arguments),
        LiveCommand::Watch(arguments) => watch::run(arguments),
        LiveCommand::Lab(arguments) => lab::run(arguments),
    }
}

// No doc comment: clap would show it as the help of the command.
#[derive(Debug, Args)]
struct TokenArgument {
    /// Token to show to the relay in SETUP, at most 16384 bytes: @FILE, or the token itself, which other users of this
    /// machine can then see
    #[arg(long, value_name = "TOKEN", env = "WEIR_TOKEN", hide_env_values = true)]
    token: Option<String>,
}

/// Returns how clients reach the relay at `url`, with the token of --token and the drafts of --draft.
fn target(
    url: &RelayUrl,
    trust: &TrustArguments,
    shown: &TokenArgument,
    draft: &DraftArguments,
) -> anyhow::Result<Target> {
    let (trust, protocols) = (trust.choice()?, draft.protocols());
    let mut target = client_target(url, &trust, &protocols)?;
    target.resolver = Some(resolver(url, &trust, &protocols));
    let shown = shown.token.as_deref().map(token).transpose()?;
    target.setup.authorization_tokens.extend(shown);
    Ok(target)
}

/// Parses the URLs that `flag` gives, and looks up the relays' addresses. An error contains no query: it may hold a token.
fn relay_url(flag: &'static str, text: &str) -> anyhow::Result<RelayUrl> {
    RelayUrl::list(text).context(flag)
}

/// Flags that choose how a stream is delivered.
#[derive(Clone, Debug, Args)]
struct StrategyArguments {
    #[arg(long, value_name = "NAME", help = strategy_help("Strategy of the publisher: which frames share a stream, which are sent first, and which a slow link gives up") + " [default: that of --preset, or weir]")]
    strategy: Option<String>,
    /// Latency that viewers accept, from 100ms to 10s, for the strategy `weir`: below 500ms, slow links cost frames that
    /// no other frame needs; below 1s, the ends of groups; from 1s on, whole groups [default: 500ms]
    #[arg(long, value_name = "TIME", value_parser = latency)]
    target: Option<Duration>,
}

impl StrategyArguments {
    /// Returns the name of the strategy, which the relay's make may decide.
    fn name(&self, draft: &DraftArguments) -> &str {
        let given = self.strategy.as_deref();
        given.or_else(|| draft.strategy()).unwrap_or("weir")
    }

    /// Whether no flag decides the delivery, so that the relay may.
    fn is_left_open(&self, draft: &DraftArguments) -> bool {
        self.target.is_none() && self.strategy.is_none() && draft.strategy().is_none()
    }

    /// Returns the strategy, or an error that names the flag.
    fn strategy(&self, draft: &DraftArguments) -> anyhow::Result<Box<dyn Strategy>> {
        let name = self.name(draft);
        named_strategy(name).context("--strategy")?;
        targeted_strategy(name, self.target)
    }
}

/// Parses a target of the latency.
fn latency(text: &str) -> Result<Duration, String> {
    let target = time(text)?;
    if (TARGET_MIN..=TARGET_MAX).contains(&target) {
        Ok(target)
    } else {
        Err("expected a time from 100ms to 10s".to_owned())
    }
}

/// The shortest target: about the player's buffer.
const TARGET_MIN: Duration = Duration::from_millis(100);
/// The longest target.
const TARGET_MAX: Duration = Duration::from_secs(10);

/// Parses a namespace with `/` between its fields.
fn namespace(text: &str) -> Result<Namespace, String> {
    Namespace::new(text.split('/').map(str::to_owned)).map_err(|error| error.to_string())
}

fn congestion(name: &str) -> Result<Congestion, String> {
    match name {
        "cubic" => Ok(Congestion::Cubic),
        "delay" => Ok(Congestion::LOW_LATENCY),
        _ => Err("expected cubic or delay".to_owned()),
    }
}
