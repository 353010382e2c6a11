//! Certificates that change under a relay that runs.

use std::fs;

use weir_quic::tls::{ClientTls, Trust};

use super::{
    admin::expect_metric,
    client::{Arrival, Client, PROTOCOLS},
    program::{Folder, Relay},
};

/// A certificate for `localhost`, written to two files of `folder`.
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

    // A good one: newcomers see it, and whoever is here goes on.
    let second = make(&folder);
    relay.signal("HUP");
    // Certificates and keys are counted each by itself.
    expect_metric(admin, RELOADED, 2.0);
    let new = Client::connect(relay.address(), trusting(&second));
    new.expect("ready");
    let late = Client::connect(relay.address(), trusting(&first));
    late.expect("lost: TLS handshake failed");
    old.announce("a/b");
    old.expect("accepted");

    // Bad ones: a key of another, no certificate, one that has expired. The second stays.
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
    std::thread::park_timeout(std::time::Duration::from_millis(200));
    let second = make(&folder);
    let found = super::client::wait_for(|| {
        let client = Client::connect(relay.address(), trusting(&second));
        super::client::wait_for(|| client.heard().into_iter().next()).filter(|line| line == "ready")
    });
    assert!(found.is_some());
}
