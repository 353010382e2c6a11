//! Latency in reports, computed from histograms.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::statistics::{Bucket, Distribution};
use weir_histogram::{Histogram, Series};

/// Latency of objects or requests: over the whole run, as a histogram, and in each second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// Latency over the whole run; null if none was measured.
    pub overall: Option<Distribution>,
    /// Histogram over the whole run: buckets with at least one value, ascending.
    pub histogram: Vec<Bucket>,
    /// Latency by second of arrival, ascending; seconds without an arrival are left out.
    pub per_second: Vec<LatencySecond>,
}

/// Latency of arrivals within one second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LatencySecond {
    /// Second of the run, from 0.
    pub second: u64,
    /// Number of objects that arrived; in an HTTP/3 report, of answers that were complete.
    pub objects: u64,
    /// Median.
    pub p50_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// Maximum.
    pub max_ms: f64,
}

/// Returns the figures of a histogram; `None` if it is empty.
pub fn distribution(histogram: &Histogram) -> Option<Distribution> {
    Some(Distribution {
        count: histogram.count(),
        mean_ms: milliseconds(histogram.mean()?),
        p50_ms: quantile_ms(histogram, 0.5),
        p90_ms: quantile_ms(histogram, 0.9),
        p99_ms: quantile_ms(histogram, 0.99),
        max_ms: quantile_ms(histogram, 1.0),
    })
}

/// Returns latency over the whole series and for each of its windows; windows without an arrival are left out.
pub fn over_time(series: &Series) -> Latency {
    let windows = (0_u32..).zip(series.windows());
    let windows = windows.map(|(number, window)| ((series.window() * number).as_secs(), window));
    of_seconds(&series.total(), windows)
}

/// Returns latency over `total`, and for each numbered second; seconds without an arrival are left out.
pub fn of_seconds<'a>(
    total: &Histogram,
    seconds: impl IntoIterator<Item = (u64, &'a Histogram)>,
) -> Latency {
    let seconds = seconds.into_iter().filter(|(_, one)| !one.is_empty());
    let per_second = seconds.map(|(second, one)| LatencySecond {
        second,
        objects: one.count(),
        p50_ms: quantile_ms(one, 0.5),
        p99_ms: quantile_ms(one, 0.99),
        max_ms: quantile_ms(one, 1.0),
    });
    Latency {
        overall: distribution(total),
        histogram: buckets(total),
        per_second: per_second.collect(),
    }
}

/// Returns the buckets of a histogram. The last, open one ends at the largest recorded duration.
pub fn buckets(histogram: &Histogram) -> Vec<Bucket> {
    let largest = histogram.max().unwrap_or_default();
    let bucket = |bucket: weir_histogram::Bucket| Bucket {
        from_ms: milliseconds(bucket.from),
        to_ms: milliseconds(bucket.to.unwrap_or(largest)),
        count: u64::from(bucket.count),
    };
    histogram.buckets().map(bucket).collect()
}

/// Returns a quantile in milliseconds; 0 if the histogram is empty.
pub fn quantile_ms(histogram: &Histogram, quantile: f64) -> f64 {
    let found = histogram.quantile(quantile);
    found.map_or(0.0, milliseconds)
}

/// Returns a duration in milliseconds, with its fraction.
#[expect(
    clippy::cast_precision_loss,
    reason = "2^53 ns are 104 days; a printed figure"
)]
fn milliseconds(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_series_has_no_figures() {
        let series = Series::new(Duration::from_secs(1));
        assert_eq!(over_time(&series), Latency::default());
    }

    #[test]
    fn figures_follow_from_the_histogram() {
        let mut series = Series::new(Duration::from_secs(1));
        for (second, ms) in [(0, 2), (0, 4), (3, 90_000)] {
            series.record_ns(Duration::from_secs(second), ms * 1_000_000);
        }
        let latency = over_time(&series);
        let overall = latency.overall.unwrap();
        assert_eq!(
            (overall.count, overall.mean_ms, overall.max_ms),
            (3, 30_002.0, 90_000.0)
        );
        assert!((overall.p50_ms - 4.0).abs() < 0.064, "{}", overall.p50_ms);
        let seconds: Vec<_> = latency
            .per_second
            .iter()
            .map(|s| (s.second, s.objects))
            .collect();
        assert_eq!(seconds, [(0, 2), (3, 1)]);
        assert_eq!(latency.histogram.len(), 3);
        assert!(
            latency
                .histogram
                .iter()
                .all(|bucket| bucket.from_ms < bucket.to_ms)
        );
        assert_eq!(
            latency.histogram.last().map(|bucket| bucket.to_ms),
            Some(90_000.0)
        );
    }
}
