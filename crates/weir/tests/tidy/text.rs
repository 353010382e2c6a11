//! What is true for every text file: names, marks of unfinished work, citations, paths.

use std::path::Path;

use crate::tree::{Finding, SourceFile, has_word};

/// Names that say nothing about what is in a file.
const EMPTY_NAMES: [&str; 6] = ["common", "util", "utils", "helper", "helpers", "misc"];

/// Marks of unfinished work.
const MARKS: [&str; 6] = ["TODO", "FIXME", "XXX", "HACK", "todo!", "unimplemented!"];

/// Files in which a mark is not one: prose may speak of them, and others are written by tools.
const PROSE: [&str; 3] = ["md", "lock", "snap"];

/// The documents that are cited in brackets, as `[document §section]`.
const DRAFTS: [&str; 8] = [
    "moqt-18", "moqt-19", "moqt-20", "moqt-21", "moqt-22", "evens-00", "msf-01", "loc-04",
];

/// Where people and machines keep their files; a path below is one of a single machine.
const HOMES: [&str; 3] = ["/home/", "/root/", "/Users/"];

/// Folders that clones are made in and that files of the project may well speak of.
const SHARED_FOLDERS: [&str; 6] = ["/", "/tmp", "/var/tmp", "/opt", "/srv", "/usr/src"];

/// File and folder names say what is inside.
pub(crate) fn check_names(files: &[SourceFile]) -> Vec<Finding> {
    let is_empty = |part: &str| {
        let stem = part.split('.').next().unwrap_or(part);
        EMPTY_NAMES.contains(&stem)
    };
    let files = files
        .iter()
        .filter(|file| file.path.split('/').any(is_empty));
    files
        .map(|file| file.finding(1, "the name says nothing: name it for the data it owns"))
        .collect()
}

/// What is not done is an issue, not a comment.
pub(crate) fn check_marks(files: &[SourceFile]) -> Vec<Finding> {
    let files = files
        .iter()
        .filter(|file| !PROSE.contains(&file.extension()));
    let mut findings = Vec::new();
    for file in files {
        for (number, line) in file.lines() {
            if let Some(mark) = MARKS.iter().find(|mark| has_word(line, mark)) {
                let rule = format!("{mark}: finish it, or write an issue");
                findings.push(file.finding(number, rule));
            }
        }
    }
    findings
}

/// Citations in brackets can be searched for: they have one form and name a known document.
pub(crate) fn check_citations(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        for (number, line) in file.lines() {
            for citation in citations(line) {
                if !is_good_citation(citation) {
                    let rule = format!(
                        "[{citation} is not of the form [DRAFT §1.2] or [DRAFT §1.2, §3.4] with a draft of: \
                         {}. An RFC is cited as RFC 9000 §1.2",
                        DRAFTS.join(", ")
                    );
                    findings.push(file.finding(number, rule));
                }
            }
        }
    }
    findings
}

/// What follows each `[word §`, from the word to the end of its bracket or of the line.
fn citations(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices('[').filter_map(|(at, _)| {
        let rest = &line[at + 1..];
        let (word, section) = rest.split_once(' ')?;
        let is_word = |character: char| character.is_ascii_alphanumeric() || character == '-';
        if word.is_empty() || !word.chars().all(is_word) || !section.starts_with('§') {
            return None;
        }
        Some(rest.find(']').map_or(rest, |end| &rest[..=end]))
    })
}

fn is_good_citation(citation: &str) -> bool {
    let is_section = |section: &str| {
        section.strip_prefix('§').is_some_and(|section| {
            section.split('.').all(|part| {
                !part.is_empty() && part.chars().all(|part| part.is_ascii_alphanumeric())
            })
        })
    };
    citation
        .strip_suffix(']')
        .and_then(|citation| citation.split_once(' '))
        .is_some_and(|(draft, sections)| {
            DRAFTS.contains(&draft) && sections.split(", ").all(is_section)
        })
}

/// The project stands alone: it names nothing outside itself, and no folder of one machine.
pub(crate) fn check_paths(files: &[SourceFile], root: &Path) -> Vec<Finding> {
    let root_text = root.display().to_string();
    let parent = root.parent().unwrap_or(root).display().to_string();
    let is_shared = SHARED_FOLDERS.contains(&parent.as_str());
    let outer = (!is_shared).then(|| format!("{parent}/"));
    let mut findings = Vec::new();
    for file in files {
        for (number, line) in file.lines() {
            let machine = HOMES
                .into_iter()
                .chain([root_text.as_str()])
                .chain(outer.as_deref());
            for path in machine.filter(|path| has_path(line, path)) {
                let rule =
                    format!("a path of one machine ({path}): make it relative, or an argument");
                findings.push(file.finding(number, rule));
            }
            if line.contains("../shared") {
                findings.push(file.finding(number, "a path out of the project (../shared)"));
            }
        }
    }
    findings
}

/// Does `line` contain `path`, not as a part of a longer path, and with something below it?
fn has_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + path.len()..].chars().next();
        let is_longer =
            |character: char| character.is_alphanumeric() || ".-_/{}$*".contains(character);
        let is_name = |character: char| character.is_alphanumeric() || character == '.';
        !before.is_some_and(is_longer) && (!path.ends_with('/') || after.is_some_and(is_name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> Vec<SourceFile> {
        vec![SourceFile::new(path, text)]
    }

    fn is_found(line: &str, check: impl Fn(&[SourceFile]) -> Vec<Finding>) -> bool {
        let findings = check(&file("crates/moqt/src/lib.rs", &format!("\n{line}\n")));
        assert!(findings.iter().all(|finding| finding.line == 2));
        !findings.is_empty()
    }

    #[test]
    fn finds_names_that_say_nothing() {
        for (path, is_bad) in [
            ("crates/moqt/src/util.rs", true),
            ("crates/moqt/src/common/mod.rs", true),
            ("crates/moqt/tests/helpers/mod.rs", true),
            ("scripts/misc.sh", true),
            ("crates/moqt/src/utility.rs", false),
            ("crates/moqt/src/name.rs", false),
        ] {
            assert_eq!(!check_names(&file(path, "")).is_empty(), is_bad, "{path}");
        }
    }

    #[test]
    fn finds_marks_of_unfinished_work() {
        for (line, is_bad) in [
            ("// TODO: later", true),
            ("// FIXME(me)", true),
            ("let a = 1; // XXX", true),
            ("/* HACK */", true),
            ("    todo!()", true),
            ("    unimplemented!(\"later\")", true),
            ("/// Of the form 0bXXX1.", false),
            ("let todo = list();", false),
        ] {
            assert_eq!(is_found(line, check_marks), is_bad, "{line}");
        }
        assert_eq!(check_marks(&file("docs/style.md", "no TODO here")), []);
        assert_eq!(check_marks(&file("Makefile", "# TODO")).len(), 1);
    }

    #[test]
    fn finds_citations_of_nothing() {
        for (line, is_bad) in [
            ("/// As told [moqt-18 §9.4].", false),
            (
                "/// As told [moqt-18 §9.4, §10.2.1] and [evens-00 §A].",
                false,
            ),
            ("/// RFC 9000 §5.1, [`Link`], [1], [a b].", false),
            ("/// As told [moqt-17 §9.4].", true),
            ("/// As told [rfc9000 §5.1].", true),
            ("/// As told [moqt-18 §].", true),
            ("/// As told [moqt-18 §9.].", true),
            ("/// As told [moqt-18 §9.4, 10].", true),
            ("/// As told [moqt-18 §9.4", true),
        ] {
            assert_eq!(is_found(line, check_citations), is_bad, "{line}");
        }
    }

    #[test]
    fn finds_paths_out_of_the_tree() {
        let root = Path::new("/builds/group/weir");
        for (line, is_bad) in [
            ("see ../shared/design", true),
            ("cd /builds/group/weir", true),
            ("cd /builds/group/other", true),
            ("cat /home/ann/notes", true),
            ("PATH=/root/.cargo/bin", true),
            ("under `/home/`", false),
            ("https://example.com/home/ann", false),
            ("crates/builds/group/weir", false),
            ("cat /tmp/notes", false),
        ] {
            let check = |files: &[SourceFile]| check_paths(files, root);
            assert_eq!(is_found(line, check), is_bad, "{line}");
        }
        let shared = |files: &[SourceFile]| check_paths(files, Path::new("/tmp/weir"));
        assert!(!is_found("cat /tmp/notes", shared));
        assert!(is_found("cat /tmp/weir/notes", shared));
    }
}
