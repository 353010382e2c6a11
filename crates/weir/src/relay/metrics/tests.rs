use std::collections::BTreeMap;

use super::*;

/// The samples of a page by name and labels; checks what a scraper checks.
fn parse(text: &str) -> BTreeMap<String, f64> {
    let mut kinds = BTreeMap::new();
    let mut samples = BTreeMap::new();
    let mut described = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            described = rest.split(' ').next().unwrap();
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, described, "HELP stands before TYPE");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(
                kinds.insert(name.to_owned(), kind).is_none(),
                "{name} twice"
            );
            let is_total = name.ends_with("_total");
            assert_eq!(kind == "counter", is_total, "{line}");
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap();
        let family = name.split('{').next().unwrap();
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| {
            family
                .strip_suffix(end)
                .filter(|base| kinds.get(*base) == Some(&"histogram"))
        });
        assert_eq!(base.unwrap_or(family), described, "{line}");
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        assert!(family.bytes().all(is_name), "{family}");
        let value: f64 = value.parse().unwrap();
        assert!(
            samples.insert(name.to_owned(), value).is_none(),
            "{name} twice"
        );
    }
    samples
}

fn numbers() -> Numbers {
    let delays = Delays {
        buckets: (0..33)
            .map(|index| u64::from(index == 3 || index == 11 || index == 32))
            .collect(),
        max: Duration::from_secs(4000),
        sum: Duration::from_millis(4_000_001),
    };
    let mut thread = (
        Snapshot::default(),
        TelemetrySnapshot::default(),
        Duration::from_millis(500),
    );
    thread.0.gauges.sessions = 3;
    thread.0.drafts[0] = 2;
    thread.0.counters.datagrams_sent = 10;
    thread.0.quic.datagrams_dropped_expired = 2;
    thread.0.sessions.setup_overdue = 3;
    thread.1.forwarding = delays;
    thread.1.packets_sent = 7;
    Numbers {
        threads: vec![thread.clone(), thread],
        links: vec![LinkState {
            name: "moqt://origin.example:4443".to_owned(),
            relay: None,
            is_ready: true,
            connects: 2,
            failures: 1,
            subscriptions: 4,
            objects: 70,
            bytes_received: 9000,
            round_trip: Some(Duration::from_millis(5)),
            problem: None,
        }],
        process: Usage::default(),
        heap_bytes: 7,
        open_files: 9,
        phase: Phase::Draining,
        certificate_seconds: Some(-1.5),
        reloads: Reloads { done: 1, failed: 2 },
        keys: Keys::default(),
        qlog: QlogNumbers::default(),
        uptime: Duration::from_secs(5),
    }
}

/// A page with all there is.
pub(crate) fn page() -> String {
    render(&numbers())
}

#[test]
fn a_page_can_be_read_back_and_adds_threads_up() {
    let text = render(&numbers());
    let samples = parse(&text);
    for (name, value) in [
        ("weir_relay_sessions", 6.0),
        ("weir_relay_sessions_in_draft{draft=\"moqt-22\"}", 4.0),
        ("weir_relay_sessions_in_draft{draft=\"moqt-18\"}", 0.0),
        ("weir_relay_datagrams_sent_total", 20.0),
        (
            "weir_link_objects_total{upstream=\"moqt://origin.example:4443\"}",
            70.0,
        ),
        ("weir_quic_datagrams_dropped_total{reason=\"expired\"}", 4.0),
        ("weir_session_setup_overdue_total", 6.0),
        ("weir_host_packets_sent_total", 14.0),
        ("weir_relay_draining", 1.0),
        ("weir_relay_ready", 0.0),
        ("weir_relay_certificate_expiry_seconds", -1.5),
        ("weir_relay_reloads_total{result=\"failed\"}", 2.0),
        ("weir_relay_snapshot_age_seconds", 0.5),
        ("process_open_fds", 9.0),
        // Below the smallest bound, in the middle, and above the largest.
        (
            "weir_host_forward_latency_seconds_bucket{le=\"0.000016\"}",
            2.0,
        ),
        (
            "weir_host_forward_latency_seconds_bucket{le=\"0.001024\"}",
            2.0,
        ),
        (
            "weir_host_forward_latency_seconds_bucket{le=\"0.002048\"}",
            4.0,
        ),
        (
            "weir_host_forward_latency_seconds_bucket{le=\"33.554432\"}",
            4.0,
        ),
        ("weir_host_forward_latency_seconds_bucket{le=\"+Inf\"}", 6.0),
        ("weir_host_forward_latency_seconds_count", 6.0),
        ("weir_host_forward_latency_seconds_sum", 8000.002),
    ] {
        assert_eq!(samples.get(name), Some(&value), "{name}\n{text}");
    }
}

#[test]
fn a_page_without_threads_has_what_there_is() {
    let numbers = Numbers {
        threads: Vec::new(),
        certificate_seconds: None,
        ..numbers()
    };
    let samples = parse(&render(&numbers));
    assert_eq!(samples.get("weir_host_lag_seconds_count"), Some(&0.0));
    assert!(!samples.contains_key("weir_relay_certificate_expiry_seconds"));
}
