//! `weir h3`: HTTP/3 servers side by side.

mod bench;
mod compare;
mod serve;

use std::process::ExitCode;

use clap::Subcommand;

/// HTTP/3: a server, a load client, and several servers side by side.
#[derive(Debug, Subcommand)]
pub(crate) enum H3Command {
    /// Put load on an HTTP/3 server
    Bench(Box<bench::BenchArguments>),
    /// Measure several HTTP/3 servers in turns and put them in a table
    Compare(Box<compare::CompareArguments>),
    /// Serve files over HTTP/3
    Serve(Box<serve::ServeArguments>),
}

pub(crate) fn run(command: &H3Command) -> anyhow::Result<ExitCode> {
    match command {
        H3Command::Bench(arguments) => bench::run(arguments),
        H3Command::Compare(arguments) => compare::run(arguments),
        H3Command::Serve(arguments) => serve::run(arguments),
    }
}
