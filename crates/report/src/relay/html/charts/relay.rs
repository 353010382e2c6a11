//! Plots of what relay and generator spent, and of what the relay says of itself.

use super::{TIME, figure, labels};
use crate::form::markup::Markup;
use crate::form::number;
use crate::form::plot::{Plot, STRIPS_MAX, Scale};
use crate::relay::{Generator, GeneratorSecond, Relay, RelayMetric, RelaySecond};
use crate::statistics::float;

/// Points of a curve at most; longer series are thinned, and keep their largest.
const POINTS_MAX: usize = 400;

/// The relay's load, second by second.
pub(in crate::relay::html) fn cpu(markup: &mut Markup, relay: &Relay) {
    let Some(cost) = &relay.cost else { return };
    let reading = format!(
        "Shaded: the steady window, with {} % of a core on average.",
        number::decimal(cost.cpu_percent)
    );
    let largest = relay
        .per_second
        .iter()
        .map(|one| one.cpu_percent)
        .fold(1.0, f64::max);
    let points: Vec<(f64, f64)> = relay
        .per_second
        .iter()
        .map(|one| (float(one.second) + 0.5, one.cpu_percent))
        .collect();
    let labels = labels("CPU of the relay", &reading, TIME, "% of a core");
    figure(
        markup,
        labels.title,
        &[("bar", "CPU")],
        &reading,
        |markup| {
            plot(relay, largest * 1.05, 230.0).draw(markup, &labels, |plot, markup| {
                plot.shade(
                    markup,
                    "window",
                    (cost.window.from_ms / 1e3, cost.window.to_ms / 1e3),
                );
                let tip = |value: f64| format!("{} % of a core", number::decimal(value));
                curve(plot, markup, &points, tip);
            });
        },
    );
}

/// The relay's memory, second by second.
pub(in crate::relay::html) fn memory(markup: &mut Markup, relay: &Relay) {
    let Some(cost) = &relay.cost else { return };
    let mut reading = format!("At most {}.", number::bytes(float(cost.rss_peak_bytes)));
    if let Some(each) = cost.bytes_per_session {
        reading = format!(
            "{reading} A connected session takes {}.",
            number::bytes(each)
        );
    }
    let points: Vec<(f64, f64)> = relay
        .per_second
        .iter()
        .map(|one| (float(one.second) + 0.5, float(one.rss_bytes) / MEBIBYTE))
        .collect();
    let largest = points.iter().map(|(_, memory)| *memory).fold(0.1, f64::max);
    let labels = labels("Memory of the relay", &reading, TIME, "MiB resident");
    figure(
        markup,
        labels.title,
        &[("bar", "resident memory")],
        &reading,
        |markup| {
            plot(relay, largest * 1.05, 230.0).draw(markup, &labels, |plot, markup| {
                let tip = |value: f64| format!("{} MiB", number::decimal(value));
                curve(plot, markup, &points, tip);
            });
        },
    );
}

/// How often the relay gave up its core, and how often that was taken from it.
pub(in crate::relay::html) fn context_switches(markup: &mut Markup, relay: &Relay) {
    let at = |second: u64| float(second) + 0.5;
    let seconds = &relay.per_second;
    let points = |pick: fn(&RelaySecond) -> u64| -> Vec<(f64, f64)> {
        let points = seconds.iter().map(|one| (at(one.second), float(pick(one))));
        thinned(&points.collect::<Vec<_>>())
    };
    let voluntary = points(|one| one.context_switches_voluntary);
    let involuntary = points(|one| one.context_switches_involuntary);
    let both = || voluntary.iter().chain(&involuntary);
    let largest = both().map(|(_, switches)| *switches).fold(1.0, f64::max);
    let sum = |points: &[(f64, f64)]| points.iter().map(|(_, switches)| switches).sum::<f64>();
    if sum(&voluntary) + sum(&involuntary) <= 0.0 {
        return;
    }
    let reading = "A relay that sleeps between bursts gives up its core; one whose core is taken away competes with others.";
    let labels = labels("Context switches of the relay", reading, TIME, "per second");
    let keys = [("bar", "voluntary"), ("second", "involuntary")];
    figure(markup, labels.title, &keys, reading, |markup| {
        plot(relay, largest * 1.05, 230.0).draw(markup, &labels, |plot, markup| {
            plot.curve(markup, "bar", &voluntary, f64::INFINITY);
            plot.curve(markup, "second", &involuntary, f64::INFINITY);
        });
    });
}

/// What the relay says of itself over time: counters as rates, gauges as they are. Those that moved most.
pub(in crate::relay::html) fn metrics(markup: &mut Markup, relay: &Relay) {
    let mut series: Vec<(&RelayMetric, Vec<(f64, f64)>)> =
        relay.metrics.iter().map(|one| (one, course(one))).collect();
    let largest =
        |points: &[(f64, f64)]| points.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    series.retain(|(_, points)| points.len() > 1 && largest(points) > 0.0);
    series.sort_by(|(_, a), (_, b)| largest(b).total_cmp(&largest(a)));
    for (metric, points) in series.iter().take(METRICS_SHOWN_MAX) {
        let unit = if metric.is_counter {
            "per second"
        } else {
            "now"
        };
        let title: String = number::printable(&metric.metric)
            .chars()
            .take(TITLE_CHARS_MAX)
            .collect();
        let most = largest(points);
        let reading = if metric.is_counter {
            format!("At most {} {unit}.", number::decimal(most))
        } else {
            format!("At most {}.", number::decimal(most))
        };
        let labels = labels(&title, &reading, TIME, unit);
        figure(markup, labels.title, &[], &reading, |markup| {
            let last = points.last().map_or(1.0, |(at, _)| *at);
            let whole = relay.per_second.iter().map(|one| float(one.second + 1));
            let x = Scale::Linear {
                low: 0.0,
                high: whole.fold(last, f64::max),
            };
            let plot = Plot::new(x, Scale::from_zero(most * 1.05)).with_height(190.0);
            plot.draw(markup, &labels, |plot, markup| {
                curve(plot, markup, points, number::decimal);
            });
        });
    }
}

/// A metric as it is drawn: in seconds, and a counter by its growth.
fn course(metric: &RelayMetric) -> Vec<(f64, f64)> {
    let values = &metric.per_second;
    if !metric.is_counter {
        let points = values.iter().map(|one| (one.at_ms / 1e3, one.value));
        return points.collect();
    }
    let growth = values.windows(2).map(|pair| {
        let seconds = (pair[1].at_ms - pair[0].at_ms) / 1e3;
        let grown = (pair[1].value - pair[0].value).max(0.0);
        let rate = if seconds > 0.0 { grown / seconds } else { 0.0 };
        (pair[0].at_ms.midpoint(pair[1].at_ms) / 1e3, rate)
    });
    growth.collect()
}

/// What is drawn of the generator.
type Pick = fn(&GeneratorSecond) -> f64;

/// The generator's own memory and load.
pub(in crate::relay::html) fn generator(markup: &mut Markup, generator: &Generator) {
    let seconds = &generator.per_second;
    let points = |pick: fn(&GeneratorSecond) -> f64| -> Vec<(f64, f64)> {
        seconds
            .iter()
            .map(|one| (float(one.second) + 0.5, pick(one)))
            .collect()
    };
    let last = seconds.iter().map(|one| one.second + 1).max().unwrap_or(1);
    let charts: [(&str, &str, Pick); 2] = [
        ("CPU of the generator", "% of a core", |one| one.cpu_percent),
        ("Memory of the generator", "MiB resident", |one| {
            float(one.rss_bytes) / MEBIBYTE
        }),
    ];
    for (title, unit, pick) in charts {
        let points = points(pick);
        let largest = points.iter().map(|(_, value)| *value).fold(0.1, f64::max);
        let reading = format!("At most {} {unit}.", number::decimal(largest));
        let labels = labels(title, &reading, TIME, unit);
        figure(markup, labels.title, &[], &reading, |markup| {
            let x = Scale::Linear {
                low: 0.0,
                high: float(last),
            };
            let plot = Plot::new(x, Scale::from_zero(largest * 1.05)).with_height(190.0);
            plot.draw(markup, &labels, |plot, markup| {
                curve(plot, markup, &points, |value| {
                    format!("{} {unit}", number::decimal(value))
                });
            });
        });
    }
}

/// Metrics drawn at most.
const METRICS_SHOWN_MAX: usize = 6;
/// Characters of a metric's name above its plot.
const TITLE_CHARS_MAX: usize = 48;
const MEBIBYTE: f64 = 1024.0 * 1024.0;

fn plot(relay: &Relay, largest: f64, height: f64) -> Plot {
    let last = relay
        .per_second
        .iter()
        .map(|one| one.second + 1)
        .max()
        .unwrap_or(1);
    let x = Scale::Linear {
        low: 0.0,
        high: float(last),
    };
    Plot::new(x, Scale::from_zero(largest)).with_height(height)
}

/// As many points as are drawn; each stands for the largest of its neighbours.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let per_point = points.len().div_ceil(POINTS_MAX).max(1);
    let largest = |chunk: &[(f64, f64)]| chunk.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    points
        .chunks(per_point)
        .map(|chunk| (chunk[0].0, largest(chunk)))
        .collect()
}

fn curve(plot: Plot, markup: &mut Markup, points: &[(f64, f64)], tip: impl Fn(f64) -> String) {
    let per_point = points.len().div_ceil(POINTS_MAX).max(1);
    let points = thinned(points);
    plot.area(markup, "bar", &points);
    plot.curve(markup, "bar", &points, f64::INFINITY);
    let half = float(per_point as u64) / 2.0;
    let per_strip = points.len().div_ceil(STRIPS_MAX).max(1);
    let strips: Vec<(f64, f64, String)> = points
        .chunks(per_strip)
        .map(|chunk| {
            let (from, to) = (chunk[0].0 - half, chunk[chunk.len() - 1].0 + half);
            let worst = chunk.iter().map(|(_, value)| *value).fold(0.0, f64::max);
            (
                from,
                to,
                format!(
                    "{} s\n{}",
                    number::plain((from).max(0.0).floor()),
                    tip(worst)
                ),
            )
        })
        .collect();
    plot.strips(markup, &strips);
}
