//! The command line.

use std::time::Duration;

use crate::arguments::{seconds, within};

/// What to send, to how many, and how long.
#[derive(clap::Parser)]
pub(crate) struct Options {
    #[arg(long, default_value_t = 500, value_parser = within(1..=10_000))]
    pub(crate) connections: usize,
    /// Payload of a datagram
    #[arg(long, default_value_t = 127, value_parser = within(1..=BYTES_MAX))]
    pub(crate) bytes: usize,
    /// How long it is measured
    #[arg(long, default_value = "10", value_parser = seconds)]
    pub(crate) seconds: Duration,
    /// Where the server runs
    #[arg(long, default_value_t = 0)]
    pub(crate) core: usize,
    #[arg(long)]
    pub(crate) json: bool,
    /// Cargo passes this to every benchmark
    #[arg(long = "bench", hide = true)]
    _bench: bool,
}

/// What fits into the first packets of any path (RFC 9000 §14.1), minus header and tag.
const BYTES_MAX: u64 = 1150;
