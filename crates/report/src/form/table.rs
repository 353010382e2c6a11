//! Tables with columns, rows and notes, in four formats: text for a terminal, Markdown, HTML and CSV.

use maud::{Markup, html};

use super::number::printable;
use super::page::Tone;

/// A column: its name, alignment and least width.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    name: String,
    is_right: bool,
    width_min: usize,
}

/// Creates a left-aligned column.
pub(crate) fn left(name: impl Into<String>) -> Column {
    Column {
        name: name.into(),
        is_right: false,
        width_min: 0,
    }
}

/// Creates a right-aligned column.
pub(crate) fn right(name: impl Into<String>) -> Column {
    Column {
        is_right: true,
        ..left(name)
    }
}

impl Column {
    /// Sets the least width in characters, for rows that are printed one by one.
    #[must_use]
    pub(crate) fn wide(self, width_min: usize) -> Self {
        Self { width_min, ..self }
    }
}

/// A cell. Its tone sets the colour on a page.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    tone: Option<Tone>,
}

impl Cell {
    /// Creates a cell with a tone.
    pub(crate) fn toned(text: String, tone: Option<Tone>) -> Self {
        Self { text, tone }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self {
            text: text.into(),
            tone: None,
        }
    }
}

/// A table; every row has a cell for each column.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    notes: Vec<String>,
}

impl Table {
    /// Creates a table without rows.
    pub(crate) fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self {
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Creates a table whose first column is left-aligned and all others right-aligned.
    pub(crate) fn of_figures<const N: usize>(names: [&str; N]) -> Self {
        let column = |(number, name)| if number == 0 { left(name) } else { right(name) };
        Self::new((0..).zip(names).map(column))
    }

    /// Adds rows.
    #[must_use]
    pub(crate) fn with_rows<R, C>(mut self, rows: impl IntoIterator<Item = R>) -> Self
    where
        R: IntoIterator<Item = C>,
        C: Into<Cell>,
    {
        for row in rows {
            self.add_row(row);
        }
        self
    }

    /// Adds a column after the others.
    #[must_use]
    pub(crate) fn with_column(
        mut self,
        column: Column,
        cells: impl IntoIterator<Item = String>,
    ) -> Self {
        self.columns.push(column);
        for (row, cell) in self.rows.iter_mut().zip(cells) {
            row.push(cell.into());
        }
        self
    }

    /// Adds notes below the table.
    #[must_use]
    pub(crate) fn with_notes(mut self, notes: impl IntoIterator<Item = String>) -> Self {
        self.notes.extend(notes);
        self
    }

    /// Adds one row.
    pub(crate) fn add_row<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Returns true if the table has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Renders the table for a terminal; every line ends with a line feed.
    pub(crate) fn terminal(&self) -> String {
        let widths = self.widths();
        let mut text = String::new();
        for row in self.texts() {
            text.push_str(self.padded(&row, &widths, "  ").trim_end());
            text.push('\n');
        }
        for note in &self.notes {
            text.push_str(&printable(note));
            text.push('\n');
        }
        text
    }

    /// Renders the table as Markdown. If `is_aligned`, cells are padded to the widths of their columns.
    pub(crate) fn markdown(&self, is_aligned: bool) -> String {
        let widths = if is_aligned {
            self.widths()
        } else {
            vec![0; self.columns.len()]
        };
        let mut text = String::new();
        for (number, row) in (0..).zip(self.texts()) {
            let row: Vec<String> = row.iter().map(|cell| markdown(cell)).collect();
            let row = self.padded(&row, &widths, " | ");
            text.extend(["| ", &*row, " |\n"]);
            if number == 0 {
                text.push('|');
                let rule = |one: &Column| if one.is_right { "---:|" } else { "---|" };
                text.extend(self.columns.iter().map(rule));
                text.push('\n');
            }
        }
        for note in &self.notes {
            text.extend(["\n", &*markdown(note), "\n"]);
        }
        text
    }

    /// Renders the table as comma-separated values (RFC 4180) with a heading, without notes.
    pub(crate) fn csv(&self) -> String {
        let line = |row: Vec<String>| {
            let cells: Vec<String> = row.iter().map(|cell| csv(cell)).collect();
            cells.join(",") + "\r\n"
        };
        self.texts().map(line).collect()
    }

    /// Renders a row as a line for a terminal, with the least widths of the columns. Row 0 is the heading.
    pub(crate) fn line(&self, number: usize) -> String {
        let row = self.texts().nth(number).unwrap_or_default();
        let widths: Vec<usize> = self.columns.iter().map(|one| one.width_min).collect();
        self.padded(&row, &widths, "  ").trim_end().to_owned()
    }

    /// Returns the heading, then the rows.
    fn texts(&self) -> impl Iterator<Item = Vec<String>> {
        let heading = self.columns.iter().map(|one| one.name.clone()).collect();
        let texts = |row: &Vec<Cell>| row.iter().map(|cell| cell.text.clone()).collect();
        std::iter::once(heading).chain(self.rows.iter().map(texts))
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths = vec![0; self.columns.len()];
        for row in self.texts() {
            for (width, cell) in widths.iter_mut().zip(&row) {
                *width = cell.chars().count().max(*width);
            }
        }
        widths
    }

    fn padded(&self, row: &[String], widths: &[usize], between: &str) -> String {
        let cells = row.iter().zip(&self.columns).zip(widths);
        let cells: Vec<String> = cells
            .map(|((cell, column), &width)| {
                let cell = printable(cell);
                if column.is_right {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:<width$}")
                }
            })
            .collect();
        cells.join(between)
    }
}

impl maud::Render for Table {
    fn render(&self) -> Markup {
        let class = |column: usize| {
            let column = self.columns.get(column);
            column.filter(|one| !one.is_right).map(|_| "left")
        };
        html! {
            div.scroll {
                table {
                    thead {
                        tr {
                            @for (number, column) in self.columns.iter().enumerate() {
                                th scope="col" class=[class(number)] { (column.name) }
                            }
                        }
                    }
                    tbody {
                        @for row in &self.rows {
                            tr {
                                @for (number, cell) in row.iter().enumerate() {
                                    @if number == 0 {
                                        th scope="row" class=[class(0)] { (cell.text) }
                                    } @else {
                                        td class=[class(number)] {
                                            @if let Some(tone) = cell.tone { span.(tone.class()) { (cell.text) } }
                                            @else { (cell.text) }
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
            @for note in &self.notes { p.reading { (note) } }
        }
    }
}

/// Escapes text for a cell of a Markdown table.
pub(crate) fn markdown(text: &str) -> String {
    let text = printable(text).replace('|', "\\|").replace('\n', " ");
    let begins_tag =
        |rest: &str| rest.starts_with(|c: char| c.is_alphabetic() || "/!?".contains(c));
    let mut parts = text.split('<');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(if begins_tag(part) { "&lt;" } else { "<" });
        out.push_str(part);
    }
    out
}

/// Escapes text for a cell of CSV, so that no spreadsheet takes it for a formula.
fn csv(cell: &str) -> String {
    let is_formula = cell.starts_with(['=', '+', '@', '\t'])
        || (cell.starts_with('-') && cell.parse::<f64>().is_err());
    if is_formula {
        format!("\"'{}\"", cell.replace('"', "\"\""))
    } else if cell.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use maud::Render;

    use super::*;

    fn table() -> Table {
        Table::new([left("name"), right("µs")])
            .with_rows([["a|<b>", "1.5"], ["long\u{1b} name", "10"]])
            .with_notes(["A note.".to_owned()])
    }

    #[test]
    fn a_table_in_four_formats() {
        let terminal = "name         µs\na|<b>       1.5\nlong\u{fffd} name   10\nA note.\n";
        assert_eq!(table().terminal(), terminal);
        let markdown = "| name | µs |\n|---|---:|\n| a\\|&lt;b> | 1.5 |\n| long\u{fffd} name | 10 |\n\nA note.\n";
        assert_eq!(table().markdown(false), markdown);
        assert!(
            table()
                .markdown(true)
                .starts_with("| name       |  µs |\n|---|---:|\n")
        );
        assert_eq!(
            table().csv(),
            "name,µs\r\na|<b>,1.5\r\nlong\u{1b} name,10\r\n"
        );
        let html = table().render().into_string();
        assert!(
            html.contains("<th scope=\"row\" class=\"left\">a|&lt;b&gt;</th><td>1.5</td>"),
            "{html}"
        );
        assert!(html.ends_with("<p class=\"reading\">A note.</p>"), "{html}");
    }

    #[test]
    fn csv_cells_are_escaped() {
        assert_eq!(csv("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(csv("=1+1"), "\"'=1+1\"");
        assert_eq!(csv("-3.5"), "-3.5");
        assert_eq!(csv("two\nlines"), "\"two\nlines\"");
    }
}
