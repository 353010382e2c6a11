//! URLs of relays and servers, and their addresses.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr, ToSocketAddrs as _},
};

use url::{Host, Position, Url};

/// Parses a URL with a host, and without user and password. Returns `None` for another text.
pub(crate) fn with_host(text: &str) -> Option<Url> {
    // The parser would silently quote or drop other characters.
    let is_printable = text.bytes().all(|byte| byte.is_ascii_graphic());
    let url = Url::parse(text).ok().filter(|_| is_printable)?;
    let has_host = url.host_str().is_some_and(|host| !host.is_empty());
    let has_user = !url.username().is_empty() || url.password().is_some();
    (has_host && !has_user && url.port() != Some(0)).then_some(url)
}

/// A URL, or a text that contains one, as it may be shown and stored: without user, password, query and fragment, which may
/// hold a token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Redacted<'a>(pub(crate) &'a str);

impl fmt::Display for Redacted<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = self.0.find("://").map_or(0, |at| at + "://".len());
        let (scheme, rest) = self.0.split_at(start);
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let host = authority.rsplit_once('@');
        let (secret, host) = host.map_or(("", authority), |(_, host)| ("redacted@", host));
        let (path, query) = match path.split_once(['?', '#']) {
            Some((path, _)) => (path, "?redacted"),
            None => (path, ""),
        };
        write!(formatter, "{scheme}{secret}{host}{path}{query}")
    }
}

/// Returns the host of a URL; an IPv6 address without brackets.
pub(crate) fn host(url: &Url) -> String {
    match url.host() {
        Some(Host::Ipv6(address)) => address.to_string(),
        Some(host) => host.to_string(),
        None => String::new(),
    }
}

/// Returns path and query.
pub(crate) fn path(url: &Url) -> &str {
    &url[Position::BeforePath..Position::AfterQuery]
}

/// Looks up the address of a host. IPv4 is preferred: `localhost` is then the address that servers listen on by default.
pub(crate) fn look_up(host: &str, port: u16) -> io::Result<SocketAddr> {
    let found: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    let first = found
        .iter()
        .find(|one| one.is_ipv4())
        .or_else(|| found.first());
    first
        .copied()
        .ok_or_else(|| io::Error::other("the lookup returns none"))
}

/// Whether an address is one of this machine or of a private network.
pub(crate) fn is_isolated(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_hold_a_token_is_not_shown() {
        for (text, shown) in [
            ("moqt://127.0.0.1:4443", "moqt://127.0.0.1:4443"),
            ("https://[::1]:9/live", "https://[::1]:9/live"),
            ("moqt://h:1?jwt=secret", "moqt://h:1?redacted"),
            ("https://h/a?x=1&jwt=secret#b", "https://h/a?redacted"),
            ("https://h/a#jwt=secret", "https://h/a?redacted"),
            ("https://me:secret@h:1/a", "https://redacted@h:1/a"),
            ("h:1/a?jwt=secret", "h:1/a?redacted"),
            ("--relay=moqt://h?jwt=secret", "--relay=moqt://h?redacted"),
        ] {
            assert_eq!(Redacted(text).to_string(), shown);
        }
    }
}
