//! Reading control messages off control and request streams.

use bytes::Bytes;

use super::buffer::ReadBuffer;
use crate::cursor::Cursor;
use crate::draft::Draft;
use crate::error::{DecodeError, Violation};
use crate::message::{MESSAGE_BYTES_MAX, Message, UNKNOWN_MESSAGE};
use crate::varint;

/// The bytes before a message's payload: the longest type and a length of 16 bits.
const FRAME_BYTES_MAX: usize = varint::BYTES_MAX + 2;

/// Reads the messages of one control or request stream.
#[derive(Debug)]
pub struct MessageReader {
    draft: Draft,
    buffer: ReadBuffer,
    payload_bytes_max: usize,
}

impl MessageReader {
    /// Starts at the beginning of a stream. Messages with more than `payload_bytes_max` bytes behind their length close
    /// the session; no message has more than [`MESSAGE_BYTES_MAX`].
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

    /// The next message, or `None` until more bytes are pushed.
    ///
    /// The error is never [`DecodeError::Short`], and nothing can be read after one.
    pub fn poll(&mut self) -> Result<Option<Message>, DecodeError> {
        let (draft, payload_bytes_max) = (self.draft, self.payload_bytes_max);
        let framed = self
            .buffer
            .header(|cursor| read_frame(draft, payload_bytes_max, cursor))?;
        let Some((message_type, payload)) = framed else {
            return Ok(None);
        };
        // A copy, so that what the message keeps is its own size and not that of the packets it came in.
        Message::decode(draft, message_type, &Bytes::copy_from_slice(&payload)).map(Some)
    }

    /// Checks that the stream may end here: not in the middle of a message.
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

/// Reads the type and payload of a message, refusing an unknown type before the payload is there.
fn read_frame(
    draft: Draft,
    payload_bytes_max: usize,
    cursor: &mut Cursor<'_>,
) -> Result<(u64, Bytes), DecodeError> {
    let message_type = cursor.varint()?;
    if draft.message_kind(message_type).is_none() {
        return Err(UNKNOWN_MESSAGE);
    }
    let len = cursor.uint16()?;
    if usize::from(len) > payload_bytes_max {
        return Err(Violation::MESSAGE_TOO_LONG.into());
    }
    Ok((message_type, cursor.take(u64::from(len))?))
}
