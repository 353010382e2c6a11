//! Metrics, health, and draining.

use std::{
    net::SocketAddr,
    os::linux::net::SocketAddrExt as _,
    os::unix::net::{SocketAddr as UnixAddress, UnixDatagram},
    time::Duration,
};

use weir_net::{clock, terminate};

use super::client::{Arrival, Client};
use crate::{
    metrics::{expect_metric, get, metric},
    process::{PATIENCE, Relay, wait_for},
};

#[test]
fn metrics_tell_of_sessions_and_of_nothing_that_a_peer_chose() {
    let relay = Relay::start(&["--admin", "127.0.0.1:0"]);
    let admin = relay.admin();
    assert_eq!(get(admin, "/healthz"), (200, "alive\n".to_owned()));
    assert_eq!(get(admin, "/readyz"), (200, "ready\n".to_owned()));
    assert_eq!(get(admin, "/nothing").0, 404);

    let client = Client::connect(relay.address(), Arrival::default());
    client.announce("secret-room/alice");
    client.expect("accepted");
    expect_metric(admin, "weir_relay_sessions", 1.0);
    expect_metric(admin, "weir_relay_namespaces", 1.0);
    expect_metric(admin, "weir_relay_sessions_total", 1.0);
    expect_metric(admin, "weir_quic_connections", 1.0);
    let received = metric(admin, "weir_host_forward_latency_seconds_count").unwrap();
    assert!(received > 0.0, "{received}");
    assert!(metric(admin, "process_resident_memory_bytes").unwrap() > 1e6);
    assert!(metric(admin, "weir_relay_certificate_expiry_seconds").unwrap() > 1e6);
    let (_, page) = get(admin, "/metrics");
    assert!(
        !page.contains("secret") && !page.contains("alice"),
        "{page}"
    );

    drop(client);
    expect_metric(admin, "weir_relay_sessions", 0.0);
    expect_metric(admin, "weir_relay_namespaces", 0.0);
}

#[test]
fn a_relay_that_is_not_let_run_for_once_refuses_nobody() {
    // The time limit is longer than a busy machine needs.
    let late = "limits.load.queue_delay_max=1200ms";
    let relay = Relay::start(&["--admin", "127.0.0.1:0", "--set", late]);
    for clients in 1..=4 {
        relay.signal("STOP");
        std::thread::park_timeout(Duration::from_millis(1600));
        relay.signal("CONT");
        let client = Client::connect(relay.address(), Arrival::default());
        client.expect("ready");
        expect_metric(
            relay.admin(),
            "weir_relay_sessions_total",
            f64::from(clients),
        );
    }
    let sheddings = metric(relay.admin(), "weir_relay_load_sheddings_total");
    assert_eq!(sheddings, Some(0.0));
}

#[test]
fn a_relay_that_sheds_load_is_not_ready_and_says_why() {
    let memory = "limits.load.memory_bytes_max=1MiB";
    let relay = Relay::start(&["--admin", "127.0.0.1:0", "--set", memory]);
    let admin = relay.admin();
    let expected = "overload: memory is above limits.load.memory_bytes_max\n";
    let overloaded = (503, expected.to_owned());
    let found = wait_for(|| (get(admin, "/readyz") == overloaded).then_some(()));
    assert!(found.is_some(), "{:?}", get(admin, "/readyz"));
    expect_metric(admin, "weir_relay_load_sheddings_total", 1.0);
    assert_eq!(get(admin, "/healthz").0, 200, "a restart would not help");
}

#[test]
fn tracks_are_listed_on_request_and_never_in_part() {
    let relay = Relay::start(&["--admin", "127.0.0.1:0"]);
    assert_eq!(get(relay.admin(), "/tracks").0, 404, "off by default");

    let relay = Relay::start(&["--admin", "127.0.0.1:0", "--set", "admin.tracks_max=2"]);
    let admin = relay.admin();
    let client = Client::connect(relay.address(), Arrival::default());
    client.expect("ready");
    assert_eq!(get(admin, "/tracks"), (200, "[]\n".to_owned()));
    for (name, count) in [("b", 1.0), ("a", 2.0)] {
        client.subscribe("room/\u{e9}", name);
        expect_metric(admin, "weir_relay_tracks", count);
    }
    let (status, page) = get(admin, "/tracks");
    let tracks: serde_json::Value = serde_json::from_str(&page).unwrap();
    assert_eq!(status, 200, "{page}");
    assert_eq!(tracks[0]["name"], "a");
    assert_eq!(tracks[1]["name"], "b");
    assert_eq!(
        tracks[0]["namespace"],
        serde_json::json!(["room", "\\xc3\\xa9"])
    );
    assert_eq!(tracks[0]["waiting"], 1);
    client.subscribe("room", "c");
    expect_metric(admin, "weir_relay_tracks", 3.0);
    let (status, page) = get(admin, "/tracks");
    assert_eq!(
        (status, page.as_str()),
        (503, "3 tracks, but admin.tracks_max is 2\n")
    );
}

/// Waits until the relay says that it accepts no new connection.
#[track_caller]
fn expect_draining(admin: SocketAddr) {
    let draining = (503, "draining\n".to_owned());
    let found = wait_for(|| (get(admin, "/readyz") == draining).then_some(()));
    assert!(found.is_some(), "{:?}", get(admin, "/readyz"));
}

#[test]
fn a_relay_that_is_to_end_says_so_first_and_serves_until_the_delay_is_over() {
    let arguments = ["--admin", "127.0.0.1:0", "--set", "drain.delay=1h"];
    let mut relay = Relay::start(&arguments);
    let admin = relay.admin();
    let client = Client::connect(relay.address(), Arrival::default());
    client.expect("ready");
    terminate(relay.pid());
    expect_draining(admin);
    assert_eq!(
        get(admin, "/healthz").0,
        200,
        "it is not to be killed for leaving"
    );
    expect_metric(admin, "weir_relay_draining", 1.0);
    client.announce("still/here");
    client.expect("accepted");
    // A second signal ends the relay at once.
    terminate(relay.pid());
    assert_eq!(relay.wait().0, Some(128 + 15));
}

#[test]
fn a_relay_that_is_to_end_ends_in_time_with_sessions_that_do_not_leave() {
    let arguments = ["--set", "drain.delay=1s", "--set", "drain.time=3s"];
    let mut relay = Relay::start(&arguments);
    let [client, idle] = [(); 2].map(|()| Client::connect(relay.address(), Arrival::default()));
    client.expect("ready");
    idle.expect("ready");
    let start = clock::now();
    terminate(relay.pid());
    let (code, last) = relay.wait();
    let took = clock::now() - start;
    assert_eq!(code, Some(0));
    assert_eq!(last["counters"]["sessions"], 2);
    assert!(took >= Duration::from_secs(1), "{took:?}");
    for peer in [&client, &idle] {
        peer.expect("goaway");
        peer.expect("lost: ");
    }
}

#[test]
fn systemd_is_told() {
    let name = format!("weir-operations-{}", std::process::id());
    let address = UnixAddress::from_abstract_name(&name).unwrap();
    let manager = UnixDatagram::bind_addr(&address).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let hear = || {
        let mut buffer = [0; 128];
        let length = manager.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let socket = format!("@{name}");
    let variables = [
        ("NOTIFY_SOCKET", socket.as_str()),
        ("WATCHDOG_USEC", "400000"),
    ];
    let mut relay = Relay::start_with(&[], &variables);
    let mut heard = Vec::new();
    while heard.len() < 4 {
        heard.push(hear());
    }
    assert!(heard.contains(&"READY=1".to_owned()), "{heard:?}");
    assert!(heard.contains(&"WATCHDOG=1".to_owned()), "{heard:?}");
    terminate(relay.pid());
    while hear() != "STOPPING=1" {}
    assert_eq!(relay.wait().0, Some(0));
}
