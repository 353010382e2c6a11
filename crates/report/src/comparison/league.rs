//! The league table: for the terminal, as Markdown, and as a page.

use super::{Comparison, Middle, Standing};
use crate::form::league::page;
use crate::form::table::{self, Table};

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
         Whitney, exact and two-sided, on the CPU time per object. Memory per session is that of the first run of each \
         process, the one that warms it up, before anything is sent."
            .to_owned(),
    );
    if let Some(reason) = &comparison.broken_off {
        notes.push(format!("Not all runs were made: {reason}."));
    }
    notes
}

fn table(comparison: &Comparison) -> Table {
    let (left, right) = (table::LEFT, table::RIGHT);
    Table {
        heading: HEADING.map(str::to_owned).to_vec(),
        alignment: vec![left, left, left, right, right, right, right, right, left],
        rows: comparison
            .relays
            .iter()
            .map(|standing| cells(standing).to_vec())
            .collect(),
        notes: notes(comparison),
    }
}

/// The table for a terminal; every line ends with a line feed.
pub fn terminal(comparison: &Comparison) -> String {
    table(comparison).terminal()
}

/// The table as Markdown.
pub fn markdown(comparison: &Comparison) -> String {
    table(comparison).markdown()
}

/// The table as one HTML file that needs no network.
pub fn html(comparison: &Comparison) -> String {
    let table = table(comparison);
    page("Relays compared", &HEADING, &table.rows, &table.notes)
}
