//! HTTP/3 servers side by side: our own server on real sockets.

pub(crate) mod folder;
pub(crate) mod serving;
