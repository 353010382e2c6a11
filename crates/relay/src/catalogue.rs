//! The catalogue: announced namespaces, interests in prefixes, offers and track status.

pub(crate) mod namespaces;
pub(crate) mod offers;
pub(crate) mod prefix_subscriptions;
pub(crate) mod track_status;
