//! Tables read back from Markdown, as [`Table::markdown`](crate::form::table::Table::markdown) writes them.

use crate::comparison::Median;

/// A table with the text before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    /// The last line of text before the table.
    pub(super) lead: String,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// The tables of a text, in order.
pub(super) fn tables(markdown: &str) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    let mut lead = String::new();
    let mut is_inside = false;
    for line in markdown.lines() {
        let cells = cells(line);
        match (cells, is_inside) {
            (None, _) if line.is_empty() => is_inside = false,
            (None, _) => {
                line.clone_into(&mut lead);
                is_inside = false;
            }
            (Some(head), false) => {
                tables.push(Table {
                    lead: lead.clone(),
                    head,
                    rows: Vec::new(),
                });
                is_inside = true;
            }
            (Some(row), true) => {
                let is_rule = row
                    .iter()
                    .all(|cell| cell.trim_matches(['-', ':']).is_empty());
                if let (Some(table), false) = (tables.last_mut(), is_rule) {
                    table.rows.push(row);
                }
            }
        }
    }
    tables
}

/// The cells of a line, if it is one of a table.
fn cells(line: &str) -> Option<Vec<String>> {
    let inner = line.strip_prefix('|')?.strip_suffix('|')?;
    let inner = inner.replace("\\|", "\u{0}");
    let cells = inner.split('|').map(|cell| {
        let cell = cell.trim().replace('\u{0}', "|");
        cell.replace("&lt;", "<")
    });
    Some(cells.collect())
}

impl Table {
    /// The rows, each with the cells of these columns; none if one of the columns is missing.
    pub(super) fn columns<const N: usize>(&self, names: [&str; N]) -> Option<Vec<[&str; N]>> {
        let places = names.map(|name| self.head.iter().position(|head| head == name));
        if places.contains(&None) {
            return None;
        }
        let rows = self.rows.iter().map(|row| {
            places.map(|place| {
                place
                    .and_then(|place| row.get(place))
                    .map_or("", String::as_str)
            })
        });
        Some(rows.collect())
    }
}

/// Reads `27.9 (27.1–28.6)`, `1,234`, `at least 900`: a median with its smallest and largest value, or a value alone.
pub(super) fn figure(cell: &str) -> Option<Median> {
    let cell = cell.strip_prefix("at least ").unwrap_or(cell);
    let (median, rest) = cell.split_once(" (").unwrap_or((cell, ""));
    let median = number(median)?;
    let ends = rest.strip_suffix(')').and_then(|rest| rest.split_once('–'));
    let (min, max) = match ends {
        Some((min, max)) => (number(min)?, number(max)?),
        None => (median, median),
    };
    Some(Median { median, min, max })
}

/// Reads a number with commas between thousands.
pub(super) fn number(text: &str) -> Option<f64> {
    let number: f64 = text.trim().replace(',', "").parse().ok()?;
    number.is_finite().then_some(number)
}
