//! Certificates: from PEM files, or self-signed for tests on one machine.

use std::{
    fmt, fs, io,
    path::Path,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::aws_lc_rs::default_provider,
    pki_types::{
        CertificateDer, PrivateKeyDer, UnixTime,
        pem::{self, PemObject as _},
    },
    server::{
        ClientHello, ResolvesServerCert, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
};

use crate::clock;

/// A certificate chain and its key.
#[derive(Debug)]
pub struct Certificate {
    /// The chain, the server's certificate first.
    pub chain: Vec<CertificateDer<'static>>,
    /// Its private key.
    pub key: PrivateKeyDer<'static>,
}

/// Why a certificate cannot be used. The text names the file.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The file cannot be read.
    #[error("{path}: {error}")]
    Read {
        /// The file.
        path: String,
        /// The system's error.
        error: io::Error,
    },
    /// The file is not PEM, or lacks what it should contain.
    #[error("{path}: {problem}")]
    Pem {
        /// The file.
        path: String,
        /// The problem with the file.
        problem: String,
    },
    /// The system's list of trusted certificates cannot be read.
    #[error("the system's trusted certificates cannot be read: {0}")]
    System(String),
    /// The key does not match the certificate, or one of them is invalid.
    #[error("certificate and key cannot be used: {0}")]
    Unusable(String),
    /// A CA certificate is invalid, or there is none.
    #[error("the CA certificates cannot be used: {0}")]
    Roots(String),
    /// A certificate could not be created.
    #[error("cannot make a self-signed certificate: {0}")]
    Make(String),
}

impl Certificate {
    /// Loads a chain and a key from PEM files.
    pub fn load(chain: &Path, key: &Path) -> Result<Self, CertificateError> {
        let certificates = load_chain(chain)?;
        let text = read(key)?;
        let key = PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
            let problem = "no private key in this file; expected PEM";
            if matches!(error, pem::Error::NoItemsFound) {
                pem_error(key, problem)
            } else {
                pem_error(key, &format!("{problem}: {error}"))
            }
        })?;
        Ok(Self {
            chain: certificates,
            key,
        })
    }

    /// Creates a self-signed certificate for `names` (DNS names or IP addresses). It uses ECDSA with P-256 and is valid
    /// from an hour ago for [`SELF_MADE_VALIDITY`], so that browsers accept it by its hash.
    pub fn self_made(names: &[String]) -> Result<Self, CertificateError> {
        Self::self_made_at(names, clock::since_epoch())
    }

    /// Creates the same certificate as if at `now`, the time since 1970.
    pub fn self_made_at(names: &[String], now: Duration) -> Result<Self, CertificateError> {
        let make = || -> Result<_, rcgen::Error> {
            let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
            let mut parameters = rcgen::CertificateParams::new(names)?;
            let begin = std::time::UNIX_EPOCH + now - CLOCK_DIFFERENCE;
            parameters.not_before = begin.into();
            parameters.not_after = (begin + SELF_MADE_VALIDITY).into();
            let certificate = parameters.self_signed(&key)?;
            Ok((certificate.der().clone(), key))
        };
        let (certificate, key) =
            make().map_err(|error| CertificateError::Make(error.to_string()))?;
        let key = PrivateKeyDer::try_from(key.serialize_der())
            .map_err(|error| CertificateError::Make(error.to_owned()))?;
        Ok(Self {
            chain: vec![certificate],
            key,
        })
    }
}

/// A certificate with a matching key.
#[derive(Clone, Debug)]
pub struct UsableCertificate(Arc<CertifiedKey>);

impl Certificate {
    /// Checks that the key is usable and matches the certificate.
    pub fn usable(self) -> Result<UsableCertificate, CertificateError> {
        CertifiedKey::from_der(self.chain, self.key, &default_provider())
            .map(|key| UsableCertificate(Arc::new(key)))
            .map_err(|error| {
                let is_mismatch = matches!(error, Error::InconsistentKeys(_));
                let mismatch = || "the key does not belong to the certificate".to_owned();
                CertificateError::Unusable(if is_mismatch {
                    mismatch()
                } else {
                    error.to_string()
                })
            })
    }
}

impl UsableCertificate {
    /// Returns the chain, the server's certificate first.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.0.cert
    }
}

/// A value that handshakes use, and that can be replaced while a server runs. Established sessions are not affected.
#[derive(Debug)]
pub struct Replaceable<T> {
    current: RwLock<T>,
}

impl<T: Clone> Replaceable<T> {
    /// Returns a holder of `value`.
    pub fn new(value: T) -> Self {
        let current = RwLock::new(value);
        Self { current }
    }

    /// Uses `value` from the next handshake on.
    pub fn replace(&self, value: T) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = value;
    }

    /// Returns the current value.
    pub fn current(&self) -> T {
        self.current
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// The certificate of a server.
pub type ServerCertificate = Replaceable<UsableCertificate>;
/// The authorities whose client certificates are trusted. A client need not have a certificate.
pub type ClientTrust = Replaceable<ClientRoots>;

impl ResolvesServerCert for ServerCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current().0)
    }
}

/// The root certificates of client certificates.
#[derive(Clone, Debug)]
pub struct ClientRoots(Arc<dyn ClientCertVerifier>);

impl ClientRoots {
    /// Checks that `certificates` can be used as roots. There must be at least one.
    pub fn new(certificates: Vec<CertificateDer<'static>>) -> Result<Self, CertificateError> {
        let unusable = |error: &dyn fmt::Display| CertificateError::Roots(error.to_string());
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            roots.add(certificate).map_err(|error| unusable(&error))?;
        }
        let provider = Arc::new(default_provider());
        let built = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
        Ok(Self(built.map_err(|error| unusable(&error))?))
    }
}

impl ClientCertVerifier for ClientTrust {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// Returns no hints, so that a client sends its certificate, of any issuer.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.current()
            .0
            .verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.current()
            .0
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.current()
            .0
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.current().0.supported_verify_schemes()
    }
}

/// The validity of a self-signed certificate. Browsers accept at most 14 days for a certificate identified by its hash.
pub const SELF_MADE_VALIDITY: Duration = Duration::from_hours(24 * 13);
/// How far a client's clock may be behind.
const CLOCK_DIFFERENCE: Duration = Duration::from_hours(1);

/// Loads the certificates of a PEM file: a chain, or roots.
pub fn load_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let text = read(path)?;
    let chain = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| pem_error(path, &error.to_string()))?;
    if chain.is_empty() {
        return Err(pem_error(path, "no certificate in this file; expected PEM"));
    }
    Ok(chain)
}

/// Returns the certificates that this system trusts.
pub fn system_roots() -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let problem = found
            .errors
            .first()
            .map_or_else(|| "none found".to_owned(), ToString::to_string);
        return Err(CertificateError::System(problem));
    }
    Ok(found.certs)
}

fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    fs::read(path).map_err(|error| CertificateError::Read {
        path: path.display().to_string(),
        error,
    })
}

fn pem_error(path: &Path, problem: &str) -> CertificateError {
    CertificateError::Pem {
        path: path.display().to_string(),
        problem: problem.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_file() {
        let missing = load_chain(Path::new("no/such.pem")).unwrap_err();
        assert!(
            missing.to_string().starts_with("no/such.pem: "),
            "{missing}"
        );
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let wrong = load_chain(&manifest).unwrap_err();
        assert!(
            wrong
                .to_string()
                .ends_with("no certificate in this file; expected PEM"),
            "{wrong}"
        );
    }

    #[test]
    fn a_certificate_is_looked_at_before_it_replaces_another() {
        let made = || Certificate::self_made(&["localhost".to_owned()]).unwrap();
        let (first, second, third) = (made(), made(), made());
        let second_chain = second.chain.clone();
        let shown = ServerCertificate::new(first.usable().unwrap());
        let mixed = Certificate {
            chain: second.chain.clone(),
            key: third.key,
        };
        assert!(mixed.usable().is_err());
        shown.replace(second.usable().unwrap());
        assert_eq!(shown.current().chain(), second_chain);

        assert!(ClientRoots::new(Vec::new()).is_err(), "nobody to trust");
        let trust = ClientTrust::new(ClientRoots::new(second_chain).unwrap());
        assert!(!trust.supported_verify_schemes().is_empty());
    }

    #[test]
    fn self_made_certificates_are_usable() {
        let made =
            Certificate::self_made(&["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        assert!(weir_quic::tls::ServerTls::new(made.chain, made.key, &["moqt-18"]).is_ok());
    }
}
