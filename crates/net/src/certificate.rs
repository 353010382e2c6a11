//! Certificates: from PEM files, or self-made for tests on one machine.

use std::{fs, io, path::Path};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};

/// A certificate chain and its key.
#[derive(Debug)]
pub struct Certificate {
    /// The server's certificate first.
    pub chain: Vec<CertificateDer<'static>>,
    /// Its private key.
    pub key: PrivateKeyDer<'static>,
}

/// Why a certificate cannot be used; the text names the file.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The file cannot be read.
    #[error("{path}: {error}")]
    Read {
        /// The file.
        path: String,
        /// What the system said.
        error: io::Error,
    },
    /// The file is not PEM, or does not hold what it should.
    #[error("{path}: {problem}")]
    Pem {
        /// The file.
        path: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The system's own list of trusted certificates cannot be used.
    #[error("the system's trusted certificates cannot be read: {0}")]
    System(String),
    /// A certificate could not be made.
    #[error("cannot make a certificate: {0}")]
    Make(String),
}

impl Certificate {
    /// Reads a chain and a key from PEM files.
    pub fn load(chain: &Path, key: &Path) -> Result<Self, CertificateError> {
        let certificates = load_chain(chain)?;
        let text = read(key)?;
        let key = PrivateKeyDer::from_pem_slice(&text)
            .map_err(|error| pem_error(key, &format!("no usable private key: {error}")))?;
        Ok(Self {
            chain: certificates,
            key,
        })
    }

    /// Makes a self-signed certificate for `names` (DNS names or IP addresses).
    pub fn self_made(names: &[String]) -> Result<Self, CertificateError> {
        let made = rcgen::generate_simple_self_signed(names)
            .map_err(|error| CertificateError::Make(error.to_string()))?;
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())
            .map_err(|error| CertificateError::Make(error.to_owned()))?;
        Ok(Self {
            chain: vec![made.cert.der().clone()],
            key,
        })
    }
}

/// Reads certificates from a PEM file: a chain, or whom to trust.
pub fn load_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let text = read(path)?;
    let chain = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| pem_error(path, &error.to_string()))?;
    if chain.is_empty() {
        return Err(pem_error(path, "no certificate in it"));
    }
    Ok(chain)
}

/// The certificates that this system trusts.
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
            wrong.to_string().ends_with("no certificate in it"),
            "{wrong}"
        );
    }

    #[test]
    fn self_made_certificates_are_usable() {
        let made =
            Certificate::self_made(&["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        assert!(weir_quic::tls::ServerTls::new(made.chain, made.key, &["moqt-18"]).is_ok());
    }
}
