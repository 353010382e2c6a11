//! A report as comma-separated values (RFC 4180) with a heading: a table of subscriptions and one of seconds.

use super::{ProgressSecond, RelaySecond, Report, SubscriberReport, TrackReport};
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

/// Writes a table with a row for each track and second of the run: the draft's Table 2, latency, and the relay's load.
pub fn seconds(report: &Report) -> String {
    let rows = report.tracks.iter().flat_map(|track| {
        let seconds = track.progress_per_second.iter();
        seconds.map(move |progress| {
            let mut latency = track.latency.per_second.iter();
            let mut relay = report.relay.per_second.iter();
            Second {
                section: &track.definition.section,
                progress,
                latency: latency.find(|one| one.second == progress.second),
                relay: relay.find(|one| one.second == progress.second),
            }
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
const SUBSCRIPTION: [(&str, SubscriptionCell); 51] = [
    ("section", |(track, _)| track.definition.section.clone()),
    ("subscriber", |(_, one)| one.index.to_string()),
    ("track", |(_, one)| one.track_name.clone()),
    ("conduct", |(_, one)| one.conduct.word().to_owned()),
    ("sessions", |(_, one)| one.sessions.to_string()),
    ("status", |(_, one)| one.status.word().to_owned()),
    ("reason", |(_, one)| one.reason.clone().unwrap_or_default()),
    ("objects_sent", |(_, one)| optional(one.completion.objects_sent)),
    ("groups_sent", |(_, one)| optional(one.completion.groups_sent)),
    ("objects_received", |(_, one)| one.completion.objects_received.to_string()),
    ("groups_received", |(_, one)| one.completion.groups_received.to_string()),
    ("groups_complete", |(_, one)| one.delivery.groups_complete.to_string()),
    ("lost", |(_, one)| one.completion.lost_objects.to_string()),
    ("total_duration_ms", |(_, one)| figure(one.completion.total_duration_ms)),
    ("actual_duration_ms", |(_, one)| figure(Some(one.completion.actual_duration_ms))),
    ("average_receive_variance_ms", |(_, one)| figure(Some(one.completion.average_receive_variance_ms))),
    ("average_publisher_variance_ms", |(_, one)| figure(Some(one.completion.average_publisher_variance_ms))),
    ("average_bits_per_second", |(_, one)| figure(Some(one.completion.average_bits_per_second))),
    ("expected_bits_per_second", |(_, one)| figure(Some(one.completion.expected_bits_per_second))),
    ("average_delta_ms", |(_, one)| figure(one.progress.average_delta_ms)),
    ("max_delta_ms", |(_, one)| figure(one.progress.max_delta_ms)),
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
    ("receive_variance_p50_ms", |(_, one)| figure(Some(one.variance.p50_ms))),
    ("receive_variance_p99_ms", |(_, one)| figure(Some(one.variance.p99_ms))),
    ("receive_variance_max_ms", |(_, one)| figure(Some(one.variance.max_ms))),
    ("receive_drift_ms", |(_, one)| figure(Some(one.variance.signed_drift_ms))),
    ("latency_mean_ms", |(_, one)| figure(one.latency.map(|all| all.mean_ms))),
    ("latency_p90_ms", |(_, one)| figure(one.latency.map(|all| all.p90_ms))),
    ("jitter_ms", |(_, one)| figure(Some(one.variance.jitter_rfc3550_ms))),
    ("handshake_ms", |(_, one)| figure(one.handshake_ms)),
    ("setup_ms", |(_, one)| figure(one.setup_ms)),
    ("first_object_ms", |(_, one)| figure(one.first_object_ms)),
];

/// A second of a track.
struct Second<'a> {
    section: &'a str,
    progress: &'a ProgressSecond,
    /// None if the objects of that second carry no time.
    latency: Option<&'a LatencySecond>,
    /// None if the relay was not observed.
    relay: Option<&'a RelaySecond>,
}

type SecondCell = fn(&Second<'_>) -> String;

#[rustfmt::skip]
const SECOND: [(&str, SecondCell); 18] = [
    ("second", |one| one.progress.second.to_string()),
    ("section", |one| one.section.to_owned()),
    ("objects", |one| one.progress.objects.to_string()),
    ("subscriptions", |one| one.progress.subscriptions.to_string()),
    ("receive_delta_mean_ms", |one| figure(one.progress.receive_delta_mean_ms)),
    ("receive_delta_max_ms", |one| figure(one.progress.receive_delta_max_ms)),
    ("receive_variance_mean_ms", |one| figure(Some(one.progress.receive_variance_mean_ms))),
    ("receive_variance_max_ms", |one| figure(Some(one.progress.receive_variance_max_ms))),
    ("publisher_variance_mean_ms", |one| figure(Some(one.progress.publisher_variance_mean_ms))),
    ("publisher_variance_max_ms", |one| figure(Some(one.progress.publisher_variance_max_ms))),
    ("bits_per_second", |one| figure(Some(one.progress.bits_per_second))),
    ("latency_p50_ms", |one| figure(one.latency.map(|all| all.p50_ms))),
    ("latency_p99_ms", |one| figure(one.latency.map(|all| all.p99_ms))),
    ("latency_max_ms", |one| figure(one.latency.map(|all| all.max_ms))),
    ("relay_cpu_percent", |one| figure(one.relay.map(|relay| relay.cpu_percent))),
    ("relay_rss_bytes", |one| optional(one.relay.map(|relay| relay.rss_bytes))),
    ("relay_context_switches_voluntary", |one| optional(one.relay.map(|relay| relay.context_switches_voluntary))),
    ("relay_context_switches_involuntary", |one| optional(one.relay.map(|relay| relay.context_switches_involuntary))),
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
        assert_eq!(widths, [51; 8]);
        assert_eq!(
            seconds(&report).lines().count(),
            1 + report.tracks[0].progress_per_second.len()
        );
    }

    #[test]
    fn every_metric_of_table_3_has_a_column() {
        let report = example_report(7);
        let text = subscriptions(&report);
        let heading: Vec<&str> = text.lines().next().unwrap().split(',').collect();
        let completion = report.tracks[0].subscribers[0].completion;
        let fields = serde_json::to_value(completion).unwrap();
        for field in fields.as_object().unwrap().keys() {
            let name = field.replace("lost_objects", "lost");
            assert!(heading.contains(&name.as_str()), "{name}: {heading:?}");
        }
    }
}
