//! Tests of the formats.

use super::{Bystander, Case, Kind, Level, Memory, Outcome, Report, SCHEMA, html, json, page, tap};

fn case(name: &str, level: Level, result: Outcome, details: &str) -> Case {
    Case {
        name: name.to_owned(),
        kind: Kind::Conformance,
        section: "10.4".to_owned(),
        requirement: "a second GOAWAY closes the session".to_owned(),
        level,
        result,
        details: details.to_owned(),
        duration_ms: 1.5,
        messages: 3,
    }
}

fn report() -> Report {
    let part = |during: &str, lost| Bystander {
        during: during.to_owned(),
        planned: 100,
        lost,
        p50_ms: 1.0,
        p99_ms: 2.0,
        max_ms: 3.0,
    };
    Report {
        schema: SCHEMA,
        url: "moqt://127.0.0.1:4443".to_owned(),
        relay: "relay <1>".to_owned(),
        transport: "raw QUIC".to_owned(),
        draft: "moqt-22".to_owned(),
        start_time: "2026-11-24T12:00:00Z".to_owned(),
        weir_version: "0.1.0".to_owned(),
        command_line: "weir probe moqt://127.0.0.1:4443".to_owned(),
        seed: 7,
        cases: vec![
            case("goaway.good", Level::Must, Outcome::Passed, ""),
            case(
                "goaway.bad",
                Level::Must,
                Outcome::Failed,
                "expected \"x\": nothing",
            ),
            case(
                "goaway.soft",
                Level::Should,
                Outcome::Failed,
                "expected y: z",
            ),
            case(
                "goaway.other",
                Level::Must,
                Outcome::Skipped,
                "other transport",
            ),
        ],
        bystander: vec![part("before the cases", 5), part("conformance", 0)],
        bystander_failure: None,
        memory: Some(Memory {
            before_bytes: 1 << 20,
            peak_bytes: 3 << 20,
            after_bytes: 2 << 20,
        }),
    }
}

#[test]
fn a_run_in_tap() {
    let report = report();
    let mut text = tap::head(report.cases.len(), &report.draft);
    for (number, case) in (1..).zip(&report.cases) {
        text.push_str(&tap::case(number, case));
    }
    text.push_str(&tap::bystander(&report));
    assert_eq!(
        text,
        "\
TAP version 14
1..5
# moqt-22
ok 1 - goaway.good
not ok 2 - goaway.bad
  ---
  section: \"10.4\"
  requirement: \"a second GOAWAY closes the session\"
  message: \"expected \\\"x\\\": nothing\"
  ...
not ok 3 - goaway.soft # todo the draft says SHOULD
  ---
  section: \"10.4\"
  requirement: \"a second GOAWAY closes the session\"
  message: \"expected y: z\"
  ...
ok 4 - goaway.other # SKIP other transport
ok 5 - bystander.loses-nothing
  ---
  before_the_cases: {planned: 100, lost: 5, p50_ms: 1.00, p99_ms: 2.00, max_ms: 3.00}
  conformance: {planned: 100, lost: 0, p50_ms: 1.00, p99_ms: 2.00, max_ms: 3.00}
  ...
"
    );
}

#[test]
fn required_cases_and_the_bystander_decide() {
    let mut report = report();
    assert!(!report.holds());
    report.cases[1].result = Outcome::Passed;
    assert!(report.holds(), "SHOULD does not decide");
    report.bystander[1].lost = 1;
    assert!(!report.holds());
}

#[test]
fn a_report_survives_json() {
    let report = report();
    assert_eq!(json::parse(&json::render(&report)).unwrap(), report);
    let other = json::render(&report).replace("\"schema\": 2", "\"schema\": 99");
    assert!(json::parse(&other).is_err());
}

#[test]
fn the_page_shows_failures_and_escapes_names() {
    let page = html::render(&report());
    for text in [
        "1 required case failed",
        "goaway.bad",
        "relay &lt;1&gt; over raw QUIC",
        "a section of draft-ietf-moq-transport-22.",
    ] {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn reports_side_by_side_show_where_they_differ() {
    let (one, mut other) = (report(), report());
    other.cases[1].result = Outcome::Passed;
    let text = page::render(&[one, other]);
    assert!(text.contains("1 of 2"), "{text}");
    assert!(text.contains("2 of 2"), "{text}");
    let row = text.lines().find(|line| line.starts_with("| goaway.bad"));
    assert!(row.is_some_and(|row| row.ends_with("| passed |")), "{text}");
    assert!(!text.contains("goaway.good"), "{text}");
    assert!(text.contains("(SHOULD)"), "{text}");
}

#[test]
fn reports_of_two_drafts_have_a_table_for_each() {
    let (new, mut old) = (report(), report());
    old.draft = "moqt-18".to_owned();
    old.cases[1].name = "goaway.old".to_owned();
    let text = page::render(&[new, old]);
    let titles: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("### ") && line.contains("Required"))
        .collect();
    assert_eq!(
        titles,
        [
            "### draft-ietf-moq-transport-22: Required by the draft, and failed",
            "### draft-ietf-moq-transport-18: Required by the draft, and failed",
        ]
    );
    let row = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
    assert_eq!((row("| goaway.bad"), row("| goaway.old")), (1, 1), "{text}");
}
