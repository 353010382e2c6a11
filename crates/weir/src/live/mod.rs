//! Live streams on real sockets, and the testbed for them.

pub(crate) mod browser;
pub(crate) mod hosting;
pub(crate) mod ingest_queue;
pub(crate) mod lab;
pub(crate) mod link_conditions;
pub(crate) mod network_profile;
pub(crate) mod player_page;
pub(crate) mod real_time;
