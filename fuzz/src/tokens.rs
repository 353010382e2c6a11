//! Fuzzing of tokens, of their claims, and of the keys that they are checked with.

use std::{cell::OnceCell, fs, time::Duration};

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::Value;
use weir_moqt::name::Namespace;
use weir_net::clock;
use weir_relay::{AccessToken, Authority as _, Credentials, Denial, Grant, TokenMemo};

use crate::relay::{
    authority::{Gate, issuers::read_keys, revoked::Revoked},
    config::Configured,
};

/// Reads `input` as what its first byte selects: a token, claims that are then signed, a set of keys, or a list of revoked
/// tokens. Checks that only claims with a valid signature grant something, and nothing but what they say.
///
/// # Panics
/// If a check fails.
pub fn run(input: &[u8]) {
    let Some((first, rest)) = input.split_first() else {
        return;
    };
    match first % 4 {
        0 => check_claims(rest),
        1 => check_keys(&String::from_utf8_lossy(rest), first & 4 == 0),
        2 => drop(Revoked::read(&String::from_utf8_lossy(rest))),
        _ => check_token(rest),
    }
}

thread_local! {
    /// A gate whose only key is [`SECRET`].
    static GATE: OnceCell<Gate> = const { OnceCell::new() };
}

/// Returns the rights of the bearer of a token, shown in SETUP or in the URL.
fn judge(token: &[u8], in_url: bool) -> Result<Vec<Grant>, Denial> {
    let mut credentials = Credentials::default();
    if in_url {
        credentials.path = Some(format!("/?jwt={}", String::from_utf8_lossy(token)));
    } else {
        credentials.session_tokens.push(AccessToken {
            token_type: 0,
            value: bytes::Bytes::copy_from_slice(token),
        });
    }
    GATE.with(|gate| {
        let gate = gate.get_or_init(load);
        gate.grant(clock::now(), &credentials, &mut TokenMemo::default())
    })
}

fn load() -> Gate {
    let file = std::env::temp_dir().join(format!("weir-fuzz-{}.jwk", std::process::id()));
    fs::write(&file, KEY).expect("the folder for temporary files can be written");
    let text = format!(
        "auth.jwt.keys = [{file:?}]\nauth.jwt.algorithms = [\"HS256\"]\nauth.anonymous.publish = [\"open\"]\n"
    );
    let configured = Configured::read(Some(("relay.toml", &text)), |_| None, Vec::new());
    let gate = Gate::load(&configured.expect("these are settings")).expect("this is a key");
    fs::remove_file(file).expect("it was written");
    gate
}

/// A token that nobody has signed grants nothing, not even what clients without a token may do.
fn check_token(token: &[u8]) {
    for in_url in [false, true] {
        let judged = judge(token, in_url);
        assert!(judged.is_err(), "granted without a signature: {judged:?}");
    }
}

fn check_claims(text: &[u8]) {
    let (altered, text) = text
        .split_first()
        .map_or((0, text), |(first, rest)| (*first, rest));
    let Ok(claims @ Value::Object(_)) = serde_json::from_slice(text) else {
        return;
    };
    let key = EncodingKey::from_secret(SECRET);
    let token = encode(&Header::new(Algorithm::HS256), &claims, &key).expect("JSON can be encoded");
    if let Ok(grants) = judge(token.as_bytes(), false) {
        let [grant] = &grants[..] else {
            panic!("one token is one grant: {grants:?}");
        };
        check_grant(grant, &claims);
    }
    let mut token = token.into_bytes();
    let place = token.len() - 1 - usize::from(altered) % token.len();
    token[place] = if token[place] == b'x' { b'y' } else { b'x' };
    check_token(&token);
}

/// A grant has the lifetime, the namespaces and the owner of its claims.
fn check_grant(grant: &Grant, claims: &Value) {
    let end = claims["exp"]
        .as_u64()
        .expect("a token without an end grants nothing");
    let left =
        Duration::from_secs(end).saturating_sub(clock::since_epoch()) + Duration::from_secs(2);
    let expires = grant.expires.expect("every grant of a token ends");
    assert!(expires.saturating_duration_since(clock::now()) <= left);
    let subject = claims.get("sub").and_then(Value::as_str);
    let bearer = match (subject, claims.get("jti").and_then(Value::as_str)) {
        (Some(subject), Some(id)) => Some(format!("{subject} (jti {id})")),
        (Some(subject), None) => Some(subject.to_owned()),
        (None, Some(id)) => Some(format!("jti {id}")),
        (None, None) => None,
    };
    assert_eq!(grant.bearer, bearer);
    let owns = claims.get("own").and_then(Value::as_bool) == Some(true);
    assert_eq!(grant.owner.as_deref(), subject.filter(|_| owns));
    assert!(!owns || subject.is_some(), "an owner has a name");
    let root = fields(claims.get("root"));
    for (rights, claim) in [(&grant.publish, "put"), (&grant.subscribe, "get")] {
        let claim = claims.get(claim);
        let count = match claim {
            None => 0,
            Some(Value::Array(several)) => several.len(),
            Some(_) => 1,
        };
        assert_eq!(rights.len(), count, "each prefix is one right");
        let within = |right: &Namespace| {
            right
                .fields()
                .map(<[u8]>::to_vec)
                .take(root.len())
                .eq(root.clone())
        };
        assert!(rights.iter().all(within), "every right is below the root");
    }
}

/// Returns the fields of a prefix: a path, or a list.
fn fields(prefix: Option<&Value>) -> Vec<Vec<u8>> {
    let owned = |text: &str| text.as_bytes().to_vec();
    match prefix {
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).map(owned).collect(),
        Some(Value::String(path)) => path
            .split('/')
            .filter(|field| !field.is_empty())
            .map(owned)
            .collect(),
        _ => Vec::new(),
    }
}

/// Keys that are accepted are distinct, few, and each is for an accepted algorithm.
fn check_keys(text: &str, with_secrets: bool) {
    let accepted = [
        Algorithm::ES256,
        Algorithm::ES384,
        Algorithm::EdDSA,
        Algorithm::RS256,
        Algorithm::HS256,
    ];
    let Ok(keys) = read_keys(text, &accepted, with_secrets) else {
        return;
    };
    assert!(!keys.is_empty() && keys.len() <= 64);
    let mut ids: Vec<&str> = keys.iter().filter_map(|key| key.id.as_deref()).collect();
    ids.sort_unstable();
    assert!(
        ids.windows(2).all(|pair| pair[0] != pair[1]),
        "two keys have one name"
    );
    for key in &keys {
        assert!(!key.algorithms.is_empty());
        assert!(key.algorithms.iter().all(|one| accepted.contains(one)));
        let is_secret = key.algorithms.contains(&Algorithm::HS256);
        assert!(with_secrets || !is_secret, "a shared secret from a URL");
    }
}

/// The key that signs.
const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
/// The same as a JWK.
const KEY: &str =
    r#"{"kty":"oct","k":"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY","alg":"HS256"}"#;
