//! What is asked for: an `https` URL.

use std::{fmt, net::SocketAddr, str::FromStr};

use crate::run::{is_isolated, look_up};

/// A URL: `https://host[:port][/path][?query]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// With the slash in front, and the query.
    pub(crate) path: String,
}

/// What is wrong with a URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UrlError {
    #[error("{0:?} is not HTTPS: HTTP/3 is always encrypted; expected https://HOST[:PORT][/PATH]")]
    Scheme(String),
    #[error("{0:?} is no URL; expected https://HOST[:PORT][/PATH]")]
    Form(String),
    #[error("{0:?}: the host cannot be found: {1}")]
    Unknown(String, String),
    #[error(
        "{0} is not in a private network; a benchmark is an attack on a server that serves others. If it is yours, say \
         --allow-public"
    )]
    Public(SocketAddr),
}

impl Url {
    /// Host and port, as they stand in `:authority`.
    pub(crate) fn authority(&self) -> String {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        match self.port {
            DEFAULT_PORT => host,
            port => format!("{host}:{port}"),
        }
    }

    /// Looks up where the host is.
    pub(crate) fn address(&self) -> Result<SocketAddr, UrlError> {
        look_up(&self.host, self.port)
            .map_err(|error| UrlError::Unknown(self.host.clone(), error.to_string()))
    }
}

/// Refuses an address that others may be served from.
pub(crate) fn check_isolated(address: SocketAddr, allow_public: bool) -> Result<(), UrlError> {
    if allow_public || is_isolated(address.ip()) {
        Ok(())
    } else {
        Err(UrlError::Public(address))
    }
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let form = || UrlError::Form(text.to_owned());
        let rest = match text.split_once("://") {
            Some(("https", rest)) => rest,
            Some(_) => return Err(UrlError::Scheme(text.to_owned())),
            None => return Err(form()),
        };
        let rest = rest.split('#').next().unwrap_or(rest);
        let split = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(split);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().map_err(|_| form())?),
            Some(_) | None => (authority, DEFAULT_PORT),
        };
        let host = match host.strip_prefix('[') {
            Some(inner) => inner.strip_suffix(']').ok_or_else(form)?,
            None => host,
        };
        let is_printable = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if host.is_empty() || port == 0 || !is_printable(rest) || authority.contains('@') {
            return Err(form());
        }
        let slash = if path.starts_with('/') { "" } else { "/" };
        Ok(Self {
            host: host.to_owned(),
            port,
            path: format!("{slash}{path}"),
        })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "https://{}{}", self.authority(), self.path)
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
            assert_eq!(
                (url.authority(), url.path.as_str()),
                (authority.to_owned(), path)
            );
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
            assert_eq!(text.parse::<Url>(), Err(UrlError::Form(text.to_owned())));
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
