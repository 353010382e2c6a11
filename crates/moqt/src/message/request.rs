//! Messages that start or update a request.

use bytes::BytesMut;

use super::fields::Field;
use super::{FetchKind, RequestKind, RequestUpdate};
use crate::cursor::Cursor;
use crate::draft::Draft;
use crate::error::{DecodeError, Violation};
use crate::location::Location;
use crate::name::FullTrackName;
use crate::parameter::{Step, read_location, write_location};
use crate::scope::Scopes;
use crate::varint;

const STANDALONE: u64 = 1;
const RELATIVE_JOINING: u64 = 2;
const ABSOLUTE_JOINING: u64 = 3;

impl Field for FetchKind {
    fn read(_: Draft, _: Scopes, cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        match cursor.varint()? {
            STANDALONE => Ok(Self::Standalone {
                track: FullTrackName::decode(cursor)?,
                start: read_location(cursor)?,
                end: read_end(cursor)?,
            }),
            RELATIVE_JOINING => Ok(Self::RelativeJoining {
                request_id: cursor.varint()?,
                groups: cursor.varint()?,
            }),
            ABSOLUTE_JOINING => Ok(Self::AbsoluteJoining {
                request_id: cursor.varint()?,
                group: cursor.varint()?,
            }),
            _ => Err(DecodeError::protocol("unknown fetch type")),
        }
    }

    fn write(&self, _: Draft, out: &mut BytesMut) {
        match self {
            Self::Standalone { track, start, end } => {
                varint::encode(STANDALONE, out);
                track.encode(out);
                write_location(*start, out);
                write_end(*end, out);
            }
            Self::RelativeJoining { request_id, groups } => {
                varint::encode(RELATIVE_JOINING, out);
                varint::encode(*request_id, out);
                varint::encode(*groups, out);
            }
            Self::AbsoluteJoining { request_id, group } => {
                varint::encode(ABSOLUTE_JOINING, out);
                varint::encode(*request_id, out);
                varint::encode(*group, out);
            }
        }
    }
}

/// Reads the end of a range. Its encoded object ID is one larger, with 0 for the whole group [moqt-18 §10.12.1].
/// Wrapping turns 0 into `u64::MAX`, the largest object ID.
pub(super) fn read_end(cursor: &mut Cursor<'_>) -> Result<Location, DecodeError> {
    let Location { group, object } = read_location(cursor)?;
    Ok(Location {
        group,
        object: object.wrapping_sub(1),
    })
}

/// Appends the end of a range; the inverse of [`read_end`].
pub(super) fn write_end(end: Location, out: &mut BytesMut) {
    write_location(
        Location {
            group: end.group,
            object: end.object.wrapping_add(1),
        },
        out,
    );
}

impl RequestUpdate {
    /// Checks that the parameters may occur in an update of a request of `kind`, and that such a request can be updated
    /// [moqt-18 §10.9, §10.14].
    pub fn check(&self, draft: Draft, kind: RequestKind) -> Result<(), Violation> {
        if kind == RequestKind::TrackStatus {
            return Err(Violation::protocol("TRACK_STATUS cannot be updated"));
        }
        self.parameters.check(draft, kind, Step::Update)
    }
}
