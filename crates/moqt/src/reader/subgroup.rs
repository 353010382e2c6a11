//! Reader of a subgroup stream.

use bytes::Bytes;

use super::buffer::ReadBuffer;
use crate::data::{ObjectHeader, SubgroupHeader};
use crate::draft::Draft;
use crate::error::DecodeError;

/// An item of a subgroup stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubgroupItem {
    /// The stream header, once, first.
    Header(SubgroupHeader),
    /// The next object. Its payload follows if it is not empty.
    Object(ObjectHeader),
    /// A piece of the object's payload, never empty. The pieces add up to the announced length.
    Payload(Bytes),
}

/// A reader of a subgroup stream, from its type on.
#[derive(Debug)]
pub struct SubgroupReader {
    draft: Draft,
    buffer: ReadBuffer,
    /// Whether objects have properties; `None` until the header was read.
    has_properties: Option<bool>,
    previous: Option<u64>,
    payload_left: u64,
}

impl SubgroupReader {
    /// Creates a reader for a new stream. An object with more than `header_bytes_max` bytes before its payload, mostly
    /// its properties, closes the session.
    pub fn new(draft: Draft, header_bytes_max: usize) -> Self {
        Self {
            draft,
            buffer: ReadBuffer::new(header_bytes_max),
            has_properties: None,
            previous: None,
            payload_left: 0,
        }
    }

    /// Takes the next bytes of the stream.
    ///
    /// # Panics
    /// If [`SubgroupReader::poll`] was not called until it returned `None`.
    pub fn push(&mut self, data: Bytes) {
        self.buffer.push(data);
    }

    /// Returns the next item, or `None` if more bytes are needed.
    ///
    /// The error is never [`DecodeError::Short`], and nothing can be read after an error.
    #[inline]
    pub fn poll(&mut self) -> Result<Option<SubgroupItem>, DecodeError> {
        if self.payload_left > 0 {
            return Ok(self.poll_payload());
        }
        let Some(has_properties) = self.has_properties else {
            return self.poll_header();
        };
        let (draft, previous) = (self.draft, self.previous);
        let object = self.buffer.header(|cursor| {
            ObjectHeader::read_in_subgroup(previous, has_properties, draft, cursor)
        })?;
        Ok(object.map(|object| {
            self.previous = Some(object.id);
            self.payload_left = object.payload_len;
            SubgroupItem::Object(object)
        }))
    }

    /// Returns the number of bytes that came so far.
    pub(crate) fn received(&self) -> u64 {
        self.buffer.received()
    }

    /// Returns the bytes held of what is incomplete, without payload.
    pub(crate) fn held(&self) -> usize {
        self.buffer.held()
    }

    /// Returns the number of bytes pushed and not polled yet.
    pub(crate) fn unread(&self) -> usize {
        self.buffer.unread()
    }

    /// Copies what was not polled yet, so that it does not hold the packets it came in.
    pub(crate) fn detach(&mut self) {
        self.buffer.detach();
    }

    /// Checks that the stream may end here, not within an object or the header [moqt-18 §11.4].
    pub fn fin(&self) -> Result<(), DecodeError> {
        if self.has_properties.is_some() && self.payload_left == 0 && self.buffer.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::protocol(
                "a subgroup ends in the middle of an object",
            ))
        }
    }

    fn poll_header(&mut self) -> Result<Option<SubgroupItem>, DecodeError> {
        let draft = self.draft;
        let header = self
            .buffer
            .header(|cursor| SubgroupHeader::read(draft, cursor))?;
        Ok(header.map(|header| {
            self.has_properties = Some(header.has_properties);
            SubgroupItem::Header(header)
        }))
    }

    fn poll_payload(&mut self) -> Option<SubgroupItem> {
        let piece = self.buffer.payload(self.payload_left)?;
        self.payload_left -= piece.len() as u64;
        Some(SubgroupItem::Payload(piece))
    }
}
