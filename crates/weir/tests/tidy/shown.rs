//! What the page about the benchmark's draft says is shown by a test, is: there is a test of that name in that crate.

use crate::tree::{Finding, SourceFile};

/// The page. The last cell of each row of its tables names tests.
const PAGE: &str = "docs/bench-draft.md";

/// The crates that may have the tests.
const FOLDERS: [&str; 3] = ["crates/bench/", "crates/report/", "crates/weir/"];

/// Every test that the page names is there.
pub(crate) fn check_tests(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in files.iter().filter(|file| file.path == PAGE) {
        for (number, line) in page.lines() {
            for name in named(line) {
                let head = format!("fn {name}(");
                let mut tests = files
                    .iter()
                    .filter(|file| file.is_rust() && is_within(&file.path));
                if !tests.any(|file| file.lines().any(|(_, line)| line.contains(&head))) {
                    let rule = format!("{name}: there is no such test in {}", FOLDERS.join(" or "));
                    findings.push(page.finding(number, rule));
                }
            }
        }
    }
    findings
}

/// Tests in the last cell of a row.
fn named(line: &str) -> Vec<&str> {
    let cell = line
        .strip_suffix(" |")
        .and_then(|row| row.rsplit("| ").next());
    let quoted = cell.unwrap_or_default().split('`').skip(1).step_by(2);
    quoted
        .filter(|name| name.contains('_') && !name.contains(' '))
        .collect()
}

fn is_within(path: &str) -> bool {
    FOLDERS.iter().any(|folder| path.starts_with(folder))
}

#[test]
fn finds_tests_that_are_not_there() {
    let page = SourceFile::new(
        PAGE,
        "| 1 | `other_thing` | `is_there`, `is_gone`, `make x` |\n| 2 | a | `is_elsewhere` |\n",
    );
    let here = SourceFile::new("crates/bench/src/a.rs", "#[test]\nfn is_there() {}\n");
    let elsewhere = SourceFile::new("crates/moqt/src/a.rs", "fn is_elsewhere() {}\n");
    let found: Vec<String> = check_tests(&[page, here, elsewhere])
        .iter()
        .map(ToString::to_string)
        .collect();
    let folders = "crates/bench/ or crates/report/ or crates/weir/";
    assert_eq!(
        found,
        [
            format!("docs/bench-draft.md:1: is_gone: there is no such test in {folders}"),
            format!("docs/bench-draft.md:2: is_elsewhere: there is no such test in {folders}"),
        ]
    );
}
