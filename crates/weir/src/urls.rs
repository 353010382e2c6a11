//! URLs of relays and servers, and their addresses.

use std::{
    io,
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
