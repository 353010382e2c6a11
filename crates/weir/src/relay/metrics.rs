//! The relay's numbers as Prometheus text (the text format, version 0.0.4).
//!
//! Names say what is counted in base units. No label ever holds what a peer chose: no namespace, no track, no address.

use std::{fmt::Write as _, time::Duration};

use weir_moqt::session;
use weir_net::{Delays, TelemetrySnapshot};
use weir_relay::{Counters, Gauges};
use weir_report::process::Usage;

use crate::relay::{lifecycle::Phase, snapshot::Snapshot};

/// All that is shown, at a moment.
#[derive(Clone, Debug)]
pub(crate) struct Numbers {
    /// One for each thread that serves, with its host's numbers and the age of the former.
    pub(crate) threads: Vec<(Snapshot, TelemetrySnapshot, Duration)>,
    pub(crate) process: Usage,
    pub(crate) open_files: u64,
    pub(crate) phase: Phase,
    /// Time left until the certificate ends, in seconds; negative afterwards.
    pub(crate) certificate_seconds: Option<f64>,
    pub(crate) reloads: Reloads,
    pub(crate) keys: Keys,
    pub(crate) qlog: QlogNumbers,
    pub(crate) uptime: Duration,
}

/// How often files were loaded again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reloads {
    pub(crate) done: u64,
    pub(crate) failed: u64,
}

/// What is known of the keys of issuers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) held: u64,
    pub(crate) fetched: u64,
    pub(crate) failed: u64,
}

/// What was written to logs of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QlogNumbers {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) cut: u64,
}

/// Writes families of metrics, each with its HELP and TYPE.
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}")
            .expect("writing to a string does not fail");
    }

    /// `labels` is empty, or a list in braces.
    fn sample(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        writeln!(self.0, "{name}{labels} {value}").expect("writing to a string does not fail");
    }

    fn counter(&mut self, name: &str, help: &str, value: impl std::fmt::Display) {
        self.family(name, "counter", help);
        self.sample(name, "", value);
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl std::fmt::Display) {
        self.family(name, "gauge", help);
        self.sample(name, "", value);
    }

    /// Delays by power of two of microseconds, as a histogram in seconds.
    fn histogram(&mut self, name: &str, help: &str, all: &[&Delays]) {
        self.family(name, "histogram", help);
        let at = |index: usize| -> u64 {
            let counts = all.iter().filter_map(|delays| delays.buckets.get(index));
            counts.sum()
        };
        let length = all.iter().map(|delays| delays.buckets.len()).max();
        let (bucket, mut count) = (format!("{name}_bucket"), 0);
        for index in 0..length.unwrap_or(0) {
            count += at(index);
            if (SMALLEST_BUCKET..=LARGEST_BUCKET).contains(&index) {
                let bound = Duration::from_micros(1 << index).as_secs_f64();
                self.sample(&bucket, &format!("{{le=\"{bound}\"}}"), count);
            }
        }
        self.sample(&bucket, "{le=\"+Inf\"}", count);
        let sum: Duration = all.iter().map(|delays| delays.sum).sum();
        self.sample(&format!("{name}_sum"), "", sum.as_secs_f64());
        self.sample(&format!("{name}_count"), "", count);
    }
}

/// Writes the page.
pub(crate) fn render(numbers: &Numbers) -> String {
    let mut page = Page(String::with_capacity(16 << 10));
    relay(&mut page, numbers);
    quic(&mut page, numbers);
    host(&mut page, numbers);
    operation(&mut page, numbers);
    process(&mut page, numbers);
    page.0
}

fn relay(page: &mut Page, numbers: &Numbers) {
    let snapshots = || numbers.threads.iter().map(|(snapshot, ..)| snapshot);
    let gauges = sums(snapshots().map(|snapshot| snapshot.gauges.iter().collect()));
    for ((name, value), help) in gauges.into_iter().zip(Gauges::descriptions()) {
        page.gauge(&format!("weir_relay_{name}"), help, value);
    }
    let counters = sums(snapshots().map(|snapshot| snapshot.counters.iter().collect()));
    for ((name, value), help) in counters.into_iter().zip(Counters::descriptions()) {
        // Some have the word in their name.
        let name = name.strip_suffix("_total").unwrap_or(name);
        page.counter(&format!("weir_relay_{name}_total"), help, value);
    }
    let sessions = sums(snapshots().map(|snapshot| snapshot.sessions.iter().collect()));
    for ((name, value), help) in sessions.into_iter().zip(session::Counters::descriptions()) {
        page.counter(&format!("weir_session_{name}_total"), help, value);
    }
}

/// Adds up the numbers of threads, each by its name.
fn sums(threads: impl Iterator<Item = Vec<(&'static str, u64)>>) -> Vec<(&'static str, u64)> {
    let mut all: Vec<(&str, u64)> = Vec::new();
    for thread in threads {
        if all.is_empty() {
            all = thread;
        } else {
            for (sum, (_, value)) in all.iter_mut().zip(thread) {
                sum.1 += value;
            }
        }
    }
    all
}

fn quic(page: &mut Page, numbers: &Numbers) {
    let snapshots = || numbers.threads.iter().map(|(snapshot, ..)| snapshot);
    let sum = |of: fn(&Snapshot) -> u64| snapshots().map(of).sum::<u64>();
    page.gauge(
        "weir_quic_connections",
        "QUIC connections, open, in handshake or draining.",
        sum(|snapshot| snapshot.connections as u64),
    );
    for (name, help, of) in QUIC_COUNTERS {
        page.counter(name, help, sum(of));
    }
    let name = "weir_quic_refused_total";
    page.family(
        name,
        "counter",
        "Connections refused before their handshake, by reason.",
    );
    for (reason, of) in QUIC_REFUSED {
        page.sample(name, &format!("{{reason=\"{reason}\"}}"), sum(of));
    }
    let name = "weir_quic_datagrams_dropped_total";
    page.family(name, "counter", "Datagrams dropped from queues, by reason.");
    for (reason, of) in QUIC_DATAGRAMS_DROPPED {
        page.sample(name, &format!("{{reason=\"{reason}\"}}"), sum(of));
    }
}

fn host(page: &mut Page, numbers: &Numbers) {
    let hosts: Vec<&TelemetrySnapshot> = numbers.threads.iter().map(|(_, host, _)| host).collect();
    let sum =
        |of: fn(&TelemetrySnapshot) -> u64| -> u64 { hosts.iter().map(|host| of(host)).sum() };
    for (name, help, of) in HOST_COUNTERS {
        page.counter(name, help, sum(of));
    }
    let name = "weir_host_cpu_seconds_total";
    page.family(name, "counter", "CPU time of each thread that serves.");
    for (number, host) in hosts.iter().enumerate() {
        page.sample(
            name,
            &format!("{{thread=\"{number}\"}}"),
            host.cpu.as_secs_f64(),
        );
    }
    let lags: Vec<&Delays> = hosts.iter().map(|host| &host.lag).collect();
    page.histogram(
        "weir_host_lag_seconds",
        "How long an event loop kept packets and timers waiting.",
        &lags,
    );
    let delays: Vec<&Delays> = hosts.iter().map(|host| &host.forwarding).collect();
    page.histogram(
        "weir_host_forward_latency_seconds",
        "Time from reading a packet to handing the resulting packets to the system.",
        &delays,
    );
    let ages = numbers.threads.iter().map(|(_, _, age)| age.as_secs_f64());
    page.gauge(
        "weir_relay_snapshot_age_seconds",
        "Age of the oldest of these numbers; they are taken once a second.",
        ages.fold(0.0, f64::max),
    );
}

fn operation(page: &mut Page, numbers: &Numbers) {
    page.gauge(
        "weir_relay_ready",
        "1 if new clients are accepted.",
        u8::from(numbers.phase == Phase::Serving),
    );
    page.gauge(
        "weir_relay_draining",
        "1 while the relay shuts down.",
        u8::from(numbers.phase == Phase::Draining),
    );
    if let Some(seconds) = numbers.certificate_seconds {
        page.gauge(
            "weir_relay_certificate_expiry_seconds",
            "Time until the certificate expires; negative afterwards.",
            seconds,
        );
    }
    files(page, numbers);
    page.gauge(
        "weir_relay_uptime_seconds",
        "Time since the relay started.",
        numbers.uptime.as_secs_f64(),
    );
    let name = "weir_build_info";
    page.family(name, "gauge", "1, with the version.");
    let version = env!("CARGO_PKG_VERSION");
    page.sample(name, &format!("{{version=\"{version}\"}}"), 1);
}

/// What is read from files and fetched, and what is written to them.
fn files(page: &mut Page, numbers: &Numbers) {
    let name = "weir_relay_reloads_total";
    page.family(
        name,
        "counter",
        "Reloads of certificates and keys, by result.",
    );
    page.sample(name, "{result=\"done\"}", numbers.reloads.done);
    page.sample(name, "{result=\"failed\"}", numbers.reloads.failed);
    page.gauge(
        "weir_relay_issuer_keys",
        "Issuers' keys that tokens can be verified with.",
        numbers.keys.held,
    );
    let name = "weir_relay_jwks_fetches_total";
    page.family(name, "counter", "Fetches of the JWKS, by result.");
    page.sample(name, "{result=\"done\"}", numbers.keys.fetched);
    page.sample(name, "{result=\"failed\"}", numbers.keys.failed);
    page.counter(
        "weir_relay_qlog_files_total",
        "qlog files started.",
        numbers.qlog.files,
    );
    page.counter(
        "weir_relay_qlog_bytes_total",
        "Bytes written to qlog files.",
        numbers.qlog.bytes,
    );
    page.counter(
        "weir_relay_qlog_cut_total",
        "qlog files cut off, or not started, at a limit.",
        numbers.qlog.cut,
    );
}

fn process(page: &mut Page, numbers: &Numbers) {
    let process = &numbers.process;
    page.counter(
        "process_cpu_seconds_total",
        "CPU time of the process.",
        process.cpu.as_secs_f64(),
    );
    page.gauge(
        "process_resident_memory_bytes",
        "Resident memory.",
        process.resident_bytes,
    );
    page.gauge(
        "process_resident_memory_peak_bytes",
        "Largest resident memory so far.",
        process.resident_peak_bytes,
    );
    page.gauge("process_threads", "Threads.", process.threads);
    page.gauge("process_open_fds", "Open files.", numbers.open_files);
}

/// A counter: its name, what it counts, and where it stands.
type Counter<T> = (&'static str, &'static str, fn(&T) -> u64);

/// What the endpoints count.
const QUIC_COUNTERS: [Counter<Snapshot>; 11] = [
    (
        "weir_quic_accepted_total",
        "Connections accepted.",
        |snapshot| snapshot.quic.accepted,
    ),
    (
        "weir_quic_retried_total",
        "Connections asked to prove their address (Retry).",
        |snapshot| snapshot.quic.retried,
    ),
    (
        "weir_quic_handshakes_failed_total",
        "Handshakes that failed.",
        |snapshot| snapshot.quic.handshakes_failed,
    ),
    (
        "weir_quic_timed_out_total",
        "Connections lost because no packet came within the idle timeout.",
        |snapshot| snapshot.quic.timed_out,
    ),
    (
        "weir_quic_violated_total",
        "Connections closed because the peer violated QUIC, such as its flow control.",
        |snapshot| snapshot.quic.violated,
    ),
    (
        "weir_web_transport_sessions_total",
        "WebTransport sessions established.",
        |snapshot| snapshot.quic.web_transport_sessions,
    ),
    (
        "weir_web_transport_overdue_total",
        "HTTP/3 connections closed because no WebTransport session came in time.",
        |snapshot| snapshot.quic.web_transport_overdue,
    ),
    (
        "weir_web_transport_streams_refused_total",
        "Streams refused because they belong to no established WebTransport session.",
        |snapshot| snapshot.quic.web_transport_streams_refused,
    ),
    (
        "weir_web_transport_datagrams_dropped_total",
        "Datagrams dropped because they belong to no established WebTransport session.",
        |snapshot| snapshot.quic.web_transport_datagrams_dropped,
    ),
    (
        "weir_http3_requests_refused_total",
        "HTTP/3 requests that opened no session.",
        |snapshot| snapshot.quic.http3_requests_refused,
    ),
    (
        "weir_http3_violations_total",
        "HTTP/3 connections closed because the peer violated HTTP/3.",
        |snapshot| snapshot.quic.http3_violations,
    ),
];

/// A part of a counter: the reason that its label names, and where it stands.
type Reason = (&'static str, fn(&Snapshot) -> u64);

/// Why connections were refused.
const QUIC_REFUSED: [Reason; 3] = [
    ("connections", |snapshot| snapshot.quic.refused_connections),
    ("handshakes", |snapshot| snapshot.quic.refused_handshakes),
    ("unwanted", |snapshot| snapshot.quic.refused_unwanted),
];

/// Why datagrams were dropped.
const QUIC_DATAGRAMS_DROPPED: [Reason; 3] = [
    ("oldest", |snapshot| snapshot.quic.datagrams_dropped_oldest),
    ("expired", |snapshot| {
        snapshot.quic.datagrams_dropped_expired
    }),
    ("unread", |snapshot| snapshot.quic.datagrams_dropped_unread),
];

/// What the hosts count.
const HOST_COUNTERS: [Counter<TelemetrySnapshot>; 7] = [
    (
        "weir_host_packets_received_total",
        "UDP packets received.",
        |host| host.packets_received,
    ),
    (
        "weir_host_packets_sent_total",
        "UDP packets sent.",
        |host| host.packets_sent,
    ),
    (
        "weir_host_received_bytes_total",
        "UDP payload received.",
        |host| host.bytes_received,
    ),
    ("weir_host_sent_bytes_total", "UDP payload sent.", |host| {
        host.bytes_sent
    }),
    (
        "weir_host_send_errors_total",
        "UDP packets that the system refused to send.",
        |host| host.send_errors,
    ),
    (
        "weir_host_receive_dropped_total",
        "UDP packets dropped because a receive buffer was full.",
        |host| host.receive_dropped,
    ),
    (
        "weir_host_turns_total",
        "Iterations of the event loops.",
        |host| host.turns,
    ),
];

/// Bounds of histograms, as powers of two of microseconds: 16 µs to 33 s. What lies outside is counted in the next.
const SMALLEST_BUCKET: usize = 4;
const LARGEST_BUCKET: usize = 25;

#[cfg(test)]
pub(crate) mod tests;
