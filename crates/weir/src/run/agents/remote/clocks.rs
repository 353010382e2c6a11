//! The difference between an agent's clock and the controller's, with a bound of its error.
//!
//! The controller sends a ping at `t1` of its clock. The agent receives it at `t2` and answers at `t3` of its own, and the answer
//! arrives at `t4`. Both ways together take `(t4 − t1) − (t3 − t2)`, and the offset is known to within half of that. So the
//! pings with the shortest round trips know most.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weir_net::clock;

/// A clock that only goes forward, in nanoseconds since about 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    anchor: Instant,
    anchor_ns: i64,
}

impl Clock {
    /// Returns a clock that agrees with the system's at this moment, and is set wrong by `offset`.
    pub(crate) fn set_wrong_by(offset: Duration) -> Self {
        Self {
            anchor: clock::now(),
            anchor_ns: signed(clock::since_epoch()).saturating_add(signed(offset)),
        }
    }

    pub(crate) fn ns(&self, at: Instant) -> i64 {
        let after = signed(at.saturating_duration_since(self.anchor));
        let before = signed(self.anchor.saturating_duration_since(at));
        self.anchor_ns.saturating_add(after).saturating_sub(before)
    }

    /// Returns the instant at which the clock reads `ns`; `None` if it cannot be represented.
    pub(crate) fn instant(&self, ns: i64) -> Option<Instant> {
        let after = ns.checked_sub(self.anchor_ns)?;
        let distance = Duration::from_nanos(after.unsigned_abs());
        if after < 0 {
            self.anchor.checked_sub(distance)
        } else {
            self.anchor.checked_add(distance)
        }
    }
}

fn signed(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// What an agent answers to a ping, by its own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pong {
    pub(crate) number: u64,
    pub(crate) received_ns: i64,
    pub(crate) sent_ns: i64,
}

/// An agent's clock minus the controller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offset {
    pub(crate) ns: i64,
    /// The true offset is at most this far away.
    pub(crate) error_ns: i64,
}

impl Offset {
    /// Returns the offset that a ping shows; `None` if its times contradict each other.
    pub(crate) fn of(sent_ns: i64, pong: &Pong, back_ns: i64) -> Option<Self> {
        let there = pong.received_ns.checked_sub(sent_ns)?;
        let back = back_ns.checked_sub(pong.sent_ns)?;
        let error_ns = there.checked_add(back)?.checked_add(1)? / 2;
        let ns = there.checked_sub(back)? / 2;
        (error_ns >= 0 && pong.sent_ns >= pong.received_ns).then_some(Self { ns, error_ns })
    }
}

/// The offsets of one agent over a run, in bounded memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Offsets {
    /// The offset by which the run's times are corrected: the best one from before the run.
    used: Option<Offset>,
    /// The best offset of the group of pings that is under way, and the number of pings in it.
    group: Option<(Offset, u32)>,
    /// How far the true offset may have been from the used one, at most.
    error_ns: i64,
    /// The shortest round trip.
    round_trip_ns: Option<i64>,
}

impl Offsets {
    /// Forgets an earlier run.
    pub(crate) fn begin(&mut self) {
        *self = Self::default();
    }

    /// Adds an offset from before the run.
    pub(crate) fn add_before(&mut self, offset: Offset) {
        self.note_round_trip(offset);
        let is_better = |used: Offset| offset.error_ns < used.error_ns;
        if self.used.is_none_or(is_better) {
            self.used = Some(offset);
            self.error_ns = offset.error_ns;
        }
    }

    /// Adds an offset from the run. Each group of pings counts with its best.
    pub(crate) fn add_during(&mut self, offset: Offset) {
        self.note_round_trip(offset);
        let (best, count) = match self.group {
            Some((best, count)) if best.error_ns <= offset.error_ns => (best, count + 1),
            Some((_, count)) => (offset, count + 1),
            None => (offset, 1),
        };
        self.group = Some((best, count));
        if count >= GROUP_PINGS {
            self.end_group();
        }
    }

    /// Adds the group of pings that is under way to the error.
    pub(crate) fn end_group(&mut self) {
        if let (Some((best, _)), Some(used)) = (self.group.take(), self.used) {
            let apart = best.ns.saturating_sub(used.ns).saturating_abs();
            self.error_ns = self.error_ns.max(apart.saturating_add(best.error_ns));
        }
    }

    /// Returns the used offset, with the largest error that any group of pings leaves open.
    pub(crate) fn result(&self) -> Option<Offset> {
        let used = self.used?;
        Some(Offset {
            ns: used.ns,
            error_ns: self.error_ns.max(used.error_ns),
        })
    }

    /// Returns the shortest round trip.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        let ns = self.round_trip_ns?;
        Some(Duration::from_nanos(ns.unsigned_abs()))
    }

    fn note_round_trip(&mut self, offset: Offset) {
        let round_trip_ns = offset.error_ns.saturating_mul(2);
        let least = self
            .round_trip_ns
            .map_or(round_trip_ns, |one| one.min(round_trip_ns));
        self.round_trip_ns = Some(least);
    }
}

/// Pings of which only the best counts: one of them meets an idle path also under load.
const GROUP_PINGS: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    /// A ping to an agent whose clock is ahead by `ahead` ms, with the times that both ways take.
    fn ping(ahead: i64, there: i64, back: i64) -> Offset {
        let sent = 1_000 * MS;
        let received_ns = sent + (there + ahead) * MS;
        let pong = Pong {
            number: 0,
            received_ns,
            sent_ns: received_ns + 3 * MS,
        };
        Offset::of(sent, &pong, sent + (there + 3 + back) * MS).unwrap()
    }

    #[test]
    fn the_true_offset_is_within_the_error() {
        for (ahead, there, back) in [(0, 1, 1), (300_000, 2, 8), (-7, 9, 1), (5, 0, 0)] {
            let offset = ping(ahead, there, back);
            assert!(
                (offset.ns - ahead * MS).abs() <= offset.error_ns,
                "{offset:?}"
            );
            assert!(offset.error_ns <= (there + back) * MS / 2 + 1, "{offset:?}");
        }
    }

    #[test]
    fn the_shortest_round_trip_decides() {
        let mut offsets = Offsets::default();
        for (there, back) in [(5, 9), (1, 1), (40, 2)] {
            offsets.add_before(ping(100, there, back));
        }
        let result = offsets.result().unwrap();
        assert_eq!((result.ns, result.error_ns), (100 * MS, MS));
        assert_eq!(offsets.round_trip(), Some(Duration::from_millis(2)));
    }

    #[test]
    fn drift_adds_to_the_error_and_load_does_not() {
        let mut offsets = Offsets::default();
        offsets.add_before(ping(100, 1, 1));
        // Under load, most pings are slow; one of each group is not.
        for number in 0..GROUP_PINGS {
            let slow = if number == 3 { 1 } else { 50 };
            offsets.add_during(ping(100, slow, 1));
        }
        assert_eq!(offsets.result().unwrap().error_ns, MS);
        // The agent's clock has gained 4 ms.
        offsets.add_during(ping(104, 1, 1));
        offsets.end_group();
        let result = offsets.result().unwrap();
        assert_eq!((result.ns, result.error_ns), (100 * MS, 5 * MS));
    }

    #[test]
    fn times_that_contradict_each_other_show_nothing() {
        let pong = |received_ns, sent_ns| Pong {
            number: 0,
            received_ns,
            sent_ns,
        };
        // The answer left before the ping came.
        assert_eq!(Offset::of(0, &pong(9, 5), 10), None);
        // Both ways took less than nothing.
        assert_eq!(Offset::of(0, &pong(0, 90), 10), None);
        assert_eq!(Offset::of(i64::MIN, &pong(i64::MAX, i64::MAX), 0), None);
    }

    #[test]
    fn a_clock_reads_both_ways() {
        let one = Clock::set_wrong_by(Duration::ZERO);
        let wrong = Clock::set_wrong_by(Duration::from_mins(5));
        let at = clock::now() + Duration::from_secs(1);
        let apart = wrong.ns(at) - one.ns(at);
        assert!((apart - 300_000 * MS).abs() < 60_000 * MS, "{apart}");
        assert_eq!(one.instant(one.ns(at)), Some(at));
        assert_eq!(one.instant(i64::MIN), None);
    }
}
