//! HTTP/3 servers side by side: our own server on real sockets, load on any, and comparisons of several.

pub(crate) mod folder;
pub(crate) mod measurement;
pub(crate) mod options;
mod plan;
pub(crate) mod server;
pub(crate) mod server_file;
pub(crate) mod server_rounds;
mod threads;
pub(crate) mod url;
