//! The thread of a relay to which a packet belongs, according to its connection ID.

/// One of several endpoints that share an address, each on a thread of its own.
///
/// The first byte of every connection ID that an endpoint issues is the endpoint's number, modulo the count. The first
/// packet of a connection carries an ID of the client's choice, which selects the endpoint by the same rule. That one
/// byte thus identifies the endpoint of each packet, for instance to a program in the kernel, even after the peer has
/// changed its address. An observer learns only which IDs belong to the same thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: u16,
    count: u16,
}

impl Shard {
    /// The only endpoint at its address.
    pub const ALONE: Self = Self { index: 0, count: 1 };
    /// Largest number of endpoints that can share an address.
    pub const COUNT_MAX: u16 = 64;

    /// Creates the shard number `index` of `count`. Returns `None` if `index` is not less than `count`, or `count`
    /// exceeds [`COUNT_MAX`](Self::COUNT_MAX).
    pub fn new(index: u16, count: u16) -> Option<Self> {
        (index < count && count <= Self::COUNT_MAX).then_some(Self { index, count })
    }

    /// Returns the number of this endpoint.
    pub fn index(self) -> u16 {
        self.index
    }

    /// Returns the number of endpoints.
    pub fn count(self) -> u16 {
        self.count
    }

    /// Returns the number of the endpoint, of `count`, that the UDP payload `data` belongs to; 0 if `data` is too short
    /// for a packet.
    pub fn owner(data: &[u8], count: u16) -> u16 {
        let offset = match data.first() {
            Some(first) if first & LONG_HEADER != 0 => LONG_HEADER_ID_OFFSET,
            _ => SHORT_HEADER_ID_OFFSET,
        };
        u16::from(data.get(offset).copied().unwrap_or(0)) % count.max(1)
    }

    /// Returns the first byte of a connection ID of this endpoint, given a random one.
    pub(crate) fn mark(self, random: u8) -> u8 {
        let (random, index) = (u16::from(random), self.index);
        let marked = random - random % self.count + index;
        let within = if marked > u16::from(u8::MAX) {
            marked - self.count
        } else {
            marked
        };
        within.to_le_bytes()[0]
    }
}

/// The bit of the first byte that marks long headers (RFC 8999 §5.1).
pub const LONG_HEADER: u8 = 0x80;
/// Offset of the Destination Connection ID in a long header: after flags, version and length (RFC 8999 §5.1).
pub const LONG_HEADER_ID_OFFSET: usize = 6;
/// Offset of the Destination Connection ID in a short header (RFC 8999 §5.2).
pub const SHORT_HEADER_ID_OFFSET: usize = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_can_be_marked_for_every_shard() {
        for count in 1..=Shard::COUNT_MAX {
            for index in 0..count {
                let shard = Shard::new(index, count).unwrap();
                for random in 0..=u8::MAX {
                    let packet = [0x40, shard.mark(random), 0, 0];
                    assert_eq!(Shard::owner(&packet, count), index);
                }
            }
        }
    }

    #[test]
    fn alone_every_byte_stays_as_it_is() {
        for random in 0..=u8::MAX {
            assert_eq!(Shard::ALONE.mark(random), random);
        }
    }

    #[test]
    fn the_id_is_found_in_both_headers_and_shorter_ones_go_to_the_first() {
        assert_eq!(Shard::owner(&[0xc0, 0, 0, 0, 1, 8, 5, 9], 4), 1);
        assert_eq!(Shard::owner(&[0x40, 6, 0, 0, 1, 8, 5, 9], 4), 2);
        assert_eq!(Shard::owner(&[0xc0, 1, 1, 1, 1, 1], 4), 0);
        assert_eq!(Shard::owner(&[0x40], 4), 0);
        assert_eq!(Shard::owner(&[], 4), 0);
    }

    #[test]
    fn there_are_no_more_than_the_first_byte_can_tell() {
        assert!(Shard::new(63, Shard::COUNT_MAX).is_some());
        assert!(Shard::new(0, Shard::COUNT_MAX + 1).is_none());
        assert!(Shard::new(2, 2).is_none());
        assert!(Shard::new(0, 0).is_none());
    }
}
