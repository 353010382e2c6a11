//! The messages that start or change a request.

use bytes::BytesMut;

use super::{
    Fetch, FetchKind, Publish, PublishNamespace, RequestKind, RequestUpdate, Subscribe,
    SubscribeNamespace, SubscribeTracks, TrackStatus, read_track_properties,
};
use crate::cursor::Cursor;
use crate::draft::Draft;
use crate::error::{DecodeError, Violation};
use crate::location::Location;
use crate::name::{FullTrackName, Namespace};
use crate::parameter::{Parameters, Step, read_location, write_location};
use crate::scope::Scopes;
use crate::varint;

const STANDALONE: u64 = 1;
const RELATIVE_JOINING: u64 = 2;
const ABSOLUTE_JOINING: u64 = 3;

/// Reads the parameters of the message that starts a request of `kind`.
fn read_parameters(
    draft: Draft,
    kind: RequestKind,
    cursor: &mut Cursor<'_>,
) -> Result<Parameters, DecodeError> {
    Parameters::decode(draft, Scopes::of(kind, Step::Request), cursor)
}

impl Subscribe {
    pub(super) fn decode(draft: Draft, cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            request_id: cursor.varint()?,
            track: FullTrackName::decode(cursor)?,
            parameters: read_parameters(draft, RequestKind::Subscribe, cursor)?,
        })
    }

    pub(super) fn encode(&self, draft: Draft, out: &mut BytesMut) {
        varint::encode(self.request_id, out);
        self.track.encode(out);
        self.parameters.encode(draft, out);
    }
}

impl Publish {
    pub(super) fn decode(draft: Draft, cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            request_id: cursor.varint()?,
            track: FullTrackName::decode(cursor)?,
            track_alias: cursor.varint()?,
            parameters: read_parameters(draft, RequestKind::Publish, cursor)?,
            properties: read_track_properties(cursor)?,
        })
    }

    pub(super) fn encode(&self, draft: Draft, out: &mut BytesMut) {
        varint::encode(self.request_id, out);
        self.track.encode(out);
        varint::encode(self.track_alias, out);
        self.parameters.encode(draft, out);
        out.extend_from_slice(self.properties.as_bytes());
    }
}

impl Fetch {
    pub(super) fn decode(draft: Draft, cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            request_id: cursor.varint()?,
            kind: FetchKind::decode(cursor)?,
            parameters: read_parameters(draft, RequestKind::Fetch, cursor)?,
        })
    }

    pub(super) fn encode(&self, draft: Draft, out: &mut BytesMut) {
        varint::encode(self.request_id, out);
        self.kind.encode(out);
        self.parameters.encode(draft, out);
    }
}

impl FetchKind {
    fn decode(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
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
            _ => Err(DecodeError::protocol("FETCH is of an unknown type")),
        }
    }

    fn encode(&self, out: &mut BytesMut) {
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

/// Reads the end of a range, whose object is one too large on the wire, with 0 for the whole group
/// [moqt-18 §10.12.1]. Wrapping makes the whole group `u64::MAX`, the last object a group could have.
pub(super) fn read_end(cursor: &mut Cursor<'_>) -> Result<Location, DecodeError> {
    let Location { group, object } = read_location(cursor)?;
    Ok(Location {
        group,
        object: object.wrapping_sub(1),
    })
}

/// Writes the end of a range; the inverse of [`read_end`].
pub(super) fn write_end(end: Location, out: &mut BytesMut) {
    write_location(
        Location {
            group: end.group,
            object: end.object.wrapping_add(1),
        },
        out,
    );
}

impl TrackStatus {
    pub(super) fn decode(draft: Draft, cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            request_id: cursor.varint()?,
            track: FullTrackName::decode(cursor)?,
            parameters: read_parameters(draft, RequestKind::TrackStatus, cursor)?,
        })
    }

    pub(super) fn encode(&self, draft: Draft, out: &mut BytesMut) {
        varint::encode(self.request_id, out);
        self.track.encode(out);
        self.parameters.encode(draft, out);
    }
}

impl PublishNamespace {
    pub(super) fn decode(draft: Draft, cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            request_id: cursor.varint()?,
            namespace: Namespace::decode(cursor)?,
            parameters: read_parameters(draft, RequestKind::PublishNamespace, cursor)?,
        })
    }

    pub(super) fn encode(&self, draft: Draft, out: &mut BytesMut) {
        varint::encode(self.request_id, out);
        self.namespace.encode(out);
        self.parameters.encode(draft, out);
    }
}

impl SubscribeNamespace {
    pub(super) fn decode(draft: Draft, cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            request_id: cursor.varint()?,
            prefix: Namespace::decode(cursor)?,
            parameters: read_parameters(draft, RequestKind::SubscribeNamespace, cursor)?,
        })
    }

    pub(super) fn encode(&self, draft: Draft, out: &mut BytesMut) {
        varint::encode(self.request_id, out);
        self.prefix.encode(out);
        self.parameters.encode(draft, out);
    }
}

impl SubscribeTracks {
    pub(super) fn decode(draft: Draft, cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            request_id: cursor.varint()?,
            prefix: Namespace::decode(cursor)?,
            parameters: read_parameters(draft, RequestKind::SubscribeTracks, cursor)?,
        })
    }

    pub(super) fn encode(&self, draft: Draft, out: &mut BytesMut) {
        varint::encode(self.request_id, out);
        self.prefix.encode(out);
        self.parameters.encode(draft, out);
    }
}

impl RequestUpdate {
    /// Checks what decoding could not: that the parameters may stand in an update of a request of `kind`, and that such
    /// a request can be updated at all [moqt-18 §10.9, §10.14].
    pub fn check(&self, draft: Draft, kind: RequestKind) -> Result<(), Violation> {
        if kind == RequestKind::TrackStatus {
            return Err(Violation::protocol("TRACK_STATUS cannot be updated"));
        }
        self.parameters.check(draft, kind, Step::Update)
    }

    pub(super) fn decode(draft: Draft, cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let scopes = Scopes::each(Step::Update, &RequestKind::ALL);
        Ok(Self {
            request_id: cursor.varint()?,
            parameters: Parameters::decode(draft, scopes, cursor)?,
        })
    }

    pub(super) fn encode(&self, draft: Draft, out: &mut BytesMut) {
        varint::encode(self.request_id, out);
        self.parameters.encode(draft, out);
    }
}
