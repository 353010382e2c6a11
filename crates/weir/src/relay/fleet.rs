//! The fleet of a relay: its settings, and the registry in NATS.

pub(crate) mod entry;
mod nats_registry;

use std::{net::SocketAddr, sync::Arc};

use anyhow::{Context as _, bail};
use weir_net::Waker;
use weir_relay::registry::{Registry, RelayId};

use self::{
    entry::Scope,
    nats_registry::{NatsRegistry, Own, Targets},
};
use crate::{
    event_loop,
    nats::NatsServers,
    relay::{config::Configured, credentials::RelayCredentials},
    run::{RelayUrl, UrlError},
};

/// A relay's place in its fleet.
pub(crate) struct Joined {
    /// The number of this relay.
    pub(crate) own: RelayId,
    pub(crate) registry: Box<dyn Registry>,
    /// Wakes the event loop of the relay for the registry.
    pub(crate) waker: Waker,
}

/// Joins the fleet, if the settings name one. If no NATS server can be reached, the relay joins later. `address` is the one
/// that the relay is bound to.
///
/// # Errors
/// A setting is wrong, NATS refuses the credentials, or the registry is of another version. The error names the setting.
pub(crate) fn join(
    configured: &Configured,
    credentials: Option<&Arc<RelayCredentials>>,
    address: SocketAddr,
) -> anyhow::Result<Option<Joined>> {
    let (Some(settings), Some(credentials)) = (check(configured)?, credentials) else {
        return Ok(None);
    };
    let own = RelayId(u64::from_le_bytes(event_loop::seed()?));
    let Settings {
        servers,
        scope,
        url,
    } = settings;
    let shared = Arc::clone(credentials);
    let targets: Targets = Arc::new(move |url: &str| {
        let url: RelayUrl = url.parse()?;
        Ok((url.to_string(), shared.target(&url)?))
    });
    let own_entry = Own {
        id: own,
        url: url.unwrap_or_else(|| format!("moqt://{address}")),
        scope,
    };
    let waker = Waker::new().context("cannot make an event descriptor")?;
    let registry = NatsRegistry::join(servers, own_entry, targets, waker.clone());
    let registry = registry.with_context(|| configured.place("fleet.nats"))?;
    Ok(Some(Joined {
        own,
        registry: Box::new(registry),
        waker,
    }))
}

/// The settings of a fleet, in their final form.
pub(crate) struct Settings {
    servers: NatsServers,
    scope: Scope,
    /// The URL of this relay, if it is not its address.
    url: Option<String>,
}

/// Checks the settings of the fleet; `None` if there are none.
///
/// # Errors
/// Names the setting that is wrong.
pub(crate) fn check(configured: &Configured) -> anyhow::Result<Option<Settings>> {
    let config = &configured.config.fleet;
    if config.nats.is_empty() {
        return Ok(None);
    }
    let urls: Vec<&str> = config.nats.iter().map(|url| url.0.as_str()).collect();
    let credentials = config.credentials.clone();
    let credentials = credentials.map(|file| (configured.place("fleet.credentials"), file));
    let servers = NatsServers::parse(
        &configured.place("fleet.nats"),
        &urls.join(","),
        credentials,
    )?;
    let scope = Scope::new(&config.scope).with_context(|| configured.place("fleet.scope"))?;
    let url = config.url.clone();
    let listen = configured.config.listen;
    if let Some(url) = &url {
        match url.parse::<RelayUrl>() {
            // The name may be known a while after the start only, and to others only.
            Ok(_) | Err(UrlError::Unknown(..)) => {}
            Err(error) => return Err(error).with_context(|| configured.place("fleet.url")),
        }
    } else if listen.ip().is_unspecified() {
        bail!(
            "{}: expected the URL by which other relays reach this one, since `listen` is {listen}",
            configured.place("fleet.url")
        );
    }
    Ok(Some(Settings {
        servers,
        scope,
        url,
    }))
}
