//! Columns of the tables of comparisons.

use crate::form::table::{self, Table};

/// A column: its heading, and its cell in the row of a contender.
pub(super) struct Column<R> {
    heading: &'static str,
    is_figure: bool,
    cell: fn(&R) -> String,
}

impl<R> Column<R> {
    /// Creates a column of words.
    pub(super) const fn words(heading: &'static str, cell: fn(&R) -> String) -> Self {
        Self {
            heading,
            is_figure: false,
            cell,
        }
    }

    /// Creates a column of figures.
    pub(super) const fn figures(heading: &'static str, cell: fn(&R) -> String) -> Self {
        Self {
            heading,
            is_figure: true,
            cell,
        }
    }
}

/// Creates a table with a row for each contender.
pub(super) fn table<'a, R: 'a>(columns: &[Column<R>], rows: impl Iterator<Item = &'a R>) -> Table {
    let heads = columns.iter().map(|column| {
        if column.is_figure {
            table::right(column.heading)
        } else {
            table::left(column.heading)
        }
    });
    let cells = |row: &'a R| columns.iter().map(move |column| (column.cell)(row));
    Table::new(heads).with_rows(rows.map(cells))
}
