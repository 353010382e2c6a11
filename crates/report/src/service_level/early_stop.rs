//! Early stop: finds the clauses that are clearly broken while a run still goes on.
//!
//! This is not a forecast: every object that is still due counts as if it will arrive in time. A clause counts as clearly
//! broken only if it is far beyond its bound. So runs close to the limit are measured to their end.

use serde::{Deserialize, Serialize};

use super::{Clause, JudgedClause, Metric, Operator, ServiceLevel, amount, quantile_ms};
use weir_histogram::Histogram;

/// The figures of a run so far, as far as its service level judges them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredSoFar {
    /// Objects due over the whole run, summed over all subscriptions.
    pub expected_objects: u64,
    /// Objects that have not arrived and are so late that subscribers have stopped waiting for them.
    pub overdue_objects: u64,
    /// Subscriptions that ended for good before their tracks did.
    pub failed: u64,
    /// All subscriptions.
    pub subscriptions: u64,
    /// Latency of the objects that have arrived.
    pub latency: Histogram,
}

impl MeasuredSoFar {
    /// Adds the figures of other subscribers of the same run.
    pub fn add(&mut self, other: &Self) {
        for (own, other) in [
            (&mut self.expected_objects, other.expected_objects),
            (&mut self.overdue_objects, other.overdue_objects),
            (&mut self.failed, other.failed),
            (&mut self.subscriptions, other.subscriptions),
        ] {
            *own = own.saturating_add(other);
        }
        self.latency.merge(&other.latency);
    }
}

impl ServiceLevel {
    /// Returns the clauses that are clearly broken, each with the value measured so far.
    pub fn clearly_broken(&self, so_far: &MeasuredSoFar) -> Vec<JudgedClause> {
        let clauses = self.clauses.iter();
        clauses
            .filter_map(|clause| clause.clearly_broken(so_far))
            .collect()
    }
}

impl Clause {
    fn clearly_broken(&self, so_far: &MeasuredSoFar) -> Option<JudgedClause> {
        // A count that only grows may still exceed a lower bound.
        match self.operator {
            Operator::AtMost | Operator::Below | Operator::Equal => {}
            Operator::AtLeast | Operator::Above => return None,
        }
        let measured = match self.metric {
            Metric::Loss => self.far_exceeded(
                so_far.overdue_objects,
                so_far.expected_objects,
                LOST_PERCENT_MIN,
            ),
            Metric::Failed => {
                self.far_exceeded(so_far.failed, so_far.subscriptions, FAILED_PERCENT_MIN)
            }
            Metric::Quantile(quantile) => self.too_slow(so_far, quantile),
            // The share of late objects may fall as more objects arrive, and so may the relay's CPU load.
            Metric::Late | Metric::Cpu => None,
        };
        Some(JudgedClause {
            text: self.to_string(),
            metric: self.name.to_owned(),
            limit: self.limit,
            measured: Some(measured?),
            unit: self.unit.symbol().to_owned(),
            held: Some(false),
        })
    }

    /// Returns the count in the clause's unit if it is at least `percent_min` of `whole`, and more than [`FAR_EXCEEDED`]
    /// times the bound.
    fn far_exceeded(&self, count: u64, whole: u64, percent_min: u64) -> Option<f64> {
        let measured = amount(count, whole, self.unit)?;
        let is_much = count.saturating_mul(100) >= whole.saturating_mul(percent_min);
        (is_much && count > 0 && measured > self.limit * FAR_EXCEEDED).then_some(measured)
    }

    /// Returns the quantile so far if so many objects took more than [`FAR_SLOWER`] times the bound that the quantile
    /// stays above the bound even if all other objects are fast.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a share of a count, one off does not matter"
    )]
    fn too_slow(&self, so_far: &MeasuredSoFar, quantile: f64) -> Option<f64> {
        let far_ms = self.limit * FAR_SLOWER;
        let buckets = so_far.latency.buckets();
        let slow: u64 = buckets
            .filter(|bucket| bucket.from.as_secs_f64() * 1e3 > far_ms)
            .map(|bucket| u64::from(bucket.count))
            .sum();
        let allowed = (1.0 - quantile) * so_far.expected_objects as f64;
        (slow > 0 && slow as f64 > allowed).then(|| quantile_ms(&so_far.latency, quantile))
    }
}

/// Multiple of the bound above which loss and failures are clearly beyond it.
const FAR_EXCEEDED: f64 = 2.0;
/// Multiple of the bound above which a latency is clearly beyond it.
const FAR_SLOWER: f64 = 4.0;
/// Least share of a run's objects, in per cent, whose loss ends the run. A smaller loss may be a single incident.
const LOST_PERCENT_MIN: u64 = 2;
/// Least share of subscriptions, in per cent, whose failure ends the run: the load is not the requested one.
const FAILED_PERCENT_MIN: u64 = 50;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn nothing_wrong() -> MeasuredSoFar {
        MeasuredSoFar {
            expected_objects: 10_000,
            overdue_objects: 0,
            failed: 0,
            subscriptions: 10,
            latency: Histogram::new(),
        }
    }

    fn clearly_broken(level: &str, so_far: &MeasuredSoFar) -> Vec<String> {
        let level: ServiceLevel = level.parse().unwrap();
        let clauses = level.clearly_broken(so_far);
        assert!(clauses.iter().all(JudgedClause::is_broken));
        clauses.into_iter().map(|clause| clause.text).collect()
    }

    #[test]
    fn loss_is_clearly_broken_at_twice_the_bound_and_two_per_cent_of_all() {
        let lost = |overdue_objects| MeasuredSoFar {
            overdue_objects,
            ..nothing_wrong()
        };
        assert_eq!(clearly_broken("loss=0", &lost(199)), Vec::<String>::new());
        assert_eq!(clearly_broken("loss=0", &lost(200)), ["loss=0"]);
        assert_eq!(clearly_broken("loss<=3%", &lost(600)), Vec::<String>::new());
        assert_eq!(clearly_broken("loss<=3%", &lost(601)), ["loss<=3%"]);
        assert_eq!(
            clearly_broken("loss>=1", &lost(9_999)),
            Vec::<String>::new()
        );
        assert_eq!(
            clearly_broken("p99<100ms", &lost(9_999)),
            Vec::<String>::new()
        );
        let nothing_expected = MeasuredSoFar {
            expected_objects: 0,
            ..nothing_wrong()
        };
        assert_eq!(
            clearly_broken("loss=0", &nothing_expected),
            Vec::<String>::new()
        );
    }

    #[test]
    fn failures_are_clearly_broken_when_half_of_the_subscriptions_failed() {
        let failed = |failed| MeasuredSoFar {
            failed,
            ..nothing_wrong()
        };
        assert_eq!(clearly_broken("failed=0", &failed(4)), Vec::<String>::new());
        assert_eq!(clearly_broken("failed=0,loss=0", &failed(5)), ["failed=0"]);
        assert_eq!(
            clearly_broken("failed<=30%", &failed(6)),
            Vec::<String>::new()
        );
        assert_eq!(clearly_broken("failed<=30%", &failed(7)), ["failed<=30%"]);
    }

    #[test]
    fn latency_is_clearly_broken_when_no_fast_object_can_mend_it() {
        let slow = |count: u64, ms| {
            let mut latency = Histogram::new();
            for _ in 0..count {
                latency.record(Duration::from_millis(ms));
            }
            MeasuredSoFar {
                latency,
                ..nothing_wrong()
            }
        };
        // A hundred of ten thousand objects may be slow, even if no other has arrived.
        let none = Vec::<String>::new();
        assert_eq!(clearly_broken("p99<100ms", &slow(100, 500)), none);
        assert_eq!(clearly_broken("p99<100ms", &slow(101, 500)), ["p99<100ms"]);
        assert_eq!(clearly_broken("p99<100ms", &slow(10_000, 390)), none);
        assert_eq!(clearly_broken("p50<=100ms", &slow(5_000, 500)), none);
        assert_eq!(
            clearly_broken("p50<=100ms", &slow(5_001, 500)),
            ["p50<=100ms"]
        );
        assert_eq!(clearly_broken("max<100ms", &slow(1, 500)), ["max<100ms"]);
        assert_eq!(clearly_broken("p99>100ms", &slow(10_000, 500)), none);
        let level: ServiceLevel = "p99<100ms".parse().unwrap();
        let clauses = level.clearly_broken(&slow(200, 500));
        assert_eq!(
            (clauses[0].measured, &*clauses[0].unit),
            (Some(500.0), "ms")
        );
    }

    #[test]
    fn cpu_load_and_late_objects_never_stop_a_run() {
        let mut latency = Histogram::new();
        (0..9_000).for_each(|_| latency.record(Duration::from_secs(9)));
        let bad = MeasuredSoFar {
            overdue_objects: 1_000,
            failed: 10,
            latency,
            ..nothing_wrong()
        };
        assert_eq!(clearly_broken("late=0,cpu<95%", &bad), Vec::<String>::new());
    }
}
