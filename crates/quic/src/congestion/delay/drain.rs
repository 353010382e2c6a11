//! A look at the queue with next to nothing of our own in it.

use std::time::{Duration, Instant};

/// A short time with a small window: packets that are sent then find the queue as others keep it, or empty.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    /// What may be in flight.
    pub(super) window: u64,
    began: Instant,
    /// The round trip before.
    before: Duration,
    /// Half a round trip without a queue: for so long it is looked.
    look: Duration,
    /// Then it ends even if nothing is seen.
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

    /// A packet was acknowledged.
    pub(super) fn note(&mut self, now: Instant, sent: Instant, round_trip: Duration) {
        if sent > self.began {
            self.ends.get_or_insert(now + self.look);
            let shortest = self
                .shortest
                .map_or(round_trip, |known| known.min(round_trip));
            self.shortest = Some(shortest);
        }
    }

    /// Whether such a round trip says that the queue is empty without us, but for the packets that were sent at once and
    /// the time that the peer waits with an acknowledgement. Where packets take long, the queue has to have become
    /// shorter too, or it is only our share of the path that is small.
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

    /// Whether the queue went with what was ours in it. Needs no round trip without a queue to compare with: who came
    /// when others had filled it knows none.
    pub(super) fn was_queue_ours(&self, shortest: Duration) -> bool {
        shortest <= self.before * 6 / 10
    }

    /// The shortest round trip that was seen, when it is over; if none was, a zero: nothing was found.
    pub(super) fn end(&self, now: Instant) -> Option<Duration> {
        let ends = self.ends.unwrap_or(self.give_up);
        (now >= ends).then(|| self.shortest.unwrap_or(Duration::ZERO))
    }
}
