//! Refused certificates: the error states the reason.

use std::{fs, path::Path, process::Output};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};

use super::stage::{Folder, Server, json, text, weir};

fn parameters() -> CertificateParams {
    CertificateParams::new(["localhost".to_owned()]).expect("a plain name")
}

fn issuer(name: &str) -> (String, Issuer<'static, KeyPair>) {
    let (mut parameters, key) = (parameters(), KeyPair::generate().expect("a key"));
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.distinguished_name.push(DnType::CommonName, name);
    let certificate = parameters.self_signed(&key).expect("well formed");
    (certificate.pem(), Issuer::new(parameters, key))
}

/// Returns the output of a run whose connections are refused. The run is repeated with a longer duration if a busy machine left no
/// time for an answer.
fn refused(arguments: &[&str], report: &Path) -> Option<Output> {
    let durations = ["--duration=300ms", "--duration=3s", "--duration=1min"];
    durations.into_iter().find_map(|duration| {
        let mut command = weir();
        command.args(["h3", "bench", duration]).args(arguments);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        let refused = json(report)["connections"]["refused"].as_u64();
        (refused > Some(0)).then_some(output)
    })
}

/// A case: its name, the defect of the certificate, the issuer, the CA that the client trusts, and the expected text.
type Story<'a> = (
    &'a str,
    fn(&mut CertificateParams),
    &'a Issuer<'static, KeyPair>,
    &'a [&'a str],
    &'a str,
);

fn stories<'a>(
    ours: &'a Issuer<'static, KeyPair>,
    other: &'a Issuer<'static, KeyPair>,
    namesake: &'a Issuer<'static, KeyPair>,
    trusts: &'a [&'a str],
    by_hash: &'a [&'a str],
) -> [Story<'a>; 8] {
    [
        (
            "expired",
            |made| made.not_after = date_time_ymd(2020, 1, 1),
            ours,
            trusts,
            "the certificate has expired (",
        ),
        (
            "early",
            |made| made.not_before = date_time_ymd(3000, 1, 1),
            ours,
            trusts,
            "the certificate is not valid yet (",
        ),
        (
            "name",
            |made| *made = CertificateParams::new(["elsewhere".to_owned()]).unwrap(),
            ours,
            trusts,
            "the certificate is not valid for the name localhost, only for elsewhere",
        ),
        (
            "issuer",
            |_| (),
            other,
            trusts,
            "the certificate's issuer is not trusted; trust the issuer's certificate",
        ),
        (
            "namesake",
            |_| (),
            namesake,
            trusts,
            "a trusted certificate has the name of this certificate's issuer, but another key",
        ),
        (
            "hash",
            |_| (),
            ours,
            by_hash,
            "the certificate's hash is not the trusted one",
        ),
        (
            "purpose",
            |made| made.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
            ours,
            trusts,
            "the certificate is not for servers",
        ),
        (
            "authority",
            |made| made.is_ca = IsCa::Ca(BasicConstraints::Unconstrained),
            ours,
            trusts,
            "the certificate is a CA certificate; a server needs one with CA:FALSE",
        ),
    ]
}

#[test]
fn every_reason_is_said_in_words() {
    let folder = Folder::new("reasons");
    let (trusted, ours) = issuer("ours");
    let (_, other) = issuer("other");
    let (_, namesake) = issuer("ours");
    let trusted_file = folder.file("trusted.pem");
    fs::write(&trusted_file, trusted).unwrap();
    let trusts = ["--ca", trusted_file.to_str().unwrap()];
    let hash = "00".repeat(32);
    let by_hash = ["--certificate-hash", &hash];
    for (name, change, issuer, trust, expected) in
        stories(&ours, &other, &namesake, &trusts, &by_hash)
    {
        let mut parameters = parameters();
        change(&mut parameters);
        let key = KeyPair::generate().unwrap();
        let made = parameters.signed_by(&key, issuer).unwrap();
        let (chain, secret) = (folder.file(name), folder.file(&format!("{name}.key")));
        fs::write(&chain, made.pem()).unwrap();
        fs::write(&secret, key.serialize_pem()).unwrap();
        let files = [chain.to_str().unwrap(), secret.to_str().unwrap()];
        let server = Server::with(&["--cert", files[0], "--key", files[1]]);
        let report = folder.file("report.json");
        let url = format!("https://localhost:{}/1k", server.port());
        let connect = format!("--connect=127.0.0.1:{}", server.port());
        let run = [&url, &connect, "--json", report.to_str().unwrap()];
        let output = refused(&[&run[..], trust].concat(), &report);
        let output = output.unwrap_or_else(|| panic!("{name}: nothing was refused"));
        // Lines are wrapped at the width of the screen.
        let shown = text(&output.stdout);
        let shown: Vec<&str> = shown.split_whitespace().collect();
        let report = json(&report);
        let refusals = report["connections"]["refusals"].as_array().unwrap();
        let [refusal] = &refusals[..] else {
            panic!("{name}: {refusals:?}")
        };
        assert_eq!(refusal["kind"], "tls", "{name}");
        assert_eq!(refusal["count"], report["connections"]["refused"]);
        let words = refusal["words"].as_str().unwrap();
        let begin = "TLS handshake failed: this side reports: ";
        assert!(
            words.starts_with(begin) && words.contains(expected),
            "{name}: {words}"
        );
        // Names of errors in source code have a capital letter after a small one.
        let mut pairs = words.as_bytes().windows(2);
        let named = pairs.any(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase());
        assert!(!named, "{words}");
        assert!(shown.join(" ").contains(expected), "{shown:?}");
    }
}

#[test]
fn other_clients_say_it_in_the_same_words() {
    let (relay, folder) = (Server::relay(), Folder::new("words"));
    let (strangers, _) = issuer("strangers");
    let file = folder.file("strangers.pem");
    fs::write(&file, strangers).unwrap();
    let profile = concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles/audio.ini");
    let url = format!("moqt://127.0.0.1:{}", relay.port());
    let hash = "00".repeat(32);
    for (flag, value, expected) in [
        (
            "--ca",
            file.to_str().unwrap(),
            "the certificate's issuer is not trusted",
        ),
        (
            "--certificate-hash",
            &hash,
            "the certificate's hash is not the trusted one",
        ),
    ] {
        for arguments in [
            &["bench", profile, "--subscribers=1", "--relay", &url][..],
            &["live", "play", &url],
        ] {
            let output = weir().args(arguments).args([flag, value]).output().unwrap();
            assert_ne!(output.status.code(), Some(0));
            let said = text(&output.stdout) + &text(&output.stderr);
            assert!(said.contains(expected), "{arguments:?}: {said}");
            assert!(said.contains("--ca FILE"), "{arguments:?}: {said}");
        }
    }
}
