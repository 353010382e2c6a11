use std::{
    io::{BufRead as _, BufReader, Write as _},
    iter,
    net::TcpListener,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, jwk::Jwk};
use rustls::{ServerConfig, ServerConnection, StreamOwned, pki_types::PrivateKeyDer};
use serde_json::{Value, json};
use weir_relay::AccessToken;

use super::*;

/// A key of an issuer, with the file in which the relay finds its public half.
struct Issuer {
    signing: EncodingKey,
    public: Jwk,
    algorithm: Algorithm,
}

impl Issuer {
    fn new(id: Option<&str>) -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let der = pair.to_pkcs8v1().unwrap();
        Self::from_signing(EncodingKey::from_ec_der(der.as_ref()), Algorithm::ES256, id)
    }

    fn from_signing(signing: EncodingKey, algorithm: Algorithm, id: Option<&str>) -> Self {
        let mut public = Jwk::from_encoding_key(&signing, algorithm).unwrap();
        public.common.key_id = id.map(str::to_owned);
        Self {
            signing,
            public,
            algorithm,
        }
    }

    fn sign(&self, claims: &Value) -> String {
        let mut header = Header::new(self.algorithm);
        header.kid = self.public.common.key_id.clone();
        encode(&header, claims, &self.signing).unwrap()
    }

    fn jwk(&self) -> String {
        serde_json::to_string(&self.public).unwrap()
    }
}

fn file(text: &str) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("weir-keys-{}-{number}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    path
}

fn configured(keys: &[&PathBuf], rest: &str) -> Configured {
    let keys: Vec<String> = keys.iter().map(|file| format!("{file:?}")).collect();
    let text = format!("[auth]\njwt.keys = [{}]\n{rest}\n", keys.join(", "));
    Configured::read(Some(("relay.toml", &text)), |_| None, Vec::new()).unwrap()
}

fn gate(issuer: &Issuer, rest: &str) -> Gate {
    let file = file(&issuer.jwk());
    let gate = Gate::load(&configured(&[&file], rest)).unwrap();
    std::fs::remove_file(file).unwrap();
    gate
}

fn with_session_token(token: &str) -> Credentials {
    Credentials {
        session_tokens: vec![AccessToken {
            token_type: 0,
            value: token.to_owned().into(),
        }],
        ..Credentials::default()
    }
}

/// The one grant that there is.
fn only(gate: &Gate, now: Instant, credentials: &Credentials) -> Result<Grant, Denial> {
    let mut grants = gate.grant(now, credentials, &mut TokenMemo::default())?;
    assert_eq!(grants.len(), 1);
    Ok(grants.remove(0))
}

fn judge(gate: &Gate, token: &str) -> Result<Grant, Denial> {
    only(gate, clock::now(), &with_session_token(token))
}

fn seconds() -> u64 {
    clock::since_epoch().as_secs()
}

fn namespace(fields: &[&str]) -> Namespace {
    Namespace::new(fields).unwrap()
}

#[test]
fn a_token_grants_its_prefixes_until_it_ends() {
    let issuer = Issuer::new(None);
    let gate = gate(&issuer, "");
    let now = clock::now();
    let token = issuer.sign(&json!({
        "root": "live", "put": "alice", "get": ["", ["a/b", "c"]], "exp": seconds() + 1000,
    }));
    let grant = only(&gate, now, &with_session_token(&token)).unwrap();
    assert_eq!(grant.publish, [namespace(&["live", "alice"])]);
    assert_eq!(
        grant.subscribe,
        [namespace(&["live"]), namespace(&["live", "a/b", "c"])]
    );
    let left = grant.expires.unwrap() - now;
    assert!(
        (Duration::from_secs(700)..=Duration::from_secs(1000)).contains(&left),
        "{left:?}"
    );

    // A right that is not named is not granted. A client without a token has no rights.
    let grant = judge(&gate, &issuer.sign(&json!({ "exp": seconds() + 100 }))).unwrap();
    assert_eq!((grant.publish.len(), grant.subscribe.len()), (0, 0));
    let nothing = only(&gate, now, &Credentials::default()).unwrap();
    assert_eq!(nothing, Grant::default());
    assert!(!gate.is_open());
}

#[test]
fn tokens_that_are_not_good_grant_nothing() {
    let issuer = Issuer::new(Some("a"));
    let gate = gate(&issuer, "jwt.issuer = \"us\"\njwt.audience = \"relay\"");
    let good = json!({ "put": "", "exp": seconds() + 100, "iss": "us", "aud": ["relay", "x"] });
    assert!(judge(&gate, &issuer.sign(&good)).is_ok());
    for (name, value, denial) in [
        ("exp", json!(seconds() - 1), Denial::Expired),
        ("exp", Value::Null, Denial::Malformed),
        ("exp", json!("soon"), Denial::Malformed),
        ("nbf", json!(seconds() + 60), Denial::Unauthorized),
        ("iss", json!("them"), Denial::Untrusted),
        ("iss", Value::Null, Denial::Untrusted),
        ("aud", json!("other"), Denial::Untrusted),
        ("aud", Value::Null, Denial::Untrusted),
        ("put", json!(7), Denial::Malformed),
    ] {
        let mut claims = good.clone();
        claims[name] = value.clone();
        let judged = judge(&gate, &issuer.sign(&claims));
        assert_eq!(judged, Err(denial), "{name} = {value}");
    }
    let mut claims = good.clone();
    claims["nbf"] = json!(seconds() + 5);
    assert!(judge(&gate, &issuer.sign(&claims)).is_ok(), "clocks differ");

    let token = issuer.sign(&good);
    let cut = &token[..token.len() - 4];
    for bad in [cut, "", "a.b.c", "a.b", &"a".repeat(9000)] {
        assert!(judge(&gate, bad).is_err(), "{bad}");
    }
}

#[test]
fn keys_and_algorithms_cannot_be_chosen_by_the_token() {
    let issuer = Issuer::new(Some("a"));
    let gate = gate(&issuer, "");
    let claims = json!({ "put": "", "exp": seconds() + 100 });

    // Somebody else's key under the same name, and under another.
    for id in ["a", "b"] {
        let stranger = Issuer::new(Some(id));
        assert_eq!(
            judge(&gate, &stranger.sign(&claims)),
            Err(Denial::Untrusted)
        );
    }

    // The public key as a shared secret, in each of its forms.
    let secrets = [issuer.jwk().into_bytes(), issuer.public_bytes()];
    for secret in secrets {
        let secret = EncodingKey::from_secret(&secret);
        let mut header = Header::new(Algorithm::HS256);
        header.kid = Some("a".to_owned());
        let token = encode(&header, &claims, &secret).unwrap();
        assert_eq!(judge(&gate, &token), Err(Denial::Untrusted));
    }

    // No signature at all.
    let good = issuer.sign(&claims);
    let payload = good.split('.').nth(1).unwrap();
    for header in ["eyJhbGciOiJub25lIn0", "eyJhbGciOiJOb25lIiwia2lkIjoiYSJ9"] {
        for signature in ["", good.rsplit('.').next().unwrap()] {
            let token = format!("{header}.{payload}.{signature}");
            assert_eq!(judge(&gate, &token), Err(Denial::Malformed));
        }
    }

    // The right key with an algorithm of another curve.
    let pair = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).unwrap();
    let signing = EncodingKey::from_ec_der(pair.to_pkcs8v1().unwrap().as_ref());
    let other = Issuer::from_signing(signing, Algorithm::ES384, Some("a"));
    assert_eq!(judge(&gate, &other.sign(&claims)), Err(Denial::Untrusted));
}

impl Issuer {
    fn public_bytes(&self) -> Vec<u8> {
        let key = jsonwebtoken::DecodingKey::from_jwk(&self.public).unwrap();
        key.try_get_as_bytes().unwrap().to_vec()
    }
}

#[test]
fn tokens_come_from_the_setup_the_url_and_requests() {
    let issuer = Issuer::new(None);
    let gate = gate(&issuer, "anonymous.subscribe = [\"public\"]");
    let now = clock::now();
    let token =
        |put: &str, lasts: u64| issuer.sign(&json!({ "put": put, "exp": seconds() + lasts }));
    let (a, b) = (token("a", 50), token("b", 100));

    let nothing = only(&gate, now, &Credentials::default()).unwrap();
    assert_eq!(nothing.subscribe, [namespace(&["public"])]);
    assert!(nothing.publish.is_empty());

    let mut credentials = Credentials {
        path: Some(format!("/live?x=1&jwt={a}")),
        ..Credentials::default()
    };
    assert_eq!(
        only(&gate, now, &credentials).unwrap().publish,
        [namespace(&["a"])]
    );

    // A request's token adds to what the session may do, each for its own time.
    credentials.request_tokens = with_session_token(&b).session_tokens;
    let grants = gate
        .grant(now, &credentials, &mut TokenMemo::default())
        .unwrap();
    let [of_session, of_request] = &grants[..] else {
        panic!("{grants:?}")
    };
    assert_eq!(of_session.publish, [namespace(&["a"])]);
    assert_eq!(of_request.publish, [namespace(&["b"])]);
    assert!(of_session.expires.unwrap() <= now + Duration::from_secs(50));
    assert!(of_request.expires.unwrap() > now + Duration::from_secs(90));

    // A bad token of a request is an error, even if the session has a good one. Expired session tokens are ignored then.
    credentials.request_tokens = with_session_token("bad").session_tokens;
    assert_eq!(only(&gate, now, &credentials), Err(Denial::Malformed));
    let over = issuer.sign(&json!({ "put": "a", "exp": seconds() - 5 }));
    credentials.path = Some(format!("?jwt={over}"));
    credentials.request_tokens = Vec::new();
    assert_eq!(only(&gate, now, &credentials), Err(Denial::Expired));
    credentials.request_tokens = with_session_token(&b).session_tokens;
    assert_eq!(
        only(&gate, now, &credentials).unwrap().publish,
        [namespace(&["b"])]
    );
}

#[test]
fn certificates_get_what_is_set_for_them() {
    let made = rcgen::generate_simple_self_signed(["ca".to_owned()]).unwrap();
    let ca = file(&made.cert.pem());
    let rest = format!("clients.ca = {ca:?}\nclients.publish = [\"relay/x\"]");
    let gate = Gate::load(&configured(&[], &rest)).unwrap();
    let now = clock::now();
    let stranger = only(&gate, now, &Credentials::default()).unwrap();
    assert_eq!(
        stranger,
        Grant::default(),
        "there is a way in, so it is not open"
    );
    let relay = Credentials {
        has_client_certificate: true,
        ..Credentials::default()
    };
    let grant = only(&gate, now, &relay).unwrap();
    assert_eq!(grant.publish, [namespace(&["relay", "x"])]);
    assert_eq!(grant.subscribe, [Namespace::EMPTY]);
    std::fs::remove_file(ca).unwrap();

    let open = Gate::load(&configured(&[], "")).unwrap();
    assert!(open.is_open());
    assert_eq!(only(&open, now, &relay).unwrap(), Grant::everything());
}

#[test]
fn a_reload_changes_keys_and_a_bad_one_changes_nothing() {
    let (first, second) = (Issuer::new(Some("1")), Issuer::new(Some("2")));
    let path = file(&first.jwk());
    let gate = Gate::load(&configured(&[&path], "")).unwrap();
    let claims = json!({ "put": "", "exp": seconds() + 100 });
    let is_good = |issuer: &Issuer| judge(&gate, &issuer.sign(&claims)).is_ok();
    assert!(is_good(&first) && !is_good(&second));

    let both = format!("{{\"keys\": [{}, {}]}}", first.jwk(), second.jwk());
    std::fs::write(&path, both).unwrap();
    gate.reload().unwrap();
    assert!(is_good(&first) && is_good(&second));
    assert_eq!(gate.keys().held, 2);

    for bad in ["", "{}", "{\"keys\": [{}]}", "-----BEGIN NOTHING-----"] {
        std::fs::write(&path, bad).unwrap();
        let error = format!("{:#}", gate.reload().unwrap_err());
        assert!(error.starts_with(&path.display().to_string()), "{error}");
        assert!(is_good(&first) && is_good(&second), "{bad}");
    }
    std::fs::write(&path, "{\"keys\": []}").unwrap();
    gate.reload().unwrap();
    assert!(!is_good(&first) && !is_good(&second), "all are revoked");
    std::fs::write(&path, second.jwk()).unwrap();
    gate.reload().unwrap();
    assert!(!is_good(&first) && is_good(&second));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_certificate_is_no_key_of_an_issuer() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let accepted = [Algorithm::ES256];
    let public = issuers::read_keys(&made.signing_key.public_key_pem(), &accepted, true);
    assert_eq!(public.unwrap().len(), 1);
    let error = issuers::read_keys(&made.cert.pem(), &accepted, true).unwrap_err();
    let expected = "expected a public key, not a certificate: use the .jwk file";
    assert!(error.to_string().starts_with(expected), "{error}");
}

#[test]
fn a_set_is_taken_for_what_is_usable_in_it() {
    let accepted = [Algorithm::ES256];
    let good = Issuer::new(Some("a"));
    let secret = r#"{"kty":"oct","k":"c2VjcmV0","kid":"s"}"#;
    let other_use = good.jwk().replacen('{', "{\"use\":\"enc\",", 1);
    let read = |text: &str, with_secrets| issuers::read_keys(text, &accepted, with_secrets);
    let set = format!("{{\"keys\": [{}, {secret}]}}", good.jwk());
    assert_eq!(read(&set, true).unwrap().len(), 1, "HS256 is not accepted");
    let hmac = [Algorithm::HS256];
    assert_eq!(issuers::read_keys(secret, &hmac, true).unwrap().len(), 1);
    assert!(
        issuers::read_keys(secret, &hmac, false).is_err(),
        "not from the network"
    );
    assert!(read(&other_use, true).is_err());
    let twice = format!("{{\"keys\": [{}, {}]}}", good.jwk(), good.jwk());
    assert!(read(&twice, true).unwrap_err().to_string().contains("kid"));
}

#[test]
fn while_no_key_was_ever_fetched_nobody_gets_in() {
    // A port that nothing listens on.
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let ca = file(&made.cert.pem());
    let rest = format!(
        "jwt.jwks_url = \"https://{address}/keys\"\njwt.jwks_ca = {ca:?}\njwt.jwks_timeout = \"200ms\""
    );
    let gate = Gate::load(&configured(&[], &rest)).unwrap();
    gate.start().unwrap();
    wait_until(|| gate.keys().failed > 0);
    assert!(gate.keys().failed > 0, "it was tried");
    let token = Issuer::new(None).sign(&json!({ "put": "", "exp": seconds() + 100 }));
    assert_eq!(judge(&gate, &token), Err(Denial::Untrusted));
    let nothing = only(&gate, clock::now(), &Credentials::default()).unwrap();
    assert_eq!(nothing, Grant::default());
    std::fs::remove_file(ca).unwrap();
}

/// Looks again and again, for minutes at most.
fn wait_until(is_there: impl Fn() -> bool) {
    for _ in 0..6000 {
        if is_there() {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

/// Answers a request over TLS with each of `bodies`, in a thread of its own.
fn serve_tls(
    listener: TcpListener,
    made: &rcgen::CertifiedKey<rcgen::KeyPair>,
    bodies: impl Iterator<Item = String> + Send + 'static,
) {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let config = Arc::new(config);
    let serve = move || {
        for (body, socket) in bodies.zip(listener.incoming()) {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(connection, socket.unwrap());
            let mut request = BufReader::new(&mut stream).lines();
            // A client that does not trust us is gone by then.
            while request
                .next()
                .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
            {}
            let length = body.len();
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
            let _sent = stream.write_all(format!("{head}{body}").as_bytes());
            stream.conn.send_close_notify();
            let _flushed = stream.flush();
        }
    };
    std::thread::Builder::new().spawn(serve).unwrap();
}

#[test]
fn tokens_of_keys_that_are_fetched_are_good() {
    let (good, other) = (Issuer::new(Some("a")), Issuer::new(Some("a")));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let ca = file(&made.cert.pem());
    let stranger = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let stranger = file(&stranger.cert.pem());
    let body = format!("{{\"keys\": [{}]}}", good.jwk());
    serve_tls(listener, &made, iter::repeat(body));
    let token = |issuer: &Issuer| issuer.sign(&json!({ "put": "live", "exp": seconds() + 100 }));
    for (trusted, is_fetched) in [(&ca, true), (&stranger, false)] {
        let rest = format!(
            "jwt.jwks_url = \"https://localhost:{port}/keys\"\njwt.jwks_ca = {trusted:?}\njwt.jwks_timeout = \"1min\""
        );
        let gate = Gate::load(&configured(&[], &rest)).unwrap();
        gate.start().unwrap();
        wait_until(|| gate.keys().fetched + gate.keys().failed > 0);
        assert_eq!(gate.keys().fetched > 0, is_fetched, "{:?}", gate.keys());
        assert_eq!(judge(&gate, &token(&good)).is_ok(), is_fetched);
        assert_eq!(judge(&gate, &token(&other)), Err(Denial::Untrusted));
    }
    for path in [ca, stranger] {
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn keys_that_are_fetched_no_more_are_revoked() {
    let (first, second) = (Issuer::new(Some("a")), Issuer::new(Some("b")));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let ca = file(&made.cert.pem());
    let (sets, bodies) = std::sync::mpsc::channel();
    let set = |keys: &[String]| {
        sets.send(format!("{{\"keys\": [{}]}}", keys.join(", ")))
            .unwrap();
    };
    serve_tls(listener, &made, bodies.into_iter());
    let rest = format!(
        "jwt.jwks_url = \"https://localhost:{port}/keys\"\njwt.jwks_ca = {ca:?}\njwt.jwks_timeout = \"1min\"\n\
         jwt.jwks_refresh = \"1s\""
    );
    let gate = Gate::load(&configured(&[], &rest)).unwrap();
    gate.start().unwrap();
    let claims = json!({ "put": "live", "exp": seconds() + 1000 });
    let tokens = [&first, &second].map(|issuer| issuer.sign(&claims));
    let permitted = || [0, 1].map(|place: usize| judge(&gate, &tokens[place]).is_ok());
    let mut revision = gate.revision();
    let both = [first.jwk(), second.jwk()];
    for (keys, expected) in [
        (&both[..], [true; 2]),
        (&both[1..], [false, true]),
        (&[], [false; 2]),
    ] {
        set(keys);
        wait_until(|| permitted() == expected);
        assert_eq!(permitted(), expected);
        assert!(gate.revision() > revision, "live sessions are judged again");
        revision = gate.revision();
    }
    assert_eq!((gate.keys().held, gate.keys().failed), (0, 0));
    std::fs::remove_file(ca).unwrap();
}

#[test]
fn keys_that_cannot_be_fetched_any_more_are_dropped_at_their_age() {
    let issuer = Issuer::new(None);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let ca = file(&made.cert.pem());
    // After the first answer, requests wait until this half of the listener is dropped, and then fail.
    let silent = listener.try_clone().unwrap();
    serve_tls(listener, &made, iter::once(issuer.jwk()));
    let rest = format!(
        "jwt.jwks_url = \"https://localhost:{port}/keys\"\njwt.jwks_ca = {ca:?}\njwt.jwks_timeout = \"1min\"\n\
         jwt.jwks_refresh = \"1h\"\njwt.jwks_age_max = \"2s\""
    );
    let gate = Gate::load(&configured(&[], &rest)).unwrap();
    gate.start().unwrap();
    wait_until(|| gate.keys().fetched > 0);
    let token = issuer.sign(&json!({ "put": "live", "exp": seconds() + 1000 }));
    assert!(judge(&gate, &token).is_ok());
    let revision = gate.revision();
    assert_eq!(gate.keys().failed, 0);
    drop(silent);
    wait_until(|| gate.keys().held == 0);
    assert!(gate.keys().failed > 0);
    assert_eq!(judge(&gate, &token), Err(Denial::Untrusted));
    assert!(gate.revision() > revision, "live sessions are judged again");
    std::fs::remove_file(ca).unwrap();
}

#[test]
fn revoked_tokens_are_refused_once_their_file_is_loaded_again() {
    let issuer = Issuer::new(None);
    let (key, revoked) = (file(&issuer.jwk()), file(""));
    let gate = Gate::load(&configured(&[&key], &format!("revoked = {revoked:?}"))).unwrap();
    let sign = |id: &str, bearer: &str| {
        let claims = json!({ "put": "live", "exp": seconds() + 1000, "jti": id, "sub": bearer });
        issuer.sign(&claims)
    };
    let [stolen, banned, other] = [sign("7f", "ann"), sign("80", "mallory"), sign("81", "ann")];
    let permitted =
        |gate: &Gate| [&stolen, &banned, &other].map(|token| judge(gate, token).is_ok());
    std::fs::write(&revoked, "jti 7f\nsub mallory\n").unwrap();
    assert_eq!(permitted(&gate), [true; 3]);
    let revision = gate.revision();
    gate.reload().unwrap();
    assert_eq!(permitted(&gate), [false, false, true]);
    assert!(gate.revision() > revision, "live sessions are judged again");
    std::fs::write(&revoked, "everybody\n").unwrap();
    let error = format!("{:#}", gate.reload().unwrap_err());
    assert!(error.contains("line 1: expected `jti ID`"), "{error}");
    assert_eq!(
        permitted(&gate),
        [false, false, true],
        "what was loaded stays"
    );
    for path in [key, revoked] {
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn settings_that_cannot_be_used_are_named() {
    for (rest, expected) in [
        (
            "jwt.keys = [\"no-such-file\"]",
            "relay.toml:2: auth.jwt.keys: no-such-file: ",
        ),
        (
            "jwt.jwks_url = \"http://a/\"",
            "relay.toml:2: auth.jwt.jwks_url: expected a URL such as https",
        ),
        (
            "jwt.keys = [\"x\"]\njwt.algorithms = [\"none\"]",
            "relay.toml:3: auth.jwt.algorithms: unknown algorithm `none`",
        ),
        (
            "jwt.keys = [\"x\"]\njwt.algorithms = []",
            "relay.toml:3: auth.jwt.algorithms: expected at least one",
        ),
        (
            "clients.ca = \"no-such-file\"\nclients.publish = [\"a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a\"]",
            "relay.toml:3: auth.clients.publish: `a/a",
        ),
    ] {
        let text = format!("[auth]\n{rest}\n");
        let configured =
            Configured::read(Some(("relay.toml", &text)), |_| None, Vec::new()).unwrap();
        let error = format!("{:#}", Gate::load(&configured).unwrap_err());
        assert!(error.starts_with(expected), "{error}");
    }
}
