//! JSON Web Tokens (RFC 7519): what makes one good, and what it grants.
//!
//! The crate `jsonwebtoken` checks signatures and times. Here stand the rules around it: which algorithms, which
//! key, which claims have to be there.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header, errors::ErrorKind};
use serde::{Deserialize, Serialize};
use weir_moqt::name::Namespace;
use weir_relay::{Denial, Grant};

use crate::relay::{authority::issuers::Issuers, config::Configured};

/// The claims that count; others are ignored.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct Claims {
    /// In front of all prefixes of `put` and `get`.
    #[serde(default, skip_serializing_if = "Prefix::is_empty")]
    pub(crate) root: Prefix,
    /// Where the bearer may publish.
    #[serde(default, skip_serializing_if = "Prefixes::is_empty")]
    pub(crate) put: Prefixes,
    /// What the bearer may subscribe to.
    #[serde(default, skip_serializing_if = "Prefixes::is_empty")]
    pub(crate) get: Prefixes,
    /// When it ends, in seconds since 1970. Has to be there.
    pub(crate) exp: u64,
    /// Before when it is not good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) nbf: Option<u64>,
    /// Whom it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) aud: Option<serde_json::Value>,
    /// Who made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) iss: Option<String>,
}

/// A namespace, or the beginning of some.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub(crate) enum Prefix {
    /// Fields with `/` between them.
    Path(String),
    /// Each field by itself; it may hold `/`.
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
    /// Its name in the headers of tokens, if it has one.
    pub(crate) id: Option<String>,
    /// What it may sign with: fixed here, whatever a token says of itself.
    pub(crate) algorithms: Vec<Algorithm>,
    pub(crate) key: DecodingKey,
}

/// Tells good tokens from bad ones.
#[derive(Debug)]
pub(crate) struct Judge {
    algorithms: Vec<Algorithm>,
    issuer: Option<String>,
    audience: Option<String>,
    clock_difference: Duration,
}

impl Judge {
    pub(crate) fn new(configured: &Configured) -> anyhow::Result<Self> {
        let jwt = &configured.config.auth.jwt;
        Ok(Self {
            algorithms: algorithms(configured)?,
            issuer: jwt.issuer.clone(),
            audience: jwt.audience.clone(),
            clock_difference: jwt.clock_difference,
        })
    }

    /// What the bearer of `token` may do. `now` and `since_epoch` are the same moment on two clocks.
    pub(crate) fn grant(
        &self,
        now: Instant,
        since_epoch: Duration,
        token: &[u8],
        issuers: &Issuers,
    ) -> Result<Grant, Denial> {
        let claims = self.claims(since_epoch, token, issuers)?;
        let left = Duration::from_secs(claims.exp)
            .checked_sub(since_epoch)
            .filter(|left| !left.is_zero());
        let left = left.ok_or(Denial::Expired)?;
        let namespaces =
            |prefixes: &Prefixes| prefixes.namespaces(&claims.root).ok_or(Denial::Malformed);
        Ok(Grant {
            publish: namespaces(&claims.put)?,
            subscribe: namespaces(&claims.get)?,
            // Centuries ahead is as good as without end, and no clock can hold more.
            expires: now.checked_add(left.min(LIFETIME_MAX)),
        })
    }

    fn claims(
        &self,
        since_epoch: Duration,
        token: &[u8],
        issuers: &Issuers,
    ) -> Result<Claims, Denial> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Denial::Malformed);
        }
        // An unknown algorithm, `none` included, cannot be read.
        let header = decode_header(token).map_err(|_| Denial::Malformed)?;
        if !self.algorithms.contains(&header.alg) {
            return Err(Denial::Unauthorized);
        }
        let keys = issuers.current();
        let candidates = keys.iter().filter(|key| {
            let is_named = match (&header.kid, &key.id) {
                (Some(wanted), Some(id)) => wanted == id,
                // A token that names no key may be from any; a key without a name may have signed any.
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
                Err(error) => return Err(denial(error.kind())),
            }
        }
        if !is_known {
            // It may be new: the issuer changes its keys before we hear of it.
            issuers.refresh();
        }
        Err(Denial::Unauthorized)
    }

    fn check_start(&self, since_epoch: Duration, claims: Claims) -> Result<Claims, Denial> {
        let start = claims.nbf.map(Duration::from_secs);
        if start.is_some_and(|start| start > since_epoch + self.clock_difference) {
            return Err(Denial::Unauthorized);
        }
        Ok(claims)
    }

    fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        // The end is enforced to the second, and `nbf` above, by the clock that the caller gives.
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

/// The algorithms that the configuration accepts.
pub(crate) fn algorithms(configured: &Configured) -> anyhow::Result<Vec<Algorithm>> {
    let place = || configured.place("auth.jwt.algorithms");
    let names = &configured.config.auth.jwt.algorithms;
    if names.is_empty() {
        bail!("{}: expected one at least", place());
    }
    let read = |name: &String| {
        let algorithm: Result<Algorithm, _> = name.parse();
        let known = || {
            format!(
                "{}: `{}` is no algorithm that is known",
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
        Denial::Unauthorized
    }
}

/// Bytes of a token; a longer one is not looked at.
const TOKEN_BYTES_MAX: usize = 8 << 10;
/// Keys that are tried for one token: each costs a signature check.
const TRIES_MAX: usize = 8;
/// How far ahead the end of a token is looked for.
const LIFETIME_MAX: Duration = Duration::from_hours(24 * 365 * 50);
