//! HTTP/3 on real sockets: weir's server, measurements of servers, and comparisons.

pub(crate) mod folder;
pub(crate) mod measurement;
pub(crate) mod options;
mod plan;
pub(crate) mod server;
pub(crate) mod server_file;
pub(crate) mod server_rounds;
mod threads;
pub(crate) mod url;
