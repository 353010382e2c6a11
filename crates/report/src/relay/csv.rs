//! A report as comma-separated values (RFC 4180) with a heading: a table of subscriptions and one of seconds.

use super::{RelaySecond, Report, SubscriberReport, TrackReport};
use crate::form::table::Table;
use crate::latency::LatencySecond;

/// Writes a table with a row for each subscription.
pub fn subscriptions(report: &Report) -> String {
    let rows = report.tracks.iter().flat_map(|track| {
        let subscribers = track.subscribers.iter();
        subscribers.map(move |one| (track, one))
    });
    csv(SUBSCRIPTION, rows)
}

/// Writes a table with a row for each track and second of the run, with the relay's load in that second.
pub fn seconds(report: &Report) -> String {
    let rows = report.tracks.iter().flat_map(|track| {
        let seconds = track.latency.per_second.iter();
        seconds.map(move |one| {
            let mut relay = report.relay.per_second.iter();
            (track, one, relay.find(|relay| relay.second == one.second))
        })
    });
    csv(SECOND, rows)
}

/// A column: its name, and the function that makes its cells.
type Column<R> = (&'static str, fn(&R) -> String);

fn csv<R, const N: usize>(columns: [Column<R>; N], rows: impl Iterator<Item = R>) -> String {
    let cells = |row: R| columns.map(|(_, cell)| cell(&row));
    let table = Table::of_figures(columns.map(|(name, _)| name));
    table.with_rows(rows.map(cells)).csv()
}

type Subscription<'a> = (&'a TrackReport, &'a SubscriberReport);
type SubscriptionCell = fn(&Subscription<'_>) -> String;

#[rustfmt::skip]
const SUBSCRIPTION: [(&str, SubscriptionCell); 34] = [
    ("section", |(track, _)| track.definition.section.clone()),
    ("subscriber", |(_, one)| one.index.to_string()),
    ("track", |(_, one)| one.track_name.clone()),
    ("conduct", |(_, one)| one.conduct.word().to_owned()),
    ("sessions", |(_, one)| one.sessions.to_string()),
    ("status", |(_, one)| one.status.word().to_owned()),
    ("reason", |(_, one)| one.reason.clone().unwrap_or_default()),
    ("objects_sent", |(_, one)| optional(one.completion.objects_sent)),
    ("objects_received", |(_, one)| one.completion.objects_received.to_string()),
    ("lost", |(_, one)| one.completion.lost_objects.to_string()),
    ("lost_join", |(_, one)| one.delivery.lost_join.to_string()),
    ("lost_middle", |(_, one)| one.delivery.lost_middle.to_string()),
    ("lost_tail", |(_, one)| one.delivery.lost_tail.to_string()),
    ("first_lost_group", |(_, one)| optional(one.delivery.first_lost.map(|at| at.group))),
    ("first_lost_object", |(_, one)| optional(one.delivery.first_lost.map(|at| at.object))),
    ("cut_by_reset", |(_, one)| one.delivery.cut_by_reset.to_string()),
    ("dropped", |(_, one)| one.delivery.dropped.to_string()),
    ("late", |(_, one)| one.delivery.late.to_string()),
    ("first_late_group", |(_, one)| optional(one.delivery.first_late.map(|at| at.group))),
    ("first_late_object", |(_, one)| optional(one.delivery.first_late.map(|at| at.object))),
    ("reordered", |(_, one)| one.delivery.reordered.to_string()),
    ("duplicates", |(_, one)| one.delivery.duplicates.to_string()),
    ("malformed", |(_, one)| one.delivery.malformed.to_string()),
    ("corrupt", |(_, one)| one.delivery.corrupt.to_string()),
    ("misplaced", |(_, one)| one.delivery.misplaced.to_string()),
    ("foreign", |(_, one)| one.delivery.foreign.to_string()),
    ("negative_latencies", |(_, one)| one.delivery.negative_latencies.to_string()),
    ("latency_p50_ms", |(_, one)| figure(one.latency.map(|all| all.p50_ms))),
    ("latency_p99_ms", |(_, one)| figure(one.latency.map(|all| all.p99_ms))),
    ("latency_max_ms", |(_, one)| figure(one.latency.map(|all| all.max_ms))),
    ("jitter_ms", |(_, one)| figure(Some(one.variance.jitter_rfc3550_ms))),
    ("handshake_ms", |(_, one)| figure(one.handshake_ms)),
    ("setup_ms", |(_, one)| figure(one.setup_ms)),
    ("first_object_ms", |(_, one)| figure(one.first_object_ms)),
];

type Second<'a> = (&'a TrackReport, &'a LatencySecond, Option<&'a RelaySecond>);
type SecondCell = fn(&Second<'_>) -> String;

#[rustfmt::skip]
const SECOND: [(&str, SecondCell); 10] = [
    ("second", |(_, one, _)| one.second.to_string()),
    ("section", |(track, ..)| track.definition.section.clone()),
    ("objects", |(_, one, _)| one.objects.to_string()),
    ("latency_p50_ms", |(_, one, _)| figure(Some(one.p50_ms))),
    ("latency_p99_ms", |(_, one, _)| figure(Some(one.p99_ms))),
    ("latency_max_ms", |(_, one, _)| figure(Some(one.max_ms))),
    ("relay_cpu_percent", |(.., relay)| figure(relay.map(|one| one.cpu_percent))),
    ("relay_rss_bytes", |(.., relay)| optional(relay.map(|one| one.rss_bytes))),
    ("relay_context_switches_voluntary", |(.., relay)| optional(relay.map(|one| one.context_switches_voluntary))),
    ("relay_context_switches_involuntary", |(.., relay)| optional(relay.map(|one| one.context_switches_involuntary))),
];

fn optional(count: Option<u64>) -> String {
    count.map(|count| count.to_string()).unwrap_or_default()
}

fn figure(value: Option<f64>) -> String {
    value.map(|value| format!("{value:.3}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::example_report;

    #[test]
    fn there_is_a_row_for_each_subscription_and_each_second() {
        let report = example_report(7);
        let text = subscriptions(&report);
        let widths: Vec<usize> = text.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(widths, [34; 8]);
        assert_eq!(
            seconds(&report).lines().count(),
            1 + report.tracks[0].latency.per_second.len()
        );
    }
}
