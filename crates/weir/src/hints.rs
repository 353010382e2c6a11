//! Hints for errors of connections: what a user can check or change, with the flags of the program.

/// Returns what to do about the error of a connection; `None` if nothing is known about it.
pub(crate) fn hint(error: &str) -> Option<&'static str> {
    if error.contains("is a CA certificate") {
        Some(CA)
    } else if error.contains("this side reports") && error.contains("certificate") {
        Some(TRUST)
    } else if error.contains("no common protocol") || error.contains("with status 406") {
        Some(PROTOCOL)
    } else if error.contains("Address already in use") {
        Some(ADDRESS_IN_USE)
    } else if ENDED_TOKEN.iter().any(|words| error.contains(words)) {
        Some(NEW_TOKEN)
    } else if TOKEN_ERRORS.iter().any(|words| error.contains(words)) {
        Some(TOKEN)
    } else if SILENT.iter().any(|words| error.contains(words)) {
        Some(UNREACHABLE)
    } else {
        None
    }
}

const TRUST: &str = "hint: --ca FILE trusts the server's issuer, --certificate-hash HASH trusts one certificate, and \
                     --insecure trusts any";

/// The hint for a server that shows what openssl makes by default.
const CA: &str = "hint: make the server's certificate again, with `-addext basicConstraints=critical,CA:FALSE` of openssl; until \
                  then, --certificate-hash HASH trusts this one certificate, and --insecure any";

const PROTOCOL: &str = "hint: is the server of the kind that the URL names? moqt:// is for MOQT relays over raw QUIC, and \
                        https:// for HTTP/3 and WebTransport. A relay may also speak other drafts than those of --draft, or have \
                        other `drafts` in its settings";

const ADDRESS_IN_USE: &str =
    "hint: another process has this port; end it, or choose another port. Port 0 is a free one";

/// The hint for a relay that refuses the client's token, or its lack of one.
const TOKEN: &str = "hint: --token @FILE sends a token; `weir token sign` makes one for a relay with the key of \
                     its issuer. The token must permit the namespaces of the tracks, and weir-bench for a run of weir bench in \
                     several processes";

/// The hint for a relay that does not accept a token any longer.
const NEW_TOKEN: &str =
    "hint: `weir token sign` makes a new token; --lasts says how long it is valid";

/// The hint for a server that does not answer.
pub(crate) const UNREACHABLE: &str = "hint: is the server running, and can its UDP port be reached? MOQT and HTTP/3 use QUIC, \
                                      so a port that is open for TCP only is not enough";

/// Parts of the errors of a relay that refuses a token, or its absence.
const TOKEN_ERRORS: [&str; 4] = [
    "UNAUTHORIZED",
    "authorization token",
    "the credentials do not permit this",
    "no trusted key signed the token",
];

/// Parts of the errors of a relay that has accepted a token before.
const ENDED_TOKEN: [&str; 4] = [
    "EXPIRED_AUTH_TOKEN",
    "the authorization has expired",
    "the token has expired",
    "the token was revoked",
];

/// Parts of the errors of a server that does not answer.
const SILENT: [&str; 3] = [
    "no answer within",
    "no handshake within",
    "timed out: the peer did not answer",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_connections_have_a_hint() {
        let tls =
            "TLS handshake failed: this side reports: bad certificate: the certificate has expired";
        assert_eq!(hint(tls), Some(TRUST));
        let ca = "this side reports: bad certificate: the certificate is a CA certificate; a server needs one with CA:FALSE";
        assert_eq!(hint(ca), Some(CA));
        let silent = "moqt://127.0.0.1:1: no answer within 10 s";
        assert_eq!(hint(silent), Some(UNREACHABLE));
        let refused =
            "the relay refused a track: UNAUTHORIZED \"the credentials do not permit this\"";
        assert_eq!(hint(refused), Some(TOKEN));
        let revoked = "the relay closed the session: UNAUTHORIZED \"the token was revoked\"";
        assert_eq!(hint(revoked), Some(NEW_TOKEN));
        let other = "no common protocol: the peer does not speak any of the offered ALPNs";
        assert_eq!(hint(other), Some(PROTOCOL));
        let used = "--listen: cannot bind to 127.0.0.1:1: Address already in use (os error 98)";
        assert_eq!(hint(used), Some(ADDRESS_IN_USE));
        assert_eq!(hint("--cert: no certificate in it"), None);
    }
}
