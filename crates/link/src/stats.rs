//! What a link has done so far.

/// Counts of one link, from its start.
///
/// At any time `offered + duplicated` is the sum of what was delivered, of every kind of drop, and
/// of what is still inside ([`Link::packets_inside`](crate::Link::packets_inside)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets handed to the link.
    pub offered: u64,
    /// Bytes of the packets handed to the link.
    pub offered_bytes: u64,
    /// Packets that came out, copies included.
    pub delivered: u64,
    /// Bytes of the packets that came out, copies included.
    pub delivered_bytes: u64,
    /// Packets dropped because the queue held as many bytes as it may.
    pub dropped_queue_bytes: u64,
    /// Packets dropped because the queue held as many packets as it may.
    pub dropped_queue_packets: u64,
    /// Packets lost on the wire by [`Loss`](crate::Loss).
    pub lost: u64,
    /// Packets lost because the link was a black hole.
    pub blackholed: u64,
    /// Packets and copies dropped because [`IN_FLIGHT_PACKETS_MAX`](crate::IN_FLIGHT_PACKETS_MAX)
    /// were on the wire.
    pub dropped_in_flight: u64,
    /// Copies made on the wire.
    pub duplicated: u64,
    /// Packets held back so that others could pass.
    pub held_back: u64,
    /// The most bytes that ever waited in the queue.
    pub queue_bytes_peak: u64,
}

impl Stats {
    /// Packets that went in and will never come out, whatever the reason.
    pub fn dropped(&self) -> u64 {
        self.dropped_queue_bytes
            + self.dropped_queue_packets
            + self.lost
            + self.blackholed
            + self.dropped_in_flight
    }
}
