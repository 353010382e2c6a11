//! Heat maps of loss and latency by subscriber and time.

use maud::{Markup, html};

use crate::form::number::{self, milliseconds as ms};
use crate::form::plot::{Cell, Plot, Strip};
use crate::form::scale::Scale;
use crate::relay::{HeatMap, HeatMapRow, TrackReport};
use crate::statistics::float;

/// A kind of heat map: title, levels with their CSS classes and legends.
struct Kind {
    title: &'static str,
    keys: [(&'static str, &'static str); 5],
    /// The largest value of each level; the last level has no bound.
    bounds: [f64; 4],
}

/// Levels of latency in milliseconds. They are the same in every report, so that maps can be compared.
const LATENCY: Kind = Kind {
    title: "Latency by subscriber and time",
    keys: [
        ("heat0", "up to 10 ms"),
        ("heat1", "30 ms"),
        ("heat2", "100 ms"),
        ("heat3", "300 ms"),
        ("heat4", "more"),
    ],
    bounds: [10.0, 30.0, 100.0, 300.0],
};

/// Levels of loss, as shares of the objects due.
const LOSS: Kind = Kind {
    title: "Loss by subscriber and time",
    keys: [
        ("loss0", "up to 0.1 %"),
        ("loss1", "1 %"),
        ("loss2", "10 %"),
        ("loss3", "50 %"),
        ("loss4", "more"),
    ],
    bounds: [0.001, 0.01, 0.1, 0.5],
};

/// The largest latency of every subscriber in every column of time.
pub(in crate::relay::html) fn latency(track: &TrackReport) -> Markup {
    let heat = track.heat.as_ref();
    let Some(heat) = heat.filter(|heat| heat.latency_max_ms() > 0.0) else {
        return html! {};
    };
    let reading = format!(
        "Colour: the slowest object of a subscriber in that time. The slowest object of all took {}.{}",
        ms(heat.latency_max_ms()),
        about_rows(heat)
    );
    let value = |row: &HeatMapRow, column: usize| row.latency_max_ms.get(column).copied();
    let tip = |column: usize| {
        let rows = heat.rows.iter();
        let slowest = rows
            .filter_map(|row| Some((row, value(row, column)?)))
            .max_by(|a, b| a.1.total_cmp(&b.1));
        slowest.map_or_else(String::new, |(row, latency)| {
            format!("slowest {}\n{}", ms(latency), subscribers_of(row))
        })
    };
    map(heat, &LATENCY, reading, value, tip)
}

/// The share of lost objects of every subscriber in every column of time; nothing without a loss.
pub(in crate::relay::html) fn loss(track: &TrackReport) -> Markup {
    let Some(heat) = &track.heat else {
        return html! {};
    };
    let lost_in = |row: &HeatMapRow| row.lost.iter().sum::<u64>();
    let lost: u64 = heat.rows.iter().map(lost_in).sum();
    if lost == 0 {
        return html! {};
    }
    let hit = heat.rows.iter().filter(|row| lost_in(row) > 0).count();
    let reading = format!(
        "{} lost objects at their planned send times, in {hit} of {} rows.{}",
        number::count(lost),
        heat.rows.len(),
        about_rows(heat)
    );
    let value = |row: &HeatMapRow, column: usize| heat.lost_share(row, column);
    let tip = |column: usize| {
        let rows = heat.rows.iter();
        let lost: u64 = rows.filter_map(|row| row.lost.get(column)).sum();
        format!("{} lost", number::count(lost))
    };
    map(heat, &LOSS, reading, value, tip)
}

fn map(
    heat: &HeatMap,
    kind: &Kind,
    reading: String,
    value: impl Fn(&HeatMapRow, usize) -> Option<f64>,
    tip: impl Fn(usize) -> String,
) -> Markup {
    let columns = heat.planned.len();
    let x = Scale::up_to(heat.seconds_at(columns));
    let y = Scale::up_to(float(subscribers(heat).max(1)));
    let axes = (("seconds since the first object", x), ("subscriber", y));
    let mut plot = Plot::new(kind.title, axes.0, axes.1)
        .reading(reading)
        .keys(kind.keys);
    let level = |row: &HeatMapRow, column: usize| {
        let value = value(row, column).filter(|value| *value > 0.0)?;
        Some(kind.bounds.iter().filter(|bound| value > **bound).count())
    };
    for ((class, _), cells) in kind.keys.iter().zip(levels(heat, &level)) {
        plot.cells(class, &cells);
    }
    let strip = |column: usize| -> Strip {
        let (from, to) = (heat.seconds_at(column), heat.seconds_at(column + 1));
        (
            from,
            to,
            format!("second {}\n{}", number::plain(from), tip(column)),
        )
    };
    plot.strips(&(0..columns).map(strip).collect::<Vec<_>>());
    plot.figure()
}

/// Returns the number of subscribers in all rows.
fn subscribers(heat: &HeatMap) -> u64 {
    let last = heat.rows.last();
    last.map_or(0, |row| row.first_subscriber + row.subscriptions.max(1))
}

/// Returns the cells of each level. Adjacent cells of one row and level are joined.
fn levels(heat: &HeatMap, level: &impl Fn(&HeatMapRow, usize) -> Option<usize>) -> [Vec<Cell>; 5] {
    let mut levels: [Vec<Cell>; 5] = Default::default();
    let ends = heat.rows.iter().skip(1).map(|row| row.first_subscriber);
    let end = subscribers(heat);
    for (row, to) in heat.rows.iter().zip(ends.chain([end])) {
        let heights = (float(row.first_subscriber), float(to));
        let mut run: Option<(usize, usize)> = None;
        for column in 0..=heat.planned.len() {
            let here = level(row, column).filter(|_| column < heat.planned.len());
            if let Some((number, from)) = run
                && here != Some(number)
            {
                let span = (heat.seconds_at(from), heat.seconds_at(column));
                levels[number].push((span, heights));
                run = None;
            }
            run = run.or_else(|| here.map(|number| (number, column)));
        }
    }
    levels
}

fn about_rows(heat: &HeatMap) -> String {
    let most = heat.rows.iter().map(|row| row.subscriptions).max();
    match most.unwrap_or(0) {
        0 | 1 => String::new(),
        some => format!(
            " Each row shows up to {}.",
            number::counted(some, "subscription")
        ),
    }
}

fn subscribers_of(row: &HeatMapRow) -> String {
    match row.subscriptions {
        0 | 1 => format!("subscriber {}", number::count(row.first_subscriber)),
        some => format!(
            "subscribers {} to {}",
            number::count(row.first_subscriber),
            number::count(row.first_subscriber + some - 1)
        ),
    }
}
