//! What one track sends, and when: START messages, objects, COMPLETION.
//!
//! The schedule is absolute. Item *k* has one planned time, whatever happened to the items before,
//! so a publisher that falls behind stays late for as long as it is late, and no longer; it never
//! shifts the plan (there is no coordinated omission). Times count from the publisher's release.
//!
//! On the wire, every START has a group of its own, so that a late subscriber can join at the next
//! one; the groups of the benchmark follow at a constant offset, and COMPLETION has the last group
//! (decisions 10 to 12).

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::clock::nanoseconds;
use crate::message::Start;
use crate::payload::split_mix;
use crate::profile::{ObjectSize, Pattern, TrackMode, TrackProfile};
use crate::qperf::Wire;

/// The plan of one track.
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
    completions: u64,
    rhythm: Rhythm,
    wire: Wire,
}

/// When objects are due beside the steady interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rhythm {
    /// At the beginning of each interval.
    Steady,
    /// Within each interval, where the seed says.
    Random { seed: u64 },
    /// So many at once.
    Bursts { objects: u64 },
    /// All at once, when they are fetched.
    Fetched,
}

/// One object on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// When it is to be sent, since the release.
    pub at: Duration,
    /// Its MOQT Group ID.
    pub group: u64,
    /// Its MOQT Object ID.
    pub object: u64,
    /// What it is.
    pub kind: ItemKind,
}

/// What an [`Item`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// A START message, alone in its group.
    Start,
    /// A DATA message.
    Data(DataItem),
    /// A COMPLETION message.
    Completion {
        /// Whether no other copy follows.
        last: bool,
    },
}

/// A DATA message of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataItem {
    /// Its number in the track, from zero.
    pub number: u64,
    /// The benchmark's number of its group, from zero.
    pub group_number: u64,
    /// Its number in its group, from zero.
    pub object_number: u64,
    /// Its size.
    pub size: ObjectSize,
    /// Whether it ends its group.
    pub last_in_group: bool,
}

/// How far a publisher has come in its schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    next: u64,
}

impl Schedule {
    /// The plan of a track whose first MOQT Group ID is `group_base`: zero, or beyond what was
    /// published on the track before.
    pub fn new(track: &TrackProfile, group_base: u64) -> Self {
        let start_delay_ns = nanoseconds(track.start_delay);
        let start_period_ns = (start_delay_ns / START_PARTS).max(START_PERIOD_MIN_NS);
        let (interval_ns, duration_ns) = (track.interval.ns(), nanoseconds(track.duration));
        Self {
            group_base,
            starts: start_delay_ns.div_ceil(start_period_ns).max(1),
            start_period_ns,
            start_delay_ns,
            interval_ns,
            duration_ns,
            objects: duration_ns.div_ceil(interval_ns).max(1),
            objects_per_group: u64::from(track.objects_per_group.count()),
            first_object_size: track.first_object_size,
            object_size: track.object_size,
            completions: match track.track_mode {
                TrackMode::Datagram => DATAGRAM_COMPLETIONS,
                TrackMode::Stream => 1,
            },
            rhythm: match track.pattern {
                Pattern::Interval => Rhythm::Steady,
                Pattern::Fetch => Rhythm::Fetched,
                Pattern::Random => Rhythm::Random { seed: 0 },
                Pattern::Bursts { objects } => Rhythm::Bursts {
                    objects: u64::from(objects.count()),
                },
            },
            wire: Wire::Draft,
        }
    }

    /// The plan as the older tool would have it: no START, groups from 1, one large object in the whole run, and one
    /// final object behind the last.
    #[must_use]
    pub fn on(mut self, wire: Wire) -> Self {
        if wire == Wire::Qperf {
            (self.group_base, self.starts, self.completions) = (1, 0, 1);
        }
        Self { wire, ..self }
    }

    /// The plan with its chances drawn from `seed`, which publishers and subscribers share.
    #[must_use]
    pub fn seeded(mut self, seed: u64) -> Self {
        if let Rhythm::Random { .. } = self.rhythm {
            self.rhythm = Rhythm::Random { seed };
        }
        self
    }

    /// START messages.
    pub fn starts(&self) -> u64 {
        self.starts
    }

    /// DATA messages.
    pub fn objects(&self) -> u64 {
        self.objects
    }

    /// Groups of DATA messages; the last may be shorter.
    pub fn groups(&self) -> u64 {
        self.objects.div_ceil(self.objects_per_group)
    }

    /// COMPLETION messages.
    pub fn completions(&self) -> u64 {
        self.completions
    }

    /// Objects of all kinds.
    pub fn items(&self) -> u64 {
        self.starts + self.objects + self.completions
    }

    /// Item `index`, in the order of their times; `None` after the last.
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

    /// How many items stand before a MOQT Group ID and Object ID: the index of the first that does not, found by halving,
    /// since a plan may have billions.
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

    /// When DATA message `number` is to be sent, since the release.
    pub fn object_at(&self, number: u64) -> Duration {
        Duration::from_nanos(self.start_delay_ns + self.planned_ns(number))
    }

    /// Nanoseconds from the beginning of the data phase to DATA message `number`.
    pub fn planned_ns(&self, number: u64) -> u64 {
        match self.rhythm {
            Rhythm::Steady => number.saturating_mul(self.interval_ns),
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

    /// The longest time between two objects of the plan.
    pub fn longest_gap(&self) -> Duration {
        Duration::from_nanos(self.interval_ns.saturating_mul(match self.rhythm {
            Rhythm::Steady | Rhythm::Fetched => 1,
            Rhythm::Random { .. } => 2,
            Rhythm::Bursts { objects } => objects,
        }))
    }

    /// When the data phase ends and COMPLETION is due, since the release.
    pub fn data_phase_end(&self) -> Duration {
        Duration::from_nanos(self.start_delay_ns + self.duration_ns)
    }

    /// How long the data phase is, in nanoseconds.
    pub fn data_phase_ns(&self) -> u64 {
        self.duration_ns
    }

    /// When the last item is due, since the release.
    pub fn end(&self) -> Duration {
        let more = u32::try_from(self.completions - 1).unwrap_or(0);
        self.data_phase_end() + COMPLETION_SPACING * more
    }

    /// The MOQT Group ID of the benchmark's group zero (decision 11).
    pub fn data_group_offset(&self) -> u64 {
        self.group_base + self.starts
    }

    /// The MOQT Group ID of COMPLETION.
    pub fn completion_group(&self) -> u64 {
        let groups = self.groups();
        self.data_group_offset()
            + match self.wire {
                Wire::Draft => groups,
                Wire::Qperf => groups - 1,
            }
    }

    /// The MOQT Object ID of the first COMPLETION.
    fn completion_object(&self) -> u64 {
        match self.wire {
            Wire::Draft => 0,
            Wire::Qperf => self.objects_in_group(self.groups() - 1),
        }
    }

    /// The number in the track of an object given by its group and its number there; `None` if the
    /// plan has no such object.
    pub fn number_of(&self, group_number: u64, object_number: u64) -> Option<u64> {
        if object_number >= self.objects_per_group {
            return None;
        }
        let first = group_number.checked_mul(self.objects_per_group)?;
        first
            .checked_add(object_number)
            .filter(|number| *number < self.objects)
    }

    /// Group and number there of object `number`.
    pub fn position_of(&self, number: u64) -> (u64, u64) {
        (
            number / self.objects_per_group,
            number % self.objects_per_group,
        )
    }

    /// Objects in the group of that number; the last group may be shorter.
    pub fn objects_in_group(&self, group_number: u64) -> u64 {
        let before = group_number.saturating_mul(self.objects_per_group);
        self.objects
            .saturating_sub(before)
            .min(self.objects_per_group)
    }

    /// Objects of a group that is not the last.
    pub fn objects_per_group(&self) -> u64 {
        self.objects_per_group
    }

    /// The size of the largest object.
    pub fn largest_object(&self) -> ObjectSize {
        if self.objects_per_group == 1 && self.wire == Wire::Draft {
            self.first_object_size
        } else {
            self.first_object_size.max(self.object_size)
        }
    }

    /// The size of object `number` of the track.
    pub fn size_of(&self, number: u64) -> ObjectSize {
        let is_first = match self.wire {
            Wire::Draft => number.is_multiple_of(self.objects_per_group),
            Wire::Qperf => number == 0,
        };
        if is_first {
            self.first_object_size
        } else {
            self.object_size
        }
    }

    /// Bytes of the first `objects` objects together.
    pub fn bytes_of(&self, objects: u64) -> u64 {
        let large = match self.wire {
            Wire::Draft => objects.div_ceil(self.objects_per_group),
            Wire::Qperf => objects.min(1),
        };
        let first = large.saturating_mul(u64::from(self.first_object_size.bytes()));
        let rest = (objects - large).saturating_mul(u64::from(self.object_size.bytes()));
        first.saturating_add(rest)
    }

    /// Bits per second of the first `objects` objects over their planned time (decision 27).
    pub fn expected_bits_per_second(&self, objects: u64) -> f64 {
        self.bits_per_second(self.bytes_of(objects), objects)
    }

    /// `bytes` over the planned time of `objects` objects, in bits per second.
    #[expect(clippy::cast_precision_loss, reason = "a printed figure")]
    pub fn bits_per_second(&self, bytes: u64, objects: u64) -> f64 {
        if objects == 0 {
            return 0.0;
        }
        bytes as f64 * 8e9 / objects.saturating_mul(self.interval_ns) as f64
    }

    /// The START message of the track.
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
    /// When the next item is due, since the release; `None` if all were taken.
    pub fn next_at(&self, schedule: &Schedule) -> Option<Duration> {
        schedule.item(self.next).map(|item| item.at)
    }

    /// Whether all objects were taken, and a COMPLETION is next.
    pub fn awaits_completion(&self, schedule: &Schedule) -> bool {
        (schedule.starts + schedule.objects..schedule.items()).contains(&self.next)
    }

    /// Takes all items that are left.
    pub fn end(&mut self) {
        self.next = u64::MAX;
    }

    /// Whether [`Self::end`] was called.
    pub fn is_at_end(&self) -> bool {
        self.next == u64::MAX
    }

    /// Takes the next item if it is due `elapsed` after the release. A publisher that is behind
    /// takes one after the other, and bounds how many it takes at once.
    pub fn take_due(&mut self, schedule: &Schedule, elapsed: Duration) -> Option<Item> {
        let item = schedule.item(self.next).filter(|item| item.at <= elapsed)?;
        self.next += 1;
        Some(item)
    }
}

/// START is sent ten times in the start delay ... [evens-00 §5.2]
const START_PARTS: u64 = 10;
/// ... but not more often than every 100 ms. [evens-00 §5.2]
const START_PERIOD_MIN_NS: u64 = 100 * NS_PER_MS;
/// A datagram may be lost, so COMPLETION is repeated (decision 12).
const DATAGRAM_COMPLETIONS: u64 = 5;
/// Time between the copies, so that one full queue does not cost all of them.
const COMPLETION_SPACING: Duration = Duration::from_millis(20);
/// Keeps the draws of neighbouring objects apart.
const CHANCE_STRIDE: u64 = 0x9E37_79B9_7F4A_7C15;
const NS_PER_MS: u64 = 1_000_000;
