//! Reading the stream of a fetch.

use bytes::Bytes;

use super::buffer::ReadBuffer;
use crate::data::{FetchDecoder, FetchEntry, FetchHeader};
use crate::draft::Draft;
use crate::error::DecodeError;
use crate::parameter::GroupOrder;

/// What the stream of a fetch says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchItem {
    /// What the stream carries. Comes first, once.
    Header(FetchHeader),
    /// The next object, whose payload follows if it has one, or the end of a range.
    Entry(FetchEntry),
    /// A piece of the object's payload, never empty. The pieces of an object have the announced length together.
    Payload(Bytes),
}

/// Reads the stream of a fetch, from its type on.
#[derive(Debug)]
pub struct FetchReader {
    draft: Draft,
    buffer: ReadBuffer,
    /// Absent until the header was read.
    decoder: Option<FetchDecoder>,
    payload_left: u64,
}

impl FetchReader {
    /// Starts at the beginning of a stream. An object with more than `header_bytes_max` bytes before its payload, which
    /// are its properties mostly, closes the session.
    pub fn new(draft: Draft, header_bytes_max: usize) -> Self {
        Self {
            draft,
            buffer: ReadBuffer::new(header_bytes_max),
            decoder: None,
            payload_left: 0,
        }
    }

    /// Says in which order the groups come, ascending unless said. The header names the request that knows, so this is to
    /// be called after [`FetchItem::Header`] and before the next poll.
    ///
    /// # Panics
    /// If the header was not read yet.
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

    /// What the stream says next, or `None` until more bytes are pushed.
    ///
    /// The error is never [`DecodeError::Short`], and nothing can be read after one.
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

    /// Checks that the stream may end here: not in the middle of an object or of the header [moqt-18 §11.4].
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
