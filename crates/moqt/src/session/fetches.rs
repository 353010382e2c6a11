//! Own fetches that expect a data stream, and the state of that stream.

use std::collections::BTreeMap;

use super::request_ids::RequestId;
use crate::error::Violation;
use crate::parameter::GroupOrder;

/// The own fetches that wait for their data stream or its end.
#[derive(Debug, Default)]
pub(super) struct Fetches {
    table: BTreeMap<RequestId, State>,
}

/// The state of a fetch's data stream.
#[derive(Debug)]
enum State {
    /// The header has not come; groups will come in this order.
    AwaitingHeader(GroupOrder),
    /// The header has come, the end has not.
    Open,
}

impl Fetches {
    /// Expects the data stream of a fetch. If more than `fetches_max` are expected, the oldest is forgotten.
    pub(super) fn insert(&mut self, id: RequestId, order: GroupOrder, fetches_max: usize) {
        self.table.insert(id, State::AwaitingHeader(order));
        if self.table.len() > fetches_max {
            self.table.pop_first();
        }
    }

    /// Records the data stream of a fetch, which may have only one. Returns the order of its groups; `None` if the
    /// stream is not expected.
    pub(super) fn open(&mut self, id: RequestId) -> Result<Option<GroupOrder>, Violation> {
        let Some(state) = self.table.get_mut(&id) else {
            return Ok(None);
        };
        match std::mem::replace(state, State::Open) {
            State::AwaitingHeader(order) => Ok(Some(order)),
            State::Open => Err(Violation::protocol("a second stream for one fetch")),
        }
    }

    /// Stops expecting data.
    pub(super) fn remove(&mut self, id: RequestId) {
        self.table.remove(&id);
    }

    /// Returns whether a fetch expects data.
    pub(super) fn contains(&self, id: RequestId) -> bool {
        self.table.contains_key(&id)
    }

    /// How many fetches expect data.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }
}
