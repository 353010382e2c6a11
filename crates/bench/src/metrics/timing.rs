//! The times of sending and arrival, compared with the plan.

use std::time::{Duration, Instant};

use crate::clock::{milliseconds, nanoseconds, signed_between, signed_nanoseconds};
use weir_histogram::Histogram;

/// Arrivals of one track: deltas and jitter.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrivals {
    /// The first and the last object in order of arrival.
    ends: Option<(Moment, Moment)>,
    count: u64,
    last_delta: Duration,
    max_delta: Duration,
    /// Interarrival jitter of RFC 3550 §6.4.1, in nanoseconds.
    jitter_ns: i64,
    pub(super) variance: Variance,
}

/// An object's arrival and its planned time since object zero.
#[derive(Clone, Copy, Debug)]
struct Moment {
    received: Instant,
    planned_ns: i64,
}

impl Arrivals {
    /// Records an object that arrives at `now` and was planned `planned_ns` after object zero. Returns its receive
    /// variance in nanoseconds, `(t − t0) − (n − n0)·interval` (decision 20), and its delta; `None` for the first object.
    pub(super) fn on_object(&mut self, now: Instant, planned_ns: u64) -> (i64, Option<u64>) {
        let planned_ns = i64::try_from(planned_ns).unwrap_or(i64::MAX);
        let moment = Moment {
            received: now,
            planned_ns,
        };
        let (first, previous) = self.ends.unwrap_or((moment, moment));
        let is_first = self.count == 0;
        if !is_first {
            // Deltas follow the order of arrival (decision 22).
            self.last_delta = now.saturating_duration_since(previous.received);
            self.max_delta = self.max_delta.max(self.last_delta);
            let transit_change_ns = signed_nanoseconds(self.last_delta)
                .saturating_sub(planned_ns - previous.planned_ns);
            self.jitter_ns += (transit_change_ns.saturating_abs() - self.jitter_ns) / 16;
        }
        self.count += 1;
        self.ends = Some((first, moment));
        let passed_ns = signed_between(first.received, now);
        let variance_ns = passed_ns.saturating_sub(planned_ns - first.planned_ns);
        self.variance.record(variance_ns);
        let delta_ns = (!is_first).then(|| nanoseconds(self.last_delta));
        (variance_ns, delta_ns)
    }

    /// Returns the time between the last two arrivals.
    pub(super) fn receive_delta_ms(&self) -> Option<f64> {
        (self.count > 1).then(|| milliseconds(signed_nanoseconds(self.last_delta)))
    }

    /// Returns the mean time between arrivals.
    pub(super) fn average_delta_ms(&self) -> Option<f64> {
        let gaps = self.count.checked_sub(1).filter(|gaps| *gaps > 0)?;
        Some(mean_ms(signed_nanoseconds(self.duration()), gaps))
    }

    /// Returns the longest time between two arrivals.
    pub(super) fn max_delta_ms(&self) -> Option<f64> {
        (self.count > 1).then(|| milliseconds(signed_nanoseconds(self.max_delta)))
    }

    /// Returns the time from the first arrival to the last.
    pub(super) fn duration(&self) -> Duration {
        let ends = self
            .ends
            .map(|(first, last)| (first.received, last.received));
        ends.map_or(Duration::ZERO, |(first, last)| {
            last.saturating_duration_since(first)
        })
    }

    pub(super) fn jitter_ms(&self) -> f64 {
        milliseconds(self.jitter_ns)
    }
}

/// Deviations from the plan: absolute values, drift, and the latest value (decision 21).
#[derive(Clone, Debug, Default)]
pub(super) struct Variance {
    signed_sum_ns: i64,
    last_ns: i64,
    absolute: Histogram,
}

impl Variance {
    fn record(&mut self, variance_ns: i64) {
        self.signed_sum_ns = self.signed_sum_ns.saturating_add(variance_ns);
        self.last_ns = variance_ns;
        self.absolute.record_ns(variance_ns.unsigned_abs());
    }

    pub(super) fn last_ms(&self) -> f64 {
        milliseconds(self.last_ns)
    }

    /// Returns the mean of the signed values: above zero, arrivals fell behind the plan.
    pub(super) fn drift_ms(&self) -> f64 {
        mean_ms(self.signed_sum_ns, self.absolute.count())
    }

    /// Returns the mean of the absolute values.
    pub(super) fn average_ms(&self) -> f64 {
        self.absolute
            .mean()
            .map_or(0.0, |mean| milliseconds(signed_nanoseconds(mean)))
    }

    pub(super) fn absolute(&self) -> &Histogram {
        &self.absolute
    }
}

/// Publisher variance by the publisher's own times: `ms_since_first − n·interval` (decision 19). It is the same for
/// every subscriber, so subscribers keep no histogram of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Punctuality {
    count: u64,
    signed_sum_ns: i64,
    absolute_sum_ns: u64,
    absolute_max_ns: u64,
    last_ns: i64,
}

impl Punctuality {
    /// Records an object sent `sent_ms` after the first and planned `planned_ns` after it. Returns its variance in
    /// nanoseconds.
    pub(super) fn on_object(&mut self, sent_ms: u32, planned_ns: u64) -> i64 {
        let sent_ns = signed_nanoseconds(Duration::from_millis(u64::from(sent_ms)));
        let variance_ns = sent_ns.saturating_sub_unsigned(planned_ns);
        self.count += 1;
        self.signed_sum_ns = self.signed_sum_ns.saturating_add(variance_ns);
        self.absolute_sum_ns = self
            .absolute_sum_ns
            .saturating_add(variance_ns.unsigned_abs());
        self.absolute_max_ns = self.absolute_max_ns.max(variance_ns.unsigned_abs());
        self.last_ns = variance_ns;
        variance_ns
    }

    pub(super) fn last_ms(&self) -> f64 {
        milliseconds(self.last_ns)
    }

    pub(super) fn drift_ms(&self) -> f64 {
        mean_ms(self.signed_sum_ns, self.count)
    }

    pub(super) fn average_ms(&self) -> f64 {
        mean_ms(
            i64::try_from(self.absolute_sum_ns).unwrap_or(i64::MAX),
            self.count,
        )
    }

    pub(super) fn max_ms(&self) -> f64 {
        milliseconds(i64::try_from(self.absolute_max_ns).unwrap_or(i64::MAX))
    }
}

/// Returns the nanoseconds from `earlier_ns` to `later_ns`, and whether the difference was negative. It can be if the
/// times come from two clocks.
pub(super) fn latency_ns(earlier_ns: u64, later_ns: u64) -> (u64, bool) {
    (later_ns.saturating_sub(earlier_ns), later_ns < earlier_ns)
}

/// Whether something took longer than `limit`.
pub(super) fn exceeds(ns: u64, limit: Duration) -> bool {
    ns > nanoseconds(limit)
}

/// Returns a sum of nanoseconds divided by `count`, in milliseconds; 0 if `count` is zero.
#[expect(clippy::cast_precision_loss, reason = "a printed figure")]
fn mean_ms(sum_ns: i64, count: u64) -> f64 {
    if count == 0 {
        0.0
    } else {
        sum_ns as f64 / count as f64 / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::any_instant;

    const MS: u64 = 1_000_000;

    fn close(left: f64, right: f64) -> bool {
        (left - right).abs() < 1e-9
    }

    #[test]
    fn variance_counts_from_the_first_arrival() {
        let origin = any_instant();
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.receive_delta_ms(), None);
        // Objects 5, 6, 8 and 7 of a track with a 20 ms interval.
        let variances: Vec<i64> = [(100, 100), (123, 120), (159, 160), (160, 140)]
            .map(|(received_ms, planned_ms)| {
                let now = origin + Duration::from_millis(received_ms);
                arrivals.on_object(now, planned_ms * MS).0
            })
            .to_vec();
        assert_eq!(variances, [0, 3_000_000, -1_000_000, 20_000_000]);
        assert!(close(arrivals.variance.average_ms(), 6.0));
        assert!(close(arrivals.variance.drift_ms(), 5.5));
        assert!(close(arrivals.variance.last_ms(), 20.0));
        assert_eq!(arrivals.receive_delta_ms(), Some(1.0));
        assert_eq!(arrivals.average_delta_ms(), Some(20.0));
        assert_eq!(arrivals.max_delta_ms(), Some(36.0));
        assert_eq!(arrivals.duration(), Duration::from_millis(60));
        // |D| is 3, 4 and 21 ms. Each changes the jitter by a sixteenth.
        let jitter = [3.0, 4.0, 21.0]
            .into_iter()
            .fold(0.0, |jitter, d| jitter + (d - jitter) / 16.0);
        assert!((arrivals.jitter_ms() - jitter).abs() < 1e-5);
    }

    #[test]
    fn punctuality_is_what_the_header_says_against_the_plan() {
        let mut punctuality = Punctuality::default();
        for (sent_ms, planned_ns) in [(0, 0), (34, 33_330_000), (66, 66_660_000)] {
            punctuality.on_object(sent_ms, planned_ns);
        }
        assert!(close(punctuality.last_ms(), -0.66));
        assert!(close(punctuality.drift_ms(), (0.67 - 0.66) / 3.0));
        assert!(close(punctuality.average_ms(), (0.67 + 0.66) / 3.0));
        assert!(close(punctuality.max_ms(), 0.67));
    }

    #[test]
    fn latency_never_runs_backwards() {
        assert_eq!(latency_ns(5, 8), (3, false));
        assert_eq!(latency_ns(8, 5), (0, true));
    }
}
