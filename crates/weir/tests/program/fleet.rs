//! Relays that find each other through NATS. `make test-fleet` runs these tests: they need `nats-server`.

use std::net::SocketAddr;

use serde_json::Value;

use crate::{
    agents::Nats,
    cli::profile,
    metrics::{expect_at_least, expect_metric, get, metric},
    operations::client::{Arrival, Client},
    process::{Folder, Relay, refusal, start, text, wait_for, wait_for_delivery},
};

/// Starts a relay of a fleet.
fn relay(nats: &Nats) -> Relay {
    Relay::start(&[
        "--fleet",
        &nats.url,
        "--set",
        "upstream.insecure=true",
        "--admin",
        "127.0.0.1:0",
    ])
}

fn fleet_of(admin: SocketAddr) -> Value {
    let (status, body) = get(admin, "/fleet");
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

fn store(folder: &Folder) -> [String; 2] {
    ["-js".to_owned(), format!("-sd={}", folder.file("nats"))]
}

#[test]
#[ignore = "needs nats-server: make test-fleet"]
fn relays_find_each_other_and_forget_one_that_is_killed() {
    let folder = Folder::new("fleet");
    let store = store(&folder);
    let nats = Nats::start(&[&store[0], &store[1]]);
    let relays = [relay(&nats), relay(&nats), relay(&nats)];
    for relay in &relays {
        expect_metric(relay.admin(), "weir_relay_fleet_stale", 0.0);
    }
    let publisher = Client::connect(relays[0].address(), Arrival::default());
    publisher.announce("live");
    publisher.expect("accepted");
    for relay in &relays[1..] {
        expect_metric(relay.admin(), "weir_relay_fleet_namespaces", 1.0);
    }
    let fleet = fleet_of(relays[2].admin());
    let url = format!("moqt://{}", relays[0].address());
    assert_eq!(fleet["relays"][0]["url"], url.as_str(), "{fleet}");
    assert_eq!(fleet["relays"][0]["namespaces"][0], "live", "{fleet}");
    assert_eq!(fleet["relays"][0]["linked"], false, "{fleet}");
    let [first, second, third] = relays;
    // SIGKILL: nothing is withdrawn.
    drop(first);
    for relay in [&second, &third] {
        expect_metric(relay.admin(), "weir_relay_fleet_namespaces", 0.0);
    }
    // Without NATS, relays go on, and say so.
    drop(nats);
    expect_metric(third.admin(), "weir_relay_fleet_stale", 1.0);
    let said = wait_for(|| {
        let (status, body) = get(third.admin(), "/readyz");
        assert_eq!(status, 200, "{body}");
        body.contains("stale").then_some(body)
    });
    assert!(said.is_some());
}

#[test]
#[ignore = "needs nats-server: make test-fleet"]
fn wrong_servers_and_credentials_are_named() {
    let folder = Folder::new("fleet-wrong");
    let store = store(&folder);
    let nats = Nats::start(&[&store[0], &store[1], "--user=a", "--pass=b"]);
    let text = refusal(&["relay", "--listen", "127.0.0.1:0", "--fleet", &nats.url]);
    assert!(text.contains("refuses these credentials"), "{text}");
    for (arguments, part) in [
        (
            &["--fleet", "http://127.0.0.1:1"][..],
            "expected nats://HOST",
        ),
        (
            &["--fleet", &nats.url, "--set", "fleet.scope=a.b"],
            "fleet.scope: expected",
        ),
        (
            &["--fleet", &nats.url, "--fleet-url", "relay.example"],
            "--fleet-url",
        ),
        (
            &["--fleet", &nats.url, "--listen", "0.0.0.0:4443"],
            "fleet.url (its default): expected the URL",
        ),
    ] {
        let text = refusal(&[&["relay", "--check"][..], arguments].concat());
        assert!(text.contains(part), "{arguments:?}: {text}");
    }
}

#[test]
fn clients_with_two_relays_go_on_when_one_is_killed() {
    let folder = Folder::new("moving");
    let [first, second] = [Relay::start(&[]), Relay::start(&["--admin", "127.0.0.1:0"])];
    let urls = format!("moqt://{},moqt://{}", first.address(), second.address());
    let profile = profile(&folder, ["total_transmit_time", "15000"], ["", ""]);
    let json = folder.file("report.json");
    let mut bench = start(&[
        "bench",
        &profile,
        "--relay",
        &urls,
        "--insecure",
        "--subscribers",
        "3",
        "--slo",
        "loss<100%",
        "--json",
        &json,
    ]);
    let progress = wait_for_delivery(&mut bench);
    // SIGKILL, in the middle of the track.
    drop(first);
    // The publisher and the subscribers.
    expect_metric(second.admin(), "weir_relay_sessions", 4.0);
    let output = bench.wait_with_output().unwrap();
    drop(progress);
    let said = text(&output.stdout);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");
    let report = folder.json("report.json");
    let rows = report["tracks"][0]["subscribers"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    for row in rows {
        assert_eq!(
            (&row["sessions"], &row["failure"]),
            (&2.into(), &Value::Null),
            "{row}"
        );
    }
}

#[test]
fn a_publisher_alone_goes_on_when_its_relay_is_killed_late() {
    let folder = Folder::new("moving-late");
    let [first, second] = [Relay::start(&[]), Relay::start(&["--admin", "127.0.0.1:0"])];
    let urls = format!("moqt://{},moqt://{}", first.address(), second.address());
    let profile = profile(&folder, ["total_transmit_time", "20000"], ["", ""]);
    let bench = start(&[
        "bench",
        &profile,
        "--relay",
        &urls,
        "--insecure",
        "--role",
        "publish",
        "--no-wait",
    ]);
    // By then a run that no relay has answered would have ended.
    expect_at_least(second.admin(), "weir_relay_uptime_seconds", 12.0);
    drop(first);
    let output = bench.wait_with_output().unwrap();
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
}

#[test]
fn a_relay_serves_without_its_nats_servers() {
    // A port of this machine that nobody listens on.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("nats://{}", free.local_addr().unwrap());
    drop(free);
    let relay = Relay::start(&["--fleet", &url, "--admin", "127.0.0.1:0"]);
    expect_metric(relay.admin(), "weir_relay_fleet_stale", 1.0);
    let client = Client::connect(relay.address(), Arrival::default());
    client.announce("a");
    client.expect("accepted");
    let fleet = fleet_of(relay.admin());
    assert!(fleet["stale_seconds"].is_number(), "{fleet}");
}

/// Moves the wall clock of a program by `CLOCK_SHIFT` seconds.
const SHIFTED_CLOCK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *at) {
    int (*real)(clockid_t, struct timespec *);
    *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    int outcome = real(clock, at);
    const char *shift = getenv("CLOCK_SHIFT");
    if (outcome == 0 && clock == CLOCK_REALTIME && shift != NULL) at->tv_sec += atol(shift);
    return outcome;
}
"#;

#[test]
#[ignore = "needs nats-server: make test-fleet"]
fn relays_whose_clocks_are_ten_minutes_apart_keep_their_leases() {
    let folder = Folder::new("clocks");
    let (source, library) = (
        folder.write("clock.c", SHIFTED_CLOCK),
        folder.file("clock.so"),
    );
    let compiler = std::process::Command::new("cc")
        .args(["-shared", "-fPIC", "-o", &library, &source, "-ldl"])
        .status();
    assert!(compiler.unwrap().success());
    let store = store(&folder);
    let nats = Nats::start(&[&store[0], &store[1]]);
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let chain = folder.write("chain.pem", &made.cert.pem());
    let key = folder.write("key.pem", &made.signing_key.serialize_pem());
    let relays = ["-300", "0", "300"].map(|shift| {
        Relay::start_with(
            &[
                "--fleet",
                &nats.url,
                "--set",
                "upstream.insecure=true",
                "--admin",
                "127.0.0.1:0",
                "--cert",
                &chain,
                "--key",
                &key,
            ],
            &[("LD_PRELOAD", &library), ("CLOCK_SHIFT", shift)],
        )
    });
    let left = |relay: &Relay| {
        let name = "weir_relay_certificate_expiry_seconds";
        wait_for(|| metric(relay.admin(), name)).unwrap()
    };
    let apart = left(&relays[0]) - left(&relays[2]);
    assert!(apart > 500.0, "the clocks are {apart} s apart");
    let publishers = [0, 2].map(|place: usize| {
        let publisher = Client::connect(relays[place].address(), Arrival::default());
        publisher.announce(&format!("live-{place}"));
        publisher.expect("accepted");
        publisher
    });
    let known = [1.0, 2.0, 1.0];
    for (relay, known) in relays.iter().zip(known) {
        expect_metric(relay.admin(), "weir_relay_fleet_namespaces", known);
    }
    // Longer than a lease.
    expect_at_least(relays[2].admin(), "weir_relay_uptime_seconds", 20.0);
    for (relay, known) in relays.iter().zip(known) {
        let now = |name| metric(relay.admin(), name);
        assert_eq!(now("weir_relay_fleet_namespaces"), Some(known));
        assert_eq!(now("weir_relay_fleet_stale"), Some(0.0));
    }
    let [first, second, third] = relays;
    // SIGKILL: leases end, whatever the time of day.
    drop(third);
    expect_metric(second.admin(), "weir_relay_fleet_namespaces", 1.0);
    drop(first);
    expect_metric(second.admin(), "weir_relay_fleet_namespaces", 0.0);
    drop(publishers);
}
