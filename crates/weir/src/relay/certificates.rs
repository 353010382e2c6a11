//! The relay's certificates: loaded from files, loaded again while it runs, never lost to a bad file.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, bail};
use rustls::{
    pki_types::CertificateDer,
    server::{ResolvesServerCert, danger::ClientCertVerifier},
};
use weir_net::{
    certificate::{Certificate, ClientRoots, ClientTrust, ServerCertificate, load_chain},
    clock,
};
use weir_quic::{
    h3,
    tls::{ServerTls, certificate_hash},
    web_transport::Offer,
};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::relay::config::Configured;

/// What the relay shows and whom it trusts.
#[derive(Debug)]
pub(crate) struct Certificates {
    /// Chain and key; `None` if the certificate is self-made.
    files: Option<(PathBuf, PathBuf)>,
    clients_file: Option<PathBuf>,
    server: Arc<ServerCertificate>,
    clients: Option<Arc<ClientTrust>>,
}

impl Certificates {
    /// Loads what the configuration names, or makes a certificate.
    pub(crate) fn load(configured: &Configured) -> anyhow::Result<Self> {
        let tls = &configured.config.tls;
        let files = tls.certificate.clone().zip(tls.key.clone());
        let place = || match &files {
            Some(_) => configured.place("tls.certificate"),
            None => configured.place("tls.names"),
        };
        let certificate = match &files {
            Some((chain, key)) => Certificate::load(chain, key),
            None => Certificate::self_made(&tls.names),
        };
        let server = certificate
            .and_then(Certificate::usable)
            .with_context(place)?;
        let clients_file = configured.config.auth.clients.ca.clone();
        let clients = clients_file.as_deref().map(|file| {
            let roots = load_chain(file).and_then(ClientRoots::new);
            roots.with_context(|| configured.place("auth.clients.ca"))
        });
        Ok(Self {
            files,
            clients_file,
            server: Arc::new(ServerCertificate::new(server)),
            clients: clients.transpose()?.map(ClientTrust::new).map(Arc::new),
        })
    }

    /// Loads the files again. If anything is wrong with one of them, all stays as it was.
    pub(crate) fn reload(&self) -> anyhow::Result<()> {
        let loaded = self.files.as_ref().map(|(chain, key)| {
            let certificate = Certificate::load(chain, key)?.usable();
            let certificate = certificate.with_context(|| chain.display().to_string())?;
            check_validity(chain, certificate.chain())?;
            anyhow::Ok(certificate)
        });
        let roots = self.clients_file.as_deref().map(|file| {
            let roots = load_chain(file).and_then(ClientRoots::new);
            roots.with_context(|| file.display().to_string())
        });
        let (loaded, roots) = (loaded.transpose()?, roots.transpose()?);
        if let Some(certificate) = loaded {
            self.server.replace(certificate);
        }
        if let (Some(clients), Some(roots)) = (&self.clients, roots) {
            clients.replace(roots);
        }
        Ok(())
    }

    /// What is wrong with the time for which the certificate is valid, if anything.
    pub(crate) fn check_validity(&self) -> anyhow::Result<()> {
        match &self.files {
            Some((chain, _)) => check_validity(chain, self.server.current().chain()),
            None => Ok(()),
        }
    }

    /// The SHA-256 hash of the certificate that is shown now, in hexadecimal digits.
    pub(crate) fn hash(&self) -> String {
        let current = self.server.current();
        let own = current.chain().first();
        let hash = own.map(|own| certificate_hash(own).map(|byte| format!("{byte:02x}")));
        hash.unwrap_or_default().concat()
    }

    /// TLS for a QUIC endpoint that speaks `protocols` (ALPN), and over HTTP/3 each of them in WebTransport.
    pub(crate) fn tls(&self, protocols: &[&str]) -> anyhow::Result<ServerTls> {
        let server: Arc<dyn ResolvesServerCert> = Arc::clone(&self.server) as _;
        let clients = self.clients.as_ref();
        let clients = clients.map(|clients| Arc::clone(clients) as Arc<dyn ClientCertVerifier>);
        let tls = ServerTls::with_resolver(server, clients, protocols)?;
        let native = protocols.iter().filter(|protocol| **protocol != h3::ALPN);
        Ok(tls.with_web_transport(Offer {
            protocols: native.map(|&protocol| protocol.to_owned()).collect(),
            paths: Vec::new(),
        }))
    }

    /// When the certificate ends, since 1970; `None` if it cannot be told.
    pub(crate) fn expiry(&self) -> Option<Duration> {
        let certificate = self.server.current();
        let (_, end) = validity(certificate.chain().first()?)?;
        Some(end)
    }

    /// The files that a change of means a reload.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        let pair = self.files.iter().flat_map(|(chain, key)| [chain, key]);
        pair.chain(&self.clients_file).map(PathBuf::as_path)
    }
}

/// Notices that files have changed, by their time and size.
#[derive(Debug)]
pub(crate) struct Watch {
    seen: Vec<(PathBuf, Option<(SystemTime, u64)>)>,
}

impl Watch {
    /// Watches `files` from now on.
    pub(crate) fn new<'a>(files: impl Iterator<Item = &'a Path>) -> Self {
        let seen = files.map(|file| (file.to_owned(), stamp(file))).collect();
        Self { seen }
    }

    /// Whether one of them is not what it was when last asked.
    pub(crate) fn has_changed(&mut self) -> bool {
        let mut has_changed = false;
        for (file, seen) in &mut self.seen {
            let now = stamp(file);
            has_changed |= now != *seen;
            *seen = now;
        }
        has_changed
    }
}

fn stamp(file: &Path) -> Option<(SystemTime, u64)> {
    // Through links: certificate managers swap those.
    let metadata = std::fs::metadata(file).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

fn check_validity(file: &Path, chain: &[CertificateDer<'_>]) -> anyhow::Result<()> {
    let now = clock::since_epoch();
    let Some((start, end)) = chain.first().and_then(validity) else {
        bail!("{}: the certificate cannot be read", file.display());
    };
    if end <= now {
        bail!("{}: the certificate has expired", file.display());
    }
    if start > now {
        bail!("{}: the certificate is not valid yet", file.display());
    }
    Ok(())
}

/// From when to when a certificate is valid, since 1970.
fn validity(certificate: &CertificateDer<'_>) -> Option<(Duration, Duration)> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let validity = certificate.validity();
    let since_epoch = |seconds: i64| Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    let (start, end) = (
        validity.not_before.timestamp(),
        validity.not_after.timestamp(),
    );
    Some((since_epoch(start), since_epoch(end)))
}
