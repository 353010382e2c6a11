//! Comparisons of weir's relay with itself.

use serde_json::Value;

use super::stage::folder;
use crate::process::{ANY, Folder, Relay, free_port, text, weir};

/// A file of two relays on free ports, with `more` at the end of the second one.
fn description(folder: &Folder, head: &str, more: &str) -> String {
    let relays = ["one", "other"].map(|name| {
        let address = format!("127.0.0.1:{}", free_port());
        format!(
            "[[relay]]\nname = \"{name}\"\nurl = \"moqt://{address}\"\ndrafts = [\"moqt-18\"]\nready_ms = 2000\n\
             start = [\"{{weir}}\", \"relay\", \"--listen\", \"{address}\", \"--cert\", \"{{cert}}\", \"--key\", \"{{key}}\"]\n"
        )
    });
    let text = format!("{head}{}{more}", relays.concat());
    folder.write("relays.toml", &text)
}

/// Flags: two subscribers, a warm-up of one second, one run.
fn head() -> String {
    format!(
        "profile = \"profile.ini\"\nsubscribers = 2\nrepeats = 1\nwarm_up_seconds = 1\nseconds = 1\nslo = \"{ANY}\"\n"
    )
}

/// Returns the relay of that name in a comparison.
fn standing<'a>(comparison: &'a Value, name: &str) -> &'a Value {
    let mut relays = comparison["relays"].as_array().unwrap().iter();
    relays.find(|one| one["entry"]["name"] == name).unwrap()
}

#[test]
fn two_relays_are_compared_in_every_form() {
    let folder = folder("compared");
    let file = description(&folder, &head(), "");
    let (json, markdown, html) = (
        folder.file("runs.json"),
        folder.file("table.md"),
        folder.file("table.html"),
    );
    let forms = ["--json", &json, "--markdown", &markdown, "--html", &html];
    let output = weir(&[&["bench", "compare", &file], &forms[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let comparison = folder.json("runs.json");
    for name in ["one", "other"] {
        let relay = standing(&comparison, name);
        assert_eq!(relay["entry"]["draft"], "moqt-18", "{relay}");
        let runs = relay["entry"]["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 1, "{relay}");
        // Two subscribers, 50 objects per second.
        let figures = &runs[0]["figures"];
        assert_eq!(figures["objects_delivered"], 2 * 50, "{relay}");
        // The first sessions of a process allocate memory, which the sessions of the measured run reuse.
        assert!(figures["bytes_per_session"].as_f64() > Some(0.0), "{relay}");
        assert!(folder.text("table.md").contains(&format!("| {name}")));
        assert!(folder.text("table.html").contains(name));
    }
}

#[test]
fn a_relay_that_does_not_start_costs_the_others_nothing() {
    let folder = folder("missing");
    let missing = "[[relay]]\nname = \"missing\"\nstart = [\"false\"]\nurl = \"moqt://127.0.0.1:9\"\nready_ms = 3000\n";
    let head = head().replace("warm_up_seconds = 1", "warm_up_seconds = 0");
    let file = description(&folder, &head, missing);
    let json = folder.file("runs.json");
    let only = ["--only", "one", "--only", "missing"];
    let output = weir(&[&["bench", "compare", &file, "--json", &json], &only[..]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let comparison = folder.json("runs.json");
    let one = standing(&comparison, "one");
    assert_eq!(one["entry"]["runs"][0]["figures"]["objects_delivered"], 100);
    let missing = &standing(&comparison, "missing")["entry"]["runs"][0];
    let broke = missing["outcome"]["clauses"][0]["text"].as_str().unwrap();
    assert!(
        broke.starts_with("missing: the relay ended at once"),
        "{missing}"
    );
    let reason = comparison["broken_off"].as_str().unwrap();
    assert!(reason.starts_with("missing: "), "{reason}");
    // Nothing was measured yet, so this is an error.
    let output = weir(&["bench", "compare", &file, "--only", "missing"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("weir: missing: the relay ended at once"));
}

#[test]
fn the_limits_of_two_relays_are_searched_and_calibrated() {
    let folder = folder("limits");
    let search = "[find_max]\nfrom = 2\nmost = 2\nrepeats = 1\nneeded = 1\nsteady_seconds = 1\n";
    let file = description(&folder, &(head() + search), "");
    let (json, markdown) = (folder.file("limits.json"), folder.file("table.md"));
    let forms = ["--find-max", "--json", &json, "--markdown", &markdown];
    let output = weir(&[&["bench", "compare", &file], &forms[..]].concat());
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{}",
        text(&output.stderr)
    );
    let limits = folder.json("limits.json");
    let searches = limits["searches"].as_array().unwrap();
    assert_eq!(searches.len(), 2);
    for search in searches {
        let record = &search["record"];
        assert_eq!(record["probes"][0]["load"], 2, "{record}");
        assert_eq!(record["search"]["flow"], "PUBLISH_NAMESPACE", "{record}");
        match record["answer"]["kind"].as_str().unwrap() {
            "at_least" => {
                assert!(record["calibration"]["held"].is_boolean(), "{record}");
                assert_eq!(search["draft"], "moqt-18", "{search}");
            }
            // The machine had no time for the generator.
            kind => assert_eq!(kind, "generator", "{record}"),
        }
    }
    assert!(folder.text("table.md").contains("| profile.ini | one"));
}

#[test]
fn a_relay_that_runs_already_is_measured_and_asked_for_its_version() {
    let folder = folder("running");
    let relay = Relay::start(&[]);
    let (address, process) = (relay.address(), relay.pid().to_string());
    let head = head().replace("repeats = 1", "repeats = 2");
    let text = format!(
        "{head}[[relay]]\nname = \"here\"\nurl = \"moqt://{address}\"\nready_ms = 1\npreset = \"weir\"\n\
         arguments = [\"--insecure\", \"--relay-pid\", \"{process}\"]\n\
         [[relay]]\nname = \"elsewhere\"\nurl = \"moqt://{address}\"\nready_ms = 1\n\
         preset = \"moq-relay-ietf\"\narguments = [\"--insecure\"]\n"
    );
    let file = folder.write("relays.toml", &text);
    let (json, markdown) = (folder.file("runs.json"), folder.file("table.md"));
    let forms = ["--json", &json, "--markdown", &markdown];
    let output = weir(&[&["bench", "compare", &file], &forms[..]].concat());
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        crate::process::text(&output.stderr)
    );
    let comparison = folder.json("runs.json");
    for name in ["here", "elsewhere"] {
        let standing = standing(&comparison, name);
        let entry = &standing["entry"];
        assert!(
            entry["version"].as_str().unwrap().starts_with("weir/"),
            "{entry}"
        );
        assert_eq!(entry["audience"]["acknowledgements"], "delayed", "{entry}");
        let runs = entry["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 2, "{entry}");
        assert_eq!(runs[1]["figures"]["objects_delivered"], 2 * 50, "{entry}");
        // Only a process that is named is watched, and only its first sessions make it grow.
        let is_watched = name == "here";
        let has = |run: &Value, figure: &str| !run["figures"][figure].is_null();
        assert_eq!(has(&runs[1], "cpu_percent"), is_watched, "{entry}");
        assert!(!has(&runs[1], "bytes_per_session"), "{entry}");
    }
    let table = folder.text("table.md");
    for words in [
        "here: ran already; weir did not start it.",
        "elsewhere: keeps only the latest datagram of a track",
        "Audience: 1 socket, 1 thread",
        "no ACK_FREQUENCY",
    ] {
        assert!(table.contains(words), "{words}: {table}");
    }
    // A level that nobody can judge is refused before anything runs.
    let text = text.replace(ANY, "cpu<70%");
    let file = folder.write("relays.toml", &text);
    let output = weir(&["bench", "compare", &file, "--only", "elsewhere"]);
    assert_eq!(output.status.code(), Some(2));
    let errors = crate::process::text(&output.stderr);
    assert!(
        errors.contains("relay \"elsewhere\"") && errors.contains("cpu"),
        "{errors}"
    );
}
