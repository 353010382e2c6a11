//! The run's clock: instants of the host as nanoseconds that can travel in an object.

use std::time::{Duration, Instant};

/// Maps instants to nanoseconds. Publishers and subscribers of one run share it, so that one-way
/// latency is exact when both are in one process (decision 34).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunClock {
    origin: Instant,
    origin_ns: u64,
}

impl RunClock {
    /// A clock that reads `origin_ns` at `origin`. Processes that are to understand each other's
    /// times agree on the meaning of zero; within one process any number will do.
    pub fn new(origin: Instant, origin_ns: u64) -> Self {
        Self { origin, origin_ns }
    }

    /// The instant from which the run's seconds are counted.
    pub fn origin(&self) -> Instant {
        self.origin
    }

    /// Nanoseconds at `now`; an instant before the origin by more than the clock's start reads zero.
    pub fn ns(&self, now: Instant) -> u64 {
        match now.checked_duration_since(self.origin) {
            Some(after) => self.origin_ns.saturating_add(nanoseconds(after)),
            None => self
                .origin_ns
                .saturating_sub(nanoseconds(self.origin.duration_since(now))),
        }
    }
}

/// When client `number` begins, of `per_second` that do, or of all that begin at once if that is zero.
pub(crate) fn ramp_time(started: Instant, per_second: u32, number: u64) -> Instant {
    let ns = number.saturating_mul(1_000_000_000);
    started + Duration::from_nanos(ns.checked_div(per_second.into()).unwrap_or(0))
}

/// A duration in nanoseconds; one beyond 584 years reads as the largest number.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A duration in nanoseconds, signed; one beyond 292 years reads as the largest number.
pub(crate) fn signed_nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// The signed nanoseconds from `earlier` to `later`.
pub(crate) fn signed_between(earlier: Instant, later: Instant) -> i64 {
    match later.checked_duration_since(earlier) {
        Some(after) => signed_nanoseconds(after),
        None => -signed_nanoseconds(earlier.duration_since(later)),
    }
}

/// A duration in milliseconds with its fraction, as the draft's metrics are printed.
#[expect(
    clippy::cast_precision_loss,
    reason = "2^53 ns are 104 days; a printed figure"
)]
pub(crate) fn milliseconds(ns: i64) -> f64 {
    ns as f64 / 1e6
}

/// An instant for a test to count from.
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "any instant serves as an origin")]
pub(crate) fn any_instant() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_sides_of_its_origin() {
        let earlier = any_instant();
        let origin = earlier + Duration::from_nanos(400);
        let clock = RunClock::new(origin, 1_000);
        assert_eq!(clock.ns(origin), 1_000);
        assert_eq!(clock.ns(origin + Duration::from_nanos(5)), 1_005);
        assert_eq!(clock.ns(earlier), 600);
        assert_eq!(RunClock::new(origin, 300).ns(earlier), 0);
    }
}
