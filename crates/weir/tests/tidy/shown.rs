//! What the page about the benchmark's draft says is shown by a test, is: there is a test of that name in that crate.

use crate::tree::{Finding, SourceFile};

/// The page. The last cell of each row of its tables names tests.
const PAGE: &str = "docs/bench-draft.md";

/// Behind the name of a test of the program; others are of the benchmark and its reports.
const OF_THE_PROGRAM: &str = " (*p*";

/// Every test that the page names is there.
pub(crate) fn check_tests(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in files.iter().filter(|file| file.path == PAGE) {
        for (number, line) in page.lines() {
            for (name, folders) in named(line) {
                let head = format!("fn {name}(");
                let mut tests = files
                    .iter()
                    .filter(|file| file.is_rust() && is_within(&file.path, folders));
                if !tests.any(|file| file.lines().any(|(_, line)| line.contains(&head))) {
                    let rule = format!("{name}: there is no such test in {}", folders.join(" or "));
                    findings.push(page.finding(number, rule));
                }
            }
        }
    }
    findings
}

/// Tests in the last cell of a row, and the folders of the crates that may have them.
fn named(line: &str) -> Vec<(&str, &'static [&'static str])> {
    let cell = line
        .strip_suffix(" |")
        .and_then(|row| row.rsplit("| ").next());
    let mut parts = cell.unwrap_or_default().split('`').skip(1);
    let mut names = Vec::new();
    while let Some(name) = parts.next() {
        let behind = parts.next().unwrap_or_default();
        let is_test = name.chars().filter(|one| *one == '_').count() > 0 && !name.contains(' ');
        if is_test {
            let is_program = behind.starts_with(OF_THE_PROGRAM);
            let folders: &[&str] = if is_program {
                &["crates/weir/"]
            } else {
                &["crates/bench/", "crates/report/"]
            };
            names.push((name, folders));
        }
    }
    names
}

fn is_within(path: &str, folders: &[&str]) -> bool {
    folders.iter().any(|folder| path.starts_with(folder))
}

#[test]
fn finds_tests_that_are_not_there() {
    let page = SourceFile::new(
        PAGE,
        "| 1 | `other_thing` | `is_there`, `is_gone` (*p*: why), `make x` |\n| 2 | a | `is_there` (*p*) |\n",
    );
    let test = SourceFile::new("crates/bench/src/a.rs", "#[test]\nfn is_there() {}\n");
    let found: Vec<String> = check_tests(&[page, test])
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        found,
        [
            "docs/bench-draft.md:1: is_gone: there is no such test in crates/weir/",
            "docs/bench-draft.md:2: is_there: there is no such test in crates/weir/",
        ]
    );
}
