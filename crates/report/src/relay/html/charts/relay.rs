//! Plots of the load of relay and generator, and of the metrics that the relay exports.

use maud::{Markup, html};

use crate::form::number;
use crate::form::plot::{Plot, STRIPS_MAX, Strip, TIME};
use crate::form::scale::Scale;
use crate::relay::{Agent, Generator, GeneratorSecond, Relay, RelayCost, RelayMetric, RelaySecond};
use crate::statistics::float;

/// Most points of a curve. In a longer series, each point is the largest of several values.
const POINTS_MAX: usize = 400;
/// Most agents with a chart. The table has more.
const AGENTS_SHOWN_MAX: usize = 12;

/// CPU, memory and context switches of the relay in each second.
pub(in crate::relay::html) fn relay(relay: &Relay, cost: &RelayCost) -> [Markup; 3] {
    [
        cpu(relay, cost),
        memory(relay, cost),
        context_switches(relay),
    ]
}

fn cpu(relay: &Relay, cost: &RelayCost) -> Markup {
    let points = points(&relay.per_second, |one| (one.second, one.cpu_percent));
    let mut plot = plot("CPU of the relay", "% of a core", &points, 1.0)
        .reading(format!(
            "Shaded: the steady window. Mean load in it: {} % of a core.",
            number::decimal(cost.cpu_percent)
        ))
        .keys([("bar", "CPU")])
        .height(230.0);
    let window = cost.window;
    plot.shade("window", (window.from_ms / 1e3, window.to_ms / 1e3));
    curve(&mut plot, &points, |value| {
        format!("{} % of a core", number::decimal(value))
    });
    plot.figure()
}

fn memory(relay: &Relay, cost: &RelayCost) -> Markup {
    let each = cost.bytes_per_session.map_or_else(String::new, |each| {
        format!(
            " A connected session takes {} before objects are sent.",
            number::bytes(each)
        )
    });
    let most = number::bytes(float(cost.rss_peak_bytes));
    let points = points(&relay.per_second, |one| {
        (one.second, float(one.rss_bytes) / MEBIBYTE)
    });
    let mut plot = plot("Memory of the relay", "MiB resident", &points, 0.1)
        .reading(format!("At most {most}.{each}"))
        .keys([("bar", "resident memory")])
        .height(230.0);
    curve(&mut plot, &points, |value| {
        format!("{} MiB", number::decimal(value))
    });
    plot.figure()
}

/// Voluntary and involuntary context switches in each second.
fn context_switches(relay: &Relay) -> Markup {
    let seconds = &relay.per_second;
    let switches = |pick: fn(&RelaySecond) -> u64| {
        thinned(&points(seconds, |one| (one.second, float(pick(one)))))
    };
    let voluntary = switches(|one| one.context_switches_voluntary);
    let involuntary = switches(|one| one.context_switches_involuntary);
    let both: Vec<(f64, f64)> = voluntary.iter().chain(&involuntary).copied().collect();
    if both.iter().all(|(_, switches)| *switches <= 0.0) {
        return html! {};
    }
    let mut plot = plot("Context switches of the relay", "per second", &both, 1.0)
        .reading(
            "Voluntary: a thread had to wait for packets or timers. Involuntary: another thread took the core.",
        )
        .keys([("bar", "voluntary"), ("second", "involuntary")])
        .height(230.0);
    plot.curve("bar", &voluntary, f64::INFINITY);
    plot.curve("second", &involuntary, f64::INFINITY);
    plot.figure()
}

/// Metrics that the relay exports: counters as rates, gauges as values. Those with the largest values come first.
pub(in crate::relay::html) fn metrics(relay: &Relay) -> Vec<Markup> {
    let mut series: Vec<(&RelayMetric, Vec<(f64, f64)>)> =
        relay.metrics.iter().map(|one| (one, values(one))).collect();
    series.retain(|(_, points)| points.len() > 1 && largest(points, 0.0) > 0.0);
    series.sort_by(|(_, a), (_, b)| largest(b, 0.0).total_cmp(&largest(a, 0.0)));
    let whole = relay.per_second.iter().map(|one| float(one.second + 1));
    let whole = whole.fold(0.0, f64::max);
    let figure = |(metric, points): &(&RelayMetric, Vec<(f64, f64)>)| {
        let most = number::decimal(largest(points, 0.0));
        let (unit, reading) = if metric.is_counter {
            ("per second", format!("At most {most} per second."))
        } else {
            ("value", format!("At most {most}."))
        };
        let title: String = metric.metric.chars().take(TITLE_CHARS_MAX).collect();
        let last = points.last().map_or(1.0, |(at, _)| *at);
        let x = Scale::up_to(last.max(whole));
        let y = (unit, Scale::from_zero(largest(points, 0.0) * 1.05));
        let mut plot = Plot::new(title, (TIME, x), y)
            .reading(reading)
            .height(190.0);
        curve(&mut plot, points, number::decimal);
        plot.figure()
    };
    series.iter().take(METRICS_SHOWN_MAX).map(figure).collect()
}

/// Returns the points of a metric's plot: time in seconds; the value of a gauge, or the rate of a counter.
fn values(metric: &RelayMetric) -> Vec<(f64, f64)> {
    let samples = &metric.per_second;
    if !metric.is_counter {
        let points = samples.iter().map(|one| (one.at_ms / 1e3, one.value));
        return points.collect();
    }
    let growth = samples.windows(2).map(|pair| {
        let seconds = (pair[1].at_ms - pair[0].at_ms) / 1e3;
        let grown = (pair[1].value - pair[0].value).max(0.0);
        let rate = if seconds > 0.0 { grown / seconds } else { 0.0 };
        (pair[0].at_ms.midpoint(pair[1].at_ms) / 1e3, rate)
    });
    growth.collect()
}

/// The value of a plot of the generator.
type Pick = fn(&GeneratorSecond) -> f64;

/// CPU and memory of the load generator.
pub(in crate::relay::html) fn generator(generator: &Generator) -> [Markup; 2] {
    let charts: [(&str, &str, Pick); 2] = [
        ("CPU of the load generator", "% of a core", |one| {
            one.cpu_percent
        }),
        ("Memory of the load generator", "MiB resident", |one| {
            float(one.rss_bytes) / MEBIBYTE
        }),
    ];
    charts.map(|(title, unit, pick)| {
        let points = points(&generator.per_second, |one| (one.second, pick(one)));
        let most = number::decimal(largest(&points, 0.1));
        let mut plot = plot(title, unit, &points, 0.1)
            .reading(format!("At most {most} {unit}."))
            .height(190.0);
        curve(&mut plot, &points, |value| {
            format!("{} {unit}", number::decimal(value))
        });
        plot.figure()
    })
}

/// Most metrics drawn.
const METRICS_SHOWN_MAX: usize = 6;
/// Most characters of a metric's name in the title of its plot.
const TITLE_CHARS_MAX: usize = 48;
const MEBIBYTE: f64 = 1024.0 * 1024.0;

/// Returns a point in the middle of each second.
/// The event-loop lag of each agent in each second.
pub(in crate::relay::html) fn agents(generator: &Generator) -> Vec<Markup> {
    let agents = generator.agents.iter().take(AGENTS_SHOWN_MAX);
    let figure = |agent: &Agent| {
        let points = points(&agent.per_second, |one| {
            (one.second, one.event_loop_lag_p99_ms)
        });
        let most = number::decimal(largest(&points, 0.0));
        let name: String = agent.name.chars().take(TITLE_CHARS_MAX).collect();
        let title = format!("Event-loop lag of {name}");
        let mut plot = plot(&title, "ms, p99", &points, 1.0)
            .reading(format!("At most {most} ms; a run is invalid above 50 ms."))
            .height(190.0);
        curve(&mut plot, &points, |value| {
            format!("{} ms", number::decimal(value))
        });
        plot.figure()
    };
    agents.map(figure).collect()
}

fn points<T>(seconds: &[T], pick: impl Fn(&T) -> (u64, f64)) -> Vec<(f64, f64)> {
    let point = |one| {
        let (second, value) = pick(one);
        (float(second) + 0.5, value)
    };
    seconds.iter().map(point).collect()
}

fn largest(points: &[(f64, f64)], least: f64) -> f64 {
    points.iter().map(|(_, value)| *value).fold(least, f64::max)
}

/// Creates a plot over time. Its values start at 0 and end at the largest, at least at `least`.
fn plot<'a>(title: &str, unit: &'a str, points: &[(f64, f64)], least: f64) -> Plot<'a> {
    let last = points.iter().map(|(at, _)| *at + 0.5);
    let x = Scale::up_to(last.fold(1.0, f64::max));
    let y = Scale::from_zero(largest(points, least) * 1.05);
    Plot::new(title, (TIME, x), (unit, y))
}

/// Thins `points` to [`POINTS_MAX`]; each is the largest of several.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let per_point = points.len().div_ceil(POINTS_MAX).max(1);
    points
        .chunks(per_point)
        .map(|chunk| (chunk[0].0, largest(chunk, 0.0)))
        .collect()
}

fn curve(plot: &mut Plot<'_>, points: &[(f64, f64)], tip: impl Fn(f64) -> String) {
    let half = float(points.len().div_ceil(POINTS_MAX).max(1) as u64) / 2.0;
    let points = thinned(points);
    plot.area("bar", &points);
    plot.curve("bar", &points, f64::INFINITY);
    let strip = |chunk: &[(f64, f64)]| -> Strip {
        let (from, to) = (chunk[0].0 - half, chunk[chunk.len() - 1].0 + half);
        let second = number::plain(from.max(0.0).floor());
        let text = format!("{second} s\n{}", tip(largest(chunk, 0.0)));
        (from, to, text)
    };
    let per_strip = points.len().div_ceil(STRIPS_MAX).max(1);
    plot.strips(&points.chunks(per_strip).map(strip).collect::<Vec<_>>());
}
