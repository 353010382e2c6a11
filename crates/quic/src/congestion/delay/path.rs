//! Estimates of a path: its round trips and the rate that it carries.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The round trips of a path, and the bytes that it recently carried.
#[derive(Clone, Debug)]
pub(super) struct Path {
    /// The shortest round trips of the current and the previous period.
    shortest: [Option<Duration>; 2],
    period_began: Instant,
    /// When a round trip was last close to the shortest, or a drain was last made.
    confirmed: Instant,
    /// Recent acknowledgements: their time and number of bytes.
    acked: VecDeque<(Instant, u64)>,
    acked_bytes: u64,
    /// Since when the path has been known to be busy.
    rate_since: Instant,
    /// A rate in bytes per second that applies until a time, because less is sent than the path carries.
    remembered: Option<(Instant, u64)>,
}

impl Path {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            shortest: [None; 2],
            period_began: now,
            confirmed: now,
            acked: VecDeque::new(),
            acked_bytes: 0,
            rate_since: now,
            remembered: None,
        }
    }

    /// Returns the round trip without a queue, as far as it is known.
    pub(super) fn base(&self) -> Option<Duration> {
        self.shortest.into_iter().flatten().min()
    }

    /// Returns whether the round trip without a queue was last confirmed long ago.
    pub(super) fn is_base_old(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.confirmed) > CONFIRMED_FOR
    }

    /// Notes that a drain was made. Where a packet takes long, no round trip comes close to the shortest.
    pub(super) fn note_look(&mut self, now: Instant) {
        self.confirmed = now;
    }

    /// Notes the shortest round trip of a turn. Returns the round trip without a queue.
    pub(super) fn note_round_trip(
        &mut self,
        now: Instant,
        round_trip: Duration,
        is_queue_theirs: bool,
    ) -> Duration {
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
        self.shortest[1].map_or(shortest, |before| before.min(shortest))
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

    /// Keeps the current rate until `until`, because less will be sent than the path carries.
    pub(super) fn remember_rate(&mut self, now: Instant, until: Instant) {
        self.remembered = Some((until, self.carried(now, Duration::from_secs(1))));
    }

    /// Returns the bytes that the path carries in `time`, by its recent rate.
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
/// The shortest round trip covers the current and the previous period of this length, so a longer path is recognised
/// within two periods.
const BASE_PERIOD: Duration = Duration::from_secs(15);
/// The same while other flows fill the queue, when no round trip shows the length of the path.
const BASE_PERIOD_BESIDE_RIVALS: Duration = Duration::from_mins(1);
/// How long an empty queue is considered current before the next drain.
const CONFIRMED_FOR: Duration = Duration::from_secs(10);
/// The time over which the rate is measured.
pub(super) const RATE_PERIOD: Duration = Duration::from_millis(400);
/// Acknowledgements kept for the rate; beyond it the oldest are removed.
const ACKS_MAX: usize = 4096;
