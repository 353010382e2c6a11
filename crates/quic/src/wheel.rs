//! One lazy timer structure for all connections of an endpoint.
//!
//! A connection's deadline moves with nearly every packet, mostly to later. So an entry is never
//! moved: it stays where it is and, when it comes up, its connection is asked again. Only a deadline
//! that moves to *earlier* costs a new entry. Entries beyond the wheel's horizon are parked in its last
//! slot and looked at again from there.

use std::time::{Duration, Instant};

/// The tick at which a connection's live entry lies; [`UNSCHEDULED`] if it has none.
pub(crate) type Tick = u64;

/// No entry.
pub(crate) const UNSCHEDULED: Tick = Tick::MAX;

/// Buckets of connection indexes by time.
pub(crate) struct Wheel {
    /// Time of tick 0; known from the first use on.
    start: Option<Instant>,
    /// All ticks up to and including this one have been expired.
    current: Tick,
    slots: Vec<Vec<u32>>,
    /// One bit per slot: not empty.
    occupied: [u64; SLOTS / 64],
}

impl Wheel {
    pub(crate) fn new() -> Self {
        Self {
            start: None,
            current: 0,
            slots: vec![Vec::new(); SLOTS],
            occupied: [0; SLOTS / 64],
        }
    }

    /// Makes sure that `index` comes up no later than one tick after `deadline`. `scheduled` is the
    /// connection's own note of its live entry.
    pub(crate) fn schedule(
        &mut self,
        now: Instant,
        index: u32,
        deadline: Instant,
        scheduled: &mut Tick,
    ) {
        let start = *self.start.get_or_insert(now);
        let wanted = ticks_up(deadline.saturating_duration_since(start));
        if *scheduled <= wanted {
            return;
        }
        let tick = wanted.clamp(self.current + 1, self.current + SLOTS as Tick - 1);
        if *scheduled == tick {
            return;
        }
        *scheduled = tick;
        let slot = slot(tick);
        self.slots[slot].push(index);
        self.occupied[slot / 64] |= 1 << (slot % 64);
    }

    /// The next time at which [`expire`](Self::expire) has something to do.
    pub(crate) fn next(&self) -> Option<Instant> {
        let start = self.start?;
        let first = slot(self.current + 1);
        let ahead = self.first_occupied(first)?;
        let tick = self.current + 1 + ahead as Tick;
        Some(start + TICK * u32::try_from(tick).unwrap_or(u32::MAX))
    }

    /// Moves the entries due at `now` to `due`, with the tick that they lay at.
    pub(crate) fn expire(&mut self, now: Instant, due: &mut Vec<(u32, Tick)>) {
        let Some(start) = self.start else { return };
        let target = ticks_down(now.saturating_duration_since(start));
        while self.current < target {
            let first = slot(self.current + 1);
            let Some(ahead) = self.first_occupied(first) else {
                self.current = target;
                return;
            };
            let tick = self.current + 1 + ahead as Tick;
            if tick > target {
                self.current = target;
                return;
            }
            self.current = tick;
            let slot = slot(tick);
            self.occupied[slot / 64] &= !(1 << (slot % 64));
            due.extend(self.slots[slot].drain(..).map(|index| (index, tick)));
        }
    }

    /// How many slots after `first`, going round once, the next occupied one lies.
    fn first_occupied(&self, first: usize) -> Option<usize> {
        let words = self.occupied.len();
        for step in 0..=words {
            let word = (first / 64 + step) % words;
            let mut bits = self.occupied[word];
            if step == 0 {
                bits &= u64::MAX << (first % 64);
            } else if step == words {
                bits &= !(u64::MAX << (first % 64));
            }
            if bits != 0 {
                let found = word * 64 + bits.trailing_zeros() as usize;
                return Some((found + SLOTS - first) % SLOTS);
            }
        }
        None
    }
}

fn slot(tick: Tick) -> usize {
    usize::try_from(tick % SLOTS as Tick).unwrap_or(0)
}

fn ticks_up(duration: Duration) -> Tick {
    let nanos = duration.as_nanos();
    u64::try_from(nanos.div_ceil(TICK.as_nanos())).unwrap_or(UNSCHEDULED - 1)
}

fn ticks_down(duration: Duration) -> Tick {
    u64::try_from(duration.as_nanos() / TICK.as_nanos()).unwrap_or(UNSCHEDULED - 1)
}

/// Resolution: a timer fires at most this much late. Well below the pacing interval of a video burst
/// and the granularity of loss detection (1 ms, RFC 9002 §6.1.2).
const TICK: Duration = Duration::from_micros(250);
/// 4096 × 250 µs: a horizon of about a second; idle connections are looked at once in it.
const SLOTS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    /// A fixed origin, without reading the clock.
    fn origin() -> Instant {
        #[expect(
            clippy::disallowed_methods,
            reason = "a test's origin of time; its value is unused"
        )]
        Instant::now()
    }

    fn expired(wheel: &mut Wheel, now: Instant) -> Vec<u32> {
        let mut due = Vec::new();
        wheel.expire(now, &mut due);
        due.into_iter().map(|(index, _)| index).collect()
    }

    #[test]
    fn fires_at_the_deadline_and_not_before() {
        let (start, mut wheel) = (origin(), Wheel::new());
        let mut scheduled = UNSCHEDULED;
        wheel.schedule(start, 7, start + Duration::from_millis(10), &mut scheduled);
        assert_eq!(wheel.next(), Some(start + Duration::from_millis(10)));
        assert!(expired(&mut wheel, start + Duration::from_micros(9_999)).is_empty());
        assert_eq!(expired(&mut wheel, start + Duration::from_millis(10)), [7]);
        assert_eq!(wheel.next(), None);
    }

    #[test]
    fn later_deadlines_cost_nothing_and_earlier_ones_a_new_entry() {
        let (start, mut wheel) = (origin(), Wheel::new());
        let mut scheduled = UNSCHEDULED;
        wheel.schedule(start, 1, start + Duration::from_millis(20), &mut scheduled);
        let first = scheduled;
        wheel.schedule(start, 1, start + Duration::from_millis(30), &mut scheduled);
        assert_eq!(scheduled, first);
        wheel.schedule(start, 1, start + Duration::from_millis(5), &mut scheduled);
        assert!(scheduled < first);
        assert_eq!(
            expired(&mut wheel, start + Duration::from_millis(25)),
            [1, 1]
        );
    }

    #[test]
    fn far_deadlines_are_parked_at_the_horizon() {
        let (start, mut wheel) = (origin(), Wheel::new());
        let mut scheduled = UNSCHEDULED;
        wheel.schedule(start, 3, start + Duration::from_secs(30), &mut scheduled);
        let parked = wheel.next().unwrap();
        assert!(parked < start + Duration::from_millis(1100));
        assert_eq!(expired(&mut wheel, parked), [3]);
    }

    #[test]
    fn comes_round_many_times() {
        let (start, mut wheel) = (origin(), Wheel::new());
        let mut now = start;
        for round in 0..50_u32 {
            let mut scheduled = UNSCHEDULED;
            let deadline = now + Duration::from_micros(u64::from(round) * 37_777 + 1);
            wheel.schedule(now, round, deadline, &mut scheduled);
            let next = wheel.next().unwrap();
            assert!(next >= deadline || next >= now + Duration::from_secs(1));
            assert_eq!(expired(&mut wheel, next), [round]);
            now = next;
        }
    }
}
