//! A report as one HTML file that needs no network, in the looks of the relay benchmark's.

use super::{Kind, Limit, Report, terminal};
use crate::{
    form::{
        markup::Markup,
        number,
        plot::{Plot, STRIPS_MAX, Scale},
    },
    relay::html::{
        brand, card,
        charts::{TIME, figure, labels, latency},
        cut, document, panel, section, tables,
    },
    statistics::float,
};

/// Renders `report` as a complete document.
pub fn render(report: &Report) -> String {
    let title = format!("{} – weir h3 bench", cut(&report.run.url));
    document(&title, |markup| {
        markup.element("header", &[], |markup| {
            brand(markup, "weir h3 bench");
            markup.leaf("h1", &[], &cut(&report.run.url));
            let facts = format!("{} · {}", report.run.start_time, report.run.address);
            markup.leaf("p", &[("class", &"facts")], &cut(&facts));
        });
        markup.element("main", &[], |markup| {
            verdict(markup, report);
            cards(markup, report);
            charts(markup, report);
            failures(markup, report);
            sides(markup, report);
            run(markup, report);
        });
        markup.element("footer", &[], |markup| {
            let note = "A success has status 200 and the exact length. Latency counts from the planned time: of a closed \
                        loop when the request could be sent, of a short connection when it was begun, of an open loop \
                        when it was due.";
            markup.leaf("p", &[], &note);
            let version = format!(
                "weir {} · report schema {}",
                cut(&report.run.weir_version),
                report.schema
            );
            markup.leaf("p", &[], &version);
        });
    })
}

fn verdict(markup: &mut Markup, report: &Report) {
    let (sign, title) = match report.verdict.limit {
        Limit::Server => (("good", "✓"), "The server was the limit"),
        Limit::Rate => (("good", "✓"), "The server kept up"),
        Limit::Nothing => (("bad", "✕"), "Nothing succeeded"),
        Limit::Client => (("warn", "!"), "The load client was the limit"),
        Limit::Unknown if report.has_lost_server() => {
            (("warn", "!"), "The server ended in mid-run")
        }
        Limit::Neither | Limit::Unknown if report.is_behind() => {
            (("warn", "!"), "The server did not keep up")
        }
        Limit::Neither => (("warn", "!"), "Neither side was the limit"),
        Limit::Unknown => (("warn", "!"), "The server was not watched"),
    };
    panel(markup, sign, title, |markup| {
        markup.leaf("p", &[], &cut(&report.verdict.sentence));
        markup.leaf(
            "p",
            &[("class", &"level-text")],
            &cut(&terminal::settings(report)),
        );
        for note in &report.run.notes {
            markup.leaf("p", &[("class", &"level-text")], &cut(note));
        }
    });
}

fn cards(markup: &mut Markup, report: &Report) {
    let requests = &report.requests;
    let attributes = &[
        ("class", &"cards" as &dyn std::fmt::Display),
        ("aria-label", &"Key figures"),
    ];
    markup.element("section", attributes, |markup| {
        let beside = format!("{} successes", number::count(requests.successes));
        let rate = number::decimal(requests.per_second);
        card(markup, "Requests per second", &rate, "", &beside, false);
        let failed = requests.failed + report.connections.refused;
        let beside = format!(
            "{} unfinished at the end",
            number::count(requests.unfinished)
        );
        card(
            markup,
            "Failed",
            &number::count(failed),
            "",
            &beside,
            failed > 0,
        );
        if let Some(latency) = &report.latency.overall {
            let beside = format!(
                "p50 {}, slowest {}",
                number::milliseconds(latency.p50_ms),
                number::milliseconds(latency.max_ms)
            );
            let p99 = number::decimal(latency.p99_ms);
            card(markup, "Latency p99", &p99, "ms", &beside, false);
        }
        if let Some(server) = &report.server {
            if let Some(cost) = server.cpu_us_per_request {
                let beside = server
                    .requests_per_cpu_second
                    .map_or_else(String::new, |rate| {
                        format!("{} per CPU second", number::decimal(rate))
                    });
                let cost = number::decimal(cost);
                card(
                    markup,
                    "Server CPU per request",
                    &cost,
                    "µs",
                    &beside,
                    false,
                );
            }
            let busy = number::brief(server.utilisation_percent());
            let beside = format!(
                "client {} %",
                number::brief(report.client.busiest_thread_percent())
            );
            card(markup, "Server busy", &busy, "%", &beside, false);
        }
        if let Some(cost) = report.client.cpu_us_per_request {
            let beside = format!(
                "{} packets received",
                number::count(report.client.packets_received)
            );
            let cost = number::decimal(cost);
            card(
                markup,
                "Client CPU per request",
                &cost,
                "µs",
                &beside,
                false,
            );
        }
    });
}

fn charts(markup: &mut Markup, report: &Report) {
    if report.latency.overall.is_none() {
        return;
    }
    section(markup, "Requests", "", |markup| {
        markup.element("div", &[("class", &"plots")], |markup| {
            rate_over_time(markup, report);
            latency::over_time(markup, &report.latency, "request");
            latency::histogram(markup, &report.latency, "request");
            busy_over_time(markup, report);
        });
        let rows = [
            ("Latency", report.latency.overall),
            ("Handshake", report.connections.handshake),
        ];
        tables::quantiles(markup, &rows);
    });
}

/// Points of each second, thinned to what a plot can show; of several seconds the largest.
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

fn time_axis(report: &Report) -> Scale {
    let last = report.per_second.last().map_or(1, |one| one.second + 1);
    Scale::Linear {
        low: 0.0,
        high: float(last),
    }
}

fn rate_over_time(markup: &mut Markup, report: &Report) {
    let good = points(report, |one| Some(float(one.successes)));
    let bad = points(report, |one| Some(float(one.failed)));
    let largest = good
        .iter()
        .chain(&bad)
        .map(|(_, value)| *value)
        .fold(1.0, f64::max);
    let reading = "The last second may be cut by the end of the run.";
    let labels = labels("Requests over time", reading, TIME, "per second");
    let keys = [("bar", "successes"), ("p99", "failures")];
    figure(markup, labels.title, &keys, reading, |markup| {
        let plot = Plot::new(time_axis(report), Scale::from_zero(largest * 1.05));
        plot.draw(markup, &labels, |plot, markup| {
            plot.area(markup, "bar", &good);
            plot.curve(markup, "bar", &good, f64::INFINITY);
            if report.requests.failed + report.connections.refused > 0 {
                plot.curve(markup, "p99", &bad, f64::INFINITY);
            }
            if let Some(rate) = report.run.rate_per_second {
                let name = format!("planned {}", number::plain(rate));
                plot.level(markup, "plan", rate, &name);
            }
        });
    });
}

fn busy_over_time(markup: &mut Markup, report: &Report) {
    let server = points(report, |one| one.server_cpu_percent);
    let client = points(report, |one| one.client_cpu_percent);
    if client.len() < 2 {
        return;
    }
    let both = server.iter().chain(&client);
    let largest = both.map(|(_, value)| *value).fold(100.0, f64::max);
    let reading = "Where the server stays below 100 %, something else was the limit.";
    let labels = labels("CPU of both sides", reading, TIME, "% of a core");
    let keys = [("p50", "server"), ("p99", "client")];
    figure(markup, labels.title, &keys, reading, |markup| {
        let plot = Plot::new(time_axis(report), Scale::from_zero(largest * 1.02));
        plot.draw(markup, &labels, |plot, markup| {
            plot.curve(markup, "p50", &server, f64::INFINITY);
            plot.curve(markup, "p99", &client, f64::INFINITY);
        });
    });
}

fn failures(markup: &mut Markup, report: &Report) {
    let rows = |what: &str, kinds: &[Kind]| -> Vec<Vec<String>> {
        let row = |kind: &Kind| {
            vec![
                format!("{what}: {}", cut(&kind.kind)),
                number::count(kind.count),
                cut(kind.words.as_deref().unwrap_or("")),
            ]
        };
        kinds.iter().map(row).collect()
    };
    let mut all = rows("request", &report.requests.failures);
    all.extend(rows("connection", &report.connections.refusals));
    if all.is_empty() {
        return;
    }
    section(markup, "Failures", "", |markup| {
        markup.element("div", &[("class", &"dense")], |markup| {
            tables::table(markup, "", &["Kind", "Count", "The first of them"], &all);
        });
    });
}

fn sides(markup: &mut Markup, report: &Report) {
    let connections = &report.connections;
    let lead = terminal::tls(connections).unwrap_or_default();
    section(markup, "Connections", &lead, |markup| {
        let facts = [
            ("Begun", connections.begun),
            ("Handshakes complete", connections.handshakes),
            ("Unfinished at the end", connections.unfinished),
            ("Told to prove their address (Retry)", connections.retries),
            ("Resumed", connections.resumed),
            ("With early data", connections.early_used),
            ("Early data refused", connections.early_rejected),
            ("Told to go away", connections.goaways),
            ("Could not be made", connections.refused),
        ];
        tables::facts(
            markup,
            &facts.map(|(name, count)| (name, number::count(count))),
        );
    });
    if let Some(server) = &report.server {
        let pids: Vec<String> = server.pids.iter().map(u32::to_string).collect();
        let lead = format!("Process {}, sampled from outside.", pids.join(", "));
        section(markup, "Server", &lead, |markup| {
            let mut facts = vec![
                (
                    "CPU time",
                    format!("{} s", number::decimal(server.cpu_seconds)),
                ),
                (
                    "Load",
                    format!("{} % of a core", number::decimal(server.cpu_percent)),
                ),
                (
                    "Busiest thread",
                    format!(
                        "{} % of a core",
                        number::decimal(server.busiest_thread_percent)
                    ),
                ),
                ("Cores", number::cores(&server.cores)),
                (
                    "Memory at most",
                    number::bytes(float(server.rss_peak_bytes)),
                ),
                (
                    "Context switches",
                    format!(
                        "{} voluntary, {} involuntary",
                        number::count(server.context_switches_voluntary),
                        number::count(server.context_switches_involuntary)
                    ),
                ),
            ];
            if let Some(died) = &server.died {
                facts.push(("End", cut(died)));
            }
            tables::facts(markup, &facts);
        });
    }
    section(markup, "Load client", "", |markup| {
        let client = &report.client;
        let none = || number::NONE.to_owned();
        let facts = [
            ("Threads", number::count(client.threads.len() as u64)),
            ("Cores", number::cores(&client.cores)),
            (
                "CPU time",
                format!("{} s", number::decimal(client.cpu_seconds)),
            ),
            (
                "Busiest thread",
                format!(
                    "{} % of a core",
                    number::decimal(client.busiest_thread_percent())
                ),
            ),
            ("Packets received", number::count(client.packets_received)),
            ("Packets sent", number::count(client.packets_sent)),
            ("Socket drops", number::count(client.socket_drops)),
            (
                "Receive-buffer errors",
                client
                    .receive_buffer_errors
                    .map_or_else(none, number::count),
            ),
        ];
        tables::facts(markup, &facts);
    });
}

fn run(markup: &mut Markup, report: &Report) {
    let run = &report.run;
    section(markup, "Run", "", |markup| {
        let unlimited = |count: u64| match count {
            0 => "no limit".to_owned(),
            count => number::count(count),
        };
        let facts = [
            ("Kernel", cut(&run.kernel)),
            ("Processor", cut(&run.cpu_model)),
            ("Threads", number::count(run.threads)),
            (
                "Connections at once, per thread",
                number::count(run.max_concurrent_conns),
            ),
            (
                "Requests per connection",
                unlimited(run.max_requests_per_conn),
            ),
            (
                "Requests at once, per connection",
                number::count(run.max_concurrent_requests),
            ),
            (
                "Requests per thread",
                unlimited(run.max_requests_per_thread),
            ),
            ("Handshakes", cut(&run.handshake)),
            ("UDP payload sent", number::count(run.send_udp_payload_size)),
            (
                "UDP payload taken",
                number::count(run.recv_udp_payload_size),
            ),
            (
                "Handshake time-out",
                number::milliseconds(run.handshake_timeout_ms),
            ),
            ("Idle time-out", number::milliseconds(run.idle_timeout_ms)),
            ("GRO", if run.gro { "on" } else { "off" }.to_owned()),
            ("Sockets per thread", number::count(run.sockets)),
            (
                "MTU",
                run.mtu_bytes
                    .map_or_else(|| number::NONE.to_owned(), number::count),
            ),
        ];
        tables::facts(markup, &facts);
        if !run.command_line.is_empty() {
            markup.leaf("h4", &[("class", &"table-title")], &"To repeat it");
            markup.leaf("pre", &[], &cut(&run.command_line));
        }
    });
}
