//! Reader of a fetch stream.

use bytes::Bytes;

use super::buffer::ReadBuffer;
use crate::data::{FetchDecoder, FetchEntry, FetchHeader};
use crate::draft::Draft;
use crate::error::DecodeError;
use crate::parameter::GroupOrder;

/// An item of a fetch stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchItem {
    /// The stream header, once, first.
    Header(FetchHeader),
    /// The next object, whose payload follows if it is not empty, or the end of a range.
    Entry(FetchEntry),
    /// A piece of the object's payload, never empty. The pieces add up to the announced length.
    Payload(Bytes),
}

/// A reader of a fetch stream, from its type on.
#[derive(Debug)]
pub struct FetchReader {
    draft: Draft,
    buffer: ReadBuffer,
    /// `None` until the header was read.
    decoder: Option<FetchDecoder>,
    payload_left: u64,
}

impl FetchReader {
    /// Creates a reader for a new stream. An object with more than `header_bytes_max` bytes before its payload, mostly
    /// its properties, closes the session.
    pub fn new(draft: Draft, header_bytes_max: usize) -> Self {
        Self {
            draft,
            buffer: ReadBuffer::new(header_bytes_max),
            decoder: None,
            payload_left: 0,
        }
    }

    /// Sets the order of groups, which is ascending by default. To be called after [`FetchItem::Header`], which
    /// identifies the request and so its order, and before the next poll.
    ///
    /// # Panics
    /// If the header was not read.
    pub fn set_group_order(&mut self, order: GroupOrder) {
        assert!(
            self.decoder.is_some(),
            "the header of a fetch comes before its group order"
        );
        self.decoder = Some(FetchDecoder::new(self.draft, order));
    }

    /// Takes the next bytes of the stream.
    ///
    /// # Panics
    /// If [`FetchReader::poll`] was not called until it returned `None`.
    pub fn push(&mut self, data: Bytes) {
        self.buffer.push(data);
    }

    /// Returns the next item, or `None` if more bytes are needed.
    ///
    /// The error is never [`DecodeError::Short`], and nothing can be read after an error.
    pub fn poll(&mut self) -> Result<Option<FetchItem>, DecodeError> {
        if self.payload_left > 0 {
            return Ok(self.poll_payload());
        }
        let Some(decoder) = &mut self.decoder else {
            return self.poll_header();
        };
        let entry = self.buffer.header(|cursor| decoder.read(cursor))?;
        Ok(entry.map(|entry| {
            if let FetchEntry::Object(object) = &entry {
                self.payload_left = object.payload_len;
            }
            FetchItem::Entry(entry)
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

    /// Checks that the stream may end here, not within an object or the header [moqt-18 §11.4].
    pub fn fin(&self) -> Result<(), DecodeError> {
        if self.decoder.is_some() && self.payload_left == 0 && self.buffer.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::protocol(
                "a fetch ends in the middle of an object",
            ))
        }
    }

    fn poll_header(&mut self) -> Result<Option<FetchItem>, DecodeError> {
        let draft = self.draft;
        let header = self
            .buffer
            .header(|cursor| FetchHeader::read(draft, cursor))?;
        Ok(header.map(|header| {
            self.decoder = Some(FetchDecoder::new(draft, GroupOrder::Ascending));
            FetchItem::Header(header)
        }))
    }

    fn poll_payload(&mut self) -> Option<FetchItem> {
        let piece = self.buffer.payload(self.payload_left)?;
        self.payload_left -= piece.len() as u64;
        Some(FetchItem::Payload(piece))
    }
}
