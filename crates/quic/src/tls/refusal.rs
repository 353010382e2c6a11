//! Why a client refused the certificate of a server.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustls::{CertificateError, Error, OtherError, pki_types::UnixTime};

/// The latest certificate errors of a client's handshakes.
///
/// The engine reports a failed handshake only as the text of the error. The text identifies the error in this list.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    latest: Mutex<VecDeque<(CertificateError, Proof)>>,
}

/// A proof that a server could not give. The library has equal errors for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// That its certificate leads to a trusted one.
    Chain,
    /// That it has the key of its certificate.
    Possession,
}

/// The error that the certificate of a server has this hash, which is none of the trusted ones.
#[derive(Debug)]
pub(super) struct OtherHash(pub(super) [u8; 32]);

impl fmt::Display for OtherHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the certificate's hash is not the trusted one but ")?;
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        f.write_str("; ask the server for its hash again")
    }
}

impl std::error::Error for OtherHash {}

impl From<OtherHash> for CertificateError {
    fn from(error: OtherHash) -> Self {
        Self::Other(OtherError(Arc::new(error)))
    }
}

impl Refusals {
    /// Records an error that the verifier is about to return.
    pub(super) fn note(&self, error: CertificateError, proof: Proof) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.len() == REFUSALS_MAX {
            latest.pop_front();
        }
        latest.push_back((error, proof));
    }

    /// Returns the reason for a refusal that the engine reports with `text`, as a sentence; `None` if the handshake
    /// failed for another reason.
    pub(crate) fn sentence(&self, text: &str) -> Option<String> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let mut latest = latest.iter().rev();
        let (error, proof) =
            latest.find(|(error, _)| Error::from(error.clone()).to_string() == text)?;
        Some(sentence(error, *proof))
    }
}

/// Returns the reason as a sentence. The library's own texts are mostly the names of its variants, with times in
/// seconds since 1970.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the enum is open, and one of its variants is deprecated"
)]
fn sentence(error: &CertificateError, proof: Proof) -> String {
    match error {
        CertificateError::BadEncoding => {
            "the certificate is not well formed; the server needs another one".to_owned()
        }
        CertificateError::Expired => format!("{EXPIRED}; {RENEW}"),
        CertificateError::ExpiredContext { time, not_after } => {
            format!("{EXPIRED} ({} ago); {RENEW}", rounded(*not_after, *time))
        }
        CertificateError::NotValidYet => format!("{NOT_VALID_YET}; {CHECK_CLOCKS}"),
        CertificateError::NotValidYetContext { time, not_before } => {
            let left = rounded(*time, *not_before);
            format!("{NOT_VALID_YET} (only in {left}); {CHECK_CLOCKS}")
        }
        CertificateError::Revoked => {
            "the certificate was revoked; the server needs another one".to_owned()
        }
        CertificateError::UnhandledCriticalExtension => {
            "the certificate has a critical extension that this client does not support".to_owned()
        }
        CertificateError::UnknownIssuer => {
            "the certificate's issuer is not trusted; trust the issuer's certificate, or this one by its hash"
                .to_owned()
        }
        CertificateError::BadSignature if proof == Proof::Possession => {
            "the server does not have the key of its certificate".to_owned()
        }
        CertificateError::BadSignature => OTHER_KEY.to_owned(),
        CertificateError::UnsupportedSignatureAlgorithmContext { .. } => {
            "the certificate's signature algorithm is not supported".to_owned()
        }
        CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            OTHER_KEY.to_owned()
        }
        CertificateError::NotValidForName => {
            "the certificate is not valid for the server's name; use a name that the certificate has".to_owned()
        }
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => {
            let names = names(presented);
            format!(
                "the certificate is not valid for the name {}, {names}",
                expected.to_str()
            )
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "the certificate is not for servers: its extended key usage lacks server authentication".to_owned()
        }
        error => revocation_sentence(error)
            .or_else(|| other_sentence(error))
            .unwrap_or_else(|| format!("the certificate was refused: {error}")),
    }
}

/// Returns the reason as a sentence, if the revocation status is not known.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the enum is open, and one of its variants is deprecated"
)]
fn revocation_sentence(error: &CertificateError) -> Option<String> {
    Some(match error {
        CertificateError::UnknownRevocationStatus => REVOCATION_UNKNOWN.to_owned(),
        CertificateError::ExpiredRevocationList => {
            format!("{REVOCATION_UNKNOWN}: the revocation list has expired")
        }
        CertificateError::ExpiredRevocationListContext { time, next_update } => {
            let since = rounded(*next_update, *time);
            format!("{REVOCATION_UNKNOWN}: the revocation list has expired ({since} ago)")
        }
        _ => return None,
    })
}

/// Returns the reason as a sentence, if it is one of the verifiers' own errors.
fn other_sentence(error: &CertificateError) -> Option<String> {
    let CertificateError::Other(other) = error else {
        return None;
    };
    if let Some(other) = other.0.downcast_ref::<OtherHash>() {
        return Some(other.to_string());
    }
    match other.0.downcast_ref() {
        Some(webpki::Error::CaUsedAsEndEntity) => Some(
            "the certificate is a CA certificate; a server needs one with CA:FALSE, which `openssl req -x509` \
             does not make by default"
                .to_owned(),
        ),
        Some(webpki::Error::UnsupportedCertVersion) => {
            Some("the certificate is not X.509 version 3; the server needs another one".to_owned())
        }
        Some(_) | None => None,
    }
}

/// Returns which names a certificate has, as `only for a, b or ::1`, and what to do.
fn names(presented: &[String]) -> String {
    let plain: Vec<&str> = presented.iter().map(|name| plain_name(name)).collect();
    match &plain[..] {
        [] => "nor for another one; the server needs a certificate with a subject alternative name"
            .to_owned(),
        [one] => format!("only for {one}; use that name"),
        [first @ .., last] => {
            format!(
                "only for {} or {last}; use one of these names",
                first.join(", ")
            )
        }
    }
}

/// Returns a name without its kind; the library formats it as `DnsName("a")` or `IpAddress(::1)`.
fn plain_name(name: &str) -> &str {
    let inner = name
        .split_once('(')
        .and_then(|(_, inner)| inner.strip_suffix(')'));
    inner.map_or(name, |inner| inner.trim_matches('"'))
}

/// Returns the time from `start` to `end` in the largest unit of which there is more than one: `2 hours`.
fn rounded(start: UnixTime, end: UnixTime) -> String {
    let seconds = Duration::from_secs(end.as_secs().saturating_sub(start.as_secs())).as_secs();
    let (unit, count) = [("days", 86_400), ("hours", 3600), ("seconds", 1)]
        .map(|(unit, length)| (unit, seconds / length))
        .into_iter()
        .find(|(_, count)| *count > 1)
        .unwrap_or(("seconds", seconds));
    format!("{count} {unit}")
}

const OTHER_KEY: &str = "a trusted certificate has the name of this certificate's issuer, but another key; trust the issuer's \
                         certificate, or this one by its hash";
const EXPIRED: &str = "the certificate has expired";
const NOT_VALID_YET: &str = "the certificate is not valid yet";
const REVOCATION_UNKNOWN: &str = "the certificate's revocation status is not known";
const RENEW: &str = "the server needs another one, or a clock is wrong";
const CHECK_CLOCKS: &str = "check the clocks of both machines";

/// Errors that are kept: many threads may refuse certificates at the same time, and each reads its own error at once.
const REFUSALS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use rustls::pki_types::ServerName;

    use super::*;

    #[test]
    fn reasons_are_sentences() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let name = |presented: &[&str]| CertificateError::NotValidForNameContext {
            expected: ServerName::try_from("elsewhere").unwrap(),
            presented: presented.iter().map(|one| (*one).to_owned()).collect(),
        };
        for (error, expected) in [
            (
                CertificateError::ExpiredContext {
                    time: at(5000),
                    not_after: at(2000),
                },
                "the certificate has expired (3000 seconds ago); the server needs another one, or a clock is wrong",
            ),
            (
                CertificateError::ExpiredContext {
                    time: at(900_000),
                    not_after: at(1000),
                },
                "the certificate has expired (10 days ago); the server needs another one, or a clock is wrong",
            ),
            (
                CertificateError::NotValidYetContext {
                    time: at(5000),
                    not_before: at(5060),
                },
                "the certificate is not valid yet (only in 60 seconds); check the clocks of both machines",
            ),
            (
                CertificateError::ExpiredRevocationListContext {
                    time: at(5000),
                    next_update: at(4000),
                },
                "the certificate's revocation status is not known: the revocation list has expired (1000 seconds ago)",
            ),
            (
                CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext {
                    signature_algorithm_id: vec![1],
                    public_key_algorithm_id: vec![2],
                },
                OTHER_KEY,
            ),
            (
                CertificateError::Other(OtherError(Arc::new(webpki::Error::CaUsedAsEndEntity))),
                "the certificate is a CA certificate; a server needs one with CA:FALSE, which `openssl req -x509` does not \
                 make by default",
            ),
            (
                CertificateError::InvalidOcspResponse,
                "the certificate was refused: InvalidOcspResponse",
            ),
            (
                name(&[]),
                "the certificate is not valid for the name elsewhere, nor for another one; the server needs a certificate with \
                 a subject alternative name",
            ),
            (
                name(&["DnsName(\"a\")"]),
                "the certificate is not valid for the name elsewhere, only for a; use that name",
            ),
            (
                name(&["DnsName(\"a\")", "DnsName(\"b\")", "IpAddress(::1)"]),
                "the certificate is not valid for the name elsewhere, only for a, b or ::1; use one of these names",
            ),
        ] {
            assert_eq!(sentence(&error, Proof::Chain), expected);
        }
    }

    #[test]
    fn a_hash_that_is_not_trusted_is_named() {
        let error = OtherHash([0xA5; 32]).into();
        let expected = format!(
            "the certificate's hash is not the trusted one but {}; ask the server for its hash again",
            "a5".repeat(32)
        );
        assert_eq!(sentence(&error, Proof::Chain), expected);
    }

    #[test]
    fn a_wrong_signature_is_of_the_issuer_or_of_the_server() {
        let error = CertificateError::BadSignature;
        assert_eq!(sentence(&error, Proof::Chain), OTHER_KEY);
        let expected = "the server does not have the key of its certificate";
        assert_eq!(sentence(&error, Proof::Possession), expected);
    }

    #[test]
    fn the_latest_errors_are_kept_up_to_the_limit() {
        let refusals = Refusals::default();
        let text = |error: CertificateError| Error::from(error).to_string();
        assert_eq!(refusals.sentence("peer is incompatible"), None);
        refusals.note(CertificateError::Revoked, Proof::Chain);
        for _ in 1..REFUSALS_MAX {
            refusals.note(CertificateError::UnknownIssuer, Proof::Chain);
        }
        let revoked = refusals.sentence(&text(CertificateError::Revoked));
        assert!(revoked.is_some_and(|one| one.starts_with("the certificate was revoked")));
        refusals.note(CertificateError::Expired, Proof::Chain);
        assert_eq!(refusals.sentence(&text(CertificateError::Revoked)), None);
        assert!(
            refusals
                .sentence(&text(CertificateError::Expired))
                .is_some()
        );
    }
}
