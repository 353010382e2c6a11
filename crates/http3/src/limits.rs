//! Limits of what a peer can make a connection store.

/// Limits of HTTP/3 on each connection. QUIC limits the number of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a message's head, both encoded and as fields with 32 bytes more for each (RFC 9114 §4.2.2). A larger
    /// request gets status 431.
    pub field_section_bytes_max: usize,
    /// Bytes of all incomplete heads and trailers of a connection. A request that exceeds this is cut off.
    pub unfinished_sections_bytes_max: usize,
    /// Bytes of a request's content, which is read and dropped. A larger request gets status 413. As much again is then
    /// read, before the client is asked to stop.
    pub request_content_bytes_max: u64,
    /// Unidirectional streams of the peer without a known type. One more is a violation.
    pub fresh_streams_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            field_section_bytes_max: 16 << 10,
            unfinished_sections_bytes_max: 128 << 10,
            request_content_bytes_max: 1 << 20,
            fresh_streams_max: 16,
        }
    }
}

/// Bytes of a stream from which on the rest is left for the stream's next turn.
pub(crate) const READ_BYTES_AT_ONCE: usize = 4 << 10;
