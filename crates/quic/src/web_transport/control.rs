//! The peer's control stream (RFC 9114 §6.2.1).

use bytes::Bytes;

use super::codes;
use crate::h3::{
    Code, Violation,
    frame::{FrameReader, Part, frame_type},
    settings::{SETTINGS_BYTES_MAX, Settings, TOO_LONG},
    varint,
};

/// Reads the frames of the control stream.
#[derive(Debug, Default)]
pub(super) struct ControlReader {
    frames: FrameReader,
    has_settings: bool,
    /// The type of the frame that is open.
    open: u64,
    /// Its payload, if it is looked at.
    payload: Vec<u8>,
}

impl ControlReader {
    /// Takes the next bytes. Returns the settings when they are complete.
    pub(super) fn push(
        &mut self,
        data: Bytes,
        is_from_client: bool,
    ) -> Result<Option<Settings>, Violation> {
        let mut settings = None;
        self.frames.push(data);
        while let Some(part) = self.frames.poll() {
            match part {
                Part::Start { frame_type, length } => {
                    self.on_start(frame_type, length, is_from_client)?;
                }
                Part::Payload(data) => {
                    if is_kept(self.open) {
                        self.payload.extend_from_slice(&data);
                    }
                }
                Part::End => settings = self.on_end()?.or(settings),
            }
        }
        Ok(settings)
    }

    fn on_start(
        &mut self,
        frame_type: u64,
        length: u64,
        is_from_client: bool,
    ) -> Result<(), Violation> {
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
            | codes::BIDI_STREAM => true,
            frame_type::MAX_PUSH_ID => !is_from_client,
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

    fn on_end(&mut self) -> Result<Option<Settings>, Violation> {
        if self.open == frame_type::SETTINGS {
            return Settings::decode(&self.payload).map(Some);
        }
        // The others that are kept hold one integer, which concerns requests and pushes that are not there.
        if is_kept(self.open)
            && varint::decode(&self.payload).map(|(_, length)| length) != Some(self.payload.len())
        {
            return Err(NO_INTEGER);
        }
        Ok(None)
    }
}

/// Whether the payload of a frame is looked at.
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
