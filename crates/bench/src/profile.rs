//! The benchmark profile: what each track sends, in the draft's INI form.
//!
//! A file has one `[section]` per track, and `[audience]` if it wants. The keys are those of the draft's Appendix A; the names of
//! its Table 1 are aliases (decision 4). A `;` begins a comment, also after a value. Whatever is
//! not understood is an error that names the line: a misspelt key must not silently change a
//! benchmark. A [`Profile`] therefore holds only what a run can use as it stands.

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
    /// What the audience does beside listening.
    pub audience: Audience,
}

/// One track of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackProfile {
    /// The section's name: a label for reports, unique in its profile.
    pub section: String,
    /// Namespace and name, with fields to fill in.
    pub template: TrackTemplate,
    /// What a client does with the track (`mode`); the command line has the last word.
    pub mode: Option<Mode>,
    /// How objects travel (`track_mode`, or `reliable`).
    pub track_mode: TrackMode,
    /// MOQT's publisher priority: a lower number is sent first (decision 28).
    pub priority: u8,
    /// How long an object may wait in a send queue, and its delivery time-out on the wire
    /// (decision 29).
    pub ttl: Duration,
    /// The time between two objects (`time_interval`), exact to the nanosecond.
    pub interval: Interval,
    /// Objects in one group.
    pub objects_per_group: ObjectsPerGroup,
    /// Bytes of the first object of every group (decision 5).
    pub first_object_size: ObjectSize,
    /// Bytes of every other object.
    pub object_size: ObjectSize,
    /// How long START is repeated before the first object.
    pub start_delay: Duration,
    /// How long objects are sent: `total_transmit_time` less the start delay (decision 7).
    pub duration: Duration,
    /// Whether a subscriber that saw no START is served all the same (decision 15).
    pub late_join: bool,
    /// Which stream an object travels on; of no meaning on a datagram track (decision 32).
    pub stream_mapping: StreamMapping,
    /// What every object carries beside its payload. [evens-00 §3.1]
    pub extension_headers: ExtensionHeaders,
    /// When objects are due.
    pub pattern: Pattern,
}

/// Which stream an object of a stream track travels on (decision 32).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamMapping {
    /// All objects of a group on one stream.
    #[default]
    SubgroupPerGroup,
    /// A stream for each object.
    SubgroupPerObject,
    /// Objects with even numbers on one stream of their group, those with odd ones on another.
    TwoSubgroups,
}

/// The extension headers ("properties" since draft-17) of an object: none, or some of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtensionHeaders {
    /// How many, 0 to 16.
    pub count: u8,
    /// Bytes of the value of each, 1 to 1024.
    pub size: u16,
}

/// When the objects of a track are due. [evens-00 §3]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pattern {
    /// One in each interval, at its beginning: audio and video.
    #[default]
    Interval,
    /// One in each interval, at a moment drawn from the seed: interactive data.
    Random,
    /// Several at once, as rarely as the interval asks for on average: interactive data, or whole groups of
    /// pictures.
    Bursts {
        /// Objects in one burst, at least 2.
        objects: ObjectsPerGroup,
    },
    /// Fetched as a range, as fast as connections take it. [evens-00 §3.3]
    Fetch,
}

/// What a client does with a track.
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
    /// The name in a profile.
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

/// The size of a whole object, its benchmark header included: 25 bytes to 16 MiB (decisions 24, 25).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectSize(u32);

/// Objects in one group: 1 to 10,000,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectsPerGroup(NonZeroU32);

impl Profile {
    /// Reads a profile. `file` is its name as errors show it.
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Self, ProfileError> {
        ini::parse(bytes).map_err(|fault| fault.in_file(file))
    }

    /// The profile in canonical form: Appendix A's keys, no comments. Reading it gives the same
    /// profile.
    pub fn to_ini(&self) -> String {
        print::to_ini(self)
    }
}

impl TrackProfile {
    /// How long the track sends, START and objects together (decision 7).
    pub fn total_transmit_time(&self) -> Duration {
        self.start_delay + self.duration
    }

    /// Why no object of the track has a latency; none if some have.
    pub fn latency_problem(&self, wire: Wire) -> Option<String> {
        let section = &self.section;
        if self.pattern == Pattern::Fetch {
            return Some(format!(
                "[{section}]: pattern = fetch: what comes out of a cache was not sent for whoever fetches it"
            ));
        }
        let is_single = self.objects_per_group.count() == 1;
        let others = Some(self.object_size).filter(|_| !is_single);
        let largest = others.map_or(self.first_object_size, |size| {
            size.max(self.first_object_size)
        });
        let is_timed = wire == Wire::Qperf || Tag::fits(largest.data_length());
        (!is_timed).then(|| {
            format!(
                "[{section}]: objects of at most {} bytes have no room for the time at which they were due: that takes \
                 {HEAD_BYTES}",
                largest.bytes()
            )
        })
    }
}

impl StreamMapping {
    /// All of them.
    pub const ALL: [Self; 3] = [
        Self::SubgroupPerGroup,
        Self::SubgroupPerObject,
        Self::TwoSubgroups,
    ];

    /// The name in profiles and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::SubgroupPerGroup => "subgroup_per_group",
            Self::SubgroupPerObject => "subgroup_per_object",
            Self::TwoSubgroups => "two_subgroups",
        }
    }

    /// The subgroup of an object, by its number in its group.
    pub fn subgroup_of(self, object: u64) -> u64 {
        match self {
            Self::SubgroupPerGroup => 0,
            Self::SubgroupPerObject => object,
            Self::TwoSubgroups => object % 2,
        }
    }

    /// Objects of a subgroup from number `from` of its group on, in a group of `objects` objects.
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
    /// An interval, if it is in range.
    pub fn new(interval: Duration) -> Option<Self> {
        (INTERVAL_MIN..=DELAY_MAX)
            .contains(&interval)
            .then_some(Self(interval))
    }

    /// The time between two objects.
    pub fn duration(self) -> Duration {
        self.0
    }

    /// Nanoseconds between two objects, never zero.
    pub fn ns(self) -> u64 {
        crate::clock::nanoseconds(self.0)
    }
}

impl ObjectSize {
    /// A size in bytes, if it is in range.
    pub fn new(bytes: u32) -> Option<Self> {
        (OBJECT_BYTES_MIN..=OBJECT_BYTES_MAX)
            .contains(&bytes)
            .then_some(Self(bytes))
    }

    /// Bytes of the whole object.
    pub fn bytes(self) -> u32 {
        self.0
    }

    /// Bytes of the `data` that follows the benchmark header (decision 24).
    pub fn data_length(self) -> u32 {
        self.0 - OBJECT_BYTES_MIN
    }
}

impl ObjectsPerGroup {
    /// A number of objects, if it is in range.
    pub fn new(objects: u32) -> Option<Self> {
        if objects > OBJECTS_PER_GROUP_MAX {
            return None;
        }
        NonZeroU32::new(objects).map(Self)
    }

    /// The number of objects, never zero.
    pub fn count(self) -> u32 {
        self.0.get()
    }
}
