//! Settings of the subscribers: sockets, threads and acknowledgements, seen from the relay.

use std::fs;

use serde_json::Value;

use crate::{
    cli::{expect_held, profile},
    process::{Folder, text, weir},
};

/// Runs seven subscribers with these settings. Returns the report as JSON, and the text of the terminal.
fn run(settings: &str) -> (Value, String) {
    let folder = Folder::new(&format!("audience-{}", settings.len()));
    let json = folder.file("run.json");
    let profile = profile(
        &folder,
        ["start_delay", "500"],
        ["total_transmit_time", "1500"],
    );
    let run = [
        "bench",
        &profile,
        "--subscribers",
        "7",
        "--audience",
        settings,
    ];
    let level = ["--slo", "loss=0,failed=0", "--json", &json];
    let output = weir(&[&run[..], &level].concat());
    expect_held(
        &output,
        "held: 7 subscribers, 350 objects delivered, 0 lost",
    );
    let report: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    (report, text(&output.stdout))
}

/// Returns the acknowledgements per packet, if all seven connections were closed in order.
fn per_packet(audience: &Value) -> f64 {
    let found = &audience["acknowledged"];
    assert_eq!(found["connections"], 7, "{audience}");
    let number = |key: &str| found[key].as_f64().unwrap();
    number("acknowledgements_sent") / number("packets_received")
}

#[test]
fn clients_that_share_nothing_are_measured_as_one_audience() {
    let (report, shown) =
        run("sockets=own,threads=100,acknowledgements=immediate,receive_pause=0,reply_spread=20");
    let audience = &report["run"]["audience"];
    let counts = (&audience["sockets"], &audience["threads"]);
    assert_eq!(counts, (&7.into(), &7.into()));
    assert_eq!(audience["acknowledgements"], "immediate");
    assert!(shown.contains("7 sockets, 7 threads, no"), "{shown}");
    // The subscribers of all threads, in order.
    let rows = report["tracks"][0]["subscribers"].as_array().unwrap();
    let numbers = rows.iter().map(|row| row["index"].as_u64().unwrap());
    assert!(numbers.eq(0..7));
    let threads = report["generator"]["threads"].as_array().unwrap().iter();
    let names = threads.map(|thread| &thread["name"]);
    assert!(names.eq(["publishers", "subscribers"]));
    let profile = report["run"]["profile"]["text"].as_str().unwrap();
    assert!(
        profile.contains("\nthreads             = 100\n"),
        "{profile}"
    );
}

#[test]
fn subscribers_of_several_threads_share_a_socket_each() {
    let (report, _) = run("threads=2");
    let audience = &report["run"]["audience"];
    let counts = (&audience["sockets"], &audience["threads"]);
    assert_eq!(counts, (&2.into(), &2.into()));
    assert_eq!(audience["acknowledgements"], "delayed");
}

/// On a busy machine a thread finds several packets at once, and acknowledges them together: only the difference is sure.
#[test]
fn subscribers_that_acknowledge_at_once_do_so_more_often() {
    let [immediate, delayed] = ["immediate", "delayed"].map(|way| {
        let (report, _) = run(&format!(
            "sockets=own,threads=7,acknowledgements={way},receive_pause=0"
        ));
        per_packet(&report["run"]["audience"])
    });
    assert!(immediate > delayed, "{immediate} and {delayed} per packet");
}

#[test]
fn settings_of_an_audience_that_are_wrong_are_named() {
    for (settings, more, problem) in [
        (
            "threads=0",
            "",
            "--audience: threads: expected 1 to 1024 threads, found `0`",
        ),
        ("socket=own", "", "--audience: socket: unknown key"),
        (
            "reply_spread=20",
            "",
            "--audience: reply_spread: it needs sockets = own",
        ),
        (
            "sockets=own,reply_spread=20",
            "--meetings=2",
            "reply_spread cannot be combined with --meetings",
        ),
    ] {
        let mut arguments = vec!["bench", AUDIO, "--audience", settings];
        arguments.extend((!more.is_empty()).then_some(more));
        let output = weir(&arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(problem), "{error}");
    }
}

const AUDIO: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../profiles/audio-short.ini"
);
