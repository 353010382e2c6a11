//! Code points of WebTransport over HTTP/3 (draft-ietf-webtrans-http3), and the mapping of its error codes to those of
//! HTTP/3.

use weir_h3::frame::frame_type;

/// First bytes of a unidirectional stream of a session.
pub(super) const UNI_STREAM: u64 = 0x54;
/// First bytes of a bidirectional stream of a session.
pub(super) const BIDI_STREAM: u64 = frame_type::WEBTRANSPORT_STREAM;
/// Capsule that closes the session.
pub(super) const CLOSE_SESSION: u64 = 0x2843;
/// `WT_BUFFERED_STREAM_REJECTED`: a stream of a session that is not established.
pub(super) const STREAM_REJECTED: u64 = 0x3994_bd84;

/// Returns the HTTP/3 error code of an application error code. Codes above 2^32 - 1 cannot be encoded and become the
/// largest code.
pub(super) fn to_http(code: u64) -> u64 {
    let code = code.min(u64::from(u32::MAX));
    FIRST + code + code / 0x1e
}

/// Returns the application error code of an HTTP/3 error code, if it encodes one.
pub(super) fn from_http(code: u64) -> Option<u64> {
    if !(FIRST..=LAST).contains(&code) || (code - 0x21).is_multiple_of(0x1f) {
        return None;
    }
    let shifted = code - FIRST;
    Some(shifted - shifted / 0x1f)
}

const FIRST: u64 = 0x52e4_a40f_a8db;
const LAST: u64 = 0x52e5_ac98_3162;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edges_of_the_specification() {
        for (code, http) in [
            (0, FIRST),
            (0x1d, FIRST + 0x1d),
            // 0x52e4a40fa8f9 is reserved.
            (0x1e, FIRST + 0x1f),
            (0xffff_ffff, LAST),
        ] {
            assert_eq!(to_http(code), http);
            assert_eq!(from_http(http), Some(code));
        }
        assert_eq!(to_http(u64::MAX), LAST);
        for none in [0, 0x100, FIRST - 1, LAST + 1, FIRST + 0x1e] {
            assert_eq!(from_http(none), None, "{none:#x}");
        }
    }

    #[test]
    fn every_code_comes_back() {
        for code in (0..100_000).chain((0..100_000).map(|code| code * 42_949)) {
            assert_eq!(from_http(to_http(code)), Some(code));
        }
    }
}
