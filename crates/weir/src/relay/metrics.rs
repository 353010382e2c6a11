//! The page `/metrics`: the relay's metrics in Prometheus' text format, version 0.0.4.
//!
//! Values are in base units, such as seconds and bytes. No label holds what a peer chose: no namespace, no track, no
//! address.

use std::{collections::BTreeSet, fmt::Write as _, time::Duration};

use weir_moqt::{draft::Draft, session};
use weir_net::{Delays, TelemetrySnapshot};
use weir_relay::{Counters, Gauges, LinkState};
use weir_report::process::Usage;

use crate::relay::{authority::Keys, lifecycle::Phase, snapshot::Snapshot};

/// The values of the page, at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Numbers {
    /// For each serving thread: the relay's snapshot, the host's telemetry, and the age of the snapshot.
    pub(crate) threads: Vec<(Snapshot, TelemetrySnapshot, Duration)>,
    /// The links to upstream relays.
    pub(crate) links: Vec<LinkState>,
    pub(crate) process: Usage,
    /// Memory that the allocator has given out, in bytes.
    pub(crate) heap_bytes: u64,
    pub(crate) open_files: u64,
    pub(crate) phase: Phase,
    /// Time until the certificate expires, in seconds, negative afterwards; `None` if the certificate cannot be read.
    pub(crate) certificate_seconds: Option<f64>,
    pub(crate) reloads: Reloads,
    pub(crate) keys: Keys,
    pub(crate) qlog: QlogNumbers,
    pub(crate) uptime: Duration,
}

/// Counts of reloads of files, by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reloads {
    pub(crate) done: u64,
    pub(crate) failed: u64,
}

/// Counts of qlog files, started and cut, and of the bytes in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QlogNumbers {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) cut: u64,
}

/// The text of the page: families of metrics, each with its HELP and TYPE lines.
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}")
            .expect("writing to a string does not fail");
    }

    /// Writes one sample. `labels` is empty, or a list in braces.
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

    /// Writes a histogram in seconds. `Delays` counts in buckets of powers of two of microseconds.
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

/// Returns the page.
pub(crate) fn render(numbers: &Numbers) -> String {
    let mut page = Page(String::with_capacity(16 << 10));
    relay(&mut page, numbers);
    links(&mut page, numbers);
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
    page.gauge(
        "weir_relay_timers",
        "Wake-ups that are planned. They follow sessions, requests and tracks.",
        snapshots()
            .map(|snapshot| snapshot.timers as u64)
            .sum::<u64>(),
    );
    let name = "weir_relay_sessions_in_draft";
    page.family(
        name,
        "gauge",
        "MOQT sessions open, by the draft that they speak.",
    );
    for (draft, place) in Draft::ALL.iter().zip(0..) {
        let count: u64 = snapshots().map(|snapshot| snapshot.drafts[place]).sum();
        page.sample(name, &format!("{{draft=\"{}\"}}", draft.alpn()), count);
    }
    let counters = sums(snapshots().map(|snapshot| snapshot.counters.iter().collect()));
    for ((name, value), help) in counters.into_iter().zip(Counters::descriptions()) {
        // Some fields end in `_total` already.
        let name = name.strip_suffix("_total").unwrap_or(name);
        page.counter(&format!("weir_relay_{name}_total"), help, value);
    }
    let sessions = sums(snapshots().map(|snapshot| snapshot.sessions.iter().collect()));
    for ((name, value), help) in sessions.into_iter().zip(session::Counters::descriptions()) {
        page.counter(&format!("weir_session_{name}_total"), help, value);
    }
}

/// Writes the metrics of each link to an upstream relay. The label is the URL in the settings, without its query.
fn links(page: &mut Page, numbers: &Numbers) {
    // A relay of the fleet that restarts keeps its URL, and there may be an old link beside the new one.
    let mut links: Vec<&LinkState> = numbers.links.iter().collect();
    links.sort_by_key(|link| !link.is_ready);
    let mut names = BTreeSet::new();
    links.retain(|link| names.insert(&link.name));
    for (name, kind, help, of) in LINKS {
        page.family(name, kind, help);
        for link in &links {
            page.sample(name, &format!("{{upstream={:?}}}", link.name), of(link));
        }
    }
}

/// Returns the sums over all threads, metric by metric.
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
        "QUIC connections: open, in handshake or draining.",
        sum(|snapshot| snapshot.connections as u64),
    );
    for (name, help, of) in QUIC_COUNTERS {
        page.counter(name, help, sum(of));
    }
    let name = "weir_quic_refused_total";
    page.family(
        name,
        "counter",
        "Connections refused before their handshake. Reasons: `connections` (`limits.quic.connections_max`), `handshakes` \
         (`limits.quic.handshakes_max`), `address` (`limits.quic.handshakes_per_address_max`), `unwanted` (overload or shutdown).",
    );
    for (reason, of) in QUIC_REFUSED {
        page.sample(name, &format!("{{reason=\"{reason}\"}}"), sum(of));
    }
    let name = "weir_quic_datagrams_dropped_total";
    page.family(name, "counter", "Datagrams dropped from queues. Reasons: `oldest` (`limits.quic.datagram_send_bytes_max`: the client is too slow), \
         `expired` (delivery timeout), `unread` (`limits.quic.datagram_receive_bytes_max`: the relay is too slow).");
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
    page.family(
        name,
        "counter",
        "CPU time of each serving thread, in seconds.",
    );
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
        "Time that packets and timers waited for an event loop, in seconds. Add threads if it grows.",
        &lags,
    );
    let delays: Vec<&Delays> = hosts.iter().map(|host| &host.forwarding).collect();
    page.histogram(
        "weir_host_forward_latency_seconds",
        "Time from reading a packet to handing the resulting packets to the system, in seconds.",
        &delays,
    );
    let ages = numbers.threads.iter().map(|(_, _, age)| age.as_secs_f64());
    page.gauge(
        "weir_relay_snapshot_age_seconds",
        "Age of the oldest thread's metrics, in seconds; above a few seconds, a thread hangs.",
        ages.fold(0.0, f64::max),
    );
}

fn operation(page: &mut Page, numbers: &Numbers) {
    page.gauge(
        "weir_relay_ready",
        "1 from the start of serving to SIGTERM, otherwise 0. Overload does not change it.",
        u8::from(numbers.phase == Phase::Serving),
    );
    page.gauge(
        "weir_relay_draining",
        "1 from SIGTERM to the end of the relay, otherwise 0.",
        u8::from(numbers.phase == Phase::Draining),
    );
    if let Some(seconds) = numbers.certificate_seconds {
        page.gauge(
            "weir_relay_certificate_expiry_seconds",
            "Time until the certificate expires, in seconds; negative afterwards. Renew the certificate in time.",
            seconds,
        );
    }
    files(page, numbers);
    page.gauge(
        "weir_relay_uptime_seconds",
        "Time since the relay started, in seconds.",
        numbers.uptime.as_secs_f64(),
    );
    let name = "weir_build_info";
    page.family(
        name,
        "gauge",
        "Always 1; the label holds the version of weir.",
    );
    let version = env!("CARGO_PKG_VERSION");
    page.sample(name, &format!("{{version=\"{version}\"}}"), 1);
}

/// Writes the metrics of certificates, keys and qlog files.
fn files(page: &mut Page, numbers: &Numbers) {
    let name = "weir_relay_reloads_total";
    page.family(
        name,
        "counter",
        "Reloads of certificates and keys, by result. If one failed, the log says which file is bad.",
    );
    page.sample(name, "{result=\"done\"}", numbers.reloads.done);
    page.sample(name, "{result=\"failed\"}", numbers.reloads.failed);
    page.gauge(
        "weir_relay_issuer_keys",
        "Issuers' keys loaded from files and from the JWKS. At 0, no token is accepted.",
        numbers.keys.held,
    );
    let name = "weir_relay_jwks_fetches_total";
    page.family(name, "counter", "Fetches of the JWKS (`auth.jwt.jwks_url`), by result. If one failed, the log says why, and known keys stay.");
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
        "qlog files that ended early or were not started, at `qlog.file_bytes_max` or `qlog.total_bytes_max`.",
        numbers.qlog.cut,
    );
}

fn process(page: &mut Page, numbers: &Numbers) {
    let process = &numbers.process;
    page.counter(
        "process_cpu_seconds_total",
        "CPU time of the process, in seconds.",
        process.cpu.as_secs_f64(),
    );
    page.gauge(
        "process_resident_memory_bytes",
        "Resident memory, in bytes.",
        process.resident_bytes,
    );
    page.gauge(
        "weir_heap_bytes",
        "Memory that the allocator has given out, in bytes, which `limits.load.memory_bytes_max` bounds.",
        numbers.heap_bytes,
    );
    page.gauge(
        "process_resident_memory_peak_bytes",
        "Largest resident memory so far, in bytes.",
        process.resident_peak_bytes,
    );
    page.gauge(
        "process_threads",
        "Threads of the process.",
        process.threads,
    );
    page.gauge(
        "process_open_fds",
        "Open file descriptors.",
        numbers.open_files,
    );
}

/// A counter: its name, its help, and the function that reads it.
type Counter<T> = (&'static str, &'static str, fn(&T) -> u64);

/// A metric of a link: name, kind, help and value.
type LinkMetric = (
    &'static str,
    &'static str,
    &'static str,
    fn(&LinkState) -> f64,
);

#[expect(
    clippy::cast_precision_loss,
    reason = "numbers in the format of Prometheus are floating-point numbers"
)]
const LINKS: [LinkMetric; 7] = [
    (
        "weir_link_up",
        "gauge",
        "1 while the link to the upstream relay, or relay of the fleet, is established, otherwise 0. `/links` lists them.",
        |link| f64::from(u8::from(link.is_ready)),
    ),
    (
        "weir_link_established_total",
        "counter",
        "Times that the link was established.",
        |link| link.connects as f64,
    ),
    (
        "weir_link_failures_total",
        "counter",
        "Times that the link was lost or could not be established. The log says why.",
        |link| link.failures as f64,
    ),
    (
        "weir_link_subscriptions",
        "gauge",
        "Subscriptions of this relay over the link, requests without an answer included.",
        |link| link.subscriptions as f64,
    ),
    (
        "weir_link_objects_total",
        "counter",
        "Objects received over the link, without those of fetches.",
        |link| link.objects as f64,
    ),
    (
        "weir_link_received_bytes",
        "gauge",
        "Bytes received over the present connection. It begins at 0 when the link is established again.",
        |link| link.bytes_received as f64,
    ),
    (
        "weir_link_round_trip_seconds",
        "gauge",
        "Round-trip time of the present connection, in seconds; 0 without one.",
        |link| link.round_trip.unwrap_or_default().as_secs_f64(),
    ),
];

/// Counters of the QUIC endpoints.
const QUIC_COUNTERS: [Counter<Snapshot>; 13] = [
    (
        "weir_quic_accepted_total",
        "Connections accepted.",
        |snapshot| snapshot.quic.accepted,
    ),
    (
        "weir_quic_retried_total",
        "Connections asked to validate their address (Retry), above `limits.quic.handshakes_before_retry_max`.",
        |snapshot| snapshot.quic.retried,
    ),
    (
        "weir_quic_handshakes_failed_total",
        "Handshakes that failed, for example without a common ALPN or with an untrusted certificate.",
        |snapshot| snapshot.quic.handshakes_failed,
    ),
    (
        "weir_quic_handshakes_overdue_total",
        "Handshakes closed at `limits.quic.handshake_timeout`, which have failed, too.",
        |snapshot| snapshot.quic.handshakes_overdue,
    ),
    (
        "weir_quic_packets_from_port_zero_total",
        "Packets dropped because they came from UDP port 0, to which nothing can be sent: somebody forges addresses.",
        |snapshot| snapshot.quic.packets_from_port_zero,
    ),
    (
        "weir_quic_timed_out_total",
        "Connections lost because no packet came within `limits.quic.idle_timeout`.",
        |snapshot| snapshot.quic.timed_out,
    ),
    (
        "weir_quic_violated_total",
        "Connections closed because the peer violated QUIC, for example its flow control.",
        |snapshot| snapshot.quic.violated,
    ),
    (
        "weir_web_transport_sessions_total",
        "WebTransport sessions established.",
        |snapshot| snapshot.quic.web_transport_sessions,
    ),
    (
        "weir_web_transport_overdue_total",
        "HTTP/3 connections closed because the client opened no WebTransport session in time.",
        |snapshot| snapshot.quic.web_transport_overdue,
    ),
    (
        "weir_web_transport_streams_refused_total",
        "Streams refused because they belong to no WebTransport session, or came too early in too large a number.",
        |snapshot| snapshot.quic.web_transport_streams_refused,
    ),
    (
        "weir_web_transport_datagrams_dropped_total",
        "Datagrams dropped because they belong to no WebTransport session, or came too early in too large a number.",
        |snapshot| snapshot.quic.web_transport_datagrams_dropped,
    ),
    (
        "weir_http3_requests_refused_total",
        "HTTP/3 requests refused because they open no WebTransport session, or exceed a limit.",
        |snapshot| snapshot.quic.http3_requests_refused,
    ),
    (
        "weir_http3_violations_total",
        "HTTP/3 connections closed because the peer violated HTTP/3.",
        |snapshot| snapshot.quic.http3_violations,
    ),
];

/// One sample of a counter by reason: the label's value, and the function that reads it.
type Reason = (&'static str, fn(&Snapshot) -> u64);

/// Reasons to refuse a connection.
const QUIC_REFUSED: [Reason; 4] = [
    ("connections", |snapshot| snapshot.quic.refused_connections),
    ("handshakes", |snapshot| snapshot.quic.refused_handshakes),
    ("address", |snapshot| {
        snapshot.quic.refused_handshakes_address
    }),
    ("unwanted", |snapshot| snapshot.quic.refused_unwanted),
];

/// Reasons to drop a datagram.
const QUIC_DATAGRAMS_DROPPED: [Reason; 3] = [
    ("oldest", |snapshot| snapshot.quic.datagrams_dropped_oldest),
    ("expired", |snapshot| {
        snapshot.quic.datagrams_dropped_expired
    }),
    ("unread", |snapshot| snapshot.quic.datagrams_dropped_unread),
];

/// Counters of the hosts.
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
        "Bytes of UDP payload received.",
        |host| host.bytes_received,
    ),
    (
        "weir_host_sent_bytes_total",
        "Bytes of UDP payload sent.",
        |host| host.bytes_sent,
    ),
    (
        "weir_host_send_errors_total",
        "UDP packets that the system refused to send. Look at its routes and firewall.",
        |host| host.send_errors,
    ),
    (
        "weir_host_receive_dropped_total",
        "UDP packets that the kernel dropped because a receive buffer was full. Raise `net.core.rmem_max`, or add threads.",
        |host| host.receive_dropped,
    ),
    (
        "weir_host_turns_total",
        "Iterations of the event loops.",
        |host| host.turns,
    ),
];

/// First and last bound of the histograms, as powers of two of microseconds: 16 µs and 33 s. Shorter delays are counted in
/// the first bucket, longer ones in `+Inf`.
const SMALLEST_BUCKET: usize = 4;
const LARGEST_BUCKET: usize = 25;

#[cfg(test)]
pub(crate) mod tests;
