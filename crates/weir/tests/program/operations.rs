//! Operation of the relay: configuration, metrics, reloads, draining, credentials.

mod access;
mod admin;
pub(crate) mod client;
mod configuration;
mod measured;
mod moving;
mod panicking;
mod reload;
mod revoking;
mod upstream;
