//! Plots of what the relay spent.

use super::{TIME, figure, labels};
use crate::report::html::markup::Markup;
use crate::report::html::plot::{Plot, STRIPS_MAX, Scale};
use crate::report::statistics::float;
use crate::report::{Relay, figures};

/// Points of a curve at most; longer series are thinned, and keep their largest.
const POINTS_MAX: usize = 400;

/// The relay's load, second by second.
pub(in crate::report::html) fn cpu(markup: &mut Markup, relay: &Relay) {
    let Some(cost) = &relay.cost else { return };
    let reading = format!(
        "Shaded: the steady window, with {} % of a core on average.",
        figures::decimal(cost.cpu_percent)
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
                let tip = |value: f64| format!("{} % of a core", figures::decimal(value));
                curve(plot, markup, &points, tip);
            });
        },
    );
}

/// The relay's memory, second by second.
pub(in crate::report::html) fn memory(markup: &mut Markup, relay: &Relay) {
    let Some(cost) = &relay.cost else { return };
    let mut reading = format!("At most {}.", figures::bytes(float(cost.rss_peak_bytes)));
    if let Some(each) = cost.bytes_per_session {
        reading = format!(
            "{reading} A connected session takes {}.",
            figures::bytes(each)
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
                let tip = |value: f64| format!("{} MiB", figures::decimal(value));
                curve(plot, markup, &points, tip);
            });
        },
    );
}

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

fn curve(plot: Plot, markup: &mut Markup, points: &[(f64, f64)], tip: impl Fn(f64) -> String) {
    let per_point = points.len().div_ceil(POINTS_MAX).max(1);
    let points: Vec<(f64, f64)> = points
        .chunks(per_point)
        .map(|chunk| {
            (
                chunk[0].0,
                chunk.iter().map(|(_, value)| *value).fold(0.0, f64::max),
            )
        })
        .collect();
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
                    figures::plain((from).max(0.0).floor()),
                    tip(worst)
                ),
            )
        })
        .collect();
    plot.strips(markup, &strips);
}
