//! Object datagrams [moqt-18 §11.3.1].

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::fields::{PROPERTIES_WITH_STATUS, read_properties, read_status, write_properties};
use crate::cursor::Cursor;
use crate::draft::{
    DATAGRAM_DEFAULT_PRIORITY, DATAGRAM_END_OF_GROUP, DATAGRAM_PROPERTIES, DATAGRAM_STATUS,
    DATAGRAM_ZERO_OBJECT_ID, Draft,
};
use crate::error::DecodeError;
use crate::kinds::ObjectStatus;
use crate::property::Properties;
use crate::varint;

/// An object in a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectDatagram {
    /// The Track Alias.
    pub track_alias: u64,
    /// The group ID.
    pub group: u64,
    /// The object ID within the group.
    pub object: u64,
    /// The publisher priority; `None` for the track's default. Lower is sent first.
    pub priority: Option<u8>,
    /// Whether no object with a larger ID exists in the group; only for normal objects.
    pub end_of_group: bool,
    /// The object's properties; only normal objects have any.
    pub properties: Properties,
    /// The object status.
    pub status: ObjectStatus,
    /// The payload; empty unless the status is normal.
    pub payload: Bytes,
}

impl ObjectDatagram {
    /// Decodes the datagram `data`, sharing its buffer, without allocation. Returns `None` for padding, which is to be
    /// discarded.
    ///
    /// The error is never [`DecodeError::Short`]: a datagram that ends within its header is invalid.
    #[inline]
    pub fn decode(draft: Draft, mut data: Bytes) -> Result<Option<Self>, DecodeError> {
        let mut cursor = Cursor::new(&data);
        let header = match Header::read(draft, &mut cursor) {
            Ok(Some(header)) => header,
            Ok(None) => return Ok(None),
            Err(error) => return Err(never_short(error)),
        };
        let used = cursor.at();
        data.advance(used);
        if header.flags & DATAGRAM_STATUS != 0 && !data.is_empty() {
            return Err(DecodeError::protocol(
                "a datagram with a status has a payload",
            ));
        }
        Ok(Some(Self {
            track_alias: header.track_alias,
            group: header.group,
            object: header.object,
            priority: header.priority,
            end_of_group: header.flags & DATAGRAM_END_OF_GROUP != 0,
            properties: header.properties,
            status: header.status,
            payload: data,
        }))
    }

    /// Appends the whole datagram.
    ///
    /// # Panics
    /// If the object has fields that its status forbids.
    pub fn encode(&self, draft: Draft, out: &mut BytesMut) {
        self.encode_header(draft, out);
        out.extend_from_slice(&self.payload);
    }

    /// Appends everything before the payload.
    ///
    /// An empty payload is written as the status of a normal object, except at the end of a group, which a datagram
    /// with a status cannot express.
    ///
    /// # Panics
    /// If the object has fields that its status forbids.
    pub fn encode_header(&self, draft: Draft, out: &mut BytesMut) {
        let has_status = self.has_status();
        let flags = self.flags(has_status);
        varint::encode(u64::from(flags), out);
        varint::encode(self.track_alias, out);
        varint::encode(self.group, out);
        if self.object != 0 {
            varint::encode(self.object, out);
        }
        if let Some(priority) = self.priority {
            out.put_u8(priority);
        }
        if !self.properties.is_empty() {
            write_properties(&self.properties, out);
        }
        if has_status {
            varint::encode(draft.object_status_code(self.status), out);
        }
    }

    fn has_status(&self) -> bool {
        if self.status == ObjectStatus::Normal {
            return self.payload.is_empty() && !self.end_of_group;
        }
        assert!(
            self.properties.is_empty(),
            "only normal objects have properties"
        );
        assert!(
            self.payload.is_empty(),
            "only normal objects have a payload"
        );
        assert!(
            !self.end_of_group,
            "only normal objects announce the end of a group by a flag"
        );
        true
    }

    fn flags(&self, has_status: bool) -> u8 {
        let mut flags = 0;
        if !self.properties.is_empty() {
            flags |= DATAGRAM_PROPERTIES;
        }
        if self.end_of_group {
            flags |= DATAGRAM_END_OF_GROUP;
        }
        if self.object == 0 {
            flags |= DATAGRAM_ZERO_OBJECT_ID;
        }
        if self.priority.is_none() {
            flags |= DATAGRAM_DEFAULT_PRIORITY;
        }
        if has_status {
            flags |= DATAGRAM_STATUS;
        }
        flags
    }
}

/// The fields before the payload of an object.
struct Header {
    flags: u8,
    track_alias: u64,
    group: u64,
    object: u64,
    priority: Option<u8>,
    properties: Properties,
    status: ObjectStatus,
}

impl Header {
    /// Reads the header of an object; `None` if the datagram is padding.
    #[inline]
    fn read(draft: Draft, cursor: &mut Cursor<'_>) -> Result<Option<Self>, DecodeError> {
        let datagram_type = cursor.varint()?;
        let Some(flags) = draft.datagram_flags(datagram_type) else {
            return if datagram_type == draft.padding_datagram_type() {
                Ok(None)
            } else {
                Err(DecodeError::protocol("unknown datagram type"))
            };
        };
        let header = Self {
            flags,
            track_alias: cursor.varint()?,
            group: cursor.varint()?,
            object: if flags & DATAGRAM_ZERO_OBJECT_ID == 0 {
                cursor.varint()?
            } else {
                0
            },
            priority: if flags & DATAGRAM_DEFAULT_PRIORITY == 0 {
                Some(cursor.uint8()?)
            } else {
                None
            },
            properties: if flags & DATAGRAM_PROPERTIES == 0 {
                Properties::EMPTY
            } else {
                read_properties(cursor)?
            },
            status: if flags & DATAGRAM_STATUS == 0 {
                ObjectStatus::Normal
            } else {
                read_status(draft, cursor)?
            },
        };
        if flags & DATAGRAM_PROPERTIES != 0 {
            header.check_properties()?;
        }
        Ok(Some(header))
    }

    /// Checks that a datagram whose type announces properties has some.
    fn check_properties(&self) -> Result<(), DecodeError> {
        if self.properties.is_empty() {
            return Err(DecodeError::protocol(
                "a datagram announces properties and has none",
            ));
        }
        if self.status != ObjectStatus::Normal {
            return Err(PROPERTIES_WITH_STATUS);
        }
        Ok(())
    }
}

const fn never_short(error: DecodeError) -> DecodeError {
    match error {
        DecodeError::Short => DecodeError::protocol("a datagram ends within its header"),
        DecodeError::Invalid { .. } => error,
    }
}
