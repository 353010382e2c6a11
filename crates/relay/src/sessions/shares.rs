//! Shares of tables: how many tracks and namespaces the clients of one address may add, so that they leave room for others.

use weir_quic::OriginCounts;

use crate::{ids::RequestKey, turn::Turn};

/// What requests have added, by the addresses of their clients.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    tracks: OriginCounts,
    namespaces: OriginCounts,
}

impl Turn<'_> {
    /// Counts the track that a request adds, until the request ends. Returns false if the clients of its address have added
    /// `limits.relay.tracks_per_address_max`.
    pub(crate) fn adds_track(&mut self, id: RequestKey) -> bool {
        let counts = self.sessions.shares.tracks.clone();
        self.enter(id, &counts, self.config.limits.tracks_per_address_max)
    }

    /// Counts the namespace that a request adds, until the request ends. Returns false if the clients of its address have
    /// added `limits.relay.namespaces_per_address_max`.
    pub(crate) fn adds_namespace(&mut self, id: RequestKey) -> bool {
        let counts = self.sessions.shares.namespaces.clone();
        self.enter(id, &counts, self.config.limits.namespaces_per_address_max)
    }

    fn enter(&mut self, (handle, id): RequestKey, counts: &OriginCounts, max: usize) -> bool {
        let Some(peer) = self.sessions.get(handle) else {
            return false;
        };
        // Loopback and links have no origin, and are not counted.
        if peer.origin().is_none() {
            return true;
        }
        let counted = counts.enter(peer.origin(), max);
        let has_room = counted.is_some();
        peer.shares.extend(counted.map(|counted| (id, counted)));
        has_room
    }
}
