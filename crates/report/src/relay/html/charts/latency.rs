//! Plots of a track's latency and arrivals.

use super::{TIME, figure, labels, ms};
use crate::form::markup::Markup;
use crate::form::number;
use crate::form::plot::{Plot, STRIPS_MAX, Scale};
use crate::relay::{Latency, LatencySecond, TrackReport};
use crate::statistics::Bucket;
use crate::statistics::float;

/// Points of a curve at most; longer series are thinned, and keep their worst.
const POINTS_MAX: u64 = 400;
/// Bars of the histogram at most.
const BARS_MAX: u32 = 72;

/// Latency second by second.
/// `what` is what took so long, in the singular.
pub(crate) fn over_time(markup: &mut Markup, latency: &Latency, what: &str) {
    let (seconds, step) = thinned(&latency.per_second);
    let Some(overall) = latency.overall else {
        return;
    };
    if seconds.is_empty() {
        return;
    }
    let largest = seconds.iter().map(|one| one.max_ms).fold(0.0, f64::max);
    let smallest = seconds
        .iter()
        .map(|one| one.p50_ms)
        .fold(f64::INFINITY, f64::min);
    let y = if largest > 12.0 * smallest {
        Scale::log_around(smallest, largest)
    } else {
        Scale::from_zero(largest)
    };
    let unit = if matches!(y, Scale::Log { .. }) {
        "ms, log scale"
    } else {
        "ms"
    };
    let worst = seconds
        .iter()
        .copied()
        .reduce(|a, b| if b.max_ms > a.max_ms { b } else { a });
    let reading = worst.map_or_else(String::new, |worst| {
        format!(
            "The slowest {what} took {}, in second {}.",
            ms(worst.max_ms),
            number::count(worst.second)
        )
    }) + &thinning(step);
    let description = format!(
        "Latency per second over {} seconds; over the whole run p50 {}, p99 {}, largest {}.",
        seconds.len(),
        ms(overall.p50_ms),
        ms(overall.p99_ms),
        ms(overall.max_ms)
    );
    let labels = labels("Latency over time", &description, TIME, unit);
    let keys = [("max", "slowest"), ("p99", "p99"), ("p50", "p50")];
    figure(markup, labels.title, &keys, &reading, |markup| {
        Plot::new(time_axis(&seconds), y).draw(markup, &labels, |plot, markup| {
            let curve = |pick: fn(&LatencySecond) -> f64| -> Vec<(f64, f64)> {
                seconds
                    .iter()
                    .map(|one| (middle(one.second, step), pick(one)))
                    .collect()
            };
            let gap = float(step) * 1.5;
            plot.curve(markup, "max", &curve(|one| one.max_ms), gap);
            plot.curve(markup, "p99", &curve(|one| one.p99_ms), gap);
            plot.curve(markup, "p50", &curve(|one| one.p50_ms), gap);
            plot.strips(
                markup,
                &second_strips(&seconds, step, |one| {
                    format!(
                        "p50 {}\np99 {}\nslowest {}",
                        ms(one.p50_ms),
                        ms(one.p99_ms),
                        ms(one.max_ms)
                    )
                }),
            );
        });
    });
}

/// Arrivals second by second, against the plan.
pub(in crate::relay::html) fn objects_over_time(markup: &mut Markup, track: &TrackReport) {
    let (seconds, step) = thinned(&track.latency.per_second);
    let interval_ms = track.definition.time_interval_ms;
    if seconds.is_empty() || interval_ms <= 0.0 || track.subscribers.is_empty() {
        return;
    }
    let planned = 1000.0 / interval_ms * float(track.subscribers.len() as u64);
    let rate = |one: &LatencySecond| float(one.objects) / float(step);
    let largest = seconds.iter().map(rate).fold(planned, f64::max);
    let description = format!(
        "Objects that arrived per second, over all subscribers; the plan is {} per second.",
        number::plain(planned.round())
    );
    let labels = labels("Objects received", &description, TIME, "objects per second");
    let reading = "The first and the last second are cut by the run's own beginning and end.";
    figure(
        markup,
        labels.title,
        &[("bar", "received")],
        reading,
        |markup| {
            let plot = Plot::new(time_axis(&seconds), Scale::from_zero(largest * 1.08));
            plot.with_height(210.0)
                .draw(markup, &labels, |plot, markup| {
                    let points: Vec<(f64, f64)> = seconds
                        .iter()
                        .map(|one| (middle(one.second, step), rate(one)))
                        .collect();
                    plot.area(markup, "bar", &points);
                    plot.curve(markup, "bar", &points, f64::INFINITY);
                    let name = format!("planned {}", number::plain(planned.round()));
                    plot.level(markup, "plan", planned, &name);
                    plot.strips(
                        markup,
                        &second_strips(&seconds, step, |one| {
                            format!("{} objects per second", number::plain(rate(one).round()))
                        }),
                    );
                });
        },
    );
}

/// How many objects took how long.
/// `what` is what took so long, in the singular.
pub(crate) fn histogram(markup: &mut Markup, latency: &Latency, what: &str) {
    let (Some(overall), Some(bars)) = (latency.overall, Bars::of(&latency.histogram)) else {
        return;
    };
    let all: f64 = bars.counts.iter().sum();
    let percent = |count: f64| count / all * 100.0;
    let tallest = bars.counts.iter().copied().fold(0.0, f64::max);
    let description = format!(
        "Histogram of latency over {} {what}s; p50 {}, p90 {}, p99 {}, largest {}.",
        number::count(overall.count),
        ms(overall.p50_ms),
        ms(overall.p90_ms),
        ms(overall.p99_ms),
        ms(overall.max_ms)
    );
    let share_of_all = format!("% of {what}s");
    let labels = labels(
        "Latency histogram",
        &description,
        "ms, log scale",
        &share_of_all,
    );
    let reading =
        format!("Every bar that holds one {what} is drawn at least as tall as can be seen.");
    figure(markup, labels.title, &[], &reading, |markup| {
        let plot = Plot::new(bars.scale, Scale::from_zero(percent(tallest)));
        plot.draw(markup, &labels, |plot, markup| {
            let filled = || {
                bars.counts
                    .iter()
                    .enumerate()
                    .filter(|(_, count)| **count > 0.0)
            };
            for (bar, count) in filled() {
                plot.bar(markup, "bar", bars.span(bar), (0.0, percent(*count)));
            }
            plot.marks(
                markup,
                &[
                    (
                        overall.p50_ms,
                        "p50",
                        format!("p50 {}", number::brief(overall.p50_ms)),
                    ),
                    (
                        overall.p90_ms,
                        "p90",
                        format!("p90 {}", number::brief(overall.p90_ms)),
                    ),
                    (
                        overall.p99_ms,
                        "p99",
                        format!("p99 {}", number::brief(overall.p99_ms)),
                    ),
                    (
                        overall.max_ms,
                        "max",
                        format!("max {}", number::brief(overall.max_ms)),
                    ),
                ],
            );
            let strips: Vec<(f64, f64, String)> = filled()
                .map(|(bar, count)| {
                    let (from, to) = bars.span(bar);
                    let (from_ms, to_ms) = (number::decimal(from), number::decimal(to));
                    let share = percent(*count);
                    let share = if share < 0.001 {
                        "<0.001".to_owned()
                    } else {
                        number::decimal(share)
                    };
                    (
                        from,
                        to,
                        format!("{from_ms} to {to_ms} ms\n{share} {share_of_all}"),
                    )
                })
                .collect();
            plot.strips(markup, &strips);
        });
    });
}

/// A histogram on equal steps of a logarithmic scale.
struct Bars {
    scale: Scale,
    counts: Vec<f64>,
}

impl Bars {
    /// Spreads buckets over bars, each by its share of the bucket's width; none without a value.
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

/// The least latency that is told apart.
const FLOOR_MS: f64 = 0.001;

fn middle(second: u64, step: u64) -> f64 {
    float(second) + float(step) / 2.0
}

fn thinning(step: u64) -> String {
    if step > 1 {
        format!(" Each point covers {step} seconds and shows the worst.")
    } else {
        String::new()
    }
}

/// The axis of seconds with data; it begins where the data begins, since set-up may take long.
fn time_axis(seconds: &[LatencySecond]) -> Scale {
    let low = seconds.first().map_or(0, |one| one.second);
    let high = seconds.last().map_or(1, |one| one.second + 1);
    Scale::Linear {
        low: float(low),
        high: float(high.max(low + 1)),
    }
}

/// At most [`POINTS_MAX`] points, and how many seconds each covers; the worst of them stands for all.
fn thinned(seconds: &[LatencySecond]) -> (Vec<LatencySecond>, u64) {
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

fn second_strips(
    seconds: &[LatencySecond],
    step: u64,
    text: impl Fn(&LatencySecond) -> String,
) -> Vec<(f64, f64, String)> {
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
