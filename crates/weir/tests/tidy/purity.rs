//! What pure crates must not mention. Clippy forbids some of these calls too (`clippy.toml`), but
//! can be told to expect them; here there are no exceptions.

use crate::{
    architecture::pure_crates,
    tree::{Finding, SourceFile, has_word, shipped},
};

/// What reaches out of a state machine, and what to do instead.
const FORBIDDEN: [(&[&str], &str); 5] = [
    (
        &[
            "UdpSocket",
            "TcpStream",
            "TcpListener",
            "UnixStream",
            "fs::",
        ],
        "no input and output: take and hand out bytes, the hosts move them",
    ),
    (
        &["Instant::now", "SystemTime::now", "elapsed()"],
        "no clock: time is an argument",
    ),
    (
        &["std::thread", "thread::", "tokio"],
        "no threads: a host runs one state machine per thread",
    ),
    (
        &["std::env", "env::"],
        "no environment: take a configuration value",
    ),
    (
        &[
            "rand::rng",
            "thread_rng",
            "rand::random",
            "OsRng",
            "SysRng",
            "getrandom",
            "SystemRandom",
        ],
        "no randomness: take a seed",
    ),
];

/// The sources of pure crates, outside their tests, mention nothing of [`FORBIDDEN`].
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let folders: Vec<String> = pure_crates()
        .map(|name| format!("crates/{name}/src/"))
        .collect();
    let files: Vec<&SourceFile> = files
        .iter()
        .filter(|file| file.is_rust() && folders.iter().any(|folder| file.path.starts_with(folder)))
        .collect();
    shipped(files).into_iter().flat_map(check_file).collect()
}

fn check_file(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in file.shipped_lines() {
        for (words, instead) in FORBIDDEN {
            for word in words.iter().filter(|word| has_word(line, word)) {
                let rule = format!("a pure crate mentions {word}: {instead}");
                findings.push(file.finding(number, rule));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let findings = check(&[SourceFile::new(path, text)]);
        let mut lines: Vec<usize> = findings.iter().map(|finding| finding.line).collect();
        lines.dedup();
        lines
    }

    #[test]
    fn finds_what_reaches_out() {
        for line in [
            "use std::net::UdpSocket;",
            "use std::net::{SocketAddr, UdpSocket};",
            "    let now = Instant::now();",
            "    let now = time::SystemTime::now();",
            "    let age = began.elapsed();",
            "use std::thread;",
            "use std::{io, thread::JoinHandle};",
            "    thread::spawn(run);",
            "    let level = env::var(\"LEVEL\");",
            "use std::env;",
            "    let mut random = rand::rng();",
            "    let mut random = rand::thread_rng();",
            "    SystemRandom::new().fill(&mut key);",
            "    fs::read(path)",
        ] {
            for name in pure_crates() {
                let path = format!("crates/{name}/src/session.rs");
                let text = format!("//! Pure.\n{line}\n");
                assert_eq!(lines(&path, &text), [2], "{line}");
            }
        }
    }

    #[test]
    fn leaves_hosts_comments_and_tests_alone() {
        let text = "fn now() -> Instant {\n    Instant::now()\n}\n";
        assert_eq!(lines("crates/net/src/clock.rs", text), [0; 0]);
        assert_eq!(lines("crates/moqt/tests/story.rs", text), [0; 0]);
        assert_eq!(lines("crates/moqt/src/lib.rs", text), [2]);

        let comment = "/// Not `Instant::now()`.\nfn now(now: Instant) {}\n";
        assert_eq!(lines("crates/moqt/src/lib.rs", comment), [0; 0]);

        let test = format!("#[cfg(test)]\n{text}");
        assert_eq!(lines("crates/moqt/src/lib.rs", &test), [0; 0]);
    }

    #[test]
    fn leaves_modules_of_tests_alone() {
        let parent = SourceFile::new("crates/moqt/src/name.rs", "#[cfg(test)]\nmod tests;\n");
        let text = "fn now() -> Instant {\n    Instant::now()\n}\n";
        let child = SourceFile::new("crates/moqt/src/name/tests.rs", text);
        let grandchild = SourceFile::new("crates/moqt/src/name/tests/story.rs", text);
        assert_eq!(check(&[parent, child, grandchild]), []);
    }
}
