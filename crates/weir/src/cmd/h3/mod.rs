//! `weir h3`: HTTP/3 servers side by side.

mod serve;

use std::process::ExitCode;

use clap::Subcommand;

/// HTTP/3: a server.
#[derive(Debug, Subcommand)]
pub(crate) enum H3Command {
    /// Serve files over HTTP/3
    Serve(Box<serve::ServeArguments>),
}

pub(crate) fn run(command: &H3Command) -> anyhow::Result<ExitCode> {
    match command {
        H3Command::Serve(arguments) => serve::run(arguments),
    }
}
