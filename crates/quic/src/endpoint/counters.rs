//! What an endpoint counts.

use quinn_proto::ConnectionError;

/// Counters of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections accepted from peers.
    pub accepted: u64,
    /// Incoming connections refused at [`Limits::connections_max`](crate::Limits::connections_max).
    pub refused_connections: u64,
    /// Incoming connections refused at [`Limits::handshakes_max`](crate::Limits::handshakes_max).
    pub refused_handshakes: u64,
    /// Incoming connections refused at [`Limits::handshakes_per_address_max`](crate::Limits::handshakes_per_address_max).
    pub refused_handshakes_address: u64,
    /// Incoming connections refused because the role does not accept any.
    pub refused_unwanted: u64,
    /// Incoming connections asked to validate their address.
    pub retried: u64,
    /// Retry packets received (RFC 9000 §8.1.2). Anyone who can send packets to this endpoint can raise this counter.
    pub retries_received: u64,
    /// Handshakes that failed after they were accepted.
    pub handshakes_failed: u64,
    /// Handshakes closed at [`Limits::handshake_timeout`](crate::Limits::handshake_timeout). They have failed, too.
    pub handshakes_overdue: u64,
    /// Packets dropped because they came from UDP port 0, to which nothing can be sent.
    pub packets_from_port_zero: u64,
    /// Connections, in handshake or later, that reached the idle timeout.
    pub timed_out: u64,
    /// Connections closed here because the peer violated QUIC, such as its flow control.
    pub violated: u64,
    /// Datagrams dropped to make room for newer ones.
    pub datagrams_dropped_oldest: u64,
    /// Datagrams dropped at their deadline.
    pub datagrams_dropped_expired: u64,
    /// Datagrams received and dropped because newer ones came before they were read.
    pub datagrams_dropped_unread: u64,
    /// WebTransport sessions established.
    pub web_transport_sessions: u64,
    /// HTTP/3 connections closed because no WebTransport session came in time.
    pub web_transport_overdue: u64,
    /// HTTP/3 requests answered with an error status, or reset because there were too many.
    pub http3_requests_refused: u64,
    /// HTTP/3 connections closed because the peer violated HTTP/3.
    pub http3_violations: u64,
    /// Streams of no established WebTransport session, and early streams beyond the limit.
    pub web_transport_streams_refused: u64,
    /// Datagrams of no established WebTransport session, and early datagrams beyond the limit.
    pub web_transport_datagrams_dropped: u64,
}

impl Counters {
    /// Counts why a connection was lost, if that has a counter.
    pub(in crate::endpoint) fn note_loss(&mut self, was_handshake: bool, reason: &ConnectionError) {
        self.handshakes_failed += u64::from(was_handshake);
        let is_violation = matches!(reason, ConnectionError::TransportError(error)
            if !CRYPTO_ERRORS.contains(&u64::from(error.code)));
        self.violated += u64::from(is_violation);
        self.timed_out += u64::from(*reason == ConnectionError::TimedOut);
    }
}

/// TLS alerts as transport errors (RFC 9001 §4.8), which failed handshakes count.
const CRYPTO_ERRORS: std::ops::Range<u64> = 0x100..0x200;

#[cfg(test)]
mod tests {
    use quinn_proto::{TransportError, TransportErrorCode};

    use super::*;

    #[test]
    fn violations_and_silence_are_counted_and_nothing_else() {
        let broken = |code| ConnectionError::TransportError(TransportError::from(code));
        let mut counters = Counters::default();
        for (reason, expected) in [
            (broken(TransportErrorCode::FLOW_CONTROL_ERROR), (1, 0)),
            (broken(TransportErrorCode::STREAM_LIMIT_ERROR), (2, 0)),
            (broken(TransportErrorCode::crypto(40)), (2, 0)),
            (ConnectionError::TimedOut, (2, 1)),
            (ConnectionError::Reset, (2, 1)),
            (ConnectionError::LocallyClosed, (2, 1)),
        ] {
            counters.note_loss(false, &reason);
            let counted = (counters.violated, counters.timed_out);
            assert_eq!(counted, expected, "{reason}");
        }
    }
}
