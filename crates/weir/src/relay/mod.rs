//! What operators need around the relay: its configuration, its measurements, its certificates, who may do what.
//!
//! The relay itself is the crate `weir-relay`; here is what it cannot do as a pure state machine.

pub(crate) mod config;
pub(crate) mod settings;
