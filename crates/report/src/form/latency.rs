//! Latency of objects or requests: percentiles, a plot over time, a histogram.

use maud::{Markup, Render, html};

use super::number::{self, milliseconds as ms};
use super::page::Card;
use super::plot::{Plot, STRIPS_MAX, Strip, TIME};
use super::scale::Scale;
use super::table::Table;
use crate::latency::{Latency, LatencySecond};
use crate::statistics::{Bucket, Distribution, float};

/// Most points of a curve. In a longer series, each point is the worst of several seconds.
const POINTS_MAX: u64 = 400;
/// Bars of the histogram.
const BARS_MAX: u32 = 72;

/// Returns a card with the 99th percentile.
pub(crate) fn card(latency: &Distribution) -> Card {
    Card {
        name: "Latency p99",
        value: number::decimal(latency.p99_ms),
        unit: "ms".to_owned(),
        beside: format!("p50 {}, slowest {}", ms(latency.p50_ms), ms(latency.max_ms)),
        is_alarm: false,
    }
}

/// Returns the cells of a row: median, 90th and 99th percentile, maximum.
pub(crate) fn percentiles(distribution: Option<&Distribution>) -> [String; 4] {
    let picks: [fn(&Distribution) -> f64; 4] = [
        |one| one.p50_ms,
        |one| one.p90_ms,
        |one| one.p99_ms,
        |one| one.max_ms,
    ];
    picks.map(|pick| number::or_none(distribution, |one| ms(pick(one))))
}

/// Renders a table of percentiles.
pub(crate) fn quantiles(rows: &[(&str, Option<Distribution>)]) -> Markup {
    let row = |(name, distribution): &(&str, Option<Distribution>)| {
        let distribution = distribution.as_ref();
        let mean = number::or_none(distribution, |one| ms(one.mean_ms));
        let name = [(*name).to_owned()].into_iter();
        name.chain(percentiles(distribution)).chain([mean])
    };
    Table::of_figures(["", "p50", "p90", "p99", "Max", "Mean"])
        .with_rows(rows.iter().map(row))
        .render()
}

/// Returns the label and scale of a time axis: logarithmic if the values are far apart.
pub(crate) fn axis(smallest_ms: f64, largest_ms: f64) -> (&'static str, Scale) {
    if largest_ms > 12.0 * smallest_ms {
        ("ms, log scale", Scale::log_around(smallest_ms, largest_ms))
    } else {
        ("ms", Scale::from_zero(largest_ms))
    }
}

/// Renders latency in each second. `what` is the singular noun of what is measured, such as `object`.
pub(crate) fn over_time(latency: &Latency, what: &str) -> Markup {
    let (seconds, step) = thinned(&latency.per_second);
    let worst = seconds
        .iter()
        .copied()
        .reduce(|a, b| if b.max_ms > a.max_ms { b } else { a });
    let (Some(overall), Some(worst)) = (latency.overall, worst) else {
        return html! {};
    };
    let largest = seconds.iter().map(|one| one.max_ms).fold(0.0, f64::max);
    let medians = seconds.iter().map(|one| one.p50_ms);
    let smallest = medians.fold(f64::INFINITY, f64::min);
    let reading = format!(
        "The slowest {what} took {}, in second {}.{}",
        ms(worst.max_ms),
        number::count(worst.second),
        thinning(step)
    );
    let description = format!(
        "Latency per second over {} seconds; over the whole run p50 {}, p99 {}, largest {}.",
        seconds.len(),
        ms(overall.p50_ms),
        ms(overall.p99_ms),
        ms(overall.max_ms)
    );
    let axes = ((TIME, time_axis(&seconds)), axis(smallest, largest));
    let mut plot = Plot::new("Latency over time", axes.0, axes.1)
        .reading(reading)
        .described(description)
        .keys([("max", "slowest"), ("p99", "p99"), ("p50", "p50")]);
    let curve = |pick: fn(&LatencySecond) -> f64| -> Vec<(f64, f64)> {
        let points = seconds.iter();
        points
            .map(|one| (middle(one.second, step), pick(one)))
            .collect()
    };
    let gap = float(step) * 1.5;
    plot.curve("max", &curve(|one| one.max_ms), gap);
    plot.curve("p99", &curve(|one| one.p99_ms), gap);
    plot.curve("p50", &curve(|one| one.p50_ms), gap);
    plot.strips(&second_strips(&seconds, step, |one| {
        let [p50, p99, max] = [one.p50_ms, one.p99_ms, one.max_ms].map(ms);
        format!("p50 {p50}\np99 {p99}\nslowest {max}")
    }));
    plot.figure()
}

/// Renders a histogram of latency. `what` is the singular noun of what is measured, such as `object`.
pub(crate) fn histogram(latency: &Latency, what: &str) -> Markup {
    let (Some(overall), Some(bars)) = (latency.overall, Bars::of(&latency.histogram)) else {
        return html! {};
    };
    let all: f64 = bars.counts.iter().sum();
    let percent = |count: f64| count / all * 100.0;
    let tallest = bars.counts.iter().copied().fold(0.0, f64::max);
    let marks = [
        ("p50", overall.p50_ms),
        ("p90", overall.p90_ms),
        ("p99", overall.p99_ms),
        ("max", overall.max_ms),
    ];
    let description = format!(
        "Histogram of latency over {} {what}s; p50 {}, p90 {}, p99 {}, largest {}.",
        number::count(overall.count),
        ms(overall.p50_ms),
        ms(overall.p90_ms),
        ms(overall.p99_ms),
        ms(overall.max_ms)
    );
    let share_of_all = format!("% of {what}s");
    let y = (&*share_of_all, Scale::from_zero(percent(tallest)));
    let mut plot = Plot::new("Latency histogram", ("ms, log scale", bars.scale), y)
        .reading(format!(
            "A bar with at least one {what} has a visible height, however small its share."
        ))
        .described(description);
    let filled = || (0..).zip(&bars.counts).filter(|(_, count)| **count > 0.0);
    for (bar, count) in filled() {
        plot.bar("bar", bars.span(bar), (0.0, percent(*count)));
    }
    plot.marks(
        &marks.map(|(name, value)| (value, name, format!("{name} {}", number::brief(value)))),
    );
    let strip = |(bar, count): (usize, &f64)| {
        let (from, to) = bars.span(bar);
        let share = match percent(*count) {
            share if share < 0.001 => "<0.001".to_owned(),
            share => number::decimal(share),
        };
        let (from_ms, to_ms) = (number::decimal(from), number::decimal(to));
        (
            from,
            to,
            format!("{from_ms} to {to_ms} ms\n{share} {share_of_all}"),
        )
    };
    plot.strips(&filled().map(strip).collect::<Vec<_>>());
    plot.figure()
}

/// The bars of a histogram, in equal steps of a logarithmic scale.
struct Bars {
    scale: Scale,
    counts: Vec<f64>,
}

impl Bars {
    /// Distributes buckets over bars in proportion to their overlap; none without a value.
    fn of(buckets: &[Bucket]) -> Option<Self> {
        let sound = || {
            buckets
                .iter()
                .filter(|one| one.count > 0 && one.to_ms > one.from_ms)
        };
        let low = sound()
            .map(|one| one.from_ms.max(FLOOR_MS))
            .reduce(f64::min)?;
        let high = sound().map(|one| one.to_ms).reduce(f64::max)?;
        let scale = Scale::log_around(low, high);
        let number = BARS_MAX;
        let mut bars = Self {
            scale,
            counts: vec![0.0; number as usize],
        };
        for bucket in sound() {
            let (from, to) = (
                bucket.from_ms.max(FLOOR_MS),
                bucket.to_ms.max(FLOOR_MS * 1.001),
            );
            let whole = to - from;
            for bar in 0..number as usize {
                let (left, right) = bars.span(bar);
                let overlap = to.min(right) - from.max(left);
                if overlap > 0.0 {
                    bars.counts[bar] += float(bucket.count) * overlap / whole;
                }
            }
        }
        Some(bars)
    }

    fn span(&self, bar: usize) -> (f64, f64) {
        let edge = |bar: usize| self.scale.value(float(bar as u64) / f64::from(BARS_MAX));
        (edge(bar), edge(bar + 1))
    }
}

/// Least latency on the axis of a histogram.
const FLOOR_MS: f64 = 0.001;

pub(crate) fn middle(second: u64, step: u64) -> f64 {
    float(second) + float(step) / 2.0
}

fn thinning(step: u64) -> String {
    if step > 1 {
        format!(" Each point covers {step} seconds and shows the worst.")
    } else {
        String::new()
    }
}

/// Returns the axis of the seconds with data. It begins with the first, because set-up may take long.
pub(crate) fn time_axis(seconds: &[LatencySecond]) -> Scale {
    let low = seconds.first().map_or(0, |one| one.second);
    let high = seconds.last().map_or(1, |one| one.second + 1);
    Scale::Linear {
        low: float(low),
        high: float(high.max(low + 1)),
    }
}

/// Returns at most [`POINTS_MAX`] points, and the seconds that each covers. A point has the worst values of its seconds.
pub(crate) fn thinned(seconds: &[LatencySecond]) -> (Vec<LatencySecond>, u64) {
    let first = seconds.first().map_or(0, |one| one.second);
    let last = seconds.last().map_or(0, |one| one.second);
    let step = (last.saturating_sub(first) + 1).div_ceil(POINTS_MAX).max(1);
    let mut points: Vec<LatencySecond> = Vec::new();
    for one in seconds {
        let second = first + one.second.saturating_sub(first) / step * step;
        match points.last_mut() {
            Some(point) if point.second == second => {
                point.objects += one.objects;
                point.p50_ms = point.p50_ms.max(one.p50_ms);
                point.p99_ms = point.p99_ms.max(one.p99_ms);
                point.max_ms = point.max_ms.max(one.max_ms);
            }
            Some(_) | None => points.push(LatencySecond { second, ..*one }),
        }
    }
    (points, step)
}

pub(crate) fn second_strips(
    seconds: &[LatencySecond],
    step: u64,
    text: impl Fn(&LatencySecond) -> String,
) -> Vec<Strip> {
    let per_strip = seconds.len().div_ceil(STRIPS_MAX).max(1);
    seconds
        .chunks(per_strip)
        .map(|chunk| {
            let worst = chunk
                .iter()
                .fold(chunk[0], |a, b| if b.max_ms > a.max_ms { *b } else { a });
            let end = chunk[chunk.len() - 1].second + step;
            let text = format!("second {}\n{}", number::count(worst.second), text(&worst));
            (float(chunk[0].second), float(end), text)
        })
        .collect()
}
