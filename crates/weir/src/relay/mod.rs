//! Operation of the relay: settings, metrics, certificates, tokens, qlog, threads, and start and stop.
//!
//! The relay itself is the crate `weir-relay`, a pure state machine. This module does what needs files, sockets and
//! threads.

pub(crate) mod authority;
pub(crate) mod certificates;
pub(crate) mod config;
pub(crate) mod credentials;
pub(crate) mod fleet;
pub(crate) mod http;
pub(crate) mod lifecycle;
pub(crate) mod metrics;
pub(crate) mod operations;
pub(crate) mod qlog;
pub(crate) mod settings;
pub(crate) mod snapshot;
pub(crate) mod sources;
pub(crate) mod systemd;
pub(crate) mod threads;
pub(crate) mod upstreams;
