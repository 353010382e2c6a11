//! Fetch streams: a header, and objects that omit the fields that they share with the object before [moqt-18 §11.4.4].

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::fields::{read_properties, write_properties};
use crate::cursor::Cursor;
use crate::draft::{
    Draft, FETCH_DATAGRAM, FETCH_GROUP_ID, FETCH_OBJECT_ID, FETCH_PRIORITY, FETCH_PROPERTIES,
    FETCH_SUBGROUP_EXPLICIT, FETCH_SUBGROUP_MODE, FETCH_SUBGROUP_NEXT, FETCH_SUBGROUP_PRIOR,
    FETCH_SUBGROUP_ZERO, FetchFlags,
};
use crate::error::DecodeError;
use crate::kinds::{RangeEnd, StreamKind};
use crate::location::Location;
use crate::parameter::{GroupOrder, read_location, write_location};
use crate::property::Properties;
use crate::session::RequestId;
use crate::varint;

/// The header of a fetch stream, including the stream type.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FetchHeader {
    /// The Request ID of the FETCH. That of a fill is encoded as the ID of the message that requested it.
    pub request_id: u64,
}

impl FetchHeader {
    /// Reads the header at the cursor.
    pub(crate) fn read(draft: Draft, cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        if draft.stream_kind(cursor.varint()?) != Some(StreamKind::Fetch) {
            return Err(DecodeError::protocol("the stream is not a fetch stream"));
        }
        Ok(Self {
            request_id: cursor.varint()?,
        })
    }

    /// Appends the header.
    pub fn encode(&self, draft: Draft, out: &mut BytesMut) {
        varint::encode(draft.fetch_stream_type(), out);
        let request = RequestId(self.request_id);
        let request_id = if draft.has_joining_fetches() {
            request.0
        } else {
            request.without_fill()
        };
        varint::encode(request_id, out);
    }
}

/// One entry of a fetch stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchEntry {
    /// An object; its payload follows.
    Object(FetchObject),
    /// No object between the previous entry and `location`, inclusive, follows; the entry has no payload
    /// [moqt-18 §11.4.4.2].
    EndOfRange {
        /// Why no objects follow.
        reason: RangeEnd,
        /// The last location of the range.
        location: Location,
    },
}

/// The header of an object on a fetch stream. It has no status: only objects that exist are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchObject {
    /// The group ID.
    pub group: u64,
    /// The subgroup ID; `None` for an object that was sent as a datagram.
    pub subgroup: Option<u64>,
    /// The object ID within the group.
    pub object: u64,
    /// The publisher priority. Lower is sent first.
    pub priority: u8,
    /// The object's properties.
    pub properties: Properties,
    /// Length of the payload that follows, in bytes.
    pub payload_len: u64,
}

/// The fields that the next entry of a fetch stream may refer to.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Prior {
    /// The location of the last entry, whether an object or the end of a range.
    location: Option<Location>,
    /// The priority of the last object.
    priority: Option<u8>,
    /// The subgroup of the last object; `None` if the object was sent as a datagram.
    subgroup: Option<u64>,
}

impl Prior {
    /// Moves on to `entry`. The end of a range changes the location only [moqt-18 §11.4.4.2].
    const fn advance(&mut self, entry: &FetchEntry) {
        match entry {
            FetchEntry::Object(object) => {
                self.location = Some(Location {
                    group: object.group,
                    object: object.object,
                });
                self.priority = Some(object.priority);
                self.subgroup = object.subgroup;
            }
            FetchEntry::EndOfRange { location, .. } => self.location = Some(*location),
        }
    }
}

/// A decoder of the entries of one fetch stream, which keeps the fields of the previous entry.
#[derive(Clone, Debug)]
pub struct FetchDecoder {
    draft: Draft,
    order: GroupOrder,
    prior: Prior,
}

impl FetchDecoder {
    /// Creates a decoder for the entries after the stream header, with groups in this order.
    pub fn new(draft: Draft, order: GroupOrder) -> Self {
        Self {
            draft,
            order,
            prior: Prior::default(),
        }
    }

    /// Decodes an entry from the front of `data`, up to its payload. On an error, `data` is unchanged.
    pub fn decode(&mut self, data: &mut Bytes) -> Result<FetchEntry, DecodeError> {
        let mut cursor = Cursor::new(data);
        let entry = self.read(&mut cursor)?;
        let used = cursor.at();
        data.advance(used);
        Ok(entry)
    }

    /// Reads an entry; on an error, nothing changes.
    pub(crate) fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<FetchEntry, DecodeError> {
        let entry = match self.draft.fetch_flags(cursor.varint()?) {
            Some(FetchFlags::Object(flags)) => FetchEntry::Object(self.read_object(flags, cursor)?),
            // The location is absolute and no payload length follows: the draft calls the fields "Group ID and Object
            // ID". A group delta could not express the group of the previous object, and implementations agree (issue
            // 1861 of the draft's repository).
            Some(FetchFlags::End(reason)) => FetchEntry::EndOfRange {
                reason,
                location: read_location(cursor)?,
            },
            None => return Err(DecodeError::protocol("unknown serialization flags")),
        };
        self.prior.advance(&entry);
        Ok(entry)
    }

    fn read_object(&self, flags: u8, cursor: &mut Cursor<'_>) -> Result<FetchObject, DecodeError> {
        let group = self.read_group(flags, cursor)?;
        let subgroup = self.read_subgroup(flags, cursor)?;
        let object = self.read_object_id(flags, cursor)?;
        let priority = if flags & FETCH_PRIORITY == 0 {
            self.prior.priority.ok_or(NO_PRIOR)?
        } else {
            cursor.uint8()?
        };
        let properties = if flags & FETCH_PROPERTIES == 0 {
            Properties::EMPTY
        } else {
            read_properties(cursor)?
        };
        let payload_len = cursor.varint()?;
        Ok(FetchObject {
            group,
            subgroup,
            object,
            priority,
            properties,
            payload_len,
        })
    }

    fn read_group(&self, flags: u8, cursor: &mut Cursor<'_>) -> Result<u64, DecodeError> {
        if flags & FETCH_GROUP_ID == 0 {
            return Ok(self.prior.location.ok_or(NO_PRIOR)?.group);
        }
        let delta = cursor.varint()?;
        let Some(prior) = self.prior.location else {
            return Ok(delta);
        };
        let group = match self.order {
            GroupOrder::Ascending => prior
                .group
                .checked_add(1)
                .and_then(|g| g.checked_add(delta)),
            GroupOrder::Descending => prior
                .group
                .checked_sub(1)
                .and_then(|g| g.checked_sub(delta)),
        };
        group.ok_or(DecodeError::protocol(
            "a group ID is below 0 or above 2^64 - 1",
        ))
    }

    fn read_subgroup(
        &self,
        flags: u8,
        cursor: &mut Cursor<'_>,
    ) -> Result<Option<u64>, DecodeError> {
        if flags & FETCH_DATAGRAM != 0 {
            return Ok(None);
        }
        let prior = || self.prior.subgroup.ok_or(NO_PRIOR);
        Ok(Some(match flags & FETCH_SUBGROUP_MODE {
            FETCH_SUBGROUP_ZERO => 0,
            FETCH_SUBGROUP_PRIOR => prior()?,
            FETCH_SUBGROUP_NEXT => prior()?
                .checked_add(1)
                .ok_or(DecodeError::protocol("a subgroup ID is above 2^64 - 1"))?,
            _ => cursor.varint()?,
        }))
    }

    fn read_object_id(&self, flags: u8, cursor: &mut Cursor<'_>) -> Result<u64, DecodeError> {
        const ABOVE: DecodeError = DecodeError::protocol("an object ID is above 2^64 - 1");
        if flags & FETCH_OBJECT_ID == 0 {
            return self
                .prior
                .location
                .ok_or(NO_PRIOR)?
                .object
                .checked_add(1)
                .ok_or(ABOVE);
        }
        let delta = cursor.varint()?;
        if flags & FETCH_GROUP_ID != 0 {
            return Ok(delta);
        }
        self.prior
            .location
            .ok_or(NO_PRIOR)?
            .object
            .checked_add(delta)
            .ok_or(ABOVE)
    }
}

/// A reference to an object before the first one, or to the subgroup of an object sent as a datagram, which has none
/// [moqt-18 §11.4.4.1].
const NO_PRIOR: DecodeError =
    DecodeError::protocol("an object of a fetch refers to a prior object that does not exist");

/// An encoder of the entries of one fetch stream, which omits the fields that the previous entry implies.
#[derive(Clone, Debug)]
pub struct FetchEncoder {
    draft: Draft,
    order: GroupOrder,
    prior: Prior,
}

impl FetchEncoder {
    /// Creates an encoder for the entries after the stream header, with groups in this order.
    pub fn new(draft: Draft, order: GroupOrder) -> Self {
        Self {
            draft,
            order,
            prior: Prior::default(),
        }
    }

    /// Appends an entry, up to its payload.
    ///
    /// # Panics
    /// If an object's group or its object ID is against the order of the stream.
    pub fn encode(&mut self, entry: &FetchEntry, out: &mut BytesMut) {
        match entry {
            FetchEntry::Object(object) => self.encode_object(object, out),
            FetchEntry::EndOfRange { reason, location } => {
                varint::encode(self.draft.fetch_end_of_range(*reason), out);
                write_location(*location, out);
            }
        }
        self.prior.advance(entry);
    }

    fn encode_object(&self, object: &FetchObject, out: &mut BytesMut) {
        let group_delta = self.group_delta(object.group);
        let object_delta = self.object_delta(object, group_delta.is_some());
        let subgroup_mode = self.subgroup_mode(object.subgroup);
        let has_priority = self.prior.priority != Some(object.priority);

        let mut flags = subgroup_mode;
        for (bit, is_set) in [
            (FETCH_GROUP_ID, group_delta.is_some()),
            (FETCH_OBJECT_ID, object_delta.is_some()),
            (FETCH_PRIORITY, has_priority),
            (FETCH_PROPERTIES, !object.properties.is_empty()),
        ] {
            if is_set {
                flags |= bit;
            }
        }

        varint::encode(u64::from(flags), out);
        if let Some(delta) = group_delta {
            varint::encode(delta, out);
        }
        if let (FETCH_SUBGROUP_EXPLICIT, Some(subgroup)) = (subgroup_mode, object.subgroup) {
            varint::encode(subgroup, out);
        }
        if let Some(delta) = object_delta {
            varint::encode(delta, out);
        }
        if has_priority {
            out.put_u8(object.priority);
        }
        if !object.properties.is_empty() {
            write_properties(&object.properties, out);
        }
        varint::encode(object.payload_len, out);
    }

    /// Returns the group delta to write; `None` if the field is omitted.
    fn group_delta(&self, group: u64) -> Option<u64> {
        let Some(prior) = self.prior.location else {
            return Some(group);
        };
        if group == prior.group {
            return None;
        }
        let is_in_order = match self.order {
            GroupOrder::Ascending => group > prior.group,
            GroupOrder::Descending => group < prior.group,
        };
        assert!(is_in_order, "the groups of a fetch follow its order");
        Some(group.abs_diff(prior.group) - 1)
    }

    /// Returns the object ID delta to write; `None` if the field is omitted. In a new group the field is always
    /// written, although the draft permits its omission if the ID is one more than that of the previous object.
    fn object_delta(&self, object: &FetchObject, is_new_group: bool) -> Option<u64> {
        let Some(prior) = self.prior.location.filter(|_| !is_new_group) else {
            return Some(object.object);
        };
        // Equal IDs make a track malformed, but a peer can send them, and forwarding must not panic.
        assert!(
            object.object >= prior.object,
            "object IDs grow along a group"
        );
        Some(object.object - prior.object).filter(|delta| *delta != 1)
    }

    fn subgroup_mode(&self, subgroup: Option<u64>) -> u8 {
        let Some(subgroup) = subgroup else {
            return FETCH_DATAGRAM;
        };
        if subgroup == 0 {
            return FETCH_SUBGROUP_ZERO;
        }
        match self.prior.subgroup {
            Some(prior) if prior == subgroup => FETCH_SUBGROUP_PRIOR,
            Some(prior) if prior == subgroup - 1 => FETCH_SUBGROUP_NEXT,
            Some(_) | None => FETCH_SUBGROUP_EXPLICIT,
        }
    }
}
