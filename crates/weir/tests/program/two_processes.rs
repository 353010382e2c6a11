//! A run of two processes: one publishes, the other subscribes, and both say what they saw.

use std::process::Output;

use serde_json::Value;

use crate::{
    metrics::expect_metric,
    process::{Folder, Relay, start, text},
};

const PROFILE: &str = "[audio]
namespace = perf/{run}
name = 1
track_mode = datagram
mode = 3
priority = 2
ttl = 5000
time_interval = 20
objects_per_group = 1
first_object_size = 120
object_size = 120
start_delay = 4000
total_transmit_time = 4500
";

#[test]
fn one_process_publishes_and_another_subscribes() {
    run(&Folder::new("roles"), |role| {
        (PROFILE.to_owned(), vec!["--role", role])
    });
}

#[test]
fn a_profile_can_say_who_publishes_and_who_subscribes() {
    let folder = Folder::new("modes");
    run(&folder, |role| {
        // Whoever has the subscribers can be calibrated: a null relay gets a publisher from there too.
        let (mode, arguments) = if role == "publish" {
            ("mode = 1", Vec::new())
        } else {
            ("mode = 2", vec!["--calibrate"])
        };
        (PROFILE.replace("mode = 3", mode), arguments)
    });
    let received = folder.json("received.json");
    let p99 = &received["generator"]["calibration"]["latency_p99_ms"];
    assert!(p99.is_number(), "{}", received["generator"]);
}

/// A run of both, each with a profile and arguments that say what it does.
fn run(folder: &Folder, part: impl Fn(&'static str) -> (String, Vec<&'static str>)) {
    let relay = Relay::start(&["--admin", "127.0.0.1:0"]);
    let url = format!("moqt://{}", relay.address());
    let bench = |role: &'static str, json: &str| {
        let (text, own) = part(role);
        let (profile, json) = (
            folder.write(&format!("{role}.ini"), &text),
            folder.file(json),
        );
        let mut arguments = vec!["bench", &profile, "--relay", &url, "--insecure"];
        arguments.extend(["--seed", "9", "--subscribers", "3", "--token", "sesame"]);
        arguments.extend(["--json", &json]);
        arguments.extend(own);
        start(&arguments)
    };
    // The subscribers wait for a publisher, and so all of them are there when it begins.
    let subscriber = bench("subscribe", "received.json");
    expect_metric(relay.admin(), "weir_relay_waiting", 3.0);
    let publisher = bench("publish", "sent.json");
    let [publisher, subscriber] =
        [publisher, subscriber].map(|one| one.wait_with_output().unwrap());
    drop(relay);
    let report = |file: &str, output: &Output| -> Value {
        let written = folder.text(file);
        assert!(!written.contains("sesame"), "a token is nobody's business");
        let report = serde_json::from_str(&written);
        report.unwrap_or_else(|_| panic!("{}", text(&output.stderr)))
    };
    let sent = report("sent.json", &publisher);
    assert_eq!(sent["tracks"][0]["published"]["objects"], 25);
    assert_eq!(sent["run"]["draft"], "moqt-18");
    let sentence = sent["verdict"]["sentence"].as_str().unwrap();
    if sent["verdict"]["outcome"] == "held" {
        assert!(publisher.status.success());
        assert!(sentence.starts_with("25 objects published"), "{sentence}");
    } else {
        // A machine that leaves the publisher no time.
        assert_eq!(sent["verdict"]["outcome"], "generator_limit", "{sentence}");
    }
    assert_eq!(sent["run"]["subscribers_requested"], 0);
    let received = report("received.json", &subscriber);
    let rows = received["tracks"][0]["subscribers"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    for row in rows {
        assert_eq!(row["status"], "good", "{row}");
        assert_eq!(row["completion"]["objects_received"], 25, "{row}");
    }
    let clock = received["run"]["latency_clock"].as_str().unwrap();
    assert!(clock.starts_with("wall clock"), "{clock}");
}
