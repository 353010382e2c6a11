//! URLs of HTTP/3 requests.

use std::{fmt, net::SocketAddr, str::FromStr};

use url::Position;

use crate::urls::{self, Redacted};

/// A URL: `https://host[:port][/path][?query]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    url: url::Url,
}

/// Why a URL is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UrlError {
    #[error(
        "{0:?} is not HTTPS, and HTTP/3 is always encrypted; expected https://HOST[:PORT][/PATH]"
    )]
    Scheme(String),
    #[error("{0:?} is not a URL; expected https://HOST[:PORT][/PATH]")]
    Form(String),
    #[error("the host {0:?} has no address: {1}")]
    Unknown(String, String),
    #[error(
        "{0} is outside this machine and private networks. A benchmark can overload a server that serves others; if the \
         server is yours, add --allow-public"
    )]
    Public(SocketAddr),
}

impl Url {
    /// Returns the host; an IPv6 address without brackets.
    pub(crate) fn host(&self) -> String {
        urls::host(&self.url)
    }

    /// Returns host and port, as in `:authority`.
    pub(crate) fn authority(&self) -> &str {
        &self.url[Position::BeforeHost..Position::AfterPort]
    }

    /// Returns path and query, with the slash in front.
    pub(crate) fn path(&self) -> &str {
        urls::path(&self.url)
    }

    /// Returns the whole URL. Its query may hold secrets: it is for the agents of a fleet alone.
    pub(crate) fn with_query(&self) -> &str {
        self.url.as_str()
    }

    /// Looks up the host's address.
    pub(crate) fn address(&self) -> Result<SocketAddr, UrlError> {
        let port = self.url.port().unwrap_or(DEFAULT_PORT);
        urls::look_up(&self.host(), port)
            .map_err(|error| UrlError::Unknown(self.host(), error.to_string()))
    }
}

/// Refuses a public address, unless `allow_public` is set.
pub(crate) fn check_isolated(address: SocketAddr, allow_public: bool) -> Result<(), UrlError> {
    if allow_public || urls::is_isolated(address.ip()) {
        Ok(())
    } else {
        Err(UrlError::Public(address))
    }
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        if text.contains("://") && !text.starts_with("https://") {
            return Err(UrlError::Scheme(Redacted(text).to_string()));
        }
        let url = urls::with_host(text).filter(|url| url.scheme() == "https");
        let mut url = url.ok_or_else(|| UrlError::Form(Redacted(text).to_string()))?;
        url.set_fragment(None);
        Ok(Self { url })
    }
}

/// Shows the URL without its query.
impl fmt::Display for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        Redacted(self.url.as_str()).fmt(formatter)
    }
}

/// RFC 9110 §4.2.2.
const DEFAULT_PORT: u16 = 443;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        for (text, authority, path) in [
            ("https://localhost", "localhost", "/"),
            ("https://localhost:443/a", "localhost", "/a"),
            (
                "https://a.example:4433/15k?x=1",
                "a.example:4433",
                "/15k?x=1",
            ),
            ("https://[::1]:8443?q", "[::1]:8443", "/?q"),
            ("https://127.0.0.1:1/a#b", "127.0.0.1:1", "/a"),
        ] {
            let url: Url = text.parse().unwrap();
            assert_eq!((url.authority(), url.path()), (authority, path));
        }
        let url: Url = "https://127.0.0.1:4433/x".parse().unwrap();
        assert_eq!(url.address().unwrap(), "127.0.0.1:4433".parse().unwrap());
    }

    #[test]
    fn what_is_none_is_named() {
        for text in ["http://localhost/", "moqt://localhost:1/", "quic://x"] {
            let error = text.parse::<Url>().unwrap_err();
            assert_eq!(error, UrlError::Scheme(text.to_owned()));
            assert!(error.to_string().contains("is not HTTPS"));
        }
        for text in [
            "localhost:4433",
            "https://",
            "https://:1/",
            "https://a:0/",
            "https://a:x/",
            "https://[::1/",
            "https://a/b c",
            "https://u@a/",
        ] {
            let shown = Redacted(text).to_string();
            assert_eq!(text.parse::<Url>(), Err(UrlError::Form(shown)));
        }
    }

    #[test]
    fn others_are_left_in_peace() {
        let public = "203.0.113.7:443".parse().unwrap();
        assert!(check_isolated(public, false).is_err());
        assert!(check_isolated(public, true).is_ok());
        assert!(check_isolated("127.0.0.1:1".parse().unwrap(), false).is_ok());
        assert!(check_isolated("192.168.3.4:1".parse().unwrap(), false).is_ok());
    }
}
