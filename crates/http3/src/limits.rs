//! What a peer may make a connection keep.

/// Limits of HTTP/3 on each connection, besides those of QUIC, which bound the number of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a message's head: as they come, and as fields with 32 bytes more for each
    /// (RFC 9114 §4.2.2). A request with more is answered with status 431.
    pub field_section_bytes_max: usize,
    /// Bytes of the heads and trailers of all requests together that have come in part only. The request with one more is
    /// cut off.
    pub unfinished_sections_bytes_max: usize,
    /// Bytes of a request's content, which is read and dropped. A request with more is answered with status 413;
    /// as much again is then read, before the client is asked to stop.
    pub request_content_bytes_max: u64,
    /// The peer's unidirectional streams that have not yet said what they are. One more is a violation.
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
