//! Sessions: who is connected, what each session may do, and how much of it.

pub(crate) mod admission;
pub(crate) mod authorization;
pub(crate) mod drain;
pub(crate) mod expiries;
pub(crate) mod load;
pub(crate) mod peer;
pub(crate) mod rate;
pub(crate) mod request_goaway;
