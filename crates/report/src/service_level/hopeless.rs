//! Clauses that cannot hold any more, while a run still goes on.
//!
//! It is *not* a forecast: all that is to come is taken to come in time. And it is not in a hurry: a clause is given up
//! where it is broken by far, so that close to a limit every run is measured in whole.

use super::{Clause, JudgedClause, Metric, Operator, ServiceLevel, amount, quantile_ms};
use weir_histogram::Histogram;

/// What is known of a run in its midst, of what its service level judges.
#[derive(Clone, Debug)]
pub struct Midway {
    /// Objects that are due over the whole run, at all subscriptions.
    pub expected_objects: u64,
    /// Objects that were due so long ago that nobody waits for them any more, and have not arrived.
    pub overdue_objects: u64,
    /// Subscriptions that are over for good before their tracks are.
    pub failed: u64,
    /// Subscriptions in all.
    pub subscriptions: u64,
    /// Latency of what has arrived.
    pub latency: Histogram,
}

impl ServiceLevel {
    /// The clauses that cannot hold any more, and by far, with what was measured so far.
    pub fn hopeless(&self, midway: &Midway) -> Vec<JudgedClause> {
        let clauses = self.clauses.iter();
        clauses
            .filter_map(|clause| clause.hopeless(midway))
            .collect()
    }
}

impl Clause {
    fn hopeless(&self, midway: &Midway) -> Option<JudgedClause> {
        // What only grows can come to be above a limit yet.
        match self.operator {
            Operator::AtMost | Operator::Below | Operator::Equal => {}
            Operator::AtLeast | Operator::Above => return None,
        }
        let measured = match self.metric {
            Metric::Loss => self.outgrown(
                midway.overdue_objects,
                midway.expected_objects,
                LOST_PERCENT_MIN,
            ),
            Metric::Failed => {
                self.outgrown(midway.failed, midway.subscriptions, FAILED_PERCENT_MIN)
            }
            Metric::Quantile(quantile) => self.too_slow(midway, quantile),
            // What is late may be little of what is to come, and the relay's load may fall.
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

    /// A count that is beyond the limit by far, and a good share of the whole.
    fn outgrown(&self, count: u64, whole: u64, percent_min: u64) -> Option<f64> {
        let measured = amount(count, whole, self.unit)?;
        let is_much = count.saturating_mul(100) >= whole.saturating_mul(percent_min);
        (is_much && count > 0 && measured > self.limit * OUTGROWN).then_some(measured)
    }

    /// The quantile so far, if so many objects were slower than the limit by far that it stays above, though all to come
    /// be quick.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a share of a count, one off does not matter"
    )]
    fn too_slow(&self, midway: &Midway, quantile: f64) -> Option<f64> {
        let far_ms = self.limit * SLOWER;
        let buckets = midway.latency.buckets();
        let slow: u64 = buckets
            .filter(|bucket| bucket.from.as_secs_f64() * 1e3 > far_ms)
            .map(|bucket| u64::from(bucket.count))
            .sum();
        let allowed = (1.0 - quantile) * midway.expected_objects as f64;
        (slow > 0 && slow as f64 > allowed).then(|| quantile_ms(&midway.latency, quantile))
    }
}

/// Loss and failures are beyond a limit by far at twice of it.
const OUTGROWN: f64 = 2.0;
/// Latency is beyond a limit by far at four times of it.
const SLOWER: f64 = 4.0;
/// Less than this share of a run's objects may be a mishap, after which the rest is worth to be seen.
const LOST_PERCENT_MIN: u64 = 2;
/// Most subscribers: what the others get is not the load that was asked for.
const FAILED_PERCENT_MIN: u64 = 50;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn midway() -> Midway {
        Midway {
            expected_objects: 10_000,
            overdue_objects: 0,
            failed: 0,
            subscriptions: 10,
            latency: Histogram::new(),
        }
    }

    /// What is given up of a level.
    fn given_up(level: &str, midway: &Midway) -> Vec<String> {
        let level: ServiceLevel = level.parse().unwrap();
        let clauses = level.hopeless(midway);
        assert!(clauses.iter().all(JudgedClause::is_broken));
        clauses.into_iter().map(|clause| clause.text).collect()
    }

    #[test]
    fn loss_is_given_up_at_twice_the_level_and_two_in_a_hundred() {
        let lost = |overdue_objects| Midway {
            overdue_objects,
            ..midway()
        };
        assert_eq!(given_up("loss=0", &lost(199)), Vec::<String>::new());
        assert_eq!(given_up("loss=0", &lost(200)), ["loss=0"]);
        assert_eq!(given_up("loss<=3%", &lost(600)), Vec::<String>::new());
        assert_eq!(given_up("loss<=3%", &lost(601)), ["loss<=3%"]);
        assert_eq!(given_up("loss>=1", &lost(9_999)), Vec::<String>::new());
        assert_eq!(given_up("p99<100ms", &lost(9_999)), Vec::<String>::new());
        let nothing_expected = Midway {
            expected_objects: 0,
            ..midway()
        };
        assert_eq!(given_up("loss=0", &nothing_expected), Vec::<String>::new());
    }

    #[test]
    fn failures_are_given_up_when_they_are_most() {
        let failed = |failed| Midway { failed, ..midway() };
        assert_eq!(given_up("failed=0", &failed(4)), Vec::<String>::new());
        assert_eq!(given_up("failed=0,loss=0", &failed(5)), ["failed=0"]);
        assert_eq!(given_up("failed<=30%", &failed(6)), Vec::<String>::new());
        assert_eq!(given_up("failed<=30%", &failed(7)), ["failed<=30%"]);
    }

    #[test]
    fn latency_is_given_up_when_no_quick_object_can_mend_it() {
        let slow = |count: u64, ms| {
            let mut latency = Histogram::new();
            for _ in 0..count {
                latency.record(Duration::from_millis(ms));
            }
            Midway {
                latency,
                ..midway()
            }
        };
        // A hundred of ten thousand may be slow, even if nothing else has come yet.
        let none = Vec::<String>::new();
        assert_eq!(given_up("p99<100ms", &slow(100, 500)), none);
        assert_eq!(given_up("p99<100ms", &slow(101, 500)), ["p99<100ms"]);
        assert_eq!(given_up("p99<100ms", &slow(10_000, 390)), none);
        assert_eq!(given_up("p50<=100ms", &slow(5_000, 500)), none);
        assert_eq!(given_up("p50<=100ms", &slow(5_001, 500)), ["p50<=100ms"]);
        assert_eq!(given_up("max<100ms", &slow(1, 500)), ["max<100ms"]);
        assert_eq!(given_up("p99>100ms", &slow(10_000, 500)), none);
        let level: ServiceLevel = "p99<100ms".parse().unwrap();
        let clauses = level.hopeless(&slow(200, 500));
        assert_eq!(
            (clauses[0].measured, &*clauses[0].unit),
            (Some(500.0), "ms")
        );
    }

    #[test]
    fn load_and_late_objects_are_never_given_up() {
        let mut latency = Histogram::new();
        (0..9_000).for_each(|_| latency.record(Duration::from_secs(9)));
        let bad = Midway {
            overdue_objects: 1_000,
            failed: 10,
            latency,
            ..midway()
        };
        assert_eq!(given_up("late=0,cpu<95%", &bad), Vec::<String>::new());
    }
}
