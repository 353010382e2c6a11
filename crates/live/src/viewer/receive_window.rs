//! Keeps the queue of the bottleneck short from the receiving end, whatever congestion controller the relay uses.
//!
//! CUBIC fills the bottleneck's queue, and what stands there cannot be overtaken. The player therefore limits the bytes
//! in flight by QUIC's flow control (RFC 9000 §4.1), as RFC 9840 does for TCP. The rest waits at the relay, where
//! priorities, resets and timeouts decide what is sent next.
//!
//! That helps only if the relay keeps the priorities of streams that wait for flow control. A relay whose keyframes are
//! overtaken by other frames is not limited any more.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The flow control window of a player's connection, in bytes.
#[derive(Debug)]
pub(super) struct ReceiveWindow {
    window: u64,
    /// Whether the window grows by half in a round trip, as it does until the first queue.
    is_starting: bool,
    /// The shortest round trip of the current and of the previous period.
    shortest: [Option<Duration>; 2],
    period_began: Option<Instant>,
    /// Times and bytes of recent arrivals.
    arrivals: VecDeque<(Instant, u64)>,
    /// All bytes received, as of the last call.
    received: u64,
    /// The window is not changed before this time.
    hold_until: Option<Instant>,
    /// When the round trip was last measured.
    probed_at: Option<Instant>,
    order: Order,
}

/// Whether the window is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// The relay keeps the order, as far as is known: so many keyframes in succession were overtaken, and so many
    /// frames have overtaken the current one.
    Kept { keyframes: u32, frames: u32 },
    /// The relay does not keep the order: the window is opened next.
    Broken,
    /// The window was opened for good.
    Open,
}

impl Default for ReceiveWindow {
    fn default() -> Self {
        Self {
            window: u64::from(WINDOW_FIRST),
            is_starting: true,
            shortest: [None; 2],
            period_began: None,
            arrivals: VecDeque::new(),
            received: 0,
            hold_until: None,
            probed_at: None,
            order: Order::Kept {
                keyframes: 0,
                frames: 0,
            },
        }
    }
}

impl ReceiveWindow {
    /// Gives up the limit, since the strategy does not want it or the relay cannot deal with it.
    pub(super) fn open(&mut self) {
        if self.order != Order::Open {
            self.order = Order::Broken;
        }
    }

    /// Whether it is time to measure the round trip. A receiver measures none unless it sends what is acknowledged.
    pub(super) fn wants_probe(&mut self, now: Instant) -> bool {
        let is_recent = |at: Instant| now.saturating_duration_since(at) < PROBE_INTERVAL;
        let is_due = self.order != Order::Open && !self.probed_at.is_some_and(is_recent);
        if is_due {
            self.probed_at = Some(now);
        }
        is_due
    }

    /// Records that a frame begins to arrive, and whether it overtakes a keyframe that has begun and is not complete.
    pub(super) fn note_frame(&mut self, overtakes: bool) {
        if let Order::Kept { frames, .. } = &mut self.order {
            *frames += u32::from(overtakes);
        }
    }

    /// Records that a keyframe is complete.
    pub(super) fn note_keyframe(&mut self) {
        if let Order::Kept { keyframes, frames } = &mut self.order {
            let is_overtaken = *frames >= OVERTAKING_FRAMES;
            *keyframes = if is_overtaken { *keyframes + 1 } else { 0 };
            *frames = 0;
            if *keyframes >= OVERTAKEN_KEYFRAMES {
                self.order = Order::Broken;
            }
        }
    }

    /// Records the connection's round trip and all bytes that it has received. Returns the window if it has changed.
    pub(super) fn update(
        &mut self,
        now: Instant,
        round_trip: Duration,
        received: u64,
    ) -> Option<u64> {
        if self.order == Order::Broken {
            self.order = Order::Open;
            return Some(WINDOW_OPEN);
        }
        let bytes = received.saturating_sub(self.received);
        self.received = received;
        if self.order == Order::Open || bytes == 0 {
            return None;
        }
        self.arrivals.push_back((now, bytes));
        while let Some((at, _)) = self.arrivals.front()
            && (now.saturating_duration_since(*at) > RATE_PERIOD
                || self.arrivals.len() > ARRIVALS_MAX)
        {
            self.arrivals.pop_front();
        }
        let began = *self.period_began.get_or_insert(now);
        if now.saturating_duration_since(began) > BASE_PERIOD {
            self.shortest = [None, self.shortest[0]];
            self.period_began = Some(now);
        }
        let shortest = self.shortest[0].map_or(round_trip, |known| known.min(round_trip));
        self.shortest[0] = Some(shortest);
        if self.hold_until.is_some_and(|until| now < until) {
            return None;
        }
        self.follow(now, round_trip)
    }

    /// Adjusts the window to the queue.
    fn follow(&mut self, now: Instant, round_trip: Duration) -> Option<u64> {
        let base = self.shortest.into_iter().flatten().min()?;
        let span = now.saturating_duration_since(self.arrivals.front()?.0);
        if span < RATE_PERIOD / 4 {
            return None;
        }
        let bytes: u64 = self.arrivals.iter().skip(1).map(|(_, bytes)| bytes).sum();
        let carried = |time: Duration| {
            let bytes = u128::from(bytes) * time.as_nanos() / span.as_nanos();
            u64::try_from(bytes).unwrap_or(u64::MAX)
        };
        // On a slow path, a single packet is a queue by itself.
        let second = carried(Duration::from_secs(1)).max(1);
        let packets = Duration::from_millis(PACKET_BYTES * 1500 / second);
        let target = QUEUE_TARGET + packets.min(QUEUE_TARGET * 4);
        let queue = round_trip.saturating_sub(base);
        let (window, hold) = if queue > target {
            self.is_starting = false;
            // Little more than the path holds without a queue, so that the queue empties and shows the shortest round
            // trip again.
            let window = carried(base + target * 3 / 10).min(self.window * 9 / 10);
            (window.max(WINDOW_MIN), round_trip * 3 / 2)
        } else if carried(round_trip) < self.window * 6 / 10 {
            return None;
        } else if self.is_starting {
            (self.window * 3 / 2, round_trip)
        } else {
            let packets = if queue < target / 2 { 2 } else { 1 };
            (self.window + packets * PACKET_BYTES, round_trip)
        };
        let window = window.min(WINDOW_OPEN);
        self.hold_until = Some(now + hold);
        let is_new = std::mem::replace(&mut self.window, window) != window;
        is_new.then_some(window)
    }
}

/// The flow control window that a player's connection begins with, in bytes: about as much as a sender's first
/// congestion window (RFC 9002 §7.2). A host sets it as [`weir_quic::Limits::receive_bytes_max`], since what was once
/// granted cannot be taken back.
pub const WINDOW_FIRST: u32 = 16 << 10;
/// The window without a limit of the player's own.
const WINDOW_OPEN: u64 = 4 << 20;
/// The smallest window.
const WINDOW_MIN: u64 = 4 * PACKET_BYTES;
/// The bytes of a packet.
const PACKET_BYTES: u64 = 1200;
/// The queueing delay that is tolerated, besides the time of a packet and a half.
const QUEUE_TARGET: Duration = Duration::from_millis(40);
/// The shortest round trip covers the current and the previous period of this length.
const BASE_PERIOD: Duration = Duration::from_secs(15);
/// The time over which the rate is measured.
const RATE_PERIOD: Duration = Duration::from_millis(400);
/// Arrivals that are kept. Beyond this, the oldest is removed.
const ARRIVALS_MAX: usize = 4096;
/// The time between measurements of the round trip while something arrives.
const PROBE_INTERVAL: Duration = Duration::from_millis(25);
/// Frames that overtake a keyframe in a relay that does not keep the order. A lost packet lets a few pass.
const OVERTAKING_FRAMES: u32 = 3;
/// Keyframes in succession that are overtaken before the limit is given up.
const OVERTAKEN_KEYFRAMES: u32 = 5;

#[cfg(test)]
mod tests {
    use weir_sim::Sim;

    use super::*;

    fn epoch() -> Instant {
        Sim::new(0).now()
    }

    /// Receives 60 kB/s for a second at this round trip. Returns the last window.
    fn second(window: &mut ReceiveWindow, from: u64, round_trip: u64) -> Option<u64> {
        let start = epoch();
        let mut last = None;
        for step in 0..100 {
            let at = start + Duration::from_millis(from * 1000 + step * 10);
            let received = from * 60_000 + (step + 1) * 600;
            let found = window.update(at, Duration::from_millis(round_trip), received);
            last = found.or(last);
        }
        last
    }

    #[test]
    fn a_queue_shrinks_the_window_to_what_the_path_holds_and_its_end_lets_it_grow() {
        let mut window = ReceiveWindow::default();
        assert_eq!(second(&mut window, 0, 40), None, "it is not used up");
        let shrunk = second(&mut window, 1, 400).expect("there is a queue");
        assert_eq!(shrunk, WINDOW_MIN);
        let grown = second(&mut window, 2, 80).expect("the queue is short");
        assert!(grown > shrunk, "{grown}");
    }

    #[test]
    fn the_limit_is_given_up_if_the_relay_lets_keyframes_be_overtaken() {
        let mut window = ReceiveWindow::default();
        let keyframe = |window: &mut ReceiveWindow, frames| {
            for _ in 0..frames {
                window.note_frame(true);
            }
            window.note_keyframe();
        };
        for _ in 1..OVERTAKEN_KEYFRAMES {
            keyframe(&mut window, OVERTAKING_FRAMES);
        }
        keyframe(&mut window, OVERTAKING_FRAMES - 1);
        assert_eq!(second(&mut window, 0, 40), None);
        for _ in 0..OVERTAKEN_KEYFRAMES {
            keyframe(&mut window, OVERTAKING_FRAMES);
        }
        assert_eq!(second(&mut window, 1, 400), Some(WINDOW_OPEN));
        assert_eq!(second(&mut window, 2, 800), None, "it stays open");
        assert!(!window.wants_probe(epoch()));
    }
}
