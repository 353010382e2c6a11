//! Signs tokens.

use std::{fs, path::Path};

use anyhow::{Context as _, bail};
use jsonwebtoken::{
    Algorithm, EncodingKey, Header, encode,
    jwk::{Jwk, ThumbprintHash},
};

use super::Claims;

/// A private key that signs tokens.
pub(crate) struct Signer {
    key: EncodingKey,
    header: Header,
}

impl Signer {
    /// Reads the private key in a file that `weir token key` wrote.
    ///
    /// # Errors
    /// The file cannot be read, or holds no such key; the error names the file.
    pub(crate) fn read(file: &Path) -> anyhow::Result<Self> {
        let name = || file.display().to_string();
        let text = fs::read(file).with_context(name)?;
        let Ok(key) = EncodingKey::from_ec_pem(&text) else {
            bail!(
                "{}: not a private EC P-256 key in PEM (PKCS #8); expected the FILE.pem that `weir token key FILE` writes",
                name()
            );
        };
        let mut header = Header::new(Algorithm::ES256);
        header.kid = public(&key).with_context(name)?.common.key_id;
        Ok(Self { key, header })
    }

    /// Returns a token. Two of the same claims have different signatures.
    pub(crate) fn sign(&self, claims: &Claims) -> anyhow::Result<String> {
        Ok(encode(&self.header, claims, &self.key)?)
    }
}

/// Returns the public key, with its thumbprint as its key ID.
pub(crate) fn public(signing: &EncodingKey) -> anyhow::Result<Jwk> {
    let mut key = Jwk::from_encoding_key(signing, Algorithm::ES256)?;
    key.common.key_id = Some(key.thumbprint(ThumbprintHash::SHA256)?);
    Ok(key)
}
