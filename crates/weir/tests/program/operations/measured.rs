//! Benchmarks of relays at several addresses, of relays that die, and files that relays write.

use std::{
    fs,
    net::UdpSocket,
    process::{Child, Command, Output},
};

use serde_json::Value;

use crate::{
    metrics::expect_at_least,
    process::{Folder, Relay, free_port, start, wait_for_delivery, weir},
};

/// Objects in datagrams, every 20 ms.
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
start_delay = 500
total_transmit_time = 2500
";

/// A service level that holds on every machine, however busy.
const ANY: [&str; 2] = ["--slo", "loss<100%"];

/// Returns the profile with this duration of sending, in milliseconds.
fn profile(folder: &Folder, milliseconds: u32) -> String {
    let time = format!("total_transmit_time = {milliseconds}");
    let text = PROFILE.replace("total_transmit_time = 2500", &time);
    folder.write("profile.ini", &text)
}

/// Starts a run of minutes with five subscribers, and waits until objects are delivered.
fn long_run(folder: &Folder, more: &[&str]) -> Child {
    let (profile, json) = (profile(folder, 300_000), folder.file("run.json"));
    let run = ["bench", &profile, "--subscribers", "5", "--json", &json];
    let mut bench = start(&[&run[..], more].concat());
    drop(wait_for_delivery(&mut bench));
    bench
}

/// Asserts that the run ended early, with the reason first, and reports the measurements up to then.
#[track_caller]
fn expect_cut_short(folder: &Folder, bench: Child, reason: &str) {
    expect_partial(folder, &bench.wait_with_output().unwrap(), reason);
}

#[track_caller]
fn expect_partial(folder: &Folder, output: &Output, reason: &str) {
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.starts_with("partial: "), "{text}");
    // Lines are wrapped at the width of the terminal.
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!(words.join(" ").contains(reason), "{reason}: {text}");
    let report = fs::read_to_string(folder.file("run.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["run"]["partial"], true);
    let received = &report["tracks"][0]["completion"]["objects_received"]["sum"];
    assert!(received.as_u64() > Some(0), "{received}");
}

#[test]
fn a_relay_at_an_address_of_ipv6_is_measured() {
    if UdpSocket::bind("[::1]:0").is_err() {
        return;
    }
    let folder = Folder::new("ipv6");
    let relay = Relay::at("[::1]:0");
    let (profile, json) = (profile(&folder, 1500), folder.file("run.json"));
    let url = format!("moqt://{}", relay.address());
    assert!(url.starts_with("moqt://[::1]:"), "{url}");
    let run = ["bench", &profile, "--relay", &url, "--insecure"];
    let output = weir(&[&run[..], &["--subscribers", "3", "--json", &json], &ANY].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_str(&fs::read_to_string(&json).expect(&errors)).unwrap();
    let received = &report["tracks"][0]["completion"]["objects_received"]["sum"];
    assert_eq!(received, 150, "{}", report["verdict"]);
}

#[test]
fn a_relay_that_is_killed_without_a_word_is_named() {
    let folder = Folder::new("killed");
    let mut relay = Relay::start(&[]);
    let url = format!("moqt://{}", relay.address());
    let bench = long_run(&folder, &["--relay", &url, "--insecure"]);
    relay.child.kill().unwrap();
    relay.child.wait().unwrap();
    let reason = format!("no packet came from the relay at {url} for 8 s");
    expect_cut_short(&folder, bench, &reason);
}

#[test]
fn a_relay_that_is_killed_can_be_started_again_at_once() {
    let folder = Folder::new("again");
    let mut relay = Relay::at(&format!("127.0.0.1:{}", free_port()));
    let (address, url) = (relay.address(), format!("moqt://{}", relay.address()));
    let to_relay = ["--relay", &url, "--insecure"];
    let bench = long_run(&folder, &to_relay);
    relay.child.kill().unwrap();
    relay.child.wait().unwrap();
    let again = Relay::at(&address.to_string());
    assert_eq!(again.address(), address);
    expect_cut_short(&folder, bench, "the relay");
    let (profile, json) = (profile(&folder, 1500), folder.file("again.json"));
    let run = ["bench", &profile, "--subscribers", "3", "--json", &json];
    let output = weir(&[&run[..], &to_relay, &ANY].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_str(&fs::read_to_string(&json).expect(&errors)).unwrap();
    let received = &report["tracks"][0]["completion"]["objects_received"]["sum"];
    assert_eq!(received, 150, "{}", report["verdict"]);
}

#[test]
fn a_relay_that_falls_silent_near_the_end_is_named_too() {
    let folder = Folder::new("silent");
    let text = PROFILE.replace("ttl = 5000", "ttl = 500");
    let profile = folder.write("profile.ini", &text.replace("= 2500", "= 8000"));
    let json = folder.file("run.json");
    let fall_silent = || {
        let mut relay = Relay::start(&["--admin", "127.0.0.1:0"]);
        let url = format!("moqt://{}", relay.address());
        let run = ["bench", &profile, "--relay", &url, "--insecure"];
        let bench = start(&[&run[..], &["--subscribers", "2", "--json", &json]].concat());
        // A third of the objects. All clients give up before the silence at which another run is ended.
        expect_at_least(relay.admin(), "weir_relay_datagrams_sent_total", 250.0);
        relay.child.kill().unwrap();
        relay.child.wait().unwrap();
        (bench.wait_with_output().unwrap(), url)
    };
    // On a busy machine, the run may have been near its end.
    let mut ended = std::iter::repeat_with(fall_silent).take(5);
    let ended = ended.find(|(output, _)| output.stdout.starts_with(b"partial: "));
    let (output, url) = ended.expect("a silence that is long enough");
    expect_partial(
        &folder,
        &output,
        &format!("the relay at {url} stopped answering"),
    );
}

#[test]
fn a_relay_that_takes_leave_in_mid_run_is_named() {
    let folder = Folder::new("leaving");
    let mut relay = Relay::start(&["--set", "drain.time=30s"]);
    let url = format!("moqt://{}", relay.address());
    let bench = long_run(&folder, &["--relay", &url, "--insecure"]);
    relay.signal("TERM");
    let reason = format!(
        "the publisher at the relay {url} failed before the end of its tracks: the relay is going away"
    );
    expect_cut_short(&folder, bench, &reason);
    assert_eq!(relay.wait().0, Some(0));
}

#[test]
fn a_relay_of_the_runs_own_that_dies_is_named() {
    let folder = Folder::new("own");
    let bench = long_run(&folder, &[]);
    let parent = bench.id().to_string();
    let listed = fs::read_dir("/proc").unwrap().flatten();
    let is_child = |pid: &String| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after = stat.rsplit_once(") ").map(|(_, after)| after.to_owned());
        after.is_some_and(|after| after.split(' ').nth(1) == Some(parent.as_str()))
    };
    let relay = listed
        .filter_map(|entry| entry.file_name().into_string().ok())
        .find(is_child)
        .unwrap();
    let killed = Command::new("kill").args(["-s", "KILL", &relay]).status();
    assert!(killed.unwrap().success());
    expect_cut_short(
        &folder,
        bench,
        "the relay ended during the run (signal: 9 (SIGKILL))",
    );
}

#[test]
fn a_relay_that_is_interrupted_ends_well_and_tells_what_it_dropped() {
    let folder = Folder::new("dropped");
    let mut relay = Relay::start(&[]);
    let to = relay.address().to_string();
    // Twenty subscribers take 1.5 Mbit/s.
    let link = Relay::launch(&["link", "--to", &to, "--rate", "200k"], &[]);
    let text = PROFILE.replace("ttl = 5000", "ttl = 500");
    let text = text.replace("= 2500", "= 4500");
    let (profile, url) = (
        folder.write("profile.ini", &text),
        format!("moqt://{}", link.address()),
    );
    let run = ["bench", &profile, "--relay", &url, "--insecure"];
    weir(&[&run[..], &["--subscribers", "20"], &ANY].concat());
    drop(link);
    relay.signal("INT");
    let (code, last) = relay.wait();
    assert_eq!(code, Some(0));
    let dropped = |why: &str| last["counters"][format!("datagrams_dropped_{why}")].as_u64();
    let all = [dropped("oldest"), dropped("expired"), dropped("unread")];
    let sum: Option<u64> = all.into_iter().sum();
    assert!(sum > Some(0), "{last}");
    assert!(last["counters"]["sessions"].as_u64() > Some(0), "{last}");
}

#[test]
fn a_relay_writes_logs_of_its_connections_where_it_is_told_to() {
    let folder = Folder::new("qlog");
    let logs = folder.file("logs");
    drop(fs::remove_dir_all(&logs));
    let mut relay = Relay::start(&["--qlog", &logs, "--set", "qlog.sample=1"]);
    let (profile, url) = (
        profile(&folder, 1500),
        format!("moqt://{}", relay.address()),
    );
    let run = ["bench", &profile, "--relay", &url, "--insecure"];
    weir(&[&run[..], &["--subscribers", "2"], &ANY].concat());
    relay.signal("TERM");
    assert_eq!(relay.wait().0, Some(0));
    let files: Vec<_> = fs::read_dir(&logs).unwrap().flatten().collect();
    // A publisher and two subscribers.
    assert_eq!(files.len(), 3);
    for file in files {
        let path = file.path();
        assert!(
            path.extension().is_some_and(|one| one == "sqlog"),
            "{path:?}"
        );
        let text = fs::read_to_string(&path).unwrap();
        // Records of JSON text sequences (RFC 7464): a head, then packets sent and received.
        let mut records = text.split('\u{1e}').filter(|record| !record.is_empty());
        let head: Value = serde_json::from_str(records.next().unwrap()).unwrap();
        assert!(head["qlog_version"].is_string(), "{head}");
        assert!(records.count() > 10, "{path:?}");
    }
}
