//! Processes that weir starts and observes: relays and HTTP/3 servers to measure, in interleaved rounds.

pub(crate) mod child;
pub(crate) mod contender;
pub(crate) mod machine;
pub(crate) mod namespace;
pub(crate) mod own_relay;
pub(crate) mod process;
pub(crate) mod processes;
pub(crate) mod rounds;
mod testbed;
pub(crate) mod udp;
pub(crate) mod workplace;
