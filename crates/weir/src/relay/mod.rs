//! What operators need around the relay: its configuration, its measurements, its certificates, who may do what.
//!
//! The relay itself is the crate `weir-relay`; here is what it cannot do as a pure state machine.

pub(crate) mod authority;
pub(crate) mod certificates;
pub(crate) mod config;
pub(crate) mod http;
pub(crate) mod lifecycle;
pub(crate) mod metrics;
pub(crate) mod operations;
pub(crate) mod qlog;
pub(crate) mod settings;
pub(crate) mod snapshot;
pub(crate) mod systemd;
pub(crate) mod threads;
