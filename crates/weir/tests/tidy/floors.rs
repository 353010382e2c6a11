//! The relay's folders, and which of them may use which.

use std::collections::BTreeMap;

use crate::tree::{Finding, SourceFile, shipped};

/// The modules of `crates/relay/src` from the top floor to the ground: a module uses modules of its own floor and of
/// those below.
const FLOORS: [&[&str]; 10] = [
    &["relay"],
    &["dispatch"],
    &["links"],
    &["fetch"],
    &["catalogue"],
    &["delivery"],
    &["track"],
    &["cache"],
    &["sessions", "turn", "effect"],
    &[
        "authority",
        "config",
        "counters",
        "ids",
        "load",
        "ownership",
        "registry",
        "timers",
    ],
];

/// How many files of the relay may hold an `impl` of what brings its owners together.
const DISPATCH_FILES_MAX: usize = 3;

/// Each module of the relay uses only its own floor and those below, and none reaches into all owners but the dispatch.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let files = files.iter().filter(|file| {
        let in_relay = file.path.strip_prefix(RELAY);
        file.is_rust() && in_relay.is_some_and(|path| path != "tests.rs")
    });
    let files = shipped(files.collect());
    let exports = exports(&files);
    let mut findings = Vec::new();
    let mut dispatching = Vec::new();
    for file in files {
        let Some(module) = module(&file.path).filter(|module| *module != "lib") else {
            continue;
        };
        let Some(own) = floor(module) else {
            let rule =
                format!("the module {module} has no floor: add it to FLOORS in tidy/floors.rs");
            findings.push(file.finding(1, rule));
            continue;
        };
        for (line, used) in uses(file) {
            let used = exports
                .get(used.as_str())
                .map_or(used.as_str(), |module| module);
            if floor(used).is_some_and(|floor| floor < own) {
                let rule = format!(
                    "{module} uses {used}, which stands above it: return a value, or push an Effect that the \
                     dispatch hands on"
                );
                findings.push(file.finding(line, rule));
            }
        }
        let is_dispatching = |(_, line): &(usize, &str)| {
            line.starts_with("impl Relay") || line.starts_with("impl Owners ")
        };
        if file.shipped_lines().iter().any(is_dispatching) && module != "relay" {
            dispatching.push(file);
        }
    }
    for file in dispatching.into_iter().skip(DISPATCH_FILES_MAX) {
        let rule = "a further file acts on all owners at once: make it a method of one of them";
        findings.push(file.finding(1, rule));
    }
    findings
}

/// The module of `crates/relay/src` that a file belongs to.
fn module(path: &str) -> Option<&str> {
    let path = path.strip_prefix(RELAY)?;
    path.split(['/', '.']).next()
}

fn floor(module: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&module))
}

/// What the crate's root re-exports, with the modules that it comes from.
fn exports(files: &[&SourceFile]) -> BTreeMap<String, String> {
    let root = files.iter().find(|file| module(&file.path) == Some("lib"));
    let mut exports = BTreeMap::new();
    for statement in root.into_iter().flat_map(|file| file.text.split(';')) {
        let Some((module, names)) = statement
            .trim()
            .strip_prefix("pub use ")
            .and_then(|path| path.split_once("::"))
        else {
            continue;
        };
        for name in names.split(['{', '}', ',']).map(str::trim) {
            exports.insert(name.to_owned(), module.to_owned());
        }
    }
    exports
}

/// What a file names of the crate, with the lines: modules, and what the root re-exports.
fn uses(file: &SourceFile) -> Vec<(usize, String)> {
    let mut uses = Vec::new();
    let mut depth = None;
    for (number, line) in file.shipped_lines() {
        let mut rest = line;
        if let Some((_, inside)) = line.split_once("crate::{") {
            depth = Some(0);
            rest = inside;
        } else if depth.is_none() {
            for path in line.split("crate::").skip(1) {
                uses.push((number, first_word(path)));
            }
        }
        let Some(nesting) = &mut depth else { continue };
        let mut is_first = *nesting == 0;
        for (index, character) in rest.char_indices() {
            match character {
                '{' => *nesting += 1,
                '}' if *nesting == 0 => {
                    depth = None;
                    break;
                }
                '}' => *nesting -= 1,
                ',' if *nesting == 0 => is_first = true,
                character if is_first && character.is_alphabetic() => {
                    uses.push((number, first_word(&rest[index..])));
                    is_first = false;
                }
                _ => {}
            }
        }
    }
    uses
}

fn first_word(path: &str) -> String {
    let is_part = |character: &char| character.is_alphanumeric() || *character == '_';
    path.chars().take_while(is_part).collect()
}

const RELAY: &str = "crates/relay/src/";

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<usize> {
        let root = SourceFile::new(
            "crates/relay/src/lib.rs",
            "pub use dispatch::{TrackState};\n",
        );
        let file = SourceFile::new(&format!("crates/relay/src/{path}"), text);
        let findings = check(&[root, file]);
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn finds_what_runs_upwards() {
        assert_eq!(
            findings("track/admit.rs", "use crate::delivery::Delivery;\n"),
            [1]
        );
        let nested = "use crate::{\n    cache::{Span, TrackCache},\n    fetch::Fetches,\n    turn::Turn,\n};\n";
        assert_eq!(findings("track.rs", nested), [3]);
        assert_eq!(
            findings("cache.rs", "fn f() {\n    crate::track::g();\n}\n"),
            [2]
        );
        assert_eq!(
            findings("links.rs", "use crate::{TrackState, turn::Turn};\n"),
            [1]
        );
    }

    #[test]
    fn permits_what_runs_downwards_and_tests() {
        let down = "use crate::{\n    delivery::Delivery,\n    track::{Track, Tracks},\n};\n";
        assert_eq!(findings("fetch/serving.rs", down), [0; 0]);
        let test = "#[cfg(test)]\nmod tests {\n    use crate::relay::Relay;\n}\n";
        assert_eq!(findings("cache.rs", test), [0; 0]);
    }

    #[test]
    fn finds_modules_without_a_floor() {
        assert_eq!(findings("attic.rs", ""), [1]);
    }
}
