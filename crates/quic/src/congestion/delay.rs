//! A delay-based congestion controller: it keeps the queue of the bottleneck at a target.
//!
//! The queueing delay is the round trip of an acknowledgement less the shortest round trip of the recent past. Above
//! the target, the window is set to what the path recently carried in a round trip with a shorter queue. Below the
//! target, the window grows: as in slow start until the first queue, then by packets per round trip, more slowly the
//! nearer the target is. Losses count only if there are many; otherwise they are attributed to the link.
//!
//! A flow that yields to a queue that others fill would yield forever. If a queue stays although the window was
//! reduced, a drain tests whose queue it is (`drain.rs`): with almost nothing of this flow in flight, a queue that does
//! not become empty belongs to others. Then CUBIC takes over (`competition.rs`), until the queue is short again.

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

/// Creates controllers with one target.
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
    /// Whether the window doubles every round trip, as it does until the first queue.
    slow_start: bool,
    path: Path,
    /// The window is not reduced again before this time.
    hold_until: Instant,
    /// Whether the bytes in flight were close to the window at the last acknowledgement.
    is_window_used: bool,
    /// Bytes acknowledged in this turn.
    growth: u64,
    /// When the newest of the packets acknowledged in this turn was sent. Its round trip is the shortest of them.
    newest_sent: Option<Instant>,
    /// A queue that stays although the window was reduced.
    pressure: Option<Pressure>,
    /// A drain in progress: almost nothing is in flight, which shows the queue of others.
    drain: Option<Drain>,
    /// The state while other flows fill the queue.
    competition: Option<Competition>,
    /// Until this time a queue that stays is attributed to competing flows without a drain, since there were some
    /// recently.
    competition_expected_until: Instant,
    /// Until this time a queue is attributed to this flow, as a drain has shown.
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
            newest_sent: None,
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

    /// Returns the time that the path takes for one and a half packets. On a slow path, a single packet is a queue by
    /// itself. With a target below this time, the path would run dry while acknowledgements are under way.
    fn time_of_packets(&self, now: Instant) -> Duration {
        let second = self.path.carried(now, Duration::from_secs(1)).max(1);
        let bytes = self.packet_bytes * 3 / 2;
        Duration::from_millis(bytes * 1000 / second).min(self.target * 4)
    }

    /// Returns the target of the queueing delay, which is longer for a flow with a smaller share of the path. Of
    /// several flows that share a queue, those with a larger share thus yield first, even if their estimate of the
    /// empty path is worse.
    fn target(&self, now: Instant) -> Duration {
        self.target * 2 / 3 + self.time_of_packets(now).min(self.target * 3 / 2)
    }

    /// Adjusts the window to the queue, once the acknowledgements of a turn are processed.
    fn follow(&mut self, now: Instant, round_trip: Duration, base: Duration) {
        let queue = round_trip.saturating_sub(base);
        let is_idle = !self.is_window_used && self.drain.is_none() && self.competition.is_none();
        if is_idle && queue <= self.target / QUEUE_PARTS {
            // The source sends less than the window permits, and nothing queues: the window stays as it is.
            self.pressure = None;
            return;
        }
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
            // Where packets take long, an empty queue cannot be recognised.
            let can_see = self.time_of_packets(now) < self.target / 2;
            if can_see && self.path.is_base_old(now) {
                self.look(now, round_trip, base);
            } else if self.is_window_used {
                self.grow(queue, target);
            }
        }
    }

    /// Reduces the window because the queue is too long. If reductions have had no effect, tests whose queue it is, or
    /// starts to compete.
    fn yield_to_queue(
        &mut self,
        now: Instant,
        round_trip: Duration,
        base: Duration,
        target: Duration,
    ) {
        let has_met_competition =
            now < self.competition_expected_until && self.time_of_packets(now) < self.target / 2;
        // A flow at its smallest window cannot test by reductions whose queue it is.
        let can_yield = self.pressure.is_some() || self.window > self.window_min();
        let can_yield = can_yield && now >= self.proven_until;
        let (window, pressure) = (self.window, &mut self.pressure);
        let lasts = can_yield
            && pressure
                .get_or_insert_with(|| Pressure::new(now, window))
                .lasts(now, has_met_competition);
        if !lasts {
            // Aims below the target, so that the queue does not stay at its limit.
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
        // `GROWTH_PACKETS` per round trip while the queue is empty, less the closer the queue is to the target.
        let room = target.saturating_sub(queue).as_nanos() * 1000 / target.as_nanos().max(1);
        let room = u64::try_from(room).unwrap_or(1000);
        let gain = self.growth * self.packet_bytes / self.window.max(1);
        self.window += (gain * room / 1000 * GROWTH_PACKETS).max(1);
    }

    /// Begins a drain, which measures the queue with almost nothing of this flow in it.
    fn look(&mut self, now: Instant, round_trip: Duration, base: Duration) {
        let half = self.path.carried(now, base / 2);
        let window = half.max(DRAIN_PACKETS_MIN * self.packet_bytes);
        let drain = Drain::new(now, window, round_trip, base);
        self.path
            .remember_rate(now, drain.give_up + RATE_PERIOD + round_trip);
        self.drain = Some(drain);
    }

    /// Evaluates a drain, with the shortest round trip that it measured.
    fn judge(&mut self, now: Instant, drain: Drain, shortest: Duration) {
        let base = self.path.base().unwrap_or(MILLISECOND);
        // The time that the path takes for the window of a drain, sent at once.
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

    /// Lets CUBIC take over with the window from before the reductions, since other flows fill the queue and yielding
    /// has no effect.
    fn compete(&mut self, now: Instant) {
        let pressure = self.pressure.take();
        let window = pressure.map_or(self.window, |pressure| pressure.window);
        let window = window.max(self.window);
        self.competition = Some(Competition::new(now, window, self.packet_bytes));
    }

    /// Ends the competition, since the queue is short: the other flows are gone, or do not fill it.
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
        self.growth += bytes;
        self.newest_sent = self.newest_sent.max(Some(sent));
        if self.drain.is_none()
            && let Some(competition) = &mut self.competition
        {
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
        if let Some(sent) = self.newest_sent.take() {
            let round_trip = now.saturating_duration_since(sent);
            self.path.note_acked(now, self.growth);
            let is_queue_theirs =
                self.competition.is_some() || now < self.competition_expected_until;
            let base = self.path.note_round_trip(now, round_trip, is_queue_theirs);
            if let Some(drain) = &mut self.drain {
                drain.note(now, sent, round_trip);
            }
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
            // Losses on a link that is not full change little: the window stays at what the path carries.
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

/// As recommended by RFC 9002 §7.2.
const INITIAL_PACKETS: u64 = 10;
/// Two more than the minimum that RFC 9002 §7.2 recommends: acknowledgements come for every second packet, and the path
/// has to stay busy in between.
const WINDOW_PACKETS_MIN: u64 = 4;
/// The smallest window that RFC 9002 §7.2 permits, for the time of a drain.
const DRAIN_PACKETS_MIN: u64 = 2;
/// The part of the configured target that is at most half of the effective one (`Delay::target`).
const QUEUE_PARTS: u32 = 3;
/// How long competing flows are expected to return after they have left.
const WARY_FOR: Duration = Duration::from_secs(15);
/// How long a queue is attributed to this flow after a drain.
const PROVEN_FOR: Duration = Duration::from_secs(2);
/// Growth of the window in packets per round trip while the queue is empty.
const GROWTH_PACKETS: u64 = 2;
