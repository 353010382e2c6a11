//! The MOQT relay: many sessions, the tracks between them, and the fan-out.
//!
//! Pure: a host drives [`Relay`] as an [`App`](weir_quic::App). An object arrives once, is kept once and is handed
//! to each subscriber's connection without a copy: every subscriber knows a track by the same Track Alias, so
//! that the bytes of a datagram or of a piece of a stream are the same for all of them. What a subscriber
//! has not taken yet is not queued for it; it has a cursor into the one log of the subgroup, and the distance
//! is limited.
//!
//! It does not know media, and no draft: both are the business of others.

mod authority;
mod cache;
mod catalogue;
mod config;
mod counters;
mod delivery;
mod dispatch;
mod effect;
mod fetch;
mod inspection;
mod links;
mod relay;
mod sessions;
mod timers;
mod track;
mod turn;

#[cfg(test)]
mod tests;

pub use authority::{AccessToken, Authority, Credentials, Denial, Grant, Open};
pub use config::{Config, Limits};
pub use counters::{Counters, Gauges};
pub use inspection::TrackState;
pub use relay::Relay;
pub use sessions::load::{Load, LoadLimits, STANDING, Shedder};
