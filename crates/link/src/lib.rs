//! The link emulator: one direction of a network path as a state machine.
//!
//! A packet handed to a [`Link`] takes three steps. It waits in a bounded drop-tail queue, is put
//! on the wire at the link's [`Rate`], and travels for the link's [`Delay`]; on the wire it may be
//! lost, duplicated or held back until later packets have passed it.
//!
//! ```text
//! handle_packet ──▶ queue ──▶ rate ──▶ loss ──▶ duplication ──▶ delay ──▶ poll_packet
//!                   bottleneck.rs      wire.rs
//! ```
//!
//! The crate has no clock, no sockets and no dependencies: the time is an argument, every random
//! choice comes from one seed, and what a packet is does not matter here. Everything happens at its
//! exact nanosecond, however seldom the link is polled, so the same calls give the same deliveries
//! each time. It does not look into packets and knows nothing of flows, ECN or active queue
//! management.

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
