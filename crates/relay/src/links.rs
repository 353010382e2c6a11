//! Links: other relays that this relay exchanges tracks with.

pub(crate) mod peer_threads;
