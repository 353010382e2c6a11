//! Arrivals by subscriber and planned time, in fixed memory. They make the heat map of a report, and let a part of a
//! run be judged.

use serde::{Deserialize, Serialize};

use crate::limits::{HEAT_COLUMNS_MAX, HEAT_ROWS_MAX};
use crate::schedule::Schedule;

/// Arrivals of one plan at all of its subscribers. Large audiences share rows. A column is a second of the data phase,
/// or longer in long runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heat {
    column_ns: u64,
    columns: usize,
    subscribers: usize,
    subscribers_per_row: usize,
    cells: Vec<Cell>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cell {
    received: u32,
    latency_max_us: u32,
}

/// One row of a [`Heat`]: some subscribers, column by column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeatRow {
    /// The range of subscribers in this row.
    pub subscribers: std::ops::Range<usize>,
    /// Distinct objects that arrived, by column.
    pub received: Vec<u64>,
    /// The largest latency by column, in microseconds.
    pub latency_max_us: Vec<u64>,
}

impl Heat {
    /// Returns an empty heat map for `subscribers` subscribers.
    pub fn new(schedule: &Schedule, subscribers: usize) -> Self {
        let data_ns = schedule.data_phase_ns().max(1);
        let column_ns = data_ns.div_ceil(HEAT_COLUMNS_MAX as u64).max(COLUMN_NS_MIN);
        let columns = usize::try_from(data_ns.div_ceil(column_ns)).unwrap_or(HEAT_COLUMNS_MAX);
        let subscribers_per_row = subscribers.div_ceil(HEAT_ROWS_MAX).max(1);
        let rows = subscribers.div_ceil(subscribers_per_row);
        Self {
            column_ns,
            columns,
            subscribers,
            subscribers_per_row,
            cells: vec![Cell::default(); rows * columns],
        }
    }

    /// Records the arrival at `subscriber` of an object planned `planned_ns` after the beginning of the data phase.
    #[inline]
    pub(crate) fn record(&mut self, subscriber: usize, planned_ns: u64, latency_ns: Option<u64>) {
        let row = subscriber / self.subscribers_per_row;
        let place = row * self.columns + self.column_of(planned_ns);
        if let Some(cell) = self.cells.get_mut(place) {
            cell.received = cell.received.saturating_add(1);
            let latency_us = latency_ns.unwrap_or(0) / 1000;
            let latency_us = u32::try_from(latency_us).unwrap_or(u32::MAX);
            cell.latency_max_us = cell.latency_max_us.max(latency_us);
        }
    }

    /// Whether both are heat maps of the same plan and the same number of subscribers.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let shape = |one: &Self| {
            let subscribers = (one.subscribers, one.subscribers_per_row);
            (one.column_ns, one.columns, subscribers, one.cells.len())
        };
        shape(self) == shape(other)
    }

    /// Adds the arrivals of another heat map of the same plan and the same number of subscribers.
    pub(crate) fn merge(&mut self, other: &Self) {
        debug_assert!(self.is_like(other), "maps of one run");
        for (own, other) in self.cells.iter_mut().zip(&other.cells) {
            own.received = own.received.saturating_add(other.received);
            own.latency_max_us = own.latency_max_us.max(other.latency_max_us);
        }
    }

    /// Returns the rows, top to bottom.
    pub fn rows(&self) -> impl Iterator<Item = HeatRow> {
        let rows = self.cells.chunks(self.columns.max(1)).enumerate();
        rows.map(|(row, cells)| {
            let from = row * self.subscribers_per_row;
            HeatRow {
                subscribers: from..(from + self.subscribers_per_row).min(self.subscribers),
                received: cells.iter().map(|cell| cell.received.into()).collect(),
                latency_max_us: cells
                    .iter()
                    .map(|cell| cell.latency_max_us.into())
                    .collect(),
            }
        })
    }

    /// Counts the distinct objects that arrived and were planned in column `from` or later, over all subscribers.
    pub fn received_from(&self, from: usize) -> u64 {
        self.received_in(from..self.columns)
    }

    /// Counts the distinct objects that arrived and were planned in `columns`, over all subscribers.
    pub fn received_in(&self, columns: std::ops::Range<usize>) -> u64 {
        let within = columns.start.min(self.columns)..columns.end.min(self.columns);
        let rows = self.cells.chunks(self.columns.max(1));
        rows.filter_map(|row| row.get(within.clone()))
            .flatten()
            .map(|cell| u64::from(cell.received))
            .sum()
    }

    /// Counts the first `sent` objects of `schedule` by the column that they are planned in.
    pub fn planned(&self, schedule: &Schedule, sent: u64) -> Vec<u64> {
        let mut planned = vec![0; self.columns];
        for number in 0..sent.min(schedule.objects()) {
            planned[self.column_of(schedule.planned_ns(number))] += 1;
        }
        planned
    }

    /// Returns the first column that begins at or after `ns` of the data phase.
    pub fn column_from(&self, ns: u64) -> usize {
        let column = ns.div_ceil(self.column_ns);
        usize::try_from(column).unwrap_or(self.columns)
    }

    /// Returns the planned time that a column covers, in nanoseconds.
    pub fn column_ns(&self) -> u64 {
        self.column_ns
    }

    #[inline]
    fn column_of(&self, planned_ns: u64) -> usize {
        let column = planned_ns / self.column_ns;
        // An object planned at the very end belongs to the last column.
        usize::try_from(column)
            .unwrap_or(usize::MAX)
            .min(self.columns - 1)
    }
}

/// The shortest column.
const COLUMN_NS_MIN: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    fn schedule(seconds: u64) -> Schedule {
        let text = format!(
            "[a]\nnamespace = a\nname = 1\ntrack_mode = stream\npriority = 1\nttl = 1000\ntime_interval = 100\n\
             objects_per_group = 5\nfirst_object_size = 99\nobject_size = 99\nstart_delay = 500\nduration = {}\n",
            seconds * 1000
        );
        let profile = Profile::parse("x", text.as_bytes()).unwrap();
        Schedule::new(&profile.tracks[0], 0)
    }

    #[test]
    fn every_arrival_has_its_cell() {
        let schedule = schedule(3);
        let mut heat = Heat::new(&schedule, 2);
        for number in 0..schedule.objects() {
            heat.record(0, schedule.planned_ns(number), Some(number * 1_000_000));
        }
        heat.record(1, schedule.planned_ns(29), None);
        let rows: Vec<HeatRow> = heat.rows().collect();
        assert_eq!(rows[0].received, [10, 10, 10]);
        assert_eq!(rows[0].latency_max_us, [9_000, 19_000, 29_000]);
        assert_eq!(
            (rows[1].subscribers.clone(), &rows[1].received[..]),
            (1..2, &[0, 0, 1][..])
        );
        assert_eq!(heat.planned(&schedule, 15), [10, 5, 0]);
        assert_eq!((heat.received_from(0), heat.received_from(1)), (31, 21));
        assert_eq!((heat.received_in(0..1), heat.received_in(1..2)), (10, 10));
        assert_eq!((heat.received_in(2..99), heat.received_in(9..99)), (11, 0));
        assert_eq!(
            (
                heat.column_from(0),
                heat.column_from(1),
                heat.column_from(COLUMN_NS_MIN)
            ),
            (0, 1, 1)
        );
    }

    #[test]
    fn maps_of_two_parts_add_up_to_that_of_the_whole() {
        let schedule = schedule(3);
        let mut whole = Heat::new(&schedule, 5);
        let mut parts = [whole.clone(), whole.clone()];
        for (subscriber, ns) in [(0, 0), (1, 5), (1, 2_000_000_000), (4, 1_000_000_000)] {
            whole.record(subscriber, ns, Some(ns + 1_000_000));
            parts[subscriber % 2].record(subscriber, ns, Some(ns + 1_000_000));
        }
        let [mut sum, other] = parts;
        sum.merge(&other);
        assert!(sum.rows().eq(whole.rows()));
    }

    #[test]
    fn rows_and_columns_stay_within_their_limits() {
        let (at, above) = (HEAT_ROWS_MAX, HEAT_ROWS_MAX + 1);
        let short = schedule(HEAT_COLUMNS_MAX as u64);
        assert_eq!(Heat::new(&short, at).rows().count(), HEAT_ROWS_MAX);
        assert_eq!(
            Heat::new(&short, at).rows().next().unwrap().received.len(),
            HEAT_COLUMNS_MAX
        );
        let long = schedule(HEAT_COLUMNS_MAX as u64 + 1);
        let mut heat = Heat::new(&long, above);
        assert!(heat.rows().count() <= HEAT_ROWS_MAX);
        assert!(
            heat.rows()
                .all(|row| row.received.len() <= HEAT_COLUMNS_MAX)
        );
        heat.record(above - 1, u64::MAX, Some(u64::MAX));
        heat.record(above * 2, 0, None);
        assert_eq!(heat.received_from(0), 1);
        assert_eq!(Heat::new(&long, 0).rows().count(), 0);
    }
}
