//! How Rust sources look.

use crate::tree::{Finding, SourceFile, has_word};

/// Longest source file, in lines.
const LINES_MAX: usize = 600;

/// The files, and the folder, that may hold unsafe code: system calls, and the benchmark of system calls.
const UNSAFE_PLACES: [&str; 3] = [
    "crates/net/src/sys.rs",
    "crates/net/src/sys/",
    "crates/net/benches/floor/traffic.rs",
];

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
    let files = files.iter().filter(|file| file.is_rust());
    files
        .filter_map(|file| {
            let count = file.lines().count();
            let rule = format!("{count} lines, more than {LINES_MAX}: split by the data it owns");
            (count > LINES_MAX).then(|| file.finding(LINES_MAX + 1, rule))
        })
        .collect()
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
    fn finds_files_one_line_too_long() {
        let file = |lines| SourceFile::new("crates/moqt/src/lib.rs", &"\n".repeat(lines));
        assert_eq!(check_length(&[file(LINES_MAX)]), []);
        assert_eq!(check_length(&[file(LINES_MAX + 1)])[0].line, LINES_MAX + 1);
        let page = SourceFile::new("docs/page.md", &"\n".repeat(LINES_MAX + 1));
        assert_eq!(check_length(&[page]), []);
    }
}
