//! What this relay shows to other relays, and whom it trusts: the token, the client certificate and the CAs of `upstream`.
//! The files are read again while the relay runs.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context as _;
use weir_client::target::Target;
use weir_moqt::token::Token;
use weir_net::certificate::{self, Certificate};
use weir_quic::tls::ClientTls;
use weir_relay::LinkCredentials;

use crate::{
    relay::config::Configured,
    run::{self, RelayUrl, TrustChoice},
};

/// The credentials for other relays. A bad file does not replace what was loaded.
pub(crate) struct RelayCredentials {
    configured: Configured,
    present: Mutex<Arc<Loaded>>,
}

/// What was read from the files.
struct Loaded {
    /// How often the files had changed before.
    revision: u64,
    /// The contents of the files, to see whether they change.
    contents: Vec<Vec<u8>>,
    token: Option<Token>,
    trust: TrustChoice,
    /// TLS for raw QUIC and for WebTransport.
    native: ClientTls,
    web: ClientTls,
}

impl RelayCredentials {
    /// Loads the files of the settings; `None` if there are no other relays.
    ///
    /// # Errors
    /// Names the setting that is wrong.
    pub(crate) fn load(configured: &Configured) -> anyhow::Result<Option<Arc<Self>>> {
        let config = &configured.config;
        if config.upstream.urls.is_empty() && config.fleet.nats.is_empty() {
            return Ok(None);
        }
        let present = Mutex::new(Arc::new(read(configured)?));
        Ok(Some(Arc::new(Self {
            configured: configured.clone(),
            present,
        })))
    }

    /// Returns the files whose change causes a reload.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        files(&self.configured).into_iter()
    }

    /// Reads the files again. If one is bad, what was loaded stays.
    ///
    /// # Errors
    /// Names the setting whose file is bad.
    pub(crate) fn reload(&self) -> anyhow::Result<()> {
        let read = read(&self.configured)?;
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        if present.contents != read.contents {
            *present = Arc::new(Loaded {
                revision: present.revision + 1,
                ..read
            });
        }
        Ok(())
    }

    /// Returns how to connect to another relay.
    ///
    /// # Errors
    /// The URL cannot be used.
    pub(crate) fn target(&self, url: &RelayUrl) -> anyhow::Result<Target> {
        let trust = &self.present().trust;
        let mut target = run::client_target(url, trust, &self.configured.config.protocols())?;
        self.apply(&mut target);
        Ok(target)
    }

    fn present(&self) -> Arc<Loaded> {
        let present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&present)
    }
}

impl LinkCredentials for RelayCredentials {
    fn revision(&self) -> u64 {
        self.present().revision
    }

    fn apply(&self, target: &mut Target) {
        let present = self.present();
        let tls = match target.client.web_transport {
            Some(_) => &present.web,
            None => &present.native,
        };
        target.client.tls = tls.clone();
        target.setup.authorization_tokens = present.token.clone().into_iter().collect();
    }
}

// Tokens and keys stay out of logs.
impl fmt::Debug for RelayCredentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RelayCredentials")
            .field("revision", &self.revision())
            .finish_non_exhaustive()
    }
}

fn files(configured: &Configured) -> Vec<&Path> {
    let config = &configured.config.upstream;
    [
        &config.token_file,
        &config.ca,
        &config.certificate,
        &config.key,
    ]
    .into_iter()
    .flatten()
    .map(PathBuf::as_path)
    .collect()
}

fn read(configured: &Configured) -> anyhow::Result<Loaded> {
    let config = &configured.config.upstream;
    let contents = files(configured).into_iter();
    // A file that cannot be read is named below, with its setting.
    let contents = contents.map(|file| fs::read(file).unwrap_or_default());
    let contents = contents.collect();
    let token = config.token_file.as_ref().map(|file| {
        let token = run::token_in(file);
        token.with_context(|| configured.place("upstream.token_file"))
    });
    let roots = || {
        let roots = match &config.ca {
            Some(file) => certificate::load_chain(file),
            None => certificate::system_roots(),
        };
        roots.with_context(|| configured.place("upstream.ca"))
    };
    let own = config.certificate.as_ref().zip(config.key.as_ref());
    let own = own.map(|(chain, key)| {
        let own = Certificate::load(chain, key);
        own.with_context(|| configured.place("upstream.certificate"))
    });
    let own = own.transpose()?;
    // A client certificate is shown only to relays that are trusted.
    let trust = if config.insecure && own.is_none() {
        TrustChoice::Anyone
    } else {
        TrustChoice::Certificates(roots()?)
    };
    let tls = |protocols: &[&str]| match &own {
        Some(own) => {
            let (chain, key) = (own.chain.clone(), own.key.clone_key());
            let tls = ClientTls::with_certificate(roots()?, chain, key, protocols);
            tls.with_context(|| configured.place("upstream.certificate"))
        }
        None => ClientTls::new(trust.load()?, protocols)
            .with_context(|| configured.place("upstream.ca")),
    };
    Ok(Loaded {
        revision: 0,
        contents,
        token: token.transpose()?,
        native: tls(&configured.config.protocols())?,
        web: tls(&[weir_h3::ALPN])?,
        trust,
    })
}
