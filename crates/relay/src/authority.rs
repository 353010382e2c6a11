//! Authorization: the interface that decides what each session and request may do.
//!
//! The relay does not interpret credentials. An [`Authority`] judges them and returns grants: namespace prefixes with
//! an expiry time. The relay applies them to every request for as long as the session lives.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    time::Instant,
};

use bytes::Bytes;
use weir_moqt::{
    error::{RequestErrorCode, SessionError},
    name::Namespace,
    token::Token,
};

/// Judges credentials: once for each session, on its SETUP, and once for each request or update that carries tokens.
pub trait Authority: fmt::Debug + Send + Sync {
    /// Returns what the bearer of `credentials` may do from `now` on. Each grant has its own expiry. What no grant
    /// names is refused; if several grants name it, the one that expires last counts. `memo` holds what was found out
    /// about the tokens of the same session before.
    fn grant(
        &self,
        now: Instant,
        credentials: &Credentials,
        memo: &mut TokenMemo,
    ) -> Result<Vec<Grant>, Denial>;

    /// Returns a number that changes with the keys or rules by which tokens are judged. Then the relay judges all
    /// sessions again, and ends what is not permitted any longer.
    fn revision(&self) -> u64 {
        0
    }
}

/// What an authority found out about the tokens of one session, so that it verifies each text once: a request of a few
/// bytes can name a hundred registered tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenMemo {
    revision: u64,
    verdicts: BTreeMap<Bytes, Result<Grant, Denial>>,
    /// The tokens, the oldest first.
    order: VecDeque<Bytes>,
    bytes: usize,
    /// How often a token was verified.
    verified: usize,
}

/// What a token permits, and whether that may change before the authority's revision does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The verdict stays.
    Final(Result<Grant, Denial>),
    /// The token may be judged otherwise later, such as one that is not valid yet.
    Passing(Denial),
}

impl TokenMemo {
    /// Returns how often a token was verified.
    pub(crate) fn verified(&self) -> usize {
        self.verified
    }

    /// Returns about how many bytes it is in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes + self.order.len() * MEMO_TOKEN_BYTES
    }

    /// Returns the final verdict on a token, if there is one of the same `revision` of the authority; otherwise the
    /// result of `verify`.
    pub fn judge(
        &mut self,
        revision: u64,
        token: &[u8],
        verify: impl FnOnce() -> Verdict,
    ) -> Result<Grant, Denial> {
        if self.revision != revision {
            *self = Self {
                revision,
                verified: self.verified,
                ..Self::default()
            };
        }
        if let Some(known) = self.verdicts.get(token) {
            return known.clone();
        }
        self.verified += 1;
        let verdict = match verify() {
            Verdict::Final(verdict) => verdict,
            Verdict::Passing(denial) => return Err(denial),
        };
        if token.len() > MEMO_BYTES_MAX / 4 {
            // It would take the place of all others. An authority refuses one as long before it verifies a signature.
            return verdict;
        }
        let token = Bytes::copy_from_slice(token);
        self.bytes += token.len();
        self.order.push_back(token.clone());
        self.verdicts.insert(token, verdict.clone());
        while self.bytes > MEMO_BYTES_MAX || self.order.len() > MEMO_TOKENS_MAX {
            let Some(oldest) = self.order.pop_front() else {
                break;
            };
            self.bytes -= oldest.len();
            self.verdicts.remove(&oldest);
        }
        verdict
    }
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
    /// The owner to whom the namespaces that the bearer publishes in are reserved while one of the owner's sessions is
    /// connected: others may not publish there, and what they published before ends. `None`: no reservation.
    pub owner: Option<String>,
    /// The name of the bearer in log lines, such as a token's `sub` and `jti`; it has been verified.
    pub bearer: Option<String>,
}

/// How a request is permitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Permission {
    /// Until when; `None` if without end.
    pub(crate) expires: Option<Instant>,
    /// The owner to whom its namespace is reserved.
    pub(crate) owner: Option<String>,
}

/// Why nothing is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// The credentials do not permit it.
    #[error("the credentials do not permit this")]
    Unauthorized,
    /// No trusted key signed the token, or it is for somebody else.
    #[error("no trusted key signed the token, or its issuer or audience is another")]
    Untrusted,
    /// The token was revoked.
    #[error("the token was revoked")]
    Revoked,
    /// The credentials have expired.
    #[error("the authorization has expired")]
    Expired,
    /// The credentials cannot be read.
    #[error("the authorization token cannot be read")]
    Malformed,
    /// The namespace is reserved to another publisher.
    #[error("the namespace is reserved to another publisher")]
    Owned,
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
    fn grant(
        &self,
        _now: Instant,
        _credentials: &Credentials,
        _memo: &mut TokenMemo,
    ) -> Result<Vec<Grant>, Denial> {
        Ok(vec![Grant::everything()])
    }
}

impl Grant {
    /// A grant of all namespaces that does not expire.
    pub fn everything() -> Self {
        Self {
            publish: vec![Namespace::EMPTY],
            subscribe: vec![Namespace::EMPTY],
            ..Self::default()
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
            Self::Unauthorized | Self::Untrusted | Self::Revoked | Self::Owned => {
                RequestErrorCode::UNAUTHORIZED
            }
            Self::Expired => RequestErrorCode::EXPIRED_AUTH_TOKEN,
            Self::Malformed => RequestErrorCode::MALFORMED_AUTH_TOKEN,
        }
    }

    /// Returns the error that closes a session whose SETUP tokens are denied [moqt-18 §3.5].
    pub(crate) fn session_error(self) -> SessionError {
        match self {
            Self::Unauthorized | Self::Untrusted | Self::Revoked | Self::Owned => {
                SessionError::UNAUTHORIZED
            }
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

/// Tokens of one message. With more, they are malformed: each may cost a signature check.
pub(crate) const TOKENS_MAX: usize = 8;
/// Verdicts kept for one session: more than the tokens that it can register by default.
const MEMO_TOKENS_MAX: usize = 1024;
/// About what a verdict costs beside its token.
const MEMO_TOKEN_BYTES: usize = 256;
/// Bytes of the tokens with a verdict.
const MEMO_BYTES_MAX: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tests::epoch;

    #[test]
    fn each_text_is_verified_once_in_each_revision() {
        let (mut memo, mut verified) = (TokenMemo::default(), 0);
        let mut judge = |revision, token: &[u8], verdict: Verdict| {
            let before = verified;
            let result = memo.judge(revision, token, || {
                verified += 1;
                verdict
            });
            (result, verified - before)
        };
        let granted = || Verdict::Final(Ok(Grant::everything()));
        let denied = || Verdict::Final(Err(Denial::Unauthorized));
        assert_eq!(judge(0, b"a", granted()), (Ok(Grant::everything()), 1));
        assert_eq!(judge(0, b"a", denied()), (Ok(Grant::everything()), 0));
        assert_eq!(judge(0, b"b", denied()), (Err(Denial::Unauthorized), 1));
        assert_eq!(judge(0, b"b", granted()), (Err(Denial::Unauthorized), 0));
        // A key may come, or a token become valid.
        let passing = || Verdict::Passing(Denial::Expired);
        assert_eq!(judge(0, b"c", passing()), (Err(Denial::Expired), 1));
        assert_eq!(judge(0, b"c", granted()), (Ok(Grant::everything()), 1));
        assert_eq!(judge(1, b"a", denied()), (Err(Denial::Unauthorized), 1));
    }

    #[test]
    fn verdicts_are_bounded_and_the_newest_stay() {
        let mut memo = TokenMemo::default();
        let mut judge = |token: &[u8]| {
            let mut is_new = false;
            let _granted = memo.judge(0, token, || {
                is_new = true;
                Verdict::Final(Ok(Grant::default()))
            });
            is_new
        };
        let tokens: Vec<_> = (0..=MEMO_TOKENS_MAX).map(|n| n.to_string()).collect();
        for token in &tokens[..MEMO_TOKENS_MAX] {
            assert!(judge(token.as_bytes()));
        }
        assert!(!judge(b"0"), "at the limit");
        assert!(judge(tokens[MEMO_TOKENS_MAX].as_bytes()));
        assert!(judge(b"0") && !judge(b"2"), "one past it");
        let large = [b'a', b'b', b'c', b'd'].map(|one| vec![one; MEMO_BYTES_MAX / 4]);
        assert!(large.iter().all(|token| judge(token)));
        assert!(
            large.iter().all(|token| !judge(token)),
            "at the limit of bytes"
        );
        assert!(judge(b"y") && judge(&large[0]), "a byte past it");
        let too_large = vec![b'x'; MEMO_BYTES_MAX / 4 + 1];
        assert!(judge(&too_large) && judge(&too_large), "it takes no place");
        assert!(!judge(&large[3]));
        assert!(memo.bytes <= MEMO_BYTES_MAX);
        assert!(memo.held_bytes() > memo.bytes);
    }

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
            ..Grant::default()
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
