//! Delays of outgoing packets: each socket sends its packets later by a fixed time, as if its path were longer.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use weir_quic::{EcnCodepoint, Packet};

/// The delayed packets of a host. Packets of one socket keep their order.
#[derive(Debug, Default)]
pub(crate) struct SendDelays {
    /// The delay of each socket, by its number. Sockets beyond the end have none.
    by_socket: Vec<Duration>,
    /// The waiting packets, by the time at which they leave, and by their number.
    waiting: BTreeMap<(Instant, u64), Waiting>,
    number: u64,
}

/// The decision on an outgoing packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// The packet leaves at once.
    No,
    /// The packet waits for its time.
    Waits,
    /// The packet is dropped, since [`WAITING_MAX`] others wait.
    Dropped,
}

/// A packet that waits, or a train of them.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) socket: u32,
    destination: SocketAddr,
    source: Option<IpAddr>,
    ecn: Option<EcnCodepoint>,
    segment_size: Option<usize>,
    data: Vec<u8>,
}

impl SendDelays {
    /// Returns delays by the number of the socket.
    pub(crate) fn new(by_socket: Vec<Duration>) -> Self {
        Self {
            by_socket,
            ..Self::default()
        }
    }

    /// Keeps a packet that was sent at `now`, if its socket has a delay.
    pub(crate) fn hold(&mut self, now: Instant, packet: &Packet<'_>) -> Hold {
        let delay = self.by_socket.get(packet.socket as usize);
        let Some(delay) = delay.filter(|delay| !delay.is_zero()) else {
            return Hold::No;
        };
        if self.waiting.len() >= WAITING_MAX {
            return Hold::Dropped;
        }
        self.number += 1;
        let waiting = Waiting {
            socket: packet.socket,
            destination: packet.destination,
            source: packet.source,
            ecn: packet.ecn,
            segment_size: packet.segment_size,
            data: packet.data.to_vec(),
        };
        self.waiting.insert((now + *delay, self.number), waiting);
        Hold::Waits
    }

    /// Returns when the next packet leaves.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.waiting.keys().next().map(|(at, _)| *at)
    }

    /// Returns the next packet that leaves at `now` or before. With `None`, returns the next one in any case.
    pub(crate) fn take_due(&mut self, now: Option<Instant>) -> Option<Waiting> {
        let next = self.waiting.first_entry()?;
        let is_due = now.is_none_or(|now| next.key().0 <= now);
        is_due.then(|| next.remove())
    }
}

impl Waiting {
    pub(crate) fn packet(&self) -> Packet<'_> {
        Packet {
            destination: self.destination,
            socket: self.socket,
            source: self.source,
            ecn: self.ecn,
            segment_size: self.segment_size,
            data: &self.data,
        }
    }
}

/// Packets of a host that wait at the same time: a second of acknowledgements of a thousand clients at 50 packets per second,
/// and a reserve.
pub(crate) const WAITING_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const MS: Duration = Duration::from_millis(1);

    fn packet(socket: u32, data: &[u8]) -> Packet<'_> {
        Packet {
            destination: SocketAddr::from(([127, 0, 0, 1], 1)),
            socket,
            source: None,
            ecn: None,
            segment_size: None,
            data,
        }
    }

    #[test]
    fn packets_leave_after_their_sockets_delay_in_order() {
        let now = clock::now();
        let mut delays = SendDelays::new(vec![Duration::ZERO, 30 * MS, 10 * MS]);
        assert_eq!(delays.poll_timeout(), None);
        assert_eq!(delays.hold(now, &packet(0, &[0])), Hold::No);
        assert_eq!(delays.hold(now, &packet(3, &[3])), Hold::No);
        for (at, socket, byte) in [(0, 1, 1), (0, 2, 2), (1, 1, 3), (1, 2, 4)] {
            let held = delays.hold(now + at * MS, &packet(socket, &[byte]));
            assert_eq!(held, Hold::Waits);
        }
        assert_eq!(delays.poll_timeout(), Some(now + 10 * MS));
        assert!(delays.take_due(Some(now + 9 * MS)).is_none());
        let mut left = Vec::new();
        for at in [10, 20, 30, 31] {
            while let Some(one) = delays.take_due(Some(now + at * MS)) {
                left.push((at, one.packet().socket, one.packet().data[0]));
            }
        }
        assert_eq!(left, [(10, 2, 2), (20, 2, 4), (30, 1, 1), (31, 1, 3)]);
        assert!(delays.take_due(None).is_none());
    }

    #[test]
    fn no_more_wait_than_the_limit_and_all_leave_at_the_end() {
        let now = clock::now();
        let mut delays = SendDelays::new(vec![MS]);
        for _ in 0..WAITING_MAX {
            assert_eq!(delays.hold(now, &packet(0, &[1])), Hold::Waits);
        }
        assert_eq!(delays.hold(now, &packet(0, &[1])), Hold::Dropped);
        let left = std::iter::from_fn(|| delays.take_due(None));
        assert_eq!(left.count(), WAITING_MAX);
        assert_eq!(delays.hold(now, &packet(0, &[1])), Hold::Waits);
    }
}
