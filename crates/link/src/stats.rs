//! The counters of a link.

/// The counters of one link, from its start.
///
/// At any time `offered + duplicated` is the sum of packets delivered, dropped for any reason, and still inside
/// ([`Link::packets_inside`](crate::Link::packets_inside)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets handed to the link.
    pub offered: u64,
    /// Bytes of the packets handed to the link.
    pub offered_bytes: u64,
    /// Packets that arrived, including copies.
    pub delivered: u64,
    /// Bytes of the packets that arrived, including copies.
    pub delivered_bytes: u64,
    /// Packets dropped at the queue's limit of bytes.
    pub dropped_queue_bytes: u64,
    /// Packets dropped at the queue's limit of packets.
    pub dropped_queue_packets: u64,
    /// Packets lost by [`Loss`](crate::Loss).
    pub lost: u64,
    /// Packets lost in a black hole.
    pub blackholed: u64,
    /// Packets and copies dropped because [`IN_FLIGHT_PACKETS_MAX`](crate::IN_FLIGHT_PACKETS_MAX) were in transit.
    pub dropped_in_flight: u64,
    /// Copies made in transit.
    pub duplicated: u64,
    /// Packets held back so that others could pass.
    pub held_back: u64,
    /// The most bytes that were in the queue at one time.
    pub queue_bytes_peak: u64,
}

impl Stats {
    /// Returns the packets that were dropped or lost, for any reason.
    pub fn dropped(&self) -> u64 {
        self.dropped_queue_bytes
            + self.dropped_queue_packets
            + self.lost
            + self.blackholed
            + self.dropped_in_flight
    }
}
