//! The relay's URL, its address, and how clients reach it.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use anyhow::Context as _;
use url::{Position, Url};
pub(crate) use weir_client::target::Target;
use weir_moqt::message::Setup;
use weir_quic::{ClientConfig, tls::ClientTls, web_transport::Request};

use super::TrustChoice;
use crate::urls::{self, Redacted};

/// A relay's URL: `moqt://host:port/path?query` for raw QUIC, `https://` for WebTransport [moqt-18 §3.1.2].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RelayUrl {
    pub(crate) scheme: Scheme,
    url: Url,
    pub(crate) address: SocketAddr,
}

/// The transport of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Quic,
    WebTransport,
}

impl Scheme {
    const ALL: [Self; 2] = [Self::Quic, Self::WebTransport];

    fn name(self) -> &'static str {
        match self {
            Self::Quic => "moqt",
            Self::WebTransport => "https",
        }
    }

    /// Returns its name in reports.
    pub(crate) fn transport(self) -> &'static str {
        match self {
            Self::Quic => "raw QUIC",
            Self::WebTransport => "WebTransport",
        }
    }
}

/// Why a URL is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UrlError {
    #[error(
        "{0:?} is not the URL of a relay; expected moqt://HOST:PORT[/PATH] or https://HOST:PORT[/PATH]"
    )]
    Form(String),
    #[error("the host {0:?} has no address: {1}")]
    Unknown(String, String),
}

impl RelayUrl {
    /// Returns the URL of weir's own relay on this machine.
    pub(crate) fn of_child(address: SocketAddr) -> Self {
        let url = format!("moqt://localhost:{}", address.port());
        Self {
            scheme: Scheme::Quic,
            url: Url::parse(&url).expect("a host and a port"),
            address,
        }
    }

    fn host(&self) -> String {
        urls::host(&self.url)
    }

    fn port(&self) -> u16 {
        self.url.port().unwrap_or(DEFAULT_PORT)
    }

    /// Returns host and port, as in a URL.
    fn authority(&self) -> String {
        let host = &self.url[Position::BeforeHost..Position::AfterHost];
        format!("{host}:{}", self.port())
    }

    /// Returns path and query.
    fn path(&self) -> &str {
        urls::path(&self.url)
    }

    /// Returns the whole URL for a browser, which has no raw QUIC. It may hold a token: do not show it.
    pub(crate) fn for_browsers(&self) -> String {
        self.with_scheme(Scheme::WebTransport)
    }

    /// Returns the whole URL, for an agent. It may hold a token: do not show it.
    pub(super) fn with_query(&self) -> String {
        self.with_scheme(self.scheme)
    }

    fn with_scheme(&self, scheme: Scheme) -> String {
        format!("{}://{}{}", scheme.name(), self.authority(), self.path())
    }

    /// Whether the relay is on this machine or in a private network (draft-evens-moq-bench-00 §5.7).
    pub(crate) fn is_isolated(&self) -> bool {
        urls::is_isolated(self.address.ip())
    }
}

impl FromStr for RelayUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let url = urls::with_host(text);
        let scheme = url.as_ref().and_then(|url| {
            let mut schemes = Scheme::ALL.into_iter();
            schemes.find(|scheme| scheme.name() == url.scheme())
        });
        let (url, scheme) = url
            .zip(scheme)
            .ok_or_else(|| UrlError::Form(Redacted(text).to_string()))?;
        let host = urls::host(&url);
        let address = urls::look_up(&host, url.port().unwrap_or(DEFAULT_PORT))
            .map_err(|error| UrlError::Unknown(host, error.to_string()))?;
        Ok(Self {
            scheme,
            url,
            address,
        })
    }
}

/// Shows the URL without its query, which may hold a token.
impl fmt::Display for RelayUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        Redacted(&self.with_scheme(self.scheme)).fmt(formatter)
    }
}

/// Returns how clients reach the relay, with one socket and the drafts `protocols` (ALPN), the preferred one first.
pub(crate) fn target(
    url: &RelayUrl,
    trust: &TrustChoice,
    protocols: &[&'static str],
) -> anyhow::Result<Target> {
    let alpns = match url.scheme {
        Scheme::Quic => protocols.to_vec(),
        Scheme::WebTransport => vec![weir_h3::ALPN],
    };
    let tls = ClientTls::new(trust.load()?, &alpns).context("TLS")?;
    let web_transport = (url.scheme == Scheme::WebTransport).then(|| Request {
        authority: url.authority(),
        path: url.path().to_owned(),
        protocols: protocols.iter().map(|&name| name.to_owned()).collect(),
        origin: None,
    });
    Ok(Target {
        setup: Setup {
            implementation: Some(concat!("weir/", env!("CARGO_PKG_VERSION")).to_owned()),
            ..named(url)
        },
        ..Target::new(
            url.address,
            &url.host(),
            ClientConfig { tls, web_transport },
        )
    })
}

/// Returns a SETUP with path and authority of the URL. In WebTransport, the HTTP request has them instead.
/// [moqt-18 §10.3.1.1, §10.3.1.2]
fn named(url: &RelayUrl) -> Setup {
    match url.scheme {
        Scheme::WebTransport => Setup::default(),
        Scheme::Quic => {
            let is_address = url.host().parse::<IpAddr>().is_ok();
            Setup {
                path: (!url.path().is_empty()).then(|| url.path().to_owned()),
                authority: (!is_address || url.port() != DEFAULT_PORT).then(|| url.authority()),
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
        assert_eq!(url.to_string(), "moqt://127.0.0.1:4443/live?redacted");
        assert_eq!(url.for_browsers(), "https://127.0.0.1:4443/live?x=1");
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
        assert_eq!(url.to_string(), "https://[::1]:99/?redacted");
        let target =
            |protocols: &[&'static str]| target(&url, &TrustChoice::Anyone, protocols).unwrap();
        let one = target(&["moqt-99"]);
        assert_eq!(one.client.web_transport.unwrap().protocols, ["moqt-99"]);
        let target = target(&crate::run::protocols());
        let request = target.client.web_transport.unwrap();
        assert_eq!(request.authority, "[::1]:99");
        assert_eq!(request.path, "/?x");
        assert!(request.protocols.contains(&"moqt-18".to_owned()));
        assert_eq!((target.setup.path, target.setup.authority), (None, None));
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
            let protocols = crate::run::protocols();
            let target = target(&url.parse().unwrap(), &TrustChoice::Anyone, &protocols);
            let setup = target.unwrap().setup;
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
        let error = "mqot://h?jwt=secret".parse::<RelayUrl>().unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}
