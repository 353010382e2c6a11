//! Comparisons: relays under one load ([`relays`]), limits of relays ([`limits`]), and HTTP/3 servers ([`servers`]). Each
//! holds the figures of every run and their medians, ordered best first.
//!
//! The caller runs the contenders in turns, so that changes on the machine affect all alike.

mod column;
pub mod limits;
mod page;
mod rank_sum;
pub mod relays;
pub mod servers;

use std::{cmp::Ordering, collections::BTreeMap};

use serde::{Deserialize, Serialize};

pub use self::rank_sum::{Test, rank_sum};

/// A comparison of contenders under the same loads. `T` holds the contenders and their rows, best first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison<T> {
    /// Version of the form; each kind of comparison has its own.
    pub comparison: u32,
    /// The setting in words: load, service level, machine, rounds.
    pub setting: Vec<String>,
    /// The contenders and their figures.
    #[serde(flatten)]
    pub contenders: T,
    /// Why runs are missing; none if all were made.
    pub broken_off: Option<String>,
}

/// A row of a table: the runs of one contender under one load, and their medians.
trait Row: Sized {
    /// The contender's runs.
    type Entry;

    /// Computes the medians of the runs.
    fn of(entry: Self::Entry) -> Self;

    /// Compares two rows; the better one is less.
    fn order(&self, other: &Self) -> Ordering;
}

/// Returns the rows of `entries`, best first.
fn ranked<R: Row>(entries: Vec<R::Entry>) -> Vec<R> {
    let mut rows: Vec<R> = entries.into_iter().map(R::of).collect();
    rows.sort_by(R::order);
    rows
}

/// Returns the most frequent of `values`; the largest of equally frequent ones.
fn most_frequent<T: Copy + Ord>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut times: BTreeMap<T, usize> = BTreeMap::new();
    for value in values {
        *times.entry(value).or_default() += 1;
    }
    let most = times.into_iter().max_by_key(|(_, times)| *times);
    most.map(|(value, _)| value)
}

/// Median, minimum and maximum of a figure over several runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Median {
    /// The median.
    pub median: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
}

impl Median {
    /// Computes the median of the finite `values`; none without any.
    pub fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let half = values.len() / 2;
        let median = if values.len().is_multiple_of(2) {
            values
                .get(half.checked_sub(1)?)?
                .midpoint(*values.get(half)?)
        } else {
            *values.get(half)?
        };
        Some(Self {
            median,
            min: *values.first()?,
            max: *values.last()?,
        })
    }
}

/// Orders two costs by their medians: the smaller first, a missing one last.
fn by_cost(one: Option<Median>, other: Option<Median>) -> Ordering {
    let median = |cost: Option<Median>| cost.map_or(f64::INFINITY, |cost| cost.median);
    median(one).total_cmp(&median(other))
}

/// Writes a comparison as JSON, with a line feed at its end.
fn json(comparison: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(comparison);
    text.expect("a comparison has string keys only, and memory takes all") + "\n"
}

/// Returns a contender's name with its version, if that is known. Many programs print their own name with the version.
fn with_version(name: &str, version: &str) -> String {
    match version {
        "" => name.to_owned(),
        version if version.starts_with(name) => version.to_owned(),
        version => format!("{name} ({version})"),
    }
}

/// Returns a note if not all `what` were made.
fn incomplete(what: &str, broken_off: Option<&str>) -> Option<String> {
    broken_off.map(|reason| format!("Not all {what} were made: {reason}."))
}
