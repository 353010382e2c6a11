//! HTTP/3 on the wire (RFC 9114): frames, settings, compressed fields, error codes.
//!
//! Everything here is a codec or a small reader without any I/O, for both ends. It is *not* an HTTP server
//! or client: which stream is which, and what a request means, is decided by those who use it. The
//! dynamic table of QPACK is refused, which is a peer's choice to make (RFC 9204 §3.2.3).

pub mod control;
mod error;
pub mod frame;
pub mod head;
pub mod qpack;
pub mod settings;
pub mod varint;

pub use error::{Code, Violation};

/// The application protocol (ALPN) of HTTP/3 (RFC 9114 §3.1).
pub const ALPN: &str = "h3";

/// First bytes of unidirectional streams (RFC 9114 §6.2, RFC 9204 §4.2).
pub mod stream_type {
    /// Control stream: SETTINGS first.
    pub const CONTROL: u64 = 0x00;
    /// Push stream.
    pub const PUSH: u64 = 0x01;
    /// QPACK encoder stream.
    pub const ENCODER: u64 = 0x02;
    /// QPACK decoder stream.
    pub const DECODER: u64 = 0x03;
}
