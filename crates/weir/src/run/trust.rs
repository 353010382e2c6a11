//! The server certificates that clients trust, from flags.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use weir_net::certificate;
use weir_quic::tls::Trust;

// The flags of all commands with clients. No doc comment: clap would show it as the help of the command.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TrustArguments {
    /// Trust any certificate: for tests on networks that you trust
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Trust the CA certificates in this PEM file, instead of the system's; a self-signed server certificate may stand
    /// there too
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) ca: Option<PathBuf>,
    /// Trust only the certificate with this SHA-256 hash: 64 hexadecimal digits, as `weir relay --show-hash` prints them
    #[arg(long, value_name = "HASH", conflicts_with_all = ["insecure", "ca"])]
    pub(crate) certificate_hash: Option<String>,
}

/// The trust of a client, as plain data for agents on other hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SentTrust {
    /// Any certificate.
    Anyone,
    /// Only certificates with these SHA-256 hashes.
    Hashes(Vec<[u8; 32]>),
    /// Roots in DER.
    Roots(Vec<Vec<u8>>),
}

/// The server certificates that clients trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TrustChoice {
    /// Any certificate.
    Anyone,
    /// Only certificates with these SHA-256 hashes.
    Hashes(Vec<[u8; 32]>),
    /// Certificates whose chain leads to a root in this PEM file, or to one of the system's roots.
    Roots(Option<PathBuf>),
    /// Certificates whose chain leads to one of these.
    Certificates(Vec<CertificateDer<'static>>),
}

impl TrustArguments {
    /// Whether one of the flags is given.
    pub(crate) fn is_given(&self) -> bool {
        self.insecure || self.ca.is_some() || self.certificate_hash.is_some()
    }

    /// Returns the choice that the flags make.
    pub(crate) fn choice(&self) -> anyhow::Result<TrustChoice> {
        Ok(match &self.certificate_hash {
            _ if self.insecure => TrustChoice::Anyone,
            Some(hash) => TrustChoice::Hashes(vec![hash_of(hash).context("--certificate-hash")?]),
            None => TrustChoice::Roots(self.ca.clone()),
        })
    }
}

impl TrustChoice {
    /// Loads the trusted certificates.
    pub(crate) fn load(&self) -> anyhow::Result<Trust> {
        Ok(match self {
            Self::Anyone => Trust::Anyone,
            Self::Hashes(hashes) => Trust::Hashes(hashes.clone()),
            Self::Roots(Some(file)) => Trust::Roots(certificate::load_chain(file).context("--ca")?),
            Self::Certificates(roots) => Trust::Roots(roots.clone()),
            Self::Roots(None) => Trust::Roots(certificate::system_roots()?),
        })
    }
}

impl SentTrust {
    /// Returns the plain data of `trust`.
    pub(crate) fn of(trust: &Trust) -> Self {
        match trust {
            Trust::Anyone => Self::Anyone,
            Trust::Hashes(hashes) => Self::Hashes(hashes.clone()),
            Trust::Roots(roots) => Self::Roots(roots.iter().map(|root| root.to_vec()).collect()),
        }
    }

    /// Returns the choice of clients with this trust.
    pub(crate) fn choice(self) -> TrustChoice {
        match self {
            Self::Anyone => TrustChoice::Anyone,
            Self::Hashes(hashes) => TrustChoice::Hashes(hashes),
            Self::Roots(roots) => {
                TrustChoice::Certificates(roots.into_iter().map(Into::into).collect())
            }
        }
    }
}

/// Parses a SHA-256 hash; colons between digits are ignored.
pub(crate) fn hash_of(text: &str) -> anyhow::Result<[u8; 32]> {
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
        .with_context(|| format!("expected 64 hexadecimal digits, not {text:?}"))?;
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    Ok(hash)
}
