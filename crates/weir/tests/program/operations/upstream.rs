//! A relay that asks another one for what it does not have.

use std::net::SocketAddr;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use super::{
    access::{key, sign},
    client::{Arrival, Client},
};
use crate::{
    metrics::{expect_at_least, expect_metric, get, metric},
    process::{Folder, Relay, refusal, start, text},
};

/// Objects in datagrams and on streams.
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

[video]
namespace = perf/{run}
name = 2
track_mode = stream
mode = 3
priority = 3
ttl = 5000
time_interval = 50
objects_per_group = 5
first_object_size = 6000
object_size = 1500
start_delay = 4000
total_transmit_time = 4500
";

/// The gauge of a relay's only link.
fn link(name: &str, upstream: &str) -> String {
    format!("weir_link_{name}{{upstream=\"{upstream}\"}}")
}

/// Runs a benchmark with its publisher at one relay and three subscribers at another, and checks that all arrives.
fn deliver(folder: &Folder, [publishers, subscribers]: [SocketAddr; 2], token: &str) {
    let profile = folder.write("profile.ini", PROFILE);
    let bench = |role: &str, relay: SocketAddr, file: &str| {
        let (relay, json) = (format!("moqt://{relay}"), folder.file(file));
        let arguments = ["bench", &profile, "--relay", &relay, "--insecure"];
        let more = ["--seed", "9", "--subscribers", "3", "--token", token];
        let role = ["--role", role, "--json", &json];
        start(&[&arguments[..], &more, &role].concat())
    };
    let subscriber = bench("subscribe", subscribers, "received.json");
    let publisher = bench("publish", publishers, "sent.json");
    let [_, subscriber] = [publisher, subscriber].map(|one| one.wait_with_output().unwrap());
    let errors = text(&subscriber.stderr);
    let received = folder.json("received.json");
    for (track, objects) in [(0, 25 * 3), (1, 10 * 3)] {
        let sum = &received["tracks"][track]["completion"]["objects_received"]["sum"];
        assert_eq!(*sum, objects, "track {track}: {errors}");
    }
}

#[test]
fn tracks_come_through_another_relay_over_both_transports() {
    let folder = Folder::new("upstream");
    let (secret, public) = key(&folder, "issuer");
    let keys = format!("auth.jwt.keys={public}");
    let origin = Relay::start(&["--set", &keys, "--admin", "127.0.0.1:0"]);
    let all = ["--root", "perf", "--put", "", "--get", ""];
    let token = sign(&secret, &all);
    let file = folder.write("upstream.token", &token);
    for scheme in ["moqt", "https"] {
        let upstream = format!("{scheme}://{}", origin.address());
        let edge = Relay::start(&[
            "--upstream",
            &upstream,
            "--upstream-token",
            &file,
            "--set",
            "upstream.insecure=true",
            "--threads",
            "2",
            "--admin",
            "127.0.0.1:0",
        ]);
        // Metrics have the URL in its usual form.
        let upstream = match scheme {
            "https" => format!("{upstream}/"),
            _ => upstream,
        };
        expect_metric(edge.admin(), &link("up", &upstream), 1.0);
        deliver(&folder, [origin.address(), edge.address()], &token);
        expect_at_least(edge.admin(), &link("objects_total", &upstream), 35.0);
        // With the benchmark's own messages: one copy, and not one for each of three subscribers.
        let objects = metric(edge.admin(), &link("objects_total", &upstream));
        assert!(objects < Some(105.0), "{objects:?}");
        // Publishers at the edge are found at the origin, too.
        deliver(&folder, [edge.address(), origin.address()], &token);
    }
}

#[test]
fn a_link_comes_back_with_its_relay() {
    let origin = Relay::start(&[]);
    let address = origin.address();
    let upstream = format!("moqt://{address}");
    let edge = Relay::start(&[
        "--upstream",
        &upstream,
        "--set",
        "upstream.insecure=true",
        "--admin",
        "127.0.0.1:0",
    ]);
    expect_metric(edge.admin(), &link("up", &upstream), 1.0);
    drop(origin);
    expect_metric(edge.admin(), &link("up", &upstream), 0.0);
    let (status, body) = get(edge.admin(), "/links");
    let links: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &links[0]["up"]), (200, &false.into()), "{body}");
    assert!(links[0]["problem"].is_string(), "{body}");
    let _origin = Relay::at(&address.to_string());
    expect_metric(edge.admin(), &link("up", &upstream), 1.0);
    expect_metric(edge.admin(), &link("established_total", &upstream), 2.0);
}

#[test]
fn a_client_certificate_opens_the_upstream_relay() {
    let folder = Folder::new("upstream-mutual");
    let mut params = CertificateParams::new(["fleet".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = KeyPair::generate().unwrap();
    let ca = params.self_signed(&authority).unwrap();
    let ca = folder.write("ca.pem", &ca.pem());
    let issuer = Issuer::new(params, authority);
    let issue = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let chain = folder.write(&format!("{name}.pem"), &certificate.pem());
        (
            chain,
            folder.write(&format!("{name}.key"), &key.serialize_pem()),
        )
    };
    let (chain, private) = issue("localhost");
    let clients = format!("auth.clients.ca={ca}");
    let origin = Relay::start(&["--cert", &chain, "--key", &private, "--set", &clients]);
    let upstream = format!("moqt://localhost:{}", origin.address().port());
    let (chain, private) = issue("edge");
    let settings = [
        format!("upstream.certificate={chain}"),
        format!("upstream.key={private}"),
    ];
    let edge = |settings: &[String]| {
        let mut arguments = vec!["--upstream", &upstream, "--upstream-ca", &ca];
        for setting in settings {
            arguments.extend(["--set", setting]);
        }
        arguments.extend(["--admin", "127.0.0.1:0"]);
        let edge = Relay::start(&arguments);
        expect_metric(edge.admin(), &link("up", &upstream), 1.0);
        edge
    };
    // The origin permits nothing without a certificate: the edge's announcement is refused.
    for (edge, refused) in [(edge(&settings), 0.0), (edge(&[]), 1.0)] {
        let client = Client::connect(edge.address(), Arrival::default());
        client.announce("a");
        client.expect("accepted");
        expect_metric(
            edge.admin(),
            "weir_relay_link_requests_refused_total",
            refused,
        );
    }
}

#[test]
fn wrong_settings_of_upstream_relays_are_named() {
    let refused = |arguments: &[&str]| refusal(&[&["relay", "--check"][..], arguments].concat());
    for (arguments, part) in [
        (
            &["--upstream", "relay.example"][..],
            "--upstream: upstream.urls",
        ),
        (
            &["--upstream", "http://127.0.0.1:1"],
            "expected moqt://HOST:PORT",
        ),
        (
            &[
                "--upstream",
                "moqt://127.0.0.1:1",
                "--upstream-token",
                "/nowhere",
            ],
            "--upstream-token: upstream.token_file",
        ),
        (
            &[
                "--upstream",
                "moqt://127.0.0.1:1",
                "--upstream-ca",
                "/nowhere",
            ],
            "--upstream-ca: upstream.ca",
        ),
        (
            &["--set", "upstream.certificate=/nowhere"],
            "upstream.certificate: needs upstream.key too",
        ),
    ] {
        let text = refused(arguments);
        assert!(text.contains(part), "{arguments:?}: {text}");
    }
}

/// The last problem of a relay's only link.
fn problem(admin: SocketAddr) -> String {
    let (_, body) = get(admin, "/links");
    let links: serde_json::Value = serde_json::from_str(&body).unwrap();
    links[0]["problem"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_new_token_in_the_file_replaces_a_link_that_lost_its_rights() {
    let folder = Folder::new("upstream-token");
    let (secret, public) = key(&folder, "issuer");
    let keys = format!("auth.jwt.keys={public}");
    let origin = Relay::start(&["--set", &keys]);
    let publisher = Arrival {
        tokens: vec![sign(&secret, &["--put", "", "--get", ""])],
        ..Arrival::default()
    };
    let publisher = Client::connect(origin.address(), publisher);
    publisher.announce("perf/1");
    publisher.expect("accepted");
    let file = folder.write("link.jwt", &sign(&secret, &["--get", "other"]));
    let upstream = format!("moqt://{}", origin.address());
    let edge = Relay::start(&[
        "--upstream",
        &upstream,
        "--upstream-token",
        &file,
        "--set",
        "upstream.insecure=true",
        "--set",
        "tls.watch=100ms",
        "--admin",
        "127.0.0.1:0",
    ]);
    let admin = edge.admin();
    expect_metric(admin, &link("up", &upstream), 1.0);
    let viewer = Client::connect(edge.address(), Arrival::default());
    viewer.subscribe("perf/1", "x");
    expect_at_least(admin, "weir_relay_link_requests_refused_total", 1.0);
    let refusal = problem(admin);
    assert!(
        refusal.starts_with("SUBSCRIBE refused: UNAUTHORIZED"),
        "{refusal}"
    );
    expect_metric(admin, &link("up", &upstream), 1.0);

    // What is no token changes nothing.
    folder.write("link.jwt", "");
    expect_metric(admin, "weir_relay_reloads_total{result=\"failed\"}", 1.0);
    folder.write("link.jwt", &sign(&secret, &["--get", "perf"]));
    expect_metric(admin, "weir_relay_links_renewed_total", 1.0);
    expect_metric(admin, &link("established_total", &upstream), 2.0);
    // The subscriber has waited, and its request reaches the publisher.
    publisher.expect("something else");
    assert_eq!(problem(admin), "");
}
