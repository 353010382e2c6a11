//! What data streams and datagrams carry: headers of subgroups, objects, datagrams and fetches [moqt-18 §11].
//!
//! Encoders write a header; the payload is the caller's to append, so that one payload can follow many headers. Streams
//! are decoded by the readers of [`crate::reader`], datagrams here. Neither allocates for an object.

mod datagram;
mod fetch;
mod subgroup;

use bytes::{Bytes, BytesMut};

pub use self::datagram::ObjectDatagram;
pub use self::fetch::{FetchDecoder, FetchEncoder, FetchEntry, FetchHeader, FetchObject};
pub use self::subgroup::{ObjectHeader, SubgroupHeader, SubgroupId};
use crate::cursor::Cursor;
use crate::draft::Draft;
use crate::error::DecodeError;
use crate::property::Properties;
use crate::varint;

/// What an object is, besides its payload [moqt-18 §11.2.1.1].
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum ObjectStatus {
    /// An object with a payload, which may be empty.
    #[default]
    Normal,
    /// No object with this ID or a larger one exists in the group.
    EndOfGroup,
    /// No object at this location or a larger one exists in the track.
    EndOfTrack,
}

/// What a unidirectional stream carries, as its first field says [moqt-18 §3.4].
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum StreamKind {
    /// Control messages, beginning with SETUP. The type is the one of SETUP itself, not a field before it.
    Control,
    /// The objects of a subgroup.
    Subgroup,
    /// The objects of a fetch.
    Fetch,
    /// Bytes to discard.
    Padding,
}

impl StreamKind {
    /// What the stream that starts with the bytes of `start` carries. Needs 9 bytes at most, and leaves them where they
    /// are, for the type is part of what the stream's reader reads.
    pub fn recognise(draft: Draft, start: &[u8]) -> Result<Self, DecodeError> {
        let (stream_type, _) = varint::decode(start).ok_or(DecodeError::Short)?;
        draft
            .stream_kind(stream_type)
            .ok_or(DecodeError::protocol("unknown stream type"))
    }
}

/// Writes the start of a stream of padding; any number of zero bytes may follow [moqt-18 §11.5.1].
pub fn encode_padding_stream(draft: Draft, out: &mut BytesMut) {
    varint::encode(draft.padding_stream_type(), out);
}

/// Writes the start of a datagram of padding; any number of zero bytes may follow [moqt-18 §11.5.2].
pub fn encode_padding_datagram(draft: Draft, out: &mut BytesMut) {
    varint::encode(draft.padding_datagram_type(), out);
}

/// Reads properties behind their length [moqt-18 §11.2.1.2].
#[inline]
fn read_properties(cursor: &mut Cursor<'_>) -> Result<Properties, DecodeError> {
    match cursor.varint()? {
        0 => Ok(Properties::EMPTY),
        len => Properties::decode(cursor.take(len)?),
    }
}

fn write_properties(properties: &Properties, out: &mut BytesMut) {
    let encoded: &Bytes = properties.as_bytes();
    varint::encode(encoded.len() as u64, out);
    out.extend_from_slice(encoded);
}

fn read_status(draft: Draft, cursor: &mut Cursor<'_>) -> Result<ObjectStatus, DecodeError> {
    draft
        .object_status(cursor.varint()?)
        .ok_or(DecodeError::protocol("unknown object status"))
}

/// Objects of any status but normal have neither properties nor payload.
const PROPERTIES_WITH_STATUS: DecodeError =
    DecodeError::protocol("an object that is not normal has properties");
