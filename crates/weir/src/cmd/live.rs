//! `weir live`: publishes and plays live streams, and compares ways to deliver them.

mod lab;
mod play;
mod publish;
mod watch;

use std::process::ExitCode;

use clap::Subcommand;
use weir_client::target::Target;
use weir_moqt::name::Namespace;
use weir_quic::Congestion;

use crate::run::{RelayUrl, TrustArguments, client_target};

#[derive(Debug, Subcommand)]
pub(crate) enum LiveCommand {
    Publish(publish::PublishArguments),
    Play(play::PlayArguments),
    Watch(watch::WatchArguments),
    Lab(lab::LabArguments),
}

pub(crate) fn run(command: &LiveCommand) -> anyhow::Result<ExitCode> {
    match command {
        LiveCommand::Publish(arguments) => publish::run(arguments),
        LiveCommand::Play(arguments) => play::run(arguments),
        LiveCommand::Watch(arguments) => watch::run(arguments),
        LiveCommand::Lab(arguments) => lab::run(arguments),
    }
}

impl TrustArguments {
    /// Returns how clients reach the relay at `url`.
    fn target(&self, url: &RelayUrl) -> anyhow::Result<Target> {
        client_target(url, &self.choice()?)
    }
}

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
