//! Frames (RFC 9114 §7): a type, a length and a payload.

use bytes::{Buf as _, BufMut, Bytes};

use super::{Code, Violation, qpack, varint};

/// Frame types (RFC 9114 §7.2).
pub mod frame_type {
    /// Content of a message.
    pub const DATA: u64 = 0x00;
    /// Field section of a message.
    pub const HEADERS: u64 = 0x01;
    /// A push is not wanted.
    pub const CANCEL_PUSH: u64 = 0x03;
    /// The settings of an endpoint.
    pub const SETTINGS: u64 = 0x04;
    /// The promise of a push.
    pub const PUSH_PROMISE: u64 = 0x05;
    /// The sender accepts no further requests.
    pub const GOAWAY: u64 = 0x07;
    /// The largest push ID that a client accepts.
    pub const MAX_PUSH_ID: u64 = 0x0d;

    /// Not a frame: the first bytes of a bidirectional stream of a WebTransport session, permitted only there
    /// (draft-ietf-webtrans-http3-15 §4.3).
    pub const WEBTRANSPORT_STREAM: u64 = 0x41;

    /// Returns whether the type is one of HTTP/2 that peers may not send (RFC 9114 §7.2.8).
    pub const fn is_of_http2(frame_type: u64) -> bool {
        matches!(frame_type, 0x02 | 0x06 | 0x08 | 0x09)
    }
}

/// Appends the type and length of a frame whose payload has `length` bytes.
pub fn encode_head(frame_type: u64, length: usize, out: &mut impl BufMut) {
    varint::encode(frame_type, out);
    varint::encode(length as u64, out);
}

/// Appends a HEADERS frame with these fields.
pub fn encode_headers(fields: &[(&str, &str)], out: &mut impl BufMut) {
    let mut section = Vec::with_capacity(64);
    qpack::encode_prefix(&mut section);
    for (name, value) in fields {
        qpack::encode_field(name.as_bytes(), value.as_bytes(), &mut section);
    }
    encode_head(frame_type::HEADERS, section.len(), out);
    out.put_slice(&section);
}

/// Checks that a frame is permitted on a request stream (RFC 9114 §7.2); unknown frames are.
pub fn check_on_request(frame_type: u64) -> Result<(), Violation> {
    match frame_type {
        frame_type::SETTINGS
        | frame_type::GOAWAY
        | frame_type::MAX_PUSH_ID
        | frame_type::CANCEL_PUSH
        | frame_type::PUSH_PROMISE => {
            let reason = "a frame that may not be on a request stream";
            Err(Violation::new(Code::FRAME_UNEXPECTED, reason))
        }
        frame_type::WEBTRANSPORT_STREAM => Err(Violation::new(
            Code::FRAME_ERROR,
            "a stream of a session inside a request",
        )),
        _ if frame_type::is_of_http2(frame_type) => {
            Err(Violation::new(Code::FRAME_UNEXPECTED, "a frame of HTTP/2"))
        }
        _ => Ok(()),
    }
}

/// A part of a frame, in stream order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The start of a frame.
    Start {
        /// The type; see [`frame_type`].
        frame_type: u64,
        /// Length of the payload in bytes.
        length: u64,
    },
    /// The next bytes of the payload; never empty.
    Payload(Bytes),
    /// The end of the payload.
    End,
}

/// A reader that splits the bytes of a stream into frames. Keeps no payload, and at most 15 bytes of a type and length.
#[derive(Debug, Default)]
pub struct FrameReader {
    /// Bytes that were pushed last and not returned.
    input: Bytes,
    head: [u8; HEAD_BYTES_MAX],
    head_length: usize,
    /// Bytes of the current frame's payload that are missing.
    left: Option<u64>,
}

impl FrameReader {
    /// Adds the next bytes of the stream. The caller must have polled until `None` before.
    pub fn push(&mut self, data: Bytes) {
        debug_assert!(self.input.is_empty(), "poll everything first");
        self.input = data;
    }

    /// Skips the next `length` bytes of the stream if all of them are payload of the current frame and do not complete
    /// it. Returns whether they were skipped; if so, the caller must not push them.
    #[inline]
    pub fn skip(&mut self, length: usize) -> bool {
        match &mut self.left {
            Some(left) if (length as u64) < *left && self.input.is_empty() => {
                *left -= length as u64;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Returns the next part; `None` if more bytes are needed.
    pub fn poll(&mut self) -> Option<Part> {
        match self.left {
            Some(0) => {
                self.left = None;
                Some(Part::End)
            }
            Some(left) if !self.input.is_empty() => {
                let length = usize::try_from(left)
                    .unwrap_or(usize::MAX)
                    .min(self.input.len());
                self.left = Some(left - length as u64);
                Some(Part::Payload(self.input.split_to(length)))
            }
            Some(_) => None,
            None => self.poll_head(),
        }
    }

    /// Returns whether no frame is incomplete, so that the stream may end.
    pub fn is_between_frames(&self) -> bool {
        self.left.is_none() && self.head_length == 0 && self.input.is_empty()
    }

    fn poll_head(&mut self) -> Option<Part> {
        while !self.input.is_empty() {
            self.head[self.head_length] = self.input.get_u8();
            self.head_length += 1;
            let head = &self.head[..self.head_length];
            if let Some((frame_type, length)) = varint::decode(head)
                && let Some((left, _)) = varint::decode(&head[length..])
            {
                self.head_length = 0;
                self.left = Some(left);
                return Some(Part::Start {
                    frame_type,
                    length: left,
                });
            }
        }
        None
    }
}

/// Two integers of eight bytes each.
const HEAD_BYTES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(reader: &mut FrameReader, data: &[u8]) -> Vec<Part> {
        reader.push(Bytes::copy_from_slice(data));
        std::iter::from_fn(|| reader.poll()).collect()
    }

    #[test]
    fn frames_are_found_however_they_are_cut() {
        // HEADERS of three bytes, an empty DATA, one of an unknown type with long integers.
        let stream = [
            0x01, 0x03, 1, 2, 3, 0x00, 0x00, 0x40, 0x41, 0xc0, 0, 0, 0, 0, 0, 0, 2, 8, 9,
        ];
        let mut whole = FrameReader::default();
        let found = parts(&mut whole, &stream);
        assert_eq!(
            found,
            [
                Part::Start {
                    frame_type: 1,
                    length: 3
                },
                Part::Payload(Bytes::from_static(&[1, 2, 3])),
                Part::End,
                Part::Start {
                    frame_type: 0,
                    length: 0
                },
                Part::End,
                Part::Start {
                    frame_type: 0x41,
                    length: 2
                },
                Part::Payload(Bytes::from_static(&[8, 9])),
                Part::End,
            ]
        );
        assert!(whole.is_between_frames());
        let flat = |parts: Vec<Part>| {
            let bytes = |part: &Part| match part {
                Part::Start { frame_type, length } => vec![*frame_type, *length],
                Part::Payload(data) => data.iter().map(|byte| u64::from(*byte)).collect(),
                Part::End => vec![u64::MAX],
            };
            parts.iter().flat_map(bytes).collect::<Vec<_>>()
        };
        let mut reader = FrameReader::default();
        let mut pieces = Vec::new();
        for byte in stream {
            pieces.extend(parts(&mut reader, &[byte]));
        }
        assert_eq!(flat(pieces), flat(found));
    }

    #[test]
    fn payload_is_left_out_up_to_its_last_byte() {
        let mut reader = FrameReader::default();
        assert!(!reader.skip(1), "no frame is open");
        parts(&mut reader, &[0x00, 10, 7]);
        assert!(!reader.skip(9), "this would be all of it");
        assert!(reader.skip(5) && reader.skip(3));
        assert!(!reader.skip(1));
        let last = Part::Payload(Bytes::from_static(&[8]));
        assert_eq!(parts(&mut reader, &[8]), [last, Part::End]);
        assert!(!reader.skip(1) && reader.is_between_frames());
    }

    #[test]
    fn a_stream_that_ends_inside_a_frame_is_known() {
        let mut reader = FrameReader::default();
        assert!(parts(&mut reader, &[0x01]).is_empty());
        assert!(!reader.is_between_frames());
        let mut reader = FrameReader::default();
        parts(&mut reader, &[0x01, 2, 7]);
        assert!(!reader.is_between_frames());
    }
}
