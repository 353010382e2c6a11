//! The relay that is measured: its URL, its address, whom to trust.

use std::{
    fmt,
    net::{IpAddr, SocketAddr, ToSocketAddrs as _},
    path::PathBuf,
    str::FromStr,
};

use anyhow::Context as _;
pub(crate) use weir_bench::target::Target;
use weir_moqt::message::Setup;
use weir_net::certificate;
use weir_quic::{
    ClientConfig,
    tls::{ClientTls, Trust},
};

/// A relay's URL: `moqt://host:port/path?query` for raw QUIC [moqt-18 §3.1.2].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RelayUrl {
    host: String,
    port: u16,
    path: String,
    pub(crate) address: SocketAddr,
}

/// What is wrong with a URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UrlError {
    #[error("{0:?} is no relay URL; expected moqt://HOST:PORT[/PATH]")]
    Form(String),
    #[error("{0:?}: WebTransport (https://) is not served yet; use moqt://HOST:PORT")]
    WebTransport(String),
    #[error("{0:?}: the host cannot be found: {1}")]
    Unknown(String, String),
}

/// Whom the clients trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TrustChoice {
    /// Anybody: for relays with self-made certificates.
    Anyone,
    /// The certificates in a PEM file, or the system's if there is none.
    Roots(Option<PathBuf>),
}

impl RelayUrl {
    /// Our own relay on this machine.
    pub(crate) fn of_child(address: SocketAddr) -> Self {
        Self {
            host: "localhost".to_owned(),
            port: address.port(),
            path: String::new(),
            address,
        }
    }

    /// Whether only this machine or a private network is reached by it (draft-evens-moq-bench-00 §5.7).
    pub(crate) fn is_isolated(&self) -> bool {
        match self.address.ip() {
            IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
            IpAddr::V6(ip) => {
                ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local()
            }
        }
    }
}

impl FromStr for RelayUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let form = || UrlError::Form(text.to_owned());
        if text.starts_with("https://") {
            return Err(UrlError::WebTransport(text.to_owned()));
        }
        let rest = text.strip_prefix("moqt://").ok_or_else(form)?;
        let split = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(split);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && !port.contains(']') => {
                (host, port.parse().map_err(|_| form())?)
            }
            Some((_, port)) if !port.contains(']') => return Err(form()),
            Some(_) | None if !authority.is_empty() => (authority, DEFAULT_PORT),
            Some(_) | None => return Err(form()),
        };
        let host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let unknown = |error: String| UrlError::Unknown(host.clone(), error);
        let mut addresses = (host.as_str(), port)
            .to_socket_addrs()
            .map_err(|error| unknown(error.to_string()))?;
        let address = addresses
            .next()
            .ok_or_else(|| unknown("it has no address".to_owned()))?;
        Ok(Self {
            host,
            port,
            path: path.to_owned(),
            address,
        })
    }
}

impl fmt::Display for RelayUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bracket = self.host.contains(':');
        let (open, close) = if bracket { ("[", "]") } else { ("", "") };
        write!(
            formatter,
            "moqt://{open}{}{close}:{}{}",
            self.host, self.port, self.path
        )
    }
}

/// How clients reach the relay.
pub(crate) fn target(url: &RelayUrl, trust: &TrustChoice, sockets: u32) -> anyhow::Result<Target> {
    let trust = match trust {
        TrustChoice::Anyone => Trust::Anyone,
        TrustChoice::Roots(Some(file)) => Trust::Roots(certificate::load_chain(file)?),
        TrustChoice::Roots(None) => Trust::Roots(certificate::system_roots()?),
    };
    let tls = ClientTls::new(trust, &super::protocols()).context("TLS")?;
    let is_address = url.host.parse::<IpAddr>().is_ok();
    Ok(Target {
        remote: url.address,
        server_name: url.host.clone(),
        client: ClientConfig { tls },
        setup: Setup {
            path: (!url.path.is_empty()).then(|| url.path.clone()),
            authority: (!is_address || url.port != DEFAULT_PORT)
                .then(|| format!("{}:{}", url.host, url.port)),
            implementation: Some(concat!("weir/", env!("CARGO_PKG_VERSION")).to_owned()),
            ..Setup::default()
        },
        sockets,
    })
}

/// UDP port 443 is the default of the `moqt` scheme [moqt-18 §3.1.2].
const DEFAULT_PORT: u16 = 443;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let url: RelayUrl = "moqt://127.0.0.1:4443/live?x=1".parse().unwrap();
        assert_eq!(url.address, "127.0.0.1:4443".parse().unwrap());
        assert_eq!(url.to_string(), "moqt://127.0.0.1:4443/live?x=1");
        assert!(url.is_isolated());
        let url: RelayUrl = "moqt://[::1]:99".parse().unwrap();
        assert_eq!(url.address, "[::1]:99".parse().unwrap());
        assert_eq!(url.to_string(), "moqt://[::1]:99");
        let url: RelayUrl = "moqt://192.0.2.1".parse().unwrap();
        assert_eq!(url.address.port(), 443);
        assert!(!url.is_isolated());
    }

    #[test]
    fn bad_urls_are_named() {
        for bad in [
            "",
            "127.0.0.1:4443",
            "moqt://",
            "moqt://:1",
            "moqt://h:x",
            "moqt://h:99999",
        ] {
            let error = bad.parse::<RelayUrl>().unwrap_err();
            assert!(error.to_string().contains(&format!("{bad:?}")), "{error}");
        }
        let error = "https://localhost:1".parse::<RelayUrl>().unwrap_err();
        assert!(matches!(error, UrlError::WebTransport(_)));
    }
}
