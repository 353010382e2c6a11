//! Tokens and keys that are revoked while their sessions live.

use serde_json::{Value, json};

use super::{
    access::{key, sign, with_token},
    client::Client,
};
use crate::{
    metrics::expect_metric,
    process::{Folder, Relay, wait_for},
};

/// The event of a session that the relay closed because of its rights: `UNAUTHORIZED` of sessions.
const CLOSED: &str = "lost: the peer closed the session with code 0x2";
const REVOKED: &str = "weir_relay_sessions_revoked_total";

/// Starts a relay that reads changed files again after a tenth of a second, and watches them already.
fn watching(settings: &[&str]) -> Relay {
    let mut arguments = vec!["--admin", "127.0.0.1:0", "--set", "tls.watch=100ms"];
    arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    let relay = Relay::start(&arguments);
    // The signal is handled by the thread that watches. Certificates and keys are counted separately.
    relay.signal("HUP");
    expect_metric(
        relay.admin(),
        "weir_relay_reloads_total{result=\"done\"}",
        2.0,
    );
    relay
}

/// Returns a client that was let in with a token.
fn let_in(relay: &Relay, token: &str, namespace: &str) -> Client {
    let client = Client::connect(relay.address(), with_token(token));
    client.announce(namespace);
    client.expect("accepted");
    client
}

/// Checks that a client's session goes on: it may announce more.
#[track_caller]
fn expect_alive(client: &Client, namespace: &str) {
    let accepted = || {
        let heard = client.heard();
        heard.iter().filter(|line| *line == "accepted").count()
    };
    let before = accepted();
    client.announce(namespace);
    let more = wait_for(|| (accepted() > before).then_some(()));
    assert!(more.is_some(), "{:?}", client.heard());
}

#[test]
fn tokens_on_the_list_of_revoked_ones_end_live_sessions() {
    let folder = Folder::new("revoked-tokens");
    let (secret, public) = key(&folder, "issuer");
    let list = folder.write("revoked", "# nothing yet\n");
    let relay = watching(&[
        &format!("auth.jwt.keys={public}"),
        &format!("auth.revoked={list}"),
    ]);
    let token = |name: &str, id: &str| sign(&secret, &["--put", "", "--subject", name, "--id", id]);
    let (first, second, other) = (
        token("alice", "a1"),
        token("alice", "a2"),
        token("bob", "b1"),
    );
    let clients = [&first, &second, &other].map(|token| let_in(&relay, token, "a"));

    folder.write("revoked", "jti a1\n");
    clients[0].expect(CLOSED);
    expect_metric(relay.admin(), REVOKED, 1.0);
    Client::connect(relay.address(), with_token(&first)).expect(CLOSED);
    expect_alive(&clients[1], "b");

    folder.write("revoked", "jti a1\nsub alice\n");
    clients[1].expect(CLOSED);
    expect_metric(relay.admin(), REVOKED, 2.0);
    Client::connect(relay.address(), with_token(&second)).expect(CLOSED);
    expect_alive(&clients[2], "c");
}

#[test]
fn keys_that_are_removed_from_their_file_end_live_sessions() {
    let folder = Folder::new("removed-keys");
    let keys: Vec<_> = ["old", "new"].map(|name| key(&folder, name)).into();
    let public = |(_, public): &(String, String)| -> Value {
        serde_json::from_slice(&std::fs::read(public).unwrap()).unwrap()
    };
    let public: Vec<Value> = keys.iter().map(public).collect();
    let set = |keys: &[Value]| folder.write("keys.json", &json!({ "keys": keys }).to_string());
    let file = set(&public);
    let relay = watching(&[&format!("auth.jwt.keys={file}")]);
    let tokens: Vec<_> = keys
        .iter()
        .map(|(secret, _)| sign(secret, &["--put", ""]))
        .collect();
    let clients: Vec<_> = tokens
        .iter()
        .map(|token| let_in(&relay, token, "a"))
        .collect();

    set(&public[1..]);
    clients[0].expect(CLOSED);
    expect_metric(relay.admin(), REVOKED, 1.0);
    Client::connect(relay.address(), with_token(&tokens[0])).expect(CLOSED);
    expect_alive(&clients[1], "b");

    set(&[]);
    clients[1].expect(CLOSED);
    expect_metric(relay.admin(), REVOKED, 2.0);
    Client::connect(relay.address(), with_token(&tokens[1])).expect(CLOSED);
}
