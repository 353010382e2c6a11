//! The connections of a client, by handle.

use std::time::Instant;

use weir_quic::Handle;

use super::connection::{Connection, Stage};

/// A table of connections.
#[derive(Debug, Default)]
pub(super) struct Connections {
    by_index: Vec<Option<Connection>>,
    open: usize,
}

impl Connections {
    /// Returns the number of connections.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Counts the connections in handshake. Visits all connections.
    pub(super) fn unfinished(&self) -> u64 {
        let open = self.by_index.iter().flatten();
        open.filter(|connection| connection.stage != Stage::Open)
            .count() as u64
    }

    /// Counts the connections on which the server has allowed no request since `since` or longer. Visits all
    /// connections.
    pub(super) fn unusable(&self, since: Instant) -> u64 {
        let open = self.by_index.iter().flatten();
        open.filter(|one| one.is_stuck() && one.is_unused() && one.begun <= since)
            .count() as u64
    }

    pub(super) fn insert(&mut self, connection: Connection) {
        let index = connection.handle.index();
        if self.by_index.len() <= index {
            self.by_index.resize_with(index + 1, || None);
        }
        let before = self.by_index[index].replace(connection);
        self.open += usize::from(before.is_none());
    }

    #[inline]
    pub(super) fn find(&mut self, handle: Handle) -> Option<&mut Connection> {
        let entry = self.by_index.get_mut(handle.index())?.as_mut()?;
        (entry.handle == handle).then_some(entry)
    }

    pub(super) fn remove(&mut self, handle: Handle) {
        if self.find(handle).is_some() {
            self.by_index[handle.index()] = None;
            self.open -= 1;
        }
    }

    pub(super) fn clear(&mut self) {
        self.by_index.clear();
        self.open = 0;
    }
}
