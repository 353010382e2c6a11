//! HTTP/3 servers side by side: our own server on real sockets, load on any, and comparisons of several.

pub(crate) mod comparing;
pub(crate) mod contenders;
pub(crate) mod folder;
mod hosting;
pub(crate) mod measuring;
pub(crate) mod namespace;
pub(crate) mod processes;
pub(crate) mod serving;
pub(crate) mod url;
