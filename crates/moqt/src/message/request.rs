//! Messages that start or update a request.

use bytes::BytesMut;

use super::fields::Field;
use super::{Fetch, FetchKind, RequestKind, RequestUpdate};
use crate::cursor::Cursor;
use crate::draft::Draft;
use crate::error::{DecodeError, Violation};
use crate::location::Location;
use crate::name::FullTrackName;
use crate::parameter::{Filter, Parameters, Step, read_location, write_location};
use crate::scope::Scopes;
use crate::varint;

const STANDALONE: u64 = 1;
const RELATIVE_JOINING: u64 = 2;
const ABSOLUTE_JOINING: u64 = 3;

/// Until draft-19, the kind of fetch is a field and has its fields [moqt-18 §10.12]. Later there is one kind, whose range
/// is a parameter [moqt-22 §9.11].
impl Field for Fetch {
    fn read(draft: Draft, scopes: Scopes, cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let request_id = cursor.varint()?;
        if draft.has_joining_fetches() {
            return Ok(Self {
                request_id,
                kind: FetchKind::read_typed(draft, cursor)?,
                parameters: Field::read(draft, scopes, cursor)?,
            });
        }
        let track = FullTrackName::decode(cursor)?;
        let mut parameters: Parameters = Field::read(draft, scopes, cursor)?;
        let filter = parameters.filter.take().unwrap_or(Filter::EVERYTHING);
        Ok(Self {
            request_id,
            kind: FetchKind::from_filter(track, filter),
            parameters,
        })
    }

    fn write(&self, draft: Draft, out: &mut BytesMut) {
        varint::encode(self.request_id, out);
        if draft.has_joining_fetches() {
            self.kind.write_typed(draft, out);
            return self.parameters.write(draft, out);
        }
        let Some((track, filter)) = self.kind.as_filter() else {
            unreachable!("checked before a message is encoded");
        };
        track.encode(out);
        let parameters = Parameters {
            filter: Some(filter).filter(|filter| *filter != Filter::EVERYTHING),
            ..self.parameters.clone()
        };
        parameters.write(draft, out);
    }
}

impl FetchKind {
    /// Returns what a draft lacks to express the kind, if it does.
    pub(super) fn missing_in(&self, draft: Draft) -> Option<&'static str> {
        match (self, draft.has_joining_fetches()) {
            (Self::Recent { .. }, true) => Some("FETCH of the most recent groups"),
            (Self::AbsoluteJoining { start, end, .. }, true)
                if start.object != 0 || *end != Location::MAX =>
            {
                Some("joining FETCH that starts or ends within a group")
            }
            (Self::RelativeJoining { .. } | Self::AbsoluteJoining { .. }, false) => {
                Some("joining FETCH")
            }
            (_, _) => None,
        }
    }

    /// Returns the fetch of the objects of a track that pass a filter. What is newer than the largest object cannot be
    /// fetched, and becomes the last location that there can be: a range that no publisher can serve.
    fn from_filter(track: FullTrackName, filter: Filter) -> Self {
        let (start, end) = match filter {
            Filter::Recent { groups } => return Self::Recent { track, groups },
            Filter::NextGroupStart | Filter::LargestObject => (Location::MAX, Location::MAX),
            Filter::AbsoluteStart(_) | Filter::AbsoluteRange { .. } => filter.range(None),
        };
        Self::Standalone { track, start, end }
    }

    /// Returns the track and the filter that the fetch is in later drafts; `None` for a joining fetch.
    fn as_filter(&self) -> Option<(&FullTrackName, Filter)> {
        match self {
            Self::Standalone { track, start, end } if *end == Location::MAX => {
                Some((track, Filter::AbsoluteStart(*start)))
            }
            Self::Standalone { track, start, end } => {
                let (start, end) = (*start, *end);
                Some((track, Filter::AbsoluteRange { start, end }))
            }
            Self::Recent { track, groups } => Some((track, Filter::Recent { groups: *groups })),
            Self::RelativeJoining { .. } | Self::AbsoluteJoining { .. } => None,
        }
    }

    fn read_typed(draft: Draft, cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        match cursor.varint()? {
            STANDALONE => Ok(Self::Standalone {
                track: FullTrackName::decode(cursor)?,
                start: read_location(cursor)?,
                end: read_end(draft, cursor)?,
            }),
            RELATIVE_JOINING => Ok(Self::RelativeJoining {
                request_id: cursor.varint()?,
                groups: cursor.varint()?,
            }),
            ABSOLUTE_JOINING => Ok(Self::AbsoluteJoining {
                request_id: cursor.varint()?,
                start: Location::new(cursor.varint()?, 0),
                end: Location::MAX,
            }),
            _ => Err(DecodeError::protocol("unknown fetch type")),
        }
    }

    fn write_typed(&self, draft: Draft, out: &mut BytesMut) {
        match self {
            Self::Standalone { track, start, end } => {
                varint::encode(STANDALONE, out);
                track.encode(out);
                write_location(*start, out);
                write_end(draft, *end, out);
            }
            Self::RelativeJoining { request_id, groups } => {
                varint::encode(RELATIVE_JOINING, out);
                varint::encode(*request_id, out);
                varint::encode(*groups, out);
            }
            Self::AbsoluteJoining {
                request_id, start, ..
            } => {
                varint::encode(ABSOLUTE_JOINING, out);
                varint::encode(*request_id, out);
                varint::encode(start.group, out);
            }
            Self::Recent { .. } => unreachable!("checked before a message is encoded"),
        }
    }
}

/// Reads the end of a range. Until draft-19, its encoded object ID is one larger, with 0 for the whole group
/// [moqt-18 §10.12.1]. Wrapping turns 0 into `u64::MAX`, the largest object ID.
pub(super) fn read_end(draft: Draft, cursor: &mut Cursor<'_>) -> Result<Location, DecodeError> {
    let Location { group, object } = read_location(cursor)?;
    Ok(Location {
        group,
        object: object.wrapping_sub(u64::from(draft.has_exclusive_ends())),
    })
}

/// Appends the end of a range; the inverse of [`read_end`].
pub(super) fn write_end(draft: Draft, end: Location, out: &mut BytesMut) {
    let Location { group, object } = end;
    let object = object.wrapping_add(u64::from(draft.has_exclusive_ends()));
    write_location(Location { group, object }, out);
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
