//! The MOQT relay: many sessions, the tracks between them, and the fan-out.
//!
//! Pure: a host drives [`Relay`] as an [`App`](weir_quic::App). An object arrives once, is kept once and is handed
//! to each subscriber's connection without a copy: every subscriber knows a track by the same Track Alias, so
//! that the bytes of a datagram or of a piece of a stream are the same for all of them. What a subscriber
//! has not taken yet is not queued for it; it has a cursor into the one log of the subgroup, and the distance
//! is limited.
//!
//! It does not know media, and no draft: both are the business of others.

mod authorising;
mod authority;
mod cache;
mod caching;
mod config;
mod counters;
mod deliveries;
mod discovering;
mod draining;
mod duplicates;
mod ending;
mod ends;
mod expiries;
mod feeder;
mod feeding;
mod fetch;
mod fetching;
mod full_streams;
mod gaps;
mod incoming;
mod inspection;
mod load;
mod malformed;
mod moving;
mod namespaces;
mod neighbours;
mod newcomers;
mod offering;
mod out_stream;
mod outgoing;
mod peer;
mod publishing;
mod rate;
mod relay;
mod restarting;
mod standing;
mod subgroup;
mod subscriber;
mod subscribing;
mod timeouts;
mod timers;
mod track;
mod tracks;

#[cfg(test)]
mod tests;

pub use authority::{AccessToken, Authority, Credentials, Denial, Grant, Open};
pub use config::{Config, Limits};
pub use counters::{Counters, Gauges};
pub use inspection::TrackState;
pub use load::{Load, LoadLimits, STANDING, Shedder};
pub use relay::Relay;
