//! The link emulator: one direction of a network path as a state machine.
//!
//! A packet takes three steps through a [`Link`]. It waits in a bounded drop-tail queue, is sent at the link's
//! [`Rate`], and travels for the link's [`Delay`]. After it is sent, it may be lost, duplicated or held back until
//! later packets have passed it.
//!
//! ```text
//! handle_packet ──▶ queue ──▶ rate ──▶ loss ──▶ duplication ──▶ delay ──▶ poll_packet
//!                   bottleneck.rs      wire.rs
//! ```
//!
//! The crate has no clock, no sockets and no dependencies. Time is an argument, every random choice derives from one
//! seed, and packets are opaque. Everything happens at its exact nanosecond, however rarely the link is polled, so
//! equal calls give equal deliveries. The crate does not model flows, ECN or active queue management.

mod bottleneck;
mod config;
mod link;
mod random;
mod rate;
mod stats;
mod transit;

pub use config::{
    Config, ConfigError, DELAY_MAX, Delay, GilbertElliott, Jitter, Loss, Probability, Queue,
    Reordering,
};
pub use link::Link;
pub use random::Random;
pub use rate::{Bitrate, OPPORTUNITIES_MAX, OPPORTUNITY_BYTES, Rate, Trace, TraceError};
pub use stats::Stats;
pub use transit::IN_FLIGHT_PACKETS_MAX;
