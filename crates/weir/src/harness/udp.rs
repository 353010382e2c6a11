//! UDP figures of the kernel: receive-buffer errors, and the MTU of a path.

use std::{
    fs,
    net::{SocketAddr, UdpSocket},
};

use rustix::net::sockopt;

use crate::event_loop;

/// Returns the UDP receive-buffer errors of this network namespace so far, of IPv4 and IPv6 together.
pub(crate) fn receive_buffer_errors() -> Option<u64> {
    let v4 = fs::read_to_string("/proc/net/snmp").ok()?;
    let v6 = fs::read_to_string("/proc/net/snmp6").unwrap_or_default();
    Some(udp_errors(&v4)? + udp6_errors(&v6))
}

/// Returns the known MTU to `address` in bytes, without sending anything. `/sys` may show another network namespace.
pub(crate) fn mtu_to(address: SocketAddr) -> Option<u64> {
    let socket = UdpSocket::bind(event_loop::local_address(address)).ok()?;
    socket.connect(address).ok()?;
    let mtu = match address {
        SocketAddr::V4(_) => sockopt::ip_mtu(&socket),
        SocketAddr::V6(_) => sockopt::ipv6_mtu(&socket),
    };
    mtu.ok().map(u64::from)
}

fn udp_errors(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let place = names.split(' ').position(|name| name == "RcvbufErrors")?;
    values.split(' ').nth(place)?.parse().ok()
}

fn udp6_errors(snmp6: &str) -> u64 {
    let mut lines = snmp6.lines();
    let found = lines.find_map(|line| line.strip_prefix("Udp6RcvbufErrors"));
    found.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_counts() {
        let snmp = "Tcp: a b\nTcp: 1 2\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors\n\
                    Udp: 10 1 7 10 6 0\nUdpLite: InDatagrams\nUdpLite: 9\n";
        assert_eq!(udp_errors(snmp), Some(6));
        assert_eq!(udp_errors("Tcp: a\nTcp: 1\n"), None);
        let snmp6 = "Udp6InErrors                    3\nUdp6RcvbufErrors                2\n";
        assert_eq!((udp6_errors(snmp6), udp6_errors("")), (2, 0));
        assert!(receive_buffer_errors().is_some());
        let loopback = SocketAddr::from(([127, 0, 0, 1], 4433));
        assert!(mtu_to(loopback).is_some_and(|mtu| mtu >= 1280));
    }
}
