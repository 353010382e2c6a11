//! Example reports for tests.

use std::time::Duration;

use weir_histogram::Histogram;

use super::{
    Client, ClientThread, Connections, Kind, Report, Requests, Run, Second, Server, UrlRequests,
};
use crate::latency::{self, Latency, LatencySecond};

/// Returns the report of a run of 3 s with these CPU loads of server and client, in per cent of a core.
pub(super) fn report(server_percent: Option<f64>, client_percent: f64) -> Report {
    let mut histogram = Histogram::new();
    for number in 0..30_000_u64 {
        histogram.record(Duration::from_micros(900 + number % 700));
    }
    let per_second = |second| Second {
        second,
        successes: 10_000,
        failed: second,
        content_bytes: 153_600_000,
        server_cpu_percent: server_percent,
        client_cpu_percent: Some(client_percent),
    };
    Report::new(
        run(),
        requests(),
        Connections {
            begun: 11,
            handshakes: 10,
            unfinished: 0,
            tls_version: Some("1.3".to_owned()),
            cipher_suites: vec!["TLS_AES_128_GCM_SHA256".to_owned()],
            certificate_key: Some("ECDSA P-256".to_owned()),
            retries: 10,
            resumed: 0,
            early_used: 0,
            early_rejected: 0,
            goaways: 0,
            refused: 1,
            refusals: vec![Kind {
                kind: "timed_out".to_owned(),
                count: 1,
                words: Some("no handshake within 5 s".to_owned()),
            }],
            handshake: latency::distribution(&histogram),
        },
        Latency {
            overall: latency::distribution(&histogram),
            histogram: latency::buckets(&histogram),
            per_second: (0..3)
                .map(|second| LatencySecond {
                    second,
                    objects: 10_000,
                    p50_ms: 1.25,
                    p99_ms: 1.59,
                    max_ms: 1.6,
                })
                .collect(),
        },
        (0..3).map(per_second).collect(),
        server_percent.map(server),
        client(client_percent),
    )
}

/// Returns the requests of a run of 3 s for two URLs.
fn requests() -> Requests {
    Requests {
        sent: 30_103,
        successes: 30_000,
        failed: 3,
        unfinished: 100,
        unsent: 0,
        per_second: 10_000.0,
        content_bytes: 460_800_000,
        bits_per_second: 1.2288e9,
        failures: vec![Kind {
            kind: "stream_reset".to_owned(),
            count: 3,
            words: Some("H3_INTERNAL_ERROR <script>\u{1b}[2J".to_owned()),
        }],
        urls: ["15k", "1k"]
            .map(|file| UrlRequests {
                url: format!("https://localhost:4433/{file}"),
                successes: 15_000,
            })
            .to_vec(),
        silent_ms: Some(0.4),
    }
}

/// Returns the report of a run in which no request succeeded.
pub(super) fn nothing() -> Report {
    let connections = Connections {
        begun: 32,
        unfinished: 2,
        refused: 30,
        refusals: vec![Kind {
            kind: "tls".to_owned(),
            count: 30,
            words: Some("TLS handshake failed: this side reports: bad certificate".to_owned()),
        }],
        ..Connections::default()
    };
    let mut server = server(2.0);
    server.cpu_us_per_request = None;
    server.requests_per_cpu_second = None;
    server.died = Some("The server died during the run (exit status: 1)".to_owned());
    let latency = Latency {
        overall: None,
        histogram: Vec::new(),
        per_second: Vec::new(),
    };
    Report::new(
        run(),
        Requests::default(),
        connections,
        latency,
        Vec::new(),
        Some(server),
        client(3.0),
    )
}

fn run() -> Run {
    Run {
        weir_version: "0.1.0".to_owned(),
        command_line: "weir h3 bench https://localhost:4433/15k --server-pid 7".to_owned(),
        url: "https://localhost:4433/15k".to_owned(),
        address: "127.0.0.1:4433".to_owned(),
        start_time: "2026-11-22T03:00:00Z".to_owned(),
        kernel: "6.18.0".to_owned(),
        cpu_model: "A processor".to_owned(),
        threads: 1,
        max_concurrent_conns: 10,
        max_requests_per_conn: 0,
        max_concurrent_requests: 10,
        max_requests_per_thread: 0,
        rate_per_second: None,
        handshake: "resumed".to_owned(),
        send_udp_payload_size: 1350,
        recv_udp_payload_size: 1350,
        expected_length: Some(15_360),
        duration_ms: 3_000.0,
        elapsed_ms: 3_000.0,
        handshake_timeout_ms: 5_000.0,
        idle_timeout_ms: 5_000.0,
        gro: true,
        sockets: 4,
        mtu_bytes: Some(1500),
        notes: Vec::new(),
    }
}

fn server(percent: f64) -> Server {
    let cpu_seconds = percent * 3.0 / 100.0;
    Server {
        pids: vec![7],
        cpu_seconds,
        cpu_us_per_request: Some(cpu_seconds * 1e6 / 30_000.0),
        requests_per_cpu_second: Some(30_000.0 / cpu_seconds),
        cpu_percent: percent,
        busiest_thread_percent: percent,
        cores: vec![0],
        rss_peak_bytes: 12 << 20,
        context_switches_voluntary: 120,
        context_switches_involuntary: 34,
        stolen_percent: Some(0.0),
        died: None,
    }
}

fn client(percent: f64) -> Client {
    Client {
        cores: vec![1],
        threads: vec![ClientThread {
            cpu_percent: percent,
            event_loop_lag_p99_ms: 0.5,
        }],
        agents: Vec::new(),
        cpu_seconds: percent * 3.0 / 100.0,
        cpu_us_per_request: Some(percent * 3e4 / 30_000.0),
        socket_drops: 0,
        receive_buffer_errors: Some(0),
        packets_received: 360_000,
        packets_sent: 30_000,
        stolen_percent: Some(0.0),
    }
}
