//! Keys of token issuers: loaded from files, and fetched from a JWKS URL at an interval.

use std::{
    collections::BTreeSet,
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use jsonwebtoken::{
    Algorithm, DecodingKey,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, PublicKeyUse},
};
use ureq::{
    Agent,
    tls::{Certificate, RootCerts, TlsConfig},
};
use weir_net::{
    certificate::{load_chain, system_roots},
    clock,
};

use crate::relay::{
    authority::jwt::{IssuerKey, algorithms},
    config::Configured,
    settings::SecretUrl,
};

/// Issuers' keys: how many are loaded, and counts of JWKS fetches by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) held: u64,
    pub(crate) fetched: u64,
    pub(crate) failed: u64,
}

/// The current keys of all issuers.
pub(crate) struct Issuers {
    files: Vec<PathBuf>,
    source: Option<Source>,
    accepted: Vec<Algorithm>,
    keys: RwLock<Sets>,
    /// Whether a token named an unknown key, so that a fetch is requested.
    requested: (Mutex<bool>, Condvar),
    fetched: AtomicU64,
    failed: AtomicU64,
    /// How often the keys have changed.
    revision: AtomicU64,
}

/// Keys from files, from the JWKS, and all together.
#[derive(Default)]
struct Sets {
    files: KeySet,
    fetched: KeySet,
    /// When the JWKS was fetched.
    fetched_at: Option<Instant>,
    all: Arc<[IssuerKey]>,
}

/// Keys, with the text that they were read from.
#[derive(Default)]
struct KeySet {
    text: String,
    keys: Vec<IssuerKey>,
}

/// The JWKS URL, with its client and interval.
struct Source {
    url: SecretUrl,
    agent: Agent,
    refresh: Duration,
    age_max: Duration,
}

impl std::fmt::Debug for Issuers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Issuers").finish_non_exhaustive()
    }
}

impl Issuers {
    /// Loads the files. [`Self::start`] fetches the JWKS.
    pub(crate) fn load(configured: &Configured) -> anyhow::Result<Self> {
        let jwt = &configured.config.auth.jwt;
        let accepted = algorithms(configured)?;
        let source = jwt.jwks_url.as_ref().map(|_| source(configured));
        let issuers = Self {
            files: jwt.keys.clone(),
            source: source.transpose()?,
            accepted,
            keys: RwLock::default(),
            requested: (Mutex::new(false), Condvar::new()),
            fetched: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            revision: AtomicU64::new(0),
        };
        issuers
            .reload()
            .with_context(|| configured.place("auth.jwt.keys"))?;
        Ok(issuers)
    }

    /// Reloads the files. If one is bad, all loaded keys stay. The error names the file.
    pub(crate) fn reload(&self) -> anyhow::Result<()> {
        let mut files = KeySet::default();
        for file in &self.files {
            let name = || file.display().to_string();
            let text = fs::read_to_string(file).with_context(name)?;
            // A set without keys revokes all of them.
            if !is_empty_set(&text) {
                let keys = read_keys(&text, &self.accepted, true).with_context(name)?;
                files.keys.extend(keys);
            }
            files.text.push_str(&text);
        }
        self.put(|sets| {
            let is_new = sets.files.text != files.text;
            sets.files = files;
            is_new
        });
        Ok(())
    }

    /// Returns how often the keys have changed.
    pub(crate) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Relaxed)
    }

    /// Drops the keys of a JWKS that was fetched too long ago.
    fn expire(&self, age_max: Duration) {
        let now = clock::now();
        self.put(|sets| {
            let at = sets.fetched_at;
            let is_over = at.is_some_and(|at| now.saturating_duration_since(at) >= age_max);
            if is_over {
                tracing::error!(
                    "the JWKS is older than auth.jwt.jwks_age_max: its keys are dropped"
                );
                sets.fetched = KeySet::default();
                sets.fetched_at = None;
            }
            is_over
        });
    }

    /// Returns how long fetched keys are still young enough; [`Duration::MAX`] if there are none.
    fn time_left(&self, age_max: Duration) -> Duration {
        let sets = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        sets.fetched_at.map_or(Duration::MAX, |at| {
            age_max.saturating_sub(clock::now().saturating_duration_since(at))
        })
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(PathBuf::as_path)
    }

    /// Returns all current keys.
    pub(crate) fn current(&self) -> Arc<[IssuerKey]> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner).all)
    }

    /// Requests an early fetch of the JWKS. The fetching thread limits the rate.
    pub(crate) fn refresh(&self) {
        let (requested, changed) = &self.requested;
        *requested.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_one();
    }

    pub(crate) fn numbers(&self) -> Keys {
        Keys {
            held: self.current().len() as u64,
            fetched: self.fetched.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }

    /// Starts the thread that fetches keys, if `auth.jwt.jwks_url` is set. Before its first success, tokens of these keys
    /// are refused.
    pub(crate) fn start(issuers: &Arc<Self>) -> anyhow::Result<()> {
        if issuers.source.is_none() {
            return Ok(());
        }
        let issuers = Arc::clone(issuers);
        std::thread::Builder::new()
            .name("issuers".to_owned())
            .spawn(move || issuers.keep_fetching())
            .context("cannot start the thread that fetches the JWKS")?;
        Ok(())
    }

    fn keep_fetching(&self) {
        let Some(source) = &self.source else { return };
        let mut retry = RETRY_MIN;
        loop {
            let wait = match self.fetch(source) {
                Ok(count) => {
                    tracing::debug!(count, "JWKS fetched");
                    self.fetched.fetch_add(1, Ordering::Relaxed);
                    retry = RETRY_MIN;
                    source.refresh
                }
                Err(error) => {
                    // Known keys stay: an unreachable issuer must not lock all clients out.
                    tracing::error!(url = %source.url, "JWKS not fetched, known keys stay: {error:#}");
                    self.failed.fetch_add(1, Ordering::Relaxed);
                    self.expire(source.age_max);
                    let wait = retry;
                    retry = (retry * 2).min(source.refresh.max(RETRY_MIN));
                    wait
                }
            };
            // Tokens with invented key IDs must not cause more than one fetch a second.
            std::thread::park_timeout(RETRY_MIN);
            // Keys that are too old are fetched again, or dropped, at their age, whatever the pause.
            let wait = wait.saturating_sub(RETRY_MIN);
            self.wait(wait.min(self.time_left(source.age_max)));
        }
    }

    /// Waits for `time`, or until a fetch is requested.
    fn wait(&self, time: Duration) {
        let end = clock::now() + time;
        let (requested, changed) = &self.requested;
        let mut is_requested = requested.lock().unwrap_or_else(PoisonError::into_inner);
        while !*is_requested {
            let left = end.saturating_duration_since(clock::now());
            if left.is_zero() {
                break;
            }
            let woken = changed.wait_timeout(is_requested, left);
            is_requested = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        *is_requested = false;
    }

    fn fetch(&self, source: &Source) -> anyhow::Result<usize> {
        let mut response = source.agent.get(&source.url.0).call()?;
        let mut text = String::new();
        let body = response.body_mut().as_reader();
        body.take(JWKS_BYTES_MAX + 1).read_to_string(&mut text)?;
        if text.len() as u64 > JWKS_BYTES_MAX {
            bail!("the answer has more than {JWKS_BYTES_MAX} bytes");
        }
        // A set without keys revokes all of them.
        let keys = if is_empty_set(&text) {
            Vec::new()
        } else {
            read_keys(&text, &self.accepted, false)?
        };
        let count = keys.len();
        self.put(|sets| {
            let is_new = sets.fetched.text != text;
            sets.fetched = KeySet { text, keys };
            sets.fetched_at = Some(clock::now());
            is_new
        });
        Ok(count)
    }

    /// Changes the keys. `change` returns whether they differ from those before.
    fn put(&self, change: impl FnOnce(&mut Sets) -> bool) {
        let mut sets = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = change(&mut sets);
        let all = sets.files.keys.iter().chain(&sets.fetched.keys);
        sets.all = all.cloned().collect();
        self.revision
            .fetch_add(u64::from(is_new), Ordering::Relaxed);
    }
}

fn source(configured: &Configured) -> anyhow::Result<Source> {
    let jwt = &configured.config.auth.jwt;
    let url = jwt.jwks_url.clone().unwrap_or_default();
    if !url::Url::parse(&url.0).is_ok_and(|url| url.scheme() == "https" && url.has_host()) {
        bail!(
            "{}: expected a URL such as https://example.org/keys, not `{url}`",
            configured.place("auth.jwt.jwks_url")
        );
    }
    let roots = match &jwt.jwks_ca {
        Some(file) => load_chain(file).with_context(|| configured.place("auth.jwt.jwks_ca"))?,
        None => system_roots().with_context(|| configured.place("auth.jwt.jwks_url"))?,
    };
    let roots = roots
        .iter()
        .map(|root| Certificate::from_der(root).to_owned());
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::Specific(Arc::new(roots.collect())))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .build();
    let config = Agent::config_builder()
        .https_only(true)
        .max_redirects(0)
        .proxy(None)
        .timeout_global(Some(jwt.jwks_timeout))
        .max_response_header_size(16 << 10)
        .tls_config(tls)
        .build();
    Ok(Source {
        url,
        agent: config.new_agent(),
        refresh: jwt.jwks_refresh,
        age_max: jwt.jwks_age_max,
    })
}

/// Returns whether a text is a JWKS without keys.
fn is_empty_set(text: &str) -> bool {
    let value: Option<serde_json::Value> = serde_json::from_str(text).ok();
    let keys = value
        .as_ref()
        .and_then(|value| value.get("keys")?.as_array());
    keys.is_some_and(Vec::is_empty)
}

/// Returns the keys of a text: PEM (one public key), JWK or JWKS. Shared secrets are accepted only `with_secrets`.
///
/// # Errors
/// The text is none of these, or holds no usable key.
pub(crate) fn read_keys(
    text: &str,
    accepted: &[Algorithm],
    with_secrets: bool,
) -> anyhow::Result<Vec<IssuerKey>> {
    if text.trim_start().starts_with("-----BEGIN") {
        return Ok(vec![read_pem(text, accepted)?]);
    }
    let value: serde_json::Value =
        serde_json::from_str(text).context("expected a PEM public key, a JWK or a JWKS")?;
    if value.get("keys").is_none() {
        let key: Jwk = serde_json::from_value(value).context("expected a JWK or a JWKS")?;
        return Ok(vec![read_jwk(&key, accepted, with_secrets)?]);
    }
    let set: JwkSet = serde_json::from_value(value).context("the JWKS cannot be read")?;
    if set.keys.len() > KEYS_MAX {
        bail!("expected at most {KEYS_MAX} keys, not {}", set.keys.len());
    }
    // A set may hold keys for other purposes, which are ignored.
    let usable = set
        .keys
        .iter()
        .filter_map(|key| read_jwk(key, accepted, with_secrets).ok());
    let keys: Vec<IssuerKey> = usable.collect();
    if keys.is_empty() {
        bail!(
            "none of its {} keys can verify tokens with auth.jwt.algorithms",
            set.keys.len()
        );
    }
    let names: Vec<&String> = keys.iter().filter_map(|key| key.id.as_ref()).collect();
    let distinct: BTreeSet<&String> = names.iter().copied().collect();
    if distinct.len() < names.len() {
        bail!("two keys have the same `kid`; expected distinct ones");
    }
    Ok(keys)
}

fn read_pem(text: &str, accepted: &[Algorithm]) -> anyhow::Result<IssuerKey> {
    if text.contains("-----BEGIN CERTIFICATE-----") {
        bail!(
            "expected a public key, not a certificate: use the .jwk file of `weir token key`, or extract the key with \
             `openssl x509 -noout -pubkey -in FILE`"
        );
    }
    let is_private = text.contains("PRIVATE KEY-----");
    let text = text.as_bytes();
    let (key, algorithms) = if let Ok(key) = DecodingKey::from_ec_pem(text) {
        // A point of P-256 has one byte and 64 bytes of coordinates; a point of P-384 is longer.
        let is_small = key.try_get_as_bytes().is_ok_and(|point| point.len() <= 65);
        (
            key,
            if is_small {
                vec![Algorithm::ES256]
            } else {
                vec![Algorithm::ES384]
            },
        )
    } else if let Ok(key) = DecodingKey::from_ed_pem(text) {
        (key, vec![Algorithm::EdDSA])
    } else if let Ok(key) = DecodingKey::from_rsa_pem(text) {
        (key, RSA.to_vec())
    } else if is_private {
        bail!("expected a public key, not a private one: use the .jwk file of `weir token key`");
    } else {
        bail!("expected a public key: EC (P-256 or P-384), Ed25519 or RSA");
    };
    finish(None, key, algorithms, accepted)
}

fn read_jwk(jwk: &Jwk, accepted: &[Algorithm], with_secrets: bool) -> anyhow::Result<IssuerKey> {
    let id = jwk.common.key_id.clone();
    let name = id
        .as_deref()
        .unwrap_or("without `kid`")
        .escape_debug()
        .to_string();
    let is_for_signatures = matches!(
        &jwk.common.public_key_use,
        None | Some(PublicKeyUse::Signature)
    );
    if !is_for_signatures {
        bail!("key {name}: its `use` is not `sig`");
    }
    let possible = match &jwk.algorithm {
        AlgorithmParameters::EllipticCurve(curve) => match curve.curve {
            EllipticCurve::P256 => vec![Algorithm::ES256],
            EllipticCurve::P384 => vec![Algorithm::ES384],
            EllipticCurve::P521 | EllipticCurve::Ed25519 | _ => {
                bail!("key {name}: unsupported curve; expected P-256, P-384 or Ed25519")
            }
        },
        AlgorithmParameters::OctetKeyPair(_) => vec![Algorithm::EdDSA],
        AlgorithmParameters::RSA(_) => RSA.to_vec(),
        AlgorithmParameters::OctetKey(_) if with_secrets => HMAC.to_vec(),
        AlgorithmParameters::OctetKey(_) => {
            bail!("key {name}: a shared secret in a JWKS from a URL; expected a public key")
        }
        AlgorithmParameters::Other(_) | _ => {
            bail!("key {name}: unsupported `kty`; expected EC, OKP or RSA")
        }
    };
    let algorithms = match jwk.common.key_algorithm {
        None => possible,
        Some(named) => {
            let named: Algorithm = named.to_string().parse()?;
            possible
                .into_iter()
                .filter(|algorithm| *algorithm == named)
                .collect()
        }
    };
    let key = DecodingKey::from_jwk(jwk).with_context(|| format!("key {name}"))?;
    finish(id, key, algorithms, accepted)
}

fn finish(
    id: Option<String>,
    key: DecodingKey,
    mut algorithms: Vec<Algorithm>,
    accepted: &[Algorithm],
) -> anyhow::Result<IssuerKey> {
    if algorithms.is_empty() {
        bail!("the `alg` of this key does not fit its `kty`");
    }
    let possible: Vec<String> = algorithms.iter().map(|one| format!("{one:?}")).collect();
    algorithms.retain(|algorithm| accepted.contains(algorithm));
    if algorithms.is_empty() {
        bail!(
            "auth.jwt.algorithms lists no algorithm of this key ({})",
            possible.join(", ")
        );
    }
    Ok(IssuerKey {
        id,
        algorithms,
        key,
    })
}

const RSA: [Algorithm; 6] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
];
const HMAC: [Algorithm; 3] = [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512];
/// Most bytes of a JWKS.
const JWKS_BYTES_MAX: u64 = 256 << 10;
/// Most keys of a JWKS.
const KEYS_MAX: usize = 64;
/// Shortest time between two fetches.
const RETRY_MIN: Duration = Duration::from_secs(1);
