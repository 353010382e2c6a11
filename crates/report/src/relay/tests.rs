//! Tests of all forms of a report.

use serde_json::Value;

use super::example::hostile::{self, HOSTILE};
use super::example::{self, Shape, Story};
use super::*;
use crate::form;
use crate::statistics::{Count, Spread};

/// Returns example reports of every kind, with names.
fn all() -> Vec<(&'static str, Report)> {
    let video = Shape {
        video: true,
        ..Shape::audio(200)
    };
    let long = Shape {
        seconds: 900,
        ..Shape::audio(3000)
    };
    vec![
        ("one", example::report(Shape::audio(1))),
        ("audio", example::report(Shape::audio(200))),
        ("video", example::report(video)),
        ("long", example::report(long)),
        (
            "overloaded",
            example::report(video.story(Story::Overloaded)),
        ),
        (
            "died",
            example::report(Shape::audio(200).story(Story::RelayDied)),
        ),
        (
            "generator",
            example::report(Shape::audio(200).story(Story::SlowGenerator)),
        ),
        (
            "unobserved",
            example::report(Shape::audio(12).story(Story::NotObserved)),
        ),
        (
            "slow readers",
            example::report(Shape::audio(50).story(Story::SlowReaders)),
        ),
        ("unserved", example::report(Shape::audio(0))),
        ("empty", example::empty()),
        ("hostile", hostile::report()),
    ]
}

#[test]
#[ignore = "writes files to look at, into the folder that WEIR_REPORTS names"]
fn write_examples() {
    let folder = std::path::PathBuf::from(std::env::var("WEIR_REPORTS").expect("WEIR_REPORTS"));
    for (name, report) in all() {
        let write = |ending: &str, text: String| {
            std::fs::write(folder.join(format!("{name}.{ending}")), text).unwrap();
        };
        write("html", html::render(&report));
        write("json", json::render(&report));
        write("txt", terminal::render(&report, 100, true));
    }
}

#[test]
fn equal_reports_are_equal_files() {
    let shape = Shape {
        video: true,
        ..Shape::audio(20)
    }
    .story(Story::Overloaded);
    let (one, two) = (example::report(shape), example::report(shape));
    assert_eq!(json::render(&one), json::render(&two));
    assert_eq!(html::render(&one), html::render(&two));
    assert_eq!(
        terminal::render(&one, 100, true),
        terminal::render(&two, 100, true)
    );
}

#[test]
fn a_report_is_read_as_it_was_written() {
    for (name, report) in all() {
        let text = json::render(&report);
        let again = json::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(json::render(&again), text, "{name}");
    }
}

#[test]
fn a_report_with_another_schema_is_refused() {
    let text = json::render(&example::empty());
    for other in [6, 8] {
        let text = text.replacen("\"schema\": 7", &format!("\"schema\": {other}"), 1);
        assert_eq!(
            json::parse(&text).unwrap_err().to_string(),
            format!("the report has schema {other}, and this version of weir reads schema 7")
        );
    }
    let unknown = text.replacen("\"seed\"", "\"unheard_of\": 1, \"seed\"", 1);
    assert!(matches!(
        json::parse(&unknown),
        Err(json::ReadError::Invalid(_))
    ));
    assert!(matches!(
        json::parse("{}"),
        Err(json::ReadError::Invalid(_))
    ));
    assert!(json::parse("").is_err());
}

#[test]
fn numbers_are_kept_to_three_decimals() {
    let mut report = example::empty();
    report.run.duration_ms = 1.0 / 3.0;
    assert!(json::render(&report).contains("\"duration_ms\": 0.333,"));
    report.run.duration_ms = -0.000_01;
    assert!(json::render(&report).contains("\"duration_ms\": 0.0,"));
}

#[test]
fn a_core_that_relay_and_generator_share_is_named() {
    let mut report = example::report(Shape::audio(3));
    let sentence = "relay and load generator share core 1 and slow each other down";
    for (relay, is_shared) in [(vec![0], false), (vec![0, 1], true), (Vec::new(), false)] {
        report.run.cores.relay = relay;
        assert_eq!(
            terminal::render(&report, 200, false).contains(sentence),
            is_shared
        );
        assert_eq!(html::render(&report).contains(sentence), is_shared);
    }
    report.run.cores.relay = vec![3, 2];
    report.run.cores.publishers = vec![2];
    report.run.cores.subscribers = vec![3];
    let problem = report.run.cores.problem().unwrap();
    assert!(problem.contains("share cores 2, 3"), "{problem}");
}

#[test]
fn hostile_text_is_escaped() {
    let report = hostile::report();
    let page = html::render(&report);
    assert_eq!(
        page.matches("<script").count(),
        1,
        "only the page's own script"
    );
    assert!(!page.contains("<img") && !page.contains(HOSTILE));
    assert!(!page.contains(['\u{1b}', '\u{0}', '\u{202e}']));
    let screen = terminal::render(&report, 100, false);
    assert!(
        !screen.contains(['\u{1b}', '\u{0}', '\u{202e}']),
        "{screen}"
    );
    json::parse(&json::render(&report)).expect("JSON escapes everything");
}

#[test]
fn the_latency_card_shows_the_slowest_object_of_all_tracks() {
    let video = Shape {
        video: true,
        ..Shape::audio(20)
    };
    let mut report = example::report(video);
    let mut slowest = |track: usize, p99_ms, max_ms| {
        let overall = report.tracks[track].latency.overall.as_mut().unwrap();
        (overall.p99_ms, overall.max_ms) = (p99_ms, max_ms);
    };
    slowest(0, 4.0, 21.2);
    slowest(1, 9.0, 11.4);
    let page = html::render(&report);
    let (_, card) = page.split_once("<h3>Latency p99</h3>").unwrap();
    let (card, _) = card.split_once("</div>").unwrap();
    assert!(card.contains("9.00"), "{card}");
    assert!(
        card.contains("slowest track; slowest object 21.2 ms"),
        "{card}"
    );
}

#[test]
fn a_report_of_the_publisher_shows_no_figures_of_subscribers() {
    let mut report = example::report(Shape::audio(0));
    report.tracks[0].published.objects = 301;
    let text = terminal::render(&report, 100, false);
    assert!(text.contains("published      301 objects in"), "{text}");
    assert!(text.contains("publisher lateness"), "{text}");
    for absent in ["objects sent", "lost objects", "subscriptions", "latency  "] {
        assert!(!text.contains(absent), "{absent}: {text}");
    }
    let page = html::render(&report);
    assert!(page.contains("<h3>Objects published</h3>"));
    for absent in ["Objects sent", "Lost objects", "Good subscriptions"] {
        assert!(!page.contains(absent), "{absent}");
    }
}

#[test]
fn wall_clocks_of_two_processes_are_named() {
    let mut report = example::report(Shape::audio(3));
    assert!(!terminal::render(&report, 100, false).contains("latency by"));
    report.run.latency_clock = "wall clock: publishers in another process".to_owned();
    let text = terminal::render(&report, 100, false);
    let named = "latency by wall clock: publishers in another process";
    assert!(text.contains(named), "{text}");
}

#[test]
fn memory_of_a_session_that_was_not_measured_says_why() {
    let mut report = example::report(Shape::audio(3));
    report.relay.cost.as_mut().unwrap().bytes_per_session = None;
    let reason = "the relay reuses memory of earlier sessions";
    let page = html::render(&report);
    assert!(page.contains(&format!("not measured: {reason}")), "{page}");
    let text = terminal::render(&report, 200, false);
    let words = format!("per session not measured ({reason})");
    assert!(text.contains(&words), "{text}");
}

#[test]
fn a_clause_without_a_figure_says_why() {
    let mut report = example::report(Shape::audio(3));
    let clause = report.slo.clauses.last_mut().unwrap();
    (clause.measured, clause.held) = (None, Some(false));
    report.slo.held = false;
    let report = report.judged_again();
    let reason = "not measured: the relay's process was not observed";
    let sentence = &report.verdict.sentence;
    let broke = format!("cpu<95% broke, {reason}; ");
    assert!(sentence.starts_with(&broke), "{sentence}");
    assert!(terminal::render(&report, 100, false).contains(reason));
    assert!(html::render(&report).contains(reason));
}

#[test]
fn a_page_fetches_nothing() {
    for (name, report) in all() {
        let page = html::render(&report);
        assert!(page.contains("default-src 'none'"), "{name}");
        for attribute in [" src=\"", " href=\"", "url(", "@import", "fetch("] {
            assert!(!page.contains(attribute), "{name}: {attribute}");
        }
    }
}

#[test]
fn a_page_has_no_broken_number_in_its_drawings() {
    for (name, report) in all() {
        let page = html::render(&report);
        for broken in ["NaN", "inf"] {
            let found = page
                .split("<svg")
                .skip(1)
                .filter_map(|part| part.split("</svg>").next());
            assert!(
                !found.into_iter().any(|svg| svg.contains(broken)),
                "{name}: {broken}"
            );
        }
    }
}

#[test]
fn a_page_stays_small() {
    for (name, report) in all() {
        let page = html::render(&report);
        assert!(page.len() < 500_000, "{name}: {} bytes", page.len());
    }
    let mut report = hostile::report();
    report.run.profile.text = "x".repeat(10_000_000);
    report.verdict.sentence = "ö".repeat(1_000_000);
    report.tracks = vec![report.tracks[0].clone(); 1_000];
    report.generator.reasons = vec!["y".repeat(100); 100_000];
    let page = html::render(&report);
    assert!(page.len() < 3_000_000, "{} bytes", page.len());
}

#[test]
fn infinite_and_missing_numbers_break_no_form() {
    let mut report = example::report(Shape::audio(5));
    for second in &mut report.tracks[0].latency.per_second {
        (second.p50_ms, second.p99_ms, second.max_ms) = (f64::NAN, f64::INFINITY, -1.0);
    }
    for subscriber in &mut report.tracks[0].subscribers {
        subscriber.latency = Some(Distribution {
            p99_ms: f64::NAN,
            ..Distribution::default()
        });
    }
    for bucket in &mut report.tracks[0].latency.histogram {
        (bucket.from_ms, bucket.to_ms) = (f64::NAN, f64::INFINITY);
    }
    report.tracks[0].definition.time_interval_ms = 0.0;
    report.relay.per_second[0].cpu_percent = f64::NAN;
    let page = html::render(&report);
    assert!(!page.contains("NaN") && !page.contains("inf "));
    assert!(!terminal::render(&report, 80, false).contains("NaN"));
    assert!(!json::render(&report).contains("NaN"));
}

#[test]
fn set_up_counts_a_connection_once() {
    let shape = Shape {
        video: true,
        ..Shape::audio(7)
    };
    let report = example::report(shape);
    assert_eq!(report.set_up.handshake.map(|one| one.count), Some(7));
    assert_eq!(report.set_up.first_object.map(|one| one.count), Some(14));
}

#[test]
fn an_early_end_and_a_slow_generator_decide_the_verdict_first() {
    let outcome = |story| {
        example::report(Shape::audio(30).story(story))
            .verdict
            .outcome
    };
    assert_eq!(outcome(Story::Fine), Outcome::Held);
    assert_eq!(outcome(Story::Overloaded), Outcome::Broken);
    assert_eq!(outcome(Story::RelayDied), Outcome::Partial);
    assert_eq!(outcome(Story::SlowGenerator), Outcome::GeneratorLimit);
    assert_eq!(example::empty().verdict.outcome, Outcome::Empty);
    assert!(Outcome::Held.is_held() && !Outcome::GeneratorLimit.is_held());

    let limited = example::report(Shape::audio(30).story(Story::SlowGenerator))
        .verdict
        .sentence;
    assert!(
        limited.starts_with("the generator was the limit; the run says nothing about the relay")
    );
    assert!(!limited.contains("CPU per object"), "{limited}");
}

#[test]
fn summaries_of_values() {
    let count = Count::over([4, 0, 8]);
    assert_eq!((count.sum, count.min, count.max), (12, 0, 8));
    assert_eq!(Count::over([]), Count::default());
    assert_eq!(Spread::over([f64::NAN]), None);
    let spread = Spread::over([1.0, f64::INFINITY, 3.0]).expect("two finite values");
    assert!((spread.mean - 2.0).abs() < 1e-12);
    let distribution = Distribution::of((1..=200).map(f64::from)).expect("values");
    assert_eq!(distribution.count, 200);
    let ranks = [
        distribution.p50_ms,
        distribution.p90_ms,
        distribution.p99_ms,
        distribution.max_ms,
    ];
    assert_eq!(
        ranks.map(|rank| format!("{rank}")),
        ["100", "180", "198", "200"]
    );
    assert_eq!(Distribution::of([7.0]).map(|one| one.count), Some(1));
    assert_eq!(Distribution::of([]), None);
}

fn schema() -> jsonschema::Validator {
    form::schema::kept::<Report>("report.schema.json", SCHEMA, 0x1d80_e93d_e9c7_754e)
}

#[test]
fn every_report_follows_the_schema() {
    let schema = schema();
    for (name, report) in all() {
        let value = serde_json::from_str(&json::render(&report)).unwrap();
        let checked = schema.validate(&value);
        checked.unwrap_or_else(|error| panic!("{name}: {error} at {}", error.instance_path()));
    }
}

#[test]
fn a_report_with_a_wrong_field_fails() {
    let schema = schema();
    let (_, report) = all().swap_remove(0);
    let value: Value = serde_json::from_str(&json::render(&report)).unwrap();
    let broken = |change: fn(&mut Value)| {
        let mut value = value.clone();
        change(&mut value);
        !schema.is_valid(&value)
    };
    assert!(!broken(|_| ()));
    assert!(broken(|value| value["schema"] = 1.into()));
    assert!(broken(|value| value["run"]["seed"] = "1".into()));
    assert!(broken(|value| value["run"]["more"] = 1.into()));
    assert!(broken(
        |value| value["tracks"][0]["subscribers"][0]["status"] = "fine".into()
    ));
    assert!(broken(
        |value| value["relay"]["source"] = serde_json::json!({ "kind": "child_process" })
    ));
    assert!(broken(|value| {
        value["slo"].as_object_mut().unwrap().remove("held");
    }));
}
