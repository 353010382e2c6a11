//! What a page says is shown by a test or by a golden vector, is: there is one of that name.

use crate::tree::{Finding, SourceFile};

/// The pages, each with the crates that may have its tests. The last cell of each row of their tables names tests, and
/// golden vectors, whose names have blanks.
const PAGES: [(&str, &[&str]); 4] = [
    (
        "docs/bench-draft.md",
        &["crates/bench/", "crates/report/", "crates/weir/"],
    ),
    ("docs/moqt-drafts.md", &["crates/moqt/", "crates/relay/"]),
    ("docs/relay-moqt.md", &["crates/quic/", "crates/relay/"]),
    ("docs/threats.md", &["crates/"]),
];

/// Every test and vector that a page names is there.
pub(crate) fn check_tests(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, folders) in PAGES {
        for page in files.iter().filter(|file| file.path == path) {
            for (number, line) in page.lines() {
                for name in named(line) {
                    if let Some(rule) = missing(files, folders, name) {
                        findings.push(page.finding(number, rule));
                    }
                }
            }
        }
    }
    findings
}

/// Returns what is wrong with a name, if there is nothing of that name.
fn missing(files: &[SourceFile], folders: &[&str], name: &str) -> Option<String> {
    let (folders, head) = if name.contains(' ') {
        (&["vectors/"][..], format!("\"name\": \"{name}\""))
    } else {
        (folders, format!("fn {name}("))
    };
    let is_within = |file: &&SourceFile| folders.iter().any(|it| file.path.starts_with(it));
    let mut files = files.iter().filter(is_within);
    let is_there = files.any(|file| file.lines().any(|(_, line)| line.contains(&head)));
    (!is_there).then(|| format!("{name}: there is none in {}", folders.join(" or ")))
}

/// Tests and vectors in the last cell of a row.
fn named(line: &str) -> Vec<&str> {
    let cell = line
        .strip_suffix(" |")
        .and_then(|row| row.rsplit("| ").next());
    let quoted = cell.unwrap_or_default().split('`').skip(1).step_by(2);
    let quoted = quoted.filter(|name| !name.starts_with("make "));
    quoted.filter(|name| name.contains(['_', ' '])).collect()
}

#[test]
fn finds_tests_and_vectors_that_are_not_there() {
    let bench = SourceFile::new(
        "docs/bench-draft.md",
        "| 1 | `other_thing` | `is_there`, `is_gone`, `make x` |\n| 2 | a | `is_elsewhere` |\n",
    );
    let moqt = SourceFile::new(
        "docs/moqt-drafts.md",
        "| a | `is_elsewhere`, `a vector` |\n| b | `no vector` |\n",
    );
    let here = SourceFile::new("crates/bench/src/a.rs", "#[test]\nfn is_there() {}\n");
    let elsewhere = SourceFile::new("crates/moqt/src/a.rs", "fn is_elsewhere() {}\n");
    let vectors = SourceFile::new("vectors/moqt/a.json", "{\"name\": \"a vector\"}\n");
    let found: Vec<String> = check_tests(&[bench, moqt, here, elsewhere, vectors])
        .iter()
        .map(ToString::to_string)
        .collect();
    let folders = "crates/bench/ or crates/report/ or crates/weir/";
    assert_eq!(
        found,
        [
            format!("docs/bench-draft.md:1: is_gone: there is none in {folders}"),
            format!("docs/bench-draft.md:2: is_elsewhere: there is none in {folders}"),
            "docs/moqt-drafts.md:2: no vector: there is none in vectors/".to_owned(),
        ]
    );
}
