//! The certificate of every simulated server: always the same bytes.

use rcgen::{CertificateParams, DnType, KeyPair, PKCS_ED25519, SerialNumber};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// The name in the [`certificate`].
pub const SERVER_NAME: &str = "localhost";

/// An Ed25519 private key in PKCS #8 form, up to the key itself (RFC 8410 §7).
const KEY_PREFIX: [u8; 16] = [
    0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20,
];
/// The private key of all simulated servers, which is public.
const KEY: [u8; 32] = *b"weir-sim: the key to no door yet";

/// A server's certificate and its private key.
#[derive(Debug)]
pub struct Certificate {
    /// The self-signed certificate.
    pub chain: Vec<CertificateDer<'static>>,
    /// Its key, which is public.
    pub key: PrivateKeyDer<'static>,
}

/// Returns the certificate for [`SERVER_NAME`]. Key, serial number and validity are constant, so the bytes are too.
///
/// The key is Ed25519, because these signatures have a constant length and are not random.
pub fn certificate() -> Certificate {
    let key = PrivatePkcs8KeyDer::from([&KEY_PREFIX[..], &KEY[..]].concat());
    let pair = KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_ED25519)
        .expect("the key has the form of RFC 8410");
    let mut parameters =
        CertificateParams::new([SERVER_NAME.to_owned()]).expect("the name is a valid one");
    parameters
        .distinguished_name
        .push(DnType::CommonName, "weir-sim");
    parameters.serial_number = Some(SerialNumber::from(1));
    parameters.not_before = rcgen::date_time_ymd(2000, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(4000, 1, 1);
    let certificate = parameters
        .self_signed(&pair)
        .expect("nothing of it can fail to be encoded");
    Certificate {
        chain: vec![certificate.der().clone()],
        key: PrivateKeyDer::Pkcs8(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_certificate_is_always_the_same() {
        assert_eq!(certificate().chain, certificate().chain);
    }
}
