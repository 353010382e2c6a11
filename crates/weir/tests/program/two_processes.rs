//! A run of two processes: one publishes, the other subscribes, and both say what they saw.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use serde_json::Value;

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
start_delay = 1500
total_transmit_time = 2000
";

#[test]
fn one_process_publishes_and_another_subscribes() {
    run("roles", |role| (PROFILE.to_owned(), vec!["--role", role]));
}

#[test]
fn a_profile_can_say_who_publishes_and_who_subscribes() {
    run("modes", |role| {
        // Whoever has the subscribers can be calibrated: a null relay gets a publisher from there too.
        let (mode, arguments) = if role == "publish" {
            ("mode = 1", Vec::new())
        } else {
            ("mode = 2", vec!["--calibrate"])
        };
        (PROFILE.replace("mode = 3", mode), arguments)
    });
    let received = fs::read_to_string(folder("modes").join("received.json")).unwrap();
    let received: Value = serde_json::from_str(&received).unwrap();
    let p99 = &received["generator"]["calibration"]["latency_p99_ms"];
    assert!(p99.is_number(), "{}", received["generator"]);
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("two-processes-{name}"))
}

/// A run of both, each with a profile and arguments that say what it does.
fn run(name: &str, part: impl Fn(&'static str) -> (String, Vec<&'static str>)) {
    let folder = folder(name);
    fs::create_dir_all(&folder).unwrap();
    let mut relay = weir(&["relay", "--listen", "127.0.0.1:0"]);
    let mut line = String::new();
    let mut out = BufReader::new(relay.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    let url = format!("moqt://{}", ready["listening"].as_str().unwrap());
    let bench = |role: &'static str, json: &Path| {
        let (text, own) = part(role);
        let profile = folder.join(format!("{role}.ini"));
        fs::write(&profile, text).unwrap();
        let (profile, json) = (profile.to_str().unwrap(), json.to_str().unwrap());
        let mut arguments = vec!["bench", profile, "--relay", &url, "--insecure"];
        arguments.extend(["--seed", "9", "--subscribers", "3", "--token", "sesame"]);
        arguments.extend(["--json", json]);
        arguments.extend(own);
        weir(&arguments)
    };
    let (sent, received) = (folder.join("sent.json"), folder.join("received.json"));
    let publisher = bench("publish", &sent);
    let subscriber = bench("subscribe", &received);
    let (publisher, subscriber) = (finish(publisher), finish(subscriber));
    relay.kill().unwrap();
    relay.wait().unwrap();
    let report = |file: &Path, output: &Output| -> Value {
        let text = fs::read_to_string(file).unwrap();
        assert!(!text.contains("sesame"), "a token is nobody's business");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        serde_json::from_str(&text).expect(&errors)
    };
    let sent = report(&sent, &publisher);
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
    let received = report(&received, &subscriber);
    let rows = received["tracks"][0]["subscribers"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    for row in rows {
        assert_eq!(row["status"], "good", "{row}");
        assert_eq!(row["completion"]["objects_received"], 25, "{row}");
    }
    let clock = received["run"]["latency_clock"].as_str().unwrap();
    assert!(clock.starts_with("wall clock"), "{clock}");
}

fn weir(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn finish(child: Child) -> Output {
    child.wait_with_output().unwrap()
}
