//! The Request IDs of both endpoints: this endpoint's next ID, and the peer's used IDs [moqt-18 §10.1].

use std::collections::BTreeMap;

use crate::error::{SessionError, Violation};

/// One of the two endpoints of a connection.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Side {
    /// The endpoint that opened the connection; its Request IDs are even.
    Client,
    /// The endpoint that accepted the connection; its Request IDs are odd.
    Server,
}

impl Side {
    /// Returns the other endpoint.
    #[must_use]
    pub fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// Identifies a request of either endpoint; its parity tells which endpoint sent it.
///
/// In later drafts, the fetch that fills a subscription has no ID of its own. It gets the ID of the message that requested
/// it, with the highest bit set, which encodings leave out.
#[derive(Copy, Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RequestId(pub u64);

impl RequestId {
    const FILL: u64 = 1 << 63;

    /// Returns the ID of the fetch that fills a subscription as this request asks for.
    pub(crate) fn fill(self) -> Self {
        Self(self.0 | Self::FILL)
    }

    /// Returns whether the ID is that of a fill.
    pub(crate) fn is_fill(self) -> bool {
        self.0 & Self::FILL != 0
    }

    /// Returns the ID as encoded in a draft with fills.
    pub(crate) fn without_fill(self) -> u64 {
        self.0 & !Self::FILL
    }
}

/// Assigns this endpoint's Request IDs and checks the peer's.
///
/// Request streams arrive in any order, and so may the peer's IDs. Used IDs are kept as one contiguous run from the
/// start and a limited number of runs ahead of it.
#[derive(Debug)]
pub(super) struct RequestIds {
    side: Side,
    /// Ordinal of the next own request.
    next: u64,
    /// All ordinals of the peer below this one are used.
    contiguous: u64,
    /// Used runs ahead of `contiguous`, as start → end (exclusive); never adjacent.
    ahead: BTreeMap<u64, u64>,
    /// One above the largest ordinal the peer has used.
    end: u64,
    gaps_max: usize,
}

impl RequestIds {
    pub(super) fn new(side: Side, gaps_max: usize) -> Self {
        Self {
            side,
            next: 0,
            contiguous: 0,
            ahead: BTreeMap::new(),
            end: 0,
            gaps_max,
        }
    }

    /// Returns the next own Request ID.
    pub(super) fn next(&self) -> RequestId {
        RequestId(self.next * 2 + parity(self.side))
    }

    /// Takes the next own Request ID.
    pub(super) fn assign(&mut self) -> RequestId {
        let id = self.next();
        self.next += 1;
        id
    }

    /// Returns whether this endpoint has used the ID.
    pub(super) fn is_assigned(&self, id: RequestId) -> bool {
        id.0 % 2 == parity(self.side) && id.0 / 2 < self.next
    }

    /// Records an ID that the peer uses. Returns `Ok(true)` if a gap had to be closed for it.
    pub(super) fn accept(&mut self, id: RequestId) -> Result<bool, Violation> {
        if id.0 % 2 == parity(self.side) {
            return Err(invalid("Request ID with the parity of this endpoint"));
        }
        let ordinal = id.0 / 2;
        if self.is_used(ordinal) {
            return Err(invalid("Request ID used twice"));
        }
        self.end = self.end.max(ordinal + 1);
        self.insert(ordinal);
        let overflow = self.ahead.len() > self.gaps_max;
        if overflow {
            self.give_up_first_gap();
        }
        Ok(overflow)
    }

    /// Returns the smallest ID that the peer cannot have used, for a GOAWAY [moqt-18 §10.4].
    pub(super) fn first_unseen(&self) -> RequestId {
        let parity = parity(self.side.peer());
        RequestId(
            self.end
                .checked_mul(2)
                .map_or(u64::MAX - 1 + parity, |even| even + parity),
        )
    }

    fn is_used(&self, ordinal: u64) -> bool {
        ordinal < self.contiguous
            || self
                .ahead
                .range(..=ordinal)
                .next_back()
                .is_some_and(|(_, &end)| ordinal < end)
    }

    fn insert(&mut self, ordinal: u64) {
        let mut end = ordinal + 1;
        if let Some(joined) = self.ahead.remove(&end) {
            end = joined;
        }
        if ordinal == self.contiguous {
            self.contiguous = end;
            return;
        }
        match self.ahead.range_mut(..ordinal).next_back() {
            Some((_, run_end)) if *run_end == ordinal => *run_end = end,
            Some(_) | None => {
                self.ahead.insert(ordinal, end);
            }
        }
    }

    fn give_up_first_gap(&mut self) {
        if let Some((_, end)) = self.ahead.pop_first() {
            self.contiguous = end;
        }
    }
}

/// Returns the least significant bit of all Request IDs of a side.
pub(super) fn parity(side: Side) -> u64 {
    match side {
        Side::Client => 0,
        Side::Server => 1,
    }
}

fn invalid(reason: &'static str) -> Violation {
    SessionError::INVALID_REQUEST_ID.violation(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(gaps_max: usize) -> RequestIds {
        RequestIds::new(Side::Server, gaps_max)
    }

    #[test]
    fn own_ids_count_up_in_steps_of_two() {
        let mut ids = server(1);
        assert_eq!((ids.assign(), ids.assign()), (RequestId(1), RequestId(3)));
        assert!(ids.is_assigned(RequestId(3)));
        assert!(!ids.is_assigned(RequestId(5)) && !ids.is_assigned(RequestId(2)));
    }

    #[test]
    fn ids_may_come_in_any_order_but_once() {
        let mut ids = server(8);
        for id in [4, 0, 8, 2, 6] {
            assert_eq!(ids.accept(RequestId(id)), Ok(false), "{id}");
            assert!(ids.is_used(id / 2));
        }
        assert_eq!(ids.first_unseen(), RequestId(10));
        for id in [0, 2, 4, 6, 8] {
            let violation = ids.accept(RequestId(id)).unwrap_err();
            assert_eq!(violation.code, SessionError::INVALID_REQUEST_ID, "{id}");
        }
        assert!(ids.ahead.is_empty());
    }

    #[test]
    fn own_parity_is_a_violation() {
        assert!(server(8).accept(RequestId(1)).is_err());
        assert!(
            RequestIds::new(Side::Client, 8)
                .accept(RequestId(0))
                .is_err()
        );
    }

    #[test]
    fn the_largest_id_is_one_like_any_other() {
        let mut ids = RequestIds::new(Side::Client, 8);
        assert_eq!(ids.accept(RequestId(u64::MAX)), Ok(false));
        assert!(ids.accept(RequestId(u64::MAX)).is_err());
        assert_eq!(ids.first_unseen(), RequestId(u64::MAX));
    }

    #[test]
    fn gaps_are_bounded() {
        let mut ids = server(2);
        assert_eq!(ids.accept(RequestId(4)), Ok(false));
        assert_eq!(ids.accept(RequestId(8)), Ok(false), "at the limit");
        assert_eq!(
            ids.accept(RequestId(12)),
            Ok(true),
            "one past: 0 and 2 count as used"
        );
        assert!(ids.accept(RequestId(0)).is_err());
        assert_eq!(
            ids.accept(RequestId(6)),
            Ok(false),
            "the later gap is still open"
        );
    }
}
