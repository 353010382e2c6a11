//! Small summaries of many values.

use serde::{Deserialize, Serialize};

/// A counter summed up over subscribers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Count {
    /// All together.
    pub sum: u64,
    /// The smallest.
    pub min: u64,
    /// The arithmetic mean; 0 of none.
    pub mean: f64,
    /// The largest.
    pub max: u64,
}

impl Count {
    /// Summarises `values`; all zero if there are none.
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

/// A quantity over subscribers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// The smallest.
    pub min: f64,
    /// The arithmetic mean.
    pub mean: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Summarises the finite ones among `values`; none if there are none.
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

/// How a time was distributed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Distribution {
    /// Number of values.
    pub count: u64,
    /// The arithmetic mean.
    pub mean_ms: f64,
    /// Half of the values are at most this.
    pub p50_ms: f64,
    /// Nine in ten are at most this.
    pub p90_ms: f64,
    /// Ninety-nine in a hundred are at most this.
    pub p99_ms: f64,
    /// The largest.
    pub max_ms: f64,
}

impl Distribution {
    /// Summarises the finite ones among `values` by nearest rank; none if there are none.
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

/// One bar of a histogram: values above `from_ms` and up to `to_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bucket {
    /// Lower edge.
    pub from_ms: f64,
    /// Upper edge; above the lower one.
    pub to_ms: f64,
    /// Values between the edges.
    pub count: u64,
}

/// `part` of `whole`; none of nothing.
pub(crate) fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| float(part) / float(whole))
}

/// A counter as a quantity; above 2^53 it rounds, and nothing here counts that far.
#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}
