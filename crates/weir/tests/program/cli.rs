//! The command line: a run that works, and a clear line for each error.

use std::{fs, process::Output, sync::Arc, time::Instant};

use serde_json::Value;
use weir_net::{
    Host, HostConfig, SocketConfig, Stop, Telemetry, UdpSocket, certificate::Certificate,
    clock::SystemClock, terminate,
};
use weir_quic::{App, Endpoint, EndpointConfig, Event, Limits, tls::ServerTls};

use crate::process::{Folder, Relay, start, text, wait_for_delivery, weir};

#[test]
fn a_run_reports_what_the_relay_carried_and_what_it_cost() {
    let folder = Folder::new("run");
    let (json, html) = (folder.file("run.json"), folder.file("run.html"));
    let profile = profile(
        &folder,
        ["start_delay", "500"],
        ["total_transmit_time", "1500"],
    );
    let run = ["bench", &profile, "--subscribers", "20", "--seed", "7"];
    let forms = ["--json", &json, "--html", &html];
    let level = ["--slo", "loss=0,failed=0,p99<5s"];
    let arguments = [&run[..], &forms, &level].concat();
    let output = weir(&arguments);
    expect_held(
        &output,
        "held: 20 subscribers, 1,000 objects delivered, 0 lost",
    );
    let report: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(report["run"]["draft"], "moqt-22");
    assert_eq!(report["run"]["seed"], 7);
    let subscribers = report["tracks"][0]["subscribers"].as_array().unwrap();
    assert_eq!(subscribers.len(), 20);
    for subscriber in subscribers {
        assert_eq!(subscriber["status"], "good", "{subscriber}");
        assert_eq!(subscriber["completion"]["objects_received"], 50);
        assert_eq!(subscriber["completion"]["lost_objects"], 0);
    }
    assert!(
        report["relay"]["cost"]["cpu_us_per_delivered_object"]
            .as_f64()
            .unwrap()
            > 0.0
    );
    assert!(
        report["relay"]["counters"]["datagrams_sent"]
            .as_u64()
            .unwrap()
            >= 1000
    );
    let html = fs::read_to_string(html).unwrap();
    assert!(
        html.contains("<svg") && !html.contains("<script src"),
        "a report of its own"
    );
}

#[test]
fn a_socket_for_each_subscriber_and_publish_give_the_same_result() {
    let folder = Folder::new("sockets");
    let json = folder.file("run.json");
    let profile = profile(
        &folder,
        ["start_delay", "500"],
        ["total_transmit_time", "1500"],
    );
    let output = weir(&[
        "bench",
        &profile,
        "--subscribers",
        "10",
        "--socket-per-subscriber",
        "--publish-flow",
        "publish",
        "--slo",
        "loss=0,failed=0",
        "--json",
        &json,
    ]);
    expect_held(
        &output,
        "held: 10 subscribers, 500 objects delivered, 0 lost",
    );
    let report: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    let completion = &report["tracks"][0]["completion"];
    assert_eq!(completion["objects_received"]["sum"], 500, "{completion}");
}

#[test]
fn a_run_over_web_transport_gives_the_same_result() {
    let folder = Folder::new("web-transport");
    let json = folder.file("run.json");
    let profile = profile(
        &folder,
        ["start_delay", "500"],
        ["total_transmit_time", "1500"],
    );
    let relay = Relay::start(&[]);
    let url = format!("https://localhost:{}/live", relay.address().port());
    let hash = relay.ready["certificate_sha256"].as_str().unwrap();
    let mut arguments = vec![
        "bench",
        &profile,
        "--relay",
        &url,
        "--certificate-hash",
        hash,
        "--subscribers",
        "10",
        "--json",
        &json,
        "--slo",
        "loss=0,failed=0",
    ];
    let output = weir(&arguments);
    let report: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(report["run"]["draft"], "moqt-22");
    assert_eq!(report["run"]["transport"], "WebTransport");
    // A busy machine may miss the schedule, so only arrivals count.
    let subscribers = report["tracks"][0]["subscribers"].as_array().unwrap();
    assert_eq!(subscribers.len(), 10, "{}", text(&output.stdout));
    for subscriber in subscribers {
        assert_eq!(subscriber["completion"]["objects_received"], 50);
        assert_eq!(subscriber["completion"]["lost_objects"], 0);
    }
    // The hash of another certificate.
    let other = "00".repeat(32);
    arguments[5] = &other;
    let line = refusal(&arguments);
    assert!(
        line.contains(&url) && line.contains("certificate"),
        "{line}"
    );
    arguments[5] = "00ff";
    let line = refusal(&arguments);
    assert!(
        line.contains("--certificate-hash: expected 64 hexadecimal digits"),
        "{line}"
    );
}

#[test]
fn everybody_in_a_meeting_is_accounted_for() {
    let folder = Folder::new("meetings");
    let profile = profile(
        &folder,
        ["start_delay", "500"],
        ["total_transmit_time", "1000"],
    );
    let fan_out = fs::read_to_string(&profile).unwrap();
    let meeting = fan_out.replace("perf/audio/{}", "meeting/{meeting}/{client}");
    assert_ne!(fan_out, meeting);
    fs::write(&profile, meeting).unwrap();
    let json = folder.file("meetings.json");
    let output = weir(&[
        "bench",
        &profile,
        "--meetings",
        "2",
        "--clients-per-meeting",
        "3",
        "--subscribe-flow",
        "namespace",
        "--slo",
        "loss=0,failed=0",
        "--json",
        &json,
    ]);
    let report: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    let rows = report["tracks"][0]["subscribers"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 3 * 2, "{}", text(&output.stdout));
    for row in rows {
        assert_eq!(row["status"], "good", "{row}");
        assert_eq!(row["completion"]["objects_received"], 25, "{row}");
    }
}

#[test]
fn a_meeting_of_one_is_refused() {
    let folder = Folder::new("lonely");
    let profile = profile(
        &folder,
        ["start_delay", "500"],
        ["total_transmit_time", "1000"],
    );
    let line = refusal(&[
        "bench",
        &profile,
        "--meetings",
        "3",
        "--clients-per-meeting",
        "1",
    ]);
    assert!(
        line.contains(
            "--meetings, --clients-per-meeting: expected at least one meeting of at least 2"
        ),
        "{line}"
    );
}

#[test]
fn the_older_tools_messages_give_a_run_too() {
    let folder = Folder::new("qperf");
    let profile = profile(
        &folder,
        ["start_delay", "500"],
        ["total_transmit_time", "1000"],
    );
    let output = weir(&[
        "bench",
        &profile,
        "--subscribers",
        "3",
        "--wire",
        "qperf",
        "--slo",
        "loss=0,failed=0",
    ]);
    let (text, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(
        text.contains("3 good, 0 incomplete, 0 failed"),
        "{text}{errors}"
    );
}

#[test]
fn a_profile_that_is_wrong_is_named_with_line_and_key() {
    let folder = Folder::new("profiles");
    for (old, new, expected) in [
        ("priority", "prioriti", "profile.ini:5: prioriti: "),
        ("ttl                 = 5000", "", "profile.ini:1: "),
        (
            "= 120\nobject_size",
            "= 24\nobject_size",
            "profile.ini:9: first_object_size: ",
        ),
        (
            "= datagram",
            "= carrier-pigeon",
            "profile.ini:4: track_mode: ",
        ),
    ] {
        let text = PROFILE.replace(old, new);
        assert_ne!(text, PROFILE, "{old:?} is in the profile");
        let file = folder.file("profile.ini");
        fs::write(&file, text).unwrap();
        let line = refusal(&["bench", &file]);
        assert!(line.contains(expected), "{expected:?} is not in {line:?}");
    }
    let line = refusal(&["bench", "no-such-profile.ini"]);
    assert!(
        line.contains("no-such-profile.ini: cannot be opened"),
        "{line}"
    );
}

#[test]
fn flags_that_are_wrong_are_named() {
    let folder = Folder::new("flags");
    let profile = profile(
        &folder,
        ["start_delay", "500"],
        ["total_transmit_time", "1500"],
    );
    for (flags, expected) in [
        (&["--slo", "p99<fast"][..], "--slo: `p99<fast`"),
        (
            &["--relay-core", "999"],
            "--relay-cores: there is no core 999",
        ),
        (
            &["--relay", "127.0.0.1:1"],
            "--relay: \"127.0.0.1:1\" is not the URL of a relay",
        ),
        (&["--relay", "moqt://192.0.2.1:1"], "--allow-public"),
        (
            &["--subscribe-flow", "tracks"],
            "add --publish-flow publish",
        ),
        (
            &["--json", "no/such/folder/x.json"],
            "no/such/folder/x.json: cannot be written",
        ),
    ] {
        let mut arguments = vec!["bench", &profile];
        arguments.extend(flags);
        let line = refusal(&arguments);
        assert!(line.contains(expected), "{expected:?} is not in {line:?}");
    }
    let line = refusal(&["relay", "--cert", "no.pem", "--key", "no.pem"]);
    assert!(line.contains("no.pem: "), "{line}");
    let output = weir(&["bench", &profile, "--subscribers", "0"]);
    assert_eq!(output.status.code(), Some(2));
    let errors = text(&output.stderr);
    assert!(
        errors.contains("'--subscribers <COUNT>': expected a whole number from 1 to 50000"),
        "{errors}"
    );
}

#[test]
fn without_arguments_weir_says_what_to_try() {
    let output = weir(&[]);
    assert_eq!(output.status.code(), Some(2));
    let errors = text(&output.stderr);
    for command in ["weir bench ", "weir h3 bench ", "weir live watch", "--help"] {
        assert!(errors.contains(command), "{errors}");
    }
}

#[test]
fn objects_that_fit_no_datagram_are_refused_before_the_run() {
    let folder = Folder::new("datagram");
    let text = PROFILE.replace("= 120", "= 5000");
    let profile = folder.file("profile.ini");
    fs::write(&profile, text).unwrap();
    let line = refusal(&["bench", &profile, "--subscribers", "1"]);
    assert!(
        line.contains("objects of 5000 bytes") && line.contains("carries"),
        "{line}"
    );
}

#[test]
fn a_relay_that_is_not_there_is_named() {
    let folder = Folder::new("unreachable");
    let profile = profile(
        &folder,
        ["start_delay", "500"],
        ["total_transmit_time", "1500"],
    );
    // Nobody reads this socket, so there is neither an answer nor a refusal.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("moqt://{}", silent.local_addr().unwrap());
    let page = folder.file("report.html");
    let arguments = ["bench", &profile, "--relay", &url, "--insecure"];
    let line = refusal(&[&arguments[..], &["--html", &page]].concat());
    assert!(
        line.contains(&url) && line.contains("no answer within 10 s"),
        "{line}"
    );
    assert!(fs::metadata(&page).is_err(), "an empty report is left");
}

#[test]
fn a_server_that_speaks_something_else_is_named() {
    let folder = Folder::new("protocol");
    let profile = profile(
        &folder,
        ["start_delay", "500"],
        ["total_transmit_time", "1500"],
    );
    let stop = Stop::new().unwrap();
    let (address, server) = serve_other_protocol(&stop);
    let url = format!("moqt://{address}");
    let line = refusal(&["bench", &profile, "--relay", &url, "--insecure"]);
    assert!(
        line.contains(&url) && line.contains("no common protocol"),
        "{line}"
    );
    stop.request();
    server.join().unwrap();
}

#[test]
fn a_certificate_that_nobody_vouches_for_is_refused_in_words() {
    let folder = Folder::new("certificate");
    let profile = profile(
        &folder,
        ["start_delay", "500"],
        ["total_transmit_time", "1500"],
    );
    let relay = Relay::start(&[]);
    let stranger = folder.file("stranger.pem");
    fs::write(&stranger, stranger_pem()).unwrap();
    let url = format!("moqt://localhost:{}", relay.address().port());
    let line = refusal(&["bench", &profile, "--relay", &url, "--ca", &stranger]);
    assert!(
        line.contains(&url) && line.contains("certificate"),
        "{line}"
    );
}

#[test]
fn a_relay_that_dies_leaves_a_partial_report() {
    let folder = Folder::new("death");
    let profile = profile(
        &folder,
        ["start_delay", "500"],
        ["total_transmit_time", "300000"],
    );
    let mut relay = Relay::start(&[]);
    let url = format!("moqt://127.0.0.1:{}", relay.address().port());
    let json = folder.file("run.json");
    let pid = relay.child.id().to_string();
    let mut bench = start(&[
        "bench",
        &profile,
        "--relay",
        &url,
        "--insecure",
        "--relay-pid",
        &pid,
        "--subscribers",
        "5",
        "--json",
        &json,
    ]);
    drop(wait_for_delivery(&mut bench));
    relay.child.kill().unwrap();
    relay.child.wait().unwrap();
    let output = bench.wait_with_output().unwrap();
    let text = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let first = text.lines().next().unwrap();
    assert!(
        first.contains(&format!("the relay's process {pid} is gone")),
        "{text}"
    );
    assert_partial(&json);
}

#[test]
fn an_interrupted_run_leaves_a_partial_report() {
    let folder = Folder::new("interrupt");
    let profile = profile(
        &folder,
        ["start_delay", "500"],
        ["total_transmit_time", "300000"],
    );
    let json = folder.file("run.json");
    let mut bench = start(&["bench", &profile, "--subscribers", "5", "--json", &json]);
    drop(wait_for_delivery(&mut bench));
    terminate(i32::try_from(bench.id()).unwrap());
    let output = bench.wait_with_output().unwrap();
    let text = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.lines().next().unwrap().contains("interrupted"),
        "{text}"
    );
    assert_partial(&json);
}

#[test]
fn the_relay_stops_cleanly_and_tells_its_counters() {
    let mut relay = Relay::start(&[]);
    terminate(relay.pid());
    let (code, last) = relay.wait();
    assert_eq!(code, Some(0));
    assert_eq!(last["counters"]["sessions"], 0);
}

/// Asserts that a report says that it is partial, and contains the measurements up to the interruption.
fn assert_partial(json: &str) {
    let report: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(report["run"]["partial"], true);
    assert_eq!(report["verdict"]["outcome"], "partial");
    let received = &report["tracks"][0]["completion"]["objects_received"]["sum"];
    assert!(received.as_u64().unwrap() > 0, "{received}");
}

/// Returns the line that refuses a command, and asserts that nothing else is printed.
fn refusal(arguments: &[&str]) -> String {
    let output = weir(arguments);
    assert_eq!(
        output.status.code(),
        Some(2),
        "{arguments:?}: {}",
        text(&output.stderr)
    );
    assert_eq!(text(&output.stdout), "", "{arguments:?}");
    let text = text(&output.stderr);
    let mut lines = text.lines().filter(|line| line.starts_with("weir: "));
    let line = lines
        .next()
        .unwrap_or_else(|| panic!("{arguments:?}: no error line in {text:?}"));
    assert_eq!(lines.next(), None, "{arguments:?}: one line is enough");
    line.to_owned()
}

/// Asserts that the run held: its first word and its exit code. On a machine without time for the generator, the run may be
/// invalid instead.
#[track_caller]
pub(crate) fn expect_held(output: &Output, sentence: &str) {
    let (text, errors) = (text(&output.stdout), text(&output.stderr));
    if text.contains("the generator was the limit") {
        assert_eq!(output.status.code(), Some(1), "{text}{errors}");
    } else {
        assert_eq!(output.status.code(), Some(0), "{text}{errors}");
        assert!(text.starts_with(sentence), "{text}");
    }
}

/// The audio profile with two changed times.
pub(crate) fn profile(
    folder: &Folder,
    [key, value]: [&str; 2],
    [other_key, other_value]: [&str; 2],
) -> String {
    let mut text = String::new();
    for line in PROFILE.lines() {
        let changed = match line.split_once('=').map(|(name, _)| name.trim()) {
            Some(name) if name == key => format!("{key} = {value}"),
            Some(name) if name == other_key => format!("{other_key} = {other_value}"),
            Some(_) | None => line.to_owned(),
        };
        text.push_str(&changed);
        text.push('\n');
    }
    folder.write("good.ini", &text)
}

/// A QUIC server that is not a relay.
fn serve_other_protocol(stop: &Stop) -> (std::net::SocketAddr, std::thread::JoinHandle<()>) {
    let made = Certificate::self_made(&["localhost".to_owned()]).unwrap();
    let endpoint = Endpoint::new(EndpointConfig {
        limits: Limits::default(),
        server: Some(ServerTls::new(made.chain, made.key, &["http/0.9"]).unwrap()),
        seed: [1; 32],
        time_source: Arc::new(SystemClock),
        qlog: None,
        packets: weir_quic::Packets::default(),
        segmentation_offload: false,
        handshake_counts: weir_quic::OriginCounts::default(),
    })
    .unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let socket = UdpSocket::bind(any, SocketConfig::default()).unwrap();
    let address = socket.local_address().unwrap();
    let stop = stop.clone();
    #[expect(
        clippy::disallowed_methods,
        reason = "a peer of the program under test"
    )]
    let thread = std::thread::spawn(move || {
        let telemetry = Arc::new(Telemetry::default());
        let config = HostConfig::default();
        let mut host = Host::new(config, vec![socket], endpoint, telemetry, stop).unwrap();
        host.run(&mut Silent(false)).unwrap();
    });
    (address, thread)
}

/// A role that does nothing until it is stopped.
struct Silent(bool);

impl App for Silent {
    fn handle_event(&mut self, _: Instant, _: &mut Endpoint, _: Event) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _: Instant, _: &mut Endpoint) {}

    fn handle_shutdown(&mut self, _: Instant, _: &mut Endpoint) {
        self.0 = true;
    }

    fn is_finished(&self) -> bool {
        self.0
    }
}

/// A CA certificate that did not sign the certificate of the relay.
fn stranger_pem() -> String {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    made.cert.pem()
}

const PROFILE: &str = "\
[Audio Datagram]
namespace           = perf/audio/{} ; a comment
name                = 1
track_mode          = datagram
priority            = 2
ttl                 = 5000
time_interval       = 20
objects_per_group   = 1
first_object_size   = 120
object_size         = 120
start_delay         = 500
total_transmit_time = 1500
";
