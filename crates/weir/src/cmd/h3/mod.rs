//! `weir h3`: HTTP/3 servers side by side.

mod bench;
mod compare;
mod serve;

use std::process::ExitCode;

use clap::Subcommand;

/// HTTP/3: a server, a load client, and several servers side by side.
#[derive(Debug, Subcommand)]
pub(crate) enum H3Command {
    Bench(Box<bench::BenchArguments>),
    Compare(Box<compare::CompareArguments>),
    Serve(Box<serve::ServeArguments>),
}

pub(crate) fn run(command: &H3Command) -> anyhow::Result<ExitCode> {
    match command {
        H3Command::Bench(arguments) => bench::run(arguments),
        H3Command::Compare(arguments) => compare::run(arguments),
        H3Command::Serve(arguments) => serve::run(arguments),
    }
}
