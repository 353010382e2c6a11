//! FETCH: fetches that the relay serves, and fetches that it makes to fill its cache.

pub(crate) mod served;
pub(crate) mod serving;
pub(crate) mod upstream;
pub(crate) mod upstream_fetch;
