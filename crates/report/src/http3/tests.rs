//! Tests of HTTP/3 reports in all their forms.

use serde_json::Value;

use super::*;

#[test]
fn the_verdict_names_the_limit() {
    for (server, client, limit, words) in [
        (
            Some(99.0),
            60.0,
            Limit::Server,
            "The server was the limit (99 % busy)",
        ),
        (Some(95.0), 99.0, Limit::Server, "The server was the limit"),
        (
            Some(94.9),
            99.0,
            Limit::Client,
            "The load client was the limit (99 % busy)",
        ),
        (
            Some(60.0),
            40.0,
            Limit::Neither,
            "Not the server's maximum: neither the server (60 % busy) nor the client (40 %) was the limit. The server \
             answered 10,000 requests per second. The server spent 60.0 µs of CPU on each request. Either other programs used \
             these cores (repeat on an idle machine), or 100 requests in flight, or the path, were the limit. Raise \
             --max-concurrent-conns or --max-concurrent-requests.",
        ),
        (
            None,
            40.0,
            Limit::Unknown,
            "give --server-pid or --server-process",
        ),
        (None, 96.0, Limit::Client, "may be able to answer more"),
    ] {
        let report = example::report(server, client);
        assert_eq!(report.verdict.limit, limit);
        assert!(
            report.verdict.sentence.contains(words),
            "{}",
            report.verdict.sentence
        );
        assert!(report.verdict.sentence.starts_with(&report.facts()));
        assert!(!report.facts().contains("Raise"), "{}", report.facts());
    }
    let idle = example::report(Some(0.0), 40.0).verdict.sentence;
    assert!(
        idle.contains("used no CPU: does another one serve?"),
        "{idle}"
    );
    let nothing = example::nothing();
    assert_eq!(nothing.verdict.limit, Limit::Nothing);
    assert!(
        nothing
            .verdict
            .sentence
            .contains("30 connections could not be made")
    );
    assert!(nothing.verdict.sentence.contains("died during the run"));
}

#[test]
fn the_agent_with_the_busiest_thread_is_named_as_the_limit() {
    let agent = |name: &str, busiest_thread_percent| Agent {
        name: name.to_owned(),
        kernel: "6.18.0".to_owned(),
        cpu_model: "A <processor>".to_owned(),
        threads: 1,
        requests: 15_000,
        busiest_thread_percent,
        event_loop_lag_p99_ms: 0.5,
    };
    let agents = vec![agent("one", 40.0), agent("two", 99.0), agent("three", 60.0)];
    let report = example::report(Some(60.0), 99.0).with_agents(agents);
    let words = "The load client was the limit (agent two, 99 % busy)";
    assert!(report.verdict.sentence.starts_with(words));
    assert!(report.verdict.sentence.contains("more agents (--agents)"));
    let shown = terminal::render(&report, 200, false);
    assert!(
        shown.contains("3 agents × 1 thread × 10 connections"),
        "{shown}"
    );
    let line = "agent three: 1 thread, 15,000 requests succeeded, busiest thread 60 % of a core";
    assert!(shown.contains(line), "{shown}");
    let page = html::render(&report);
    assert!(page.contains("three") && page.contains("A &lt;processor&gt;, Linux 6.18.0"));
    let idle = example::report(None, 40.0).with_agents(vec![agent("one", 40.0)]);
    assert!(
        idle.verdict
            .sentence
            .contains("--watch to the agent on its host")
    );
}

#[test]
fn a_server_that_keeps_up_with_an_open_loop_is_limited_by_the_rate() {
    let mut report = example::report(Some(60.0), 40.0);
    report.run.rate_per_second = Some(10_000.0);
    report.requests.failed = 0;
    let verdict = Verdict::of(&report);
    assert_eq!(verdict.limit, Limit::Rate);
    let kept = "The server kept up with 10,000 requests per second. The server spent 60.0 µs of CPU on each request at \
                this rate.";
    assert!(verdict.sentence.starts_with(kept), "{}", verdict.sentence);
    // At most one request in a hundred may be unsent.
    let due = report.requests.sent;
    for (unsent, limit) in [(due / 100, Limit::Rate), (due / 90, Limit::RateMissed)] {
        let mut late = report.clone();
        late.requests.unsent = unsent;
        let verdict = Verdict::of(&late);
        assert_eq!(verdict.limit, limit, "{}", verdict.sentence);
    }
    // No request failed, but a third had no answer when the run ended.
    report.run.rate_per_second = Some(15_000.0);
    let verdict = Verdict::of(&report);
    assert_eq!(verdict.limit, Limit::RateMissed);
    assert!(
        verdict.sentence.starts_with("The rate was not reached"),
        "{}",
        verdict.sentence
    );
}

#[test]
fn a_server_with_failures_did_not_keep_up_with_an_open_loop() {
    for (server, limit) in [
        (Some(60.0), Limit::RateMissed),
        (None, Limit::RateMissed),
        (Some(99.0), Limit::Server),
    ] {
        let mut report = example::report(server, 40.0);
        report.run.rate_per_second = Some(20_000.0);
        report.requests.failed = 30_000;
        report.verdict = Verdict::of(&report);
        assert_eq!(report.verdict.limit, limit);
        let sentence = &report.verdict.sentence;
        let says = sentence.contains(
            "The rate was not reached: of 20,000 requests per second asked for (--rate), 10,000 succeeded; 30,000 requests \
             failed,",
        );
        assert_eq!(says, limit != Limit::Server, "{sentence}");
        assert!(!sentence.contains("kept up"), "{sentence}");
        let is_title = html::render(&report).contains(">The rate was not reached<");
        assert_eq!(is_title, limit != Limit::Server);
    }
}

#[test]
fn the_limit_is_not_known_if_the_server_ends_during_the_run() {
    for percent in [0.0, 60.0, 99.0] {
        let mut report = example::report(Some(percent), 40.0);
        report.server.as_mut().unwrap().died = Some("Its process ended".to_owned());
        report.verdict = Verdict::of(&report);
        assert_eq!(report.verdict.limit, Limit::Unknown);
        assert_eq!(
            report.verdict.sentence,
            "10,000 successful requests per second over the whole run; the limit is not known. Its process ended."
        );
        assert!(html::render(&report).contains(">The server was lost during the run<"));
    }
}

#[test]
fn a_server_that_stops_answering_is_lost_even_if_nobody_watches_it() {
    let lost = |silent_ms: f64, change: fn(&mut Report)| {
        let mut report = example::report(None, 40.0);
        report.requests.silent_ms = Some(silent_ms);
        change(&mut report);
        report.verdict = Verdict::of(&report);
        (report.has_lost_server(), report.verdict.sentence)
    };
    let (is_lost, sentence) = lost(1_001.0, |_| ());
    assert!(is_lost);
    let expected = "10,000 successful requests per second over the whole run; the limit is not known. The server stopped \
                    answering 1,001 ms before the end.";
    assert_eq!(sentence, expected);
    assert!(!lost(1_000.0, |_| ()).0, "a short pause");
    // Slow answers, a slow plan, or nothing that was asked.
    let slow = |report: &mut Report| {
        report.latency.overall.as_mut().unwrap().max_ms = 500.0;
    };
    assert!(!lost(1_500.0, slow).0 && lost(1_501.0, slow).0);
    let rare = |report: &mut Report| report.run.rate_per_second = Some(0.5);
    assert!(!lost(6_000.0, rare).0 && lost(6_001.0, rare).0);
    let idle = |report: &mut Report| {
        report.requests.failed = 0;
        report.requests.unfinished = 0;
        report.connections.refused = 0;
    };
    assert!(!lost(9_000.0, idle).0);
}

#[test]
fn utilisation_is_a_share_of_the_cores_that_the_server_can_use() {
    let mut server = example::report(Some(100.0), 1.0).server.unwrap();
    server.cores = vec![0, 1];
    server.busiest_thread_percent = 52.0;
    assert!((server.utilisation_percent() - 52.0).abs() < 1e-9);
    server.cpu_percent = 196.0;
    assert!((server.utilisation_percent() - 98.0).abs() < 1e-9);
}

#[test]
fn time_that_the_hypervisor_took_is_not_time_that_a_side_was_idle() {
    let mut report = example::report(Some(86.0), 40.0);
    assert_eq!(report.verdict.limit, Limit::Neither);
    report.server.as_mut().unwrap().stolen_percent = Some(10.0);
    let verdict = Verdict::of(&report);
    assert_eq!(verdict.limit, Limit::Server);
    assert!(verdict.sentence.contains("(96 % busy)"), "{verdict:?}");
    let text = terminal::render(&report, 200, false);
    assert!(
        text.contains("the hypervisor gave 10 % of its time"),
        "{text}"
    );
    // Some kernels count stolen time as the thread's.
    report.server.as_mut().unwrap().cpu_percent = 97.0;
    let utilisation = report.server.as_ref().unwrap().utilisation_percent();
    assert!((utilisation - 100.0).abs() < 1e-9);
    report.server = None;
    report.client.stolen_percent = Some(60.0);
    assert!((report.client.utilisation_percent() - 100.0).abs() < 1e-9);
    assert_eq!(Verdict::of(&report).limit, Limit::Client);
}

#[test]
fn the_cost_of_a_request_is_not_known_if_the_server_ended() {
    let usage = ServerUsage {
        used: Usage {
            cpu: Duration::from_secs(2),
            ..Usage::default()
        },
        busiest_thread: Duration::from_secs(1),
        watched: Duration::from_secs(4),
        ..ServerUsage::default()
    };
    let server = Server::of(usage.clone(), 1_000);
    assert_eq!(server.cpu_us_per_request, Some(2_000.0));
    assert_eq!(server.requests_per_cpu_second, Some(500.0));
    let loads = (server.cpu_percent, server.busiest_thread_percent);
    assert_eq!(loads, (50.0, 25.0));
    assert_eq!(Server::of(usage.clone(), 0).cpu_us_per_request, None);
    let dead = ServerUsage {
        died: Some("The server's process ended during the run".to_owned()),
        ..usage
    };
    let server = Server::of(dead, 1_000);
    assert_eq!(server.cpu_us_per_request, None);
    assert_eq!(server.requests_per_cpu_second, None);
}

#[test]
fn rates_and_loads_follow_from_counts_and_times() {
    let counts = Requests {
        successes: 10,
        content_bytes: 1_000,
        ..Requests::default()
    };
    let rates = counts.over(Duration::from_secs(2));
    assert_eq!((rates.per_second, rates.bits_per_second), (5.0, 4_000.0));
    let thread = |cpu_ms, lag_ms| ClientThreadUsage {
        cpu: Duration::from_millis(cpu_ms),
        event_loop_lag_p99: Duration::from_millis(lag_ms),
    };
    let threads = [thread(1_000, 1), thread(500, 20)];
    let client = Client::of(&threads, Duration::from_secs(2), 3);
    let first = client.threads[0];
    let figures = (first.cpu_percent, first.event_loop_lag_p99_ms);
    assert_eq!(figures, (50.0, 1.0));
    assert_eq!(client.cpu_us_per_request, Some(500_000.0));
    let idle = Client::of(&threads, Duration::ZERO, 0);
    assert_eq!(idle.cpu_us_per_request, None);
}

#[test]
fn reports_in_the_terminal() {
    insta::assert_snapshot!(terminal::render(
        &example::report(Some(99.0), 60.0),
        100,
        false
    ));
    insta::assert_snapshot!(terminal::render(&example::nothing(), 80, false));
    let coloured = terminal::render(&example::report(None, 99.0), 100, true);
    assert!(coloured.starts_with("\u{1b}[1;33mCAUTION:"));
    assert!(
        !coloured.contains("\u{1b}[2J"),
        "no escape sequence of a peer reaches the terminal"
    );
}

#[test]
fn pages_hold_what_the_terminal_shows_and_nothing_unescaped() {
    for report in [example::report(Some(99.0), 60.0), example::nothing()] {
        let page = html::render(&report);
        assert!(page.starts_with("<!DOCTYPE html>"));
        assert!(!page.contains("<script>\u{fffd}"), "escaped");
        assert!(page.contains("default-src 'none'"));
        for part in [
            "weir h3 bench",
            "Load client",
            "Handshakes complete",
            "Command line",
        ] {
            assert!(page.contains(part), "{part}");
        }
        assert_eq!(
            page.matches("<section").count(),
            page.matches("</section>").count()
        );
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    }
    assert!(
        html::render(&example::report(Some(99.0), 60.0))
            .contains("H3_INTERNAL_ERROR &lt;script&gt;")
    );
}

#[test]
fn the_form_of_json_does_not_change_unnoticed() {
    let report = example::report(Some(99.0), 60.0);
    let text = json::render(&report);
    assert_eq!(json::parse(&text).unwrap().requests, report.requests);
    // The error for an older report names the schema, not the first missing field.
    let older = text.replacen("\"schema\": 6", "\"schema\": 5", 1);
    for other in [older.clone(), older.replacen("\"retries\":", "\"odd\":", 1)] {
        assert_eq!(
            json::parse(&other).unwrap_err().to_string(),
            "the report has schema 5, and this version of weir reads schema 6"
        );
    }
    let mut short = report;
    short.latency.histogram.truncate(2);
    insta::assert_snapshot!(json::render(&short));
}

#[test]
fn every_report_follows_the_schema() {
    let schema =
        crate::form::schema::kept::<Report>("h3-report.schema.json", SCHEMA, 0x5e35_d771_d3b7_e4eb);
    let mut open = example::report(None, 60.0);
    open.run.rate_per_second = Some(0.5);
    open.run.mtu_bytes = None;
    for report in [example::report(Some(99.0), 60.0), example::nothing(), open] {
        let value: Value = serde_json::from_str(&json::render(&report)).unwrap();
        let checked = schema.validate(&value);
        checked.unwrap_or_else(|error| panic!("{error} at {}", error.instance_path()));
        let mut wrong = value.clone();
        wrong["requests"]["more"] = 1.into();
        assert!(!schema.is_valid(&wrong));
        let mut wrong = value;
        wrong["verdict"]["limit"] = "nobody".into();
        assert!(!schema.is_valid(&wrong));
    }
}

#[test]
#[ignore = "writes a file to look at, into the folder that WEIR_REPORTS names"]
fn write_examples() {
    let folder = std::path::PathBuf::from(std::env::var("WEIR_REPORTS").expect("WEIR_REPORTS"));
    let report = example::report(Some(99.0), 60.0);
    std::fs::write(folder.join("h3.html"), html::render(&report)).unwrap();
}
