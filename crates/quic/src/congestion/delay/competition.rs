//! Competing flows that fill the queue of the bottleneck: their detection, and the behaviour while they last.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn_proto::congestion::{Controller, ControllerFactory, CubicConfig};

/// A queue that stays above the target although the window was reduced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pressure {
    since: Instant,
    lowered: u32,
    /// The window before the reductions.
    pub(super) window: u64,
}

impl Pressure {
    pub(super) fn new(now: Instant, window: u64) -> Self {
        Self {
            since: now,
            lowered: 0,
            window,
        }
    }

    /// Returns true if the window has been reduced often enough to conclude that other flows keep the queue full. A
    /// flow that has met such competition before concludes this after fewer reductions.
    pub(super) fn lasts(&mut self, now: Instant, has_met_competition: bool) -> bool {
        self.lowered += 1;
        let is_long = now.saturating_duration_since(self.since) > PRESSURE_MAX;
        self.lowered > LOWERED_MAX && is_long || self.lowered == LOWERED_MAX && has_met_competition
    }
}

/// The state while competing flows fill the queue: CUBIC determines the window, as it does for them.
pub(super) struct Competition {
    pub(super) cubic: Box<dyn Controller>,
    /// When to check whether the other flows are gone.
    look_at: Instant,
    /// Since when the queue has been short.
    short_since: Option<Instant>,
    /// From this time on, a loss also triggers the check.
    looks_at_loss_from: Instant,
}

impl Competition {
    /// Creates the state with this window.
    pub(super) fn new(now: Instant, window: u64, packet_bytes: u64) -> Self {
        let mut config = CubicConfig::default();
        // The simulated loss takes CUBIC out of slow start, and reduces its window by 3 of 10 bytes.
        config.initial_window(window * 10 / 7);
        let mtu = u16::try_from(packet_bytes).unwrap_or(u16::MAX);
        let mut cubic = Arc::new(config).build(now, mtu);
        cubic.on_congestion_event(now, now, false, 0);
        Self {
            cubic,
            look_at: now + LOOK_PERIOD,
            short_since: None,
            looks_at_loss_from: now + LOOK_PERIOD / 4,
        }
    }

    /// Handles a loss. All flows reduce their window at a loss, so a delay-based flow checks the queue at once. Several
    /// such flows, each of which took the others for competition, thus check at the same time and find the queue empty.
    pub(super) fn on_loss(&mut self, now: Instant, sent: Instant, is_persistent: bool, bytes: u64) {
        self.cubic
            .on_congestion_event(now, sent, is_persistent, bytes);
        if now >= self.looks_at_loss_from {
            self.look_at = self.look_at.min(now);
        }
    }

    /// Returns whether the queue has been short for longer than other flows need to fill it again after a loss.
    pub(super) fn have_left(&mut self, now: Instant, is_short: bool, round_trip: Duration) -> bool {
        if !is_short {
            self.short_since = None;
            return false;
        }
        let since = *self.short_since.get_or_insert(now);
        now.saturating_duration_since(since) > round_trip * SHORT_ROUND_TRIPS
    }

    pub(super) fn is_time_to_look(&self, now: Instant) -> bool {
        now >= self.look_at
    }

    pub(super) fn look_later(&mut self, now: Instant) {
        self.look_at = now + LOOK_PERIOD;
        self.looks_at_loss_from = now + LOOK_PERIOD / 4;
    }
}

impl Clone for Competition {
    fn clone(&self) -> Self {
        Self {
            cubic: self.cubic.clone_box(),
            ..*self
        }
    }
}

impl fmt::Debug for Competition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Competition");
        shown.field("window", &self.cubic.window());
        shown
            .field("look_at", &self.look_at)
            .finish_non_exhaustive()
    }
}

/// Number of reductions after which a queue that stays is tested ...
const LOWERED_MAX: u32 = 3;
/// ... if it has also stayed for this long.
const PRESSURE_MAX: Duration = Duration::from_secs(1);
/// How often to check whether the competing flows have left.
const LOOK_PERIOD: Duration = Duration::from_secs(10);
/// Number of round trips after which a short queue shows that the competing flows are gone.
const SHORT_ROUND_TRIPS: u32 = 1;
