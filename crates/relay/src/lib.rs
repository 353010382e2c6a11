//! The MOQT relay: many sessions, the tracks between them, and the fan-out.
//!
//! It is sans-I/O: a host drives [`Relay`] as an [`App`](weir_quic::App). An object arrives once, is kept once and is
//! handed to each subscriber's connection without a copy. All subscribers know a track by the same Track Alias, so they
//! all receive the same bytes. Nothing is queued per subscriber: each has a cursor into the log of a subgroup, and a
//! limit on its lag.
//!
//! The relay knows neither media nor drafts.

mod authority;
mod cache;
mod catalogue;
mod config;
mod counters;
mod delivery;
mod dispatch;
mod effect;
mod fetch;
mod ids;
mod links;
mod load;
mod ownership;
pub mod registry;
mod relay;
mod sessions;
mod timers;
mod track;
mod turn;

#[cfg(test)]
mod tests;

pub use authority::{AccessToken, Authority, Credentials, Denial, Grant, Open, TokenMemo, Verdict};
pub use config::{Config, Limits};
pub use counters::{Counters, Gauges};
pub use dispatch::TrackState;
pub use links::{FleetRelay, FleetState, LinkCredentials, LinkState, Upstream, Whereabouts};
pub use load::{Excess, Load, LoadLimits, Overload, STANDING, Shedder};
pub use ownership::Ownership;
pub use relay::Relay;
