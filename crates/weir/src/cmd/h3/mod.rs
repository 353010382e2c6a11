//! `weir h3`: serves files over HTTP/3, and measures or compares HTTP/3 servers.

mod bench;
mod compare;
mod serve;

use std::process::ExitCode;

use clap::Subcommand;

/// The subcommands of `weir h3`.
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
