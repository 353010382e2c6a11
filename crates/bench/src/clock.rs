//! The clock of a run: the host's instants as nanoseconds that objects can carry.

use std::time::{Duration, Instant};

/// Maps instants to nanoseconds. If publisher and subscriber run in one process they share this clock, and one-way
/// latency is exact (decision 34).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunClock {
    origin: Instant,
    origin_ns: u64,
}

impl RunClock {
    /// Returns a clock that reads `origin_ns` at `origin`. Processes that compare times must agree on the meaning of
    /// zero; within one process any number will do.
    pub fn new(origin: Instant, origin_ns: u64) -> Self {
        Self { origin, origin_ns }
    }

    /// Returns the instant from which the run's seconds are counted.
    pub fn origin(&self) -> Instant {
        self.origin
    }

    /// Returns the nanoseconds at `now`. An instant too early to be represented reads as zero.
    pub fn ns(&self, now: Instant) -> u64 {
        match now.checked_duration_since(self.origin) {
            Some(after) => self.origin_ns.saturating_add(nanoseconds(after)),
            None => self
                .origin_ns
                .saturating_sub(nanoseconds(self.origin.duration_since(now))),
        }
    }
}

/// Returns when client `number` starts if `per_second` clients start each second. Zero means that all start at once.
pub(crate) fn ramp_time(started: Instant, per_second: u32, number: u64) -> Instant {
    let ns = number.saturating_mul(1_000_000_000);
    started + Duration::from_nanos(ns.checked_div(per_second.into()).unwrap_or(0))
}

/// Returns a duration in nanoseconds, saturating at 584 years.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns a duration in signed nanoseconds, saturating at 292 years.
pub(crate) fn signed_nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// Returns the signed nanoseconds from `earlier` to `later`.
pub(crate) fn signed_between(earlier: Instant, later: Instant) -> i64 {
    match later.checked_duration_since(earlier) {
        Some(after) => signed_nanoseconds(after),
        None => -signed_nanoseconds(earlier.duration_since(later)),
    }
}

/// Returns a duration in milliseconds with its fraction, the unit of the draft's metrics.
#[expect(
    clippy::cast_precision_loss,
    reason = "2^53 ns are 104 days; a printed figure"
)]
pub(crate) fn milliseconds(ns: i64) -> f64 {
    ns as f64 / 1e6
}

/// Returns an instant that a test can count from.
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
