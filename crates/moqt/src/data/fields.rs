//! Fields that objects of all forms have in common: properties and status.

use bytes::{Bytes, BytesMut};

use crate::cursor::Cursor;
use crate::draft::Draft;
use crate::error::DecodeError;
use crate::kinds::ObjectStatus;
use crate::property::Properties;
use crate::varint;

/// Reads properties with their length [moqt-18 §11.2.1.2].
#[inline]
pub(super) fn read_properties(cursor: &mut Cursor<'_>) -> Result<Properties, DecodeError> {
    match cursor.varint()? {
        0 => Ok(Properties::EMPTY),
        len => Properties::decode(cursor.take(len)?),
    }
}

pub(super) fn write_properties(properties: &Properties, out: &mut BytesMut) {
    let encoded: &Bytes = properties.as_bytes();
    varint::encode(encoded.len() as u64, out);
    out.extend_from_slice(encoded);
}

pub(super) fn read_status(
    draft: Draft,
    cursor: &mut Cursor<'_>,
) -> Result<ObjectStatus, DecodeError> {
    draft
        .object_status(cursor.varint()?)
        .ok_or(DecodeError::protocol("unknown object status"))
}

/// Objects whose status is not normal have neither properties nor payload.
pub(super) const PROPERTIES_WITH_STATUS: DecodeError =
    DecodeError::protocol("an object without the status Normal has properties");
