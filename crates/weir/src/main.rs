//! `weir`: measures Media over QUIC relays, is one, measures HTTP/3 servers, and streams live.

mod certificate_check;
mod cmd;
#[cfg(test)]
mod corpus;
#[cfg(test)]
mod documents;
mod event_loop;
mod file_kind;
mod h3;
mod harness;
mod hints;
mod live;
mod nats;
mod numbers;
mod output;
mod probe;
mod progress;
mod relay;
mod results;
mod run;
mod signals;
mod time;
mod urls;

use std::process::ExitCode;

/// Allocator for millions of small objects: the load generator needs about a third less CPU than with the system's. It counts what it
/// has given out, which the relay keeps within its limit.
#[global_allocator]
static ALLOCATOR: weir_net::CountingAllocator<mimalloc::MiMalloc> =
    weir_net::CountingAllocator(mimalloc::MiMalloc);

fn main() -> ExitCode {
    match cmd::Arguments::of_this_process().run() {
        Ok(code) => code,
        Err(error) => {
            output::print_error(&error);
            ExitCode::from(cmd::EXIT_ERROR)
        }
    }
}
