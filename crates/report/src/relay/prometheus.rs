//! A report as Prometheus text, for a push gateway or the textfile collector of the node exporter.

use std::fmt::Write as _;

use super::{Acknowledged, Altered, Distribution, Report};
use crate::statistics::float;

/// Renders the figures that are worth comparing between runs.
pub fn render(report: &Report) -> String {
    let mut text = Text::default();
    for (name, help, value) in of_run(report) {
        if let Some(value) = value {
            text.gauge(name, help, &[("", "", value)]);
        }
    }
    per_track(&mut text, report);
    text.out
}

/// Returns name, help and value of each gauge of the whole run.
fn of_run(report: &Report) -> [(&'static str, &'static str, Option<f64>); 10] {
    let flag = |is_true| Some(f64::from(u8::from(is_true)));
    let relay = report.relay.cost.as_ref();
    let acknowledged = report.run.audience.acknowledged.as_ref();
    let cpu_us = relay.and_then(|cost| cost.cpu_us_per_delivered_object);
    [
        (
            "held",
            "1 if every clause of the service level held in a complete run, else 0.",
            flag(report.verdict.outcome.is_held()),
        ),
        (
            "generator_healthy",
            "1 if the load generator kept up, else 0: then the run says nothing about the relay.",
            flag(report.generator.healthy),
        ),
        (
            "subscribers",
            "Number of subscribers requested.",
            Some(float(report.run.subscribers_requested)),
        ),
        (
            "duration_seconds",
            "Duration of the run, set-up and drain included.",
            Some(report.run.duration_ms / 1e3),
        ),
        (
            "relay_cpu_ratio",
            "Mean CPU load of the relay in the steady window; 1 is one core.",
            relay.map(|cost| cost.cpu_percent / 100.0),
        ),
        (
            "relay_cpu_seconds_per_object",
            "CPU time of the relay in the steady window per object delivered in it.",
            cpu_us.map(|cost| cost / 1e6),
        ),
        (
            "relay_memory_peak_bytes",
            "Largest resident memory of the relay.",
            relay.map(|cost| float(cost.rss_peak_bytes)),
        ),
        (
            "relay_memory_per_session_bytes",
            "Resident memory of the relay per session, before objects are sent.",
            relay.and_then(|cost| cost.bytes_per_session),
        ),
        (
            "acknowledgements_per_packet",
            "ACK frames that subscribers sent for each UDP payload that they received.",
            acknowledged.map(Acknowledged::per_packet),
        ),
        (
            "objects_lost_judged",
            "Lost objects in the part of the run that the service level judges, over all tracks and subscribers.",
            Some(float(report.slo.lost_objects)),
        ),
    ]
}

fn per_track(text: &mut Text, report: &Report) {
    let tracks = || {
        report
            .tracks
            .iter()
            .map(|track| (track.definition.section.as_str(), track))
    };
    let count = |pick: fn(&super::TrackReport) -> u64| -> Vec<(&str, &str, f64)> {
        // The report of the other process has its measurements.
        let received = tracks().filter(|(_, track)| !track.subscribers.is_empty());
        received
            .map(|(name, track)| (name, "", float(pick(track))))
            .collect()
    };
    text.gauge(
        "objects_delivered",
        "Objects received, over all subscribers.",
        &count(|track| track.completion.objects_received.sum),
    );
    text.gauge(
        "objects_lost",
        "Objects that were sent and not received, over all subscribers.",
        &count(|track| track.completion.lost_objects.sum),
    );
    text.gauge(
        "objects_late",
        "Objects received later than their time to live, over all subscribers.",
        &count(|track| track.delivery.late),
    );
    text.gauge(
        "objects_altered",
        "Objects received with other content, extension headers or numbers than were sent, over all subscribers.",
        &count(|track| Altered::of(&track.delivery).objects()),
    );
    text.gauge(
        "objects_foreign",
        "Objects received that belong to other runs, over all subscribers.",
        &count(|track| track.delivery.foreign),
    );
    text.gauge(
        "subscriptions_failed",
        "Subscriptions that failed, or ended without COMPLETION.",
        &count(|track| track.status.failed + track.status.incomplete),
    );
    let quantiles: [(&str, Figure); 4] = [
        ("0.5", |one| one.p50_ms),
        ("0.9", |one| one.p90_ms),
        ("0.99", |one| one.p99_ms),
        ("1", |one| one.max_ms),
    ];
    let mut latency = Vec::new();
    for (name, track) in tracks() {
        let Some(overall) = &track.latency.overall else {
            continue;
        };
        latency.extend(quantiles.map(|(quantile, pick)| (name, quantile, pick(overall) / 1e3)));
    }
    text.gauge(
        "latency_seconds",
        "One-way latency of objects from their planned send time to their arrival.",
        &latency,
    );
}

/// A function that takes one figure of a distribution.
type Figure = fn(&Distribution) -> f64;

#[derive(Default)]
struct Text {
    out: String,
}

impl Text {
    /// Writes a gauge. Each value has a track and a quantile; empty ones make no label.
    fn gauge(&mut self, name: &str, help: &str, values: &[(&str, &str, f64)]) {
        let head = format!("# HELP weir_bench_{name} {help}\n# TYPE weir_bench_{name} gauge\n");
        self.out.push_str(&head);
        for (track, quantile, value) in values {
            let labels: Vec<String> = [("track", track), ("quantile", quantile)]
                .iter()
                .filter(|(_, value)| !value.is_empty())
                .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
                .collect();
            let labels = if labels.is_empty() {
                String::new()
            } else {
                format!("{{{}}}", labels.join(","))
            };
            writeln!(self.out, "weir_bench_{name}{labels} {value}").expect("a String takes all");
        }
    }
}

fn escaped(label: &str) -> String {
    label
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::example_report;

    #[test]
    fn every_line_is_a_comment_or_a_value() {
        let mut report = example_report(7);
        report.tracks[0].definition.section = "a\"b\\c\nd".to_owned();
        let text = render(&report);
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with("weir_bench_"), "{line}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
        assert!(text.contains("weir_bench_held 1\n"), "{text}");
        let altered = "weir_bench_objects_altered{track=\"a\\\"b\\\\c\\nd\"} 0\n";
        assert!(text.contains(altered), "{text}");
        let latency = "weir_bench_latency_seconds{track=\"a\\\"b\\\\c\\nd\",quantile=\"0.99\"} ";
        assert!(text.contains(latency), "{text}");
    }
}
