//! Reader of control messages on control and request streams.

use bytes::Bytes;

use super::buffer::ReadBuffer;
use crate::cursor::Cursor;
use crate::draft::Draft;
use crate::error::{DecodeError, Violation};
use crate::message::{MESSAGE_BYTES_MAX, Message};
use crate::varint;

/// Bytes before a message's payload: the longest type and a length of 16 bits.
const FRAME_BYTES_MAX: usize = varint::BYTES_MAX + 2;

/// A reader of the messages of one control or request stream.
#[derive(Debug)]
pub struct MessageReader {
    draft: Draft,
    buffer: ReadBuffer,
    payload_bytes_max: usize,
}

impl MessageReader {
    /// Creates a reader for a new stream. A message with a payload of more than `payload_bytes_max` bytes, at most
    /// [`MESSAGE_BYTES_MAX`], closes the session.
    pub fn new(draft: Draft, payload_bytes_max: usize) -> Self {
        let payload_bytes_max = payload_bytes_max.min(MESSAGE_BYTES_MAX);
        let buffer = ReadBuffer::new(FRAME_BYTES_MAX + payload_bytes_max);
        Self {
            draft,
            buffer,
            payload_bytes_max,
        }
    }

    /// Takes the next bytes of the stream.
    ///
    /// # Panics
    /// If [`MessageReader::poll`] was not called until it returned `None`.
    pub fn push(&mut self, data: Bytes) {
        self.buffer.push(data);
    }

    /// Returns the next message, or `None` if more bytes are needed.
    ///
    /// The error is never [`DecodeError::Short`], and nothing can be read after an error.
    pub fn poll(&mut self) -> Result<Option<Message>, DecodeError> {
        let (draft, payload_bytes_max) = (self.draft, self.payload_bytes_max);
        let framed = self
            .buffer
            .header(|cursor| read_frame(draft, payload_bytes_max, cursor))?;
        let Some((message_type, payload)) = framed else {
            return Ok(None);
        };
        // A copy, so that a kept message does not hold the packets it came in.
        Message::decode(draft, message_type, &Bytes::copy_from_slice(&payload)).map(Some)
    }

    /// Returns the number of bytes that came so far.
    pub(crate) fn received(&self) -> u64 {
        self.buffer.received()
    }

    /// Returns the bytes held of what is incomplete, without payload.
    pub(crate) fn held(&self) -> usize {
        self.buffer.held()
    }

    /// Checks that the stream may end here, not within a message.
    pub fn fin(&self) -> Result<(), DecodeError> {
        if self.buffer.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::protocol(
                "a stream ends in the middle of a message",
            ))
        }
    }
}

/// Reads the type and payload of a message. An unknown type is an error before the payload is complete.
fn read_frame(
    draft: Draft,
    payload_bytes_max: usize,
    cursor: &mut Cursor<'_>,
) -> Result<(u64, Bytes), DecodeError> {
    let message_type = cursor.varint()?;
    if draft.message_kind(message_type).is_none() {
        return Err(DecodeError::unknown_message(message_type));
    }
    let len = cursor.uint16()?;
    if usize::from(len) > payload_bytes_max {
        return Err(Violation::MESSAGE_TOO_LONG.into());
    }
    Ok((message_type, cursor.take(u64::from(len))?))
}
