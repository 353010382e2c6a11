//! `weir`: measure Media-over-QUIC relays; be one.

mod cmd;
#[cfg(test)]
mod documents;
mod event_loop;
mod h3;
mod harness;
mod live;
mod output;
mod progress;
mod relay;
mod results;
mod run;
mod signals;
mod time;
mod urls;

use std::process::ExitCode;

use clap::Parser as _;

/// Small objects come and go by the million: this allocator costs the load generator about a third less CPU
/// than the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match cmd::Arguments::parse().run() {
        Ok(code) => code,
        Err(error) => {
            output::print_error(&error);
            ExitCode::from(cmd::EXIT_ERROR)
        }
    }
}
