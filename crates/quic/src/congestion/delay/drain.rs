//! Drain: a measurement of the queue with almost nothing of this flow in it.

use std::time::{Duration, Instant};

/// A short time with a small window. Packets sent in it find the queue as other flows keep it, or empty.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    /// The window during the drain.
    pub(super) window: u64,
    began: Instant,
    /// The round trip before the drain.
    before: Duration,
    /// The length of the measurement: half a round trip without a queue.
    look: Duration,
    /// When the drain ends even without a measurement.
    pub(super) give_up: Instant,
    ends: Option<Instant>,
    shortest: Option<Duration>,
}

impl Drain {
    pub(super) fn new(now: Instant, window: u64, round_trip: Duration, base: Duration) -> Self {
        Self {
            window,
            began: now,
            before: round_trip,
            look: base / 2,
            give_up: now + round_trip * 4,
            ends: None,
            shortest: None,
        }
    }

    /// Handles the acknowledgement of a packet.
    pub(super) fn note(&mut self, now: Instant, sent: Instant, round_trip: Duration) {
        if sent > self.began {
            self.ends.get_or_insert(now + self.look);
            let shortest = self
                .shortest
                .map_or(round_trip, |known| known.min(round_trip));
            self.shortest = Some(shortest);
        }
    }

    /// Returns whether `shortest` means that the queue is empty without this flow, apart from the packets sent at once
    /// and the peer's acknowledgement delay. Where packets take long, the queue also has to have become shorter;
    /// otherwise only the flow's share of the path is small.
    pub(super) fn is_queue_empty(
        &self,
        shortest: Duration,
        base: Duration,
        target: Duration,
        packets: Duration,
    ) -> bool {
        let queue = shortest.saturating_sub(base);
        let before = self.before.saturating_sub(base);
        queue <= target / 2 || (queue <= packets + target / 2 && queue <= before * 4 / 5)
    }

    /// Returns whether the queue disappeared together with this flow's packets. This needs no round trip without a
    /// queue for comparison, which is unknown to a flow that began while others filled the queue.
    pub(super) fn was_queue_ours(&self, shortest: Duration) -> bool {
        shortest <= self.before * 6 / 10
    }

    /// Returns the shortest round trip measured, once the drain is over; zero if there was no measurement.
    pub(super) fn end(&self, now: Instant) -> Option<Duration> {
        let ends = self.ends.unwrap_or(self.give_up);
        (now >= ends).then(|| self.shortest.unwrap_or(Duration::ZERO))
    }
}
