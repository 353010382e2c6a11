//! Loss and latency by subscriber and by planned time.

use serde::{Deserialize, Serialize};

use crate::statistics::{float, ratio};

/// Loss and latency of one definition's objects: rows are subscribers, columns stretches of the data phase, by the
/// planned times of objects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeatMap {
    /// How much of the data phase one column covers.
    pub column_ms: f64,
    /// Objects due to each subscription in each column.
    pub planned: Vec<u64>,
    /// The rows, by subscribers.
    pub rows: Vec<HeatMapRow>,
}

/// One row of a [`HeatMap`]: one subscriber, or some neighbours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeatMapRow {
    /// The first subscriber of the row.
    pub first_subscriber: u64,
    /// Subscriptions in the row, without those set apart.
    pub subscriptions: u64,
    /// Objects lost in each column, over these.
    pub lost: Vec<u64>,
    /// The slowest object of each column; zero where nothing arrived.
    pub latency_max_ms: Vec<f64>,
}

impl HeatMap {
    /// The share of the objects due in a cell that was lost; none where nothing was due.
    pub fn lost_share(&self, row: &HeatMapRow, column: usize) -> Option<f64> {
        let due = self.planned.get(column)?.saturating_mul(row.subscriptions);
        ratio(*row.lost.get(column)?, due)
    }

    /// The largest latency of any cell, in milliseconds.
    pub fn latency_max_ms(&self) -> f64 {
        let cells = self.rows.iter().flat_map(|row| &row.latency_max_ms);
        cells.copied().fold(0.0, f64::max)
    }

    /// The beginning of a column, in seconds of the data phase.
    pub fn seconds_at(&self, column: usize) -> f64 {
        self.column_ms / 1e3 * float(column as u64)
    }
}
