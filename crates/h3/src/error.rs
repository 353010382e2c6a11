//! Why a stream or connection of HTTP/3 ends, and what a peer did wrong.

use std::fmt;

/// An error code of HTTP/3, known or not (RFC 9114 §8.1, RFC 9204 §6, RFC 9297 §5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(pub u64);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        impl Code {
            $($(#[$doc])* pub const $name: Self = Self($value);)*

            /// The name in the specification, if it has one.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// An HTTP datagram could not be parsed.
    DATAGRAM_ERROR = 0x33, "H3_DATAGRAM_ERROR";
    /// No error.
    NO_ERROR = 0x100, "H3_NO_ERROR";
    /// The peer broke a rule that has no code of its own.
    GENERAL_PROTOCOL_ERROR = 0x101, "H3_GENERAL_PROTOCOL_ERROR";
    /// Our own fault.
    INTERNAL_ERROR = 0x102, "H3_INTERNAL_ERROR";
    /// A stream that may not exist.
    STREAM_CREATION_ERROR = 0x103, "H3_STREAM_CREATION_ERROR";
    /// A stream that must stay open was closed.
    CLOSED_CRITICAL_STREAM = 0x104, "H3_CLOSED_CRITICAL_STREAM";
    /// A frame on a stream, or at a time, where it may not be.
    FRAME_UNEXPECTED = 0x105, "H3_FRAME_UNEXPECTED";
    /// A frame that breaks its layout.
    FRAME_ERROR = 0x106, "H3_FRAME_ERROR";
    /// The peer causes too much work.
    EXCESSIVE_LOAD = 0x107, "H3_EXCESSIVE_LOAD";
    /// A stream or push ID that cannot be.
    ID_ERROR = 0x108, "H3_ID_ERROR";
    /// SETTINGS with a wrong content.
    SETTINGS_ERROR = 0x109, "H3_SETTINGS_ERROR";
    /// The control stream does not begin with SETTINGS.
    MISSING_SETTINGS = 0x10a, "H3_MISSING_SETTINGS";
    /// A request that was not looked at.
    REQUEST_REJECTED = 0x10b, "H3_REQUEST_REJECTED";
    /// A request or its answer is no longer wanted.
    REQUEST_CANCELLED = 0x10c, "H3_REQUEST_CANCELLED";
    /// A request that ends too early.
    REQUEST_INCOMPLETE = 0x10d, "H3_REQUEST_INCOMPLETE";
    /// A message that breaks the rules of HTTP.
    MESSAGE_ERROR = 0x10e, "H3_MESSAGE_ERROR";
    /// Compressed fields that cannot be read.
    DECOMPRESSION_FAILED = 0x200, "QPACK_DECOMPRESSION_FAILED";
    /// An instruction of the peer's encoder that cannot be obeyed.
    ENCODER_STREAM_ERROR = 0x201, "QPACK_ENCODER_STREAM_ERROR";
    /// An instruction of the peer's decoder that cannot be obeyed.
    DECODER_STREAM_ERROR = 0x202, "QPACK_DECODER_STREAM_ERROR";
}

impl fmt::Display for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => formatter.write_str(name),
            None => write!(formatter, "HTTP/3 error {:#x}", self.0),
        }
    }
}

/// What a peer did that ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {reason}")]
pub struct Violation {
    /// The code to close with.
    pub code: Code,
    /// What the peer did.
    pub reason: &'static str,
}

impl Violation {
    /// A violation that is answered with `code`.
    pub const fn new(code: Code, reason: &'static str) -> Self {
        Self { code, reason }
    }
}
