//! The check of a server's certificate that `--check` makes: is it a CA certificate?

use std::path::Path;

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Returns a warning if the first certificate of `chain`, from `file`, is a CA certificate: clients built on rustls refuse such
/// a server.
pub(crate) fn ca_warning(file: &Path, chain: &[CertificateDer<'_>]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(chain.first()?).ok()?;
    certificate.is_ca().then(|| {
        format!(
            "{}: this is a CA certificate, which weir's clients and others built on rustls refuse. \
             `openssl req -x509` makes a CA certificate unless told otherwise; make a server certificate instead:\n  \
             {OPENSSL}",
            file.display()
        )
    })
}

/// A command that makes a certificate for a server on this machine.
const OPENSSL: &str = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 90 -keyout key.pem \
                       -out cert.pem -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 \
                       -addext basicConstraints=critical,CA:FALSE";

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    use super::*;

    #[test]
    fn only_a_ca_certificate_is_warned_of() {
        let warning = |is_ca| {
            let mut parameters = CertificateParams::new(["localhost".to_owned()]).unwrap();
            parameters.is_ca = is_ca;
            let made = parameters.self_signed(&KeyPair::generate().unwrap());
            ca_warning(Path::new("cert.pem"), &[made.unwrap().der().clone()])
        };
        let ca = warning(IsCa::Ca(BasicConstraints::Unconstrained)).unwrap();
        assert!(ca.contains("cert.pem") && ca.contains("CA:FALSE"), "{ca}");
        assert_eq!(warning(IsCa::NoCa), None);
        assert_eq!(warning(IsCa::ExplicitNoCa), None);
        assert_eq!(ca_warning(Path::new("cert.pem"), &[]), None);
    }
}
