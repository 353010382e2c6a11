//! When the objects of a track are due: the patterns of a profile.

use std::sync::Arc;

use super::heavy_tail;
use crate::clock::nanoseconds;
use crate::limits::CYCLE_OBJECTS_MAX;
use crate::profile::{Pattern, TrackProfile};

/// When objects are due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rhythm {
    /// At the beginning of each interval.
    Steady,
    /// Within each interval, at a time from the seed.
    Random { seed: u64 },
    /// Several at once.
    Bursts { objects: u64 },
    /// At times that repeat.
    Cycle(Cycle),
    /// All at once, when fetched.
    Fetched,
}

/// Times that repeat: a publisher that is active and pauses in turns, or one whose intervals vary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cycle {
    /// The objects of a cycle, at nanoseconds from its beginning, ascending from zero.
    offsets: Arc<[u64]>,
    /// The length of a cycle.
    length_ns: u64,
}

impl Rhythm {
    pub(super) fn of(track: &TrackProfile, seed: u64) -> Self {
        let interval_ns = track.interval.ns();
        match track.pattern {
            Pattern::Interval => Self::Steady,
            Pattern::Fetch => Self::Fetched,
            Pattern::Random => Self::Random { seed },
            Pattern::Bursts { objects } => Self::Bursts {
                objects: u64::from(objects.count()),
            },
            Pattern::Pauses { active, pause } => {
                let objects = nanoseconds(active).div_ceil(interval_ns).max(1);
                let objects = objects.min(CYCLE_OBJECTS_MAX);
                Self::Cycle(Cycle {
                    offsets: (0..objects).map(|number| number * interval_ns).collect(),
                    length_ns: nanoseconds(active + pause),
                })
            }
            Pattern::HeavyTail => {
                let steady = nanoseconds(track.duration).div_ceil(interval_ns);
                let objects = steady.clamp(1, heavy_tail::CYCLE_OBJECTS);
                Self::Cycle(Cycle {
                    offsets: heavy_tail::offsets(objects, interval_ns, seed),
                    length_ns: objects.saturating_mul(interval_ns),
                })
            }
        }
    }

    /// Counts the objects that are due in the first `duration_ns` of the data phase.
    pub(super) fn objects_within(&self, duration_ns: u64, interval_ns: u64) -> u64 {
        match self {
            Self::Cycle(cycle) => cycle.objects_within(duration_ns),
            Self::Steady | Self::Random { .. } | Self::Bursts { .. } | Self::Fetched => {
                duration_ns.div_ceil(interval_ns).max(1)
            }
        }
    }
}

impl Cycle {
    /// Returns the time of object `number`.
    pub(super) fn at(&self, number: u64) -> u64 {
        let objects = self.offsets.len() as u64;
        let place = usize::try_from(number % objects).unwrap_or(0);
        (number / objects)
            .saturating_mul(self.length_ns)
            .saturating_add(self.offsets[place])
    }

    fn objects_within(&self, duration_ns: u64) -> u64 {
        let (whole, rest) = (duration_ns / self.length_ns, duration_ns % self.length_ns);
        let begun = self.offsets.partition_point(|offset| *offset < rest) as u64;
        (whole * self.offsets.len() as u64 + begun).max(1)
    }

    pub(super) fn longest_gap_ns(&self) -> u64 {
        let last = self.offsets.last().copied().unwrap_or(0);
        let within = self.offsets.windows(2).map(|pair| pair[1] - pair[0]);
        within.fold(self.length_ns - last, u64::max)
    }
}
