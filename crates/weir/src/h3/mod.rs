//! HTTP/3 on real sockets: weir's server, measurements of servers, and comparisons.

pub(crate) mod agent;
pub(crate) mod agents;
mod concurrency;
pub(crate) mod folder;
mod link;
mod measured;
pub(crate) mod measurement;
mod observation;
pub(crate) mod options;
mod order;
mod plan;
pub(crate) mod scenario;
pub(crate) mod server;
pub(crate) mod server_file;
pub(crate) mod server_rounds;
mod threads;
pub(crate) mod url;
