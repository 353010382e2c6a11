//! JSON Web Tokens (RFC 7519): their verification and the rights that they grant.
//!
//! The crate `jsonwebtoken` checks signatures and claims. This module chooses the permitted algorithms, the keys and the
//! required claims.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header, errors::ErrorKind};
use serde::{Deserialize, Serialize};
use weir_moqt::name::Namespace;
use weir_relay::{Denial, Grant, Verdict};

use crate::relay::{
    authority::{issuers::Issuers, revoked::Revoked},
    config::Configured,
};

/// The claims that the relay reads; others are ignored.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct Claims {
    /// Prefix of all namespaces in `put` and `get`.
    #[serde(default, skip_serializing_if = "Prefix::is_empty")]
    pub(crate) root: Prefix,
    /// Namespaces that the bearer may publish in.
    #[serde(default, skip_serializing_if = "Prefixes::is_empty")]
    pub(crate) put: Prefixes,
    /// Namespaces that the bearer may subscribe to.
    #[serde(default, skip_serializing_if = "Prefixes::is_empty")]
    pub(crate) get: Prefixes,
    /// Expiry, in seconds since 1970. Required.
    pub(crate) exp: u64,
    /// Start of the validity, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) nbf: Option<u64>,
    /// Audience.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) aud: Option<serde_json::Value>,
    /// Issuer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) iss: Option<String>,
    /// Whether the namespaces that the bearer publishes in are reserved to `sub` while it is connected.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) own: bool,
    /// Token ID, by which the token can be revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) jti: Option<String>,
    /// Subject, by which all tokens of one bearer can be revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sub: Option<String>,
}

/// A namespace, or the prefix of namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub(crate) enum Prefix {
    /// Fields separated by `/`.
    Path(String),
    /// A list of fields, which may contain `/`.
    Fields(Vec<String>),
}

/// One prefix or several.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub(crate) enum Prefixes {
    One(String),
    Several(Vec<Prefix>),
}

impl Default for Prefix {
    fn default() -> Self {
        Self::Path(String::new())
    }
}

impl Default for Prefixes {
    fn default() -> Self {
        Self::Several(Vec::new())
    }
}

impl Prefix {
    fn is_empty(&self) -> bool {
        self.fields().next().is_none()
    }

    fn fields(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        match self {
            Self::Path(path) => Box::new(path.split('/').filter(|field| !field.is_empty())),
            Self::Fields(fields) => Box::new(fields.iter().map(String::as_str)),
        }
    }
}

impl Prefixes {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn namespaces(&self, root: &Prefix) -> Option<Vec<Namespace>> {
        let one;
        let prefixes = match self {
            Self::One(path) => {
                one = [Prefix::Path(path.clone())];
                &one[..]
            }
            Self::Several(prefixes) => prefixes,
        };
        let under = |prefix: &Prefix| {
            let fields: Vec<&str> = root.fields().chain(prefix.fields()).collect();
            Namespace::new(&fields).ok()
        };
        prefixes.iter().map(under).collect()
    }
}

/// A key of an issuer.
#[derive(Clone, Debug)]
pub(crate) struct IssuerKey {
    /// The key ID (`kid`) in the headers of tokens, if the key has one.
    pub(crate) id: Option<String>,
    /// The permitted algorithms. The key decides, not the header of a token.
    pub(crate) algorithms: Vec<Algorithm>,
    pub(crate) key: DecodingKey,
}

/// Verifies tokens by the settings in `[auth.jwt]`.
#[derive(Debug)]
pub(crate) struct TokenVerifier {
    algorithms: Vec<Algorithm>,
    issuer: Option<String>,
    audience: Option<String>,
    clock_difference: Duration,
}

impl TokenVerifier {
    pub(crate) fn new(configured: &Configured) -> anyhow::Result<Self> {
        let jwt = &configured.config.auth.jwt;
        Ok(Self {
            algorithms: algorithms(configured)?,
            issuer: jwt.issuer.clone(),
            audience: jwt.audience.clone(),
            clock_difference: jwt.clock_difference,
        })
    }

    /// Returns the rights of the bearer of `token`. `now` and `since_epoch` are the same moment on two clocks.
    pub(crate) fn judge(
        &self,
        now: Instant,
        since_epoch: Duration,
        token: &[u8],
        issuers: &Issuers,
        revoked: &Revoked,
    ) -> Verdict {
        match self.claims(since_epoch, token, issuers) {
            Ok(claims) if revoked.covers(&claims) => Verdict::Final(Err(Denial::Revoked)),
            Ok(claims) => Verdict::Final(Self::grant(now, since_epoch, &claims)),
            Err(verdict) => verdict,
        }
    }

    fn grant(now: Instant, since_epoch: Duration, claims: &Claims) -> Result<Grant, Denial> {
        let left = Duration::from_secs(claims.exp)
            .checked_sub(since_epoch)
            .filter(|left| !left.is_zero());
        let left = left.ok_or(Denial::Expired)?;
        // Without a name, an owner could not come back while its lost session is still there.
        let owner = match (claims.own, &claims.sub) {
            (true, None) => return Err(Denial::Malformed),
            (true, subject @ Some(_)) => subject.clone(),
            (false, _) => None,
        };
        let namespaces =
            |prefixes: &Prefixes| prefixes.namespaces(&claims.root).ok_or(Denial::Malformed);
        Ok(Grant {
            publish: namespaces(&claims.put)?,
            subscribe: namespaces(&claims.get)?,
            // An `Instant` cannot hold a time that is centuries ahead.
            expires: now.checked_add(left.min(LIFETIME_MAX)),
            owner,
            bearer: match (&claims.sub, &claims.jti) {
                (Some(subject), Some(id)) => Some(format!("{subject} (jti {id})")),
                (Some(subject), None) => Some(subject.clone()),
                (None, Some(id)) => Some(format!("jti {id}")),
                (None, None) => None,
            },
        })
    }

    fn claims(
        &self,
        since_epoch: Duration,
        token: &[u8],
        issuers: &Issuers,
    ) -> Result<Claims, Verdict> {
        let refused = |denial| Err(Verdict::Final(Err(denial)));
        if token.len() > TOKEN_BYTES_MAX {
            return refused(Denial::Malformed);
        }
        // Decoding fails for unknown algorithms, `none` included.
        let Ok(header) = decode_header(token) else {
            return refused(Denial::Malformed);
        };
        if !self.algorithms.contains(&header.alg) {
            return refused(Denial::Untrusted);
        }
        let keys = issuers.current();
        let candidates = keys.iter().filter(|key| {
            let is_named = match (&header.kid, &key.id) {
                (Some(wanted), Some(id)) => wanted == id,
                // A token without a key ID may be of any key; a key without an ID may have signed any token.
                (None, _) | (_, None) => true,
            };
            is_named && key.algorithms.contains(&header.alg)
        });
        let validation = self.validation(header.alg);
        let mut is_known = false;
        for key in candidates.take(TRIES_MAX) {
            is_known = true;
            match decode::<Claims>(token, &key.key, &validation) {
                Ok(decoded) => return self.check_start(since_epoch, decoded.claims),
                Err(error) if matches!(error.kind(), ErrorKind::InvalidSignature) => {}
                Err(error) => return refused(denial(error.kind())),
            }
        }
        if is_known {
            return refused(Denial::Untrusted);
        }
        // The key may be new, and not fetched yet.
        issuers.refresh();
        Err(Verdict::Passing(Denial::Untrusted))
    }

    fn check_start(&self, since_epoch: Duration, claims: Claims) -> Result<Claims, Verdict> {
        let start = claims.nbf.map(Duration::from_secs);
        if start.is_some_and(|start| start > since_epoch + self.clock_difference) {
            return Err(Verdict::Passing(Denial::Unauthorized));
        }
        Ok(claims)
    }

    fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        // `grant` checks `exp` and `check_start` checks `nbf`, by the caller's clock.
        validation.validate_exp = false;
        let mut required = vec!["exp"];
        if let Some(issuer) = &self.issuer {
            validation.set_issuer(&[issuer]);
            required.push("iss");
        }
        if let Some(audience) = &self.audience {
            validation.set_audience(&[audience]);
            required.push("aud");
        }
        validation.set_required_spec_claims(&required);
        validation
    }
}

/// Returns the algorithms in `auth.jwt.algorithms`.
pub(crate) fn algorithms(configured: &Configured) -> anyhow::Result<Vec<Algorithm>> {
    let place = || configured.place("auth.jwt.algorithms");
    let names = &configured.config.auth.jwt.algorithms;
    if names.is_empty() {
        bail!("{}: expected at least one algorithm", place());
    }
    let read = |name: &String| {
        let algorithm: Result<Algorithm, _> = name.parse();
        let known = || {
            format!(
                "{}: unknown algorithm `{}`; expected algorithms such as ES256, EdDSA or RS256",
                place(),
                name.escape_debug()
            )
        };
        algorithm.with_context(known)
    };
    names.iter().map(read).collect()
}

fn denial(kind: &ErrorKind) -> Denial {
    let is_unreadable = matches!(
        kind,
        ErrorKind::InvalidToken | ErrorKind::Base64(_) | ErrorKind::Json(_) | ErrorKind::Utf8(_)
    );
    if is_unreadable {
        Denial::Malformed
    } else {
        Denial::Untrusted
    }
}

/// Most bytes of a token. A longer one is malformed.
const TOKEN_BYTES_MAX: usize = 8 << 10;
/// Most keys that are tried for one token. Each costs a signature check.
const TRIES_MAX: usize = 8;
/// Longest lifetime of a grant. A later `exp` counts as this.
const LIFETIME_MAX: Duration = Duration::from_hours(24 * 365 * 50);
