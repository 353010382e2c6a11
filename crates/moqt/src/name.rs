//! Names of tracks: a namespace of up to 32 fields, and a name within it [moqt-18 §2.4.1].
//!
//! All three types are cheap to clone, compare byte by byte, and display in the draft's text form `field-field--name`,
//! which [`str::parse`] reads [moqt-18 §1.5].

use std::fmt;
use std::str::FromStr;

use bytes::{Bytes, BytesMut};

use crate::cursor::Cursor;
use crate::error::DecodeError;
use crate::varint;

/// The largest number of fields of a namespace.
pub const NAMESPACE_FIELDS_MAX: usize = 32;

/// The largest size of a namespace, or of a namespace and a track name together, in bytes without lengths.
pub const FULL_NAME_BYTES_MAX: usize = 4096;

/// Why bytes are not a valid name.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// More than [`NAMESPACE_FIELDS_MAX`] fields.
    #[error("a namespace has more than 32 fields")]
    TooManyFields,
    /// An empty field.
    #[error("a namespace field is empty")]
    EmptyField,
    /// More than [`FULL_NAME_BYTES_MAX`] bytes.
    #[error("a name has more than 4096 bytes")]
    TooLong,
    /// Text that is not in the draft's canonical form.
    #[error("the text is not a name in its canonical form")]
    NotCanonical,
}

impl From<NameError> for DecodeError {
    fn from(error: NameError) -> Self {
        Self::protocol(match error {
            NameError::TooManyFields => "a namespace has more than 32 fields",
            NameError::EmptyField => "a namespace field is empty",
            NameError::TooLong => "a name has more than 4096 bytes",
            NameError::NotCanonical => "the text is not a name in its canonical form",
        })
    }
}

/// A namespace, a prefix of one, or the suffix after such a prefix.
///
/// In their order, all namespaces with a common prefix directly follow the prefix itself.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace {
    /// The fields, each with its length in the shortest encoding, so a prefix of fields is a prefix of bytes.
    encoded: Bytes,
    /// Number of fields, at most 32.
    fields: u8,
    /// Bytes of all fields together, at most 4096.
    bytes: u16,
}

impl Namespace {
    /// The namespace without fields, which is a prefix of all others.
    pub const EMPTY: Self = Self {
        encoded: Bytes::new(),
        fields: 0,
        bytes: 0,
    };

    /// Creates a namespace of `fields`.
    pub fn new<F: AsRef<[u8]>>(fields: impl IntoIterator<Item = F>) -> Result<Self, NameError> {
        let mut builder = NamespaceBuilder::default();
        for field in fields {
            builder.push(field.as_ref())?;
        }
        Ok(builder.build())
    }

    /// Returns the fields in order, none of which is empty.
    pub fn fields(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.encoded[..];
        std::iter::from_fn(move || {
            let (len, used) = varint::decode(rest)?;
            let end = used + usize::try_from(len).expect("a field is at most 4096 bytes long");
            let field = &rest[used..end];
            rest = &rest[end..];
            Some(field)
        })
    }

    /// Returns the number of fields.
    pub fn fields_len(&self) -> usize {
        usize::from(self.fields)
    }

    /// Returns the bytes of all fields together.
    pub fn bytes_len(&self) -> usize {
        usize::from(self.bytes)
    }

    /// Returns whether the namespace has no fields.
    pub fn is_empty(&self) -> bool {
        self.fields == 0
    }

    /// Returns whether the first fields are those of `prefix`.
    pub fn starts_with(&self, prefix: &Self) -> bool {
        self.encoded.starts_with(&prefix.encoded)
    }

    /// Returns the namespace and all its prefixes, the longest first and the empty one last.
    pub fn prefixes(&self) -> impl Iterator<Item = Self> {
        let fields = (0..=self.fields_len()).rev();
        fields.filter_map(|fields| Self::new(self.fields().take(fields)).ok())
    }

    /// Returns the suffix after `prefix`; `None` if the namespace does not start with it.
    pub fn suffix(&self, prefix: &Self) -> Option<Self> {
        self.starts_with(prefix).then(|| Self {
            encoded: self.encoded.slice(prefix.encoded.len()..),
            fields: self.fields - prefix.fields,
            bytes: self.bytes - prefix.bytes,
        })
    }

    /// Returns the first possible namespace behind this one and all that start with it; `None` if there is none.
    pub fn next_beyond(&self) -> Option<Self> {
        let mut fields: Vec<_> = self.fields().map(<[u8]>::to_vec).collect();
        while let Some(last) = fields.last_mut() {
            // The next field of this length, or the first longer one.
            let kept = last.iter().rposition(|byte| *byte < u8::MAX);
            if let Some(place) = kept {
                last[place] += 1;
                last[place + 1..].fill(0);
            } else {
                *last = vec![0; last.len() + 1];
            }
            if let Ok(next) = Self::new(&fields) {
                return Some(next);
            }
            fields.pop();
        }
        None
    }

    /// Returns this namespace followed by the fields of `suffix`.
    pub fn join(&self, suffix: &Self) -> Result<Self, NameError> {
        Self::new(self.fields().chain(suffix.fields()))
    }

    /// Returns whether the first field starts with a period, which the draft reserves [moqt-18 §3.2.1].
    pub fn is_reserved(&self) -> bool {
        self.fields()
            .next()
            .is_some_and(|field| field.starts_with(b"."))
    }

    /// Returns whether the namespace belongs to the session itself, not to the application [moqt-18 §3.2.2].
    pub fn is_session_level(&self) -> bool {
        self.fields().next() == Some(b".session")
    }

    /// Reads a namespace, copied so that it does not keep the whole message in memory.
    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let fields = cursor.varint()?;
        if fields > NAMESPACE_FIELDS_MAX as u64 {
            return Err(NameError::TooManyFields.into());
        }
        let mut builder = NamespaceBuilder::default();
        for _ in 0..fields {
            let len = cursor.varint()?;
            if len > FULL_NAME_BYTES_MAX as u64 {
                return Err(NameError::TooLong.into());
            }
            builder.push(&cursor.take(len)?)?;
        }
        Ok(builder.build())
    }

    pub(crate) fn encode(&self, out: &mut BytesMut) {
        varint::encode(u64::from(self.fields), out);
        out.extend_from_slice(&self.encoded);
    }
}

/// The name of a track within its namespace, at most 4096 bytes; may be empty.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrackName(Bytes);

impl TrackName {
    /// The empty name.
    pub const EMPTY: Self = Self(Bytes::new());

    /// Creates a name, copying `name`.
    pub fn new(name: impl AsRef<[u8]>) -> Result<Self, NameError> {
        let name = name.as_ref();
        if name.len() > FULL_NAME_BYTES_MAX {
            return Err(NameError::TooLong);
        }
        Ok(Self(Bytes::copy_from_slice(name)))
    }

    /// Returns the bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns whether the name is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads a name with its length, copying it.
    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let len = cursor.varint()?;
        if len > FULL_NAME_BYTES_MAX as u64 {
            return Err(NameError::TooLong.into());
        }
        Ok(Self(Bytes::copy_from_slice(&cursor.take(len)?)))
    }

    pub(crate) fn encode(&self, out: &mut BytesMut) {
        varint::encode(self.0.len() as u64, out);
        out.extend_from_slice(&self.0);
    }
}

/// The full name of a track: its namespace and its name, together at most 4096 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FullTrackName {
    /// The namespace.
    pub namespace: Namespace,
    /// The name within the namespace.
    pub name: TrackName,
}

impl FullTrackName {
    /// Creates a full name, and checks the length of both parts together.
    pub fn new(namespace: Namespace, name: TrackName) -> Result<Self, NameError> {
        if namespace.bytes_len() + name.as_bytes().len() > FULL_NAME_BYTES_MAX {
            return Err(NameError::TooLong);
        }
        Ok(Self { namespace, name })
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let namespace = Namespace::decode(cursor)?;
        let name = TrackName::decode(cursor)?;
        Ok(Self::new(namespace, name)?)
    }

    pub(crate) fn encode(&self, out: &mut BytesMut) {
        self.namespace.encode(out);
        self.name.encode(out);
    }
}

/// A namespace under construction, always within its limits.
#[derive(Default)]
struct NamespaceBuilder {
    encoded: BytesMut,
    fields: u8,
    bytes: u16,
}

impl NamespaceBuilder {
    fn push(&mut self, field: &[u8]) -> Result<(), NameError> {
        if usize::from(self.fields) == NAMESPACE_FIELDS_MAX {
            return Err(NameError::TooManyFields);
        }
        if field.is_empty() {
            return Err(NameError::EmptyField);
        }
        let bytes = usize::from(self.bytes) + field.len();
        self.bytes = match u16::try_from(bytes) {
            Ok(sum) if bytes <= FULL_NAME_BYTES_MAX => sum,
            Ok(_) | Err(_) => return Err(NameError::TooLong),
        };
        self.fields += 1;
        varint::encode(field.len() as u64, &mut self.encoded);
        self.encoded.extend_from_slice(field);
        Ok(())
    }

    fn build(self) -> Namespace {
        Namespace {
            encoded: self.encoded.freeze(),
            fields: self.fields,
            bytes: self.bytes,
        }
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, field) in self.fields().enumerate() {
            if index > 0 {
                f.write_str("-")?;
            }
            escape(field, f)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Namespace({self})")
    }
}

impl FromStr for Namespace {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Ok(Self::EMPTY);
        }
        let mut builder = NamespaceBuilder::default();
        for field in text.split('-') {
            builder.push(&unescape(field)?)?;
        }
        Ok(builder.build())
    }
}

impl fmt::Display for TrackName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escape(&self.0, f)
    }
}

impl fmt::Debug for TrackName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TrackName({self})")
    }
}

impl FromStr for TrackName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::new(unescape(text)?)
    }
}

impl fmt::Display for FullTrackName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}--{}", self.namespace, self.name)
    }
}

impl FromStr for FullTrackName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let (namespace, name) = text.split_once("--").ok_or(NameError::NotCanonical)?;
        Self::new(namespace.parse()?, name.parse()?)
    }
}

fn is_literal(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn escape(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for byte in bytes {
        if is_literal(*byte) {
            write!(f, "{}", char::from(*byte))?;
        } else {
            write!(f, ".{byte:02x}")?;
        }
    }
    Ok(())
}

/// Reads the text form of one field; accepts only what [`escape`] writes [moqt-18 §1.5.1].
fn unescape(text: &str) -> Result<Vec<u8>, NameError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if is_literal(*first) {
            bytes.push(*first);
            continue;
        }
        let (digits, behind) = rest.split_first_chunk().ok_or(NameError::NotCanonical)?;
        let byte = hex_byte(*digits).ok_or(NameError::NotCanonical)?;
        if *first != b'.' || is_literal(byte) {
            return Err(NameError::NotCanonical);
        }
        bytes.push(byte);
        rest = behind;
    }
    Ok(bytes)
}

fn hex_byte([high, low]: [u8; 2]) -> Option<u8> {
    Some(hex_digit(high)? << 4 | hex_digit(low)?)
}

const fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
