//! The relay's certificate and client CAs: loaded from files, reloaded while the relay runs, or self-signed.
//!
//! A bad file does not replace a loaded one.

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
    certificate::{
        Certificate, CertificateError, ClientRoots, ClientTrust, ServerCertificate, load_chain,
    },
    clock,
};
use weir_quic::{
    tls::{ServerTls, certificate_hash},
    web_transport::Offer,
};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::relay::config::Configured;

/// The certificate of the relay, and the CAs of client certificates.
#[derive(Debug)]
pub(crate) struct Certificates {
    /// Files of chain and key; `None` if the certificate is self-signed.
    files: Option<(PathBuf, PathBuf)>,
    /// Names in a self-signed certificate.
    names: Vec<String>,
    /// Accepted origins of web pages; empty for all.
    origins: Vec<String>,
    clients_file: Option<PathBuf>,
    server: Arc<ServerCertificate>,
    clients: Option<Arc<ClientTrust>>,
}

impl Certificates {
    /// Loads the files of the configuration, or makes a certificate. The error names the setting and the file.
    pub(crate) fn load(configured: &Configured) -> anyhow::Result<Self> {
        let tls = &configured.config.tls;
        let files = tls.certificate.clone().zip(tls.key.clone());
        let certificate = match &files {
            Some((chain, key)) => Certificate::load(chain, key),
            None => Certificate::self_made(&tls.names),
        };
        let server = certificate.and_then(Certificate::usable).map_err(|error| {
            let place = configured.place(match &files {
                Some((_, key)) if is_about(&error, key) => "tls.key",
                Some(_) => "tls.certificate",
                None => "tls.names",
            });
            anyhow::Error::new(error).context(place)
        })?;
        let clients_file = configured.config.auth.clients.ca.clone();
        let clients = clients_file.as_deref().map(|file| {
            let roots = load_chain(file).and_then(ClientRoots::new);
            roots.with_context(|| configured.place("auth.clients.ca"))
        });
        Ok(Self {
            files,
            names: tls.names.clone(),
            origins: origins(configured)?,
            clients_file,
            server: Arc::new(ServerCertificate::new(server)),
            clients: clients.transpose()?.map(ClientTrust::new).map(Arc::new),
        })
    }

    /// Reloads the files. If one is bad or its certificate is not valid, all loaded ones stay. The error names the file.
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

    /// Checks that the certificate of a file is valid at this time.
    pub(crate) fn check_validity(&self) -> anyhow::Result<()> {
        match &self.files {
            Some((chain, _)) => check_validity(chain, self.server.current().chain()),
            None => Ok(()),
        }
    }

    /// Renews a self-signed certificate that expires soon after `now`, the time since 1970. Returns whether it did.
    /// Established sessions are not affected.
    pub(crate) fn renew(&self, now: Duration) -> anyhow::Result<bool> {
        let is_due = self
            .expiry()
            .is_some_and(|expiry| expiry <= now + RENEWED_BEFORE);
        if self.files.is_some() || !is_due {
            return Ok(false);
        }
        let made = Certificate::self_made_at(&self.names, now)?;
        self.server.replace(made.usable()?);
        Ok(true)
    }

    /// Returns whether the certificate is self-signed, and so renewed by [`Self::renew`].
    pub(crate) fn is_self_made(&self) -> bool {
        self.files.is_none()
    }

    /// Returns the SHA-256 hash of the current certificate, in hexadecimal digits.
    pub(crate) fn hash(&self) -> String {
        hash_of(self.server.current().chain())
    }

    /// Returns the TLS configuration of a QUIC endpoint with `protocols` (ALPN). Over HTTP/3, WebTransport offers the same
    /// protocols.
    pub(crate) fn tls(&self, protocols: &[&str]) -> anyhow::Result<ServerTls> {
        let server: Arc<dyn ResolvesServerCert> = Arc::clone(&self.server) as _;
        let clients = self.clients.as_ref();
        let clients = clients.map(|clients| Arc::clone(clients) as Arc<dyn ClientCertVerifier>);
        let tls = ServerTls::with_resolver(server, clients, protocols)?;
        let native = protocols
            .iter()
            .filter(|protocol| **protocol != weir_h3::ALPN);
        Ok(tls.with_web_transport(Offer {
            protocols: native.map(|&protocol| protocol.to_owned()).collect(),
            paths: Vec::new(),
            origins: self.origins.clone(),
        }))
    }

    /// Returns when the certificate expires, since 1970; `None` if the certificate cannot be read.
    pub(crate) fn expiry(&self) -> Option<Duration> {
        let certificate = self.server.current();
        let (_, end) = validity(certificate.chain().first()?)?;
        Some(end)
    }

    /// Returns the files whose change causes a reload.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        let pair = self.files.iter().flat_map(|(chain, key)| [chain, key]);
        pair.chain(&self.clients_file).map(PathBuf::as_path)
    }
}

/// Returns whether a file cannot be read, or does not have the form that is expected of it.
fn is_about(error: &CertificateError, file: &Path) -> bool {
    match error {
        CertificateError::Read { path, .. } | CertificateError::Pem { path, .. } => {
            Path::new(path) == file
        }
        CertificateError::System(_)
        | CertificateError::Unusable(_)
        | CertificateError::Roots(_)
        | CertificateError::Make(_) => false,
    }
}

/// Returns the SHA-256 hash of the first certificate of a chain, in hexadecimal digits.
pub(crate) fn hash_of(chain: &[CertificateDer<'_>]) -> String {
    let own = chain.first();
    let hash = own.map(|own| certificate_hash(own).map(|byte| format!("{byte:02x}")));
    hash.unwrap_or_default().concat()
}

/// Returns `web_transport.allowed_origins`, after a check of their form.
fn origins(configured: &Configured) -> anyhow::Result<Vec<String>> {
    let origins = &configured.config.web_transport.allowed_origins;
    for origin in origins {
        let rest = origin.split_once("://").map(|(_, rest)| rest);
        if rest.is_none_or(|rest| rest.is_empty() || rest.contains('/')) {
            bail!(
                "{}: expected an origin such as https://example.org, not `{}`",
                configured.place("web_transport.allowed_origins"),
                origin.escape_debug()
            );
        }
    }
    Ok(origins.clone())
}

/// A watch on files that belong together, by their modification time and size.
#[derive(Debug)]
pub(crate) struct Watch {
    seen: Vec<(PathBuf, Option<(SystemTime, u64)>)>,
    /// Whether a file had changed at the last look.
    is_changing: bool,
}

impl Watch {
    /// Returns a watch that has seen the current state of `files`.
    pub(crate) fn new<'a>(files: impl Iterator<Item = &'a Path>) -> Self {
        let seen = files.map(|file| (file.to_owned(), stamp(file))).collect();
        Self {
            seen,
            is_changing: false,
        }
    }

    /// Looks at the files. Returns whether to read them: one has changed, and none since the last look. So a key is not read
    /// before its certificate is there too.
    pub(crate) fn look(&mut self) -> bool {
        let mut has_changed = false;
        for (file, seen) in &mut self.seen {
            let now = stamp(file);
            has_changed |= now != *seen;
            *seen = now;
        }
        std::mem::replace(&mut self.is_changing, has_changed) && !has_changed
    }

    /// Returns whether a file had changed at the last look, so that the next one should be soon.
    pub(crate) fn is_changing(&self) -> bool {
        self.is_changing
    }
}

fn stamp(file: &Path) -> Option<(SystemTime, u64)> {
    // Follows links, which certificate managers replace.
    let metadata = std::fs::metadata(file).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

fn check_validity(file: &Path, chain: &[CertificateDer<'_>]) -> anyhow::Result<()> {
    let now = clock::since_epoch();
    let Some((start, end)) = chain.first().and_then(validity) else {
        bail!("{}: the certificate cannot be decoded", file.display());
    };
    if end <= now {
        bail!(
            "{}: the certificate expired at {}: install a new one",
            file.display(),
            date(end)
        );
    }
    if start > now {
        bail!(
            "{}: the certificate is not valid before {}: check it and the clock",
            file.display(),
            date(start)
        );
    }
    Ok(())
}

/// Returns a time since 1970 as a date in UTC.
fn date(since_epoch: Duration) -> impl std::fmt::Display {
    humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + since_epoch)
}

/// Returns the start and the end of a certificate's validity, since 1970.
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

/// Time before its expiry at which a self-signed certificate is renewed.
pub(crate) const RENEWED_BEFORE: Duration = Duration::from_hours(24 * 2);

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> anyhow::Result<Certificates> {
        let configured = Configured::read(Some(("relay.toml", text)), |_| None, Vec::new());
        Certificates::load(&configured.map_err(|_| anyhow::anyhow!("not read"))?)
    }

    #[test]
    fn a_self_signed_certificate_is_renewed_before_it_expires() {
        let certificates = load("").unwrap();
        let (first, end) = (certificates.hash(), certificates.expiry().unwrap());
        let due = end.checked_sub(RENEWED_BEFORE).unwrap();
        let early = due.checked_sub(Duration::from_secs(1)).unwrap();
        assert!(!certificates.renew(early).unwrap());
        assert_eq!(certificates.hash(), first);
        assert!(certificates.renew(due).unwrap());
        assert_ne!(certificates.hash(), first);
        let next = certificates.expiry().unwrap();
        assert!(next > end && next <= due + Duration::from_hours(24 * 14));
        assert!(!certificates.renew(due).unwrap(), "once");
    }

    #[test]
    fn files_are_read_when_none_changes_any_more() {
        let name = format!("weir-watch-{}", std::process::id());
        let pair = ["key", "cert"].map(|end| std::env::temp_dir().join(format!("{name}.{end}")));
        let write = |file: &PathBuf, text: &str| std::fs::write(file, text).unwrap();
        for file in &pair {
            write(file, "old");
        }
        let mut watch = Watch::new(pair.iter().map(PathBuf::as_path));
        assert!(!watch.look() && !watch.is_changing());
        write(&pair[0], "the new key");
        assert!(!watch.look() && watch.is_changing());
        write(&pair[1], "the new certificate");
        assert!(!watch.look() && watch.is_changing());
        assert!(watch.look() && !watch.is_changing());
        assert!(!watch.look(), "once");
        for file in &pair {
            std::fs::remove_file(file).unwrap();
        }
    }

    #[test]
    fn the_form_of_origins_is_checked() {
        let good = "[web_transport]\nallowed_origins = [\"https://a.example:8443\"]";
        assert_eq!(load(good).unwrap().origins, ["https://a.example:8443"]);
        for bad in ["a.example", "https://", "https://a.example/"] {
            let text = format!("[web_transport]\nallowed_origins = [{bad:?}]");
            let error = load(&text).unwrap_err().to_string();
            assert!(
                error.starts_with("relay.toml:2: web_transport.allowed_origins: expected"),
                "{error}"
            );
        }
    }
}
