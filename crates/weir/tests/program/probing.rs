//! `weir probe` on real sockets.

use std::{fs, path::PathBuf};

use serde_json::Value;

use crate::process::{Relay, free_port, refusal, weir};

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("weir-probe-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Cases of each kind, quick ones.
const SOME: &str = "setup.answered,goaway.,object.payload-1-,mutated.goaway,volume.";

#[test]
fn a_relay_is_probed_over_both_transports() {
    let relay = Relay::start(&[]);
    for (scheme, transport, draft) in [
        ("moqt", "raw QUIC", None),
        ("moqt", "raw QUIC", Some("18")),
        ("https", "WebTransport", None),
    ] {
        let folder = folder(&format!("{scheme}-{}", draft.unwrap_or("newest")));
        let (json, html) = (folder.join("probe.json"), folder.join("probe.html"));
        let url = format!("{scheme}://{}", relay.address());
        let pid = relay.child.id().to_string();
        let alpn = format!("moqt-{}", draft.unwrap_or("22"));
        let flags = draft.map(|draft| ["--draft", draft]);
        let arguments = [
            "probe",
            &url,
            "--insecure",
            "--only",
            SOME,
            "--messages",
            "500",
            "--settle",
            "200ms",
            // A busy machine is no reason to fail.
            "--patience",
            "60s",
            "--relay-pid",
            &pid,
            "--json",
            json.to_str().unwrap(),
            "--html",
            html.to_str().unwrap(),
        ];
        let output = weir(&[&arguments[..], flags.as_ref().map_or(&[][..], |it| &it[..])].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{text}{errors}");
        assert!(
            text.starts_with(&format!("TAP version 14\n1..14\n# {alpn}\n")),
            "{text}"
        );
        assert!(text.contains("\nok 1 - setup.answered\n"), "{text}");
        assert!(
            text.contains("\nok 14 - bystander.loses-nothing\n"),
            "{text}"
        );
        let report: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
        assert_eq!(report["transport"], transport);
        assert_eq!(report["draft"], alpn);
        assert_eq!(report["cases"].as_array().unwrap().len(), 13);
        assert!(report["memory"]["after_bytes"].as_u64().unwrap() > 0);
        let sent = report["cases"][12]["messages"].as_u64().unwrap();
        assert!(sent >= 500, "{sent}");
        assert!(
            fs::read_to_string(&html)
                .unwrap()
                .contains("All required cases passed")
        );
        let table = weir(&["probe", "compare", json.to_str().unwrap()]);
        let table = String::from_utf8(table.stdout).unwrap();
        assert!(table.contains("8 of 8"), "{table}");
        fs::remove_dir_all(&folder).unwrap();
    }
}

#[test]
fn the_cases_are_listed() {
    let output = weir(&["probe", "--list", "--only", "goaway."]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("goaway.repeated\t§9.2 MUST\t"), "{text}");
    assert!(!text.contains("setup."), "{text}");
    let output = weir(&["probe", "--list", "--only", "goaway.", "--draft", "18"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("goaway.repeated\t§10.4 MUST\t"), "{text}");
}

#[test]
fn bad_input_is_named() {
    for (arguments, named) in [
        (&["probe", "moqt://192.0.2.1:4443"][..], "--allow-public"),
        (&["probe", "http://127.0.0.1:4443"], "moqt://"),
        (
            &["probe", "moqt://127.0.0.1:4443", "--only", "no-such-case"],
            "--list",
        ),
        (
            &["probe", "moqt://127.0.0.1:4443", "--draft", "20"],
            "moqt-22 or moqt-18",
        ),
        (&["probe", "compare", "/nowhere.json"], "/nowhere.json"),
    ] {
        let text = refusal(arguments);
        assert!(text.contains(named), "{text}");
    }
}

#[test]
fn a_relay_that_is_not_there_is_no_failed_case() {
    let url = format!("moqt://127.0.0.1:{}", free_port());
    let flags = ["--insecure", "--patience", "200ms", "--settle", "0s"];
    let text = refusal(&[&["probe", &url][..], &flags].concat());
    assert!(text.contains("cannot connect"), "{text}");
}
