//! A timer wheel for all connections of an endpoint.
//!
//! A connection's deadline changes with nearly every packet, so moving its entry costs a few nanoseconds: the entries of a slot are
//! a ring, out of which an entry is taken without looking for it. Entries beyond the wheel's horizon wait in its last slot
//! and are scheduled again from there.

use std::time::{Duration, Instant};

/// A time on the wheel, in units of `TICK`.
type Tick = u64;

/// The place of a connection in the ring of its slot, or the head of a slot's ring.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The deadline for which it was scheduled, and the tick of its slot; `NEVER` if it is in no slot.
    deadline: Tick,
    tick: Tick,
    /// Places of the entries beside it in the ring; its own if it is alone.
    next: u32,
    previous: u32,
}

/// Connection indexes in slots by time.
pub(crate) struct Wheel {
    /// Time of tick 0; set on first use.
    start: Option<Instant>,
    /// All ticks up to and including this one have been expired.
    current: Tick,
    /// The heads of all slots, and after them an entry for each connection.
    entries: Vec<Entry>,
    /// One bit per slot: whether it has entries.
    occupied: [u64; SLOTS / 64],
}

impl Wheel {
    pub(crate) fn new() -> Self {
        Self {
            start: None,
            current: 0,
            entries: (0..HEADS).map(Entry::alone).collect(),
            occupied: [0; SLOTS / 64],
        }
    }

    /// Schedules a wake-up of `index` soon after `deadline`, instead of the one that was scheduled before: within a tick,
    /// or an eighth of the remaining time.
    pub(crate) fn schedule(&mut self, now: Instant, index: u32, deadline: Instant) {
        let start = *self.start.get_or_insert(now);
        let deadline = ticks_up(deadline.saturating_duration_since(start));
        let place = place(index);
        if self.entries.len() <= place as usize {
            let known = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
            self.entries.extend((known..=place).map(Entry::alone));
        }
        let entry = &mut self.entries[place as usize];
        if entry.deadline == deadline {
            return;
        }
        let last = self.current + SLOTS as Tick - 1;
        let tick = coarse(deadline, self.current).clamp(self.current + 1, last);
        entry.deadline = deadline;
        if entry.tick != tick {
            self.take_out(place);
            self.put_last(place, tick);
        }
    }

    /// Forgets the wake-up of `index`.
    pub(crate) fn cancel(&mut self, index: u32) {
        let place = place(index);
        if (place as usize) < self.entries.len() {
            self.take_out(place);
            self.entries[place as usize] = Entry::alone(place);
        }
    }

    /// Takes an entry out of its ring, if it is in one. Its links still lead there.
    fn take_out(&mut self, place: u32) {
        let Entry { next, previous, .. } = self.entries[place as usize];
        self.entries[previous as usize].next = next;
        self.entries[next as usize].previous = previous;
        // The head of a ring is on both sides of its only entry.
        if next == previous && next < HEADS {
            self.note_empty(next);
        }
    }

    fn put_last(&mut self, place: u32, tick: Tick) {
        let slot = slot(tick);
        let head = &mut self.entries[slot as usize];
        let previous = std::mem::replace(&mut head.previous, place);
        self.entries[previous as usize].next = place;
        let entry = &mut self.entries[place as usize];
        (entry.tick, entry.next, entry.previous) = (tick, slot, previous);
        self.occupied[slot as usize / 64] |= 1 << (slot % 64);
    }

    fn note_empty(&mut self, slot: u32) {
        self.occupied[slot as usize / 64] &= !(1 << (slot % 64));
    }

    /// Returns the next time at which [`expire`](Self::expire) has something to do.
    pub(crate) fn next(&self) -> Option<Instant> {
        let tick = self.next_tick()?;
        Some(self.start? + Duration::from_nanos(tick.saturating_mul(TICK_NANOS)))
    }

    /// Moves the connections that are due at `now` to `due`, each once.
    pub(crate) fn expire(&mut self, now: Instant, due: &mut Vec<u32>) {
        let Some(start) = self.start else { return };
        let target = ticks_down(now.saturating_duration_since(start));
        while let Some(tick) = self.next_tick()
            && tick <= target
        {
            let slot = slot(tick);
            let mut place = self.entries[slot as usize].next;
            while place != slot {
                let alone = Entry::alone(place);
                let entry = std::mem::replace(&mut self.entries[place as usize], alone);
                due.push(place - HEADS);
                place = entry.next;
            }
            self.entries[slot as usize] = Entry::alone(slot);
            self.note_empty(slot);
        }
        self.current = self.current.max(target);
    }

    /// Returns the tick of the next occupied slot. No entry is further ahead than one round.
    fn next_tick(&self) -> Option<Tick> {
        let ahead = self.first_occupied(slot(self.current + 1) as usize)?;
        Some(self.current + 1 + ahead as Tick)
    }

    /// Returns the distance from `first` to the next occupied slot, going round once.
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

impl Entry {
    /// An entry that is in no slot, or the head of an empty one.
    fn alone(place: u32) -> Self {
        Self {
            deadline: NEVER,
            tick: NEVER,
            next: place,
            previous: place,
        }
    }
}

/// Delays a deadline by at most an eighth of the remaining time, to a round tick, so that many connections share one
/// wake-up. Otherwise a thousand connections that sent together would each wake the host separately.
fn coarse(wanted: Tick, current: Tick) -> Tick {
    let left = wanted.saturating_sub(current);
    let round = 1_u64 << (left / 8).max(1).ilog2();
    wanted.checked_next_multiple_of(round).unwrap_or(wanted)
}

/// Returns the slot of a tick, which is also the place of its head.
fn slot(tick: Tick) -> u32 {
    u32::try_from(tick % SLOTS as Tick).unwrap_or(0)
}

/// Returns the place of a connection's entry.
fn place(index: u32) -> u32 {
    HEADS + index
}

fn ticks_up(duration: Duration) -> Tick {
    let nanos = duration.as_nanos();
    u64::try_from(nanos.div_ceil(TICK.as_nanos())).unwrap_or(Tick::MAX - 1)
}

fn ticks_down(duration: Duration) -> Tick {
    u64::try_from(duration.as_nanos() / TICK.as_nanos()).unwrap_or(Tick::MAX - 1)
}

/// Resolution: a timer fires at most this late. Well below the pacing interval of a video burst and the granularity of
/// loss detection (1 ms, RFC 9002 §6.1.2).
const TICK: Duration = Duration::from_nanos(TICK_NANOS);
const TICK_NANOS: u64 = 250_000;
/// 4096 × 250 µs: a horizon of about a second, in which idle connections are visited once.
const SLOTS: usize = HEADS as usize;
const HEADS: u32 = 4096;
const NEVER: Tick = Tick::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    /// A fixed origin that does not read the clock.
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
        due
    }

    #[test]
    fn fires_at_the_deadline_and_not_before() {
        let (start, mut wheel) = (origin(), Wheel::new());
        wheel.schedule(start, 7, start + Duration::from_millis(10));
        assert_eq!(wheel.next(), Some(start + Duration::from_millis(10)));
        assert!(expired(&mut wheel, start + Duration::from_micros(9_999)).is_empty());
        assert_eq!(expired(&mut wheel, start + Duration::from_millis(10)), [7]);
        assert_eq!(wheel.next(), None);
    }

    #[test]
    fn is_late_by_an_eighth_at_most() {
        let (start, mut wheel) = (origin(), Wheel::new());
        for micros in [300, 1_000, 7_777, 25_000, 33_333, 200_001, 900_000] {
            let after = Duration::from_micros(micros);
            wheel.schedule(start, 1, start + after);
            let late = wheel.next().unwrap() - (start + after);
            assert!(late <= after / 8 + TICK, "{after:?} is {late:?} late");
            assert_eq!(expired(&mut wheel, start + Duration::from_secs(2)), [1]);
            wheel = Wheel::new();
        }
    }

    #[test]
    fn many_connections_share_a_wake_up() {
        let (start, mut wheel) = (origin(), Wheel::new());
        for index in 0..1000 {
            let deadline = start + Duration::from_micros(30_000 + u64::from(index) * 4);
            wheel.schedule(start, index, deadline);
        }
        let mut wake_ups = 0;
        while let Some(next) = wheel.next() {
            expired(&mut wheel, next);
            wake_ups += 1;
        }
        assert!(wake_ups <= 3, "{wake_ups} wake-ups");
        assert_eq!(wheel.next(), None);
        assert_eq!(wheel.next(), None);
    }

    #[test]
    fn a_deadline_that_moves_wakes_once() {
        let (start, mut wheel) = (origin(), Wheel::new());
        for millis in [20, 30, 40, 6] {
            wheel.schedule(start, 1, start + Duration::from_millis(millis));
        }
        let six = start + Duration::from_millis(6);
        let next = wheel.next().unwrap();
        assert!(
            next >= six && next <= six + Duration::from_millis(1),
            "the last word counts"
        );
        assert_eq!(expired(&mut wheel, next), [1]);
        assert_eq!(
            wheel.next(),
            None,
            "the places it was moved from wake nobody"
        );
        assert!(expired(&mut wheel, start + Duration::from_secs(3)).is_empty());
    }

    #[test]
    fn a_connection_that_ends_wakes_nobody_and_its_place_serves_the_next() {
        let (start, mut wheel) = (origin(), Wheel::new());
        let deadline = start + Duration::from_millis(10);
        for index in [4, 5, 6] {
            wheel.schedule(start, index, deadline);
        }
        wheel.cancel(5);
        wheel.cancel(5);
        wheel.cancel(1000);
        assert_eq!(expired(&mut wheel, deadline), [4, 6]);
        wheel.schedule(deadline, 5, deadline + TICK);
        wheel.cancel(5);
        assert_eq!(wheel.next(), None);
        wheel.schedule(deadline, 5, deadline + TICK);
        assert_eq!(expired(&mut wheel, deadline + TICK), [5]);
    }

    #[test]
    fn has_an_entry_for_each_connection_however_often_deadlines_move() {
        const CONNECTIONS: u32 = 1000;
        let (start, mut wheel) = (origin(), Wheel::new());
        let mut now = start;
        // All connections in step, at times that cover every slot of the wheel.
        for burst in 0..3_000 {
            now += Duration::from_micros(20_000 + 250 * (burst % 7));
            expired(&mut wheel, now);
            for index in 0..CONNECTIONS {
                wheel.schedule(now, index, now + Duration::from_millis(25));
            }
        }
        assert_eq!(wheel.entries.len(), SLOTS + CONNECTIONS as usize);
        let all: Vec<_> = (0..CONNECTIONS).collect();
        assert_eq!(expired(&mut wheel, now + Duration::from_millis(40)), all);
    }

    /// Compares the wheel with a list of deadlines.
    #[test]
    fn no_connection_is_missed_or_woken_early_whatever_moves() {
        const CONNECTIONS: usize = 50;
        let (start, mut wheel) = (origin(), Wheel::new());
        let (mut now, mut deadlines) = (start, [None; CONNECTIONS]);
        let mut seed = 7_u64;
        let mut below = |limit: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % limit
        };
        for _ in 0..100_000 {
            let number = u32::try_from(below(CONNECTIONS as u64)).unwrap();
            match below(8) {
                0 => {
                    wheel.cancel(number);
                    deadlines[number as usize] = None;
                }
                1 => now += Duration::from_micros(below(5_000)),
                2 if below(100) == 0 => now += Duration::from_millis(below(3_000)),
                _ => {
                    let magnitude = below(23);
                    let deadline = now + Duration::from_micros(1 + below(1 << magnitude));
                    wheel.schedule(now, number, deadline);
                    // A deadline that stays the same keeps the slot that it had.
                    let kept = deadlines[number as usize].filter(|&(_, before)| {
                        ticks_up(before - start) == ticks_up(deadline - start)
                    });
                    let since = kept.map_or(now, |(since, _)| since);
                    deadlines[number as usize] = Some((since, deadline));
                }
            }
            for index in expired(&mut wheel, now) {
                let (since, deadline) = deadlines[index as usize].take().unwrap();
                if deadline > now {
                    let is_parked = deadline > since + Duration::from_secs(1);
                    assert!(is_parked, "{index} is woken early");
                    wheel.schedule(now, index, deadline);
                    deadlines[index as usize] = Some((now, deadline));
                }
            }
            for &(since, deadline) in deadlines.iter().flatten() {
                let latest = deadline + (deadline - since) / 8 + 2 * TICK;
                assert!(now < latest, "a connection is missed");
            }
        }
    }

    #[test]
    fn a_host_that_slept_for_long_misses_nothing() {
        let (start, mut wheel) = (origin(), Wheel::new());
        wheel.schedule(start, 9, start + Duration::from_millis(700));
        let mut due = Vec::new();
        wheel.expire(start + Duration::from_secs(100), &mut due);
        assert_eq!(due, [9]);
    }

    #[test]
    fn far_deadlines_are_parked_at_the_horizon() {
        let (start, mut wheel) = (origin(), Wheel::new());
        wheel.schedule(start, 3, start + Duration::from_secs(30));
        let parked = wheel.next().unwrap();
        assert!(parked < start + Duration::from_millis(1100));
        assert_eq!(expired(&mut wheel, parked), [3]);
    }

    #[test]
    fn still_tells_the_time_after_a_year() {
        let (start, mut wheel) = (origin(), Wheel::new());
        wheel.schedule(start, 0, start);
        let later = start + Duration::from_hours(24 * 365);
        assert_eq!(expired(&mut wheel, later), [0]);
        let deadline = later + TICK;
        wheel.schedule(later, 1, deadline);
        assert_eq!(wheel.next(), Some(deadline));
        assert_eq!(expired(&mut wheel, deadline), [1]);
    }

    #[test]
    fn comes_round_many_times() {
        let (start, mut wheel) = (origin(), Wheel::new());
        let mut now = start;
        for round in 0..50_u32 {
            let deadline = now + Duration::from_micros(u64::from(round) * 37_777 + 1);
            wheel.schedule(now, round, deadline);
            let next = wheel.next().unwrap();
            assert!(next >= deadline || next >= now + Duration::from_secs(1));
            assert_eq!(expired(&mut wheel, next), [round]);
            now = next;
        }
    }
}
