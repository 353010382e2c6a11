//! The link: the queue and its rate, then the packets in transit.

use std::time::Instant;

use crate::bottleneck::{Bottleneck, Full};
use crate::config::{Config, Delay, Loss, Probability, Queue, Reordering};
use crate::rate::Rate;
use crate::stats::Stats;
use crate::transit::Transit;

/// One direction of a path for packets of the type `P`.
///
/// [`handle_packet`](Self::handle_packet) takes packets, and [`poll_packet`](Self::poll_packet) returns them;
/// [`poll_timeout`](Self::poll_timeout) says when. Times may not run backwards; a time before the latest one counts as
/// the latest. A changed setting applies to packets that reach that part of the link later: a new delay does not affect
/// packets in transit.
#[derive(Debug)]
pub struct Link<P> {
    bottleneck: Bottleneck<P>,
    transit: Transit<P>,
    stats: Stats,
    now: Instant,
}

impl<P: Clone> Link<P> {
    /// Returns an empty link. A trace in `config` starts at `now`. All random choices derive from `seed`.
    pub fn new(now: Instant, config: Config, seed: u64) -> Self {
        let transit = Transit::new(&config, seed);
        let bottleneck = Bottleneck::new(now, config.rate, config.queue);
        Self {
            bottleneck,
            transit,
            stats: Stats::default(),
            now,
        }
    }

    /// Takes a packet, or drops it if the queue is full.
    ///
    /// `size_bytes` is what the packet occupies in queue and rate. It should include the headers of the network.
    pub fn handle_packet(&mut self, now: Instant, packet: P, size_bytes: usize) {
        self.advance(now);
        let bytes = size_bytes as u64;
        self.stats.offered += 1;
        self.stats.offered_bytes += bytes;
        match self.bottleneck.handle_packet(self.now, packet, bytes) {
            Ok(()) => self.advance(now),
            Err(Full::Bytes) => self.stats.dropped_queue_bytes += 1,
            Err(Full::Packets) => self.stats.dropped_queue_packets += 1,
        }
        let peak = &mut self.stats.queue_bytes_peak;
        *peak = self.bottleneck.waiting_bytes().max(*peak);
    }

    /// Returns when to poll next; `None` if the link is empty, or everything in it waits for a rate of zero to change.
    ///
    /// A poll at that time may return no packet: the packet may only have left its sender, or been lost.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let departure = self.bottleneck.next_departure();
        let arrival = self.transit.next_arrival();
        departure.into_iter().chain(arrival).min()
    }

    /// Returns the next packet that has arrived by `now`. Call until `None`.
    pub fn poll_packet(&mut self, now: Instant) -> Option<P> {
        self.advance(now);
        let (packet, bytes) = self.transit.poll_packet(self.now)?;
        self.stats.delivered += 1;
        self.stats.delivered_bytes += bytes;
        Some(packet)
    }

    /// Changes the rate. The packet being sent continues with its remaining bytes, and a trace starts from its
    /// beginning.
    pub fn set_rate(&mut self, now: Instant, rate: Rate) {
        self.advance(now);
        self.bottleneck.set_rate(self.now, rate);
    }

    /// Changes the limits of the queue. Packets in the queue stay.
    pub fn set_queue(&mut self, now: Instant, queue: Queue) {
        self.advance(now);
        self.bottleneck.set_limits(queue);
    }

    /// Changes the delay and its jitter.
    pub fn set_delay(&mut self, now: Instant, delay: Delay) {
        self.advance(now);
        self.transit.delay = delay;
    }

    /// Changes whether packets keep their order.
    pub fn set_keep_order(&mut self, now: Instant, keep_order: bool) {
        self.advance(now);
        self.transit.keep_order = keep_order;
    }

    /// Changes the loss. Burst loss starts in its good state.
    pub fn set_loss(&mut self, now: Instant, loss: Loss) {
        self.advance(now);
        self.transit.set_loss(loss);
    }

    /// Changes the probability that a packet arrives twice.
    pub fn set_duplication(&mut self, now: Instant, duplication: Probability) {
        self.advance(now);
        self.transit.duplication = duplication;
    }

    /// Changes which packets are held back.
    pub fn set_reordering(&mut self, now: Instant, reordering: Reordering) {
        self.advance(now);
        self.transit.reordering = reordering;
    }

    /// Begins or ends a black hole, in which every packet that leaves its sender is lost.
    ///
    /// The configured loss stays unchanged. Packets in transit still arrive.
    pub fn set_blackhole(&mut self, now: Instant, is_blackhole: bool) {
        self.advance(now);
        self.transit.is_blackhole = is_blackhole;
    }

    /// Returns the link's counters.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Returns the bytes in the queue at the time of the last call with a time.
    pub fn queue_bytes(&self) -> u64 {
        self.bottleneck.waiting_bytes()
    }

    /// Returns the packets in queue, being sent and in transit, at the time of the last call with a time.
    pub fn packets_inside(&self) -> usize {
        self.bottleneck.waiting_packets()
            + usize::from(self.bottleneck.is_sending())
            + self.transit.in_flight_packets()
    }

    /// Processes all events up to `now`, each at its own time.
    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        while let Some(at) = self
            .bottleneck
            .next_departure()
            .filter(|at| *at <= self.now)
        {
            let Some((packet, bytes)) = self.bottleneck.depart(at) else {
                return;
            };
            self.transit
                .handle_packet(at, packet, bytes, &mut self.stats);
        }
    }
}
