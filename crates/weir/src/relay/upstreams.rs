//! The relays that this one asks, and their addresses.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError, mpsc},
};

use anyhow::Context as _;
use weir_relay::{Upstream, Whereabouts};

use crate::{
    event_loop,
    relay::{config::Configured, credentials::RelayCredentials},
    run::RelayUrl,
    urls,
};

/// Looks the relays up.
///
/// # Errors
/// Names the setting that is wrong.
pub(crate) fn load(
    configured: &Configured,
    credentials: Option<&Arc<RelayCredentials>>,
) -> anyhow::Result<Vec<Upstream>> {
    let Some(credentials) = credentials else {
        return Ok(Vec::new());
    };
    let targets = configured.config.upstream.urls.iter().map(|text| {
        let url: RelayUrl = text
            .parse()
            .with_context(|| configured.place("upstream.urls"))?;
        Ok(Upstream {
            name: url.to_string(),
            target: Arc::new(credentials.target(&url)?),
            seed: u64::from_le_bytes(event_loop::seed()?),
            whereabouts: whereabouts(&url)?,
        })
    });
    targets.collect()
}

/// Returns where the host of a URL is, which may change; `None` if the URL has an address in place of a host name.
fn whereabouts(url: &RelayUrl) -> anyhow::Result<Option<Arc<dyn Whereabouts>>> {
    let Some((host, port)) = url.host_name() else {
        return Ok(None);
    };
    let look_up = move || match urls::look_up(&host, port) {
        Ok(address) => Some(address),
        Err(error) => {
            tracing::debug!(host, "the address is not known: {error}");
            None
        }
    };
    let host = HostAddress::start(url.address, look_up);
    Ok(Some(Arc::new(host.context("cannot start a thread")?)))
}

/// The address of a host. A thread looks it up again each time that it is used, and ends with this value.
#[derive(Debug)]
struct HostAddress {
    found: Arc<Mutex<SocketAddr>>,
    wanted: mpsc::SyncSender<()>,
}

impl HostAddress {
    fn start(
        first: SocketAddr,
        look_up: impl Fn() -> Option<SocketAddr> + Send + 'static,
    ) -> std::io::Result<Self> {
        let found = Arc::new(Mutex::new(first));
        let (wanted, wait) = mpsc::sync_channel(1);
        let noted = Arc::clone(&found);
        let looking = std::thread::Builder::new().name("weir-lookup".to_owned());
        looking.spawn(move || {
            while wait.recv().is_ok() {
                if let Some(address) = look_up() {
                    *noted.lock().unwrap_or_else(PoisonError::into_inner) = address;
                }
            }
        })?;
        Ok(Self { found, wanted })
    }
}

impl Whereabouts for HostAddress {
    fn address(&self) -> SocketAddr {
        // One lookup that waits is enough.
        let _is_first = self.wanted.try_send(()).is_ok();
        *self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_net::clock;

    use super::*;

    #[test]
    fn a_host_that_moves_is_found_by_a_later_attempt() {
        let places = ["127.0.0.1:1", "127.0.0.2:1"].map(|place| place.parse().unwrap());
        let now = Arc::new(Mutex::new(None));
        let named = Arc::clone(&now);
        let host = HostAddress::start(places[0], move || *named.lock().unwrap()).unwrap();
        assert_eq!(host.address(), places[0]);
        // A name that is not known at present changes nothing.
        assert_eq!(host.address(), places[0]);
        *now.lock().unwrap() = Some(places[1]);
        let until = clock::now() + Duration::from_mins(1);
        while host.address() != places[1] {
            assert!(clock::now() < until);
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    #[test]
    fn only_names_are_looked_up() {
        for (url, is_name) in [
            ("moqt://127.0.0.1:4443", false),
            ("https://[::1]:4443", false),
            ("moqt://[::1]:4443", false),
            ("moqt://localhost:4443", true),
            ("https://localhost:4443", true),
        ] {
            let found = whereabouts(&url.parse().unwrap()).unwrap();
            assert_eq!(found.is_some(), is_name, "{url}");
        }
    }
}
