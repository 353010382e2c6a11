//! Plots of the draft's Table 2 over time: deltas, variances and bit rate.

use maud::{Markup, html};

use crate::form::latency::{axis, middle};
use crate::form::number::{self, milliseconds as ms};
use crate::form::plot::{Plot, STRIPS_MAX, Strip, TIME};
use crate::form::scale::Scale;
use crate::relay::TrackReport;
use crate::relay::over_time::ProgressSecond;
use crate::statistics::{Spread, float};

/// Deltas and variances, and the bit rate.
pub(in crate::relay::html) fn over_time(track: &TrackReport) -> [Markup; 2] {
    let seconds = thinned(&track.progress_per_second);
    if seconds.is_empty() {
        return [html! {}, html! {}];
    }
    [timing(&seconds), bit_rate(track, &seconds)]
}

fn timing(seconds: &[ProgressSecond]) -> Markup {
    let largest = |pick: fn(&ProgressSecond) -> f64| seconds.iter().map(pick).fold(0.0, f64::max);
    let delta = largest(|one| one.receive_delta_max_ms.unwrap_or(0.0));
    let receive = largest(|one| one.receive_variance_max_ms);
    let publisher = largest(|one| one.publisher_variance_max_ms);
    let means = seconds.iter().map(|one| one.receive_variance_mean_ms);
    let smallest = means.fold(f64::INFINITY, f64::min).max(0.01);
    let (y_name, y) = axis(smallest, delta.max(receive).max(publisher).max(0.1));
    let mut plot = Plot::new("Delta and variance over time", (TIME, time_axis(seconds)), (y_name, y))
        .reading(format!(
            "The longest time between two objects was {}, the largest receive variance {}.",
            ms(delta),
            ms(receive)
        ))
        .described(format!(
            "Per second: longest receive delta, mean receive variance, mean publisher variance. Largest values {}, {}, {}.",
            ms(delta),
            ms(receive),
            ms(publisher)
        ))
        .keys([
            ("max", "longest delta"),
            ("p99", "receive variance, mean"),
            ("p50", "publisher variance, mean"),
        ]);
    let curve = |pick: fn(&ProgressSecond) -> f64| points(seconds, pick);
    plot.curve(
        "max",
        &curve(|one| one.receive_delta_max_ms.unwrap_or(0.0)),
        f64::INFINITY,
    );
    plot.curve(
        "p99",
        &curve(|one| one.receive_variance_mean_ms),
        f64::INFINITY,
    );
    plot.curve(
        "p50",
        &curve(|one| one.publisher_variance_mean_ms),
        f64::INFINITY,
    );
    plot.strips(&strips(seconds, |one| {
        format!(
            "longest delta {}\nreceive variance {}\npublisher variance {}",
            number::or_none(one.receive_delta_max_ms, ms),
            ms(one.receive_variance_mean_ms),
            ms(one.publisher_variance_mean_ms)
        )
    }));
    plot.figure()
}

fn bit_rate(track: &TrackReport, seconds: &[ProgressSecond]) -> Markup {
    let mean = |spread: Option<Spread>| spread.map_or(0.0, |one| one.mean);
    let expected = mean(track.completion.expected_bits_per_second);
    let rates = seconds.iter().map(|one| one.bits_per_second);
    let largest = rates.fold(expected, f64::max);
    let y = ("kbit/s", Scale::from_zero((largest / 1e3 * 1.08).max(0.1)));
    let average = number::bits_per_second(mean(track.completion.average_bits_per_second));
    let rounded = number::bits_per_second(expected);
    let mut plot = Plot::new("Bit rate over time", (TIME, time_axis(seconds)), y)
        .reading(format!("A subscription received {average} on average."))
        .described(format!(
            "Payload that a subscription received, second by second; expected are {rounded}."
        ))
        .keys([("bar", "received")])
        .height(210.0);
    let points = points(seconds, |one| one.bits_per_second / 1e3);
    plot.area("bar", &points);
    plot.curve("bar", &points, f64::INFINITY);
    plot.level("plan", expected / 1e3, &format!("expected {rounded}"));
    plot.strips(&strips(seconds, |one| {
        number::bits_per_second(one.bits_per_second)
    }));
    plot.figure()
}

/// At most [`POINTS_MAX`] entries: several in a row become one, with their largest values and the mean bit rate.
fn thinned(seconds: &[ProgressSecond]) -> Vec<ProgressSecond> {
    let per_point = seconds.len().div_ceil(POINTS_MAX).max(1);
    let merge = |chunk: &[ProgressSecond]| {
        let rates: f64 = chunk.iter().map(|one| one.bits_per_second).sum();
        let largest = |pick: fn(&ProgressSecond) -> f64| chunk.iter().map(pick).fold(0.0, f64::max);
        let deltas = chunk.iter().filter_map(|one| one.receive_delta_max_ms);
        ProgressSecond {
            receive_delta_max_ms: deltas.reduce(f64::max),
            receive_variance_mean_ms: largest(|one| one.receive_variance_mean_ms),
            receive_variance_max_ms: largest(|one| one.receive_variance_max_ms),
            publisher_variance_mean_ms: largest(|one| one.publisher_variance_mean_ms),
            publisher_variance_max_ms: largest(|one| one.publisher_variance_max_ms),
            bits_per_second: rates / float(chunk.len() as u64),
            ..chunk[0]
        }
    };
    seconds.chunks(per_point).map(merge).collect()
}

fn points(seconds: &[ProgressSecond], pick: fn(&ProgressSecond) -> f64) -> Vec<(f64, f64)> {
    let step = step(seconds);
    let point = |one: &ProgressSecond| (middle(one.second, step), pick(one));
    seconds.iter().map(point).collect()
}

/// The seconds that an entry covers.
fn step(seconds: &[ProgressSecond]) -> u64 {
    let gaps = seconds
        .windows(2)
        .map(|pair| pair[1].second - pair[0].second);
    gaps.min().unwrap_or(1).max(1)
}

fn time_axis(seconds: &[ProgressSecond]) -> Scale {
    let low = seconds.first().map_or(0, |one| one.second);
    let high = seconds.last().map_or(0, |one| one.second) + step(seconds);
    Scale::Linear {
        low: float(low),
        high: float(high.max(low + 1)),
    }
}

fn strips(seconds: &[ProgressSecond], text: impl Fn(&ProgressSecond) -> String) -> Vec<Strip> {
    let step = step(seconds);
    let per_strip = seconds.len().div_ceil(STRIPS_MAX).max(1);
    seconds
        .chunks(per_strip)
        .map(|chunk| {
            let (first, end) = (chunk[0].second, chunk[chunk.len() - 1].second + step);
            let text = format!("second {}\n{}", number::count(first), text(&chunk[0]));
            (float(first), float(end), text)
        })
        .collect()
}

/// Points of a curve at most.
const POINTS_MAX: usize = 240;
