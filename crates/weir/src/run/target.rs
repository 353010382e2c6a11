//! The relay that is measured: its URL, its address, whom to trust.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr, ToSocketAddrs as _},
    path::PathBuf,
    str::FromStr,
};

use anyhow::Context as _;
pub(crate) use weir_client::target::Target;
use weir_moqt::message::Setup;
use weir_net::certificate;
use weir_quic::{
    ClientConfig,
    tls::{ClientTls, Trust},
    web_transport::Request,
};

/// A relay's URL: `moqt://host:port/path?query` for raw QUIC, `https://` for WebTransport [moqt-18 §3.1.2].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RelayUrl {
    pub(crate) scheme: Scheme,
    host: String,
    port: u16,
    path: String,
    pub(crate) address: SocketAddr,
}

/// What carries a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Quic,
    WebTransport,
}

impl Scheme {
    const ALL: [Self; 2] = [Self::Quic, Self::WebTransport];

    fn prefix(self) -> &'static str {
        match self {
            Self::Quic => "moqt://",
            Self::WebTransport => "https://",
        }
    }

    /// What reports call it.
    pub(crate) fn transport(self) -> &'static str {
        match self {
            Self::Quic => "raw QUIC",
            Self::WebTransport => "WebTransport",
        }
    }
}

/// What is wrong with a URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UrlError {
    #[error("{0:?} is no relay URL; expected moqt://HOST:PORT[/PATH] or https://HOST:PORT[/PATH]")]
    Form(String),
    #[error("{0:?}: the host cannot be found: {1}")]
    Unknown(String, String),
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

impl RelayUrl {
    /// Our own relay on this machine.
    pub(crate) fn of_child(address: SocketAddr) -> Self {
        Self {
            scheme: Scheme::Quic,
            host: "localhost".to_owned(),
            port: address.port(),
            path: String::new(),
            address,
        }
    }

    /// Host and port, as they stand in a URL.
    fn authority(&self) -> String {
        let bracket = self.host.contains(':');
        let (open, close) = if bracket { ("[", "]") } else { ("", "") };
        format!("{open}{}{close}:{}", self.host, self.port)
    }

    /// Whether only this machine or a private network is reached by it (draft-evens-moq-bench-00 §5.7).
    pub(crate) fn is_isolated(&self) -> bool {
        is_isolated(self.address.ip())
    }
}

/// Looks up where a host is; IPv4 is preferred, so that two runs take the same way, and `localhost` is the address that
/// servers listen on by default.
pub(crate) fn look_up(host: &str, port: u16) -> io::Result<SocketAddr> {
    let found: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    let first = found
        .iter()
        .find(|one| one.is_ipv4())
        .or_else(|| found.first());
    first
        .copied()
        .ok_or_else(|| io::Error::other("it has no address"))
}

/// Whether an address is one of this machine or of a private network.
pub(crate) fn is_isolated(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

impl FromStr for RelayUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let form = || UrlError::Form(text.to_owned());
        let mut schemes = Scheme::ALL.into_iter();
        let (scheme, rest) = schemes
            .find_map(|scheme| Some((scheme, text.strip_prefix(scheme.prefix())?)))
            .ok_or_else(form)?;
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
        let address = look_up(&host, port).map_err(|error| unknown(error.to_string()))?;
        Ok(Self {
            scheme,
            host,
            port,
            path: path.to_owned(),
            address,
        })
    }
}

impl fmt::Display for RelayUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}{}{}",
            self.scheme.prefix(),
            self.authority(),
            self.path
        )
    }
}

/// How clients reach the relay from one socket, with any draft.
pub(crate) fn target(url: &RelayUrl, trust: &TrustChoice) -> anyhow::Result<Target> {
    target_with(url, trust, 1, &super::protocols())
}

/// How clients reach the relay with one of the drafts that `protocols` names.
pub(crate) fn target_with(
    url: &RelayUrl,
    trust: &TrustChoice,
    sockets: u32,
    protocols: &[&'static str],
) -> anyhow::Result<Target> {
    let trust = match trust {
        TrustChoice::Anyone => Trust::Anyone,
        TrustChoice::Hash(hash) => Trust::Hashes(vec![*hash]),
        TrustChoice::Roots(Some(file)) => Trust::Roots(certificate::load_chain(file)?),
        TrustChoice::Roots(None) => Trust::Roots(certificate::system_roots()?),
    };
    let alpns = match url.scheme {
        Scheme::Quic => protocols.to_vec(),
        Scheme::WebTransport => vec![weir_h3::ALPN],
    };
    let tls = ClientTls::new(trust, &alpns).context("TLS")?;
    let web_transport = (url.scheme == Scheme::WebTransport).then(|| Request {
        authority: url.authority(),
        path: match url.path.strip_prefix('/') {
            Some(_) => url.path.clone(),
            None => format!("/{}", url.path),
        },
        protocols: protocols.iter().map(|&name| name.to_owned()).collect(),
        origin: None,
    });
    Ok(Target {
        setup: Setup {
            implementation: Some(concat!("weir/", env!("CARGO_PKG_VERSION")).to_owned()),
            ..named(url)
        },
        sockets,
        ..Target::new(url.address, &url.host, ClientConfig { tls, web_transport })
    })
}

/// What SETUP says of the URL: nothing where the request has said it [moqt-18 §10.3.1.1, §10.3.1.2].
fn named(url: &RelayUrl) -> Setup {
    match url.scheme {
        Scheme::WebTransport => Setup::default(),
        Scheme::Quic => {
            let is_address = url.host.parse::<IpAddr>().is_ok();
            Setup {
                path: (!url.path.is_empty()).then(|| url.path.clone()),
                authority: (!is_address || url.port != DEFAULT_PORT).then(|| url.authority()),
                ..Setup::default()
            }
        }
    }
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
    fn what_is_asked_for_over_web_transport() {
        let url: RelayUrl = "https://[::1]:99?x".parse().unwrap();
        assert_eq!(url.to_string(), "https://[::1]:99?x");
        let target = target(&url, &TrustChoice::Anyone).unwrap();
        let request = target.client.web_transport.unwrap();
        assert_eq!(request.authority, "[::1]:99");
        assert_eq!(request.path, "/?x");
        assert!(request.protocols.contains(&"moqt-18".to_owned()));
        assert_eq!((target.setup.path, target.setup.authority), (None, None));
        let one = target_with(&url, &TrustChoice::Anyone, 1, &["moqt-99"]).unwrap();
        assert_eq!(one.client.web_transport.unwrap().protocols, ["moqt-99"]);
    }

    #[test]
    fn what_setup_says_of_the_url() {
        for (url, authority, path) in [
            ("moqt://[::1]:99/live", Some("[::1]:99"), Some("/live")),
            ("moqt://127.0.0.1:99", Some("127.0.0.1:99"), None),
            // An address at the usual port says nothing that the packets do not.
            ("moqt://[::1]", None, None),
            ("moqt://localhost", Some("localhost:443"), None),
            ("moqt://localhost:99?x", Some("localhost:99"), Some("?x")),
        ] {
            let setup = target(&url.parse().unwrap(), &TrustChoice::Anyone)
                .unwrap()
                .setup;
            assert_eq!(setup.authority.as_deref(), authority, "{url}");
            assert_eq!(setup.path.as_deref(), path, "{url}");
        }
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
    }
}
