//! When the authorization of the requests of one session expires.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use weir_moqt::session::RequestId;

/// The expiry of requests, by request and by time; most requests have none.
#[derive(Debug, Default)]
pub(crate) struct Expiries {
    of_requests: BTreeMap<RequestId, Instant>,
    by_time: BTreeSet<(Instant, RequestId)>,
}

impl Expiries {
    /// Replaces the expiry of a request; `None` if it does not expire.
    pub(crate) fn set(&mut self, request: RequestId, at: Option<Instant>) {
        self.remove(request);
        if let Some(at) = at {
            self.of_requests.insert(request, at);
            self.by_time.insert((at, request));
        }
    }

    /// Removes a request that is over.
    pub(crate) fn remove(&mut self, request: RequestId) {
        if let Some(at) = self.of_requests.remove(&request) {
            self.by_time.remove(&(at, request));
        }
    }

    /// Returns when a request expires.
    pub(crate) fn get(&self, request: RequestId) -> Option<Instant> {
        self.of_requests.get(&request).copied()
    }

    /// Returns the earliest expiry.
    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.by_time.first().map(|&(at, _)| at)
    }

    /// Takes a request that has expired, if there is one.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<RequestId> {
        let &(at, request) = self.by_time.first()?;
        if at > now {
            return None;
        }
        self.remove(request);
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tests::epoch;

    #[test]
    fn requests_end_in_the_order_of_their_times() {
        let start = epoch();
        let at = |secs| start + Duration::from_secs(secs);
        let mut expiries = Expiries::default();
        for (request, secs) in [(0, 9), (2, 5), (4, 5), (6, 7)] {
            expiries.set(RequestId(request), Some(at(secs)));
        }
        expiries.set(RequestId(0), Some(at(6)));
        expiries.set(RequestId(6), None);
        expiries.set(RequestId(8), None);
        assert_eq!(expiries.get(RequestId(0)), Some(at(6)));
        assert_eq!(expiries.get(RequestId(6)), None);
        assert_eq!(expiries.earliest(), Some(at(5)));
        assert_eq!(expiries.pop_due(at(4)), None);
        assert_eq!(expiries.pop_due(at(5)), Some(RequestId(2)));
        expiries.remove(RequestId(4));
        assert_eq!(expiries.pop_due(at(5)), None);
        assert_eq!(expiries.pop_due(at(8)), Some(RequestId(0)));
        assert_eq!(expiries.earliest(), None);
        assert_eq!(expiries.of_requests.len(), expiries.by_time.len());
    }
}
