//! A congestion controller that listens to delay: it keeps the queue of the bottleneck at a target.
//!
//! The wait in the queue is how much longer an acknowledgement took than the quickest one of the last
//! while. Above the target the window is set to what the path carried lately in a round trip with
//! a shorter queue; below it, it grows as in slow start until the first queue, then by a packet per
//! round trip, more slowly the nearer the target is. Losses count only where there are many, or
//! without a queue they would be the link's own.
//!
//! Whoever yields to a queue that others fill yields for ever. So a queue that stays although the window was
//! lowered is put to the proof (`drain.rs`): with next to nothing of our own in flight it is empty, or it is not ours.
//! Then CUBIC decides (`competition.rs`), until the queue is seen to be short again.

mod competition;
mod drain;
mod path;

use std::{
    any::Any,
    sync::Arc,
    time::{Duration, Instant},
};

use quinn_proto::{
    RttEstimator,
    congestion::{Controller, ControllerFactory},
};

use self::competition::{Competition, Pressure};
use self::drain::Drain;
use self::path::{MILLISECOND, Path, RATE_PERIOD};

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
    path: Path,
    /// The window is not lowered again before.
    hold_until: Instant,
    /// What was in flight when bytes were last acknowledged stood near the window.
    is_window_used: bool,
    growth: u64,
    /// A queue that stays although the window was lowered.
    pressure: Option<Pressure>,
    /// While next to nothing is in flight, to see how long the queue is without it.
    drain: Option<Drain>,
    /// While others fill the queue.
    competition: Option<Competition>,
    /// Until then a queue that stays is taken for that of competing flows without proof, since there were some before.
    competition_expected_until: Instant,
    /// Until then a queue that stays is ours, as was proven.
    proven_until: Instant,
}

impl Delay {
    fn new(target: Duration, now: Instant, mtu: u16) -> Self {
        let packet_bytes = u64::from(mtu);
        Self {
            target,
            packet_bytes,
            window: INITIAL_PACKETS * packet_bytes,
            slow_start: true,
            path: Path::new(now),
            hold_until: now,
            is_window_used: false,
            growth: 0,
            pressure: None,
            drain: None,
            competition: None,
            competition_expected_until: now,
            proven_until: now,
        }
    }

    fn window_min(&self) -> u64 {
        WINDOW_PACKETS_MIN * self.packet_bytes
    }

    /// How long the path takes for a packet and a half. On a slow path a packet is a queue by itself, and with less
    /// than this in it the path would run dry while acknowledgements are on their way.
    fn time_of_packets(&self, now: Instant) -> Duration {
        let second = self.path.carried(now, Duration::from_secs(1)).max(1);
        let bytes = self.packet_bytes * 3 / 2;
        Duration::from_millis(bytes * 1000 / second).min(self.target * 4)
    }

    /// How long packets may wait in the queue: the less a flow has of the path, the longer. So of several that
    /// hold their queues together, those with more yield first, even if they know the empty queue less well.
    fn target(&self, now: Instant) -> Duration {
        self.target * 2 / 3 + self.time_of_packets(now).min(self.target * 3 / 2)
    }

    /// The acknowledgements of a turn are in: the window follows the queue.
    fn follow(&mut self, now: Instant, round_trip: Duration, base: Duration) {
        let queue = round_trip.saturating_sub(base);
        let target = self.target(now);
        if let Some(drain) = self.drain {
            if let Some(shortest) = drain.end(now) {
                self.drain = None;
                self.path.remember_rate(now, now + RATE_PERIOD + round_trip);
                self.judge(now, drain, shortest);
            }
        } else if let Some(competition) = &mut self.competition {
            if competition.have_left(now, queue <= self.target / 2, round_trip) {
                self.end_competition(now);
            } else if competition.is_time_to_look(now) {
                self.look(now, round_trip, base);
            }
        } else if queue > target {
            self.slow_start = false;
            if now >= self.hold_until {
                self.yield_to_queue(now, round_trip, base, target);
            }
        } else {
            self.pressure = None;
            self.slow_start &= queue <= target / 2;
            // Where packets take long, an empty queue would not look like one.
            let can_see = self.time_of_packets(now) < self.target / 2;
            if can_see && self.path.is_base_old(now) {
                self.look(now, round_trip, base);
            } else if self.is_window_used {
                self.grow(queue, target);
            }
        }
    }

    /// The queue is too long: less is sent, unless that was of no use.
    fn yield_to_queue(
        &mut self,
        now: Instant,
        round_trip: Duration,
        base: Duration,
        target: Duration,
    ) {
        let has_met_competition =
            now < self.competition_expected_until && self.time_of_packets(now) < self.target / 2;
        // Who cannot send less cannot find out by that whose queue it is.
        let can_yield = self.pressure.is_some() || self.window > self.window_min();
        let can_yield = can_yield && now >= self.proven_until;
        let (window, pressure) = (self.window, &mut self.pressure);
        let lasts = can_yield
            && pressure
                .get_or_insert_with(|| Pressure::new(now, window))
                .lasts(now, has_met_competition);
        if !lasts {
            // Aims below the target, so that the queue does not stay on its edge.
            let carried = self.path.carried(now, base + target * 7 / 10);
            self.window = carried.min(self.window * 9 / 10).max(self.window_min());
            self.hold_until = now + round_trip;
        } else if has_met_competition {
            self.compete(now);
        } else {
            self.look(now, round_trip, base);
        }
    }

    fn grow(&mut self, queue: Duration, target: Duration) {
        if self.slow_start {
            self.window += self.growth;
            return;
        }
        // A packet per round trip, scaled by how much of the target is left.
        let room = target.saturating_sub(queue).as_nanos() * 1000 / target.as_nanos().max(1);
        let room = u64::try_from(room).unwrap_or(1000);
        let gain = self.growth * self.packet_bytes / self.window.max(1);
        self.window += (gain * room / 1000 * GROWTH_PACKETS).max(1);
    }

    /// Begins to look how long the queue is with next to nothing of our own in it.
    fn look(&mut self, now: Instant, round_trip: Duration, base: Duration) {
        let half = self.path.carried(now, base / 2);
        let window = half.max(DRAIN_PACKETS_MIN * self.packet_bytes);
        let drain = Drain::new(now, window, round_trip, base);
        self.path
            .remember_rate(now, drain.give_up + RATE_PERIOD + round_trip);
        self.drain = Some(drain);
    }

    /// It was seen how long the queue is with next to nothing of our own in it.
    fn judge(&mut self, now: Instant, drain: Drain, shortest: Duration) {
        let base = self.path.base().unwrap_or(MILLISECOND);
        // The window of a drain, sent at once, by what the path carries.
        let second = self.path.carried(now, Duration::from_secs(1)).max(1);
        let packets = DRAIN_PACKETS_MIN * self.packet_bytes * 1000 / second;
        let packets = Duration::from_millis(packets).min(self.target * 2);
        let is_empty = drain.is_queue_empty(shortest, base, self.target, packets);
        self.hold_until = now + base;
        self.path.note_look(now);
        match &mut self.competition {
            Some(_) if is_empty && drain.was_queue_ours(shortest) => self.end_competition(now),
            Some(competition) => competition.look_later(now),
            None if is_empty || self.pressure.is_none() => {
                self.pressure = None;
                self.proven_until = now + PROVEN_FOR;
            }
            None => self.compete(now),
        }
    }

    /// Others fill the queue, and to yield is of no use: what they do is done, with the window from before.
    fn compete(&mut self, now: Instant) {
        let pressure = self.pressure.take();
        let window = pressure.map_or(self.window, |pressure| pressure.window);
        let window = window.max(self.window);
        self.competition = Some(Competition::new(now, window, self.packet_bytes));
    }

    /// The queue is short: whoever filled it is gone, or could not fill it.
    fn end_competition(&mut self, now: Instant) {
        let time = self.path.base().unwrap_or(MILLISECOND) + self.target * 7 / 10;
        self.window = self.path.carried(now, time).max(self.window_min());
        self.competition = None;
        self.pressure = None;
        self.competition_expected_until = now + WARY_FOR;
    }
}

impl Controller for Delay {
    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        let round_trip = now.saturating_duration_since(sent);
        self.path.note_acked(now, bytes);
        let is_queue_theirs = self.competition.is_some() || now < self.competition_expected_until;
        self.path.note_round_trip(now, round_trip, is_queue_theirs);
        self.growth += bytes;
        if let Some(drain) = &mut self.drain {
            drain.note(now, sent, round_trip);
        } else if let Some(competition) = &mut self.competition {
            competition.cubic.on_ack(now, sent, bytes, app_limited, rtt);
        }
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
        if let (Some(round_trip), Some(base)) = (self.path.take_turn(), self.path.base()) {
            self.follow(now, round_trip, base);
        }
        self.growth = 0;
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        if let Some(competition) = &mut self.competition {
            competition.on_loss(now, sent, is_persistent_congestion, lost_bytes);
        } else if is_persistent_congestion {
            self.window = self.window_min();
            self.slow_start = false;
        } else if now >= self.hold_until {
            let base = self.path.base().unwrap_or(MILLISECOND);
            let carried = self.path.carried(now, base + self.target);
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
        if let Some(competition) = &mut self.competition {
            competition.cubic.on_mtu_update(new_mtu);
        }
    }

    fn window(&self) -> u64 {
        let competition = self.competition.as_ref();
        let window = competition.map_or(self.window, |competition| competition.cubic.window());
        let drain = self.drain.map_or(window, |drain| drain.window);
        window.min(drain)
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

/// As RFC 9002 §7.2 recommends.
const INITIAL_PACKETS: u64 = 10;
/// Two more than RFC 9002 §7.2 recommends at least: acknowledgements come for every second packet, and the
/// path is to be busy meanwhile.
const WINDOW_PACKETS_MIN: u64 = 4;
/// As little as RFC 9002 §7.2 permits, while it is seen how long the queue is.
const DRAIN_PACKETS_MIN: u64 = 2;
/// How long competing flows that have left are expected to come back.
const WARY_FOR: Duration = Duration::from_secs(15);
/// For so long it is believed that a queue is ours.
const PROVEN_FOR: Duration = Duration::from_secs(2);
/// By how many packets the window grows in a round trip while the queue is empty.
const GROWTH_PACKETS: u64 = 2;
