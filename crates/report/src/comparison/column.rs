//! Columns of the tables of comparisons.

use crate::form::table::{self, Alignment, Table};

/// A column: its heading, where its cells stand, and what stands in the row of one contender.
pub(super) struct Column<R> {
    pub(super) heading: &'static str,
    alignment: Alignment,
    cell: fn(&R) -> String,
}

impl<R> Column<R> {
    /// A column of words.
    pub(super) const fn words(heading: &'static str, cell: fn(&R) -> String) -> Self {
        Self {
            heading,
            alignment: table::LEFT,
            cell,
        }
    }

    /// A column of figures.
    pub(super) const fn figures(heading: &'static str, cell: fn(&R) -> String) -> Self {
        Self {
            heading,
            alignment: table::RIGHT,
            cell,
        }
    }
}

/// A table with a row for each contender.
pub(super) fn table<'a, R: 'a>(
    columns: &[Column<R>],
    rows: impl Iterator<Item = &'a R>,
    notes: Vec<String>,
) -> Table {
    Table {
        heading: columns.iter().map(|one| one.heading.to_owned()).collect(),
        alignment: columns.iter().map(|one| one.alignment).collect(),
        rows: rows
            .map(|row| columns.iter().map(|one| (one.cell)(row)).collect())
            .collect(),
        notes,
    }
}
