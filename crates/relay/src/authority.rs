//! Who may do what: the question that the relay asks before it serves anybody.
//!
//! What a credential means is not known here. An [`Authority`] judges it and answers with prefixes and a time; the
//! relay holds every request to that answer, for as long as the session lives.

use std::{fmt, time::Instant};

use bytes::Bytes;
use weir_moqt::{
    error::{RequestErrorCode, SessionError},
    name::Namespace,
    token::Token,
};

/// Judges credentials. It is asked once for each session, when its SETUP is there, and once for each request or
/// update that brings tokens of its own.
pub trait Authority: fmt::Debug + Send + Sync {
    /// What the bearer of `credentials` may do from `now` on, each grant for its own time. Whatever none of them names
    /// is refused; of several that name it, the one that lasts longest counts.
    fn grant(&self, now: Instant, credentials: &Credentials) -> Result<Vec<Grant>, Denial>;
}

/// What somebody shows to be let in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The AUTHORIZATION TOKENs of SETUP, in the order sent [moqt-18 §10.3.1.4].
    pub session_tokens: Vec<AccessToken>,
    /// Those of the request in question, aliases resolved; none when the session itself is judged.
    pub request_tokens: Vec<AccessToken>,
    /// Path and query of the URL that the session was opened with: PATH of SETUP, or WebTransport's.
    pub path: Option<String>,
    /// Host and port of that URL, if the client told.
    pub authority: Option<String>,
    /// Whether the client proved who it is with a certificate that the server trusts.
    pub has_client_certificate: bool,
}

/// One token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessToken {
    /// What kind of token it is; 0 for one agreed on elsewhere [moqt-18 §10.2.2].
    pub token_type: u64,
    /// The token itself.
    pub value: Bytes,
}

/// What somebody may do, and until when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Namespaces in and under which they may publish tracks and announce namespaces.
    pub publish: Vec<Namespace>,
    /// Namespaces in and under which they may ask for tracks, their state, their past and their names.
    pub subscribe: Vec<Namespace>,
    /// When it ends, together with all that was granted by it; `None` if never.
    pub expires: Option<Instant>,
}

/// Why nothing is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// Nothing that was shown permits it.
    #[error("nothing that was shown permits this")]
    Unauthorized,
    /// What was shown was good once.
    #[error("the authorization has expired")]
    Expired,
    /// What was shown cannot be read.
    #[error("the authorization token cannot be read")]
    Malformed,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Publish,
    Subscribe,
}

/// What a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) action: Action,
    pub(crate) namespace: Namespace,
}

/// The authority that lets everybody do everything, for as long as they like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Open;

impl Authority for Open {
    fn grant(&self, _now: Instant, _credentials: &Credentials) -> Result<Vec<Grant>, Denial> {
        Ok(vec![Grant::everything()])
    }
}

impl Grant {
    /// All namespaces, without end.
    pub fn everything() -> Self {
        Self {
            publish: vec![Namespace::EMPTY],
            subscribe: vec![Namespace::EMPTY],
            expires: None,
        }
    }

    /// Whether it covers `action` in `namespace`, or in all that lies under it.
    pub(crate) fn permits(&self, now: Instant, action: Action, namespace: &Namespace) -> bool {
        let prefixes = match action {
            Action::Publish => &self.publish,
            Action::Subscribe => &self.subscribe,
        };
        !self.is_over(now) && prefixes.iter().any(|prefix| namespace.starts_with(prefix))
    }

    /// Whether its time is over.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

impl Denial {
    /// The answer to a request that is denied [moqt-18 §10.6.2].
    pub(crate) fn code(self) -> RequestErrorCode {
        match self {
            Self::Unauthorized => RequestErrorCode::UNAUTHORIZED,
            Self::Expired => RequestErrorCode::EXPIRED_AUTH_TOKEN,
            Self::Malformed => RequestErrorCode::MALFORMED_AUTH_TOKEN,
        }
    }

    /// The end of a session whose own tokens are denied [moqt-18 §3.5].
    pub(crate) fn session_error(self) -> SessionError {
        match self {
            Self::Unauthorized => SessionError::UNAUTHORIZED,
            Self::Expired => SessionError::EXPIRED_AUTH_TOKEN,
            Self::Malformed => SessionError::MALFORMED_AUTH_TOKEN,
        }
    }
}

/// The tokens of a message whose aliases the session has resolved.
pub(crate) fn access_tokens(tokens: &[Token]) -> Vec<AccessToken> {
    let values = tokens.iter().filter_map(|token| match token {
        Token::UseValue { token_type, value }
        | Token::Register {
            token_type, value, ..
        } => {
            // A copy, so that what is kept of a session does not keep whole messages alive.
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
