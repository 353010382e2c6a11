//! The trace of the network: counters, and a hash that equal runs share.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The UDP datagrams that the nodes of a simulation have sent to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Datagrams sent.
    pub sent: u64,
    /// Bytes of the datagrams sent, without headers.
    pub sent_bytes: u64,
    /// Datagrams that reached a running node.
    pub delivered: u64,
    /// Bytes of the datagrams that reached a running node, without headers.
    pub delivered_bytes: u64,
    /// Datagrams to an address that no running node had when they were sent or arrived.
    pub unroutable: u64,
    /// Datagrams in which a bit was flipped ([`Sim::set_corruption`](crate::Sim::set_corruption)).
    pub corrupted: u64,
}

/// An event of a datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Moment {
    Sent = 1,
    Delivered = 2,
    Unroutable = 3,
    Corrupted = 4,
}

/// Counters and hash of all datagrams of a simulation.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    traffic: Traffic,
    hash: u64,
}

impl Trace {
    pub(crate) fn record(
        &mut self,
        elapsed: Duration,
        moment: Moment,
        source: SocketAddr,
        destination: SocketAddr,
        length: usize,
    ) {
        let length = length as u64;
        match moment {
            Moment::Sent => {
                self.traffic.sent += 1;
                self.traffic.sent_bytes += length;
            }
            Moment::Delivered => {
                self.traffic.delivered += 1;
                self.traffic.delivered_bytes += length;
            }
            Moment::Unroutable => self.traffic.unroutable += 1,
            Moment::Corrupted => self.traffic.corrupted += 1,
        }
        self.mix(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX));
        self.mix_address(source);
        self.mix_address(destination);
        self.mix(length << 8 | moment as u64);
    }

    pub(crate) fn traffic(&self) -> Traffic {
        self.traffic
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    fn mix_address(&mut self, address: SocketAddr) {
        match address.ip() {
            IpAddr::V4(ip) => self.mix(u64::from(ip.to_bits())),
            IpAddr::V6(ip) => ip
                .segments()
                .into_iter()
                .for_each(|part| self.mix(part.into())),
        }
        self.mix(u64::from(address.port()));
    }

    /// Mixes one word into an FNV-like hash. The rotation moves high bits down.
    fn mix(&mut self, value: u64) {
        self.hash = (self.hash.rotate_left(23) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
