//! Which crate may depend on which.

use toml::{Table, Value};

use crate::tree::{Finding, SourceFile, shipped};

/// Where a crate stands.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Place {
    /// Pure, and depends on no crate of ours but those in the list.
    Protocol(&'static [&'static str]),
    /// A pure state machine over the protocol crates.
    Role,
    /// Runs any role, and so knows none.
    Host,
    /// Sees everything.
    Program,
}

/// Every crate, by its folder.
const CRATES: [(&str, Place); 17] = [
    ("transport", Place::Protocol(&[])),
    ("link", Place::Protocol(&[])),
    ("histogram", Place::Protocol(&[])),
    ("report", Place::Protocol(&["weir-histogram"])),
    ("moqt", Place::Protocol(&["weir-transport"])),
    ("h3", Place::Protocol(&["weir-transport"])),
    ("quic", Place::Protocol(&["weir-transport", "weir-h3"])),
    (
        "client",
        Place::Protocol(&["weir-transport", "weir-moqt", "weir-quic"]),
    ),
    ("http3", Place::Protocol(&HTTP3)),
    ("relay", Place::Role),
    ("bench", Place::Role),
    ("live", Place::Role),
    ("probe", Place::Role),
    ("net", Place::Host),
    ("sim", Place::Host),
    ("weir", Place::Program),
    ("counted", Place::Program),
];

/// What roles and hosts may depend on.
const PROTOCOL: [&str; 8] = [
    "weir-transport",
    "weir-moqt",
    "weir-h3",
    "weir-quic",
    "weir-client",
    "weir-link",
    "weir-histogram",
    "weir-report",
];

/// What the role of HTTP/3 may depend on: it needs no MOQT.
const HTTP3: [&str; 4] = ["weir-transport", "weir-h3", "weir-quic", "weir-histogram"];

/// The crates without sockets, clocks, threads, randomness and environment.
pub(crate) fn pure_crates() -> impl Iterator<Item = &'static str> {
    CRATES.into_iter().filter_map(|(name, place)| match place {
        Place::Protocol(_) | Place::Role => Some(name),
        Place::Host | Place::Program => None,
    })
}

impl Place {
    fn permits(self, dependency: &str) -> bool {
        match self {
            Self::Protocol(list) => list.contains(&dependency),
            Self::Role | Self::Host => PROTOCOL.contains(&dependency),
            Self::Program => true,
        }
    }

    fn rule(self) -> String {
        match self {
            Self::Protocol([]) => "it depends on no crate of ours".to_owned(),
            Self::Protocol(list) => format!("it depends only on {}", list.join(", ")),
            Self::Role => {
                format!(
                    "roles depend on {}, on no host and not on each other",
                    PROTOCOL.join(", ")
                )
            }
            Self::Host => format!("hosts depend on {}, on no role", PROTOCOL.join(", ")),
            Self::Program => "the program may depend on everything".to_owned(),
        }
    }
}

/// Dependencies of our crates on each other go only in permitted directions. Those of tests are free.
pub(crate) fn check_directions(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, name) in manifests(files) {
        let Some(place) = place(name) else { continue };
        for dependency in dependencies(&parse(file)) {
            let is_ours = dependency == "weir" || dependency.starts_with("weir-");
            if is_ours && !place.permits(&dependency) {
                let rule = format!(
                    "{name} must not depend on {dependency}: {}. Move what is needed to where both may \
                     see it, or wire the two together in the program",
                    place.rule()
                );
                findings.push(file.finding(line_of_dependency(file, &dependency), rule));
            }
        }
    }
    findings
}

/// Each crate stands in [`CRATES`], under its folder's name, and each of those exists.
pub(crate) fn check_places(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, name) in manifests(files) {
        if place(name).is_none() {
            let rule = format!(
                "the crate {name} has no place in the architecture. Say what it is in ARCHITECTURE.md, and \
                 add a row to CRATES in crates/weir/tests/tidy/architecture.rs: protocol, role or host"
            );
            findings.push(file.finding(1, rule));
        }
        let manifest = parse(file);
        let package = package_name(&manifest);
        let expected = if name == "weir" {
            "weir".to_owned()
        } else {
            format!("weir-{name}")
        };
        if package != expected {
            let rule =
                format!("the package in the folder {name} is called {expected}, not {package}");
            findings.push(file.finding(line_of(file, |line| line.starts_with("name")), rule));
        }
    }
    for (name, _) in CRATES {
        if !manifests(files).any(|(_, found)| found == name) {
            findings.push(Finding {
                path: "crates/weir/tests/tidy/architecture.rs".to_owned(),
                line: 1,
                rule: format!("there is no crate {name} any more: remove its row from CRATES"),
            });
        }
    }
    findings
}

/// One way to build each crate: what differs is configuration, which tests can reach.
pub(crate) fn check_features(files: &[SourceFile]) -> Vec<Finding> {
    manifests(files)
        .filter(|(file, _)| parse(file).contains_key("features"))
        .map(|(file, name)| {
            let rule =
                format!("the crate {name} has features: make it a configuration value instead");
            file.finding(line_of(file, |line| line.starts_with("[features")), rule)
        })
        .collect()
}

/// The workspace's lints hold everywhere.
pub(crate) fn check_lints(files: &[SourceFile]) -> Vec<Finding> {
    let has_lints = |manifest: &Table| {
        let lints = manifest
            .get("lints")
            .and_then(|lints| lints.get("workspace"));
        lints.and_then(Value::as_bool).unwrap_or_default()
    };
    manifests(files)
        .filter(|(file, _)| !has_lints(&parse(file)))
        .map(|(file, name)| {
            let rule =
                format!("the crate {name} has lints of its own: write [lints] workspace = true");
            file.finding(line_of(file, |line| line.starts_with("[lints")), rule)
        })
        .collect()
}

/// Only `moqt` knows one draft from another, and so names one; tests may.
pub(crate) fn check_drafts(files: &[SourceFile]) -> Vec<Finding> {
    let files = files.iter().filter(|file| {
        let in_crate = file.path.strip_prefix("crates/");
        let may_not = |path: &str| !path.starts_with("moqt/") && !path.contains("/tests/");
        file.is_rust() && in_crate.is_some_and(may_not)
    });
    let mut findings = Vec::new();
    for file in shipped(files.collect()) {
        let lines = file.shipped_lines().into_iter();
        for (number, _) in lines.filter(|(_, line)| line.contains("Draft::Draft")) {
            let rule = "a draft is named: take the session's own, or a constant of Draft";
            findings.push(file.finding(number, rule));
        }
    }
    findings
}

/// The manifests of our crates, with their folders' names.
fn manifests(files: &[SourceFile]) -> impl Iterator<Item = (&SourceFile, &str)> {
    files.iter().filter_map(|file| {
        let name = file
            .path
            .strip_prefix("crates/")?
            .strip_suffix("/Cargo.toml")?;
        Some((file, name))
    })
}

fn place(name: &str) -> Option<Place> {
    let row = CRATES.iter().find(|(known, _)| *known == name);
    row.map(|(_, place)| *place)
}

fn parse(file: &SourceFile) -> Table {
    let manifest = file.text.parse();
    manifest.unwrap_or_else(|error| panic!("{}: {error}", file.path))
}

fn package_name(manifest: &Table) -> &str {
    let name = manifest
        .get("package")
        .and_then(|package| package.get("name"));
    name.and_then(Value::as_str).unwrap_or_default()
}

/// The packages that a crate depends on to be built, on any platform.
fn dependencies(manifest: &Table) -> Vec<String> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let targets = targets
        .into_iter()
        .flat_map(Table::values)
        .filter_map(Value::as_table);
    [manifest]
        .into_iter()
        .chain(targets)
        .flat_map(|table| ["dependencies", "build-dependencies"].map(|kind| table.get(kind)))
        .flatten()
        .filter_map(Value::as_table)
        .flatten()
        .map(|(name, value)| {
            let renamed = value.get("package").and_then(Value::as_str);
            renamed.unwrap_or(name).to_owned()
        })
        .collect()
}

/// Where a manifest names a dependency, in whatever way.
fn line_of_dependency(file: &SourceFile, name: &str) -> usize {
    line_of(file, |line| {
        line.starts_with(name)
            || line.contains(&format!("package = \"{name}\""))
            || line.contains(&format!("dependencies.{name}]"))
    })
}

/// The first line that is the one meant.
fn line_of(file: &SourceFile, is_meant: impl Fn(&str) -> bool) -> usize {
    let found = file.lines().find(|(_, line)| is_meant(line));
    found.map_or(1, |(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(name: &str, rest: &str) -> SourceFile {
        let package = if name == "weir" {
            "weir".to_owned()
        } else {
            format!("weir-{name}")
        };
        SourceFile::new(
            &format!("crates/{name}/Cargo.toml"),
            &format!("[package]\nname = \"{package}\"\n{rest}\n"),
        )
    }

    fn directions(name: &str, rest: &str) -> Vec<usize> {
        let findings = check_directions(&[manifest(name, rest)]);
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn finds_each_forbidden_direction() {
        for (name, dependency) in [
            ("moqt", "weir-link"),
            ("link", "weir-moqt"),
            ("quic", "weir-link"),
            ("quic", "weir-moqt"),
            ("h3", "weir-quic"),
            ("http3", "weir-moqt"),
            ("quic", "weir-net"),
            ("relay", "weir-net"),
            ("relay", "weir-bench"),
            ("bench", "weir-relay"),
            ("bench", "weir-sim"),
            ("net", "weir-relay"),
            ("net", "weir-sim"),
            ("sim", "weir-bench"),
            ("sim", "weir"),
        ] {
            let rest = format!("[dependencies]\nbytes = \"1\"\n{dependency}.workspace = true");
            assert_eq!(directions(name, &rest), [5], "{name} on {dependency}");
        }
    }

    #[test]
    fn finds_them_in_every_table() {
        for rest in [
            "[build-dependencies]\nweir-net.workspace = true",
            "[target.'cfg(unix)'.dependencies]\nweir-net = { workspace = true }",
            "[dependencies]\nhost = { package = \"weir-net\", path = \"../net\" }",
            "[dependencies.weir-net]\nworkspace = true",
        ] {
            assert_eq!(directions("relay", rest).len(), 1, "{rest}");
        }
    }

    #[test]
    fn permits_the_rest() {
        for (name, rest) in [
            ("moqt", "[dependencies]\nbytes = \"1\""),
            ("quic", "[dependencies]\nweir-transport.workspace = true"),
            (
                "relay",
                "[dependencies]\nweir-quic.workspace = true\nweir-link.workspace = true",
            ),
            ("sim", "[dependencies]\nweir-link.workspace = true"),
            ("sim", "[dev-dependencies]\nweir-relay.workspace = true"),
            (
                "weir",
                "[dependencies]\nweir-net.workspace = true\nweir-sim.workspace = true",
            ),
        ] {
            assert_eq!(directions(name, rest), [0; 0], "{name}: {rest}");
        }
    }

    #[test]
    fn finds_unknown_missing_and_misnamed_crates() {
        let mut files: Vec<SourceFile> = CRATES.map(|(name, _)| manifest(name, "")).into();
        assert_eq!(check_places(&files), []);

        files.push(manifest("cache", ""));
        let findings = check_places(&files);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].path, "crates/cache/Cargo.toml");
        assert!(findings[0].rule.contains("add a row to CRATES"));
        files.pop();

        files[0].text = files[0].text.replace("weir-transport", "transport");
        assert_eq!(check_places(&files)[0].line, 2);

        files.remove(0);
        assert!(
            check_places(&files)[0]
                .rule
                .contains("no crate transport any more")
        );
    }

    #[test]
    fn finds_features() {
        let findings = check_features(&[manifest("relay", "[features]\nfast = []")]);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].line, 3);
        assert_eq!(check_features(&[manifest("relay", "")]), []);
    }

    #[test]
    fn finds_lints_of_its_own() {
        let lints = |rest| check_lints(&[manifest("relay", rest)]).len();
        assert_eq!(lints("[lints]\nworkspace = true"), 0);
        assert_eq!(lints("[lints.rust]\nunsafe_code = \"warn\""), 1);
        assert_eq!(lints(""), 1);
    }

    #[test]
    fn finds_drafts_that_are_named_outside_of_moqt() {
        let line = "    datagram.encode(Draft::Draft18, &mut encoded);\n";
        let in_test = format!("#[cfg(test)]\nmod tests {{\n{line}}}\n");
        let count = |path, text: &str| check_drafts(&[SourceFile::new(path, text)]).len();
        for path in [
            "crates/relay/src/incoming.rs",
            "crates/weir/examples/memory.rs",
        ] {
            assert_eq!(count(path, line), 1);
            assert_eq!(count(path, &in_test), 0);
            assert_eq!(count(path, "    Draft::KEPT\n"), 0);
        }
        for path in [
            "crates/moqt/src/draft.rs",
            "crates/relay/tests/relay/stage.rs",
        ] {
            assert_eq!(count(path, line), 0);
        }
    }
}
