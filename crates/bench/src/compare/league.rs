//! The league table: for the terminal, as Markdown, and as a page.

use super::{Comparison, Middle, Standing};
use crate::report::html::page;

const HEADING: [&str; 9] = [
    "relay",
    "draft",
    "held",
    "µs/object",
    "CPU",
    "p99",
    "lost",
    "KiB/session",
    "against the first",
];

fn cells(standing: &Standing) -> [String; 9] {
    let middle = |middle: Option<Middle>, scale: f64, unit: &str| {
        middle.map_or_else(
            || "–".to_owned(),
            |middle| {
                let [median, min, max] =
                    [middle.median, middle.min, middle.max].map(|value| value * scale);
                if (max - min).abs() < 0.05 {
                    format!("{median:.1}{unit}")
                } else {
                    format!("{median:.1}{unit} ({min:.1}–{max:.1})")
                }
            },
        )
    };
    let name = if standing.entry.version.is_empty() {
        standing.entry.name.clone()
    } else {
        format!("{} ({})", standing.entry.name, standing.entry.version)
    };
    let mut held = format!("{} of {}", standing.held, standing.judged());
    if let Some(clause) = &standing.broke {
        held = format!("{held}, {clause} broke");
    }
    if standing.generator_limited > 0 {
        held = format!("{held}, {} × generator", standing.generator_limited);
    }
    [
        name,
        standing
            .entry
            .draft
            .clone()
            .unwrap_or_else(|| "–".to_owned()),
        held,
        middle(standing.cpu_us_per_object, 1.0, ""),
        middle(standing.cpu_percent, 1.0, " %"),
        middle(standing.p99_ms, 1.0, " ms"),
        standing.lost.to_string(),
        middle(standing.bytes_per_session, 1.0 / 1024.0, ""),
        standing
            .against_first
            .map_or_else(|| "–".to_owned(), |test| test.words()),
    ]
}

/// What stands below the table.
fn notes(comparison: &Comparison) -> Vec<String> {
    let mut notes = comparison.setting.clone();
    notes.push(
        "Medians over the runs, smallest and largest in parentheses. The last column is the rank-sum test of Mann and \
         Whitney, exact and two-sided, on the CPU time per object."
            .to_owned(),
    );
    if let Some(reason) = &comparison.broken_off {
        notes.push(format!("Not all runs were made: {reason}."));
    }
    notes
}

/// The table for a terminal; every line ends with a line feed.
pub fn terminal(comparison: &Comparison) -> String {
    let rows: Vec<[String; 9]> = std::iter::once(HEADING.map(str::to_owned))
        .chain(comparison.relays.iter().map(cells))
        .collect();
    let widths: [usize; 9] = std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    });
    let mut text = String::new();
    for row in &rows {
        let padded = row.iter().zip(widths).enumerate();
        let line: Vec<String> = padded
            .map(|(column, (cell, width))| {
                let cell = crate::report::printable(cell);
                if column < 3 || column == 8 {
                    format!("{cell:<width$}")
                } else {
                    format!("{cell:>width$}")
                }
            })
            .collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    for note in notes(comparison) {
        text.push_str(&note);
        text.push('\n');
    }
    text
}

/// The table as Markdown.
pub fn markdown(comparison: &Comparison) -> String {
    let row = |cells: &[String; 9]| {
        let cells = cells
            .each_ref()
            .map(|cell| cell.replace('|', "\\|").replace('\n', " "));
        format!("| {} |\n", cells.join(" | "))
    };
    let mut text = row(&HEADING.map(str::to_owned));
    text.push_str("|---|---|---|--:|--:|--:|--:|--:|---|\n");
    for standing in &comparison.relays {
        text.push_str(&row(&cells(standing)));
    }
    for note in notes(comparison) {
        text.push('\n');
        text.push_str(&note);
        text.push('\n');
    }
    text
}

/// The table as one HTML file that needs no network.
pub fn html(comparison: &Comparison) -> String {
    let rows: Vec<Vec<String>> = comparison
        .relays
        .iter()
        .map(|standing| cells(standing).to_vec())
        .collect();
    page("Relays compared", &HEADING, &rows, &notes(comparison))
}
