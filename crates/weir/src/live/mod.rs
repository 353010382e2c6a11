//! Live streams on real sockets, and the testbed for them.

pub(crate) mod browser;
pub(crate) mod conditions;
pub(crate) mod hosting;
pub(crate) mod inbox;
pub(crate) mod lab;
pub(crate) mod net;
pub(crate) mod profile;
pub(crate) mod watch;
