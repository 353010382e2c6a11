//! Subgroup streams: a header and the objects after it [moqt-18 §11.4.2].

use std::ops::Range;

use bytes::{BufMut, BytesMut};

use super::fields::{PROPERTIES_WITH_STATUS, read_properties, read_status, write_properties};
use crate::cursor::Cursor;
use crate::draft::{
    Draft, SUBGROUP_DEFAULT_PRIORITY, SUBGROUP_END_OF_GROUP, SUBGROUP_FIRST_OBJECT,
    SUBGROUP_ID_EXPLICIT, SUBGROUP_ID_FIRST_OBJECT, SUBGROUP_ID_MODE, SUBGROUP_ID_ZERO,
    SUBGROUP_PROPERTIES,
};
use crate::error::DecodeError;
use crate::kinds::{ObjectStatus, StreamKind};
use crate::property::Properties;
use crate::varint;

/// The header of a subgroup stream, including the stream type.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SubgroupHeader {
    /// The Track Alias.
    pub track_alias: u64,
    /// The group ID of all objects on the stream.
    pub group: u64,
    /// The subgroup ID of all objects on the stream.
    pub subgroup: SubgroupId,
    /// The publisher priority of all objects; `None` for the track's default. Lower is sent first.
    pub priority: Option<u8>,
    /// Whether objects can have properties; if not, the encoding of each object is one byte shorter.
    pub has_properties: bool,
    /// Whether the subgroup contains the largest object of the group, which is then the last one before the FIN.
    pub end_of_group: bool,
    /// Whether the first object on the stream is the first one published in the subgroup.
    pub first_object: bool,
}

/// How a subgroup header gives the subgroup ID.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SubgroupId {
    /// The subgroup ID is 0.
    Zero,
    /// The subgroup ID is the ID of the first object on the stream.
    FirstObject,
    /// The subgroup ID is a field.
    Explicit(u64),
}

impl SubgroupId {
    /// Returns the subgroup ID, given the ID of the first object on the stream.
    pub const fn resolve(self, first_object: u64) -> u64 {
        match self {
            Self::Zero => 0,
            Self::FirstObject => first_object,
            Self::Explicit(id) => id,
        }
    }
}

impl SubgroupHeader {
    /// Reads the header at the cursor.
    pub(crate) fn read(draft: Draft, cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let stream_type = cursor.varint()?;
        let (Some(StreamKind::Subgroup), Ok(flags)) =
            (draft.stream_kind(stream_type), u8::try_from(stream_type))
        else {
            return Err(DecodeError::protocol("the stream is not a subgroup stream"));
        };
        Ok(Self {
            track_alias: cursor.varint()?,
            group: cursor.varint()?,
            subgroup: match flags & SUBGROUP_ID_MODE {
                SUBGROUP_ID_ZERO => SubgroupId::Zero,
                SUBGROUP_ID_FIRST_OBJECT => SubgroupId::FirstObject,
                _ => SubgroupId::Explicit(cursor.varint()?),
            },
            priority: if flags & SUBGROUP_DEFAULT_PRIORITY == 0 {
                Some(cursor.uint8()?)
            } else {
                None
            },
            has_properties: flags & SUBGROUP_PROPERTIES != 0,
            end_of_group: flags & SUBGROUP_END_OF_GROUP != 0,
            first_object: flags & SUBGROUP_FIRST_OBJECT != 0,
        })
    }

    /// Appends the header.
    pub fn encode(&self, draft: Draft, out: &mut BytesMut) {
        varint::encode(draft.subgroup_stream_type(self.flags()), out);
        varint::encode(self.track_alias, out);
        varint::encode(self.group, out);
        if let SubgroupId::Explicit(id) = self.subgroup {
            varint::encode(id, out);
        }
        if let Some(priority) = self.priority {
            out.put_u8(priority);
        }
    }

    const fn flags(&self) -> u8 {
        let mut flags = match self.subgroup {
            SubgroupId::Zero => SUBGROUP_ID_ZERO,
            SubgroupId::FirstObject => SUBGROUP_ID_FIRST_OBJECT,
            SubgroupId::Explicit(_) => SUBGROUP_ID_EXPLICIT,
        };
        if self.priority.is_none() {
            flags |= SUBGROUP_DEFAULT_PRIORITY;
        }
        if self.has_properties {
            flags |= SUBGROUP_PROPERTIES;
        }
        if self.end_of_group {
            flags |= SUBGROUP_END_OF_GROUP;
        }
        if self.first_object {
            flags |= SUBGROUP_FIRST_OBJECT;
        }
        flags
    }
}

/// The header of an object on a subgroup stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectHeader {
    /// The object ID within the group.
    pub id: u64,
    /// The object's properties; only normal objects have any.
    pub properties: Properties,
    /// The object status.
    pub status: ObjectStatus,
    /// Length of the payload that follows, in bytes; 0 unless the status is normal.
    pub payload_len: u64,
}

impl ObjectHeader {
    /// Appends the fields before the payload, and returns the range of the properties in `out`. `previous` is the ID of
    /// the previous object on the stream, `has_properties` is that of the stream's header.
    ///
    /// # Panics
    /// If the ID is not larger than `previous`, or if the object has fields that its stream or its status forbids.
    pub fn encode_in_subgroup(
        &self,
        previous: Option<u64>,
        has_properties: bool,
        draft: Draft,
        out: &mut BytesMut,
    ) -> Range<usize> {
        let is_normal = self.status == ObjectStatus::Normal;
        assert!(
            has_properties || self.properties.is_empty(),
            "the stream carries no properties"
        );
        assert!(
            is_normal || self.properties.is_empty(),
            "only normal objects have properties"
        );
        assert!(
            is_normal || self.payload_len == 0,
            "only normal objects have a payload"
        );
        let delta = match previous {
            None => self.id,
            Some(previous) => {
                assert!(self.id > previous, "object IDs grow along a stream");
                self.id - previous - 1
            }
        };
        varint::encode(delta, out);
        if has_properties {
            write_properties(&self.properties, out);
        }
        let end = out.len();
        varint::encode(self.payload_len, out);
        if self.payload_len == 0 {
            varint::encode(draft.object_status_code(self.status), out);
        }
        end - self.properties.as_bytes().len()..end
    }

    /// Reads the fields before the payload; the inverse of [`ObjectHeader::encode_in_subgroup`].
    #[inline]
    pub(crate) fn read_in_subgroup(
        previous: Option<u64>,
        has_properties: bool,
        draft: Draft,
        cursor: &mut Cursor<'_>,
    ) -> Result<Self, DecodeError> {
        let delta = cursor.varint()?;
        let id = match previous {
            None => delta,
            Some(previous) => previous
                .checked_add(1)
                .and_then(|next| next.checked_add(delta))
                .ok_or(DecodeError::protocol("an object ID is above 2^64 - 1"))?,
        };
        let properties = if has_properties {
            read_properties(cursor)?
        } else {
            Properties::EMPTY
        };
        let payload_len = cursor.varint()?;
        let status = if payload_len == 0 {
            read_status(draft, cursor)?
        } else {
            ObjectStatus::Normal
        };
        if status != ObjectStatus::Normal && !properties.is_empty() {
            return Err(PROPERTIES_WITH_STATUS);
        }
        Ok(Self {
            id,
            properties,
            status,
            payload_len,
        })
    }
}
