//! Rows of figures over subscribers, shared by the terminal and the HTML page.

use super::TrackReport;
use crate::form::number::{self, or_none};
use crate::statistics::{Count, Spread};

/// A row: the metric's name in lower case; then mean, minimum, maximum and sum over the subscribers.
pub(super) type Row = (&'static str, [String; 4]);

/// Returns the rows of Table 3 of draft-evens-moq-bench-00.
pub(super) fn completion(track: &TrackReport) -> [Row; 11] {
    let metrics = &track.completion;
    // Sent objects and groups are known from COMPLETION.
    let mut subscribers = track.subscribers.iter();
    let has_completion = subscribers.any(|one| one.completion.objects_sent.is_some());
    let sent = |name, sent: &Count| {
        if has_completion {
            count(name, sent)
        } else {
            row(name, None, number::milliseconds)
        }
    };
    [
        sent("objects sent", &metrics.objects_sent),
        count("objects received", &metrics.objects_received),
        count(LOST_OBJECTS, &metrics.lost_objects),
        sent("groups sent", &metrics.groups_sent),
        count("groups received", &metrics.groups_received),
        milliseconds("total duration", metrics.total_duration_ms),
        milliseconds("actual duration", metrics.actual_duration_ms),
        milliseconds(
            "average receive variance",
            metrics.average_receive_variance_ms,
        ),
        milliseconds(
            "average publisher variance",
            metrics.average_publisher_variance_ms,
        ),
        bits("average bits per second", metrics.average_bits_per_second),
        bits("expected bits per second", metrics.expected_bits_per_second),
    ]
}

/// Returns the rows of Table 2 of draft-evens-moq-bench-00.
pub(super) fn progress(track: &TrackReport) -> [Row; 8] {
    let metrics = &track.progress;
    [
        count("received objects", &metrics.received_objects),
        count("received groups", &metrics.received_groups),
        milliseconds("receive delta (last)", metrics.receive_delta_ms),
        milliseconds("average delta", metrics.average_delta_ms),
        milliseconds("max delta", metrics.max_delta_ms),
        milliseconds("publisher variance (last)", metrics.publisher_variance_ms),
        milliseconds("receive variance (last)", metrics.receive_variance_ms),
        bits("average bits per second", metrics.average_bits_per_second),
    ]
}

fn count(name: &'static str, count: &Count) -> Row {
    let mean = if count.mean.fract() == 0.0 {
        number::plain(count.mean)
    } else {
        number::decimal(count.mean)
    };
    let [min, max, sum] = [count.min, count.max, count.sum].map(number::count);
    (name, [mean, min, max, sum])
}

fn milliseconds(name: &'static str, spread: Option<Spread>) -> Row {
    row(name, spread, number::milliseconds)
}

fn bits(name: &'static str, spread: Option<Spread>) -> Row {
    row(name, spread, number::bits_per_second)
}

fn row(name: &'static str, spread: Option<Spread>, format: fn(f64) -> String) -> Row {
    let picks: [fn(Spread) -> f64; 3] = [|one| one.mean, |one| one.min, |one| one.max];
    let [mean, min, max] = picks.map(|pick| or_none(spread.map(pick), format));
    (name, [mean, min, max, String::new()])
}

/// Name of the row that is shown as an alarm unless it is zero.
pub(super) const LOST_OBJECTS: &str = "lost objects";
