//! A report as tables for other programs: comma-separated values, RFC 4180, with a heading.

use super::{Conduct, Report, Status};

/// One row per subscription.
pub fn subscriptions(report: &Report) -> String {
    let mut table = Table::new(&[
        "section",
        "subscriber",
        "track",
        "conduct",
        "sessions",
        "status",
        "reason",
        "objects_sent",
        "objects_received",
        "lost",
        "lost_join",
        "lost_middle",
        "lost_tail",
        "first_lost_group",
        "first_lost_object",
        "cut_by_reset",
        "dropped",
        "late",
        "first_late_group",
        "first_late_object",
        "reordered",
        "duplicates",
        "malformed",
        "corrupt",
        "misplaced",
        "foreign",
        "negative_latencies",
        "latency_p50_ms",
        "latency_p99_ms",
        "latency_max_ms",
        "jitter_ms",
        "handshake_ms",
        "setup_ms",
        "first_object_ms",
    ]);
    for track in &report.tracks {
        for one in &track.subscribers {
            let (completion, delivery) = (&one.completion, &one.delivery);
            let status = match one.status {
                Status::Good => "good",
                Status::Incomplete => "incomplete",
                Status::Failed => "failed",
            };
            let conduct = match one.conduct {
                Conduct::Steady => "steady",
                Conduct::SlowReader => "slow_reader",
                Conduct::Churning => "churning",
            };
            let latency = |pick: fn(&super::Distribution) -> f64| one.latency.as_ref().map(pick);
            table.row([
                track.definition.section.clone(),
                one.index.to_string(),
                one.track_name.clone(),
                conduct.to_owned(),
                one.sessions.to_string(),
                status.to_owned(),
                one.reason.clone().unwrap_or_default(),
                optional(completion.objects_sent),
                completion.objects_received.to_string(),
                completion.lost_objects.to_string(),
                delivery.lost_join.to_string(),
                delivery.lost_middle.to_string(),
                delivery.lost_tail.to_string(),
                optional(delivery.first_lost.map(|first| first.group)),
                optional(delivery.first_lost.map(|first| first.object)),
                delivery.cut_by_reset.to_string(),
                delivery.dropped.to_string(),
                delivery.late.to_string(),
                optional(delivery.first_late.map(|first| first.group)),
                optional(delivery.first_late.map(|first| first.object)),
                delivery.reordered.to_string(),
                delivery.duplicates.to_string(),
                delivery.malformed.to_string(),
                delivery.corrupt.to_string(),
                delivery.misplaced.to_string(),
                delivery.foreign.to_string(),
                delivery.negative_latencies.to_string(),
                figure(latency(|one| one.p50_ms)),
                figure(latency(|one| one.p99_ms)),
                figure(latency(|one| one.max_ms)),
                figure(Some(one.variance.jitter_rfc3550_ms)),
                figure(one.handshake_ms),
                figure(one.setup_ms),
                figure(one.first_object_ms),
            ]);
        }
    }
    table.text
}

/// One row per track and second of the run, with what the relay spent in that second.
pub fn seconds(report: &Report) -> String {
    let mut table = Table::new(&[
        "second",
        "section",
        "objects",
        "latency_p50_ms",
        "latency_p99_ms",
        "latency_max_ms",
        "relay_cpu_percent",
        "relay_rss_bytes",
        "relay_context_switches_voluntary",
        "relay_context_switches_involuntary",
    ]);
    for track in &report.tracks {
        for one in &track.latency.per_second {
            let mut relay = report.relay.per_second.iter();
            let relay = relay.find(|relay| relay.second == one.second);
            table.row([
                one.second.to_string(),
                track.definition.section.clone(),
                one.objects.to_string(),
                figure(Some(one.p50_ms)),
                figure(Some(one.p99_ms)),
                figure(Some(one.max_ms)),
                figure(relay.map(|relay| relay.cpu_percent)),
                optional(relay.map(|relay| relay.rss_bytes)),
                optional(relay.map(|relay| relay.context_switches_voluntary)),
                optional(relay.map(|relay| relay.context_switches_involuntary)),
            ]);
        }
    }
    table.text
}

struct Table {
    text: String,
}

impl Table {
    fn new(heading: &[&str]) -> Self {
        Self {
            text: heading.join(",") + "\r\n",
        }
    }

    fn row<const N: usize>(&mut self, cells: [String; N]) {
        let cells = cells.map(|cell| quoted(&cell));
        self.text.push_str(&cells.join(","));
        self.text.push_str("\r\n");
    }
}

/// A cell that no spreadsheet takes for several, or for a formula.
fn quoted(cell: &str) -> String {
    let is_formula = cell.starts_with(['=', '+', '@', '\t'])
        || (cell.starts_with('-') && cell.parse::<f64>().is_err());
    if is_formula {
        format!("\"'{}\"", cell.replace('"', "\"\""))
    } else if cell.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

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
    fn every_subscription_and_every_second_has_a_row() {
        let report = example_report(7);
        let text = subscriptions(&report);
        let widths: Vec<usize> = text.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(widths, [34; 8]);
        assert_eq!(
            seconds(&report).lines().count(),
            1 + report.tracks[0].latency.per_second.len()
        );
    }

    #[test]
    fn cells_stay_cells() {
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(quoted("=1+1"), "\"'=1+1\"");
        assert_eq!(quoted("-3.5"), "-3.5");
        assert_eq!(quoted("two\nlines"), "\"two\nlines\"");
    }
}
