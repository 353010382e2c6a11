//! The location of an object in its track.

use std::fmt;

/// A group and an object in it, ordered by group first [moqt-18 §1.4.2].
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The group ID.
    pub group: u64,
    /// The object ID within the group. In the end of a range, `u64::MAX` stands for the whole group.
    pub object: u64,
}

impl Location {
    /// The first location of any track.
    pub const ZERO: Self = Self {
        group: 0,
        object: 0,
    };

    /// The last location that any track can have.
    pub const MAX: Self = Self {
        group: u64::MAX,
        object: u64::MAX,
    };

    /// Creates a location.
    pub const fn new(group: u64, object: u64) -> Self {
        Self { group, object }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.group, self.object)
    }
}
