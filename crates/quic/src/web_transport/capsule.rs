//! Capsules: messages about the session, on the stream of its request (RFC 9297 §3).

use bytes::{BufMut, Bytes};

use super::codes::CLOSE_SESSION;
use weir_h3::{
    Code, Violation,
    frame::{self, FrameReader, Part, frame_type},
    varint,
};

/// The contents of the capsule that closes a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Close {
    pub(super) code: u32,
    pub(super) reason: Vec<u8>,
}

/// A reader that finds the capsule that closes the session. It ignores all others without keeping them.
#[derive(Debug, Default)]
pub(super) struct CapsuleReader {
    /// A capsule has the same layout as a frame.
    capsules: FrameReader,
    close: Option<Vec<u8>>,
}

impl CapsuleReader {
    /// Takes the next bytes of the content.
    pub(super) fn push(&mut self, data: Bytes) -> Result<Option<Close>, Violation> {
        self.capsules.push(data);
        while let Some(part) = self.capsules.poll() {
            match part {
                Part::Start { frame_type, length } if frame_type == CLOSE_SESSION => {
                    if !(CODE_BYTES as u64..=CLOSE_BYTES_MAX as u64).contains(&length) {
                        return Err(Violation::new(
                            Code::MESSAGE_ERROR,
                            "WT_CLOSE_SESSION has a wrong length",
                        ));
                    }
                    self.close = Some(Vec::new());
                }
                Part::Start { .. } => {}
                Part::Payload(data) => {
                    if let Some(close) = &mut self.close {
                        close.extend_from_slice(&data);
                    }
                }
                Part::End => {
                    if let Some((code, reason)) = self
                        .close
                        .take()
                        .as_deref()
                        .and_then(<[u8]>::split_first_chunk)
                    {
                        return Ok(Some(Close {
                            code: u32::from_be_bytes(*code),
                            reason: reason.to_vec(),
                        }));
                    }
                }
            }
        }
        Ok(None)
    }
}

/// Returns the DATA frame that closes a session. A reason of more than 1024 bytes is truncated at a character boundary.
pub(super) fn encode_close(code: u64, reason: &[u8]) -> Bytes {
    let text = String::from_utf8_lossy(reason);
    let reason = &text.as_bytes()[..text.floor_char_boundary(REASON_BYTES_MAX)];
    let mut capsule = Vec::new();
    frame::encode_head(CLOSE_SESSION, CODE_BYTES + reason.len(), &mut capsule);
    capsule.put_u32(u32::try_from(code).unwrap_or(u32::MAX));
    capsule.put_slice(reason);
    let mut out = Vec::new();
    varint::encode(frame_type::DATA, &mut out);
    varint::encode(capsule.len() as u64, &mut out);
    out.put_slice(&capsule);
    out.into()
}

const CODE_BYTES: usize = 4;
/// Longest reason (draft-ietf-webtrans-http3-15 §6).
const REASON_BYTES_MAX: usize = 1024;
const CLOSE_BYTES_MAX: usize = CODE_BYTES + REASON_BYTES_MAX;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &[u8], piece: usize) -> Result<Option<Close>, Violation> {
        let mut reader = CapsuleReader::default();
        for piece in content.chunks(piece) {
            if let Some(close) = reader.push(Bytes::copy_from_slice(piece))? {
                return Ok(Some(close));
            }
        }
        Ok(None)
    }

    fn close(code: u32, reason: &[u8]) -> Close {
        Close {
            code,
            reason: reason.to_vec(),
        }
    }

    #[test]
    fn the_end_is_found_behind_others_and_however_it_is_cut() {
        // An unknown capsule of three bytes, DRAIN_WEBTRANSPORT_SESSION, the end with code 258 and a reason.
        let content = [
            0x17, 0x03, 1, 2, 3, 0x80, 0x00, 0x78, 0xae, 0x00, 0x68, 0x43, 0x07, 0, 0, 1, 2, b'b',
            b'y', b'e',
        ];
        for piece in 1..=content.len() {
            assert_eq!(read(&content, piece), Ok(Some(close(258, b"bye"))));
            let short = &content[..content.len() - 1];
            assert_eq!(read(short, piece), Ok(None));
        }
    }

    #[test]
    fn a_reason_as_long_as_the_limit_and_one_byte_longer() {
        for (length, is_taken) in [(0, true), (1024, true), (1025, false)] {
            let mut content = vec![0x68, 0x43];
            varint::encode(4 + length, &mut content);
            content.extend([0, 0, 0, 7]);
            content.extend(std::iter::repeat_n(b'x', usize::try_from(length).unwrap()));
            assert_eq!(read(&content, 100).is_ok(), is_taken, "{length}");
        }
        assert!(read(&[0x68, 0x43, 3, 0, 0, 1], 100).is_err());
        // An unknown capsule of a million bytes is not kept.
        let mut content = vec![0x17, 0x80, 0x0f, 0x42, 0x40];
        content.extend(std::iter::repeat_n(0, 1_000_000));
        content.extend([0x68, 0x43, 0x04, 0, 0, 0, 1]);
        assert_eq!(read(&content, 1200), Ok(Some(close(1, b""))));
    }

    #[test]
    fn what_is_written_is_read() {
        for (code, reason, expected) in [
            (0, "", close(0, b"")),
            (0x15, "no draft", close(0x15, b"no draft")),
            (u64::MAX, "x", close(u32::MAX, b"x")),
        ] {
            let frame = encode_close(code, reason.as_bytes());
            assert_eq!(frame[0], 0, "DATA");
            let (length, head) = varint::decode(&frame[1..]).unwrap();
            let content = &frame[1 + head..];
            assert_eq!(content.len() as u64, length);
            assert_eq!(read(content, 5), Ok(Some(expected)));
        }
        let long = encode_close(1, "ä".repeat(1000).as_bytes());
        let (_, head) = varint::decode(&long[1..]).unwrap();
        let cut = read(&long[1 + head..], 5000).unwrap().unwrap();
        assert_eq!(cut.reason, "ä".repeat(512).as_bytes());
    }
}
