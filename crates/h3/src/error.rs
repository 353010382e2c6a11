//! Error codes of HTTP/3, and violations by the peer.

use std::fmt;

/// An error code of HTTP/3, known or not (RFC 9114 §8.1, RFC 9204 §6, RFC 9297 §5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(pub u64);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        impl Code {
            $($(#[$doc])* pub const $name: Self = Self($value);)*

            /// Returns the name in the specification; `None` if the code is unknown.
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
    /// The peer violated the protocol in a way without a code of its own.
    GENERAL_PROTOCOL_ERROR = 0x101, "H3_GENERAL_PROTOCOL_ERROR";
    /// An error of this implementation.
    INTERNAL_ERROR = 0x102, "H3_INTERNAL_ERROR";
    /// A stream that the peer may not create.
    STREAM_CREATION_ERROR = 0x103, "H3_STREAM_CREATION_ERROR";
    /// A stream that must stay open was closed.
    CLOSED_CRITICAL_STREAM = 0x104, "H3_CLOSED_CRITICAL_STREAM";
    /// A frame that is not permitted on the stream or at this time.
    FRAME_UNEXPECTED = 0x105, "H3_FRAME_UNEXPECTED";
    /// A frame with an invalid layout or size.
    FRAME_ERROR = 0x106, "H3_FRAME_ERROR";
    /// The peer causes excessive load.
    EXCESSIVE_LOAD = 0x107, "H3_EXCESSIVE_LOAD";
    /// An invalid stream ID or push ID.
    ID_ERROR = 0x108, "H3_ID_ERROR";
    /// Invalid contents of SETTINGS.
    SETTINGS_ERROR = 0x109, "H3_SETTINGS_ERROR";
    /// The control stream does not begin with SETTINGS.
    MISSING_SETTINGS = 0x10a, "H3_MISSING_SETTINGS";
    /// A request that was not processed.
    REQUEST_REJECTED = 0x10b, "H3_REQUEST_REJECTED";
    /// A request or its response was cancelled.
    REQUEST_CANCELLED = 0x10c, "H3_REQUEST_CANCELLED";
    /// A request that ended before it was complete.
    REQUEST_INCOMPLETE = 0x10d, "H3_REQUEST_INCOMPLETE";
    /// A malformed HTTP message.
    MESSAGE_ERROR = 0x10e, "H3_MESSAGE_ERROR";
    /// A field section that cannot be decoded.
    DECOMPRESSION_FAILED = 0x200, "QPACK_DECOMPRESSION_FAILED";
    /// An invalid instruction on the encoder stream.
    ENCODER_STREAM_ERROR = 0x201, "QPACK_ENCODER_STREAM_ERROR";
    /// An invalid instruction on the decoder stream.
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

/// A violation by the peer, which ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {reason}")]
pub struct Violation {
    /// The code that closes the connection.
    pub code: Code,
    /// The violation, as a sentence fragment.
    pub reason: &'static str,
}

impl Violation {
    /// Creates a violation with `code`.
    pub const fn new(code: Code, reason: &'static str) -> Self {
        Self { code, reason }
    }
}
