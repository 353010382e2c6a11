//! The codec of HTTP/3 (RFC 9114): frames, settings, field compression, streams and headers of messages, error codes.
//!
//! Everything here is a codec or a small reader without I/O, for both endpoints. It is *not* an HTTP server or client:
//! the users of this crate decide what a request means. The dynamic table of QPACK is not used, as an endpoint may
//! choose (RFC 9204 §3.2.3).

pub mod control;
mod error;
pub mod frame;
pub mod head;
mod instructions;
pub mod message;
pub mod peer_streams;
pub mod qpack;
pub mod settings;
pub mod varint;

pub use error::{Code, Violation};

/// The application protocol (ALPN) of HTTP/3 (RFC 9114 §3.1).
pub const ALPN: &str = "h3";

/// Types of unidirectional streams (RFC 9114 §6.2, RFC 9204 §4.2).
pub mod stream_type {
    /// Control stream.
    pub const CONTROL: u64 = 0x00;
    /// Push stream.
    pub const PUSH: u64 = 0x01;
    /// QPACK encoder stream.
    pub const ENCODER: u64 = 0x02;
    /// QPACK decoder stream.
    pub const DECODER: u64 = 0x03;
}
