//! A congestion controller that listens to delay: it keeps the queue of the bottleneck at a target.
//!
//! The wait in the queue is how much longer an acknowledgement took than the quickest one of the last
//! while. Above the target the window is set to what the path carried lately in a round trip with
//! a shorter queue; below it, it grows as in slow start until the first queue, then by a packet per
//! round trip, more slowly the nearer the target is. Losses count only where there are many, or
//! without a queue they would be the link's own.

use std::{
    any::Any,
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use quinn_proto::{
    RttEstimator,
    congestion::{Controller, ControllerFactory},
};

/// Makes controllers with one target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DelayConfig {
    pub(crate) queue_target: Duration,
}

impl ControllerFactory for DelayConfig {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Delay::new(self.queue_target, now, current_mtu))
    }
}

/// The state of one path.
#[derive(Clone, Debug)]
struct Delay {
    target: Duration,
    packet_bytes: u64,
    window: u64,
    /// Until the first queue, the window doubles every round trip.
    slow_start: bool,
    /// The shortest round trips of the present and the previous period.
    shortest: [Option<Duration>; 2],
    period_began: Instant,
    /// The shortest round trip among the acknowledgements of this turn.
    turn: Option<Duration>,
    /// When bytes were acknowledged lately, and how many.
    acked: VecDeque<(Instant, u64)>,
    acked_bytes: u64,
    /// Since when the path has been known to be busy.
    rate_since: Instant,
    /// The window is not lowered again before.
    hold_until: Instant,
    /// What was in flight when bytes were last acknowledged stood near the window.
    is_window_used: bool,
    growth: u64,
}

impl Delay {
    fn new(target: Duration, now: Instant, mtu: u16) -> Self {
        let packet_bytes = u64::from(mtu);
        Self {
            target,
            packet_bytes,
            window: INITIAL_PACKETS * packet_bytes,
            slow_start: true,
            shortest: [None; 2],
            period_began: now,
            turn: None,
            acked: VecDeque::new(),
            acked_bytes: 0,
            rate_since: now,
            hold_until: now,
            is_window_used: false,
            growth: 0,
        }
    }

    fn window_min(&self) -> u64 {
        WINDOW_PACKETS_MIN * self.packet_bytes
    }

    /// The round trip without a queue, as far as it is known.
    fn base(&self) -> Option<Duration> {
        self.shortest.into_iter().flatten().min()
    }

    fn note_round_trip(&mut self, now: Instant, round_trip: Duration) {
        if now.saturating_duration_since(self.period_began) > BASE_PERIOD {
            self.shortest = [None, self.shortest[0]];
            self.period_began = now;
        }
        let shortest = self.shortest[0].map_or(round_trip, |known| known.min(round_trip));
        self.shortest[0] = Some(shortest);
        self.turn = Some(self.turn.map_or(round_trip, |known| known.min(round_trip)));
    }

    fn note_acked(&mut self, now: Instant, bytes: u64) {
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

    /// What the path carries in `time`, by what it carried lately.
    fn carried(&self, now: Instant, time: Duration) -> u64 {
        let span = now
            .saturating_duration_since(self.rate_since)
            .max(MILLISECOND);
        let bytes = u128::from(self.acked_bytes) * time.as_nanos() / span.as_nanos();
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// How long the path takes for [`QUEUE_PACKETS_MIN`] packets. On a slow path a packet is a queue by itself,
    /// and with less than this in it the path would run dry while acknowledgements are on their way.
    fn time_of_packets(&self, now: Instant) -> Duration {
        let second = self.carried(now, Duration::from_secs(1)).max(1);
        let bytes = QUEUE_PACKETS_MIN * self.packet_bytes;
        Duration::from_millis(bytes * 1000 / second).min(self.target * 4)
    }

    /// The acknowledgements of a turn are in: the window follows the queue.
    fn follow(&mut self, now: Instant, round_trip: Duration, base: Duration) {
        let queue = round_trip.saturating_sub(base);
        let target = self.target.max(self.time_of_packets(now));
        if queue > target {
            if now >= self.hold_until {
                // Aims below the target, so that the queue does not stay on its edge.
                let carried = self.carried(now, base + target * 7 / 10);
                self.window = carried.min(self.window * 9 / 10).max(self.window_min());
                self.hold_until = now + round_trip;
            }
            self.slow_start = false;
            self.growth = 0;
            return;
        }
        self.slow_start &= queue <= target / 2;
        if !self.is_window_used {
            return;
        }
        if self.slow_start {
            self.window += self.growth;
        } else {
            // A packet per round trip, scaled by how much of the target is left.
            let room = target.saturating_sub(queue).as_nanos() * 1000 / target.as_nanos().max(1);
            let room = u64::try_from(room).unwrap_or(1000);
            let gain = self.growth * self.packet_bytes / self.window.max(1);
            self.window += (gain * room / 1000 * GROWTH_PACKETS).max(1);
        }
        self.growth = 0;
    }
}

impl Controller for Delay {
    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        _app_limited: bool,
        _rtt: &RttEstimator,
    ) {
        self.note_acked(now, bytes);
        self.note_round_trip(now, now.saturating_duration_since(sent));
        self.growth += bytes;
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        _largest_packet_num_acked: Option<u64>,
    ) {
        let used = in_flight + self.growth + 2 * self.packet_bytes >= self.window;
        self.is_window_used = used && !app_limited;
        if let (Some(round_trip), Some(base)) = (self.turn.take(), self.base()) {
            self.follow(now, round_trip, base);
        }
        self.growth = 0;
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        _sent: Instant,
        is_persistent_congestion: bool,
        _lost_bytes: u64,
    ) {
        if is_persistent_congestion {
            self.window = self.window_min();
            self.slow_start = false;
        } else if now >= self.hold_until {
            let base = self.base().unwrap_or(MILLISECOND);
            let carried = self.carried(now, base + self.target);
            let lowered = self.window * 7 / 10;
            // Losses of a link that is not full change little: it goes on carrying what it carried.
            self.window = carried.clamp(lowered, self.window).max(self.window_min());
            self.hold_until = now + base;
            self.slow_start = false;
        }
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.packet_bytes = u64::from(new_mtu);
        self.window = self.window.max(self.window_min());
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        INITIAL_PACKETS * self.packet_bytes
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

const MILLISECOND: Duration = Duration::from_millis(1);
/// As RFC 9002 §7.2 recommends.
const INITIAL_PACKETS: u64 = 10;
/// Two more than RFC 9002 §7.2 recommends at least: acknowledgements come for every second packet, and the
/// path is to be busy meanwhile.
const WINDOW_PACKETS_MIN: u64 = 4;
/// What may wait in the queue however slow the path is.
const QUEUE_PACKETS_MIN: u64 = 2;
/// The shortest round trip is that of the present and the previous period of this length, so that a path
/// that has become longer is believed within two of them.
const BASE_PERIOD: Duration = Duration::from_secs(15);
/// The rate is that of this much time.
const RATE_PERIOD: Duration = Duration::from_millis(400);
/// Acknowledgements kept for the rate; the oldest are forgotten beyond.
const ACKS_MAX: usize = 4096;
/// By how many packets the window grows in a round trip while the queue is empty.
const GROWTH_PACKETS: u64 = 2;
