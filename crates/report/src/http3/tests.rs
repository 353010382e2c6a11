//! Reports and comparisons in all their forms.

use serde_json::Value;

use super::*;
use crate::relay::tests::schema;

#[test]
fn a_figure_is_the_servers_only_where_it_was_the_limit() {
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
            "Neither side was the limit",
        ),
        (None, 40.0, Limit::Unknown, "since it was not watched"),
        (None, 96.0, Limit::Client, "could have done more"),
    ] {
        let report = example::report(server, client);
        assert_eq!(report.verdict.limit, limit);
        assert!(
            report.verdict.sentence.contains(words),
            "{}",
            report.verdict.sentence
        );
    }
    let nothing = example::nothing();
    assert_eq!(nothing.verdict.limit, Limit::Nothing);
    assert!(
        nothing
            .verdict
            .sentence
            .contains("30 connections could not be made")
    );
    assert!(nothing.verdict.sentence.contains("died in mid-run"));
}

#[test]
fn an_open_loop_that_was_kept_is_said_to_be() {
    let mut report = example::report(Some(60.0), 40.0);
    report.run.rate_per_second = Some(10_000.0);
    report.requests.failed = 0;
    let verdict = Verdict::of(&report);
    assert_eq!(verdict.limit, Limit::Rate);
    let kept = "The server kept up with 10,000 requests per second.";
    assert!(verdict.sentence.starts_with(kept), "{}", verdict.sentence);
    report.requests.unsent = 500;
    assert_eq!(Verdict::of(&report).limit, Limit::Neither);
}

#[test]
fn an_open_loop_with_failures_was_not_kept() {
    for (server, limit) in [
        (Some(60.0), Limit::Neither),
        (None, Limit::Unknown),
        (Some(99.0), Limit::Server),
    ] {
        let mut report = example::report(server, 40.0);
        report.run.rate_per_second = Some(20_000.0);
        report.requests.failed = 30_000;
        report.verdict = Verdict::of(&report);
        assert_eq!(report.verdict.limit, limit);
        let sentence = &report.verdict.sentence;
        let says = sentence.contains(
            "did not keep up with the rate asked for: 10,000 successful requests per second, and 30,000 requests failed.",
        );
        assert_eq!(says, limit != Limit::Server, "{sentence}");
        assert!(!sentence.contains("kept up"), "{sentence}");
        let is_title = html::render(&report).contains(">The server did not keep up<");
        assert_eq!(is_title, limit != Limit::Server);
    }
}

#[test]
fn a_server_that_ends_in_mid_run_was_no_limit() {
    for percent in [0.0, 60.0, 99.0] {
        let mut report = example::report(Some(percent), 40.0);
        report.server.as_mut().unwrap().died = Some("Its process ended".to_owned());
        report.verdict = Verdict::of(&report);
        assert_eq!(report.verdict.limit, Limit::Unknown);
        assert_eq!(
            report.verdict.sentence,
            "10,000 successful requests per second of the whole run; whose limit that was is not known. Its process ended."
        );
        assert!(html::render(&report).contains(">The server ended in mid-run<"));
    }
}

#[test]
fn the_load_of_a_server_is_that_of_what_it_could_use() {
    let mut server = example::report(Some(100.0), 1.0).server.unwrap();
    server.cores = vec![0, 1];
    server.busiest_thread_percent = 52.0;
    assert!((server.utilisation_percent() - 52.0).abs() < 1e-9);
    server.cpu_percent = 196.0;
    assert!((server.utilisation_percent() - 98.0).abs() < 1e-9);
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
    assert!(coloured.starts_with("\u{1b}[1;33mBEWARE:"));
    assert!(!coloured.contains("\u{1b}[2J"), "a peer steers no terminal");
}

#[test]
fn pages_hold_what_the_terminal_shows_and_nothing_unescaped() {
    for report in [example::report(Some(99.0), 60.0), example::nothing()] {
        let page = html::render(&report);
        assert!(page.starts_with("<!DOCTYPE html>"));
        assert!(!page.contains("<script>\u{fffd}"), "escaped");
        assert!(page.contains("default-src &#39;none&#39;"));
        for part in [
            "weir h3 bench",
            "Load client",
            "Handshakes complete",
            "To repeat it",
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
fn json_is_as_it_was_agreed() {
    let report = example::report(Some(99.0), 60.0);
    let text = json::render(&report);
    assert_eq!(json::parse(&text).unwrap().requests, report.requests);
    // A report of the first version lacks fields; it is its version that is named.
    let older = text.replacen("\"schema\": 2", "\"schema\": 1", 1);
    for other in [older.clone(), older.replacen("\"retries\":", "\"odd\":", 1)] {
        assert_eq!(
            json::parse(&other).unwrap_err().to_string(),
            "the report has schema 1, and this version of weir reads schema 2"
        );
    }
    let mut short = report;
    short.latency.histogram.truncate(2);
    insta::assert_snapshot!(json::render(&short));
}

#[test]
fn every_report_follows_the_schema() {
    let form: Value =
        serde_json::from_str(include_str!("../../../../docs/h3-report.schema.json")).unwrap();
    schema::assert_complete(&form);
    schema::assert_version(&form, SCHEMA, 0x34a0_7109_a985_38cf);
    let check = |value: &Value| schema::check(&form, &form, value, "report");
    let mut open = example::report(None, 60.0);
    open.run.rate_per_second = Some(0.5);
    open.run.mtu_bytes = None;
    for report in [example::report(Some(99.0), 60.0), example::nothing(), open] {
        let value: Value = serde_json::from_str(&json::render(&report)).unwrap();
        check(&value).unwrap_or_else(|error| panic!("{error}"));
        let mut wrong = value.clone();
        wrong["requests"]["more"] = 1.into();
        assert!(check(&wrong).is_err());
        let mut wrong = value;
        wrong["verdict"]["limit"] = "nobody".into();
        assert!(check(&wrong).is_err());
    }
}

#[test]
fn who_spends_least_comes_first() {
    let comparison = example::comparison();
    let names = |scenario: &Scenario| -> Vec<String> {
        let standings = scenario.standings.iter();
        standings.map(|one| one.entry.server.clone()).collect()
    };
    let first = &comparison.scenarios[0];
    assert_eq!(names(first), ["weir", "slow|er<b>", "absent"]);
    let weir = &first.standings[0];
    assert!((weir.cpu_us_per_request.unwrap().median - 15.0).abs() < 1e-9);
    assert_eq!(weir.limit_words(), "the server");
    assert_eq!(
        first.standings[1].limit_words(),
        "the server in 2 of 3, else the client"
    );
    assert_eq!(first.standings[2].limit_words(), "not measured");
    let text = comparison.to_json();
    assert_eq!(
        serde_json::from_str::<Comparison>(&text).unwrap().servers,
        comparison.servers
    );
}

#[test]
fn runs_that_are_missing_are_missed() {
    let mut comparison = example::comparison();
    assert!(comparison.is_measured());
    assert!(!comparison.has_all_runs(3), "one server was absent");
    comparison.scenarios.truncate(1);
    comparison.scenarios[0].standings.truncate(2);
    assert!(comparison.has_all_runs(3) && !comparison.has_all_runs(4));
    comparison.broken_off = Some("it was interrupted".to_owned());
    assert!(!comparison.has_all_runs(3));
    comparison.broken_off = None;
    let standings = &mut comparison.scenarios[0].standings;
    standings[1].entry.runs[2].successes = 0;
    assert!(!comparison.has_all_runs(3));
    let standings = &mut comparison.scenarios[0].standings;
    for run in standings.iter_mut().flat_map(|one| &mut one.entry.runs) {
        run.successes = 0;
    }
    assert!(!comparison.is_measured(), "runs without any success");
}

#[test]
fn comparisons_as_text_and_as_a_page() {
    let comparison = example::comparison();
    insta::assert_snapshot!(table(&comparison));
    insta::assert_snapshot!(markdown(&comparison));
    let page = page(&comparison);
    assert!(page.contains("slow|er&lt;b&gt;") && !page.contains("er<b>"));
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    assert_eq!(
        page.matches("bar pale").count(),
        1,
        "one run of one server was not its limit"
    );
    assert!(page.contains("absent: did not answer within 10 s"));
}
