//! Loss and latency by subscriber and time, as maps of coloured cells.

use super::{Key, figure, labels, ms};
use crate::form::markup::Markup;
use crate::form::number;
use crate::form::plot::{Cell, Plot, Scale};
use crate::relay::{HeatMap, HeatMapRow, TrackReport};
use crate::statistics::float;

/// The levels of latency: up to so many milliseconds, the last without end. The same in every report, so that maps can
/// be compared.
const LATENCY_MS: [f64; 4] = [10.0, 30.0, 100.0, 300.0];
const LATENCY_KEYS: [Key; 5] = [
    ("heat0", "to 10 ms"),
    ("heat1", "to 30"),
    ("heat2", "to 100"),
    ("heat3", "to 300"),
    ("heat4", "above"),
];

/// The levels of loss: up to such a share of what was due.
const LOSS_SHARES: [f64; 4] = [0.001, 0.01, 0.1, 0.5];
const LOSS_KEYS: [Key; 5] = [
    ("loss0", "to 0.1 %"),
    ("loss1", "to 1 %"),
    ("loss2", "to 10 %"),
    ("loss3", "to half"),
    ("loss4", "more"),
];

/// The slowest object of every subscriber in every second.
pub(in crate::relay::html) fn latency(markup: &mut Markup, track: &TrackReport) {
    let Some(heat) = &track.heat else { return };
    let worst = heat.latency_max_ms();
    if worst <= 0.0 {
        return;
    }
    let reading = format!(
        "The slowest object of each cell; the slowest of all took {}.{}",
        ms(worst),
        about_rows(heat)
    );
    let level = |row: &HeatMapRow, column: usize| {
        let latency = row.latency_max_ms.get(column).copied()?;
        (latency > 0.0).then(|| level_of(latency, &LATENCY_MS))
    };
    let tip = |column: usize| {
        let slowest = heat
            .rows
            .iter()
            .filter_map(|row| Some((row, row.latency_max_ms.get(column).copied()?)))
            .max_by(|a, b| a.1.total_cmp(&b.1));
        slowest.map_or_else(String::new, |(row, latency)| {
            format!("slowest {}\n{}", ms(latency), who(row))
        })
    };
    let title = "Latency by subscriber and time";
    map(
        markup,
        heat,
        (title, &reading, "heat", &LATENCY_KEYS),
        level,
        tip,
    );
}

/// Where objects were lost, and to whom; nothing without a loss.
pub(in crate::relay::html) fn loss(markup: &mut Markup, track: &TrackReport) {
    let Some(heat) = &track.heat else { return };
    let lost_in = |row: &HeatMapRow| row.lost.iter().sum::<u64>();
    let lost: u64 = heat.rows.iter().map(lost_in).sum();
    if lost == 0 {
        return;
    }
    let hit = heat.rows.iter().filter(|row| lost_in(row) > 0).count();
    let reading = format!(
        "{} lost objects by their planned times, in {} of {} rows.{}",
        number::count(lost),
        hit,
        heat.rows.len(),
        about_rows(heat)
    );
    let level = |row: &HeatMapRow, column: usize| {
        let share = heat.lost_share(row, column)?;
        (share > 0.0).then(|| level_of(share, &LOSS_SHARES))
    };
    let tip = |column: usize| {
        let lost: u64 = heat
            .rows
            .iter()
            .filter_map(|row| row.lost.get(column))
            .sum();
        format!("{} lost", number::count(lost))
    };
    let title = "Loss by subscriber and time";
    map(
        markup,
        heat,
        (title, &reading, "loss", &LOSS_KEYS),
        level,
        tip,
    );
}

fn map(
    markup: &mut Markup,
    heat: &HeatMap,
    (title, reading, class, keys): (&str, &str, &str, &[Key]),
    level: impl Fn(&HeatMapRow, usize) -> Option<usize>,
    tip: impl Fn(usize) -> String,
) {
    let columns = heat.planned.len();
    let last = heat.rows.last();
    let subscribers = last.map_or(0, |row| row.first_subscriber + row.subscriptions.max(1));
    let labels = labels(
        title,
        reading,
        "seconds since the first object",
        "subscriber",
    );
    figure(markup, title, keys, reading, |markup| {
        let x = Scale::Linear {
            low: 0.0,
            high: heat.seconds_at(columns),
        };
        let y = Scale::Linear {
            low: 0.0,
            high: float(subscribers.max(1)),
        };
        Plot::new(x, y).draw(markup, &labels, |plot, markup| {
            for (number, (_, cells)) in (0_usize..).zip(levels(heat, &level)) {
                plot.cells(markup, &format!("{class}{number}"), &cells);
            }
            let strips: Vec<(f64, f64, String)> = (0..columns)
                .map(|column| {
                    let (from, to) = (heat.seconds_at(column), heat.seconds_at(column + 1));
                    let text = format!("second {}\n{}", number::plain(from), tip(column));
                    (from, to, text)
                })
                .collect();
            plot.strips(markup, &strips);
        });
    });
}

/// The cells of each level; neighbours of one row and level are one.
fn levels(
    heat: &HeatMap,
    level: &impl Fn(&HeatMapRow, usize) -> Option<usize>,
) -> Vec<(usize, Vec<Cell>)> {
    let mut levels: Vec<(usize, Vec<Cell>)> = (0..LATENCY_KEYS.len())
        .map(|number| (number, Vec::new()))
        .collect();
    let ends = heat.rows.iter().skip(1).map(|row| row.first_subscriber);
    let last = heat.rows.last();
    let end = last.map_or(0, |row| row.first_subscriber + row.subscriptions.max(1));
    for (row, to) in heat.rows.iter().zip(ends.chain([end])) {
        let heights = (float(row.first_subscriber), float(to));
        let mut run: Option<(usize, usize)> = None;
        for column in 0..=heat.planned.len() {
            let here = level(row, column).filter(|_| column < heat.planned.len());
            if let Some((number, from)) = run
                && here != Some(number)
            {
                let span = (heat.seconds_at(from), heat.seconds_at(column));
                levels[number].1.push((span, heights));
                run = None;
            }
            run = run.or_else(|| here.map(|number| (number, column)));
        }
    }
    levels
}

fn level_of(value: f64, bounds: &[f64]) -> usize {
    bounds.iter().filter(|bound| value > **bound).count()
}

fn about_rows(heat: &HeatMap) -> String {
    let most = heat.rows.iter().map(|row| row.subscriptions).max();
    match most.unwrap_or(0) {
        0 | 1 => String::new(),
        some => format!(
            " A row stands for up to {}.",
            number::counted(some, "subscription")
        ),
    }
}

fn who(row: &HeatMapRow) -> String {
    match row.subscriptions {
        0 | 1 => format!("subscriber {}", number::count(row.first_subscriber)),
        some => format!(
            "subscribers {} to {}",
            number::count(row.first_subscriber),
            number::count(row.first_subscriber + some - 1)
        ),
    }
}
