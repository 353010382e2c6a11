//! TLS parameters of endpoints and connections.

mod acknowledgements;
pub(crate) mod refusal;
mod verifier;

use std::sync::Arc;

use quinn_proto::crypto::{
    self,
    rustls::{QuicClientConfig, QuicServerConfig},
};
use rustls::{
    CipherSuite, RootCertStore,
    client::Resumption,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer},
    server::{
        NoClientAuth, NoServerSessionStorage, ResolvesServerCert, ServerSessionMemoryCache,
        danger::ClientCertVerifier,
    },
    time_provider::TimeProvider,
};

pub use self::acknowledgements::Acknowledgements;
use self::{
    acknowledgements::ImmediateAcks,
    refusal::Refusals,
    verifier::{Seen, Verifier},
};
use crate::web_transport::Offer;

/// Why TLS parameters cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// The certificate chain or the key is invalid, or they do not match.
    #[error("certificate and key cannot be used: {0}")]
    Certificate(String),
    /// A trusted certificate is invalid.
    #[error("trusted certificate cannot be used: {0}")]
    Root(String),
    /// The TLS 1.3 parameters were refused.
    #[error("TLS parameters cannot be used: {0}")]
    Parameters(String),
}

/// A server's certificate and protocols.
#[derive(Clone)]
pub struct ServerTls {
    pub(crate) config: Arc<QuicServerConfig>,
    /// The WebTransport offer for connections that choose HTTP/3.
    pub(crate) web_transport: Option<Arc<Offer>>,
}

impl ServerTls {
    /// Creates the parameters of a server with the certificate `chain`, its `key`, and `protocols` (ALPN, preferred
    /// first).
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        protocols: &[&str],
    ) -> Result<Self, TlsError> {
        Self::with_time(chain, key, protocols, None)
    }

    /// Does the same as [`new`](Self::new), with another source of the time of day than the system.
    pub fn with_time(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        protocols: &[&str],
        time: Option<Arc<dyn TimeProvider>>,
    ) -> Result<Self, TlsError> {
        let builder = match time {
            Some(time) => rustls::ServerConfig::builder_with_details(provider(), time),
            None => rustls::ServerConfig::builder_with_provider(provider()),
        };
        let config = builder
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| TlsError::Parameters(error.to_string()))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| TlsError::Certificate(error.to_string()))?;
        Self::finish(config, protocols)
    }

    /// Creates the parameters of a server that asks `resolver` for its certificate at every handshake, so that the
    /// certificate can be replaced. `clients` verifies client certificates.
    pub fn with_resolver(
        resolver: Arc<dyn ResolvesServerCert>,
        clients: Option<Arc<dyn ClientCertVerifier>>,
        protocols: &[&str],
    ) -> Result<Self, TlsError> {
        let knows_clients = clients.is_some();
        let clients = clients.unwrap_or_else(|| Arc::new(NoClientAuth));
        let mut config = rustls::ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| TlsError::Parameters(error.to_string()))?
            .with_client_cert_verifier(clients)
            .with_cert_resolver(resolver);
        if knows_clients {
            // A resumed session would keep an identity that is not trusted any longer.
            config.session_storage = Arc::new(NoServerSessionStorage {});
        }
        Self::finish(config, protocols)
    }

    /// Does the same as [`new`](Self::new), with session tickets for up to `sessions_max` clients. A client that
    /// returns can resume its session once with a ticket, and may send a request with its first packet (0-RTT,
    /// RFC 8446 §2.3). Others can replay such a request (RFC 9001 §9.2), so it must not change anything. With 0 there
    /// are no tickets, and every handshake is a full one.
    pub fn with_sessions(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        protocols: &[&str],
        sessions_max: usize,
    ) -> Result<Self, TlsError> {
        let mut config = rustls::ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| TlsError::Parameters(error.to_string()))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| TlsError::Certificate(error.to_string()))?;
        if sessions_max == 0 {
            config.session_storage = Arc::new(NoServerSessionStorage {});
        } else {
            config.session_storage = ServerSessionMemoryCache::new(sessions_max);
            // The only value that permits early data in QUIC (RFC 9001 §4.6.1).
            config.max_early_data_size = u32::MAX;
        }
        Self::finish(config, protocols)
    }

    fn finish(mut config: rustls::ServerConfig, protocols: &[&str]) -> Result<Self, TlsError> {
        config.alpn_protocols = wire_protocols(protocols);
        // The server encrypts the same object many times, so its preference of cipher suites counts.
        config.ignore_client_order = true;
        // One ticket is enough to resume once, and each costs a frame per handshake.
        config.send_tls13_tickets = 1;
        let config = QuicServerConfig::try_from(config)
            .map_err(|error| TlsError::Parameters(error.to_string()))?;
        Ok(Self {
            config: Arc::new(config),
            web_transport: None,
        })
    }

    /// Serves WebTransport on connections whose ALPN is [`h3`](weir_h3::ALPN), which has to be among the protocols. The
    /// role sees such a connection once its session is established.
    #[must_use]
    pub fn with_web_transport(mut self, offer: Offer) -> Self {
        self.web_transport = Some(Arc::new(offer));
        self
    }
}

/// The servers that a client trusts.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Servers whose certificate chain leads to one of these roots.
    Roots(Vec<CertificateDer<'static>>),
    /// The server whose own certificate has one of these SHA-256 hashes, regardless of its issuer. Browsers call this
    /// `serverCertificateHashes`.
    Hashes(Vec<[u8; 32]>),
    /// Any server. For tests and self-signed certificates only: it gives no protection.
    Anyone,
}

/// How a client uses the sessions of earlier connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sessions {
    /// Not at all: every handshake is a full one.
    Forgotten,
    /// Sessions are resumed: the server need not authenticate again (RFC 8446 §2.2).
    Resumed,
    /// Sessions are resumed, and the client may send data with its first packet (0-RTT, RFC 8446 §2.3).
    Early,
}

/// A client's trusted certificates and protocols.
#[derive(Clone)]
pub struct ClientTls {
    pub(crate) config: Arc<dyn crypto::ClientConfig>,
    seen: Arc<Seen>,
}

impl std::fmt::Debug for ClientTls {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ClientTls").finish_non_exhaustive()
    }
}

impl ClientTls {
    /// Creates the parameters of a client that trusts `trust` and offers `protocols` (ALPN, preferred first).
    pub fn new(trust: Trust, protocols: &[&str]) -> Result<Self, TlsError> {
        Self::with_time(trust, protocols, None)
    }

    /// Does the same as [`new`](Self::new), with another source of the time of day than the system.
    pub fn with_time(
        trust: Trust,
        protocols: &[&str],
        time: Option<Arc<dyn TimeProvider>>,
    ) -> Result<Self, TlsError> {
        Self::build(trust, protocols, Sessions::Resumed, provider(), time)
    }

    /// Does the same as [`new`](Self::new), for a client that measures: it chooses how sessions are used, and records
    /// what its handshakes negotiated ([`proofs`](Self::proofs), [`certificate_key`](Self::certificate_key),
    /// [`cipher_suites`](Self::cipher_suites)). It offers AES only, which every server supports (RFC 8446 §9.1).
    pub fn with_sessions(
        trust: Trust,
        protocols: &[&str],
        sessions: Sessions,
    ) -> Result<Self, TlsError> {
        let mut provider = CryptoProvider::clone(&provider());
        provider
            .cipher_suites
            .retain(|suite| verifier::is_told_apart(suite.suite()));
        Self::build(trust, protocols, sessions, Arc::new(provider), None)
    }

    fn build(
        trust: Trust,
        protocols: &[&str],
        sessions: Sessions,
        provider: Arc<CryptoProvider>,
        time: Option<Arc<dyn TimeProvider>>,
    ) -> Result<Self, TlsError> {
        let builder = match time {
            Some(time) => rustls::ClientConfig::builder_with_details(provider, time),
            None => rustls::ClientConfig::builder_with_provider(provider),
        };
        let builder = builder
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| TlsError::Parameters(error.to_string()))?;
        let seen = Arc::<Seen>::default();
        let verifier = Verifier::new(trust, Arc::clone(&seen))?;
        let mut config = builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        config.key_log = seen.clone();
        match sessions {
            Sessions::Forgotten => config.resumption = Resumption::disabled(),
            Sessions::Resumed => {}
            Sessions::Early => config.enable_early_data = true,
        }
        Self::finish(config, protocols, seen)
    }

    /// Returns the parameters of a client that acknowledges packets as `acknowledgements` says.
    #[must_use]
    pub fn acknowledging(self, acknowledgements: Acknowledgements) -> Self {
        match acknowledgements {
            Acknowledgements::Delayed => self,
            Acknowledgements::Immediate => Self {
                config: Arc::new(ImmediateAcks(self.config)),
                ..self
            },
        }
    }

    /// Returns how often a server authenticated with its certificate, successfully or not: once in each full handshake,
    /// never in a resumed one.
    pub fn proofs(&self) -> u64 {
        self.seen.proofs()
    }

    /// Returns the latest reasons for which server certificates were refused.
    pub(crate) fn refusals(&self) -> &Arc<Refusals> {
        self.seen.refusals()
    }

    /// Returns the kind of key, such as `ECDSA P-256`, of the first certificate with which a server authenticated.
    pub fn certificate_key(&self) -> Option<&str> {
        self.seen.key()
    }

    /// Returns the cipher suites that complete handshakes negotiated, by their names in RFC 8446 §B.4, with the number
    /// of handshakes.
    pub fn cipher_suites(&self) -> Vec<(&'static str, u64)> {
        self.seen.suites()
    }

    /// Creates the parameters of a client that trusts certificates leading to one of `roots`, and authenticates with
    /// `chain` and `key`.
    pub fn with_certificate(
        roots: Vec<CertificateDer<'static>>,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        protocols: &[&str],
    ) -> Result<Self, TlsError> {
        let seen = Arc::<Seen>::default();
        let verifier = Verifier::new(Trust::Roots(roots), Arc::clone(&seen))?;
        let config = rustls::ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| TlsError::Parameters(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_auth_cert(chain, key)
            .map_err(|error| TlsError::Certificate(error.to_string()))?;
        Self::finish(config, protocols, seen)
    }

    fn finish(
        mut config: rustls::ClientConfig,
        protocols: &[&str],
        seen: Arc<Seen>,
    ) -> Result<Self, TlsError> {
        config.alpn_protocols = wire_protocols(protocols);
        let config = QuicClientConfig::try_from(config)
            .map_err(|error| TlsError::Parameters(error.to_string()))?;
        Ok(Self {
            config: Arc::new(config),
            seen,
        })
    }
}

fn root_store(certificates: Vec<CertificateDer<'static>>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots
            .add(certificate)
            .map_err(|error| TlsError::Root(error.to_string()))?;
    }
    Ok(roots)
}

/// Returns the SHA-256 hash of a certificate, as used for `serverCertificateHashes` in the WebTransport API.
pub fn certificate_hash(certificate: &CertificateDer<'_>) -> [u8; 32] {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, certificate);
    let mut hash = [0; 32];
    hash.copy_from_slice(digest.as_ref());
    hash
}

/// Returns TLS 1.3 with AES-128-GCM first: the cheapest suite per packet on machines with AES instructions, and one
/// that every QUIC implementation has (RFC 9001 §5.3). The others are offered as well.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider
        .cipher_suites
        .sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}

fn wire_protocols(protocols: &[&str]) -> Vec<Vec<u8>> {
    protocols
        .iter()
        .map(|protocol| protocol.as_bytes().to_vec())
        .collect()
}
