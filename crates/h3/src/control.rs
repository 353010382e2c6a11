//! The peer's control stream (RFC 9114 §6.2.1).

use bytes::Bytes;

use super::{
    Code, Violation,
    frame::{FrameReader, Part, frame_type},
    settings::{SETTINGS_BYTES_MAX, Settings, TOO_LONG},
    varint,
};

/// A frame of the control stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// SETTINGS: the first frame, once.
    Settings(Settings),
    /// GOAWAY. From a server: requests with this stream ID or a higher one are not processed. From a client: pushes
    /// with this ID or a higher one are not accepted.
    GoAway(u64),
    /// `MAX_PUSH_ID`: the client accepts pushes up to this ID.
    MaxPushId(u64),
    /// `CANCEL_PUSH`: the peer does not want this push.
    CancelPush(u64),
}

/// A reader of the control stream, after its type, that returns its frames. Unknown frames are skipped.
#[derive(Debug)]
pub struct ControlReader {
    frames: FrameReader,
    is_from_client: bool,
    has_settings: bool,
    /// The type of the current frame.
    open: u64,
    /// The payload of the current frame, if it is kept.
    payload: Vec<u8>,
}

impl ControlReader {
    /// Creates a reader for the stream of a client, or of a server.
    pub fn new(is_from_client: bool) -> Self {
        Self {
            frames: FrameReader::default(),
            is_from_client,
            has_settings: false,
            open: 0,
            payload: Vec::new(),
        }
    }

    /// Adds the next bytes of the stream. The caller must have polled until `None` before.
    pub fn push(&mut self, data: Bytes) {
        self.frames.push(data);
    }

    /// Returns the next frame; `None` if more bytes are needed.
    pub fn poll(&mut self) -> Result<Option<Control>, Violation> {
        while let Some(part) = self.frames.poll() {
            match part {
                Part::Start { frame_type, length } => self.on_start(frame_type, length)?,
                Part::Payload(data) => {
                    if is_kept(self.open) {
                        self.payload.extend_from_slice(&data);
                    }
                }
                Part::End => {
                    if let Some(control) = self.on_end()? {
                        return Ok(Some(control));
                    }
                }
            }
        }
        Ok(None)
    }

    fn on_start(&mut self, frame_type: u64, length: u64) -> Result<(), Violation> {
        let is_settings = frame_type == frame_type::SETTINGS;
        if !self.has_settings && !is_settings {
            let reason = "the control stream does not begin with SETTINGS";
            return Err(Violation::new(Code::MISSING_SETTINGS, reason));
        }
        let is_unexpected = match frame_type {
            frame_type::SETTINGS => self.has_settings,
            frame_type::DATA
            | frame_type::HEADERS
            | frame_type::PUSH_PROMISE
            | frame_type::WEBTRANSPORT_STREAM => true,
            frame_type::MAX_PUSH_ID => !self.is_from_client,
            _ => frame_type::is_of_http2(frame_type),
        };
        if is_unexpected {
            let reason = "a frame that may not be on the control stream, or not now";
            return Err(Violation::new(Code::FRAME_UNEXPECTED, reason));
        }
        if is_settings && length > SETTINGS_BYTES_MAX as u64 {
            return Err(TOO_LONG);
        }
        if is_kept(frame_type) && !is_settings && length > 8 {
            return Err(NO_INTEGER);
        }
        self.has_settings = true;
        self.open = frame_type;
        self.payload.clear();
        Ok(())
    }

    fn on_end(&mut self) -> Result<Option<Control>, Violation> {
        let control = match self.open {
            frame_type::SETTINGS => {
                return Settings::decode(&self.payload).map(|it| Some(Control::Settings(it)));
            }
            frame_type::GOAWAY => Control::GoAway,
            frame_type::MAX_PUSH_ID => Control::MaxPushId,
            frame_type::CANCEL_PUSH => Control::CancelPush,
            _ => return Ok(None),
        };
        match varint::decode(&self.payload) {
            Some((value, length)) if length == self.payload.len() => Ok(Some(control(value))),
            _ => Err(NO_INTEGER),
        }
    }
}

/// Returns whether the payload of a frame is kept.
fn is_kept(frame_type: u64) -> bool {
    matches!(
        frame_type,
        frame_type::SETTINGS
            | frame_type::GOAWAY
            | frame_type::MAX_PUSH_ID
            | frame_type::CANCEL_PUSH
    )
}

const NO_INTEGER: Violation = Violation::new(
    Code::FRAME_ERROR,
    "a frame does not hold exactly one integer",
);

#[cfg(test)]
mod tests {
    use super::*;

    fn read(stream: &[u8], piece: usize) -> Result<Vec<Control>, Violation> {
        let mut reader = ControlReader::new(true);
        let mut found = Vec::new();
        for piece in stream.chunks(piece) {
            reader.push(Bytes::copy_from_slice(piece));
            while let Some(control) = reader.poll()? {
                found.push(control);
            }
        }
        Ok(found)
    }

    #[test]
    fn frames_are_found_however_they_are_cut() {
        // SETTINGS with a field section of 16384 bytes, a reserved frame of two bytes, MAX_PUSH_ID 8, GOAWAY 4,
        // CANCEL_PUSH 3.
        let stream = [
            0x04, 0x05, 0x06, 0x80, 0x00, 0x40, 0x00, 0x21, 0x02, 9, 9, 0x0d, 0x01, 8, 0x07, 0x01,
            4, 0x03, 0x01, 3,
        ];
        let expected = vec![
            Control::Settings(Settings::new(&[(0x06, 16_384)])),
            Control::MaxPushId(8),
            Control::GoAway(4),
            Control::CancelPush(3),
        ];
        for piece in 1..=stream.len() {
            assert_eq!(read(&stream, piece).as_ref(), Ok(&expected));
        }
    }

    #[test]
    fn each_rule_has_its_code() {
        for (stream, code) in [
            (&[0x07, 0x01, 4][..], Code::MISSING_SETTINGS),
            (&[0x04, 0, 0x04, 0], Code::FRAME_UNEXPECTED),
            (&[0x04, 0, 0x00, 1, 1], Code::FRAME_UNEXPECTED),
            (&[0x04, 0, 0x01, 1, 1], Code::FRAME_UNEXPECTED),
            (&[0x04, 0, 0x05, 1, 1], Code::FRAME_UNEXPECTED),
            (&[0x04, 0, 0x02, 1, 1], Code::FRAME_UNEXPECTED),
            (&[0x04, 0, 0x07, 2, 1, 1], Code::FRAME_ERROR),
            (&[0x04, 0, 0x07, 0], Code::FRAME_ERROR),
            (&[0x04, 0, 0x07, 9], Code::FRAME_ERROR),
        ] {
            assert_eq!(read(stream, 100).unwrap_err().code, code, "{stream:x?}");
        }
        let mut of_server = ControlReader::new(false);
        of_server.push(Bytes::from_static(&[0x04, 0, 0x0d, 1, 1]));
        of_server.poll().unwrap();
        assert_eq!(of_server.poll().unwrap_err().code, Code::FRAME_UNEXPECTED);
    }
}
