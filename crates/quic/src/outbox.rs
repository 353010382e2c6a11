//! Packets to be sent by the host.

use std::net::{IpAddr, SocketAddr};

use quinn_proto::{EcnCodepoint, Transmit};

/// The packets of one burst, contiguous in one buffer that is reused.
///
/// A role's fan-out writes thousands of packets at once. Because they are collected, each connection is processed once,
/// while it is in the CPU cache, and the host can pass many packets to one system call. Long batches stay in the buffer
/// to which the engine wrote them, since copying would cost more.
#[derive(Debug, Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    batches: Vec<Vec<u8>>,
    batch_bytes: usize,
    /// Buffers of batches that were sent.
    spare: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct Entry {
    transmit: Transmit,
    socket: u32,
    place: Place,
}

/// Where an entry's bytes are.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In the shared buffer, from this offset.
    Shared(u32),
    /// In a buffer of its own, with this index.
    Batch(u32),
}

/// One packet, or several of equal size to one peer that may be sent as one GSO batch.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The destination address.
    pub destination: SocketAddr,
    /// The host's socket, as given to `connect` or `handle_packet`.
    pub socket: u32,
    /// The local address to send from, if the peer's packets came to a specific one.
    pub source: Option<IpAddr>,
    /// ECN codepoint to set in the IP header.
    pub ecn: Option<EcnCodepoint>,
    /// Size of each packet except the last, if `data` holds several.
    pub segment_size: Option<usize>,
    /// The UDP payload or payloads.
    pub data: &'a [u8],
}

impl Outbox {
    /// Returns the packets in the order in which they are to be sent.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Packet<'_>> {
        self.entries.iter().map(|entry| {
            let data = match entry.place {
                Place::Shared(start) => &self.bytes[start as usize..][..entry.transmit.size],
                Place::Batch(number) => &self.batches[number as usize][..],
            };
            Packet {
                destination: entry.transmit.destination,
                socket: entry.socket,
                source: entry.transmit.src_ip,
                ecn: entry.transmit.ecn,
                segment_size: entry.transmit.segment_size,
                data,
            }
        })
    }

    /// Sorts the packets by socket; packets of the same socket keep their order.
    pub fn group_by_socket(&mut self) {
        self.entries.sort_by_key(|entry| entry.socket);
    }

    /// Returns the number of entries (a GSO batch counts once).
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Removes all packets and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.batch_bytes = 0;
        for mut batch in self.batches.drain(..) {
            if self.spare.len() < SPARE_MAX {
                batch.clear();
                self.spare.push(batch);
            }
        }
    }

    /// Returns whether the host should send before more is added.
    pub fn is_full(&self) -> bool {
        self.bytes.len() + self.batch_bytes >= BYTES_MAX || self.entries.len() >= ENTRIES_MAX
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
            place: Place::Shared(start),
        });
    }

    /// Does the same as [`push`](Self::push), but may keep the buffer `data` and replace it with an empty one.
    pub(crate) fn push_from(&mut self, transmit: Transmit, socket: u32, data: &mut Vec<u8>) {
        if data.len() < BATCH_BYTES_MIN {
            return self.push(transmit, socket, data);
        }
        let number = u32::try_from(self.batches.len()).unwrap_or(u32::MAX);
        let empty = self.spare.pop();
        let empty = empty.unwrap_or_else(|| Vec::with_capacity(data.capacity()));
        self.batch_bytes += data.len();
        self.batches.push(std::mem::replace(data, empty));
        self.entries.push(Entry {
            transmit,
            socket,
            place: Place::Batch(number),
        });
    }
}

/// Shorter batches are copied, so that they are contiguous.
const BATCH_BYTES_MIN: usize = 8 << 10;
/// Buffers kept for the next burst: as many as a burst of the longest batches has.
const SPARE_MAX: usize = 16;
/// About a quarter of a second-level cache: the burst is still cached when the host sends it.
const BYTES_MAX: usize = 512 << 10;
/// Enough for one datagram to each of two thousand subscribers.
const ENTRIES_MAX: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    fn transmit(size: usize) -> Transmit {
        Transmit {
            destination: SocketAddr::from(([127, 0, 0, 1], 1)),
            ecn: None,
            size,
            segment_size: None,
            src_ip: None,
        }
    }

    fn push(outbox: &mut Outbox, scratch: &mut Vec<u8>, byte: u8, size: usize) {
        scratch.clear();
        scratch.resize(size, byte);
        outbox.push_from(transmit(size), 0, scratch);
    }

    #[test]
    fn long_batches_and_short_packets_keep_their_order() {
        let (mut outbox, mut scratch) = (Outbox::default(), Vec::new());
        for _ in 0..3 {
            let sizes = [100, BATCH_BYTES_MIN, 1, BATCH_BYTES_MIN - 1, 30_000];
            for (byte, size) in (0..).zip(sizes) {
                push(&mut outbox, &mut scratch, byte, size);
            }
            for ((byte, size), packet) in (0..).zip(sizes).zip(outbox.iter()) {
                assert_eq!(packet.data.len(), size);
                assert!(packet.data.iter().all(|found| *found == byte));
            }
            assert_eq!((outbox.len(), outbox.batches.len()), (5, 2));
            outbox.clear();
            assert!(outbox.is_empty() && outbox.spare.len() == 2);
        }
    }

    #[test]
    fn the_packets_of_a_socket_keep_their_order() {
        let (mut outbox, mut scratch) = (Outbox::default(), Vec::new());
        for (byte, socket) in (0_u8..).zip([2, 0, 1, 0, 2, 2]) {
            scratch.clear();
            scratch.push(byte);
            outbox.push_from(transmit(1), socket, &mut scratch);
        }
        outbox.group_by_socket();
        let sent: Vec<_> = outbox
            .iter()
            .map(|packet| (packet.socket, packet.data[0]))
            .collect();
        assert_eq!(sent, [(0, 1), (0, 3), (1, 2), (2, 0), (2, 4), (2, 5)]);
    }

    #[test]
    fn full_at_the_limit_and_not_one_byte_before() {
        let (mut outbox, mut scratch) = (Outbox::default(), Vec::new());
        push(&mut outbox, &mut scratch, 0, BYTES_MAX - 2);
        push(&mut outbox, &mut scratch, 0, 1);
        assert!(!outbox.is_full());
        push(&mut outbox, &mut scratch, 0, 1);
        assert!(outbox.is_full());
        outbox.clear();
        assert!(!outbox.is_full());
        for _ in 0..2 * SPARE_MAX {
            push(&mut outbox, &mut scratch, 0, BATCH_BYTES_MIN);
        }
        outbox.clear();
        assert_eq!(outbox.spare.len(), SPARE_MAX);
    }
}
