//! Authorization: the interface that decides what each session and request may do.
//!
//! The relay does not interpret credentials. An [`Authority`] judges them and returns grants: namespace prefixes with
//! an expiry time. The relay applies them to every request for as long as the session lives.

use std::{fmt, time::Instant};

use bytes::Bytes;
use weir_moqt::{
    error::{RequestErrorCode, SessionError},
    name::Namespace,
    token::Token,
};

/// Judges credentials: once for each session, on its SETUP, and once for each request or update that carries tokens.
pub trait Authority: fmt::Debug + Send + Sync {
    /// Returns what the bearer of `credentials` may do from `now` on. Each grant has its own expiry. What no grant
    /// names is refused; if several grants name it, the one that expires last counts.
    fn grant(&self, now: Instant, credentials: &Credentials) -> Result<Vec<Grant>, Denial>;
}

/// The credentials that a client presents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The AUTHORIZATION TOKENs of SETUP, in the order sent [moqt-18 §10.3.1.4].
    pub session_tokens: Vec<AccessToken>,
    /// The tokens of the request being judged, with aliases resolved; empty when the session itself is judged.
    pub request_tokens: Vec<AccessToken>,
    /// Path and query of the URL that the session was opened with, from the PATH option of SETUP or the WebTransport
    /// request.
    pub path: Option<String>,
    /// Host and port of that URL, if the client sent them.
    pub authority: Option<String>,
    /// Whether the client presented a certificate that the server trusts.
    pub has_client_certificate: bool,
}

/// An authorization token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessToken {
    /// The token type; 0 for a type agreed out of band [moqt-18 §10.2.2].
    pub token_type: u64,
    /// The token value.
    pub value: Bytes,
}

/// A permission, and when it expires.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Namespace prefixes under which the bearer may publish tracks and announce namespaces.
    pub publish: Vec<Namespace>,
    /// Namespace prefixes under which the bearer may subscribe to tracks and namespaces, fetch objects, and request
    /// track status.
    pub subscribe: Vec<Namespace>,
    /// When the grant expires, with everything that it permitted; `None` if never.
    pub expires: Option<Instant>,
}

/// Why nothing is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// The credentials do not permit it.
    #[error("the credentials do not permit this")]
    Unauthorized,
    /// The credentials have expired.
    #[error("the authorization has expired")]
    Expired,
    /// The credentials cannot be read.
    #[error("the authorization token cannot be read")]
    Malformed,
}

/// The action of a request, as far as authorization distinguishes actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Publish,
    Subscribe,
}

/// The subject of a request, for authorization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) action: Action,
    pub(crate) namespace: Namespace,
}

/// The authority that permits everything, without expiry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Open;

impl Authority for Open {
    fn grant(&self, _now: Instant, _credentials: &Credentials) -> Result<Vec<Grant>, Denial> {
        Ok(vec![Grant::everything()])
    }
}

impl Grant {
    /// A grant of all namespaces that does not expire.
    pub fn everything() -> Self {
        Self {
            publish: vec![Namespace::EMPTY],
            subscribe: vec![Namespace::EMPTY],
            expires: None,
        }
    }

    /// Returns whether the grant covers `action` in `namespace` and everything under it.
    pub(crate) fn permits(&self, now: Instant, action: Action, namespace: &Namespace) -> bool {
        let prefixes = match action {
            Action::Publish => &self.publish,
            Action::Subscribe => &self.subscribe,
        };
        !self.is_over(now) && prefixes.iter().any(|prefix| namespace.starts_with(prefix))
    }

    /// Returns whether the grant has expired.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

impl Denial {
    /// Returns the error code for a request that is denied [moqt-18 §10.6.2].
    pub(crate) fn code(self) -> RequestErrorCode {
        match self {
            Self::Unauthorized => RequestErrorCode::UNAUTHORIZED,
            Self::Expired => RequestErrorCode::EXPIRED_AUTH_TOKEN,
            Self::Malformed => RequestErrorCode::MALFORMED_AUTH_TOKEN,
        }
    }

    /// Returns the error that closes a session whose SETUP tokens are denied [moqt-18 §3.5].
    pub(crate) fn session_error(self) -> SessionError {
        match self {
            Self::Unauthorized => SessionError::UNAUTHORIZED,
            Self::Expired => SessionError::EXPIRED_AUTH_TOKEN,
            Self::Malformed => SessionError::MALFORMED_AUTH_TOKEN,
        }
    }
}

/// Returns the tokens of a message whose aliases the session has resolved.
pub(crate) fn access_tokens(tokens: &[Token]) -> Vec<AccessToken> {
    let values = tokens.iter().filter_map(|token| match token {
        Token::UseValue { token_type, value }
        | Token::Register {
            token_type, value, ..
        } => {
            // A copy, so that a kept token does not hold its whole message in memory.
            let value = Bytes::copy_from_slice(value);
            Some(AccessToken {
                token_type: *token_type,
                value,
            })
        }
        Token::Delete { .. } | Token::UseAlias { .. } => None,
    });
    values.collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tests::epoch;

    fn namespace(fields: &[&str]) -> Namespace {
        Namespace::new(fields).unwrap()
    }

    #[test]
    fn a_grant_covers_its_prefixes_for_its_time_and_nothing_else() {
        let now = epoch();
        let grant = Grant {
            publish: vec![namespace(&["a", "b"])],
            subscribe: vec![namespace(&["a"])],
            expires: Some(now + Duration::from_secs(1)),
        };
        let publishes = |fields: &[&str]| grant.permits(now, Action::Publish, &namespace(fields));
        assert!(publishes(&["a", "b"]) && publishes(&["a", "b", "c"]));
        assert!(!publishes(&["a"]) && !publishes(&["a", "bc"]) && !publishes(&[]));
        assert!(grant.permits(now, Action::Subscribe, &namespace(&["a", "x"])));
        let late = now + Duration::from_secs(1);
        assert!(!grant.permits(late, Action::Subscribe, &namespace(&["a", "x"])));
        assert!(!Grant::default().permits(now, Action::Subscribe, &Namespace::EMPTY));
        assert!(Grant::everything().permits(late, Action::Publish, &Namespace::EMPTY));
    }
}
