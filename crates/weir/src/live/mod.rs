//! The testbed for live streaming: profiles of links, runs in virtual time, and what came of them.

pub(crate) mod lab;
pub(crate) mod page;
pub(crate) mod profile;
