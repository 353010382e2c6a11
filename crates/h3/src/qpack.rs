//! QPACK (RFC 9204) without a dynamic table: the static table, literals and Huffman codes.
//!
//! An endpoint that announces a dynamic table of zero bytes, which is the default, need not support one, and no
//! endpoint has to use the peer's.

pub mod huffman;
mod static_table;

use bytes::{Buf as _, BufMut, Bytes};

use super::{Code, Violation};
use static_table::TABLE;

/// A field of a message: a name in lower case and a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name; of pseudo-fields including the colon.
    pub name: Bytes,
    /// The value.
    pub value: Bytes,
}

/// Why a field section was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SectionError {
    /// The section is invalid; this ends the connection.
    #[error(transparent)]
    Broken(#[from] Violation),
    /// The section exceeds the limit (RFC 9114 §4.2.2); the response has status 431.
    #[error("the field section is larger than the limit")]
    TooLarge,
}

/// An iterator over the fields of a section, up to the first error.
#[derive(Debug)]
pub struct Fields {
    section: Bytes,
    bytes_left: usize,
    has_begun: bool,
    is_over: bool,
}

impl Fields {
    /// Creates the iterator for `section`, the payload of a HEADERS frame. The limit is `bytes_max`, where each field
    /// counts 32 bytes more than its name and value (RFC 9114 §4.2.2).
    pub fn new(section: Bytes, bytes_max: usize) -> Self {
        Self {
            section,
            bytes_left: bytes_max,
            has_begun: false,
            is_over: false,
        }
    }

    fn read(&mut self) -> Result<Option<Field>, SectionError> {
        if !self.has_begun {
            self.has_begun = true;
            // The Required Insert Count, and the base (RFC 9204 §4.5.1).
            if integer(&mut self.section, 8)? != 0 {
                return Err(DYNAMIC.into());
            }
            integer(&mut self.section, 7)?;
        }
        let Some(&first) = self.section.first() else {
            return Ok(None);
        };
        let field = match first {
            // Indexed field line, static: 11xxxxxx (RFC 9204 §4.5.2).
            0xc0.. => {
                let (name, value) = entry(integer(&mut self.section, 6)?)?;
                Field {
                    name: Bytes::from_static(name.as_bytes()),
                    value: Bytes::from_static(value.as_bytes()),
                }
            }
            // Literal with a static name reference: 01N1xxxx (RFC 9204 §4.5.4).
            0x50..=0x5f | 0x70..=0x7f => {
                let (name, _) = entry(integer(&mut self.section, 4)?)?;
                Field {
                    name: Bytes::from_static(name.as_bytes()),
                    value: self.string(7)?,
                }
            }
            // Literal with a literal name: 001Nxxxx (RFC 9204 §4.5.6).
            0x20..=0x3f => Field {
                name: self.string(3)?,
                value: self.string(7)?,
            },
            // All others refer to the dynamic table.
            _ => return Err(DYNAMIC.into()),
        };
        let size = field.name.len() + field.value.len() + FIELD_OVERHEAD_BYTES;
        self.bytes_left = self
            .bytes_left
            .checked_sub(size)
            .ok_or(SectionError::TooLarge)?;
        Ok(Some(field))
    }

    /// Reads a string whose length has a prefix of `bits`, after the bit that marks Huffman codes.
    fn string(&mut self, bits: u32) -> Result<Bytes, SectionError> {
        let is_coded = self
            .section
            .first()
            .is_some_and(|first| first >> bits & 1 == 1);
        let length = integer(&mut self.section, bits)?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > self.section.len() {
            return Err(broken("a string is longer than its section").into());
        }
        let text = self.section.split_to(length);
        if !is_coded {
            return Ok(text);
        }
        // The shortest code has five bits, so a string beyond the limit is detected before it is decoded.
        if text.len() > self.bytes_left.saturating_mul(30).div_ceil(8) {
            return Err(SectionError::TooLarge);
        }
        let mut decoded = Vec::with_capacity(text.len() * 8 / 5 + 1);
        if huffman::decode(&text, &mut decoded) {
            Ok(decoded.into())
        } else {
            Err(broken("a string is no Huffman code").into())
        }
    }
}

impl Iterator for Fields {
    type Item = Result<Field, SectionError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let read = self.read().transpose();
        self.is_over = !matches!(read, Some(Ok(_)));
        read
    }
}

/// Appends the prefix of a field section.
pub fn encode_prefix(out: &mut impl BufMut) {
    out.put_slice(&[0, 0]);
}

/// Appends a field to a section, in the shortest form.
pub fn encode_field(name: &[u8], value: &[u8], out: &mut impl BufMut) {
    match static_table::find(name, value) {
        Some((number, true)) => put_integer(number, 6, 0xc0, out),
        Some((number, false)) => {
            put_integer(number, 4, 0x50, out);
            put_string(value, 7, 0, out);
        }
        None => {
            put_string(name, 3, 0x20, out);
            put_string(value, 7, 0, out);
        }
    }
}

/// Reads an integer with a prefix of `bits` (RFC 7541 §5.1).
fn integer(section: &mut Bytes, bits: u32) -> Result<u64, Violation> {
    const SHORT: Violation = broken("a field section ends inside a field");
    if section.is_empty() {
        return Err(SHORT);
    }
    let mask = 0xff_u8 >> (8 - bits);
    let mut value = u64::from(section.get_u8() & mask);
    if value < u64::from(mask) {
        return Ok(value);
    }
    for shift in (0..63).step_by(7) {
        if section.is_empty() {
            return Err(SHORT);
        }
        let byte = section.get_u8();
        let part = u64::from(byte & 0x7f);
        // Nine parts of seven bits exceed the 62 bits that are permitted (RFC 9204 §4.1.1).
        value = value
            .checked_add(part << shift)
            .filter(|value| *value <= super::varint::MAX)
            .ok_or(broken("an integer of a field section is too large"))?;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(broken("an integer of a field section is too large"))
}

fn put_integer(value: u64, bits: u32, flags: u8, out: &mut impl BufMut) {
    let mask = 0xff_u8 >> (8 - bits);
    if value < u64::from(mask) {
        out.put_u8(flags | (value & 0xff) as u8);
        return;
    }
    out.put_u8(flags | mask);
    let mut rest = value - u64::from(mask);
    while rest >= 0x80 {
        out.put_u8((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.put_u8((rest & 0x7f) as u8);
}

fn put_string(text: &[u8], bits: u32, flags: u8, out: &mut impl BufMut) {
    let coded = huffman::encoded_length(text);
    if coded < text.len() {
        put_integer(coded as u64, bits, flags | 1 << bits, out);
        huffman::encode(text, out);
    } else {
        put_integer(text.len() as u64, bits, flags, out);
        out.put_slice(text);
    }
}

fn entry(number: u64) -> Result<(&'static str, &'static str), Violation> {
    let entry = usize::try_from(number)
        .ok()
        .and_then(|number| TABLE.get(number));
    entry
        .copied()
        .ok_or(broken("a field is beyond the static table"))
}

const fn broken(reason: &'static str) -> Violation {
    Violation::new(Code::DECOMPRESSION_FAILED, reason)
}

const DYNAMIC: Violation = broken("a field section uses the dynamic table, which has no bytes");
/// The overhead of a field in the size of a section (RFC 9114 §4.2.2).
const FIELD_OVERHEAD_BYTES: usize = 32;

#[cfg(test)]
mod tests;
