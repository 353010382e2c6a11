//! The table of a comparison of relays: for the terminal, as Markdown, and as an HTML page.

use super::{
    super::{
        Median,
        column::{self, Column},
        incomplete,
        page::page,
        with_version,
    },
    Comparison, Standing,
};
use crate::{
    form::{
        number::{NONE, or_none},
        table::Table,
    },
    relay::Audience,
};

/// The columns of the table.
const COLUMNS: [Column<Standing>; 10] = [
    Column::words("relay", |one| {
        with_version(&one.entry.name, &one.entry.version)
    }),
    Column::words("draft", |one| {
        let draft = one.entry.draft.as_deref();
        draft.unwrap_or(NONE).to_owned()
    }),
    Column::words("runs that held", held),
    Column::figures("CPU µs/object", |one| {
        spread(one.cpu_us_per_object, 1.0, "")
    }),
    Column::figures("CPU of a core", |one| spread(one.cpu_percent, 1.0, " %")),
    Column::figures("latency p99", |one| spread(one.p99_ms, 1.0, " ms")),
    Column::figures("lost objects", |one| one.lost.to_string()),
    Column::figures("KiB/session", |one| {
        spread(one.bytes_per_session, 1.0 / 1024.0, "")
    }),
    Column::words("ACKs/packet", |one| {
        let audience = one.entry.audience.as_ref();
        let acknowledged = audience.and_then(Audience::acknowledged_in_words);
        acknowledged.map_or_else(
            || NONE.to_owned(),
            |(rate, asked)| format!("{rate}, {asked}"),
        )
    }),
    Column::words("CPU against the first", |one| {
        or_none(one.against_first, |test| test.words())
    }),
];

/// Returns a median with minimum and maximum.
fn spread(figure: Option<Median>, scale: f64, unit: &str) -> String {
    let Some(figure) = figure else {
        return NONE.to_owned();
    };
    let [median, min, max] = [figure.median, figure.min, figure.max].map(|value| value * scale);
    if (max - min).abs() < 0.05 {
        format!("{median:.1}{unit}")
    } else {
        format!("{median:.1}{unit} ({min:.1}–{max:.1})")
    }
}

/// Returns how many runs held the service level, and which clause broke in others.
fn held(standing: &Standing) -> String {
    let mut held = format!("{} of {}", standing.held, standing.judged());
    if let Some(clause) = &standing.broke {
        held = format!("{held}, {clause} broke");
    }
    if standing.generator_limited > 0 {
        held = format!(
            "{held} ({} more invalid: generator was the limit)",
            standing.generator_limited
        );
    }
    held
}

/// Returns the settings of all subscribers in one sentence, or of each relay's in one if they differ.
fn audiences(relays: &[Standing]) -> Vec<String> {
    let settings = |one: &Standing| {
        let audience = one.entry.audience.as_ref();
        audience.map(Audience::settings_in_words)
    };
    let mut known: Vec<(&str, String)> = relays
        .iter()
        .filter_map(|one| Some((one.entry.name.as_str(), settings(one)?)))
        .collect();
    if known.iter().all(|(_, settings)| *settings == known[0].1) {
        known.truncate(1);
        return known
            .into_iter()
            .map(|(_, settings)| format!("Audience: {settings}."))
            .collect();
    }
    let named = |(name, settings)| format!("Audience of {name}: {settings}.");
    known.into_iter().map(named).collect()
}

fn table(comparison: &Comparison) -> Table {
    let mut notes = comparison.setting.clone();
    notes.extend(audiences(&comparison.contenders.relays));
    notes.push(READING.to_owned());
    notes.extend(incomplete("runs", comparison.broken_off.as_deref()));
    column::table(&COLUMNS, comparison.contenders.relays.iter()).with_notes(notes)
}

/// Renders the table for a terminal; every line ends with a line feed.
pub fn terminal(comparison: &Comparison) -> String {
    table(comparison).terminal()
}

/// Renders the table as Markdown.
pub fn markdown(comparison: &Comparison) -> String {
    table(comparison).markdown(false)
}

/// Renders the table as one HTML file that needs no network.
pub fn html(comparison: &Comparison) -> String {
    page("Relays compared", &table(comparison))
}

/// The note that explains the figures.
const READING: &str = "Median of the runs (smallest–largest). ACKs/packet: ACK frames that subscribers sent for each UDP payload, in the last run, and \
whether the relay asked for others. The last column tests whether the CPU time per object differs from \
that of the first relay (Mann-Whitney rank-sum test, exact, two-sided). Memory per session is taken in the warm-up run, before \
any object is sent.";
