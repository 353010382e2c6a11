//! Whom clients trust: the flags that say so, and what they come to.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use weir_net::certificate;
use weir_quic::tls::Trust;

// The flags of all commands with clients. (A doc comment would take the place of the help of the command that has them.)
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TrustArguments {
    /// Trust any certificate
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Trust the certificates in this PEM file instead of the system's
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) ca: Option<PathBuf>,
    /// Trust the certificate with this SHA-256 hash, in hexadecimal digits, and no other
    #[arg(long, value_name = "HASH", conflicts_with_all = ["insecure", "ca"])]
    pub(crate) certificate_hash: Option<String>,
}

/// Whom the clients trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TrustChoice {
    /// Anybody: for relays with self-made certificates.
    Anyone,
    /// The server whose certificate has this SHA-256 hash.
    Hash([u8; 32]),
    /// The certificates in a PEM file, or the system's if there is none.
    Roots(Option<PathBuf>),
}

impl TrustArguments {
    /// Whether a flag says whose certificates are trusted.
    pub(crate) fn is_given(&self) -> bool {
        self.insecure || self.ca.is_some() || self.certificate_hash.is_some()
    }

    /// What the flags say.
    pub(crate) fn choice(&self) -> anyhow::Result<TrustChoice> {
        Ok(match &self.certificate_hash {
            _ if self.insecure => TrustChoice::Anyone,
            Some(hash) => TrustChoice::Hash(hash_of(hash).context("--certificate-hash")?),
            None => TrustChoice::Roots(self.ca.clone()),
        })
    }
}

impl TrustChoice {
    /// Loads the certificates that are trusted.
    pub(crate) fn load(&self) -> anyhow::Result<Trust> {
        Ok(match self {
            Self::Anyone => Trust::Anyone,
            Self::Hash(hash) => Trust::Hashes(vec![*hash]),
            Self::Roots(Some(file)) => Trust::Roots(certificate::load_chain(file).context("--ca")?),
            Self::Roots(None) => Trust::Roots(certificate::system_roots()?),
        })
    }
}

/// The 32 bytes of a hash.
fn hash_of(text: &str) -> anyhow::Result<[u8; 32]> {
    let mut hash = [0; 32];
    let digits: Vec<u8> = text
        .chars()
        .filter(|character| *character != ':')
        .map(|character| {
            character
                .to_digit(16)
                .and_then(|digit| u8::try_from(digit).ok())
        })
        .collect::<Option<_>>()
        .filter(|digits: &Vec<u8>| digits.len() == 2 * hash.len())
        .context("expected 64 hexadecimal digits")?;
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    Ok(hash)
}
