//! Rules for the documents: links lead somewhere, shell fences are run or say what they need, and words are those of a reference.

use std::collections::BTreeSet;

use crate::tree::{Finding, SourceFile};

/// Names of fences whose commands a test would not find.
const OTHER_SHELLS: [&str; 5] = ["bash", "shell", "console", "zsh", "shell-session"];

/// The mark of a shell fence that no test runs.
const NEEDS: &str = "<!-- needs: ";

/// Most bytes of all documents that are written by hand, together: an afternoon of reading.
const WRITTEN_BYTES_MAX: usize = 90_000;

/// Pages that tests and commands write as a whole.
const WRITTEN_BY_PROGRAMS: [&str; 7] = [
    "docs/commands.md",
    "docs/comparison-files.md",
    "docs/interop.md",
    "docs/profile-keys.md",
    "docs/relay-metrics.md",
    "docs/relay-settings.md",
    "docs/report-fields.md",
];

/// Pages of results: commands write their sections, and the text about them is short.
const RESULTS: [&str; 4] = [
    "docs/fleet-results.md",
    "docs/hard-results.md",
    "docs/probe-results.md",
    "docs/results.md",
];

/// Tables that are written by hand. They do not count, since they are looked up row by row and not read, and a test checks that
/// the tests which each row names exist (`shown.rs`, and for limits `every_limit_has_a_counter_and_tests`).
const TABLES: [&str; 5] = [
    "docs/bench-draft.md",
    "docs/moqt-drafts.md",
    "docs/relay-limits.md",
    "docs/relay-moqt.md",
    "docs/threats.md",
];

/// Most bytes outside of the rows of one of these pages: what has to be read belongs to the pages that count.
const TABLE_PROSE_BYTES_MAX: usize = 1_200;

/// Most columns of a line of text.
const COLUMNS_MAX: usize = 145;

/// Wordings that are wrong in English, that are not terms of the field, or that belong into a commit message. Blanks keep names of
/// functions out.
const PHRASES: [&str; 20] = [
    " anew",
    "asked again and again",
    "in a quiet hour",
    "two audits",
    "as it was before",
    "was once ",
    "used to be",
    "nowadays",
    "who is wary",
    "the one who",
    "whoever ",
    "sessions that stood",
    "tried less long",
    "broken is:",
    "neighbour ",
    "newcomer ",
    "newcomers ",
    "lookout",
    "is come by",
    "a word about",
];

/// Hashes of commits belong into commit messages: they say nothing to readers of a document.
pub(crate) fn check_hashes(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in pages(files) {
        for (number, line) in prose(file) {
            let words = line
                .split(|character: char| !(character.is_ascii_alphanumeric() || character == '_'));
            if let Some(hash) = words.into_iter().find(|word| is_hash(word)) {
                findings.push(file.finding(
                    number,
                    format!("a commit's hash ({hash}): say what is true, without it"),
                ));
            }
        }
    }
    findings
}

fn is_hash(word: &str) -> bool {
    (7..=40).contains(&word.len())
        && word
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        && word.bytes().any(|byte| byte.is_ascii_digit())
        && word.bytes().any(|byte| byte.is_ascii_lowercase())
}

/// Documents, and comments of the code, hold no wording of [`PHRASES`].
pub(crate) fn check_phrases(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        let lines: Vec<(usize, &str)> = if is_page(file) {
            prose(file)
        } else if file.is_rust() {
            file.lines()
                .filter(|(_, line)| line.trim_start().starts_with("//"))
                .collect()
        } else {
            continue;
        };
        for (number, line) in lines {
            let line = line.to_lowercase();
            if let Some(phrase) = PHRASES.iter().find(|phrase| line.contains(*phrase)) {
                findings.push(file.finding(
                    number,
                    format!("\"{phrase}\": say it in a reference's words"),
                ));
            }
        }
    }
    findings
}

/// Documents that are written by hand are short enough to be read. A new page takes its place from the others.
pub(crate) fn check_size(files: &[SourceFile]) -> Vec<Finding> {
    let is_among = |pages: &[&str], file: &SourceFile| pages.contains(&file.path.as_str());
    let is_counted = |file: &&SourceFile| {
        let apart = [&WRITTEN_BY_PROGRAMS[..], &RESULTS, &TABLES];
        file.extension() == "md" && !apart.iter().any(|pages| is_among(pages, file))
    };
    let counted = || files.iter().filter(is_counted);
    let bytes: usize = counted().map(|file| file.text.len()).sum();
    let longest = counted().max_by_key(|file| file.text.len());
    let longest = longest.filter(|_| bytes > WRITTEN_BYTES_MAX);
    let rule = format!(
        "all documents written by hand have {bytes} bytes together, more than {WRITTEN_BYTES_MAX}, and this is the longest: \
         cut what is said twice, or what --help and generated pages say"
    );
    let mut findings: Vec<Finding> = longest
        .map(|file| file.finding(1, rule))
        .into_iter()
        .collect();
    for file in files.iter().filter(|file| is_among(&TABLES, file)) {
        let text = file.lines().filter(|(_, line)| !line.starts_with('|'));
        let bytes: usize = text.map(|(_, line)| line.len() + 1).sum();
        if bytes > TABLE_PROSE_BYTES_MAX {
            let rule = format!(
                "a page of tables has {bytes} bytes outside of their rows, more than {TABLE_PROSE_BYTES_MAX}: \
                 move what has to be read to a page that counts"
            );
            findings.push(file.finding(1, rule));
        }
    }
    findings
}

/// Lines of text end where an editor still shows them. Rows of tables, links to images and sections of commands are longer.
pub(crate) fn check_columns(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_written = |file: &&SourceFile| {
        file.extension() == "md" && !WRITTEN_BY_PROGRAMS.contains(&file.path.as_str())
    };
    for file in files.iter().filter(is_written) {
        let mut is_section = false;
        for (number, line) in prose(file) {
            let is_mark = line.starts_with("<!-- ");
            is_section = (is_section || is_mark && line.contains(" begin: made by "))
                && !(is_mark && line.ends_with(" end -->"));
            let columns = line.chars().count();
            let is_text = !is_section && !line.starts_with(['|', '#', '<', '!']);
            if is_text && columns > COLUMNS_MAX {
                let rule = format!("{columns} columns: break lines at 140, {COLUMNS_MAX} at most");
                findings.push(file.finding(number, rule));
            }
        }
    }
    findings
}

/// Links and images lead to files, and to headings, that exist.
pub(crate) fn check_links(files: &[SourceFile], exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.extension() == "md") {
        for (number, line) in prose(file) {
            for target in links(line) {
                let (path, heading) = target.split_once('#').unwrap_or((target, ""));
                let path = if path.is_empty() {
                    file.path.clone()
                } else {
                    beside(&file.path, path)
                };
                if !exists(&path) {
                    findings.push(file.finding(number, format!("{target}: there is no such file")));
                    continue;
                }
                let page = files
                    .iter()
                    .find(|one| one.path == path && one.extension() == "md");
                if let Some(page) = page
                    && !heading.is_empty()
                    && !headings(page).contains(heading)
                {
                    findings
                        .push(file.finding(number, format!("{target}: there is no such heading")));
                }
            }
        }
    }
    findings
}

/// Shell fences are named `sh`, and a mark stands directly before its fence. A test runs unmarked fences of the README and of
/// `docs/`; other pages have marked fences only.
pub(crate) fn check_fences(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in pages(files) {
        let is_run = file.path == "README.md" || file.path.starts_with("docs/");
        let lines: Vec<&str> = file.text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let name = line.strip_prefix("```").unwrap_or_default();
            if OTHER_SHELLS.contains(&name) {
                findings
                    .push(file.finding(index + 1, "name the fence `sh`, so that a test runs it"));
            }
            let next = lines.get(index + 1).copied().unwrap_or_default();
            let is_mark = line.starts_with(NEEDS) && line.ends_with(" -->") && next == "```sh";
            if line.contains("<!-- needs") && !is_mark {
                let rule =
                    format!("a mark is `{NEEDS}… -->` on the line before a fence named `sh`");
                findings.push(file.finding(index + 1, rule));
            }
            if next == "```sh" && !is_mark && !is_run {
                let rule = format!("no test runs this page: put `{NEEDS}… -->` on this line");
                findings.push(file.finding(index + 1, rule));
            }
        }
    }
    findings
}

fn is_page(file: &SourceFile) -> bool {
    file.extension() == "md" && file.path != "CHANGELOG.md"
}

fn pages(files: &[SourceFile]) -> Vec<&SourceFile> {
    files.iter().filter(|file| is_page(file)).collect()
}

/// The lines outside of fences.
fn prose(file: &SourceFile) -> Vec<(usize, &str)> {
    let mut is_inside = false;
    let mut lines = Vec::new();
    for (number, line) in file.lines() {
        let is_edge = line.trim_start().starts_with("```");
        is_inside ^= is_edge;
        if !is_inside && !is_edge {
            lines.push((number, line));
        }
    }
    lines
}

/// The targets of a line's links and images, in Markdown and HTML, without those that leave the repository.
fn links(line: &str) -> Vec<&str> {
    let after = |begin, end| {
        let parts = line.split(begin).skip(1);
        parts.filter_map(move |rest: &str| rest.split(end).next())
    };
    let html = after("src=\"", '"').chain(after("href=\"", '"'));
    let targets = after("](", ')').chain(html);
    targets
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
        .collect()
}

/// The path of `link` in `page`, from the root of the repository.
fn beside(page: &str, link: &str) -> String {
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(link.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The names under which the headings of a page can be linked to, as GitHub makes them.
fn headings(page: &SourceFile) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (_, line) in prose(page) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let lower = title.trim().to_lowercase();
        let kept = lower
            .chars()
            .filter(|one| one.is_alphanumeric() || " -_".contains(*one));
        let name: String = kept.map(|one| if one == ' ' { '-' } else { one }).collect();
        let mut free = name.clone();
        let mut number = 0;
        while !names.insert(free.clone()) {
            number += 1;
            free = format!("{name}-{number}");
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str, check: impl Fn(&[SourceFile]) -> Vec<Finding>) -> Vec<usize> {
        let findings = check(&[SourceFile::new(path, text)]);
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn finds_hashes_of_commits() {
        let text = "since 669f66e.\n`0123456`, deadbeef, 0x1234abc, 66f9\n```text\n669f66e\n```\n(0a1b2c3d4e)\n";
        assert_eq!(found("docs/a.md", text, check_hashes), [1, 6]);
        assert_eq!(found("CHANGELOG.md", text, check_hashes), []);
    }

    #[test]
    fn finds_documents_that_are_too_long_together() {
        let page = |path, bytes| SourceFile::new(path, &"x".repeat(bytes));
        let check = |more| {
            let half = WRITTEN_BYTES_MAX / 2;
            let looked_up = page("docs/commands.md", WRITTEN_BYTES_MAX);
            let code = page("crates/a.rs", WRITTEN_BYTES_MAX);
            let written = [page("README.md", half), page("docs/new.md", half + more)];
            let [first, second] = written;
            let found = check_size(&[looked_up, code, first, second]);
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert!(check(0).is_empty());
        let found = check(1);
        assert!(
            found[0].starts_with("docs/new.md:1: all documents written by hand have 90001 bytes"),
            "{found:?}"
        );
    }

    #[test]
    fn finds_text_between_tables_that_are_looked_up() {
        let rows = format!("| {} |\n", "x".repeat(WRITTEN_BYTES_MAX));
        let page = |bytes| format!("{rows}{}\n{rows}", "x".repeat(bytes));
        let found = |text: &str| found("docs/threats.md", text, check_size);
        assert_eq!(found(&page(TABLE_PROSE_BYTES_MAX - 1)), []);
        assert_eq!(found(&page(TABLE_PROSE_BYTES_MAX)), [1]);
    }

    #[test]
    fn finds_lines_that_are_too_long() {
        let (fits, long) = ("ä".repeat(COLUMNS_MAX), "x".repeat(COLUMNS_MAX + 1));
        let text = format!(
            "{fits}\n{long}\n| {long} |\n```\n{long}\n```\n<!-- a begin: made by b -->\n{long}\n<!-- a end -->\n{long}\n"
        );
        assert_eq!(found("docs/a.md", &text, check_columns), [2, 10]);
        assert_eq!(found("docs/commands.md", &text, check_columns), []);
    }

    #[test]
    fn finds_wrong_wordings() {
        let text = "Measured anew.\nMeasured.\n// in a quiet hour\n/// A newcomer of newcomers_max.\n/// newcomers_max.\n";
        assert_eq!(found("docs/a.md", text, check_phrases), [1, 3, 4]);
        assert_eq!(found("crates/a.rs", text, check_phrases), [3, 4]);
    }

    #[test]
    fn finds_links_to_nothing() {
        let files = [
            SourceFile::new(
                "docs/a.md",
                "# One `two`, three\n[a](b.md) [b](../c.rs) [c](#one-two-three) [d](b.md#x)\n[e](#x)\n",
            ),
            SourceFile::new(
                "docs/b.md",
                "## X\n## X\n[a](#x-1) [b](https://a.example/b)\n![c](d.png) <img src=\"e.svg\">\n```\n[d](e)\n```\n",
            ),
        ];
        let findings = check_links(&files, |path| {
            ["docs/a.md", "docs/b.md", "c.rs"].contains(&path)
        });
        let found: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "docs/a.md:3: #x: there is no such heading",
                "docs/b.md:4: d.png: there is no such file",
                "docs/b.md:4: e.svg: there is no such file"
            ]
        );
    }

    #[test]
    fn finds_fences_that_no_test_would_run() {
        let text = "```sh\na\n```\n<!-- needs: b -->\n```sh\nb\n```\n```bash\nc\n```\n<!-- needs: d -->\n\n```sh\nd\n```\n";
        assert_eq!(found("docs/a.md", text, check_fences), [8, 11]);
        assert_eq!(found("vectors/a.md", text, check_fences), [8, 11, 12]);
        let unmarked = "Run:\n```sh\na\n```\n";
        assert_eq!(found("vectors/a.md", unmarked, check_fences), [1]);
    }
}
