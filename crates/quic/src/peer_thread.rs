//! Connections to other endpoints of this process, each of which runs on a thread of its own.

pub(crate) mod connection;
pub(crate) mod endpoint;
