//! The streams of requests: first a head, then content.

use bytes::Bytes;

use super::{
    HEAD_BYTES_MAX,
    capsule::{CapsuleReader, Close},
};
use weir_h3::{
    Code, Violation,
    frame::{self, FrameReader, Part, frame_type},
};

/// What a request stream brought.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// The payload of HEADERS.
    Section(Bytes),
    /// The payload is longer than is taken.
    TooLarge,
}

/// Reads a request stream up to the end of its first head.
#[derive(Debug, Default)]
pub(super) struct HeadReader {
    frames: FrameReader,
    /// The payload of HEADERS, while they are open.
    section: Option<Vec<u8>>,
}

/// Reads what follows the head on the stream of the session.
#[derive(Debug, Default)]
pub(super) struct ContentReader {
    frames: FrameReader,
    is_data: bool,
    capsules: CapsuleReader,
}

impl HeadReader {
    /// Takes the next bytes of the stream.
    pub(super) fn push(&mut self, data: Bytes) {
        self.frames.push(data);
    }

    /// The next head, or `None` when more bytes are needed.
    pub(super) fn poll(&mut self) -> Result<Option<Head>, Violation> {
        while let Some(part) = self.frames.poll() {
            match part {
                Part::Start { frame_type, length } => {
                    frame::check_on_request(frame_type)?;
                    if frame_type == frame_type::DATA {
                        let reason = "content before a head";
                        return Err(Violation::new(Code::FRAME_UNEXPECTED, reason));
                    }
                    if frame_type == frame_type::HEADERS {
                        if length > HEAD_BYTES_MAX as u64 {
                            return Ok(Some(Head::TooLarge));
                        }
                        self.section = Some(Vec::new());
                    }
                }
                Part::Payload(data) => {
                    if let Some(section) = &mut self.section {
                        section.extend_from_slice(&data);
                    }
                }
                Part::End => {
                    if let Some(section) = self.section.take() {
                        return Ok(Some(Head::Section(section.into())));
                    }
                }
            }
        }
        Ok(None)
    }

    /// The reader for what follows.
    pub(super) fn into_content(self) -> ContentReader {
        ContentReader {
            frames: self.frames,
            ..ContentReader::default()
        }
    }
}

impl ContentReader {
    /// Takes the next bytes of the stream.
    pub(super) fn push(&mut self, data: Bytes) {
        self.frames.push(data);
    }

    /// The end of the session, if it is there; `None` when more bytes are needed.
    pub(super) fn poll(&mut self) -> Result<Option<Close>, Violation> {
        while let Some(part) = self.frames.poll() {
            match part {
                Part::Start { frame_type, .. } => {
                    frame::check_on_request(frame_type)?;
                    self.is_data = frame_type == frame_type::DATA;
                }
                Part::Payload(data) if self.is_data => {
                    if let Some(close) = self.capsules.push(data)? {
                        return Ok(Some(close));
                    }
                }
                Part::Payload(_) | Part::End => {}
            }
        }
        Ok(None)
    }

    /// Whether the stream may end here.
    pub(super) fn is_between_frames(&self) -> bool {
        self.frames.is_between_frames()
    }
}
