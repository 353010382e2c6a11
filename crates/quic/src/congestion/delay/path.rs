//! What is known of a path: its round trips and what it carries.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The round trips of a path, and the bytes that it carried lately.
#[derive(Clone, Debug)]
pub(super) struct Path {
    /// The shortest round trips of the present and the previous period.
    shortest: [Option<Duration>; 2],
    period_began: Instant,
    /// When a round trip was last about as short as the shortest, or that was looked for.
    confirmed: Instant,
    /// The shortest round trip among the acknowledgements of this turn.
    turn: Option<Duration>,
    /// When bytes were acknowledged lately, and how many.
    acked: VecDeque<(Instant, u64)>,
    acked_bytes: u64,
    /// Since when the path has been known to be busy.
    rate_since: Instant,
    /// Until then the rate is this many bytes per second, as less was sent than the path carries.
    remembered: Option<(Instant, u64)>,
}

impl Path {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            shortest: [None; 2],
            period_began: now,
            confirmed: now,
            turn: None,
            acked: VecDeque::new(),
            acked_bytes: 0,
            rate_since: now,
            remembered: None,
        }
    }

    /// The round trip without a queue, as far as it is known.
    pub(super) fn base(&self) -> Option<Duration> {
        self.shortest.into_iter().flatten().min()
    }

    /// Whether it is long ago that a round trip was as short as that without a queue.
    pub(super) fn is_base_old(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.confirmed) > CONFIRMED_FOR
    }

    /// It was looked for an empty queue. Where a packet takes long, nothing comes near the shortest round trip.
    pub(super) fn note_look(&mut self, now: Instant) {
        self.confirmed = now;
    }

    pub(super) fn note_round_trip(
        &mut self,
        now: Instant,
        round_trip: Duration,
        is_queue_theirs: bool,
    ) {
        let period = if is_queue_theirs {
            BASE_PERIOD_BESIDE_RIVALS
        } else {
            BASE_PERIOD
        };
        if now.saturating_duration_since(self.period_began) > period {
            self.shortest = [None, self.shortest[0]];
            self.period_began = now;
        }
        if self
            .base()
            .is_none_or(|base| round_trip <= base + base / 16)
        {
            self.confirmed = now;
        }
        let shortest = self.shortest[0].map_or(round_trip, |known| known.min(round_trip));
        self.shortest[0] = Some(shortest);
        self.turn = Some(self.turn.map_or(round_trip, |known| known.min(round_trip)));
    }

    /// The shortest round trip among the acknowledgements since this was last asked.
    pub(super) fn take_turn(&mut self) -> Option<Duration> {
        self.turn.take()
    }

    pub(super) fn note_acked(&mut self, now: Instant, bytes: u64) {
        self.acked.push_back((now, bytes));
        self.acked_bytes += bytes;
        while let Some(&(at, bytes)) = self.acked.front()
            && (now.saturating_duration_since(at) > RATE_PERIOD || self.acked.len() > ACKS_MAX)
        {
            self.acked.pop_front();
            self.acked_bytes -= bytes;
            self.rate_since = at;
        }
    }

    /// Until `until` less will be sent than the path carries: what it carried up to now counts.
    pub(super) fn remember_rate(&mut self, now: Instant, until: Instant) {
        self.remembered = Some((until, self.carried(now, Duration::from_secs(1))));
    }

    /// What the path carries in `time`, by what it carried lately.
    pub(super) fn carried(&self, now: Instant, time: Duration) -> u64 {
        if let Some((until, second)) = self.remembered
            && now < until
        {
            let bytes = u128::from(second) * time.as_nanos() / 1_000_000_000;
            return u64::try_from(bytes).unwrap_or(u64::MAX);
        }
        let span = now
            .saturating_duration_since(self.rate_since)
            .max(MILLISECOND);
        let bytes = u128::from(self.acked_bytes) * time.as_nanos() / span.as_nanos();
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

pub(super) const MILLISECOND: Duration = Duration::from_millis(1);
/// The shortest round trip is that of the present and the previous period of this length, so that a path
/// that has become longer is believed within two of them.
const BASE_PERIOD: Duration = Duration::from_secs(15);
/// The same while others fill the queue: then no round trip tells how long the path is.
const BASE_PERIOD_BESIDE_RIVALS: Duration = Duration::from_mins(1);
/// For so long an empty queue is remembered before it is looked for again.
const CONFIRMED_FOR: Duration = Duration::from_secs(10);
/// The rate is that of this much time.
pub(super) const RATE_PERIOD: Duration = Duration::from_millis(400);
/// Acknowledgements kept for the rate; the oldest are forgotten beyond.
const ACKS_MAX: usize = 4096;
