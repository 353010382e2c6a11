//! The command line.

use std::time::Duration;

use crate::arguments::{seconds, within};
use crate::traffic::{PACKET_BYTES_MAX, PACKET_BYTES_MIN};

/// What to measure, and how long.
#[derive(clap::Parser)]
pub(crate) struct Options {
    /// UDP payload of a packet: header, sealed payload and tag
    #[arg(long, default_value_t = 160, value_parser = within(PACKET_BYTES_MIN as u64..=PACKET_BYTES_MAX as u64))]
    pub(crate) bytes: usize,
    #[arg(long, default_value_t = 1000, value_parser = within(1..=u64::MAX))]
    pub(crate) destinations: usize,
    /// CPU time of one measurement
    #[arg(long, default_value = "0.4", value_parser = seconds)]
    pub(crate) seconds: Duration,
    #[arg(long, default_value_t = 9, value_parser = within(1..=u64::MAX))]
    pub(crate) rounds: usize,
    #[arg(long, default_value_t = 0)]
    pub(crate) core: usize,
    #[arg(long)]
    pub(crate) json: bool,
    /// Cargo passes this to every benchmark
    #[arg(long = "bench", hide = true)]
    _bench: bool,
}
