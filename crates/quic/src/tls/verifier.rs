//! Verification of server certificates by a client, and what it records of handshakes.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use rustls::{
    CertificateError, CipherSuite, DigitallySignedStruct, KeyLog, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::WebPkiSupportedAlgorithms,
    pki_types::{CertificateDer, ServerName, UnixTime},
};

use super::{
    TlsError, Trust, certificate_hash, provider,
    refusal::{OtherHash, Proof, Refusals},
    root_store,
};

/// Verifies certificates according to the client's trust. The peer always has to prove possession of the key.
#[derive(Debug)]
pub(super) struct Verifier {
    trusted: Trusted,
    algorithms: WebPkiSupportedAlgorithms,
    seen: Arc<Seen>,
}

#[derive(Debug)]
enum Trusted {
    Roots(Arc<WebPkiServerVerifier>),
    Hashes(Vec<[u8; 32]>),
    Anyone,
}

impl Verifier {
    pub(super) fn new(trust: Trust, seen: Arc<Seen>) -> Result<Self, TlsError> {
        let trusted = match trust {
            Trust::Roots(certificates) => {
                let roots = Arc::new(root_store(certificates)?);
                let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider());
                let verifier = verifier.build();
                Trusted::Roots(verifier.map_err(|error| TlsError::Root(error.to_string()))?)
            }
            Trust::Hashes(hashes) => Trusted::Hashes(hashes),
            Trust::Anyone => Trusted::Anyone,
        };
        Ok(Self {
            trusted,
            algorithms: provider().signature_verification_algorithms,
            seen,
        })
    }

    fn note(&self, error: &rustls::Error, proof: Proof) {
        if let rustls::Error::InvalidCertificate(error) = error {
            self.seen.refusals.note(error.clone(), proof);
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.seen.proofs.fetch_add(1, Ordering::Relaxed);
        let verified = match &self.trusted {
            Trusted::Roots(verifier) => verifier.verify_server_cert(
                end_entity,
                intermediates,
                server_name,
                ocsp_response,
                now,
            ),
            Trusted::Hashes(hashes) => {
                let hash = certificate_hash(end_entity);
                if hashes.contains(&hash) {
                    Ok(ServerCertVerified::assertion())
                } else {
                    Err(CertificateError::from(OtherHash(hash)).into())
                }
            }
            Trusted::Anyone => Ok(ServerCertVerified::assertion()),
        };
        verified.inspect_err(|error| self.note(error, Proof::Chain))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let valid = rustls::crypto::verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.algorithms,
        )
        .inspect_err(|error| self.note(error, Proof::Possession))?;
        let bytes = signature.signature().len();
        self.seen
            .key
            .get_or_init(|| key_name(signature.scheme, bytes));
        Ok(valid)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// A client's record of its handshakes.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Number of certificates verified.
    proofs: AtomicU64,
    /// Why certificates were refused.
    refusals: Arc<Refusals>,
    /// The key of the first certificate that was accepted.
    key: OnceLock<String>,
    /// Number of handshakes by the hash of their cipher suite, in the order of [`SUITES`].
    suites: [AtomicU64; 2],
}

impl Seen {
    pub(super) fn proofs(&self) -> u64 {
        self.proofs.load(Ordering::Relaxed)
    }

    pub(super) fn refusals(&self) -> &Arc<Refusals> {
        &self.refusals
    }

    pub(super) fn key(&self) -> Option<&str> {
        self.key.get().map(String::as_str)
    }

    /// Returns the negotiated cipher suites, each with its number of handshakes.
    pub(super) fn suites(&self) -> Vec<(&'static str, u64)> {
        let counts = self
            .suites
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        let named = SUITES
            .iter()
            .zip(counts)
            .map(|(suite, count)| (suite.1, count));
        named.filter(|(_, count)| *count > 0).collect()
    }
}

/// Determines the negotiated cipher suite from the length of the handshake's secrets, which are not kept. The engine
/// does not report it otherwise, so only one suite of each length may be offered ([`is_told_apart`]).
impl KeyLog for Seen {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        let place = SUITES
            .iter()
            .position(|(_, _, length)| *length == secret.len());
        if let Some(place) = place.filter(|_| self.will_log(label)) {
            self.suites[place].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn will_log(&self, label: &str) -> bool {
        label == "CLIENT_TRAFFIC_SECRET_0"
    }
}

/// Returns whether [`Seen`] can identify this cipher suite.
pub(super) fn is_told_apart(suite: CipherSuite) -> bool {
    SUITES.iter().any(|(known, ..)| *known == suite)
}

/// Cipher suites, their names and the length of their secrets in bytes (RFC 8446 §B.4).
const SUITES: [(CipherSuite, &str, usize); 2] = [
    (
        CipherSuite::TLS13_AES_128_GCM_SHA256,
        "TLS_AES_128_GCM_SHA256",
        32,
    ),
    (
        CipherSuite::TLS13_AES_256_GCM_SHA384,
        "TLS_AES_256_GCM_SHA384",
        48,
    ),
];

/// Returns the kind of key for a signature of this scheme and length.
fn key_name(scheme: SignatureScheme, bytes: usize) -> String {
    if let Some((_, name)) = KEYS.iter().find(|(of, _)| *of == scheme) {
        (*name).to_owned()
    } else if RSA.contains(&scheme) {
        format!("RSA {}", 8 * bytes)
    } else {
        format!("{scheme:?}")
    }
}

/// Schemes that belong to a single kind of key.
const KEYS: [(SignatureScheme, &str); 4] = [
    (SignatureScheme::ECDSA_NISTP256_SHA256, "ECDSA P-256"),
    (SignatureScheme::ECDSA_NISTP384_SHA384, "ECDSA P-384"),
    (SignatureScheme::ECDSA_NISTP521_SHA512, "ECDSA P-521"),
    (SignatureScheme::ED25519, "Ed25519"),
];
/// Schemes of RSA keys, whose length is that of their signatures.
const RSA: [SignatureScheme; 3] = [
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA512,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cipher_suites_are_told_apart_by_their_secrets() {
        let seen = Seen::default();
        for (label, length) in [
            ("CLIENT_TRAFFIC_SECRET_0", 32),
            ("CLIENT_TRAFFIC_SECRET_0", 48),
            ("CLIENT_TRAFFIC_SECRET_0", 48),
            ("CLIENT_TRAFFIC_SECRET_0", 7),
            ("SERVER_TRAFFIC_SECRET_0", 32),
            ("EXPORTER_SECRET", 32),
        ] {
            seen.log(label, &[], &vec![0; length]);
        }
        let expected = [("TLS_AES_128_GCM_SHA256", 1), ("TLS_AES_256_GCM_SHA384", 2)];
        assert_eq!(seen.suites(), expected);
        assert!(!is_told_apart(CipherSuite::TLS13_CHACHA20_POLY1305_SHA256));
    }

    #[test]
    fn keys_are_named_by_what_they_sign() {
        assert_eq!(
            key_name(SignatureScheme::ECDSA_NISTP256_SHA256, 71),
            "ECDSA P-256"
        );
        assert_eq!(key_name(SignatureScheme::RSA_PSS_SHA256, 256), "RSA 2048");
        assert_eq!(key_name(SignatureScheme::ED25519, 64), "Ed25519");
    }
}
