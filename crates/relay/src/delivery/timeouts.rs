//! Delivery timeouts of objects and subgroups [moqt-18 §8].

use std::time::{Duration, Instant};

use weir_quic::Connection;

use super::deadlines::Deadline;
use crate::track::Subgroup;

/// Delivery timeouts [moqt-18 §8]; `None` for no timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timeouts {
    /// Counts from the first byte of an object.
    pub(super) object: Option<Duration>,
    /// Counts from the end of a subgroup.
    pub(super) subgroup: Option<Duration>,
}

impl Timeouts {
    /// Returns the deadline of a stream whose subgroup is complete, `None` if it has none. The object timeout limits
    /// when an object is sent, which an acknowledgement shows a round trip later. Data without an acknowledgement by
    /// then was sent too late, or would be retransmitted too late.
    pub(super) fn due(
        &self,
        now: Instant,
        subgroup: &Subgroup,
        is_written: bool,
        connection: &Connection<'_>,
    ) -> Option<Deadline> {
        let of_subgroup = self.subgroup.zip(subgroup.finished_at());
        let of_object = self.object.zip(subgroup.last_received());
        let of_object = of_object.map(|(timeout, received)| received + timeout);
        // Otherwise the object was sent in time, and only the end of the stream is left.
        let of_object = of_object.filter(|due| is_written && *due > now);
        let of_object = of_object.map(|due| {
            let round_trip = connection.stats().round_trip;
            due + round_trip * 3 / 2 + ACKNOWLEDGEMENT_DELAY_MAX
        });
        let of_subgroup = of_subgroup.map(|(timeout, finished)| finished + timeout);
        let at = of_subgroup.into_iter().chain(of_object).min();
        at.map(Deadline::timeout)
    }
}

/// Returns whether the timeout of a subgroup that its publisher has ended is over.
pub(super) fn is_over(now: Instant, subgroup: &Subgroup, timeouts: Timeouts) -> bool {
    let finished = timeouts.subgroup.and_then(|_| subgroup.finished_at());
    finished.is_some_and(|finished| is_late(now, finished, timeouts.subgroup))
}

/// Returns whether `timeout` has passed since `received`.
#[inline]
pub(super) fn is_late(now: Instant, received: Instant, timeout: Option<Duration>) -> bool {
    timeout.is_some_and(|timeout| now.saturating_duration_since(received) > timeout)
}

/// Returns the smaller of two timeouts; `None` and zero mean no timeout [moqt-18 §8].
pub(super) fn smaller(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    let set = |timeout: &Duration| !timeout.is_zero();
    match (one.filter(set), other.filter(set)) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// The largest delay of an acknowledgement (RFC 9000 §18.2), and some time for timers.
const ACKNOWLEDGEMENT_DELAY_MAX: Duration = Duration::from_millis(40);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_outs_combine_to_the_smaller_one() {
        let (short, long) = (Duration::from_millis(1), Duration::from_secs(1));
        assert_eq!(smaller(None, None), None);
        assert_eq!(smaller(Some(Duration::ZERO), Some(long)), Some(long));
        assert_eq!(smaller(Some(short), Some(long)), Some(short));
        assert_eq!(smaller(Some(short), None), Some(short));
    }
}
