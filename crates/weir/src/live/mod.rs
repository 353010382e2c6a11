//! Live streams over real sockets, and the lab that plays them over emulated links.

pub(crate) mod browser;
pub(crate) mod connecting;
pub(crate) mod hosting;
pub(crate) mod ingest_queue;
pub(crate) mod lab;
pub(crate) mod link_conditions;
pub(crate) mod material;
pub(crate) mod network_profile;
pub(crate) mod player_page;
pub(crate) mod real_time;
