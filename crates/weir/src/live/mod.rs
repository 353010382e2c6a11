//! Live streams on real sockets, and the testbed for them.

pub(crate) mod agreement;
pub(crate) mod browser;
pub(crate) mod hosting;
pub(crate) mod ingest_queue;
pub(crate) mod lab;
pub(crate) mod link_conditions;
pub(crate) mod network_profile;
pub(crate) mod page;
pub(crate) mod player_page;
pub(crate) mod plot;
pub(crate) mod real_time;
pub(crate) mod summary;
pub(crate) mod table;
