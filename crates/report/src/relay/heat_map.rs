//! Heat maps: loss and latency by subscriber and planned send time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::statistics::{float, ratio};

/// A heat map of loss and latency of one track definition. Rows are subscribers, columns are parts of the data phase, by
/// the planned send times of objects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeatMap {
    /// Duration of a column.
    pub column_ms: f64,
    /// Objects due to each subscription, by column.
    pub planned: Vec<u64>,
    /// The rows, in the order of subscribers.
    pub rows: Vec<HeatMapRow>,
}

/// A row of a heat map: one subscriber, or several adjacent ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeatMapRow {
    /// Index of the first subscriber of the row.
    pub first_subscriber: u64,
    /// Subscriptions in the row, without slow and churning subscribers.
    pub subscriptions: u64,
    /// Lost objects over these subscriptions, by column.
    pub lost: Vec<u64>,
    /// Largest latency, by column; 0 if no object arrived.
    pub latency_max_ms: Vec<f64>,
}

impl HeatMap {
    /// Returns the share of the objects due in a cell that were lost; none if no object was due.
    pub fn lost_share(&self, row: &HeatMapRow, column: usize) -> Option<f64> {
        let due = self.planned.get(column)?.saturating_mul(row.subscriptions);
        ratio(*row.lost.get(column)?, due)
    }

    /// Returns the largest latency of all cells, in milliseconds.
    pub fn latency_max_ms(&self) -> f64 {
        let cells = self.rows.iter().flat_map(|row| &row.latency_max_ms);
        cells.copied().fold(0.0, f64::max)
    }

    /// Returns the start of a column, in seconds since the start of the data phase.
    pub fn seconds_at(&self, column: usize) -> f64 {
        self.column_ms / 1e3 * float(column as u64)
    }
}
