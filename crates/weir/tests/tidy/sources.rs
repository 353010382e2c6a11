//! How sources look.

use crate::tree::{Finding, SourceFile, has_word};

/// Longest source file, in lines.
const LINES_MAX: usize = 600;

/// Longest function, from the line of `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;

/// The files, and the folder, that may hold unsafe code: system calls, and the benchmark of system calls.
const UNSAFE_PLACES: [&str; 3] = [
    "crates/net/src/sys.rs",
    "crates/net/src/sys/",
    "crates/net/benches/floor/traffic.rs",
];

/// What may stand before `fn`, besides `pub`.
const QUALIFIERS: [&str; 5] = ["const", "async", "unsafe", "extern", "default"];

/// How unsafe code looks.
const UNSAFE: [&str; 6] = [
    "unsafe {",
    "unsafe fn",
    "unsafe impl",
    "unsafe trait",
    "unsafe extern",
    "unsafe(",
];

/// Unsafe code stands only in [`UNSAFE_PLACES`].
pub(crate) fn check_unsafe(files: &[SourceFile]) -> Vec<Finding> {
    let rule = format!(
        "unsafe code belongs in {}: ask for it there",
        UNSAFE_PLACES[0]
    );
    find(files, &rule, |file, line| {
        let mut places = UNSAFE_PLACES.iter();
        !places.any(|&place| {
            file.path == place || place.ends_with('/') && file.path.starts_with(place)
        }) && UNSAFE.iter().any(|keyword| has_word(line, keyword))
    })
}

/// Lints are satisfied, or expected with a reason, so that an exception goes when its cause goes.
pub(crate) fn check_allow(files: &[SourceFile]) -> Vec<Finding> {
    let rule = "a lint is allowed: satisfy it, or write #[expect(lint, reason = \"...\")]";
    find(files, rule, |_, line| {
        let line = line.trim_start();
        let is_attribute = line.starts_with("#[") || line.starts_with("#![");
        is_attribute && has_word(line, "allow(")
    })
}

/// Files can be read at a sitting.
pub(crate) fn check_length(files: &[SourceFile]) -> Vec<Finding> {
    let files = files.iter().filter(|file| file.is_code());
    files
        .filter_map(|file| {
            let count = file.lines().count();
            let rule = format!("{count} lines, more than {LINES_MAX}: split by the data it owns");
            (count > LINES_MAX).then(|| file.finding(LINES_MAX + 1, rule))
        })
        .collect()
}

/// Functions fit on a screen or two.
pub(crate) fn check_functions(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let lines: Vec<&str> = file.text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let Some(name) = function_name(line) else {
                continue;
            };
            let count = function_lines(&lines[index..]);
            if count > FUNCTION_LINES_MAX {
                let rule = format!(
                    "{name} has {count} lines, more than {FUNCTION_LINES_MAX}: split it by step"
                );
                findings.push(file.finding(index + 1, rule));
            }
        }
    }
    findings
}

/// Fences in documentation comments are text: `make test` runs no examples of comments, which takes a compilation of each
/// crate more.
pub(crate) fn check_examples(files: &[SourceFile]) -> Vec<Finding> {
    let rule = "no test runs an example in a comment: write a test, or mark the fence as text";
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let mut is_inside = false;
        for (index, line) in file.text.lines().enumerate() {
            let Some(fence) = fence_in_comment(line) else {
                continue;
            };
            if !is_inside && fence != "text" {
                findings.push(file.finding(index + 1, rule));
            }
            is_inside = !is_inside;
        }
    }
    findings
}

/// What stands behind the fence, if this line is one in a documentation comment.
fn fence_in_comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let comment = line
        .strip_prefix("///")
        .or_else(|| line.strip_prefix("//!"))?;
    comment.trim_start().strip_prefix("```").map(str::trim)
}

/// The name of the function that begins on this line.
fn function_name(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let is_item = before
        .split_whitespace()
        .all(|word| word.starts_with("pub") || QUALIFIERS.contains(&word) || word.starts_with('"'));
    let is_spaced = before.is_empty() || before.ends_with(' ');
    let name = after.split(['(', '<']).next()?;
    (is_item && is_spaced).then_some(name)
}

/// The lines of the function that begins on the first one, as rustfmt lays it out.
fn function_lines(lines: &[&str]) -> usize {
    let first = lines.first().copied().unwrap_or_default();
    let indent = &first[..first.len() - first.trim_start().len()];
    let ends_function = |line: &&str| {
        let line = line.trim_end();
        line.strip_prefix(indent).is_some_and(|rest| {
            rest == "}" || !rest.starts_with(' ') && (rest.ends_with(';') || rest.ends_with("{}"))
        })
    };
    if first.trim_end().ends_with('}') {
        return 1;
    }
    let end = lines.iter().position(ends_function);
    end.map_or(lines.len(), |end| end + 1)
}

fn find(
    files: &[SourceFile],
    rule: &str,
    is_broken: impl Fn(&SourceFile, &str) -> bool,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        for (number, line) in file.code_lines() {
            if is_broken(file, line) {
                findings.push(file.finding(number, rule));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_unsafe_code_out_of_place() {
        let text = "//! Nothing unsafe { } here.\n#![expect(unsafe_code)]\nlet policy = \"'unsafe-inline'\";\n    unsafe { g() }\n";
        let findings = check_unsafe(&[
            SourceFile::new("crates/net/src/sys.rs", text),
            SourceFile::new("crates/net/src/sys/batch.rs", text),
            SourceFile::new("crates/net/src/socket.rs", text),
        ]);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].path, "crates/net/src/socket.rs");
        assert_eq!(findings[0].line, 4);
    }

    #[test]
    fn finds_examples_that_no_test_runs() {
        let text = "//! ```text\n//! a\n//! ```\n\n    /// ```\n    /// f();\n    /// ```\n/// ```no_run\n/// ```\n// ```\n";
        let findings = check_examples(&[SourceFile::new("crates/net/src/socket.rs", text)]);
        let lines: Vec<usize> = findings.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [5, 8]);
    }

    #[test]
    fn finds_allowed_lints() {
        for (line, is_bad) in [
            ("#[allow(dead_code)]", true),
            ("#![allow(clippy::pedantic, reason = \"no\")]", true),
            ("    #[allow(unused)]", true),
            ("#[cfg_attr(test, allow(unused))]", true),
            ("#[expect(dead_code, reason = \"yes\")]", false),
            ("fn no_packet_comes_before_its_delay_allow(", false),
            ("// #[allow(unused)]", false),
        ] {
            let findings = check_allow(&[SourceFile::new("crates/moqt/src/lib.rs", line)]);
            assert_eq!(!findings.is_empty(), is_bad, "{line}");
        }
    }

    #[test]
    fn finds_functions_one_line_too_long() {
        let found = |text: &str| {
            let findings = check_functions(&[SourceFile::new("crates/moqt/src/lib.rs", text)]);
            let lines = findings.iter().map(|finding| finding.line);
            lines.collect::<Vec<_>>()
        };
        let body = |lines| "        step();\n".repeat(lines);
        for head in [
            "pub(crate) const fn f()",
            "async fn f<T>(\n        x: T,\n    )",
        ] {
            let head = format!("impl A {{\n    {head} {{\n");
            let lines = FUNCTION_LINES_MAX - head.lines().count();
            let function = |lines| format!("{head}{}    }}\n}}\n", body(lines));
            assert_eq!(found(&function(lines)), [0; 0]);
            assert_eq!(found(&function(lines + 1)), [2]);
        }
        // Declarations and functions of one line end where they begin.
        let short = "fn f();\nfn g() {}\nfn h(\n    x: u8,\n);\n// fn ends here\n";
        assert_eq!(
            found(&format!("{short}{}", body(FUNCTION_LINES_MAX))),
            [0; 0]
        );
    }

    #[test]
    fn finds_files_one_line_too_long() {
        for path in [
            "crates/moqt/src/lib.rs",
            "web/moqt/session.js",
            "web/browser/others.mjs",
        ] {
            let file = |lines| SourceFile::new(path, &"\n".repeat(lines));
            assert_eq!(check_length(&[file(LINES_MAX)]), []);
            assert_eq!(check_length(&[file(LINES_MAX + 1)])[0].line, LINES_MAX + 1);
        }
        let page = SourceFile::new("docs/page.md", &"\n".repeat(LINES_MAX + 1));
        assert_eq!(check_length(&[page]), []);
    }
}
