//! The schedule of a track: START messages, objects, COMPLETION.
//!
//! The schedule is absolute: item *k* has one planned time, whatever happened to earlier items. A publisher that falls
//! behind sends late items at once and catches up; it never shifts the plan, so there is no coordinated omission. Times
//! count from the publisher's release.
//!
//! In MOQT, every START has a group of its own, so that a late subscriber can join at the next one. The benchmark's
//! groups follow at a constant offset, and COMPLETION is in the last group (decisions 10 to 12).

mod heavy_tail;
mod rhythm;
mod sizes;
#[cfg(test)]
mod tests;

use std::time::Duration;

use self::rhythm::Rhythm;
use self::sizes::Sizes;
use crate::clock::nanoseconds;
use crate::message::Start;
use crate::payload::split_mix;
use crate::profile::{ObjectSize, TrackMode, TrackProfile};
use crate::qperf::{self, Wire};

/// The schedule of one track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    group_base: u64,
    starts: u64,
    start_period_ns: u64,
    start_delay_ns: u64,
    interval_ns: u64,
    duration_ns: u64,
    objects: u64,
    objects_per_group: u64,
    first_object_size: ObjectSize,
    object_size: ObjectSize,
    /// The sizes of the other objects, if they vary.
    sizes: Option<Sizes>,
    completions: u64,
    rhythm: Rhythm,
    has_total_transmit_time: bool,
    wire: Wire,
}

/// One object to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// The planned time, since the release.
    pub at: Duration,
    /// The MOQT Group ID.
    pub group: u64,
    /// The MOQT Object ID.
    pub object: u64,
    /// The kind of message.
    pub kind: ItemKind,
}

/// The kind of an [`Item`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// A START message, alone in its group.
    Start,
    /// A DATA message.
    Data(DataItem),
    /// A COMPLETION message.
    Completion {
        /// Whether this is the last copy.
        last: bool,
    },
}

/// A DATA message of the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataItem {
    /// The number in the track, from zero.
    pub number: u64,
    /// The benchmark's number of the group, from zero.
    pub group_number: u64,
    /// The number in the group, from zero.
    pub object_number: u64,
    /// The size.
    pub size: ObjectSize,
    /// Whether the object is the last of its group.
    pub last_in_group: bool,
}

/// A publisher's position in its schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    next: u64,
}

impl Schedule {
    /// Returns the schedule of a track whose first MOQT Group ID is `group_base`: zero, or higher than those already
    /// published on the track.
    pub fn new(track: &TrackProfile, group_base: u64) -> Self {
        let start_delay_ns = nanoseconds(track.start_delay);
        let start_period_ns = (start_delay_ns / START_PARTS).max(START_PERIOD_MIN_NS);
        let (interval_ns, duration_ns) = (track.interval.ns(), nanoseconds(track.duration));
        let rhythm = Rhythm::of(track, 0);
        Self {
            group_base,
            starts: start_delay_ns.div_ceil(start_period_ns).max(1),
            start_period_ns,
            start_delay_ns,
            interval_ns,
            duration_ns,
            objects: rhythm.objects_within(duration_ns, interval_ns),
            objects_per_group: u64::from(track.objects_per_group.count()),
            first_object_size: track.first_object_size,
            object_size: track.object_size,
            completions: match track.track_mode {
                TrackMode::Datagram => DATAGRAM_COMPLETIONS,
                TrackMode::Stream => 1,
            },
            sizes: Sizes::of(track, 0),
            rhythm,
            has_total_transmit_time: track.has_total_transmit_time,
            wire: Wire::Draft,
        }
    }

    /// Returns the schedule in the form `wire`. qperf's has no START, groups that count from 1, one large object in the
    /// whole run, and one final object after the last. It sends for `total_transmit_time` without subtracting the start
    /// delay, and then the first object that is due at the end of that time or later. Of that time, it waits
    /// [`qperf::PAUSE`] before the start delay.
    #[must_use]
    pub fn on(mut self, wire: Wire) -> Self {
        if wire == Wire::Qperf {
            (self.group_base, self.starts, self.completions) = (1, 0, 1);
            let pause_ns = if self.start_delay_ns > 0 {
                nanoseconds(qperf::PAUSE)
            } else {
                0
            };
            if self.has_total_transmit_time {
                self.duration_ns += self.start_delay_ns;
            }
            self.duration_ns = self.duration_ns.saturating_sub(pause_ns) + self.interval_ns;
            self.start_delay_ns += pause_ns;
            self.objects = self
                .rhythm
                .objects_within(self.duration_ns, self.interval_ns);
        }
        Self { wire, ..self }
    }

    /// Returns the schedule with the random times and sizes of its `track` drawn from `seed`, which publishers and
    /// subscribers share.
    #[must_use]
    pub fn seeded(mut self, track: &TrackProfile, seed: u64) -> Self {
        self.rhythm = Rhythm::of(track, seed);
        self.objects = self
            .rhythm
            .objects_within(self.duration_ns, self.interval_ns);
        self.sizes = Sizes::of(track, seed);
        self
    }

    /// Returns the number of START messages.
    pub fn starts(&self) -> u64 {
        self.starts
    }

    /// Returns the number of DATA messages.
    pub fn objects(&self) -> u64 {
        self.objects
    }

    /// Returns the number of groups of DATA messages. The last group may be shorter.
    pub fn groups(&self) -> u64 {
        self.objects.div_ceil(self.objects_per_group)
    }

    /// Returns the number of COMPLETION messages.
    pub fn completions(&self) -> u64 {
        self.completions
    }

    /// Returns the number of objects of all kinds.
    pub fn items(&self) -> u64 {
        self.starts + self.objects + self.completions
    }

    /// Returns item `index` in order of time; `None` after the last.
    pub fn item(&self, index: u64) -> Option<Item> {
        if index >= self.items() {
            return None;
        }
        if index < self.starts {
            let at = Duration::from_nanos(index * self.start_period_ns);
            let group = self.group_base + index;
            return Some(Item {
                at,
                group,
                object: 0,
                kind: ItemKind::Start,
            });
        }
        let number = index - self.starts;
        if number < self.objects {
            let data = self.data_item(number);
            return Some(Item {
                at: self.object_at(number),
                group: self.data_group_offset() + data.group_number,
                object: data.object_number,
                kind: ItemKind::Data(data),
            });
        }
        let copy = number - self.objects;
        (copy < self.completions).then(|| Item {
            at: self.data_phase_end() + COMPLETION_SPACING * u32::try_from(copy).unwrap_or(0),
            group: self.completion_group(),
            object: self.completion_object() + copy,
            kind: ItemKind::Completion {
                last: copy + 1 == self.completions,
            },
        })
    }

    /// Counts the items before a MOQT Group ID and Object ID. Uses a binary search, since a schedule may have billions
    /// of items.
    pub fn items_before(&self, group: u64, object: u64) -> u64 {
        let is_before = |item: Item| (item.group, item.object) < (group, object);
        let (mut low, mut high) = (0, self.items());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.item(middle).is_some_and(is_before) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Returns the planned time of DATA message `number`, since the release.
    pub fn object_at(&self, number: u64) -> Duration {
        Duration::from_nanos(self.start_delay_ns + self.planned_ns(number))
    }

    /// Returns the nanoseconds from the beginning of the data phase to DATA message `number`.
    pub fn planned_ns(&self, number: u64) -> u64 {
        match &self.rhythm {
            Rhythm::Steady => number.saturating_mul(self.interval_ns),
            Rhythm::Cycle(cycle) => cycle.at(number).min(self.duration_ns),
            Rhythm::Random { seed } => {
                let mut state = seed.wrapping_add(number.wrapping_mul(CHANCE_STRIDE));
                let chance = split_mix(&mut state) % self.interval_ns;
                let planned = number
                    .saturating_mul(self.interval_ns)
                    .saturating_add(chance);
                planned.min(self.duration_ns)
            }
            Rhythm::Fetched => 0,
            Rhythm::Bursts { objects } => {
                (number - number % objects).saturating_mul(self.interval_ns)
            }
        }
    }

    /// Returns the nanoseconds of the data phase that the first `objects` objects stand for.
    fn span_ns(&self, objects: u64) -> u64 {
        match &self.rhythm {
            Rhythm::Cycle(cycle) => cycle.at(objects).min(self.duration_ns),
            Rhythm::Steady | Rhythm::Random { .. } | Rhythm::Bursts { .. } | Rhythm::Fetched => {
                objects.saturating_mul(self.interval_ns)
            }
        }
    }

    /// Returns how much longer the intervals of objects `lowest` to `highest` are than the time between the planned
    /// times of these two: one interval in a steady pattern.
    pub fn time_beyond_planned(&self, lowest: u64, highest: u64) -> Duration {
        let intervals = self.span_ns(highest + 1) - self.span_ns(lowest);
        let planned = self.planned_ns(highest) - self.planned_ns(lowest);
        Duration::from_nanos(intervals.saturating_sub(planned))
    }

    /// Returns the longest time between two objects.
    pub fn longest_gap(&self) -> Duration {
        let intervals = match &self.rhythm {
            Rhythm::Steady | Rhythm::Fetched => 1,
            Rhythm::Random { .. } => 2,
            Rhythm::Bursts { objects } => *objects,
            Rhythm::Cycle(cycle) => return Duration::from_nanos(cycle.longest_gap_ns()),
        };
        Duration::from_nanos(self.interval_ns.saturating_mul(intervals))
    }

    /// Returns when the data phase ends and COMPLETION is due, since the release.
    pub fn data_phase_end(&self) -> Duration {
        if self.wire == Wire::Qperf && self.rhythm != Rhythm::Fetched {
            self.object_at(self.objects - 1) + qperf::PAUSE
        } else {
            Duration::from_nanos(self.start_delay_ns + self.duration_ns)
        }
    }

    /// Returns how long the track waits before its data phase.
    pub fn start_delay(&self) -> Duration {
        Duration::from_nanos(self.start_delay_ns)
    }

    /// Returns the objects that are due in the first `time` of the data phase.
    pub fn objects_before(&self, time: Duration) -> u64 {
        let objects = self
            .rhythm
            .objects_within(nanoseconds(time), self.interval_ns);
        objects.min(self.objects)
    }

    /// Returns the length of the data phase in nanoseconds.
    pub fn data_phase_ns(&self) -> u64 {
        self.duration_ns
    }

    /// Returns when the last item is due, since the release.
    pub fn end(&self) -> Duration {
        let more = u32::try_from(self.completions - 1).unwrap_or(0);
        self.data_phase_end() + COMPLETION_SPACING * more
    }

    /// Returns the MOQT Group ID of the benchmark's group zero (decision 11).
    pub fn data_group_offset(&self) -> u64 {
        self.group_base + self.starts
    }

    /// Returns the MOQT Group ID of COMPLETION.
    pub fn completion_group(&self) -> u64 {
        let groups = self.groups();
        self.data_group_offset()
            + match self.wire {
                Wire::Draft => groups,
                Wire::Qperf => groups - 1,
            }
    }

    /// Returns the MOQT Object ID of the first COMPLETION.
    fn completion_object(&self) -> u64 {
        match self.wire {
            Wire::Draft => 0,
            Wire::Qperf => self.objects_in_group(self.groups() - 1),
        }
    }

    /// Returns the number in the track of an object, given its group and its number there; `None` if the schedule has
    /// no such object.
    pub fn number_of(&self, group_number: u64, object_number: u64) -> Option<u64> {
        if object_number >= self.objects_per_group {
            return None;
        }
        let first = group_number.checked_mul(self.objects_per_group)?;
        first
            .checked_add(object_number)
            .filter(|number| *number < self.objects)
    }

    /// Returns the group of object `number`, and its number there.
    pub fn position_of(&self, number: u64) -> (u64, u64) {
        (
            number / self.objects_per_group,
            number % self.objects_per_group,
        )
    }

    /// Returns the number of objects in a group. The last group may be shorter.
    pub fn objects_in_group(&self, group_number: u64) -> u64 {
        let before = group_number.saturating_mul(self.objects_per_group);
        self.objects
            .saturating_sub(before)
            .min(self.objects_per_group)
    }

    /// Returns the number of objects in each group but the last.
    pub fn objects_per_group(&self) -> u64 {
        self.objects_per_group
    }

    /// Returns the size of the largest object.
    pub fn largest_object(&self) -> ObjectSize {
        if self.objects_per_group == 1 && self.wire == Wire::Draft {
            self.first_object_size
        } else {
            let others = self.sizes.as_ref().map(|sizes| sizes.largest);
            self.first_object_size
                .max(others.unwrap_or(self.object_size))
        }
    }

    /// Returns the size of object `number` of the track.
    pub fn size_of(&self, number: u64) -> ObjectSize {
        let is_first = match self.wire {
            Wire::Draft => number.is_multiple_of(self.objects_per_group),
            Wire::Qperf => number == 0,
        };
        match &self.sizes {
            _ if is_first => self.first_object_size,
            Some(sizes) => sizes.at(number),
            None => self.object_size,
        }
    }

    /// Returns the sum of bytes of the first `objects` objects.
    pub fn bytes_of(&self, objects: u64) -> u64 {
        let large = match self.wire {
            Wire::Draft => objects.div_ceil(self.objects_per_group),
            Wire::Qperf => objects.min(1),
        };
        let first = large.saturating_mul(u64::from(self.first_object_size.bytes()));
        let rest = match &self.sizes {
            None => (objects - large).saturating_mul(u64::from(self.object_size.bytes())),
            Some(sizes) => sizes
                .sum(objects)
                .saturating_sub(sizes.sum_of_multiples(self.objects_per_group, large)),
        };
        first.saturating_add(rest)
    }

    /// Returns the bits per second of the first `objects` objects over their planned time (decision 27).
    pub fn expected_bits_per_second(&self, objects: u64) -> f64 {
        self.bits_per_second(self.bytes_of(objects), objects)
    }

    /// Returns `bytes` over the planned time of `objects` objects, in bits per second.
    #[expect(clippy::cast_precision_loss, reason = "a printed figure")]
    pub fn bits_per_second(&self, bytes: u64, objects: u64) -> f64 {
        if objects == 0 {
            return 0.0;
        }
        bytes as f64 * 8e9 / self.span_ns(objects).max(1) as f64
    }

    /// Returns the START message of the track.
    pub fn start_message(&self) -> Start {
        let interval_ms = (self.interval_ns + NS_PER_MS / 2) / NS_PER_MS;
        Start {
            objects_per_group: u32::try_from(self.objects_per_group).unwrap_or(u32::MAX),
            first_object_size: self.first_object_size.bytes(),
            remaining_object_size: self.object_size.bytes(),
            interval_ms: u32::try_from(interval_ms).unwrap_or(u32::MAX),
        }
    }

    fn data_item(&self, number: u64) -> DataItem {
        let (group_number, object_number) = self.position_of(number);
        DataItem {
            number,
            group_number,
            object_number,
            size: self.size_of(number),
            last_in_group: object_number + 1 == self.objects_in_group(group_number)
                && (self.wire == Wire::Draft || number + 1 < self.objects),
        }
    }
}

impl Cursor {
    /// Returns when the next item is due, since the release; `None` after the last.
    pub fn next_at(&self, schedule: &Schedule) -> Option<Duration> {
        schedule.item(self.next).map(|item| item.at)
    }

    /// Whether all objects were taken, and a COMPLETION is next.
    pub fn awaits_completion(&self, schedule: &Schedule) -> bool {
        (schedule.starts + schedule.objects..schedule.items()).contains(&self.next)
    }

    /// Skips all remaining items.
    pub fn end(&mut self) {
        self.next = u64::MAX;
    }

    /// Whether [`Self::end`] was called.
    pub fn is_at_end(&self) -> bool {
        self.next == u64::MAX
    }

    /// Returns the next item if it is due `elapsed` after the release. A publisher that is behind takes several, one
    /// after the other, and limits their number itself.
    pub fn take_due(&mut self, schedule: &Schedule, elapsed: Duration) -> Option<Item> {
        let item = schedule.item(self.next).filter(|item| item.at <= elapsed)?;
        self.next += 1;
        Some(item)
    }
}

/// START is sent ten times in the start delay … [evens-00 §5.2]
const START_PARTS: u64 = 10;
/// … but at most every 100 ms. [evens-00 §5.2]
const START_PERIOD_MIN_NS: u64 = 100 * NS_PER_MS;
/// Copies of COMPLETION on a datagram track, since one may be lost (decision 12).
const DATAGRAM_COMPLETIONS: u64 = 5;
/// The time between the copies, so that one full queue does not drop them all.
const COMPLETION_SPACING: Duration = Duration::from_millis(20);
/// A stride that separates the random draws of consecutive objects.
const CHANCE_STRIDE: u64 = 0x9E37_79B9_7F4A_7C15;
const NS_PER_MS: u64 = 1_000_000;
