//! A timer wheel for all connections of an endpoint.
//!
//! A connection's deadline changes with nearly every packet. Moving its entry costs a few nanoseconds: the new entry is
//! added to its slot, and the old one becomes stale, which only lowers its slot's count of live entries. A slot without
//! live entries causes no wake-up, and its stale entries are discarded once its time has passed. Entries beyond the
//! wheel's horizon wait in its last slot and are scheduled again from there.

use std::time::{Duration, Instant};

/// A time on the wheel, in units of `TICK`.
pub(crate) type Tick = u64;

/// A connection's record of its live entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The tick of its slot.
    pub(crate) tick: Tick,
    /// The deadline for which it was made.
    deadline: Tick,
}

/// No entry.
pub(crate) const UNSCHEDULED: Entry = Entry {
    tick: Tick::MAX,
    deadline: Tick::MAX,
};

/// Connection indexes in slots by time.
pub(crate) struct Wheel {
    /// Time of tick 0; set on first use.
    start: Option<Instant>,
    /// All ticks up to and including this one have been expired.
    current: Tick,
    slots: Vec<Vec<u32>>,
    /// Empty buffers of slots, the last used on top. If each slot kept its buffer, every buffer would grow to the
    /// largest number of entries ever in its slot, stale ones included: with a thousand synchronous connections, by
    /// some MiB per minute.
    spare: Vec<Vec<u32>>,
    /// Number of live entries of each slot.
    live: Vec<u32>,
    /// One bit per slot: whether it has live entries.
    occupied: [u64; SLOTS / 64],
}

impl Wheel {
    pub(crate) fn new() -> Self {
        Self {
            start: None,
            current: 0,
            slots: vec![Vec::new(); SLOTS],
            spare: Vec::new(),
            live: vec![0; SLOTS],
            occupied: [0; SLOTS / 64],
        }
    }

    /// Schedules a wake-up of `index` soon after `deadline`: within a tick, or an eighth of the remaining time.
    /// `scheduled` is the connection's record of its live entry.
    pub(crate) fn schedule(
        &mut self,
        now: Instant,
        index: u32,
        deadline: Instant,
        scheduled: &mut Entry,
    ) {
        let start = *self.start.get_or_insert(now);
        let deadline = ticks_up(deadline.saturating_duration_since(start));
        if scheduled.deadline == deadline {
            return;
        }
        let last = self.current + SLOTS as Tick - 1;
        let tick = coarse(deadline, self.current).clamp(self.current + 1, last);
        let before = scheduled.tick;
        *scheduled = Entry { tick, deadline };
        if before == tick {
            return;
        }
        if before != UNSCHEDULED.tick && before > self.current {
            self.retire(slot(before));
        }
        let slot = slot(tick);
        let entries = &mut self.slots[slot];
        if entries.capacity() == 0
            && let Some(buffer) = self.spare.pop()
        {
            *entries = buffer;
        }
        entries.push(index);
        self.live[slot] += 1;
        self.occupied[slot / 64] |= 1 << (slot % 64);
    }

    /// Makes an entry of a slot stale.
    fn retire(&mut self, slot: usize) {
        self.live[slot] = self.live[slot].saturating_sub(1);
        if self.live[slot] == 0 {
            self.occupied[slot / 64] &= !(1 << (slot % 64));
        }
    }

    /// Returns the next time at which [`expire`](Self::expire) has something to do.
    pub(crate) fn next(&self) -> Option<Instant> {
        let start = self.start?;
        let first = slot(self.current + 1);
        let ahead = self.first_occupied(first)?;
        let tick = self.current + 1 + ahead as Tick;
        Some(start + Duration::from_nanos(tick.saturating_mul(TICK_NANOS)))
    }

    /// Moves the entries due at `now` to `due`, with their ticks.
    pub(crate) fn expire(&mut self, now: Instant, due: &mut Vec<(u32, Tick)>) {
        let Some(start) = self.start else { return };
        let target = ticks_down(now.saturating_duration_since(start));
        // No entry is further ahead than one round, however long ago the last call was.
        let last = target.min(self.current + SLOTS as Tick);
        for tick in self.current + 1..=last {
            let slot = slot(tick);
            if self.slots[slot].is_empty() {
                continue;
            }
            let mut entries = std::mem::take(&mut self.slots[slot]);
            if self.live[slot] > 0 {
                self.live[slot] = 0;
                self.occupied[slot / 64] &= !(1 << (slot % 64));
                due.extend(entries.iter().map(|index| (*index, tick)));
            }
            if self.spare.len() < SPARE_MAX && entries.capacity() <= SPARE_ENTRIES_MAX {
                entries.clear();
                self.spare.push(entries);
            }
        }
        self.current = self.current.max(target);
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

/// Delays a deadline by at most an eighth of the remaining time, to a round tick, so that many connections share one
/// wake-up. Otherwise a thousand connections that sent together would each wake the host separately.
fn coarse(wanted: Tick, current: Tick) -> Tick {
    let left = wanted.saturating_sub(current);
    let round = 1_u64 << (left / 8).max(1).ilog2();
    wanted.checked_next_multiple_of(round).unwrap_or(wanted)
}

fn slot(tick: Tick) -> usize {
    usize::try_from(tick % SLOTS as Tick).unwrap_or(0)
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
const SLOTS: usize = 4096;
/// Empty buffers kept: the number of slots in use when connections are synchronous, with deadlines of 25 ms and
/// coarseness of an eighth.
const SPARE_MAX: usize = 64;
/// Entries for which a kept buffer has space: 4 KiB, so 256 KiB in total. Larger buffers are allocated when needed,
/// which costs little compared with that number of connections.
const SPARE_ENTRIES_MAX: usize = 1024;

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
    fn is_late_by_an_eighth_at_most() {
        let (start, mut wheel) = (origin(), Wheel::new());
        for micros in [300, 1_000, 7_777, 25_000, 33_333, 200_001, 900_000] {
            let mut scheduled = UNSCHEDULED;
            let after = Duration::from_micros(micros);
            wheel.schedule(start, 1, start + after, &mut scheduled);
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
            let mut scheduled = UNSCHEDULED;
            let deadline = start + Duration::from_micros(30_000 + u64::from(index) * 4);
            wheel.schedule(start, index, deadline, &mut scheduled);
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
        let mut scheduled = UNSCHEDULED;
        for millis in [20, 30, 40, 6] {
            wheel.schedule(
                start,
                1,
                start + Duration::from_millis(millis),
                &mut scheduled,
            );
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
        assert!(
            wheel.slots.iter().all(Vec::is_empty),
            "and are cleared in passing"
        );
    }

    /// Number of entries for which the wheel has space.
    fn room(wheel: &Wheel) -> usize {
        let buffers = wheel.slots.iter().chain(&wheel.spare);
        buffers.map(Vec::capacity).sum()
    }

    #[test]
    fn has_room_for_what_is_scheduled_at_once_and_not_for_every_slot_at_its_fullest() {
        const CONNECTIONS: u32 = 1000;
        let (start, mut wheel) = (origin(), Wheel::new());
        let mut entries = [UNSCHEDULED; CONNECTIONS as usize];
        let mut now = start;
        let mut early = 0;
        // All connections in step, at times that cover every slot of the wheel.
        for burst in 0..3_000 {
            now += Duration::from_micros(20_000 + 250 * (burst % 7));
            expired(&mut wheel, now);
            for (index, entry) in (0..).zip(&mut entries) {
                wheel.schedule(now, index, now + Duration::from_millis(25), entry);
            }
            if burst == 100 {
                early = room(&wheel);
            }
        }
        assert_eq!(room(&wheel), early);
        assert!(early <= 8 * CONNECTIONS as usize, "room for {early}");
    }

    #[test]
    fn keeps_a_buffer_of_a_certain_size_and_none_that_is_larger() {
        for (entries, kept) in [(SPARE_ENTRIES_MAX, 1), (SPARE_ENTRIES_MAX + 1, 0)] {
            let (start, mut wheel) = (origin(), Wheel::new());
            for index in 0..u32::try_from(entries).unwrap() {
                wheel.schedule(start, index, start + TICK, &mut UNSCHEDULED.clone());
            }
            assert_eq!(expired(&mut wheel, start + TICK).len(), entries);
            assert_eq!(wheel.spare.len(), kept);
        }
    }

    #[test]
    fn keeps_so_many_emptied_buffers_and_no_more() {
        for (slots, kept) in [(SPARE_MAX, SPARE_MAX), (SPARE_MAX + 1, SPARE_MAX)] {
            let (start, mut wheel) = (origin(), Wheel::new());
            for number in 0..u32::try_from(slots).unwrap() {
                let mut entry = UNSCHEDULED;
                // Eight deadlines in each power of two: none is delayed into the slot of another.
                let deadline = start + TICK * ((8 + number % 8) << (number / 8));
                wheel.schedule(start, number, deadline, &mut entry);
            }
            let mut fired = 0;
            while let Some(next) = wheel.next() {
                fired += expired(&mut wheel, next).len();
            }
            assert_eq!((fired, wheel.spare.len()), (slots, kept));
        }
    }

    #[test]
    fn a_host_that_slept_for_long_misses_nothing() {
        let (start, mut wheel) = (origin(), Wheel::new());
        let mut scheduled = UNSCHEDULED;
        wheel.schedule(start, 9, start + Duration::from_millis(700), &mut scheduled);
        let mut due = Vec::new();
        wheel.expire(start + Duration::from_secs(100), &mut due);
        assert_eq!(due, [(9, scheduled.tick)]);
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
    fn still_tells_the_time_after_a_year() {
        let (start, mut wheel) = (origin(), Wheel::new());
        let mut scheduled = UNSCHEDULED;
        wheel.schedule(start, 0, start, &mut scheduled);
        let later = start + Duration::from_hours(24 * 365);
        assert_eq!(expired(&mut wheel, later), [0]);
        scheduled = UNSCHEDULED;
        let deadline = later + TICK;
        wheel.schedule(later, 1, deadline, &mut scheduled);
        assert_eq!(wheel.next(), Some(deadline));
        assert_eq!(expired(&mut wheel, deadline), [1]);
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
