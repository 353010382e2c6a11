//! Summaries of many values: counts, spreads and distributions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A count over several subscribers: sum, minimum, mean, maximum. All are 0 without subscribers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Count {
    /// Sum.
    pub sum: u64,
    /// Minimum.
    pub min: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Maximum.
    pub max: u64,
}

impl Count {
    /// Summarises `values`; all fields are 0 without values.
    pub fn over(values: impl IntoIterator<Item = u64>) -> Self {
        let mut number = 0_u64;
        let mut count = Self::default();
        for value in values {
            count.min = if number == 0 {
                value
            } else {
                count.min.min(value)
            };
            count.max = count.max.max(value);
            count.sum = count.sum.saturating_add(value);
            number += 1;
        }
        count.mean = ratio(count.sum, number).unwrap_or(0.0);
        count
    }
}

/// A quantity over several subscribers: minimum, mean, maximum, in the unit that the name of the field ends with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// Minimum.
    pub min: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Maximum.
    pub max: f64,
}

impl Spread {
    /// Summarises the finite `values`; none without any.
    pub fn over(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values
            .into_iter()
            .filter(|value| value.is_finite())
            .collect();
        Some(Self {
            min: values.iter().copied().reduce(f64::min)?,
            mean: values.iter().sum::<f64>() / float(values.len() as u64),
            max: values.iter().copied().reduce(f64::max)?,
        })
    }
}

/// The distribution of a time: number of values, mean, percentiles, maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Distribution {
    /// Number of values.
    pub count: u64,
    /// Arithmetic mean.
    pub mean_ms: f64,
    /// Median.
    pub p50_ms: f64,
    /// 90th percentile.
    pub p90_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// Maximum.
    pub max_ms: f64,
}

impl Distribution {
    /// Summarises the finite `values`, with percentiles by nearest rank; none without any.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values
            .into_iter()
            .filter(|value| value.is_finite())
            .collect();
        values.sort_by(f64::total_cmp);
        let rank = |percent: usize| values.get((values.len() * percent).div_ceil(100).max(1) - 1);
        Some(Self {
            count: values.len() as u64,
            mean_ms: values.iter().sum::<f64>() / float(values.len() as u64),
            p50_ms: *rank(50)?,
            p90_ms: *rank(90)?,
            p99_ms: *rank(99)?,
            max_ms: *values.last()?,
        })
    }
}

/// A bucket of a histogram: the number of values above `from_ms` and up to `to_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bucket {
    /// Lower bound.
    pub from_ms: f64,
    /// Upper bound.
    pub to_ms: f64,
    /// Number of values.
    pub count: u64,
}

/// Returns `part` divided by `whole`; none if `whole` is 0.
pub(crate) fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| float(part) / float(whole))
}

/// Returns a count as a floating point number. Counts above 2^53 would be rounded.
#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}
