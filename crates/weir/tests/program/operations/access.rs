//! Authentication and authorization: tokens, client certificates, expiry.

use std::io::{BufRead as _, BufReader};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use weir_quic::tls::{ClientTls, Trust};

use super::client::{Arrival, Client, PROTOCOLS};
use crate::{
    metrics::{get, metric},
    process::{Folder, Relay, refusal, start, wait_for, weir, weir_with},
};

/// Makes a key pair in `folder` with `weir token key`. Returns the paths of both files.
pub(super) fn key(folder: &Folder, name: &str) -> (String, String) {
    let file = folder.file(name);
    let (secret, public) = (format!("{file}.pem"), format!("{file}.jwk"));
    drop(std::fs::remove_file(&secret));
    let output = weir(&["token", "key", &file]);
    assert!(output.status.success(), "{output:?}");
    (secret, public)
}

pub(super) fn sign(secret: &str, arguments: &[&str]) -> String {
    let mut all = vec!["token", "sign", "--key", secret];
    all.extend(arguments);
    let output = weir(&all);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

pub(super) fn with_token(token: &str) -> Arrival {
    Arrival {
        tokens: vec![token.to_owned()],
        ..Arrival::default()
    }
}

/// `UNAUTHORIZED` of requests, and of sessions, in draft-18.
const REFUSED: &str = "rejected 0x1";

#[test]
fn live_commands_show_their_token_to_the_relay_and_to_nobody_else() {
    let folder = Folder::new("live-tokens");
    let (secret, public) = key(&folder, "issuer");
    let keys = format!("auth.jwt.keys={public}");
    let relay = Relay::start(&["--set", &keys]);
    let token = sign(&secret, &["--put", "live", "--get", "live"]);
    let file = folder.write("token", &token);
    let (url, video) = (format!("moqt://{}", relay.address()), VIDEO);
    let publish = ["live", "publish", &url, "--insecure", "--input", video];
    let at_file = format!("@{file}");
    let json = folder.file("play.json");
    let with_query = format!("{url}?jwt={token}");
    let play = ["live", "play", &url, "--insecure", "--patience=0s"];
    let by_url = ["live", "play", &with_query, "--insecure", "--patience=0s"];
    let by_url = [&by_url[..], &["--json", &json]].concat();
    let by_flag = [&publish[..], &["--token", &at_file]].concat();
    for (arguments, variable, code, said) in [
        (&publish[..], None, 2, "UNAUTHORIZED"),
        (&by_flag, None, 0, ""),
        (&publish, Some(&*token), 0, ""),
        (&play, None, 2, "UNAUTHORIZED"),
        // The token is accepted; nobody publishes the track.
        (&play, Some(&token), 2, "nobody publishes this track"),
        (&by_url, None, 2, "nobody publishes this track"),
    ] {
        let variables = variable.map(|token| ("WEIR_TOKEN", token));
        let output = weir_with(arguments, variables.as_slice());
        let shown = [output.stdout, output.stderr].concat();
        let shown = String::from_utf8_lossy(&shown);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {shown}");
        assert!(shown.contains(said) && !shown.contains(&token), "{shown}");
    }
    let kept = folder.text("play.json");
    assert!(
        !kept.contains(&token) && kept.contains("?redacted"),
        "{kept}"
    );
}

#[test]
fn the_page_gets_the_token_that_the_terminal_does_not_show() {
    let arguments = [
        "live",
        "watch",
        "--page",
        "127.0.0.1:0",
        "--token",
        "secret-1",
    ];
    let relay = ["--relay", "moqt://127.0.0.1:9/a?jwt=secret-2"];
    let mut watch = Relay::launch(&[&arguments[..], &relay].concat(), &[]);
    assert_eq!(watch.ready["relay"], "https://127.0.0.1:9/a?redacted");
    assert!(
        !watch.ready.to_string().contains("secret"),
        "{}",
        watch.ready
    );
    let page = watch.ready["page"].as_str().unwrap();
    let port = page.trim_end_matches('/').rsplit_once(':').unwrap().1;
    let (status, config) = get(format!("127.0.0.1:{port}").parse().unwrap(), "/config.json");
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    assert_eq!((status, &config["token"]), (200, &"secret-1".into()));
    assert_eq!(config["relay"], "https://127.0.0.1:9/a?jwt=secret-2");
    watch.signal("TERM");
    assert_eq!(watch.wait().0, Some(0));
    let unknown = refusal(&[
        "live",
        "watch",
        "--relay",
        "https://nowhere.invalid/?jwt=secret",
    ]);
    assert!(
        unknown.contains("--relay: the host \"nowhere.invalid\" has no address")
            && !unknown.contains("secret"),
        "{unknown}"
    );
}

#[test]
fn a_refused_request_is_in_the_log_with_its_peer_and_code_but_without_names() {
    let folder = Folder::new("refusals");
    let (_, public) = key(&folder, "issuer");
    let keys = format!("auth.jwt.keys={public}");
    for (level, names) in [("info", false), ("debug", true)] {
        let arguments = [
            "relay",
            "--listen=127.0.0.1:0",
            "--log",
            level,
            "--set",
            &keys,
        ];
        let mut relay = start(&arguments);
        let mut out = BufReader::new(relay.stdout.take().unwrap());
        let mut ready = String::new();
        out.read_line(&mut ready).unwrap();
        let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
        let address = ready["listening"].as_str().unwrap().parse().unwrap();
        let client = Client::connect(address, Arrival::default());
        client.announce("secret/room");
        client.expect(REFUSED);
        drop(client);
        relay.kill().unwrap();
        let log = relay.wait_with_output().unwrap().stderr;
        let log = String::from_utf8(log).unwrap();
        let line = log
            .lines()
            .find(|line| line.contains("PUBLISH_NAMESPACE refused"));
        let line = line.unwrap_or_else(|| panic!("{log}"));
        assert!(
            line.contains("INFO")
                && line.contains("peer=127.0.0.1:")
                && line.contains("code=UNAUTHORIZED"),
            "{line}"
        );
        assert_eq!(log.contains("secret"), names, "{log}");
    }
}

/// 36 frames without sound.
const VIDEO: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../live/tests/media/pyramid.mp4"
);

#[test]
fn tokens_let_in_where_they_say() {
    let folder = Folder::new("tokens");
    let (secret, public) = key(&folder, "issuer");
    let (stranger, _) = key(&folder, "stranger");
    let keys = format!("auth.jwt.keys={public}");
    let relay = Relay::start(&["--set", &keys, "--admin", "127.0.0.1:0"]);
    assert_eq!(metric(relay.admin(), "weir_relay_issuer_keys"), Some(1.0));

    let token = sign(&secret, &["--root", "live", "--put", "alice"]);
    let client = Client::connect(relay.address(), with_token(&token));
    client.announce("live/alice/camera");
    client.expect("accepted");
    client.announce("live/bob");
    client.expect(REFUSED);

    let by_url = Arrival {
        path: Some(format!("/?jwt={token}")),
        ..Arrival::default()
    };
    let by_web = Arrival {
        tls: ClientTls::new(Trust::Anyone, &[weir_h3::ALPN]).unwrap(),
        web_path: Some(format!("/x?jwt={token}")),
        ..Arrival::default()
    };
    for arrival in [by_url, by_web] {
        let client = Client::connect(relay.address(), arrival);
        client.announce("live/alice");
        client.expect("accepted");
        client.announce("live/bob");
        client.expect(REFUSED);
    }

    // Without a token, a client may connect, and may do nothing.
    let client = Client::connect(relay.address(), Arrival::default());
    client.announce("live/alice");
    client.expect(REFUSED);

    // A token of another issuer ends the session, and so does an expired token.
    for bad in [
        sign(&stranger, &["--put", ""]),
        sign(&secret, &["--put", "", "--lasts", "0s"]),
        sign(&secret, &["--put", "", "--audience", "other"]),
        "nonsense".to_owned(),
    ] {
        let client = Client::connect(relay.address(), with_token(&bad));
        client.expect("lost: the peer closed the session");
    }
}

#[test]
fn a_benchmark_needs_the_token_that_the_relay_demands() {
    let folder = Folder::new("benchmark");
    let (secret, public) = key(&folder, "issuer");
    let relay = Relay::start(&["--set", &format!("auth.jwt.keys={public}")]);
    let url = format!("moqt://{}", relay.address());
    let profile = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../profiles/audio-short.ini"
    );
    let run = ["bench", profile, "--relay", &url, "--insecure"];
    let size = ["--subscribers", "3", "--seconds", "1", "--slo", "failed=0"];
    let bench = |more: &[&str]| weir(&[&run[..], &size, more].concat());
    let file = folder.file("bench.token");
    let token = sign(&secret, &["--root", "perf", "--put", "", "--get", ""]);
    std::fs::write(&file, &token).unwrap();
    let json = folder.file("bench.json");
    bench(&["--token", &format!("@{file}"), "--json", &json]);
    let text = std::fs::read_to_string(&json).unwrap();
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    // A busy machine may miss the schedule, so only arrivals count.
    let received = &report["tracks"][0]["completion"]["objects_received"]["sum"];
    assert_eq!(received, 150, "{}", report["verdict"]);
    assert!(!text.contains(&token), "a token is nobody's business");
    // Without a token, or with one for another namespace, nothing is delivered.
    let other = sign(&secret, &["--root", "live", "--put", "", "--get", ""]);
    for more in [&[][..], &["--token", &other]] {
        let output = bench(more);
        assert_eq!(output.status.code(), Some(1), "{more:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("UNAUTHORIZED"), "{text}");
        assert!(!text.contains(&other), "{text}");
    }
}

#[test]
fn each_client_of_a_benchmark_can_have_a_token_of_its_own() {
    let folder = Folder::new("tokens");
    let (secret, public) = key(&folder, "issuer");
    let relay = Relay::start(&["--set", &format!("auth.jwt.keys={public}")]);
    let url = format!("moqt://{}", relay.address());
    let profile = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../profiles/audio-short.ini"
    );
    let run = ["bench", profile, "--relay", &url, "--insecure"];
    let size = ["--subscribers", "3", "--seconds", "1", "--slo", "failed=0"];
    let json = folder.file("run.json");
    let received = |more: &[&str]| -> Vec<u64> {
        let output = weir(&[&run[..], &size, &["--json", &json], more].concat());
        assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
        let text = std::fs::read_to_string(&json).unwrap();
        let report: serde_json::Value = serde_json::from_str(&text).unwrap();
        let rows = report["tracks"][0]["subscribers"]
            .as_array()
            .unwrap()
            .iter();
        rows.map(|row| row["completion"]["objects_received"].as_u64().unwrap())
            .collect()
    };
    assert_eq!(received(&["--sign-tokens", &secret]), [50, 50, 50]);
    // The publisher's token, and two for three subscribers: the first one and the third have the same.
    let publisher = format!(
        "@{}",
        folder.write("publisher", &sign(&secret, &["--put", ""]))
    );
    let good = sign(&secret, &["--get", "perf"]);
    let bad = sign(&secret, &["--get", "live"]);
    let several = folder.write("several", &format!("{good}\n\n{bad}\n"));
    assert_eq!(
        received(&["--token", &publisher, "--tokens", &several]),
        [50, 0, 50]
    );
    let empty = folder.write("empty", "\n");
    for (more, problem) in [
        (["--tokens", &*empty], "expected a token in each line"),
        (["--tokens", "nowhere"], "--tokens: nowhere"),
        (["--sign-tokens", &*public], "not a private EC P-256 key"),
    ] {
        let output = weir(&[&run[..], &size, &more].concat());
        assert_eq!(output.status.code(), Some(2), "{more:?}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn what_a_token_granted_ends_with_it() {
    let folder = Folder::new("expiry");
    let (secret, public) = key(&folder, "issuer");
    let keys = format!("auth.jwt.keys={public}");
    let relay = Relay::start(&["--set", &keys]);
    // On a busy machine, the token may expire before a client connects with it: the next one is valid for longer.
    let client = ["3s", "30s", "300s"].into_iter().find_map(|time| {
        let token = sign(&secret, &["--put", "", "--lasts", time]);
        let client = Client::connect(relay.address(), with_token(&token));
        client.announce("a");
        wait_for(|| client.heard().into_iter().find(|line| line != "ready"))
            .is_some_and(|line| line == "accepted")
            .then_some(client)
    });
    let client = client.expect("a token that lasts long enough");
    // The expiry ends the request or the session.
    let ended = wait_for(|| {
        let heard = client.heard();
        let is_end = |line: &String| !["ready", "accepted"].contains(&line.as_str());
        heard.into_iter().find(is_end)
    });
    assert!(ended.is_some(), "{:?}", client.heard());
}

#[test]
fn certificates_let_relays_in_and_nobody_else() {
    let folder = Folder::new("mutual");
    let authority = |name: &str| {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        (certificate, Issuer::new(params, key))
    };
    let (ours, our_issuer) = authority("ours");
    let (_, other_issuer) = authority("other");
    let server = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let chain = folder.write("chain.pem", &server.cert.pem());
    let key = folder.write("key.pem", &server.signing_key.serialize_pem());
    let ca = format!("auth.clients.ca={}", folder.write("ca.pem", &ours.pem()));
    let relay = Relay::start(&[
        "--cert",
        &chain,
        "--key",
        &key,
        "--set",
        &ca,
        "--set",
        "auth.clients.publish=relayed",
    ]);
    let shows = |issuer: &Issuer<'_, KeyPair>| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["relay-2".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, issuer).unwrap();
        let key = rustls_key(&key);
        let roots = vec![server.cert.der().clone()];
        Arrival {
            tls: ClientTls::with_certificate(
                roots,
                vec![certificate.der().clone()],
                key,
                &PROTOCOLS,
            )
            .unwrap(),
            ..Arrival::default()
        }
    };
    let known = Client::connect(relay.address(), shows(&our_issuer));
    known.announce("relayed/x");
    known.expect("accepted");
    known.announce("elsewhere");
    known.expect(REFUSED);

    let unknown = Client::connect(relay.address(), shows(&other_issuer));
    unknown.expect("lost: TLS handshake failed");

    let nobody = Client::connect(relay.address(), Arrival::default());
    nobody.announce("relayed/x");
    nobody.expect(REFUSED);
}

fn rustls_key(key: &KeyPair) -> rustls::pki_types::PrivateKeyDer<'static> {
    key.serialize_der().try_into().unwrap()
}
