//! The relay's URL, its address, and how clients reach it.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
    sync::Arc,
};

use anyhow::Context as _;
use url::{Position, Url};
use weir_client::roaming::Resolver;
pub(crate) use weir_client::target::Target;
use weir_moqt::message::Setup;
use weir_quic::{ClientConfig, tls::ClientTls, web_transport::Request};

use super::TrustChoice;
use crate::{
    event_loop,
    urls::{self, Redacted},
};

/// A relay's URL: `moqt://host:port/path?query` for raw QUIC, `https://` for WebTransport [moqt-18 §3.1.2].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RelayUrl {
    pub(crate) scheme: Scheme,
    url: Url,
    pub(crate) address: SocketAddr,
    /// Relays to use when this one is lost, in order.
    alternatives: Vec<Self>,
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
    #[error(
        "{0} and {1} need different sockets: expected relays that are all on this machine, or all elsewhere, over IPv4 or IPv6"
    )]
    Apart(SocketAddr, SocketAddr),
}

impl RelayUrl {
    /// Returns the URL of weir's own relay on this machine.
    pub(crate) fn of_child(address: SocketAddr) -> Self {
        let url = format!("moqt://localhost:{}", address.port());
        Self {
            scheme: Scheme::Quic,
            url: Url::parse(&url).expect("a host and a port"),
            address,
            alternatives: Vec::new(),
        }
    }

    /// Parses one URL, or several with commas between: clients that have lost one relay use the next. Of several, those
    /// whose host has no address at present are left out.
    pub(crate) fn list(text: &str) -> Result<Self, UrlError> {
        let mut found: Vec<Self> = Vec::new();
        let mut problems = Vec::new();
        for one in split(text) {
            match one.parse::<Self>() {
                Ok(url) => found.push(url),
                Err(error @ UrlError::Unknown(..)) => problems.push(error),
                Err(error) => return Err(error),
            }
        }
        let mut found = found.into_iter();
        let Some(mut first) = found.next() else {
            let problem = problems.pop();
            return Err(problem.unwrap_or_else(|| UrlError::Form(Redacted(text).to_string())));
        };
        for problem in problems {
            tracing::warn!("{problem}; it is left out");
        }
        first.alternatives = found.collect();
        let mut others = first.alternatives.iter();
        if let Some(apart) = others.find(|other| !first.shares_socket(other)) {
            return Err(UrlError::Apart(first.address, apart.address));
        }
        Ok(first)
    }

    /// Whether one socket reaches both relays.
    fn shares_socket(&self, other: &Self) -> bool {
        let local = event_loop::local_address;
        local(self.address) == local(other.address)
    }

    /// Returns this relay and its alternatives.
    fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.alternatives)
    }

    fn host(&self) -> String {
        urls::host(&self.url)
    }

    /// Returns host name and port, if the URL has no address in place of a name.
    pub(crate) fn host_name(&self) -> Option<(String, u16)> {
        let host = self.host();
        let is_name = host.parse::<IpAddr>().is_err();
        is_name.then(|| (host, self.port()))
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

    /// Returns the whole URLs for a browser, which has no raw QUIC. They may hold a token: do not show them.
    pub(crate) fn for_browsers(&self) -> Vec<String> {
        let all = self.all();
        all.map(|one| one.with_scheme(Scheme::WebTransport))
            .collect()
    }

    /// Returns the whole URLs, for an agent. They may hold a token: do not show them.
    pub(super) fn with_query(&self) -> String {
        let all = self.all().map(|one| one.with_scheme(one.scheme));
        all.collect::<Vec<_>>().join(",")
    }

    fn with_scheme(&self, scheme: Scheme) -> String {
        format!("{}://{}{}", scheme.name(), self.authority(), self.path())
    }

    /// Whether all relays are on this machine or in a private network (draft-evens-moq-bench-00 §5.7).
    pub(crate) fn is_isolated(&self) -> bool {
        self.all().all(|one| urls::is_isolated(one.address.ip()))
    }
}

/// Splits a list of URLs at the commas before a scheme, since a query may contain commas.
fn split(text: &str) -> Vec<&str> {
    let mut begins = vec![0];
    for scheme in Scheme::ALL {
        let mark = format!(",{}://", scheme.name());
        begins.extend(text.match_indices(&mark).map(|(place, _)| place + 1));
    }
    begins.sort_unstable();
    let ends = begins.iter().skip(1).map(|begin| begin - 1);
    let ends: Vec<usize> = ends.chain([text.len()]).collect();
    let parts = begins.into_iter().zip(ends);
    parts
        .filter_map(|(begin, end)| text.get(begin..end))
        .collect()
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
            alternatives: Vec::new(),
        })
    }
}

/// Shows the URLs without their queries, which may hold a token.
impl fmt::Display for RelayUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, one) in self.all().enumerate() {
            formatter.write_str(if number > 0 { "," } else { "" })?;
            Redacted(&one.with_scheme(one.scheme)).fmt(formatter)?;
        }
        Ok(())
    }
}

/// Returns how clients reach the relay and its alternatives, with one socket and the drafts `protocols` (ALPN), the
/// preferred one first.
pub(crate) fn target(
    url: &RelayUrl,
    trust: &TrustChoice,
    protocols: &[&'static str],
) -> anyhow::Result<Target> {
    let others = url.alternatives.iter();
    let others = others.map(|one| target_of_one(one, trust, protocols).map(Arc::new));
    Ok(Target {
        alternatives: others.collect::<anyhow::Result<_>>()?,
        seed: u64::from_le_bytes(event_loop::seed()?),
        ..target_of_one(url, trust, protocols)?
    })
}

/// Returns how clients find the relay that a GOAWAY names. They reach it as they reach the relay
/// at `url`. Finding a host blocks, once for a GOAWAY.
pub(crate) fn resolver(
    url: &RelayUrl,
    trust: &TrustChoice,
    protocols: &[&'static str],
) -> Resolver {
    let (url, trust, protocols) = (url.clone(), trust.clone(), protocols.to_vec());
    Resolver::new(move |uri| {
        let named: RelayUrl = uri.parse().ok()?;
        let reachable = Some(named).filter(|named| url.shares_socket(named));
        target_of_one(&reachable?, &trust, &protocols).ok()
    })
}

fn target_of_one(
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
        assert_eq!(url.for_browsers(), ["https://127.0.0.1:4443/live?x=1"]);
        assert!(url.is_isolated());
        let url: RelayUrl = "moqt://[::1]:99".parse().unwrap();
        assert_eq!(url.address, "[::1]:99".parse().unwrap());
        assert_eq!(url.to_string(), "moqt://[::1]:99");
        let url: RelayUrl = "moqt://192.0.2.1".parse().unwrap();
        assert_eq!(url.address.port(), 443);
        assert!(!url.is_isolated());
    }

    #[test]
    fn lists_of_urls() {
        let all = "moqt://127.0.0.1:1/a?x=1,2,https://127.0.0.1:2,moqt://127.0.0.1:3";
        let url = RelayUrl::list(all).unwrap();
        assert_eq!(
            url.to_string(),
            "moqt://127.0.0.1:1/a?redacted,https://127.0.0.1:2/,moqt://127.0.0.1:3"
        );
        assert_eq!(RelayUrl::list(&url.with_query()).unwrap(), url);
        assert_eq!(url.for_browsers()[2], "https://127.0.0.1:3");
        let target = target(&url, &TrustChoice::Anyone, &crate::run::protocols()).unwrap();
        let ports = target.alternatives.iter().map(|one| one.remote.port());
        assert_eq!(ports.collect::<Vec<_>>(), [2, 3]);
        assert!(RelayUrl::list("moqt://127.0.0.1,moqt://").is_err());
        let error = RelayUrl::list("moqt://127.0.0.1:1,moqt://[::1]:2").unwrap_err();
        assert!(error.to_string().contains("need different sockets"));
        let left_out = "moqt://nowhere.invalid:1,moqt://127.0.0.1:1";
        assert_eq!(RelayUrl::list(left_out).unwrap().address.port(), 1);
        assert!(RelayUrl::list("moqt://nowhere.invalid:1").is_err());
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
