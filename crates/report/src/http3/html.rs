//! A report as one HTML file that needs no network.

use maud::{Markup, html};

use super::{Agent, Client, Kind, Limit, Report, Run, Server, terminal};
use crate::form::page::{
    Card, Page, Tone, cards, command_line, cut, facts, plots, section, verdict,
};
use crate::form::plot::{Plot, STRIPS_MAX, TIME};
use crate::form::scale::Scale;
use crate::form::table::{Table, left, right};
use crate::form::{latency, number};
use crate::statistics::float;

/// Renders `report` as a complete document.
pub fn render(report: &Report) -> String {
    let run = &report.run;
    let page = Page {
        title: format!("{} – weir h3 bench", cut(&run.url)),
        program: "weir h3 bench",
        heading: run.url.clone(),
        facts: vec![format!("{} · {}", run.start_time, run.address)],
        main: html! {
            (conclusion(report))
            (cards(&key_figures(report)))
            (requests(report))
            (urls(report))
            (failures(report))
            (connections(report))
            @if let Some(server) = &report.server { (server_section(server)) }
            (client_section(&report.client))
            (run_section(run))
        },
        footer: vec![
            "A success has status 200 and the exact length. Latency ends when the answer is complete. It starts when the \
             request could be sent (closed loop), when its connection was begun (short connections), or when it was due \
             (open loop)."
                .to_owned(),
            format!("weir {} · report schema {}", run.weir_version, report.schema),
        ],
    };
    page.render()
}

fn conclusion(report: &Report) -> Markup {
    let (tone, title) = match report.verdict.limit {
        Limit::Server => (Tone::Good, "The server was the limit"),
        Limit::Rate => (Tone::Good, "The server kept up"),
        Limit::Nothing => (Tone::Bad, "No request succeeded"),
        Limit::Client => (Tone::Warn, "The load client was the limit"),
        Limit::Unknown if report.has_lost_server() => {
            (Tone::Warn, "The server was lost during the run")
        }
        Limit::RateMissed => (Tone::Warn, "The rate was not reached"),
        Limit::Neither => (Tone::Warn, "Not the server's maximum"),
        Limit::Unknown => (Tone::Warn, "The server was not watched"),
    };
    let body = html! {
        p { (cut(&report.verdict.sentence)) }
        p.level-text { (cut(&terminal::settings(report))) }
        @for note in &report.run.notes { p.level-text { (cut(note)) } }
    };
    verdict(tone, title, &body)
}

fn key_figures(report: &Report) -> Vec<Card> {
    let requests = &report.requests;
    let failed = requests.failed + report.connections.refused;
    let mut cards = vec![
        Card {
            name: "Requests per second",
            value: number::decimal(requests.per_second),
            beside: format!("{} succeeded", number::count(requests.successes)),
            ..Card::default()
        },
        Card {
            name: "Failed",
            value: number::count(failed),
            beside: format!(
                "requests and connections; {} unfinished",
                number::count(requests.unfinished)
            ),
            is_alarm: failed > 0,
            ..Card::default()
        },
    ];
    cards.extend(report.latency.overall.as_ref().map(latency::card));
    if let Some(server) = &report.server {
        let rate = server.requests_per_cpu_second;
        let rate = rate.map(|rate| format!("{} per CPU second", number::decimal(rate)));
        let cost = server.cpu_us_per_request;
        cards.extend(cost.map(|cost| cpu_card("Server CPU per request", cost, rate)));
        let client = number::brief(report.client.utilisation_percent());
        cards.push(Card {
            name: "Server busy",
            value: number::brief(server.utilisation_percent()),
            unit: "%".to_owned(),
            beside: format!("busiest client thread {client} %"),
            ..Card::default()
        });
    }
    let packets = number::count(report.client.packets_received);
    let cost = report.client.cpu_us_per_request;
    let beside = Some(format!("{packets} packets received"));
    cards.extend(cost.map(|cost| cpu_card("Client CPU per request", cost, beside)));
    cards
}

fn cpu_card(name: &'static str, cost_us: f64, beside: Option<String>) -> Card {
    Card {
        name,
        value: number::decimal(cost_us),
        unit: "µs".to_owned(),
        beside: beside.unwrap_or_default(),
        is_alarm: false,
    }
}

fn requests(report: &Report) -> Markup {
    if report.latency.overall.is_none() {
        return html! {};
    }
    let rows = [
        ("Latency", report.latency.overall),
        ("Handshake", report.connections.handshake),
    ];
    let body = html! {
        (plots([
            rate_over_time(report),
            latency::over_time(&report.latency, "request"),
            latency::histogram(&report.latency, "request"),
            busy_over_time(report),
        ]))
        (latency::quantiles(&rows))
    };
    section("Requests", "", &body)
}

/// Returns a point for each second. In a long run, each point is the largest of several seconds.
fn points(report: &Report, pick: impl Fn(&super::Second) -> Option<f64>) -> Vec<(f64, f64)> {
    let per_point = report.per_second.len().div_ceil(STRIPS_MAX).max(1);
    let chunks = report.per_second.chunks(per_point);
    chunks
        .filter_map(|chunk| {
            let most = chunk.iter().filter_map(&pick).reduce(f64::max)?;
            Some((float(chunk[0].second) + 0.5, most))
        })
        .collect()
}

fn largest(points: &[(f64, f64)], others: &[(f64, f64)], least: f64) -> f64 {
    let both = points.iter().chain(others);
    both.map(|(_, value)| *value).fold(least, f64::max)
}

fn plot_over_time<'a>(report: &Report, title: &str, unit: &'a str, high: f64) -> Plot<'a> {
    let last = report.per_second.last().map_or(1, |one| one.second + 1);
    let (x, y) = (Scale::up_to(float(last)), Scale::from_zero(high));
    Plot::new(title, (TIME, x), (unit, y))
}

fn rate_over_time(report: &Report) -> Markup {
    let good = points(report, |one| Some(float(one.successes)));
    let bad = points(report, |one| Some(float(one.failed)));
    let high = largest(&good, &bad, 1.0) * 1.05;
    let mut plot = plot_over_time(report, "Requests over time", "per second", high)
        .reading("The last second may be cut by the end of the run.")
        .keys([("bar", "successes"), ("p99", "failures")]);
    plot.area("bar", &good);
    plot.curve("bar", &good, f64::INFINITY);
    if report.requests.failed + report.connections.refused > 0 {
        plot.curve("p99", &bad, f64::INFINITY);
    }
    if let Some(rate) = report.run.rate_per_second {
        plot.level("plan", rate, &format!("planned {}", number::plain(rate)));
    }
    plot.figure()
}

fn busy_over_time(report: &Report) -> Markup {
    let server = points(report, |one| one.server_cpu_percent);
    let client = points(report, |one| one.client_cpu_percent);
    if client.len() < 2 {
        return html! {};
    }
    let high = largest(&server, &client, 100.0) * 1.02;
    let mut plot = plot_over_time(report, "CPU of both sides", "% of a core", high)
        .reading("100 % is one core. A server that stays below all of its cores was not the limit.")
        .keys([("p50", "server"), ("p99", "client")]);
    plot.curve("p50", &server, f64::INFINITY);
    plot.curve("p99", &client, f64::INFINITY);
    plot.figure()
}

/// Returns the requests for each URL, if there are several.
fn urls(report: &Report) -> Markup {
    let urls = &report.requests.urls;
    if urls.len() < 2 {
        return html! {};
    }
    let rows = urls
        .iter()
        .map(|one| [cut(&one.url), number::count(one.successes)]);
    let table = Table::new([left("URL"), right("Successes")]).with_rows(rows);
    section("URLs", "", &html! { div.dense { (table) } })
}

fn failures(report: &Report) -> Markup {
    let row = |what: &str, kind: &Kind| {
        [
            format!("{what}: {}", cut(&kind.kind)),
            number::count(kind.count),
            cut(kind.words.as_deref().unwrap_or("")),
        ]
    };
    let requests = report.requests.failures.iter();
    let connections = report.connections.refusals.iter();
    let rows = requests.map(|kind| row("request", kind));
    let rows = rows.chain(connections.map(|kind| row("connection", kind)));
    let columns = [left("Kind"), right("Count"), left("First reason")];
    let table = Table::new(columns).with_rows(rows);
    if table.is_empty() {
        return html! {};
    }
    section("Failures", "", &html! { div.dense { (table) } })
}

fn connections(report: &Report) -> Markup {
    let connections = &report.connections;
    let rows = [
        ("Begun", connections.begun),
        ("Handshakes complete", connections.handshakes),
        ("Handshakes unfinished at the end", connections.unfinished),
        ("Answered with Retry", connections.retries),
        ("Resumed sessions", connections.resumed),
        ("With early data (0-RTT)", connections.early_used),
        ("Early data rejected", connections.early_rejected),
        ("Closed by GOAWAY", connections.goaways),
        ("Failed", connections.refused),
    ];
    let lead = terminal::tls(connections).unwrap_or_default();
    let rows = rows.map(|(name, count)| (name, number::count(count)));
    section("Connections", &lead, &facts(rows))
}

fn of_a_core(percent: f64) -> String {
    format!("{} % of a core", number::decimal(percent))
}

fn server_section(server: &Server) -> Markup {
    let pids: Vec<String> = server.pids.iter().map(u32::to_string).collect();
    let lead = format!("Process {}", pids.join(", "));
    let switches = format!(
        "{} voluntary, {} involuntary",
        number::count(server.context_switches_voluntary),
        number::count(server.context_switches_involuntary)
    );
    let memory = number::bytes(float(server.rss_peak_bytes));
    let cpu = format!("{} s", number::decimal(server.cpu_seconds));
    let rows = [
        ("CPU time", cpu),
        ("CPU load", of_a_core(server.cpu_percent)),
        ("Busiest thread", of_a_core(server.busiest_thread_percent)),
        ("Cores", number::cores(&server.cores)),
        ("Memory at most", memory),
        ("Context switches", switches),
    ];
    let died = server.died.as_ref().map(|died| ("Ended", died.clone()));
    section("Server", &lead, &facts(rows.into_iter().chain(died)))
}

fn client_section(client: &Client) -> Markup {
    let errors = number::or_none(client.receive_buffer_errors, number::count);
    let cpu = format!("{} s", number::decimal(client.cpu_seconds));
    let rows = [
        ("Threads", number::count(client.threads.len() as u64)),
        ("Cores", number::cores(&client.cores)),
        ("CPU time", cpu),
        ("Busiest thread", of_a_core(client.busiest_thread_percent())),
        ("Packets received", number::count(client.packets_received)),
        ("Packets sent", number::count(client.packets_sent)),
        (
            "Packets dropped by full buffers",
            number::count(client.socket_drops),
        ),
        ("Dropped on the whole machine", errors),
    ];
    let body = html! {
        (facts(rows))
        (agents(&client.agents))
    };
    section("Load client", "", &body)
}

/// The agents of a load from several hosts.
fn agents(agents: &[Agent]) -> Markup {
    if agents.is_empty() {
        return html! {};
    }
    let rows = agents.iter().map(|agent| {
        [
            cut(&agent.name),
            number::count(agent.threads),
            number::count(agent.requests),
            of_a_core(agent.busiest_thread_percent),
            number::milliseconds(agent.event_loop_lag_p99_ms),
            cut(&format!("{}, Linux {}", agent.cpu_model, agent.kernel)),
        ]
    });
    let columns = [
        left("Agent"),
        right("Threads"),
        right("Successes"),
        right("Busiest thread"),
        right("Event loop lag p99"),
        left("Machine"),
    ];
    html! { div.dense { (Table::new(columns).with_rows(rows)) } }
}

fn run_section(run: &Run) -> Markup {
    let unlimited = |count: u64| match count {
        0 => "no limit".to_owned(),
        count => number::count(count),
    };
    let mtu = number::or_none(run.mtu_bytes, |mtu| format!("{} bytes", number::count(mtu)));
    let rows = [
        ("Kernel", run.kernel.clone()),
        ("Processor", run.cpu_model.clone()),
        ("Threads", number::count(run.threads)),
        (
            "Connections in flight, per thread",
            number::count(run.max_concurrent_conns),
        ),
        (
            "Requests per connection",
            unlimited(run.max_requests_per_conn),
        ),
        (
            "Requests in flight, per connection",
            number::count(run.max_concurrent_requests),
        ),
        (
            "Requests per thread",
            unlimited(run.max_requests_per_thread),
        ),
        ("Handshakes", run.handshake.clone()),
        (
            "Largest UDP payload sent",
            format!("{} bytes", number::count(run.send_udp_payload_size)),
        ),
        (
            "Largest UDP payload received",
            format!("{} bytes", number::count(run.recv_udp_payload_size)),
        ),
        (
            "Handshake time-out",
            number::milliseconds(run.handshake_timeout_ms),
        ),
        ("Idle time-out", number::milliseconds(run.idle_timeout_ms)),
        (
            "Generic receive offload",
            if run.gro { "on" } else { "off" }.to_owned(),
        ),
        ("Sockets per thread", number::count(run.sockets)),
        ("MTU", mtu),
    ];
    let body = html! { (facts(rows)) (command_line(&run.command_line)) };
    section("Run", "", &body)
}
