//! A table of text, with notes below it: for the terminal, and as Markdown.

use crate::form::number::printable;

/// Whether a column's cells stand at its left or its right edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alignment {
    is_right: bool,
}

/// For words.
pub(crate) const LEFT: Alignment = Alignment { is_right: false };
/// For figures.
pub(crate) const RIGHT: Alignment = Alignment { is_right: true };

/// A table; every row has a cell for each column.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) heading: Vec<String>,
    pub(crate) alignment: Vec<Alignment>,
    pub(crate) rows: Vec<Vec<String>>,
    pub(crate) notes: Vec<String>,
}

impl Table {
    /// For a terminal; every line ends with a line feed.
    pub(crate) fn terminal(&self) -> String {
        let lines = || std::iter::once(&self.heading).chain(&self.rows);
        let width = |column: usize| {
            let cells = lines().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.heading.len()).map(width).collect();
        let mut text = String::new();
        for row in lines() {
            let cells = row.iter().zip(&widths).zip(&self.alignment);
            let padded: Vec<String> = cells
                .map(|((cell, width), alignment)| {
                    let cell = printable(cell);
                    if alignment.is_right {
                        format!("{cell:>width$}")
                    } else {
                        format!("{cell:<width$}")
                    }
                })
                .collect();
            text.push_str(padded.join("  ").trim_end());
            text.push('\n');
        }
        for note in &self.notes {
            text.push_str(note);
            text.push('\n');
        }
        text
    }

    /// As Markdown.
    pub(crate) fn markdown(&self) -> String {
        let row = |cells: &[String]| {
            let clean = |cell: &String| cell.replace('|', "\\|").replace('\n', " ");
            let cells: Vec<String> = cells.iter().map(clean).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let mut text = row(&self.heading);
        let rule = |one: &Alignment| if one.is_right { "--:|" } else { "---|" };
        text.push('|');
        text.extend(self.alignment.iter().map(rule));
        text.push('\n');
        text.extend(self.rows.iter().map(|cells| row(cells)));
        for note in &self.notes {
            text.push('\n');
            text.push_str(note);
            text.push('\n');
        }
        text
    }
}
