//! `docs/relay-metrics.md`: every metric that `/metrics` serves.

use std::fmt::Write as _;

use super::{assert_kept, cell};
use crate::relay::metrics::tests::page;

/// A family of metrics, as the page of the relay describes it.
#[derive(Default)]
struct Family<'a> {
    name: &'a str,
    kind: &'a str,
    help: &'a str,
    /// Its labels, each with the values that it can have.
    labels: Vec<(&'a str, Vec<&'a str>)>,
}

#[test]
fn the_documentation_lists_every_metric() {
    let metrics = page();
    let families = families(&metrics);
    let mut text = HEAD.to_owned();
    for (title, prefixes, about) in SECTIONS {
        write!(
            text,
            "\n## {title}\n\n{about}| metric | type | labels | meaning |\n|---|---|---|---|\n"
        )
        .unwrap();
        let is_here = |family: &&Family<'_>| section_of(family.name) == *prefixes;
        for family in families.iter().filter(is_here) {
            let labels: Vec<String> = family
                .labels
                .iter()
                .map(|(label, values)| shown(label, values))
                .collect();
            let (labels, help) = (labels.join(", "), cell(family.help));
            writeln!(
                text,
                "| `{}` | {} | {labels} | {help} |",
                family.name, family.kind
            )
            .unwrap();
        }
    }
    for family in &families {
        assert!(
            text.contains(&format!("| `{}` |", family.name)),
            "{}: no section",
            family.name
        );
    }
    assert_kept("relay-metrics.md", &text);
}

/// The families of a page in the text format of Prometheus, in its order.
fn families(page: &str) -> Vec<Family<'_>> {
    let mut families: Vec<Family<'_>> = Vec::new();
    for line in page.lines() {
        if let Some((name, help)) = line
            .strip_prefix("# HELP ")
            .and_then(|rest| rest.split_once(' '))
        {
            families.push(Family {
                name,
                help,
                ..Family::default()
            });
        } else if let Some(family) = families.last_mut() {
            if let Some((_, kind)) = line
                .strip_prefix("# TYPE ")
                .and_then(|rest| rest.split_once(' '))
            {
                family.kind = kind;
            } else {
                add_labels(family, line);
            }
        }
    }
    families
}

/// Adds the labels of a sample, such as `name{reason="late"} 1`.
fn add_labels<'a>(family: &mut Family<'a>, sample: &'a str) {
    let labels = sample
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'));
    let Some((labels, _)) = labels else {
        return;
    };
    for pair in labels.split(',') {
        let Some((label, value)) = pair.split_once('=') else {
            continue;
        };
        let value = value.trim_matches('"');
        match family.labels.iter_mut().find(|(known, _)| *known == label) {
            Some((_, values)) => values.push(value),
            None => family.labels.push((label, vec![value])),
        }
    }
}

/// A label with its values; without those that are a bound, a number or a version.
fn shown(label: &str, values: &[&str]) -> String {
    if values
        .iter()
        .any(|value| value.starts_with(|first: char| first.is_ascii_digit()))
    {
        return format!("`{label}`");
    }
    format!("`{label}`: {}", values.join(", "))
}

fn section_of(name: &str) -> &'static str {
    let prefixes = SECTIONS.iter().map(|(_, prefix, _)| *prefix);
    prefixes
        .filter(|prefix| name.starts_with(prefix))
        .max_by_key(|prefix| prefix.len())
        .unwrap_or("weir_relay_")
}

/// Sections of the page: title, the prefix of the names in it, and what stands above the table.
const SECTIONS: &[(&str, &str, &str)] = &[
    (
        "Relay",
        "weir_relay_",
        "Sessions, subscriptions, objects, cache, and the relay's operation.\n\n",
    ),
    (
        "MOQT sessions",
        "weir_session_",
        "What MOQT sessions refused, dropped or ended. With well-behaved peers, most of these counters stay at 0.\n\n",
    ),
    (
        "Links to upstream relays",
        "weir_link_",
        "One value for each of `upstream.urls`.\n\n",
    ),
    ("QUIC", "weir_quic_", "Connections and their datagrams.\n\n"),
    (
        "WebTransport",
        "weir_web_transport_",
        "Sessions over WebTransport.\n\n",
    ),
    (
        "HTTP/3",
        "weir_http3_",
        "HTTP/3 connections, which carry WebTransport.\n\n",
    ),
    (
        "Host",
        "weir_host_",
        "Packets and event loops. The relay is overloaded if the 90th percentile of `weir_host_lag_seconds` exceeds \
         `limits.load.queue_delay_max` for one second: it then refuses new sessions and requests.\n\n",
    ),
    ("Build", "weir_build_", ""),
    (
        "Process",
        "process_",
        "The relay's process, with the names that Prometheus' client libraries use.\n\n",
    ),
];

const HEAD: &str = "\
# Metrics of the relay

`weir relay --admin 127.0.0.1:9443` serves these metrics at `http://127.0.0.1:9443/metrics`, as Prometheus text (version 0.0.4).
`packaging/alerts.yml` has alerts with their meaning.

- Each thread of the relay publishes its metrics once a second, and `/metrics` shows their sums. A scrape does not disturb the threads.
- If `weir_relay_snapshot_age_seconds` exceeds a few seconds, a thread hangs.
- `weir_relay_certificate_expiry_seconds` is absent if the certificate cannot be read. All other metrics are always there, from 0 on.
- Refused tokens: `weir_relay_sessions_denied_total` counts those in SETUP, `weir_relay_refused_unauthorized_total`,
  `weir_relay_refused_expired_total` and `weir_relay_refused_malformed_token_total` those of requests and URLs.
- What subscribers get: `weir_relay_datagrams_sent_total` counts objects, `weir_relay_streams_sent_total` and
  `weir_relay_stream_bytes_sent_total` streams and their bytes. Objects on these streams are not counted one by one.
- No label holds a namespace, a track or an address.
- \"At\" and a setting name the limit that was reached ([relay-limits.md](relay-limits.md)). If your own clients reach it, raise it; against
  others it protects the relay.

`cargo test -p weir --bin weir` compares this page with the program; `UPDATE_DOCS=1` before it writes the page.
";
