//! `docs/relay-limits.md`: every limit has a counter that operators can see, and tests.

use std::{collections::BTreeSet, fs, path::Path};

use super::*;
use crate::relay::metrics;

/// A row of the page.
struct Row<'a> {
    key: &'a str,
    default: &'a str,
    counters: Vec<&'a str>,
    tests: Vec<&'a str>,
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn rows(page: &str) -> Vec<Row<'_>> {
    let table = page.lines().filter(|line| line.starts_with("| `"));
    let rows = table.map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").collect();
        let [key, default, counters, tests] = cells[..] else {
            panic!("four cells: {line}");
        };
        Row {
            key: key.trim().trim_matches('`'),
            default: default.trim(),
            counters: quoted(counters),
            tests: quoted(tests),
        }
    });
    rows.collect()
}

/// The texts between backticks.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// What is wrong with the page, given what `/metrics` shows.
fn problems(page: &str, metrics: &str) -> Vec<String> {
    let samples: BTreeSet<&str> = metrics
        .lines()
        .filter_map(|line| Some(line.rsplit_once(' ')?.0))
        .collect();
    let rows = rows(page);
    let mut problems = Vec::new();
    let default = RelayConfig::default();
    for setting in table() {
        if !setting.key.starts_with("limits.") || NO_LIMITS.contains(&setting.key) {
            continue;
        }
        let Some(row) = rows.iter().find(|row| row.key == setting.key) else {
            problems.push(format!("{} has no row", setting.key));
            continue;
        };
        let shown = (setting.show)(&default, setting.shape).map(|value| format!("`{value}`"));
        if shown.as_deref() != Some(row.default) {
            problems.push(format!("{} is {shown:?}, not {}", row.key, row.default));
        }
    }
    for row in &rows {
        if !table().iter().any(|setting| setting.key == row.key) {
            problems.push(format!("{} is no setting", row.key));
        }
        if row.counters.is_empty() || row.tests.is_empty() {
            problems.push(format!("{} needs a counter and a test", row.key));
        }
        for counter in row.counters.iter().filter(|name| !samples.contains(*name)) {
            problems.push(format!("{}: no {counter} in /metrics", row.key));
        }
        for counter in row.counters.iter().filter(|name| is_of_one_limit(name)) {
            let mut others = rows.iter().filter(|other| other.key != row.key);
            if others.any(|other| other.counters.contains(counter)) {
                problems.push(format!("{}: {counter} counts another limit too", row.key));
            }
        }
        for test in row.tests.iter().filter(|test| !is_test(test)) {
            problems.push(format!("{}: there is no test {test}", row.key));
        }
    }
    // Bounds without a setting.
    let fixed = page
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| `"));
    for name in fixed.flat_map(quoted) {
        if name.contains('#') && !is_test(name) {
            problems.push(format!("there is no test {name}"));
        }
        if name.starts_with("weir_") && !samples.contains(name) {
            problems.push(format!("no {name} in /metrics"));
        }
    }
    problems
}

/// Whether a counter is for requests that are refused at a limit: then operators have to see at which one.
fn is_of_one_limit(counter: &str) -> bool {
    counter.starts_with("weir_relay_refused_limit_")
}

/// Whether `FILE#TEST` is one.
fn is_test(name: &str) -> bool {
    let Some((file, name)) = name.split_once('#') else {
        return false;
    };
    // Stories of the relay have no folder.
    let folder = if file.contains('/') {
        "crates"
    } else {
        "crates/relay/tests/relay"
    };
    let text = fs::read_to_string(root().join(folder).join(file)).unwrap_or_default();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let head = format!("fn {name}() {{");
    lines
        .windows(2)
        .any(|pair| pair[0] == "#[test]" && pair[1] == head)
}

fn page() -> String {
    let file = root().join("docs/relay-limits.md");
    fs::read_to_string(file).expect("the page of limits")
}

/// Returns the page with the defaults that the program has.
fn with_defaults(page: &str) -> String {
    let (config, settings) = (RelayConfig::default(), table());
    let line = |line: &str| {
        let row = rows(line).pop()?;
        let setting = settings.iter().find(|setting| setting.key == row.key)?;
        let shown = (setting.show)(&config, setting.shape)?;
        let (before, after) = (format!("| {} |", row.default), format!("| `{shown}` |"));
        Some(line.replacen(&before, &after, 1))
    };
    let lines = page.split_inclusive('\n');
    lines
        .map(|one| line(one.trim_end()).map_or_else(|| one.to_owned(), |row| row + "\n"))
        .collect()
}

#[test]
fn every_limit_has_a_counter_and_tests() {
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let file = root().join("docs/relay-limits.md");
        fs::write(file, with_defaults(&page())).expect("the page can be written");
    }
    let problems = problems(&page(), &metrics::tests::page());
    assert!(
        problems.is_empty(),
        "docs/relay-limits.md:\n{}",
        problems.join("\n")
    );
}

#[test]
fn the_page_of_limits_gets_the_defaults_of_the_program() {
    let stale = page().replace("| `100000` |", "| `10` |");
    assert_ne!(stale, page());
    assert_eq!(with_defaults(&stale), page());
}

#[test]
fn what_is_missing_on_the_page_of_limits_is_found() {
    let (page, metrics) = (page(), metrics::tests::page());
    for (from, to, problem) in [
        (
            "| `limits.relay.tracks_max`",
            "| `limits.relay.tracts_max`",
            "limits.relay.tracks_max has no row",
        ),
        (
            "| `limits.relay.tracks_max`",
            "| `limits.relay.tracts_max`",
            "limits.relay.tracts_max is no setting",
        ),
        (
            "| `100000` |",
            "| `10` |",
            "limits.relay.tracks_max is Some",
        ),
        (
            "`weir_quic_retried_total`",
            "`weir_quic_tried_total`",
            "no weir_quic_tried_total in /metrics",
        ),
        (
            "`weir_quic_retried_total`",
            "",
            "needs a counter and a test",
        ),
        (
            "`weir_relay_refused_limit_fetches_total`",
            "`weir_relay_refused_limit_tracks_total`",
            "limits.relay.tracks_max: weir_relay_refused_limit_tracks_total counts another limit too",
        ),
        (
            "limits.rs#tracks`",
            "limits.rs#tracts`",
            "there is no test limits.rs#tracts",
        ),
    ] {
        let changed = page.replace(from, to);
        let found = problems(&changed, &metrics);
        assert!(
            found.iter().any(|found| found.contains(problem)),
            "{problem}: {found:?}"
        );
    }
}

/// Settings among the limits that bound nothing.
const NO_LIMITS: [&str; 2] = ["limits.quic.congestion", "limits.quic.keep_alive"];
