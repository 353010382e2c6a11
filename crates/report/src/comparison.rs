//! Contenders side by side: relays under one load ([`relays`]), what relays carry at most ([`limits`]), and HTTP/3 servers
//! ([`servers`]). Each says what every run gave, medians, and who comes first.
//!
//! It does not start anything and does not choose the order of runs; the program interleaves them, so that what
//! changes on the machine meanwhile meets all contenders alike.

mod column;
pub mod limits;
mod page;
mod rank_sum;
pub mod relays;
pub mod servers;

use std::{cmp::Ordering, collections::BTreeMap};

use serde::{Deserialize, Serialize};

pub use self::rank_sum::{Test, rank_sum};

/// Contenders under the same loads. `T` holds who they are and their rows, in the order of their ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison<T> {
    /// Version of the form, which depends on what is compared.
    pub comparison: u32,
    /// What was compared, in words: load, service level, machine, rounds.
    pub setting: Vec<String>,
    /// What was measured of the contenders.
    #[serde(flatten)]
    pub contenders: T,
    /// Why not all runs were made, if so.
    pub broken_off: Option<String>,
}

/// One contender's place under one load: its runs, and what they come to.
trait Row: Sized {
    /// The contender's runs.
    type Entry;

    /// Draws the medians of the runs.
    fn of(entry: Self::Entry) -> Self;

    /// Who comes first.
    fn order(&self, other: &Self) -> Ordering;
}

/// The rows of `entries`, best first.
fn ranked<R: Row>(entries: Vec<R::Entry>) -> Vec<R> {
    let mut rows: Vec<R> = entries.into_iter().map(R::of).collect();
    rows.sort_by(R::order);
    rows
}

/// What occurs most often among `values`; of equals the largest.
fn most_frequent<T: Copy + Ord>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut times: BTreeMap<T, usize> = BTreeMap::new();
    for value in values {
        *times.entry(value).or_default() += 1;
    }
    let most = times.into_iter().max_by_key(|(_, times)| *times);
    most.map(|(value, _)| value)
}

/// The middle of some runs' figures, and their ends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Middle {
    /// The median.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Middle {
    /// The middle of the finite ones among `values`; none of none.
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

/// The order of two costs by their medians: the smaller first, and last what was not measured.
fn by_cost(one: Option<Middle>, other: Option<Middle>) -> Ordering {
    let median = |cost: Option<Middle>| cost.map_or(f64::INFINITY, |cost| cost.median);
    median(one).total_cmp(&median(other))
}

/// A comparison as JSON, with a line feed at its end.
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

/// What is said where not all `what` were made.
fn incomplete(what: &str, broken_off: Option<&str>) -> Option<String> {
    broken_off.map(|reason| format!("Not all {what} were made: {reason}."))
}
