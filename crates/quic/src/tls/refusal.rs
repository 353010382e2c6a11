//! Why a certificate was refused, in words.
//!
//! The library's own text names most reasons as its source does (`UnknownIssuer`), and gives times as numbers of seconds.
//! Which of its errors means what stands in [`REASONS`]; the texts themselves are the library's, so none is spelt here.

use rustls::{CertificateError, Error};

/// What the library says of a handshake, with the reason in words if it is that a certificate was refused.
pub(crate) fn in_words(said: &str) -> String {
    let prefix = format!("{}", Error::from(CertificateError::Expired));
    let prefix = prefix.trim_end_matches("Expired");
    let Some(reason) = said.strip_prefix(prefix) else {
        return said.to_owned();
    };
    let exact = REASONS
        .iter()
        .find(|(error, _)| error.to_string() == reason)
        .map(|(_, words)| (*words).to_owned());
    exact
        .or_else(|| with_name(reason))
        .or_else(|| begins(reason))
        .unwrap_or_else(|| format!("the certificate was refused: {reason}"))
}

/// `certificate not valid for name "a"; certificate is only valid for DnsName("b") or DnsName("c")`.
fn with_name(reason: &str) -> Option<String> {
    let names = reason.strip_prefix("certificate not valid for name ")?;
    let (wanted, has) = names.split_once("; certificate ")?;
    let wanted = wanted.trim_matches('"');
    let has = match has.strip_prefix("is only valid for ") {
        Some(has) => format!("only for {}", plain_names(has)),
        None => "nor for any other".to_owned(),
    };
    Some(format!(
        "the certificate is not valid for the name {wanted}, {has}"
    ))
}

/// `DnsName("a") or IpAddress(::1)` as `a or ::1`.
fn plain_names(names: &str) -> String {
    let bare = |name: &str| {
        let kinds = ["DnsName(", "IpAddress("];
        let inner = kinds.iter().find_map(|kind| name.strip_prefix(kind));
        let inner = inner.and_then(|inner| inner.strip_suffix(')'));
        inner
            .map_or(name, |inner| inner.trim_matches('"'))
            .to_owned()
    };
    let lists = names.split(" or ").map(|list| {
        let names: Vec<String> = list.split(", ").map(bare).collect();
        names.join(", ")
    });
    lists.collect::<Vec<_>>().join(" or ")
}

/// Reasons whose text goes on with particulars, of which only how long ago something was, or when it will be, is kept.
fn begins(reason: &str) -> Option<String> {
    let (_, words) = BEGINNINGS
        .iter()
        .find(|(text, _)| reason.starts_with(text))?;
    let when = reason.rsplit_once('(').and_then(|(_, last)| when(last));
    Some(match when {
        Some(when) => format!("{words} ({when})"),
        None => (*words).to_owned(),
    })
}

/// `7200 seconds ago)` as `2 hours ago`.
fn when(text: &str) -> Option<String> {
    let (seconds, direction) = text.strip_suffix(')')?.split_once(" seconds ")?;
    let seconds: u64 = seconds.parse().ok()?;
    let (unit, count) = [("days", 86_400), ("hours", 3600), ("seconds", 1)]
        .map(|(unit, length)| (unit, seconds / length))
        .into_iter()
        .find(|(_, count)| *count > 1)
        .unwrap_or(("seconds", seconds));
    let direction = direction.replace("in future", "in the future");
    Some(format!("{count} {unit} {direction}"))
}

/// Errors without particulars.
const REASONS: [(CertificateError, &str); 10] = [
    (
        CertificateError::BadEncoding,
        "the certificate is not well formed",
    ),
    (CertificateError::Expired, "the certificate has expired"),
    (
        CertificateError::NotValidYet,
        "the certificate is not valid yet",
    ),
    (CertificateError::Revoked, "the certificate was revoked"),
    (
        CertificateError::UnhandledCriticalExtension,
        "the certificate has an extension that has to be understood, and is not",
    ),
    (
        CertificateError::UnknownIssuer,
        "the certificate's issuer is unknown: it leads to none that is trusted",
    ),
    (
        CertificateError::UnknownRevocationStatus,
        "whether the certificate was revoked is not known",
    ),
    (
        CertificateError::BadSignature,
        "a signature of the certificate, or by its key, is wrong",
    ),
    (
        CertificateError::InvalidPurpose,
        "the certificate is for another purpose",
    ),
    // What our own verifier says.
    (
        CertificateError::ApplicationVerificationFailure,
        "the certificate's hash is another one than those that are trusted",
    ),
];

/// How the texts of errors with particulars begin.
const BEGINNINGS: [(&str, &str); 7] = [
    ("certificate expired:", "the certificate has expired"),
    (
        "certificate not valid yet:",
        "the certificate is not valid yet",
    ),
    (
        "certificate revocation list expired:",
        "whether the certificate was revoked is not known: the list has expired",
    ),
    (
        "certificate does not allow extended key usage for ",
        "the certificate is for another purpose",
    ),
    (
        "UnsupportedSignatureAlgorithm",
        "the certificate is signed in a way that is not supported",
    ),
    (
        "Other(OtherError(CaUsedAsEndEntity))",
        "the certificate is an issuer's, not a server's",
    ),
    (
        "Other(OtherError(UnsupportedCertVersion))",
        "the certificate is of another version than X.509 v3",
    ),
];

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::pki_types::{ServerName, UnixTime};

    use super::*;

    fn words(error: CertificateError) -> String {
        in_words(&Error::from(error).to_string())
    }

    #[test]
    fn every_reason_is_in_words() {
        for (error, expected) in REASONS {
            assert_eq!(words(error), expected);
        }
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
                "the certificate has expired (3000 seconds ago)",
            ),
            (
                CertificateError::ExpiredContext {
                    time: at(900_000),
                    not_after: at(1000),
                },
                "the certificate has expired (10 days ago)",
            ),
            (
                CertificateError::NotValidYetContext {
                    time: at(5000),
                    not_before: at(5060),
                },
                "the certificate is not valid yet (60 seconds in the future)",
            ),
            (
                CertificateError::ExpiredRevocationListContext {
                    time: at(5000),
                    next_update: at(4000),
                },
                "whether the certificate was revoked is not known: the list has expired (1000 seconds ago)",
            ),
            (
                CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext {
                    signature_algorithm_id: vec![1],
                    public_key_algorithm_id: vec![2],
                },
                "the certificate is signed in a way that is not supported",
            ),
            (
                name(&[]),
                "the certificate is not valid for the name elsewhere, nor for any other",
            ),
            (
                name(&["DnsName(\"a\")"]),
                "the certificate is not valid for the name elsewhere, only for a",
            ),
            (
                name(&["DnsName(\"a\")", "DnsName(\"b\")", "IpAddress(::1)"]),
                "the certificate is not valid for the name elsewhere, only for a, b or ::1",
            ),
        ] {
            assert_eq!(words(error), expected);
        }
    }

    #[test]
    fn what_is_not_known_is_kept() {
        assert_eq!(in_words("peer is incompatible"), "peer is incompatible");
        assert_eq!(
            words(CertificateError::InvalidOcspResponse),
            "the certificate was refused: InvalidOcspResponse"
        );
    }
}
