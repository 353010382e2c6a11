//! The relays that this one asks: their addresses, and the credentials for them.

use std::sync::Arc;

use anyhow::Context as _;
use weir_client::target::Target;
use weir_moqt::token::Token;
use weir_net::certificate::{self, Certificate};
use weir_quic::tls::ClientTls;
use weir_relay::Upstream;

use crate::{
    event_loop,
    relay::config::Configured,
    run::{self, RelayUrl, TrustChoice},
};

/// Looks the relays up, and loads the certificates and the token for them.
///
/// # Errors
/// Names the setting that is wrong.
pub(crate) fn load(configured: &Configured) -> anyhow::Result<Vec<Upstream>> {
    let targets = configured.config.upstream.urls.iter().map(|text| {
        let url: RelayUrl = text
            .parse()
            .with_context(|| configured.place("upstream.urls"))?;
        Ok(Upstream {
            name: url.to_string(),
            target: Arc::new(target(configured, &url)?),
            seed: u64::from_le_bytes(event_loop::seed()?),
        })
    });
    targets.collect()
}

/// Returns how to connect to another relay, with the credentials for it.
///
/// # Errors
/// Names the setting that is wrong.
pub(crate) fn target(configured: &Configured, url: &RelayUrl) -> anyhow::Result<Target> {
    let config = &configured.config.upstream;
    let trust = if config.insecure {
        TrustChoice::Anyone
    } else {
        TrustChoice::Roots(config.ca.clone())
    };
    let target = run::client_target(url, &trust, &configured.config.protocols());
    let mut target = target.with_context(|| configured.place("upstream.ca"))?;
    target.setup.authorization_tokens = token(configured)?.into_iter().collect();
    identify(configured, &mut target)?;
    Ok(target)
}

/// Adds the client certificate, if there is one.
fn identify(configured: &Configured, target: &mut Target) -> anyhow::Result<()> {
    let config = &configured.config.upstream;
    let (Some(chain), Some(key)) = (&config.certificate, &config.key) else {
        return Ok(());
    };
    let own = Certificate::load(chain, key);
    let own = own.with_context(|| configured.place("upstream.certificate"))?;
    let roots = match &config.ca {
        Some(file) => certificate::load_chain(file),
        None => certificate::system_roots(),
    };
    let roots = roots.with_context(|| configured.place("upstream.ca"))?;
    let is_web = target.client.web_transport.is_some();
    let protocols = if is_web {
        vec![weir_h3::ALPN]
    } else {
        configured.config.protocols()
    };
    let tls = ClientTls::with_certificate(roots, own.chain, own.key, &protocols);
    target.client.tls = tls.with_context(|| configured.place("upstream.certificate"))?;
    Ok(())
}

/// Reads the token. The error does not contain it.
fn token(configured: &Configured) -> anyhow::Result<Option<Token>> {
    let Some(file) = &configured.config.upstream.token_file else {
        return Ok(None);
    };
    let token = run::token_in(file).with_context(|| configured.place("upstream.token_file"))?;
    Ok(Some(token))
}
