//! Delivery time-outs: how long objects and subgroups may take [moqt-18 §8].

use std::time::{Duration, Instant};

use weir_quic::Connection;

use crate::{delivery::deadlines::Due, track::subgroup::Subgroup};

/// How long objects and subgroups may take [moqt-18 §8]; `None` for as long as it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timeouts {
    /// From the first byte of an object on.
    pub(crate) object: Option<Duration>,
    /// From the end of a subgroup on.
    pub(crate) subgroup: Option<Duration>,
}

impl Timeouts {
    /// By when a stream has to arrive that has all of a subgroup, which its publisher has ended; `None` if that does not
    /// matter. The time of an object counts to its sending: what is not acknowledged when a round trip more has
    /// passed was sent, or would be sent again, when it was too late.
    pub(crate) fn due(
        &self,
        now: Instant,
        subgroup: &Subgroup,
        is_written: bool,
        connection: &Connection<'_>,
    ) -> Option<Due> {
        let of_subgroup = self.subgroup.zip(subgroup.finished_at());
        let of_object = self.object.zip(subgroup.last_received());
        let of_object = of_object.map(|(timeout, received)| received + timeout);
        // Else it was sent in time, and only the end of the stream is left.
        let of_object = of_object.filter(|due| is_written && *due > now);
        let of_object = of_object.map(|due| {
            let round_trip = connection.stats().round_trip;
            due + round_trip * 3 / 2 + ACKNOWLEDGEMENT_DELAY_MAX
        });
        let of_subgroup = of_subgroup.map(|(timeout, finished)| finished + timeout);
        let at = of_subgroup.into_iter().chain(of_object).min();
        at.map(Due::timeout)
    }
}

/// Whether the time of a subgroup is over that its publisher has ended.
pub(crate) fn is_over(now: Instant, subgroup: &Subgroup, timeouts: Timeouts) -> bool {
    let finished = timeouts.subgroup.and_then(|_| subgroup.finished_at());
    finished.is_some_and(|finished| is_late(now, finished, timeouts.subgroup))
}

/// Whether what was received at `received` has taken longer than `timeout`.
#[inline]
pub(crate) fn is_late(now: Instant, received: Instant, timeout: Option<Duration>) -> bool {
    timeout.is_some_and(|timeout| now.saturating_duration_since(received) > timeout)
}

/// The smaller of two time-outs, where none and zero mean that there is none [moqt-18 §8].
pub(crate) fn smaller(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    let set = |timeout: &Duration| !timeout.is_zero();
    match (one.filter(set), other.filter(set)) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// How long a peer may keep an acknowledgement to itself (RFC 9000 §18.2), and some for timers.
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
