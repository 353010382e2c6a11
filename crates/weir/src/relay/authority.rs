//! Rights of clients: by token, by client certificate, or without credentials.

pub(crate) mod issuers;
mod jwt;
pub(crate) mod revoked;
mod signer;

use std::{path::Path, sync::Arc, time::Instant};

use anyhow::Context as _;
use weir_moqt::name::Namespace;
use weir_net::clock;
use weir_relay::{Authority, Credentials, Denial, Grant, TokenMemo};

use crate::relay::{
    authority::{issuers::Issuers, jwt::TokenVerifier, revoked::RevokedFile},
    config::Configured,
};

pub(crate) use issuers::Keys;
pub(crate) use jwt::{Claims, Prefix, Prefixes};
pub(crate) use signer::{Signer, public};

/// The authority of `weir relay`: grants what the settings in `[auth]` say.
#[derive(Debug)]
pub(crate) struct Gate {
    /// Rights of clients without credentials.
    anonymous: Grant,
    /// Rights of clients with a trusted certificate; `None` if `auth.clients.ca` is not set.
    clients: Option<Grant>,
    /// Verification of tokens; `None` if no keys are configured.
    tokens: Option<(TokenVerifier, Arc<Issuers>)>,
    /// Tokens that are refused although they are valid.
    revoked: RevokedFile,
}

impl Gate {
    /// Loads the keys and prefixes of the configuration. The error names the setting or file.
    pub(crate) fn load(configured: &Configured) -> anyhow::Result<Self> {
        let auth = &configured.config.auth;
        let grant = |section: &str, publish: &[String], subscribe: &[String]| {
            let read = |end: &str, prefixes: &[String]| {
                let key = format!("auth.{section}.{end}");
                namespaces(prefixes).with_context(|| configured.place(&key))
            };
            anyhow::Ok(Grant {
                publish: read("publish", publish)?,
                subscribe: read("subscribe", subscribe)?,
                expires: None,
                owner: None,
                bearer: None,
            })
        };
        let jwt = &auth.jwt;
        let has_tokens = !jwt.keys.is_empty() || jwt.jwks_url.is_some();
        let tokens = has_tokens.then(|| {
            let verifier = TokenVerifier::new(configured)?;
            anyhow::Ok((verifier, Arc::new(Issuers::load(configured)?)))
        });
        // Everything is permitted only if no authentication is configured.
        let is_open = !has_tokens && auth.clients.ca.is_none();
        let fallback = if is_open {
            vec![String::new()]
        } else {
            Vec::new()
        };
        let or_fallback =
            |list: &Option<Vec<String>>| list.clone().unwrap_or_else(|| fallback.clone());
        let anonymous = &auth.anonymous;
        let (publish, subscribe) = (
            or_fallback(&anonymous.publish),
            or_fallback(&anonymous.subscribe),
        );
        let clients = auth
            .clients
            .ca
            .as_ref()
            .map(|_| grant("clients", &auth.clients.publish, &auth.clients.subscribe));
        Ok(Self {
            anonymous: grant("anonymous", &publish, &subscribe)?,
            clients: clients.transpose()?,
            tokens: tokens.transpose()?,
            revoked: RevokedFile::load(configured)?,
        })
    }

    /// Returns whether clients without credentials may do everything.
    pub(crate) fn is_open(&self) -> bool {
        self.anonymous == Grant::everything()
    }

    /// Reloads the files with keys and revoked tokens. If one is bad, what was loaded stays.
    pub(crate) fn reload(&self) -> anyhow::Result<()> {
        self.revoked.reload()?;
        self.tokens
            .as_ref()
            .map_or(Ok(()), |(_, issuers)| issuers.reload())
    }

    /// Returns the files whose change causes a reload.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        let keys = self.tokens.iter().flat_map(|(_, issuers)| issuers.files());
        keys.chain(self.revoked.path())
    }

    pub(crate) fn keys(&self) -> Keys {
        self.tokens
            .as_ref()
            .map_or_else(Keys::default, |(_, issuers)| issuers.numbers())
    }

    /// Starts the thread that fetches keys, if `auth.jwt.jwks_url` is set.
    pub(crate) fn start(&self) -> anyhow::Result<()> {
        match &self.tokens {
            Some((_, issuers)) => Issuers::start(issuers),
            None => Ok(()),
        }
    }
}

impl Authority for Gate {
    /// Returns the rights of a request. A bad token is an error: such a client does not get the rights of clients without
    /// credentials. If a request has tokens of its own, bad or expired tokens of its session are ignored.
    fn grant(
        &self,
        now: Instant,
        credentials: &Credentials,
        memo: &mut TokenMemo,
    ) -> Result<Vec<Grant>, Denial> {
        let mut grants = Vec::new();
        if let Some((verifier, issuers)) = &self.tokens {
            let (revision, revoked) = (self.revision(), self.revoked.current());
            let mut grant = |token: &[u8]| {
                memo.judge(revision, token, || {
                    verifier.judge(now, clock::since_epoch(), token, issuers, &revoked)
                })
            };
            let url_token = credentials.path.as_deref().and_then(token_in_path);
            let session = credentials
                .session_tokens
                .iter()
                .map(|token| &token.value[..]);
            let session = session.chain(url_token.map(str::as_bytes));
            if credentials.request_tokens.is_empty() {
                grants = session.map(grant).collect::<Result<_, _>>()?;
            } else {
                grants.extend(session.flat_map(&mut grant));
                for token in &credentials.request_tokens {
                    grants.push(grant(&token.value)?);
                }
            }
        }
        if let Some(grant) = self
            .clients
            .as_ref()
            .filter(|_| credentials.has_client_certificate)
        {
            grants.push(grant.clone());
        }
        if grants.is_empty() {
            return Ok(vec![self.anonymous.clone()]);
        }
        Ok(grants)
    }

    fn revision(&self) -> u64 {
        let issuers = self.tokens.as_ref().map(|(_, issuers)| issuers.revision());
        issuers.unwrap_or_default() + self.revoked.revision()
    }
}

/// Returns the token in the query of a URL's path: `/live?jwt=TOKEN`.
fn token_in_path(path: &str) -> Option<&str> {
    let (_, query) = path.split_once('?')?;
    query.split('&').find_map(|pair| pair.strip_prefix("jwt="))
}

/// Returns the namespaces of prefixes in the configuration: fields separated by `/`; an empty text is all namespaces.
fn namespaces(prefixes: &[String]) -> anyhow::Result<Vec<Namespace>> {
    let read = |prefix: &String| {
        let fields: Vec<&str> = prefix
            .split('/')
            .filter(|field| !field.is_empty())
            .collect();
        let namespace = Namespace::new(&fields);
        namespace.with_context(|| format!("`{}` is not a namespace", prefix.escape_debug()))
    };
    prefixes.iter().map(read).collect()
}

#[cfg(test)]
mod tests;
