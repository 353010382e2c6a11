//! Reloads of certificates and settings while the relay runs.

use std::{
    fs,
    io::{BufRead as _, BufReader},
};

use weir_quic::tls::{ClientTls, Trust};

use super::client::{Arrival, Client, PROTOCOLS};
use crate::{
    metrics::expect_metric,
    process::{Folder, Relay, signal, start, text, wait_for},
};

/// Writes a certificate for `localhost` and its key to two files in `folder`.
fn make(folder: &Folder) -> rcgen::CertifiedKey<rcgen::KeyPair> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    folder.write("key.pem", &made.signing_key.serialize_pem());
    folder.write("chain.pem", &made.cert.pem());
    made
}

fn trusting(made: &rcgen::CertifiedKey<rcgen::KeyPair>) -> Arrival {
    let roots = Trust::Roots(vec![made.cert.der().clone()]);
    Arrival {
        tls: ClientTls::new(roots, &PROTOCOLS).unwrap(),
        ..Arrival::default()
    }
}

const RELOADED: &str = "weir_relay_reloads_total{result=\"done\"}";
const FAILED: &str = "weir_relay_reloads_total{result=\"failed\"}";

#[test]
fn certificates_change_without_a_session_that_notices() {
    let folder = Folder::new("reload");
    let first = make(&folder);
    let (chain, key) = (folder.file("chain.pem"), folder.file("key.pem"));
    let arguments = [
        "--admin",
        "127.0.0.1:0",
        "--cert",
        &chain,
        "--key",
        &key,
        "--set",
        "tls.watch=0",
    ];
    let relay = Relay::start(&arguments);
    let admin = relay.admin();
    let old = Client::connect(relay.address(), trusting(&first));
    old.expect("ready");

    // A valid certificate: new clients get it, and established sessions continue.
    let second = make(&folder);
    relay.signal("HUP");
    // Reloads of certificates and of keys are counted separately.
    expect_metric(admin, RELOADED, 2.0);
    let new = Client::connect(relay.address(), trusting(&second));
    new.expect("ready");
    let late = Client::connect(relay.address(), trusting(&first));
    late.expect("lost: TLS handshake failed");
    old.announce("a/b");
    old.expect("accepted");

    // Bad files: a key of another certificate, no certificate, an expired certificate. The second certificate stays.
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let mut expired = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    expired.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let expired = expired.self_signed(&second.signing_key).unwrap();
    let key_text = second.signing_key.serialize_pem();
    for (count, chain_text, key_text) in [
        (1.0, second.cert.pem(), other.signing_key.serialize_pem()),
        (2.0, "nothing".to_owned(), key_text.clone()),
        (3.0, expired.pem(), key_text),
    ] {
        fs::write(&chain, chain_text).unwrap();
        fs::write(&key, key_text).unwrap();
        relay.signal("HUP");
        expect_metric(admin, FAILED, count);
        let client = Client::connect(relay.address(), trusting(&second));
        client.expect("ready");
    }
    old.announce("a/c");
    new.announce("a/d");
    new.expect("accepted");
    assert!(
        !old.heard().iter().any(|line| line.starts_with("lost")),
        "{:?}",
        old.heard()
    );
}

/// Returns the log of a relay whose file of settings was replaced before SIGHUP.
fn log_of_a_reload(file: &str) -> String {
    let folder = Folder::new("settings");
    let path = folder.write("relay.toml", "[drain]\ntime = \"1s\"\n");
    let arguments = ["relay", "--log=warn", "--listen=127.0.0.1:0", "--config"];
    let more = [path.as_str(), "--admin", "127.0.0.1:0"];
    let mut relay = start(&[&arguments[..], &more].concat());
    let mut out = BufReader::new(relay.stdout.take().unwrap());
    let mut ready = String::new();
    out.read_line(&mut ready).unwrap();
    let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
    let admin = ready["admin"].as_str().unwrap().parse().unwrap();
    folder.write("relay.toml", file);
    signal(relay.id(), "HUP");
    expect_metric(admin, RELOADED, 2.0);
    // The relay handles one signal after the other.
    signal(relay.id(), "TERM");
    text(&relay.wait_with_output().unwrap().stderr)
}

#[test]
fn settings_that_need_a_restart_are_named_after_a_reload() {
    let log = log_of_a_reload(
        "listen = \"127.0.0.1:9\"\n[drain]\ntime = \"2s\"\n[limits.relay]\ntracks_max = 7\n",
    );
    let line = log
        .lines()
        .find(|line| line.contains("these settings need a restart"));
    let line = line.unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains("WARN"), "{line}");
    // The flag overrides `listen`, so that key has no effect.
    assert!(
        line.contains("changed=\"drain.time, limits.relay.tracks_max\""),
        "{line}"
    );
    let log = log_of_a_reload("[drain]\ntime = \"1s\" # unchanged\n");
    assert_eq!(log, "");
    let log = log_of_a_reload("[drain]\ntimes = \"1s\"\n");
    assert!(
        log.contains("a restart would fail: ")
            && log.contains("relay.toml:2: unknown key `drain.times`"),
        "{log}"
    );
}

#[test]
fn a_file_that_changes_is_noticed() {
    let folder = Folder::new("watch");
    make(&folder);
    let (chain, key) = (folder.file("chain.pem"), folder.file("key.pem"));
    let arguments = [
        "--admin",
        "127.0.0.1:0",
        "--cert",
        &chain,
        "--key",
        &key,
        "--set",
        "tls.watch=100ms",
    ];
    let relay = Relay::start(&arguments);
    // Certificates are written until the relay has loaded one: the first may exist before the relay begins to watch.
    let found = wait_for(|| {
        let other = make(&folder);
        let outcome = || {
            let client = Client::connect(relay.address(), trusting(&other));
            wait_for(|| client.heard().into_iter().next())
        };
        (0..50).find_map(|_| outcome().filter(|line| line == "ready"))
    });
    assert!(found.is_some());
}
