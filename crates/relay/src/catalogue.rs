//! The catalogue: announced namespaces, interests in prefixes, offers and track status.

pub(crate) mod interests;
pub(crate) mod namespaces;
pub(crate) mod offers;
pub(crate) mod track_status;
