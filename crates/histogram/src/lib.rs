//! A mergeable log-linear histogram of durations in fixed memory.
//!
//! Every power of two from 1,024 ns to 68.7 s is divided into 32 buckets of equal width. So the middle of a bucket is
//! within 1.6 % of each duration in it. Recording costs a few instructions and never allocates. Histograms add up
//! bucket by bucket, so any windows of a run, and any subscribers, can be summed afterwards.
//!
//! The types are [`Histogram`], and [`Series`] with one histogram per window of time.

mod series;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::series::{SERIES_WINDOWS_MAX, Series};

/// Counts of durations by magnitude; 3.4 KiB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Sparse", try_from = "Sparse")]
pub struct Histogram {
    count: u64,
    sum_ns: u64,
    min_ns: u64,
    max_ns: u64,
    /// The buckets below, in, and above the range. A count saturates at 4,294,967,295.
    buckets: [u32; BUCKETS],
}

/// One non-empty bucket of a [`Histogram`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The smallest duration in the bucket.
    pub from: Duration,
    /// The smallest duration above the bucket; `None` for the last one, which is open.
    pub to: Option<Duration>,
    /// The number of durations counted.
    pub count: u32,
}

impl Histogram {
    /// Returns an empty histogram.
    pub fn new() -> Self {
        Self {
            count: 0,
            sum_ns: 0,
            min_ns: u64::MAX,
            max_ns: 0,
            buckets: [0; BUCKETS],
        }
    }

    /// Counts one duration.
    pub fn record(&mut self, duration: Duration) {
        self.record_ns(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Counts one duration in nanoseconds.
    pub fn record_ns(&mut self, ns: u64) {
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
        let bucket = &mut self.buckets[index_of(ns)];
        *bucket = bucket.saturating_add(1);
    }

    /// Adds all counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        for (bucket, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *bucket = bucket.saturating_add(*more);
        }
    }

    /// Returns the number of durations counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the shortest duration, exact.
    pub fn min(&self) -> Option<Duration> {
        (self.count > 0).then(|| Duration::from_nanos(self.min_ns))
    }

    /// Returns the longest duration, exact.
    pub fn max(&self) -> Option<Duration> {
        (self.count > 0).then(|| Duration::from_nanos(self.max_ns))
    }

    /// Returns the mean duration, to the nanosecond.
    pub fn mean(&self) -> Option<Duration> {
        self.sum_ns
            .checked_div(self.count)
            .map(Duration::from_nanos)
    }

    /// Returns the duration that a fraction `quantile` of the counted durations does not exceed; `None` if nothing was
    /// counted. The error is at most 1.6 % from 1,024 ns to 68.7 s; the longest duration is exact. The fraction is
    /// clamped to 0..=1.
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        if self.count == 0 {
            return None;
        }
        let rank = rank_of(quantile, self.count);
        if rank == self.count {
            return self.max();
        }
        let mut below = 0;
        for (index, bucket) in self.buckets.iter().enumerate() {
            below += u64::from(*bucket);
            if below >= rank {
                let ns = middle_of(index).clamp(self.min_ns, self.max_ns);
                return Some(Duration::from_nanos(ns));
            }
        }
        self.max()
    }

    /// Returns the non-empty buckets, shortest durations first.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        self.buckets
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
            .map(|(index, count)| Bucket {
                from: Duration::from_nanos(lower_bound(index)),
                to: (index < OVERFLOW).then(|| Duration::from_nanos(lower_bound(index + 1))),
                count: *count,
            })
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

/// The serialized form: only the non-empty buckets.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sparse {
    count: u64,
    sum_ns: u64,
    min_ns: u64,
    max_ns: u64,
    /// Bucket numbers and counts, ascending.
    buckets: Vec<(u16, u32)>,
}

impl From<Histogram> for Sparse {
    fn from(histogram: Histogram) -> Self {
        let buckets = (0u16..)
            .zip(histogram.buckets)
            .filter(|(_, count)| *count > 0)
            .collect();
        Self {
            count: histogram.count,
            sum_ns: histogram.sum_ns,
            min_ns: if histogram.count == 0 {
                0
            } else {
                histogram.min_ns
            },
            max_ns: histogram.max_ns,
            buckets,
        }
    }
}

impl TryFrom<Sparse> for Histogram {
    type Error = &'static str;

    fn try_from(sparse: Sparse) -> Result<Self, Self::Error> {
        let mut histogram = Self {
            count: sparse.count,
            sum_ns: sparse.sum_ns,
            min_ns: if sparse.count == 0 {
                u64::MAX
            } else {
                sparse.min_ns
            },
            max_ns: sparse.max_ns,
            buckets: [0; BUCKETS],
        };
        let mut total = 0u64;
        for (index, count) in sparse.buckets {
            let bucket = histogram.buckets.get_mut(usize::from(index));
            let bucket = bucket.ok_or("a histogram's bucket number is out of range")?;
            if *bucket != 0 {
                return Err("a histogram's bucket stands twice");
            }
            *bucket = count;
            total += u64::from(count);
        }
        if total > sparse.count || (sparse.count > 0 && sparse.min_ns > sparse.max_ns) {
            return Err("a histogram's figures contradict each other");
        }
        Ok(histogram)
    }
}

/// Returns the index of the bucket that counts `ns`.
#[expect(
    clippy::cast_possible_truncation,
    reason = "only the five lowest bits are kept"
)]
fn index_of(ns: u64) -> usize {
    if ns < RANGE_FROM_NS {
        return 0;
    }
    let exponent = ns.ilog2();
    if exponent >= EXPONENT_FROM + OCTAVES {
        return OVERFLOW;
    }
    let octave = (exponent - EXPONENT_FROM) as usize;
    let step = (ns >> (exponent - STEPS_LOG2)) as usize & (STEPS - 1);
    1 + octave * STEPS + step
}

/// Returns the smallest number of nanoseconds in bucket `index`.
fn lower_bound(index: usize) -> u64 {
    let Some(position) = index.checked_sub(1) else {
        return 0;
    };
    let (octave, step) = (position / STEPS, position % STEPS);
    ((STEPS + step) as u64) << (octave as u64 + u64::from(EXPONENT_FROM - STEPS_LOG2))
}

/// Returns the number of nanoseconds that represents bucket `index`.
fn middle_of(index: usize) -> u64 {
    if index == OVERFLOW {
        return u64::MAX;
    }
    lower_bound(index).midpoint(lower_bound(index + 1))
}

/// Returns the position, from one, of a quantile among `count` ordered values.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the fraction is clamped to 0..=1, and a rank above 2^53 may be off by one"
)]
fn rank_of(quantile: f64, count: u64) -> u64 {
    let rank = (quantile.clamp(0.0, 1.0) * count as f64).ceil() as u64;
    rank.clamp(1, count)
}

/// The lower bound of the range, in nanoseconds: 2^10.
const RANGE_FROM_NS: u64 = 1 << EXPONENT_FROM;
const EXPONENT_FROM: u32 = 10;
/// 26 powers of two from 2^10 ns reach 2^36 ns, which is 68.7 s.
const OCTAVES: u32 = 26;
/// 32 steps per power of two: half a step is 1/64 of the step's lower bound.
const STEPS: usize = 1 << STEPS_LOG2;
const STEPS_LOG2: u32 = 5;
const OVERFLOW: usize = 1 + OCTAVES as usize * STEPS;
const BUCKETS: usize = OVERFLOW + 1;

const _: () = assert!(size_of::<Histogram>() <= 4096);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_empty_histogram_has_no_figures() {
        let histogram = Histogram::new();
        assert!(histogram.is_empty());
        assert_eq!(histogram.quantile(0.5), None);
        assert_eq!(
            (histogram.min(), histogram.max(), histogram.mean()),
            (None, None, None)
        );
        assert_eq!(histogram.buckets().count(), 0);
    }

    #[test]
    fn buckets_tile_the_range() {
        for index in 0..OVERFLOW {
            let (from, to) = (lower_bound(index), lower_bound(index + 1));
            assert!(from < to, "bucket {index}");
            assert_eq!(index_of(from), index);
            assert_eq!(index_of(to - 1), index);
        }
        assert_eq!(lower_bound(OVERFLOW), 1 << 36);
        assert_eq!(index_of(1 << 36), OVERFLOW);
        assert_eq!(index_of(u64::MAX), OVERFLOW);
    }

    #[test]
    fn covers_a_microsecond_to_more_than_a_minute() {
        for duration in [Duration::from_nanos(1024), Duration::from_secs(61)] {
            let mut histogram = Histogram::new();
            histogram.record(duration);
            histogram.record(duration * 2);
            let error = histogram.quantile(0.5).unwrap().as_secs_f64() / duration.as_secs_f64();
            assert!((error - 1.0).abs() <= 0.016, "{duration:?}: {error}");
        }
    }

    #[test]
    fn extremes_are_exact() {
        let mut histogram = Histogram::new();
        for ms in [3, 90_000, 7] {
            histogram.record(Duration::from_millis(ms));
        }
        histogram.record_ns(17);
        assert_eq!(histogram.min(), Some(Duration::from_nanos(17)));
        assert_eq!(histogram.max(), Some(Duration::from_secs(90)));
        assert_eq!(histogram.quantile(1.0), Some(Duration::from_secs(90)));
        assert_eq!(histogram.quantile(-3.0), histogram.quantile(0.0));
    }

    #[test]
    fn a_full_bucket_stops_counting_but_the_total_goes_on() {
        let mut full = Histogram::new();
        full.record_ns(5_000);
        for _ in 0..33 {
            let copy = full.clone();
            full.merge(&copy);
        }
        assert_eq!(full.count(), 1 << 33);
        assert_eq!(full.buckets().next().unwrap().count, u32::MAX);
        assert_eq!(full.quantile(0.99), Some(Duration::from_micros(5)));
    }

    #[test]
    fn a_forged_histogram_is_refused() {
        let parse = |text: &str| serde_json::from_str::<Histogram>(text);
        let json = |buckets: &str| {
            format!(r#"{{"count":2,"sum_ns":4,"min_ns":2,"max_ns":2,"buckets":{buckets}}}"#)
        };
        assert!(parse(&json("[[0,2]]")).is_ok());
        assert!(parse(&json("[[833,1],[0,1]]")).is_ok());
        assert!(parse(&json("[[834,1]]")).is_err());
        assert!(parse(&json("[[0,1],[0,1]]")).is_err());
        assert!(parse(&json("[[0,3]]")).is_err());
    }

    fn histogram_of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        for value in values {
            histogram.record_ns(*value);
        }
        histogram
    }

    /// Durations of every magnitude in the range.
    fn durations_ns() -> impl Strategy<Value = Vec<u64>> {
        let value = (10u32..36, any::<u64>()).prop_map(|(exponent, noise)| {
            let base = 1u64 << exponent;
            base + noise % base
        });
        prop::collection::vec(value, 1..300)
    }

    proptest! {
        #[test]
        fn quantiles_are_within_their_error(mut values in durations_ns(), quantile in 0.0f64..=1.0) {
            let histogram = histogram_of(&values);
            values.sort_unstable();
            let position = usize::try_from(rank_of(quantile, values.len() as u64)).unwrap() - 1;
            let exact = Duration::from_nanos(values[position]).as_secs_f64();
            let found = histogram.quantile(quantile).unwrap().as_secs_f64();
            prop_assert!((found - exact).abs() <= exact * 0.016, "{found} for {exact}");
        }

        #[test]
        fn merging_equals_recording_together(left in durations_ns(), right in durations_ns()) {
            let mut merged = histogram_of(&left);
            merged.merge(&histogram_of(&right));
            let together: Vec<u64> = left.into_iter().chain(right).collect();
            prop_assert_eq!(merged, histogram_of(&together));
        }

        #[test]
        fn survives_serialisation(values in durations_ns()) {
            let histogram = histogram_of(&values);
            let text = serde_json::to_string(&histogram).unwrap();
            prop_assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), histogram);
        }

        #[test]
        fn buckets_account_for_everything(values in durations_ns()) {
            let histogram = histogram_of(&values);
            let counted: u64 = histogram.buckets().map(|bucket| u64::from(bucket.count)).sum();
            prop_assert_eq!(counted, values.len() as u64);
        }
    }
}
