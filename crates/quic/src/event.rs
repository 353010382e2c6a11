//! The events of an endpoint for its role.

use bytes::Bytes;
use quinn_proto::{ConnectionError, TransportErrorCode, VarInt};
use weir_transport::{Direction, StreamId};

use crate::{Handle, tls::refusal::Refusals};

/// An event of a connection.
#[derive(Debug)]
pub enum Event {
    /// The handshake is complete; streams and datagrams may be used.
    Connected {
        /// The connection.
        handle: Handle,
    },
    /// The connection is lost, and its handle is invalid. Not sent for a connection that was closed locally.
    Lost {
        /// The connection.
        handle: Handle,
        /// The reason.
        reason: Lost,
    },
    /// The peer opened a stream. A `Readable` event for it follows.
    Opened {
        /// The connection.
        handle: Handle,
        /// The new stream.
        stream: StreamId,
        /// The direction of the stream; a bidirectional one can be answered.
        direction: Direction,
    },
    /// Data, the FIN or a reset may be available to read.
    Readable {
        /// The connection.
        handle: Handle,
        /// The stream.
        stream: StreamId,
    },
    /// A stream that was blocked accepts data again.
    Writable {
        /// The connection.
        handle: Handle,
        /// The stream.
        stream: StreamId,
    },
    /// The peer sent `STOP_SENDING` for a stream (RFC 9000 §3.5).
    Stopped {
        /// The connection.
        handle: Handle,
        /// The stream.
        stream: StreamId,
        /// The peer's application error code.
        code: u64,
    },
    /// The peer has acknowledged all of a finished stream.
    Finished {
        /// The connection.
        handle: Handle,
        /// The stream.
        stream: StreamId,
    },
    /// The peer raised its stream limit.
    StreamsAvailable {
        /// The connection.
        handle: Handle,
        /// The direction of the streams.
        direction: Direction,
    },
    /// A datagram arrived (RFC 9221).
    Datagram {
        /// The connection.
        handle: Handle,
        /// Its payload.
        data: Bytes,
    },
}

impl Event {
    /// Returns the connection of the event.
    #[inline]
    pub fn handle(&self) -> Handle {
        match self {
            Self::Connected { handle }
            | Self::Lost { handle, .. }
            | Self::Opened { handle, .. }
            | Self::Readable { handle, .. }
            | Self::Writable { handle, .. }
            | Self::Stopped { handle, .. }
            | Self::Finished { handle, .. }
            | Self::StreamsAvailable { handle, .. }
            | Self::Datagram { handle, .. } => *handle,
        }
    }
}

/// Why a connection was lost. The `Display` text names the side that ended it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// Nothing was received for the idle timeout.
    #[error("timed out: the peer did not answer")]
    TimedOut,
    /// The peer lost its state and sent a stateless reset (RFC 9000 §10.3).
    #[error("the peer reset the connection")]
    Reset,
    /// The peer's application closed the connection.
    #[error("the peer closed the session with code {code:#x}{}", quoted(.reason))]
    Application {
        /// The application error code.
        code: u64,
        /// Its reason phrase, as text.
        reason: String,
    },
    /// The handshake failed because the endpoints share no application protocol (ALPN).
    #[error("no common protocol: the peer does not speak any of the offered ALPNs")]
    NoApplicationProtocol,
    /// The TLS handshake failed; the text names the side that refused, the alert, and that side's reason.
    #[error("TLS handshake failed: {0}")]
    Tls(String),
    /// The connection was closed with a transport error; the text names the side that detected it.
    #[error("QUIC transport error: {0}")]
    Transport(String),
    /// The WebTransport session was not established, or was lost; the text names the reason and the side.
    #[error("WebTransport: {0}")]
    WebTransport(String),
    /// The peer does not support QUIC version 1.
    #[error("the peer does not speak QUIC version 1")]
    Version,
    /// This endpoint ran out of connection IDs.
    #[error("connection IDs exhausted")]
    ConnectionIdsExhausted,
}

impl Lost {
    /// Converts the engine's reason; `None` if the connection was closed here. `refusals` are those of the connection's
    /// client.
    pub(crate) fn from_engine(error: ConnectionError, refusals: Option<&Refusals>) -> Option<Self> {
        Some(match error {
            ConnectionError::TimedOut => Self::TimedOut,
            ConnectionError::Reset => Self::Reset,
            ConnectionError::VersionMismatch => Self::Version,
            ConnectionError::CidsExhausted => Self::ConnectionIdsExhausted,
            ConnectionError::LocallyClosed => return None,
            ConnectionError::ApplicationClosed(close) => Self::Application {
                code: close.error_code.into_inner(),
                reason: printable(&close.reason),
            },
            ConnectionError::ConnectionClosed(close) => {
                let words = quoted(&printable(&close.reason));
                Self::from_code("the peer reports", close.error_code, &words)
            }
            ConnectionError::TransportError(error) => {
                let refusal = refusals.and_then(|refusals| refusals.sentence(&error.reason));
                let mut words = printable(refusal.unwrap_or(error.reason).as_bytes());
                if !words.is_empty() {
                    words.insert_str(0, ": ");
                }
                Self::from_code("this side reports", error.code, &words)
            }
        })
    }

    /// Converts a transport error. `finder` names the side that detected it, `words` is that side's reason.
    fn from_code(finder: &str, code: TransportErrorCode, words: &str) -> Self {
        let number = u64::from(code);
        if number == NO_APPLICATION_PROTOCOL {
            return Self::NoApplicationProtocol;
        }
        if (CRYPTO_ERRORS..CRYPTO_ERRORS + 256).contains(&number) {
            let alert = alert_name(number - CRYPTO_ERRORS);
            return Self::Tls(format!("{finder}: {alert}{words}"));
        }
        let name = match code.to_string() {
            name if name == "unknown error" => format!("code {number:#x}"),
            name => name,
        };
        Self::Transport(format!("{finder}: {name}{words}"))
    }
}

/// Converts an error code of MOQT for the engine. Codes beyond 2^62 - 1 cannot be encoded and become the largest code.
pub(crate) fn code(value: u64) -> VarInt {
    VarInt::from_u64(value).unwrap_or(VarInt::MAX)
}

fn quoted(reason: &str) -> String {
    if reason.is_empty() {
        String::new()
    } else {
        format!(": {reason:?}")
    }
}

/// Returns the peer's text without characters that could affect a terminal or log.
pub(crate) fn printable(reason: &[u8]) -> String {
    String::from_utf8_lossy(&reason[..reason.len().min(REASON_BYTES_MAX)])
        .chars()
        .filter(|character| !character.is_control())
        .collect()
}

fn alert_name(alert: u64) -> String {
    match alert {
        10 => "unexpected message".to_owned(),
        40 => "handshake failure".to_owned(),
        42 => "bad certificate".to_owned(),
        43 => "unsupported certificate".to_owned(),
        44 => "certificate revoked".to_owned(),
        45 => "certificate expired".to_owned(),
        46 => "certificate unknown".to_owned(),
        47 => "illegal parameter".to_owned(),
        48 => "unknown certificate authority".to_owned(),
        49 => "access denied".to_owned(),
        50 => "decode error".to_owned(),
        51 => "decrypt error".to_owned(),
        70 => "unsupported TLS version".to_owned(),
        80 => "internal error".to_owned(),
        109 => "missing extension".to_owned(),
        112 => "unrecognised server name".to_owned(),
        116 => "certificate required".to_owned(),
        other => format!("alert {other}"),
    }
}

/// Largest part of a peer's reason phrase that is kept, in bytes.
const REASON_BYTES_MAX: usize = 256;
/// First of the 256 codes that carry a TLS alert (RFC 9001 §4.8).
const CRYPTO_ERRORS: u64 = 0x100;
/// TLS alert 120, `no_application_protocol` (RFC 7301), as a QUIC code.
const NO_APPLICATION_PROTOCOL: u64 = CRYPTO_ERRORS + 120;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_cannot_write_to_the_terminal() {
        let close = quinn_proto::ApplicationClose {
            error_code: VarInt::from_u32(3),
            reason: Bytes::from_static(b"bad\x1b[2J\nthing"),
        };
        let lost = Lost::from_engine(ConnectionError::ApplicationClosed(close), None).unwrap();
        assert_eq!(
            lost.to_string(),
            r#"the peer closed the session with code 0x3: "bad[2Jthing""#
        );
    }

    fn text(error: ConnectionError) -> String {
        Lost::from_engine(error, None).unwrap().to_string()
    }

    #[test]
    fn causes_without_a_transport_code_name_the_guilty() {
        let application = |reason: &'static [u8]| {
            ConnectionError::ApplicationClosed(quinn_proto::ApplicationClose {
                error_code: VarInt::from_u32(3),
                reason: Bytes::from_static(reason),
            })
        };
        for (error, expected) in [
            (
                ConnectionError::TimedOut,
                "timed out: the peer did not answer",
            ),
            (ConnectionError::Reset, "the peer reset the connection"),
            (
                ConnectionError::VersionMismatch,
                "the peer does not speak QUIC version 1",
            ),
            (ConnectionError::CidsExhausted, "connection IDs exhausted"),
            (
                application(b""),
                "the peer closed the session with code 0x3",
            ),
            (
                application(b"late"),
                "the peer closed the session with code 0x3: \"late\"",
            ),
        ] {
            assert_eq!(text(error), expected);
        }
        assert_eq!(
            Lost::from_engine(ConnectionError::LocallyClosed, None),
            None
        );
    }

    #[test]
    fn causes_with_a_transport_code_name_the_guilty() {
        let closed = |code: TransportErrorCode, reason: &'static [u8]| {
            ConnectionError::ConnectionClosed(quinn_proto::ConnectionClose {
                error_code: code,
                frame_type: None,
                reason: Bytes::from_static(reason),
            })
        };
        let found = |code: TransportErrorCode, reason: &str| {
            ConnectionError::TransportError(quinn_proto::TransportError {
                code,
                frame: None,
                reason: reason.to_owned(),
            })
        };
        let tls = TransportErrorCode::crypto;
        let violation = TransportErrorCode::PROTOCOL_VIOLATION;
        for (error, expected) in [
            (
                closed(tls(48), b""),
                "TLS handshake failed: the peer reports: unknown certificate authority",
            ),
            (
                closed(tls(45), b"old"),
                "TLS handshake failed: the peer reports: certificate expired: \"old\"",
            ),
            (
                found(tls(42), "bad: \u{1b}[2J"),
                "TLS handshake failed: this side reports: bad certificate: bad: [2J",
            ),
            (
                found(tls(255), ""),
                "TLS handshake failed: this side reports: alert 255",
            ),
            (
                closed(tls(120), b"no"),
                "no common protocol: the peer does not speak any of the offered ALPNs",
            ),
            (
                closed(TransportErrorCode::CONNECTION_REFUSED, b""),
                "QUIC transport error: the peer reports: the server refused to accept a new connection",
            ),
            (
                found(violation, "too many"),
                "QUIC transport error: this side reports: detected an error with protocol compliance that was not covered \
                 by more specific error codes: too many",
            ),
        ] {
            assert_eq!(text(error), expected);
        }
    }
}
