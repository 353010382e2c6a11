//! Location filters: the objects that a subscription covers, or a fetch requests.

use bytes::BytesMut;

use super::{read_location, read_prefixed, write_location, write_prefixed};
use crate::cursor::Cursor;
use crate::draft::{Draft, FilterForm};
use crate::error::DecodeError;
use crate::location::Location;
use crate::varint;

/// The locations of a track that a subscription covers [moqt-18 §5.1.2] [moqt-22 §3.3.1].
///
/// An update that removes the filter, and a filter that excludes nothing, are [`Filter::EVERYTHING`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// From the group after the largest one.
    NextGroupStart,
    /// From the object after the largest one.
    LargestObject,
    /// From the start of the group that is this number of groups before the largest one; from draft-20 on.
    Recent {
        /// The number of groups before the largest one.
        groups: u64,
    },
    /// From this location.
    AbsoluteStart(Location),
    /// From `start` to `end`.
    AbsoluteRange {
        /// The first location.
        start: Location,
        /// The last location, inclusive; object `u64::MAX` for the whole group. Its group is not smaller than that of
        /// `start`. Until draft-19, only whole groups can be expressed.
        end: Location,
    },
}

impl Filter {
    /// The filter that all objects pass.
    pub const EVERYTHING: Self = Self::AbsoluteStart(Location::ZERO);

    /// Returns the first and the last location that pass the filter, inclusive, given the largest location so far.
    pub fn range(self, largest: Option<Location>) -> (Location, Location) {
        let start = match (self, largest) {
            (Self::AbsoluteStart(start), _) => start,
            (Self::AbsoluteRange { start, end }, _) => return (start, end),
            (Self::NextGroupStart | Self::LargestObject | Self::Recent { .. }, None) => {
                Location::ZERO
            }
            (Self::LargestObject, Some(largest)) => {
                Location::new(largest.group, largest.object.saturating_add(1))
            }
            (Self::NextGroupStart, Some(largest)) => {
                Location::new(largest.group.saturating_add(1), 0)
            }
            (Self::Recent { groups }, Some(largest)) => {
                Location::new(largest.group.saturating_sub(groups), 0)
            }
        };
        (start, Location::MAX)
    }

    /// Returns what a draft lacks to express the filter, if it does.
    pub(crate) fn missing_in(self, draft: Draft) -> Option<&'static str> {
        if draft.filter_form() != FilterForm::Subscription {
            return None;
        }
        match self {
            Self::Recent { .. } => Some("filter that starts at a past group"),
            Self::AbsoluteRange { end, .. } if end.object != u64::MAX => {
                Some("filter that ends within a group")
            }
            Self::NextGroupStart
            | Self::LargestObject
            | Self::AbsoluteStart(_)
            | Self::AbsoluteRange { .. } => None,
        }
    }

    /// Reads the value of the parameter.
    pub(super) fn read(draft: Draft, cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let form = draft.filter_form();
        if form == FilterForm::Typed {
            return Self::read_typed(cursor);
        }
        let encoded = read_prefixed(cursor)?;
        let mut inner = Cursor::new(&encoded);
        let filter = match form {
            FilterForm::Subscription | FilterForm::Typed => Self::read_subscription(&mut inner),
            FilterForm::Counted => Self::read_counted(&mut inner),
        };
        let filter = filter.map_err(DecodeError::into_violation)?;
        if !inner.is_empty() {
            return Err(DecodeError::protocol(
                "a location filter is followed by more bytes",
            ));
        }
        Ok(filter)
    }

    /// Appends the value of the parameter.
    pub(super) fn write(self, draft: Draft, out: &mut BytesMut) {
        match draft.filter_form() {
            FilterForm::Subscription => write_prefixed(out, |out| self.write_subscription(out)),
            FilterForm::Counted => write_prefixed(out, |out| self.write_counted(out)),
            FilterForm::Typed => self.write_typed(out),
        }
    }

    fn read_subscription(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        match cursor.varint()? {
            1 => Ok(Self::NextGroupStart),
            2 => Ok(Self::LargestObject),
            3 => Ok(Self::AbsoluteStart(read_location(cursor)?)),
            4 => {
                let start = read_location(cursor)?;
                Self::to(start, cursor.varint()?, u64::MAX)
            }
            _ => Err(DecodeError::protocol(
                "a subscription filter has an unknown type",
            )),
        }
    }

    fn write_subscription(self, out: &mut BytesMut) {
        match self {
            Self::NextGroupStart => varint::encode(1, out),
            Self::LargestObject => varint::encode(2, out),
            Self::AbsoluteStart(start) => {
                varint::encode(3, out);
                write_location(start, out);
            }
            Self::AbsoluteRange { start, end } => {
                varint::encode(4, out);
                write_location(start, out);
                varint::encode(groups_between(start, end), out);
            }
            Self::Recent { .. } => unreachable!("checked before a message is encoded"),
        }
    }

    /// Reads up to four fields. A lone group counts back from the next group, and twice 0 means the next object.
    fn read_counted(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        if cursor.is_empty() {
            return Ok(Self::EVERYTHING);
        }
        let group = cursor.varint()?;
        if cursor.is_empty() {
            return Ok(Self::back_from_next_group(group));
        }
        let start = Location::new(group, cursor.varint()?);
        if cursor.is_empty() {
            return Ok(if start == Location::ZERO {
                Self::LargestObject
            } else {
                Self::AbsoluteStart(start)
            });
        }
        let groups = cursor.varint()?;
        let last_object = if cursor.is_empty() {
            u64::MAX
        } else {
            cursor.varint()?
        };
        Self::to(start, groups, last_object)
    }

    fn write_counted(self, out: &mut BytesMut) {
        match self {
            Self::NextGroupStart => varint::encode(0, out),
            Self::Recent { groups } => varint::encode(groups.saturating_add(1), out),
            Self::LargestObject => write_location(Location::ZERO, out),
            Self::EVERYTHING => {}
            Self::AbsoluteStart(start) => write_location(start, out),
            Self::AbsoluteRange { start, end } => Self::write_range(start, end, out),
        }
    }

    fn read_typed(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        match cursor.varint()? {
            0 => Ok(Self::EVERYTHING),
            1 => Ok(Self::back_from_next_group(cursor.varint()?)),
            2 => Ok(Self::AbsoluteStart(read_location(cursor)?)),
            3 => {
                let start = read_location(cursor)?;
                Self::to(start, cursor.varint()?, u64::MAX)
            }
            4 => {
                let start = read_location(cursor)?;
                let groups = cursor.varint()?;
                Self::to(start, groups, cursor.varint()?)
            }
            5 => Ok(Self::LargestObject),
            _ => Err(DecodeError::protocol(
                "a location filter has an unknown type",
            )),
        }
    }

    fn write_typed(self, out: &mut BytesMut) {
        let filter_type = match self {
            Self::EVERYTHING => 0,
            Self::NextGroupStart | Self::Recent { .. } => 1,
            Self::AbsoluteStart(_) => 2,
            Self::AbsoluteRange { end, .. } if end.object == u64::MAX => 3,
            Self::AbsoluteRange { .. } => 4,
            Self::LargestObject => 5,
        };
        varint::encode(filter_type, out);
        match self {
            Self::EVERYTHING | Self::LargestObject => {}
            Self::NextGroupStart => varint::encode(0, out),
            Self::Recent { groups } => varint::encode(groups.saturating_add(1), out),
            Self::AbsoluteStart(start) => write_location(start, out),
            Self::AbsoluteRange { start, end } => Self::write_range(start, end, out),
        }
    }

    /// Appends a range, without the last object if the range ends with its group.
    fn write_range(start: Location, end: Location, out: &mut BytesMut) {
        write_location(start, out);
        varint::encode(groups_between(start, end), out);
        if end.object != u64::MAX {
            varint::encode(end.object, out);
        }
    }

    fn back_from_next_group(groups: u64) -> Self {
        groups
            .checked_sub(1)
            .map_or(Self::NextGroupStart, |groups| Self::Recent { groups })
    }

    /// Returns the range from `start` to an object of a group that is `groups` later.
    fn to(start: Location, groups: u64, last_object: u64) -> Result<Self, DecodeError> {
        let group = start
            .group
            .checked_add(groups)
            .ok_or(DecodeError::protocol(
                "the end group of a filter is above 2^64 - 1",
            ))?;
        let end = Location::new(group, last_object);
        Ok(Self::AbsoluteRange { start, end })
    }
}

fn groups_between(start: Location, end: Location) -> u64 {
    assert!(
        end.group >= start.group,
        "a filter ends in or behind its first group"
    );
    end.group - start.group
}
