//! Delivery: subscriptions, and how objects reach them.

pub(crate) mod blocked_streams;
pub(crate) mod deadlines;
pub(crate) mod fan_out;
pub(crate) mod stream;
pub(crate) mod subscribe;
pub(crate) mod subscription;
pub(crate) mod timeouts;
