//! The memory of received packets.
//!
//! The engine keeps some packets: out of order, unread, or parts of a message that is not complete. A peer decides which,
//! so what one peer keeps must not keep the packets of others in memory. Each packet therefore has an allocation of about
//! its own size. The allocation is used again if nobody kept the packet, as with most acknowledgements.

use bytes::BytesMut;

/// Copies packets.
#[derive(Debug, Default)]
pub(crate) struct ReceiveArena {
    /// The last allocation of each size: for short packets, and for others.
    short: BytesMut,
    long: BytesMut,
}

impl ReceiveArena {
    /// Returns a copy of a packet.
    #[inline]
    pub(crate) fn copy(&mut self, packet: &[u8]) -> BytesMut {
        let (block, bytes) = if packet.len() <= SHORT_BYTES {
            (&mut self.short, SHORT_BYTES)
        } else {
            (&mut self.long, LONG_BYTES.max(packet.len()))
        };
        if !block.try_reclaim(bytes) {
            *block = BytesMut::with_capacity(bytes);
        }
        block.extend_from_slice(packet);
        block.split()
    }
}

/// Acknowledgements, small frames, and most datagrams with audio.
const SHORT_BYTES: usize = 256;
/// The usual packet.
const LONG_BYTES: usize = 1500;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bytes in memory because of one byte of a packet of `bytes`, which arrived between others.
    fn kept(bytes: usize) -> usize {
        let mut arena = ReceiveArena::default();
        let mut copy = |bytes| arena.copy(&vec![1; bytes]);
        for other in [1200, 30, 1200, 30] {
            drop(copy(other));
        }
        let mut part = copy(bytes).split_to(1);
        for other in [1200, 30, 1200, 30] {
            drop(copy(other));
        }
        drop(arena);
        part.clear();
        // Nobody else has a part of the allocation, so all of it can be had.
        (0..=16)
            .map(|power| 1 << power)
            .take_while(|&bytes| part.try_reclaim(bytes))
            .last()
            .unwrap()
    }

    #[test]
    fn a_kept_byte_keeps_its_own_packet_and_no_other() {
        assert_eq!(kept(30), SHORT_BYTES);
        assert_eq!(kept(1200), 1024, "the largest power of two in LONG_BYTES");
        assert_eq!(kept(9000), 8192);
    }

    #[test]
    fn a_packet_that_nobody_keeps_costs_no_allocation() {
        let mut arena = ReceiveArena::default();
        for bytes in [20, 256, 257, 1472] {
            let packet = vec![1; bytes];
            let first = arena.copy(&packet);
            let place = first.as_ptr();
            assert_eq!(first, packet);
            drop(first);
            for _ in 0..10 {
                assert_eq!(arena.copy(&packet).as_ptr(), place, "{bytes}");
            }
        }
        assert_eq!(arena.copy(&[4; 9000]), [4; 9000][..]);
    }
}
