//! Processes that weir starts and watches: relays and HTTP/3 servers to measure, its own or others, and what `/proc` says of
//! them.

pub(crate) mod groups;
pub(crate) mod machine;
pub(crate) mod namespace;
pub(crate) mod own_relay;
pub(crate) mod process;
pub(crate) mod processes;
pub(crate) mod relays;
pub(crate) mod servers;
