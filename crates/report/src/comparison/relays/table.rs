//! The table of relays: for the terminal, as Markdown, and as a page.

use super::{
    super::{
        Middle,
        column::{self, Column},
        incomplete,
        page::page,
        with_version,
    },
    Comparison, Standing,
};
use crate::form::{
    number::{NONE, or_none},
    table::Table,
};

/// What is told of each relay.
const COLUMNS: [Column<Standing>; 9] = [
    Column::words("relay", |one| {
        with_version(&one.entry.name, &one.entry.version)
    }),
    Column::words("draft", |one| {
        let draft = one.entry.draft.as_deref();
        draft.unwrap_or(NONE).to_owned()
    }),
    Column::words("held", held),
    Column::figures("µs/object", |one| spread(one.cpu_us_per_object, 1.0, "")),
    Column::figures("CPU", |one| spread(one.cpu_percent, 1.0, " %")),
    Column::figures("p99", |one| spread(one.p99_ms, 1.0, " ms")),
    Column::figures("lost", |one| one.lost.to_string()),
    Column::figures("KiB/session", |one| {
        spread(one.bytes_per_session, 1.0 / 1024.0, "")
    }),
    Column::words("against the first", |one| {
        or_none(one.against_first, |test| test.words())
    }),
];

/// A median with its spread.
fn spread(middle: Option<Middle>, scale: f64, unit: &str) -> String {
    let Some(middle) = middle else {
        return NONE.to_owned();
    };
    let [median, min, max] = [middle.median, middle.min, middle.max].map(|value| value * scale);
    if (max - min).abs() < 0.05 {
        format!("{median:.1}{unit}")
    } else {
        format!("{median:.1}{unit} ({min:.1}–{max:.1})")
    }
}

/// How many runs held the service level, and why the others did not.
fn held(standing: &Standing) -> String {
    let mut held = format!("{} of {}", standing.held, standing.judged());
    if let Some(clause) = &standing.broke {
        held = format!("{held}, {clause} broke");
    }
    if standing.generator_limited > 0 {
        held = format!("{held}, {} × generator", standing.generator_limited);
    }
    held
}

fn table(comparison: &Comparison) -> Table {
    let mut notes = comparison.setting.clone();
    notes.push(READING.to_owned());
    notes.extend(incomplete("runs", comparison.broken_off.as_deref()));
    column::table(&COLUMNS, comparison.contenders.relays.iter()).with_notes(notes)
}

/// The table for a terminal; every line ends with a line feed.
pub fn terminal(comparison: &Comparison) -> String {
    table(comparison).terminal()
}

/// The table as Markdown.
pub fn markdown(comparison: &Comparison) -> String {
    table(comparison).markdown(false)
}

/// The table as one HTML file that needs no network.
pub fn html(comparison: &Comparison) -> String {
    page("Relays compared", &table(comparison))
}

/// What the figures mean.
const READING: &str = "Median of the runs (smallest–largest). The last column tests whether the CPU time per object differs from \
that of the first relay (Mann-Whitney rank-sum test, exact, two-sided). Memory per session is taken in the warm-up run, before \
any object is sent.";
