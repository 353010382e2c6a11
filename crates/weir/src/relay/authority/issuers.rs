//! The keys of those who make tokens: from files, and from an address that is asked again and again.

use std::{
    collections::BTreeSet,
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
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
    metrics::Keys,
    settings::SecretUrl,
};

/// The keys of issuers, as they are known now.
pub(crate) struct Issuers {
    files: Vec<PathBuf>,
    source: Option<Source>,
    accepted: Vec<Algorithm>,
    keys: RwLock<Sets>,
    /// Whether somebody met a key that is not known.
    wanted: (Mutex<bool>, Condvar),
    fetched: AtomicU64,
    failed: AtomicU64,
}

/// Keys by where they come from, and together.
#[derive(Default)]
struct Sets {
    files: Vec<IssuerKey>,
    fetched: Vec<IssuerKey>,
    all: Arc<[IssuerKey]>,
}

/// Where keys are fetched from.
struct Source {
    url: SecretUrl,
    agent: Agent,
    refresh: Duration,
}

impl std::fmt::Debug for Issuers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Issuers").finish_non_exhaustive()
    }
}

impl Issuers {
    /// Loads the files; nothing is fetched yet.
    pub(crate) fn load(configured: &Configured) -> anyhow::Result<Self> {
        let jwt = &configured.config.auth.jwt;
        let accepted = algorithms(configured)?;
        let source = jwt.jwks_url.as_ref().map(|_| source(configured));
        let issuers = Self {
            files: jwt.keys.clone(),
            source: source.transpose()?,
            accepted,
            keys: RwLock::default(),
            wanted: (Mutex::new(false), Condvar::new()),
            fetched: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        };
        issuers
            .reload()
            .with_context(|| configured.place("auth.jwt.keys"))?;
        Ok(issuers)
    }

    /// Loads the files again. If anything is wrong with one of them, all stays as it was.
    pub(crate) fn reload(&self) -> anyhow::Result<()> {
        let mut keys = Vec::new();
        for file in &self.files {
            let name = || file.display().to_string();
            let text = fs::read_to_string(file).with_context(name)?;
            keys.extend(read_keys(&text, &self.accepted, true).with_context(name)?);
        }
        self.put(|sets| sets.files = keys);
        Ok(())
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(PathBuf::as_path)
    }

    /// The keys that are known.
    pub(crate) fn current(&self) -> Arc<[IssuerKey]> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner).all)
    }

    /// Asks for the keys to be fetched before it is time. Costs nothing, and is done now and then only.
    pub(crate) fn refresh(&self) {
        let (wanted, bell) = &self.wanted;
        *wanted.lock().unwrap_or_else(PoisonError::into_inner) = true;
        bell.notify_one();
    }

    pub(crate) fn numbers(&self) -> Keys {
        Keys {
            held: self.current().len() as u64,
            fetched: self.fetched.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }

    /// Fetches keys from now on, from a thread of its own, if there is an address to fetch from. Until the first
    /// time that succeeds there are no keys from there, so no token of theirs is good.
    pub(crate) fn start(issuers: &Arc<Self>) -> anyhow::Result<()> {
        if issuers.source.is_none() {
            return Ok(());
        }
        let issuers = Arc::clone(issuers);
        std::thread::Builder::new()
            .name("issuers".to_owned())
            .spawn(move || issuers.keep_fetching())
            .context("cannot start the thread that fetches keys")?;
        Ok(())
    }

    fn keep_fetching(&self) {
        let Some(source) = &self.source else { return };
        let mut retry = RETRY_MIN;
        loop {
            let wait = match self.fetch(source) {
                Ok(count) => {
                    tracing::debug!(count, "keys fetched");
                    self.fetched.fetch_add(1, Ordering::Relaxed);
                    retry = RETRY_MIN;
                    source.refresh
                }
                Err(error) => {
                    // The old keys stay: an issuer that is away must not lock everybody out.
                    tracing::error!("{}: no keys: {error:#}", source.url);
                    self.failed.fetch_add(1, Ordering::Relaxed);
                    let wait = retry;
                    retry = (retry * 2).min(source.refresh.max(RETRY_MIN));
                    wait
                }
            };
            // Tokens with made-up key names must not make us a burden to the issuer.
            std::thread::park_timeout(RETRY_MIN);
            self.wait(wait.saturating_sub(RETRY_MIN));
        }
    }

    /// Waits for `time`, or until a key is wanted.
    fn wait(&self, time: Duration) {
        let end = clock::now() + time;
        let (wanted, bell) = &self.wanted;
        let mut is_wanted = wanted.lock().unwrap_or_else(PoisonError::into_inner);
        while !*is_wanted {
            let left = end.saturating_duration_since(clock::now());
            if left.is_zero() {
                break;
            }
            let woken = bell.wait_timeout(is_wanted, left);
            is_wanted = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        *is_wanted = false;
    }

    fn fetch(&self, source: &Source) -> anyhow::Result<usize> {
        let mut response = source.agent.get(&source.url.0).call()?;
        let mut text = String::new();
        let body = response.body_mut().as_reader();
        body.take(JWKS_BYTES_MAX + 1).read_to_string(&mut text)?;
        if text.len() as u64 > JWKS_BYTES_MAX {
            bail!("larger than {JWKS_BYTES_MAX} bytes");
        }
        let keys = read_keys(&text, &self.accepted, false)?;
        let count = keys.len();
        self.put(|sets| sets.fetched = keys);
        Ok(count)
    }

    fn put(&self, change: impl FnOnce(&mut Sets)) {
        let mut sets = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut sets);
        sets.all = sets.files.iter().chain(&sets.fetched).cloned().collect();
    }
}

fn source(configured: &Configured) -> anyhow::Result<Source> {
    let jwt = &configured.config.auth.jwt;
    let url = jwt.jwks_url.clone().unwrap_or_default();
    if !url::Url::parse(&url.0).is_ok_and(|url| url.scheme() == "https" && url.has_host()) {
        bail!(
            "{}: expected an address with https://",
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
    })
}

/// The keys of a text: PEM (one public key), JWK or JWKS. `with_secrets`: shared secrets may be among them.
///
/// # Errors
/// There is none that can be used, or a key that stands by itself cannot be.
pub(crate) fn read_keys(
    text: &str,
    accepted: &[Algorithm],
    with_secrets: bool,
) -> anyhow::Result<Vec<IssuerKey>> {
    if text.trim_start().starts_with("-----BEGIN") {
        return Ok(vec![read_pem(text, accepted)?]);
    }
    let value: serde_json::Value =
        serde_json::from_str(text).context("neither PEM nor JWK nor JWKS")?;
    if value.get("keys").is_none() {
        let key: Jwk = serde_json::from_value(value).context("neither JWK nor JWKS")?;
        return Ok(vec![read_jwk(&key, accepted, with_secrets)?]);
    }
    let set: JwkSet = serde_json::from_value(value).context("no good JWKS")?;
    if set.keys.len() > KEYS_MAX {
        bail!("more than {KEYS_MAX} keys");
    }
    // A set may hold keys for other purposes: those that cannot be used are left out.
    let usable = set
        .keys
        .iter()
        .filter_map(|key| read_jwk(key, accepted, with_secrets).ok());
    let keys: Vec<IssuerKey> = usable.collect();
    if keys.is_empty() {
        bail!("no key in it can be used");
    }
    let names: Vec<&String> = keys.iter().filter_map(|key| key.id.as_ref()).collect();
    let distinct: BTreeSet<&String> = names.iter().copied().collect();
    if distinct.len() < names.len() {
        bail!("two keys have the same `kid`");
    }
    Ok(keys)
}

fn read_pem(text: &str, accepted: &[Algorithm]) -> anyhow::Result<IssuerKey> {
    let text = text.as_bytes();
    let (key, algorithms) = if let Ok(key) = DecodingKey::from_ec_pem(text) {
        // The length of the point tells the curve: 64 bytes of coordinates and one in front for P-256.
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
    } else {
        bail!("no public key in it (EC, Ed25519 or RSA)");
    };
    finish(None, key, algorithms, accepted)
}

fn read_jwk(jwk: &Jwk, accepted: &[Algorithm], with_secrets: bool) -> anyhow::Result<IssuerKey> {
    let id = jwk.common.key_id.clone();
    let name = id
        .as_deref()
        .unwrap_or("without name")
        .escape_debug()
        .to_string();
    let is_for_signatures = matches!(
        &jwk.common.public_key_use,
        None | Some(PublicKeyUse::Signature)
    );
    if !is_for_signatures {
        bail!("key {name}: not for signatures");
    }
    let possible = match &jwk.algorithm {
        AlgorithmParameters::EllipticCurve(curve) => match curve.curve {
            EllipticCurve::P256 => vec![Algorithm::ES256],
            EllipticCurve::P384 => vec![Algorithm::ES384],
            EllipticCurve::P521 | EllipticCurve::Ed25519 | _ => {
                bail!("key {name}: its curve is not supported")
            }
        },
        AlgorithmParameters::OctetKeyPair(_) => vec![Algorithm::EdDSA],
        AlgorithmParameters::RSA(_) => RSA.to_vec(),
        AlgorithmParameters::OctetKey(_) if with_secrets => HMAC.to_vec(),
        AlgorithmParameters::OctetKey(_) => bail!("key {name}: a secret that is public"),
        AlgorithmParameters::Other(_) | _ => bail!("key {name}: its kind is not supported"),
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
    algorithms.retain(|algorithm| accepted.contains(algorithm));
    if algorithms.is_empty() {
        bail!("auth.jwt.algorithms has none that goes with this key");
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
/// Bytes of a JWKS.
const JWKS_BYTES_MAX: u64 = 256 << 10;
/// Keys of one set.
const KEYS_MAX: usize = 64;
/// The least time between two fetches.
const RETRY_MIN: Duration = Duration::from_secs(1);
