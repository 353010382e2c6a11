//! The benchmark profile: what each track sends, in the draft's INI form.
//!
//! A file has a `[section]` for each track, and optionally `[audience]`. The keys are those of the draft's Appendix A;
//! the names of its Table 1 are aliases (decision 4). A `;` begins a comment, also after a value, and so does a `#` at the
//! beginning of a line or after a blank. An unknown key or an invalid value is an error that names the line, since a
//! misspelt key must not silently change a benchmark. So each value of a [`Profile`] is valid.

mod audience;
mod error;
mod ini;
mod key;
pub mod load;
mod print;
#[cfg(test)]
mod tests;
mod value;

use std::num::NonZeroU32;
use std::time::Duration;

pub use self::audience::Audience;
pub use self::error::{Problem, ProfileError};
use crate::interpolate::TrackTemplate;
use crate::limits::{
    DELAY_MAX, INTERVAL_MIN, OBJECT_BYTES_MAX, OBJECT_BYTES_MIN, OBJECTS_PER_GROUP_MAX,
};
use crate::payload::{HEAD_BYTES, Tag};
use crate::qperf::Wire;

/// A set of tracks, at least one, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The tracks; their positions are their numbers.
    pub tracks: Vec<TrackProfile>,
    /// How subscribers behave, and how their packets travel.
    pub audience: Audience,
}

/// The settings of a track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackProfile {
    /// The section's name: a label for reports, unique in its profile.
    pub section: String,
    /// The templates of namespace and name.
    pub template: TrackTemplate,
    /// The client's part in the track (`mode`). The command line takes precedence.
    pub mode: Option<Mode>,
    /// How objects travel (`track_mode`, or `reliable`).
    pub track_mode: TrackMode,
    /// MOQT's publisher priority: a lower number is sent first (decision 28).
    pub priority: u8,
    /// How long an object may wait in a send queue. It is also the track's MOQT delivery timeout (decision 29).
    pub ttl: Duration,
    /// The time between two objects (`time_interval`), exact to the nanosecond.
    pub interval: Interval,
    /// Objects in one group.
    pub objects_per_group: ObjectsPerGroup,
    /// Bytes of the first object of every group (decision 5).
    pub first_object_size: ObjectSize,
    /// Bytes of every other object; the smallest if they vary.
    pub object_size: ObjectSize,
    /// Bytes of the largest of the other objects, if they vary: most are small and few are large, as Pareto's law has
    /// it. At least [`Self::object_size`].
    pub object_size_max: Option<ObjectSize>,
    /// How long START is repeated before the first object is sent.
    pub start_delay: Duration,
    /// How long objects are sent: `total_transmit_time` minus the start delay (decision 7).
    pub duration: Duration,
    /// Whether `total_transmit_time` gave [`Self::duration`]. qperf does not subtract the start delay from this key.
    pub has_total_transmit_time: bool,
    /// Whether a subscriber that saw no START is measured nevertheless (decision 15).
    pub late_join: bool,
    /// How objects map to streams; without effect on a datagram track (decision 32).
    pub stream_mapping: StreamMapping,
    /// Extension headers of every object. [evens-00 §3.1]
    pub extension_headers: ExtensionHeaders,
    /// When objects are due.
    pub pattern: Pattern,
    /// Groups that one FETCH asks for, so that a track is fetched in ranges, one after the other; `None`: all. For
    /// [`Pattern::Fetch`] only.
    pub fetch_groups: Option<ObjectsPerGroup>,
    /// Groups before the current one that a subscriber fetches when it joins a track under way (joining FETCH); `None`:
    /// it fetches nothing. For stream tracks that are not fetched.
    pub joining_fetch: Option<u32>,
}

/// How the objects of a stream track map to streams (decision 32).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamMapping {
    /// One stream for each group.
    #[default]
    SubgroupPerGroup,
    /// One stream for each object.
    SubgroupPerObject,
    /// Two streams for each group: one for objects with even numbers, one for those with odd numbers.
    TwoSubgroups,
}

/// The extension headers of an object, all of one size. MOQT calls them properties since draft-17.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtensionHeaders {
    /// How many, 0 to 16.
    pub count: u8,
    /// Bytes of each value, 1 to 1024.
    pub size: u16,
}

/// When the objects of a track are due. [evens-00 §3]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pattern {
    /// One in each interval, at its beginning, as audio and video.
    #[default]
    Interval,
    /// One in each interval, at a random time from the seed, as interactive data.
    Random,
    /// Several at once, at the same mean rate as one per interval: interactive data, or whole groups of pictures.
    Bursts {
        /// Objects in one burst, at least 2.
        objects: ObjectsPerGroup,
    },
    /// One in each interval while a publisher is active, and none while it pauses, in turns that begin with activity: a
    /// speaker, or somebody who types.
    Pauses {
        /// How long the publisher is active, at least an interval.
        active: Duration,
        /// How long it pauses.
        pause: Duration,
    },
    /// At times between which most intervals are short and few are long, as Pareto's law has it, at the mean rate of one
    /// per interval.
    HeavyTail,
    /// Fetched as a range, as fast as connections accept it. [evens-00 §3.3]
    Fetch,
}

/// A client's part in a track: publishing, subscribing, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `mode = 1`.
    Publisher,
    /// `mode = 2`.
    Subscriber,
    /// `mode = 3`.
    Both,
}

/// How a track's objects travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TrackMode {
    /// Each object in a QUIC datagram.
    Datagram,
    /// The objects of a group on a QUIC stream.
    Stream,
}

impl TrackMode {
    /// Returns the name in a profile.
    pub fn name(self) -> &'static str {
        match self {
            Self::Datagram => "datagram",
            Self::Stream => "stream",
        }
    }
}

/// The time between two objects: 10 µs to an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interval(Duration);

/// The size of a whole object including its benchmark header: 25 bytes to 16 MiB (decisions 24 and 25).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectSize(u32);

/// Objects in one group: 1 to 10,000,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectsPerGroup(NonZeroU32);

impl Profile {
    /// Parses a profile. Errors show `file` as its name.
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Self, ProfileError> {
        ini::parse(bytes).map_err(|fault| fault.in_file(file))
    }

    /// Returns the profile in canonical form, with the keys of Appendix A and without comments. Parsing it gives the
    /// same profile.
    pub fn to_ini(&self) -> String {
        print::to_ini(self)
    }
}

impl TrackProfile {
    /// Returns how long the track sends START and objects together (decision 7).
    pub fn total_transmit_time(&self) -> Duration {
        self.start_delay + self.duration
    }

    /// Returns why no object of the track has a latency; `None` if one can have.
    pub fn latency_problem(&self, wire: Wire) -> Option<String> {
        let section = &self.section;
        if self.pattern == Pattern::Fetch {
            return Some(format!(
                "[{section}]: pattern = fetch: fetched objects come from a cache, so their age is not a latency"
            ));
        }
        let is_single = self.objects_per_group.count() == 1;
        let others = self.object_size_max.unwrap_or(self.object_size);
        let others = Some(others).filter(|_| !is_single);
        let largest = others.map_or(self.first_object_size, |size| {
            size.max(self.first_object_size)
        });
        let is_timed = wire == Wire::Qperf || Tag::fits(largest.data_length());
        (!is_timed).then(|| {
            format!(
                "[{section}]: objects of at most {} bytes have no room for the planned send time, whose tag takes \
                 {HEAD_BYTES} bytes",
                largest.bytes()
            )
        })
    }
}

impl StreamMapping {
    /// Every mapping.
    pub const ALL: [Self; 3] = [
        Self::SubgroupPerGroup,
        Self::SubgroupPerObject,
        Self::TwoSubgroups,
    ];

    /// Returns the name in profiles and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::SubgroupPerGroup => "subgroup_per_group",
            Self::SubgroupPerObject => "subgroup_per_object",
            Self::TwoSubgroups => "two_subgroups",
        }
    }

    /// Returns the subgroup of an object, by its number in its group.
    pub fn subgroup_of(self, object: u64) -> u64 {
        match self {
            Self::SubgroupPerGroup => 0,
            Self::SubgroupPerObject => object,
            Self::TwoSubgroups => object % 2,
        }
    }

    /// Counts the objects of a subgroup from number `from` of its group on, in a group of `objects` objects.
    pub fn objects_from(self, subgroup: u64, from: u64, objects: u64) -> u64 {
        match self {
            Self::SubgroupPerGroup => objects.saturating_sub(from),
            Self::SubgroupPerObject => u64::from(from <= subgroup && subgroup < objects),
            Self::TwoSubgroups => {
                let first = from.saturating_add(u64::from(from % 2 != subgroup % 2));
                objects.saturating_sub(first).div_ceil(2)
            }
        }
    }
}

impl ExtensionHeaders {
    /// No extension header.
    pub const NONE: Self = Self { count: 0, size: 8 };
}

impl Interval {
    /// Returns an interval, or `None` if it is out of range.
    pub fn new(interval: Duration) -> Option<Self> {
        (INTERVAL_MIN..=DELAY_MAX)
            .contains(&interval)
            .then_some(Self(interval))
    }

    /// Returns the time between two objects.
    pub fn duration(self) -> Duration {
        self.0
    }

    /// Returns the nanoseconds between two objects, never zero.
    pub fn ns(self) -> u64 {
        crate::clock::nanoseconds(self.0)
    }
}

impl ObjectSize {
    /// Returns a size in bytes, or `None` if it is out of range.
    pub fn new(bytes: u32) -> Option<Self> {
        (OBJECT_BYTES_MIN..=OBJECT_BYTES_MAX)
            .contains(&bytes)
            .then_some(Self(bytes))
    }

    /// Returns the bytes of the whole object.
    pub fn bytes(self) -> u32 {
        self.0
    }

    /// Returns the bytes of `data` after the benchmark header (decision 24).
    pub fn data_length(self) -> u32 {
        self.0 - OBJECT_BYTES_MIN
    }
}

impl ObjectsPerGroup {
    /// Returns a number of objects, or `None` if it is out of range.
    pub fn new(objects: u32) -> Option<Self> {
        if objects > OBJECTS_PER_GROUP_MAX {
            return None;
        }
        NonZeroU32::new(objects).map(Self)
    }

    /// Returns the number of objects, never zero.
    pub fn count(self) -> u32 {
        self.0.get()
    }
}
