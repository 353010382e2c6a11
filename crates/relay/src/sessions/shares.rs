//! Shares of tables: how many tracks and namespaces the clients of one address may add, so that they leave room for others.

use weir_quic::{Counted, Handle, OriginCounts};

use crate::{ids::RequestKey, turn::Turn};

/// What requests have added, by the addresses of their clients. Loopback and links have none, and are not counted.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    tracks: OriginCounts,
    namespaces: OriginCounts,
}

impl Turn<'_> {
    /// Counts the track that a request of a session adds, until the result is dropped. `None` if the clients of its address
    /// have added `limits.relay.tracks_per_address_max`.
    pub(crate) fn add_track(&mut self, handle: Handle) -> Option<Counted> {
        let max = self.config.limits.tracks_per_address_max;
        let origin = self.sessions.get(handle)?.origin();
        self.sessions.shares.tracks.enter(origin, max)
    }

    /// Counts the namespace that a request adds, until the request ends. Returns false if the clients of its address have
    /// added `limits.relay.namespaces_per_address_max`.
    pub(crate) fn adds_namespace(&mut self, (handle, id): RequestKey) -> bool {
        let max = self.config.limits.namespaces_per_address_max;
        let counts = self.sessions.shares.namespaces.clone();
        let Some(peer) = self.sessions.get(handle) else {
            return false;
        };
        let counted = counts.enter(peer.origin(), max);
        let has_room = counted.is_some();
        peer.shares.extend(counted.map(|counted| (id, counted)));
        has_room
    }
}
