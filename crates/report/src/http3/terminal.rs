//! A report for the terminal: the verdict, then the figures.

use super::{Connections, Kind, Limit, Report};
use crate::{
    form::{
        latency::percentiles,
        number,
        screen::{Paint, Screen},
    },
    search::STOLEN_PERCENT_MAX,
    statistics::float,
};

/// Renders `report` for a terminal of `width` columns, with escape sequences for colour if `colour`.
pub fn render(report: &Report, width: usize, colour: bool) -> String {
    let mut screen = Screen::new(width, colour);
    let (word, paint) = match report.verdict.limit {
        Limit::Server | Limit::Rate => ("MEASURED:", Paint::Good),
        Limit::Nothing => ("FAILED:", Paint::Bad),
        Limit::Client | Limit::RateMissed | Limit::Neither | Limit::Unknown => {
            ("CAUTION:", Paint::Warn)
        }
    };
    screen.entry(word, paint, 0, word.len() + 1, &report.verdict.sentence);
    screen.paragraph(Paint::Faint, 0, &settings(report));
    for note in &report.run.notes {
        screen.paragraph(Paint::Faint, 0, note);
    }
    screen.blank();
    requests(&mut screen, report);
    connections(&mut screen, report);
    screen.row(Paint::Faint, "", &["p50", "p90", "p99", "max"]);
    for (name, distribution) in [
        ("latency", &report.latency.overall),
        ("handshake", &report.connections.handshake),
    ] {
        screen.row(Paint::Plain, name, &percentiles(distribution.as_ref()));
    }
    screen.blank();
    server(&mut screen, report);
    client(&mut screen, report);
    screen.finish()
}

/// Returns the load in one line.
pub(super) fn settings(report: &Report) -> String {
    let run = &report.run;
    let per_connection = match run.max_requests_per_conn {
        0 => "any number of requests".to_owned(),
        count => number::counted(count, "request"),
    };
    let pace = run.rate_per_second.map_or_else(
        || "closed loop".to_owned(),
        |rate| format!("open loop, {} requests per second", number::plain(rate)),
    );
    format!(
        "{} · {} × {} × {} in flight, {per_connection} on each connection · {} handshakes · {pace} · UDP payload {} bytes \
         sent, {} received · {} s",
        run.url,
        threads(report),
        number::counted(run.max_concurrent_conns, "connection"),
        number::counted(run.max_concurrent_requests, "request"),
        run.handshake,
        run.send_udp_payload_size,
        run.recv_udp_payload_size,
        number::decimal(run.elapsed_ms / 1e3),
    )
}

/// Returns the number of threads, and of agents that each have so many.
fn threads(report: &Report) -> String {
    let threads = number::counted(report.run.threads, "thread");
    match report.client.agents.len() as u64 {
        0 => threads,
        agents => format!("{} × {threads}", number::counted(agents, "agent")),
    }
}

fn requests(screen: &mut Screen, report: &Report) {
    let requests = &report.requests;
    let text = format!(
        "{} succeeded, {} per second, {} of content",
        number::count(requests.successes),
        number::decimal(requests.per_second),
        number::bits_per_second(requests.bits_per_second),
    );
    screen.entry("requests", Paint::Strong, 0, LABEL, &text);
    let mut text = format!(
        "{} failed, {} unfinished at the end",
        number::count(requests.failed),
        number::count(requests.unfinished)
    );
    if report.run.rate_per_second.is_some() {
        text = format!(
            "{text}, {} due but never sent",
            number::count(requests.unsent)
        );
    }
    let paint = alarm(requests.failed);
    screen.entry("failures", paint, 0, LABEL, &text);
    kinds(screen, &requests.failures);
    for one in requests.urls.iter().filter(|_| requests.urls.len() > 1) {
        let text = format!("{}: {} succeeded", one.url, number::count(one.successes));
        screen.paragraph(Paint::Faint, LABEL, &text);
    }
}

fn connections(screen: &mut Screen, report: &Report) {
    let connections = &report.connections;
    let mut text = format!(
        "{} begun, {} complete",
        number::count(connections.begun),
        number::counted(connections.handshakes, "handshake"),
    );
    for (count, what) in [
        (connections.unfinished, "unfinished at the end"),
        (connections.retries, "answered with Retry"),
        (connections.resumed, "resumed"),
        (connections.early_used, "with early data"),
        (connections.early_rejected, "with early data rejected"),
        (connections.goaways, "closed by GOAWAY"),
        (connections.refused, "failed"),
    ] {
        if count > 0 {
            text = format!("{text}, {} {what}", number::count(count));
        }
    }
    screen.entry("connections", alarm(connections.refused), 0, LABEL, &text);
    if let Some(text) = tls(connections) {
        screen.paragraph(Paint::Faint, LABEL, &text);
    }
    kinds(screen, &connections.refusals);
}

/// Returns the TLS version, cipher suites and key type of the handshakes; none without a handshake.
pub(super) fn tls(connections: &Connections) -> Option<String> {
    let version = connections.tls_version.as_deref()?;
    let suites = connections.cipher_suites.join(", ");
    let key = connections.certificate_key.as_deref();
    let key = key.map_or_else(String::new, |key| format!(", certificate {key}"));
    Some(format!("TLS {version}, {suites}{key}"))
}

fn kinds(screen: &mut Screen, kinds: &[Kind]) {
    for kind in kinds {
        let words = kind
            .words
            .as_deref()
            .map_or_else(String::new, |words| format!(": {words}"));
        let text = format!("{} × {}{words}", number::count(kind.count), kind.kind);
        screen.paragraph(Paint::Faint, LABEL, &text);
    }
}

fn server(screen: &mut Screen, report: &Report) {
    let Some(server) = &report.server else {
        let text = "not watched: give --server-pid or --server-process if it runs on this machine";
        return screen.entry("server", Paint::Strong, 0, LABEL, text);
    };
    let mut parts = vec![format!(
        "{} % busy, {} s of CPU",
        number::brief(server.utilisation_percent()),
        number::decimal(server.cpu_seconds)
    )];
    if let (Some(cost), Some(rate)) = (server.cpu_us_per_request, server.requests_per_cpu_second) {
        parts.push(format!(
            "{} µs of CPU per request, {} requests per CPU second",
            number::decimal(cost),
            number::decimal(rate)
        ));
    }
    parts.push(format!(
        "memory at most {}",
        number::bytes(float(server.rss_peak_bytes))
    ));
    parts.extend(stolen(server.stolen_percent));
    screen.entry("server", Paint::Strong, 0, LABEL, &parts.join("; "));
    if let Some(died) = &server.died {
        screen.paragraph(Paint::Bad, LABEL, died);
    }
}

fn client(screen: &mut Screen, report: &Report) {
    let client = &report.client;
    let mut parts = vec![format!(
        "busiest thread {} % of a core",
        number::brief(client.busiest_thread_percent())
    )];
    if let Some(cost) = client.cpu_us_per_request {
        parts.push(format!("{} µs of CPU per request", number::decimal(cost)));
    }
    let machine = client
        .receive_buffer_errors
        .map_or_else(String::new, |drops| {
            format!(", {} by the whole machine", number::count(drops))
        });
    parts.push(format!(
        "received packets dropped by full buffers: {} by the client{machine}",
        number::count(client.socket_drops)
    ));
    parts.extend(stolen(client.stolen_percent));
    let lost = client.socket_drops + client.receive_buffer_errors.unwrap_or(0);
    screen.entry("client", alarm(lost), 0, LABEL, &parts.join("; "));
    for agent in &client.agents {
        screen.paragraph(Paint::Faint, LABEL, &agent.in_words());
    }
}

/// Says how much CPU time the hypervisor took, if that is enough to disturb a run.
fn stolen(percent: Option<f64>) -> Option<String> {
    let percent = number::brief(percent.filter(|percent| *percent >= STOLEN_PERCENT_MAX)?);
    Some(format!(
        "the hypervisor gave {percent} % of its time to others"
    ))
}

fn alarm(count: u64) -> Paint {
    if count > 0 { Paint::Bad } else { Paint::Strong }
}

/// Column of text after a label.
const LABEL: usize = 13;
