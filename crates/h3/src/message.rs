//! The stream of one request or response: a header, content, and optional trailers (RFC 9114 §4.1).

use super::{
    Code, Violation,
    frame::{self, FrameReader, Part, frame_type},
};
use bytes::Bytes;

/// The next part of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// The header, as a field section.
    Head(Bytes),
    /// A header that exceeds the limit, reported as soon as its length is known; it is skipped.
    HeadTooLarge,
    /// The next bytes of the content; never empty.
    Content(Bytes),
    /// The trailers, as a field section, after which only unknown frames may follow. Trailers beyond the limit of
    /// headers are skipped.
    Trailers(Bytes),
}

/// A reader that splits the stream of a message into parts. Keeps at most one field section.
#[derive(Debug)]
pub struct MessageReader {
    frames: FrameReader,
    section_bytes_max: usize,
    stage: Stage,
    /// The type of the current frame.
    open: u64,
    /// Length of the current field section; `None` if it is skipped.
    section_length: Option<usize>,
    section: Bytes,
    /// The beginning of a field section that arrives in several parts.
    parts: Vec<u8>,
}

/// The stage of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Head,
    Content,
    Trailers,
}

impl MessageReader {
    /// Creates a reader for field sections of at most `section_bytes_max` bytes.
    pub fn new(section_bytes_max: usize) -> Self {
        Self {
            frames: FrameReader::default(),
            section_bytes_max,
            stage: Stage::Head,
            open: 0,
            section_length: None,
            section: Bytes::new(),
            parts: Vec::new(),
        }
    }

    /// Adds the next bytes of the stream. The caller must have polled until `None` before.
    #[inline]
    pub fn push(&mut self, data: Bytes) {
        self.frames.push(data);
    }

    /// Skips the next `length` bytes of the stream if all of them are content, and more of it follows. Returns whether
    /// they were skipped; if so, the caller must not push them. For callers that only count content.
    #[inline]
    pub fn skip_content(&mut self, length: usize) -> bool {
        self.open == frame_type::DATA && self.frames.skip(length)
    }

    /// Returns the next part; `None` if more bytes are needed.
    pub fn poll(&mut self) -> Result<Option<Piece>, Violation> {
        while let Some(part) = self.frames.poll() {
            match part {
                Part::Start { frame_type, length } => {
                    if let Some(piece) = self.on_start(frame_type, length)? {
                        return Ok(Some(piece));
                    }
                }
                Part::Payload(data) => match self.open {
                    frame_type::DATA => return Ok(Some(Piece::Content(data))),
                    frame_type::HEADERS => self.on_section(data),
                    _ => {}
                },
                Part::End if self.open == frame_type::HEADERS => {
                    if let Some(piece) = self.on_section_end() {
                        return Ok(Some(piece));
                    }
                }
                Part::End => {}
            }
        }
        Ok(None)
    }

    /// Expects another header, since the last one was that of an interim response (RFC 9114 §4.1).
    pub fn expect_another_head(&mut self) {
        self.stage = Stage::Head;
    }

    /// Returns whether the header has come.
    pub fn has_head(&self) -> bool {
        self.stage != Stage::Head
    }

    /// Returns the number of bytes kept of an incomplete field section.
    pub fn kept_bytes(&self) -> usize {
        self.parts.len()
    }

    /// Checks that the stream may end here, not within a frame (RFC 9114 §7.1).
    pub fn check_end(&self) -> Result<(), Violation> {
        if self.frames.is_between_frames() {
            return Ok(());
        }
        let reason = "the stream of a message ends inside a frame";
        Err(Violation::new(Code::FRAME_ERROR, reason))
    }

    fn on_start(&mut self, frame_type: u64, length: u64) -> Result<Option<Piece>, Violation> {
        self.open = frame_type;
        match (frame_type, self.stage) {
            (frame_type::DATA, Stage::Content) => Ok(None),
            (frame_type::DATA, Stage::Head) => Err(Violation::new(
                Code::FRAME_UNEXPECTED,
                "content before a head",
            )),
            (frame_type::DATA | frame_type::HEADERS, Stage::Trailers) => Err(Violation::new(
                Code::FRAME_UNEXPECTED,
                "more of a message after its trailers",
            )),
            (frame_type::HEADERS, Stage::Head | Stage::Content) => {
                let length = usize::try_from(length).ok();
                self.section_length = length.filter(|length| *length <= self.section_bytes_max);
                let is_too_large = self.section_length.is_none();
                Ok((is_too_large && self.end_section()).then_some(Piece::HeadTooLarge))
            }
            _ => frame::check_on_request(frame_type).map(|()| None),
        }
    }

    fn on_section(&mut self, data: Bytes) {
        match self.section_length {
            Some(length) if length == data.len() => self.section = data,
            Some(_) => self.parts.extend_from_slice(&data),
            None => {}
        }
    }

    fn on_section_end(&mut self) -> Option<Piece> {
        self.section_length.take()?;
        let mut section = std::mem::take(&mut self.section);
        if !self.parts.is_empty() {
            section = std::mem::take(&mut self.parts).into();
        }
        Some(if self.end_section() {
            Piece::Head(section)
        } else {
            Piece::Trailers(section)
        })
    }

    /// Advances the stage after a field section; returns whether it was the header.
    fn end_section(&mut self) -> bool {
        let is_head = self.stage == Stage::Head;
        self.stage = if is_head {
            Stage::Content
        } else {
            Stage::Trailers
        };
        is_head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(stream: &[u8], piece: usize) -> Result<(Vec<Piece>, MessageReader), Violation> {
        let mut reader = MessageReader::new(4);
        let mut found = Vec::new();
        for piece in stream.chunks(piece) {
            reader.push(Bytes::copy_from_slice(piece));
            while let Some(next) = reader.poll()? {
                match (found.last_mut(), next) {
                    // Pieces of content are joined: how content is split does not matter.
                    (Some(Piece::Content(before)), Piece::Content(next)) => {
                        *before = [&before[..], &next].concat().into();
                    }
                    (_, next) => found.push(next),
                }
            }
        }
        Ok((found, reader))
    }

    #[test]
    fn a_message_however_it_is_cut() {
        // A reserved frame, HEADERS, DATA of two and of one byte, a reserved frame, trailers, one more reserved.
        let stream = [
            0x21, 1, 9, 0x01, 3, 1, 2, 3, 0x00, 2, 4, 5, 0x40, 0x5f, 1, 9, 0x00, 1, 6, 0x01, 2, 7,
            8, 0x21, 0,
        ];
        let expected = [
            Piece::Head(Bytes::from_static(&[1, 2, 3])),
            Piece::Content(Bytes::from_static(&[4, 5, 6])),
            Piece::Trailers(Bytes::from_static(&[7, 8])),
        ];
        for piece in 1..=stream.len() {
            let (found, reader) = read(&stream, piece).unwrap();
            assert_eq!(found, expected);
            assert!(reader.has_head() && reader.check_end().is_ok());
            assert_eq!(reader.kept_bytes(), 0);
        }
        for (end, kept) in [(5, 0), (6, 1), (7, 2), (8, 0), (21, 0), (22, 1), (23, 0)] {
            let (_, reader) = read(&stream[..end], 1).unwrap();
            assert_eq!(reader.kept_bytes(), kept, "{end}");
        }
        for end in [1, 2, 4, 6, 9, 11, 13, 15, 20, 22, 24] {
            let (_, reader) = read(&stream[..end], 100).unwrap();
            assert_eq!(reader.check_end().unwrap_err().code, Code::FRAME_ERROR);
        }
    }

    #[test]
    fn a_head_as_long_as_the_limit_and_one_byte_longer() {
        for piece in 1..8 {
            let (found, _) = read(&[1, 4, 1, 2, 3, 4], piece).unwrap();
            assert_eq!(found, [Piece::Head(Bytes::from_static(&[1, 2, 3, 4]))]);
            let stream = [1, 5, 1, 2, 3, 4, 5, 0, 1, 6, 1, 5, 1, 2, 3, 4, 5];
            let (found, reader) = read(&stream, piece).unwrap();
            let content = Piece::Content(Bytes::from_static(&[6]));
            assert_eq!(found, [Piece::HeadTooLarge, content], "trailers as well");
            assert!(reader.check_end().is_ok());
        }
    }

    #[test]
    fn each_rule_has_its_code() {
        for (stream, code) in [
            (&[0x00, 1, 1][..], Code::FRAME_UNEXPECTED),
            (&[0x01, 0, 0x01, 0, 0x00, 0], Code::FRAME_UNEXPECTED),
            (&[0x01, 0, 0x01, 0, 0x01, 0], Code::FRAME_UNEXPECTED),
            (&[0x04, 0], Code::FRAME_UNEXPECTED),
            (&[0x01, 0, 0x07, 1], Code::FRAME_UNEXPECTED),
            (&[0x01, 0, 0x0d, 1], Code::FRAME_UNEXPECTED),
            (&[0x01, 0, 0x03, 1], Code::FRAME_UNEXPECTED),
            (&[0x01, 0, 0x05, 1], Code::FRAME_UNEXPECTED),
            (&[0x01, 0, 0x06, 1], Code::FRAME_UNEXPECTED),
        ] {
            assert_eq!(read(stream, 100).unwrap_err().code, code, "{stream:x?}");
        }
    }

    #[test]
    fn after_an_interim_answer_comes_another() {
        let (_, mut reader) = read(&[0x01, 1, 1], 100).unwrap();
        reader.expect_another_head();
        assert!(!reader.has_head());
        reader.push(Bytes::from_static(&[0x01, 1, 2, 0x00, 1, 3]));
        let head = Piece::Head(Bytes::from_static(&[2]));
        assert_eq!(reader.poll(), Ok(Some(head)));
        let content = Piece::Content(Bytes::from_static(&[3]));
        assert_eq!(reader.poll(), Ok(Some(content)));
    }
}
