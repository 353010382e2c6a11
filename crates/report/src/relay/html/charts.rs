//! The plots of the HTML report.

pub(super) mod heat;
pub(super) mod progress;
pub(super) mod relay;
pub(super) mod subscribers;

use maud::{Markup, html};

use crate::form::latency::{middle, second_strips, thinned, time_axis};
use crate::form::number;
use crate::form::plot::{Plot, TIME};
use crate::form::scale::Scale;
use crate::latency::LatencySecond;
use crate::relay::TrackReport;
use crate::statistics::float;

/// Objects received per second, with the planned rate.
pub(super) fn objects_over_time(track: &TrackReport) -> Markup {
    let (seconds, step) = thinned(&track.latency.per_second);
    let interval_ms = track.definition.time_interval_ms;
    if seconds.is_empty() || interval_ms <= 0.0 || track.subscribers.is_empty() {
        return html! {};
    }
    let planned = 1000.0 / interval_ms * float(track.subscribers.len() as u64);
    let rate = |one: &LatencySecond| float(one.objects) / float(step);
    let largest = seconds.iter().map(rate).fold(planned, f64::max);
    let rounded = number::plain(planned.round());
    let y = ("objects per second", Scale::from_zero(largest * 1.08));
    let mut plot = Plot::new("Objects received", (TIME, time_axis(&seconds)), y)
        .reading(
            "The first and the last second are incomplete: the track starts and ends within them.",
        )
        .described(format!(
            "Objects received per second, over all subscribers; {rounded} per second are planned."
        ))
        .keys([("bar", "received")])
        .height(210.0);
    let points = seconds.iter();
    let points: Vec<(f64, f64)> = points
        .map(|one| (middle(one.second, step), rate(one)))
        .collect();
    plot.area("bar", &points);
    plot.curve("bar", &points, f64::INFINITY);
    plot.level("plan", planned, &format!("planned {rounded}"));
    plot.strips(&second_strips(&seconds, step, |one| {
        format!("{} objects per second", number::plain(rate(one).round()))
    }));
    plot.figure()
}
