//! Packets on their way to a host's socket.

use std::net::{IpAddr, SocketAddr};

use quinn_proto::{EcnCodepoint, Transmit};

/// The packets of one burst, back to back in one piece of memory that is used again and again.
///
/// A role's fan-out writes thousands of packets in one go; keeping them together lets each connection be
/// touched once, while it is in the cache, and lets the host hand many packets to one system call.
#[derive(Debug, Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    transmit: Transmit,
    socket: u32,
    start: u32,
}

/// One packet, or several of equal size for one peer that may be sent as one GSO batch.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Where to.
    pub destination: SocketAddr,
    /// Which of the host's sockets, as given to `connect` or `handle_packet`.
    pub socket: u32,
    /// The local address to send from, if the peer's packets came to a certain one.
    pub source: Option<IpAddr>,
    /// ECN codepoint to set in the IP header.
    pub ecn: Option<EcnCodepoint>,
    /// Size of each packet but the last, if `data` holds several.
    pub segment_size: Option<usize>,
    /// The UDP payload or payloads.
    pub data: &'a [u8],
}

impl Outbox {
    /// The packets in the order in which they are to be sent.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Packet<'_>> {
        self.entries.iter().map(|entry| {
            let start = entry.start as usize;
            Packet {
                destination: entry.transmit.destination,
                socket: entry.socket,
                source: entry.transmit.src_ip,
                ecn: entry.transmit.ecn,
                segment_size: entry.transmit.segment_size,
                data: &self.bytes[start..start + entry.transmit.size],
            }
        })
    }

    /// Number of entries (GSO batches count once).
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets all packets and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }

    /// Whether the host should send before more is added.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= BYTES_MAX || self.entries.len() >= ENTRIES_MAX
    }

    pub(crate) fn push(&mut self, transmit: Transmit, socket: u32, data: &[u8]) {
        debug_assert_eq!(
            transmit.size,
            data.len(),
            "the engine says how much it wrote"
        );
        let start = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        self.bytes.extend_from_slice(data);
        self.entries.push(Entry {
            transmit,
            socket,
            start,
        });
    }
}

/// About a quarter of a second-level cache: the burst is still there when the host sends it.
const BYTES_MAX: usize = 512 << 10;
/// Enough for one datagram to each of two thousand subscribers.
const ENTRIES_MAX: usize = 2048;
