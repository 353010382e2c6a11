//! Errors of decoding and of the protocol, which tell who is at fault, and the error codes of the draft.
//!
//! A [`DecodeError`] describes invalid or incomplete bytes. A [`Violation`] is the peer's fault and closes the session.
//! The code types are open: an unknown value is kept, and is treated like `INTERNAL_ERROR` of its registry
//! [moqt-18 §14]. Misuse by the calling role is an assertion, never one of these errors.

use std::borrow::Cow;
use std::fmt;

/// Why bytes could not be decoded.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The value is incomplete: more bytes are needed, or are missing if no more can come.
    #[error("more bytes are needed")]
    Short,
    /// The peer violated the protocol, or exceeded a limit of this endpoint.
    #[error("{}", self.into_violation())]
    Invalid {
        /// The code that closes the session.
        code: SessionError,
        /// The fault, as a sentence fragment.
        reason: &'static str,
        /// The number at the end of that sentence: an unknown type.
        number: Option<u64>,
    },
}

impl DecodeError {
    /// Returns a `PROTOCOL_VIOLATION` with `reason`.
    pub(crate) const fn protocol(reason: &'static str) -> Self {
        Self::Invalid {
            code: SessionError::PROTOCOL_VIOLATION,
            reason,
            number: None,
        }
    }

    /// Returns the error of an unknown message type, which cannot be skipped [moqt-18 §10].
    pub(crate) const fn unknown_message(message_type: u64) -> Self {
        Self::Invalid {
            code: SessionError::PROTOCOL_VIOLATION,
            reason: "unknown message type",
            number: Some(message_type),
        }
    }

    /// Returns a `KEY_VALUE_FORMATTING_ERROR` with `reason`.
    pub(crate) const fn key_value(reason: &'static str) -> Self {
        Self::Invalid {
            code: SessionError::KEY_VALUE_FORMATTING_ERROR,
            reason,
            number: None,
        }
    }

    /// Converts the error into a violation, for input that cannot grow: after a FIN, or inside a value of known length.
    pub const fn into_violation(self) -> Violation {
        match self {
            Self::Short => Violation::protocol("ends in the middle of a field"),
            Self::Invalid {
                code,
                reason,
                number,
            } => Violation {
                code,
                reason,
                number,
            },
        }
    }
}

/// A protocol violation of the peer, which closes the session.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} ({code})", self.text())]
pub struct Violation {
    /// The code that closes the session.
    pub code: SessionError,
    /// The fault, as a sentence fragment.
    pub reason: &'static str,
    /// The number at the end of that sentence: an unknown type.
    pub number: Option<u64>,
}

impl Violation {
    /// Returns the reason, with its number in hexadecimal.
    pub fn text(&self) -> Cow<'static, str> {
        match self.number {
            Some(number) => format!("{} {number:#x}", self.reason).into(),
            None => self.reason.into(),
        }
    }

    /// Returns a `PROTOCOL_VIOLATION` with `reason`.
    pub const fn protocol(reason: &'static str) -> Self {
        SessionError::PROTOCOL_VIOLATION.violation(reason)
    }

    /// A message whose length exceeds the limit of its reader.
    pub(crate) const MESSAGE_TOO_LONG: Self =
        Self::beyond_limit("a message is longer than this endpoint accepts");

    /// An object with more bytes before its payload than the limit of its reader.
    pub(crate) const HEADER_TOO_LONG: Self =
        Self::beyond_limit("an object header is longer than this endpoint accepts");

    /// Returns an `INTERNAL_ERROR` with `reason`: permitted by the draft, but beyond a limit of this endpoint.
    pub(crate) const fn beyond_limit(reason: &'static str) -> Self {
        SessionError::INTERNAL_ERROR.violation(reason)
    }
}

impl From<Violation> for DecodeError {
    fn from(violation: Violation) -> Self {
        Self::Invalid {
            code: violation.code,
            reason: violation.reason,
            number: violation.number,
        }
    }
}

/// Why a message has no encoding.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The message does not fit the 16-bit length of a control message [moqt-18 §10].
    #[error(
        "the {kind} message would have {bytes} bytes of payload; 65535 is the most a message can carry"
    )]
    TooLong {
        /// The draft's name of the message.
        kind: &'static str,
        /// The size of the payload, in bytes.
        bytes: usize,
    },
    /// The draft of the session cannot express the message.
    #[error("the draft of this session has no {what}")]
    NotInDraft {
        /// What the draft does not have.
        what: &'static str,
    },
}

/// Defines a registry of codes as an open type with named constants.
macro_rules! wire_codes {
    ($(#[$doc:meta])* $name:ident { $($(#[$code_doc:meta])* $code:ident = $value:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl $name {
            $($(#[$code_doc])* pub const $code: Self = Self($value);)+

            /// Returns the draft's name of this code; `None` if it is unknown.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($code)),)+
                    _ => None,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "0x{:x}", self.0),
                }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

wire_codes! {
    /// Why a session was closed [moqt-18 §3.5].
    SessionError {
        /// The session ends without an error.
        NO_ERROR = 0x0,
        /// An error or a limit of the implementation.
        INTERNAL_ERROR = 0x1,
        /// The client may not establish a session.
        UNAUTHORIZED = 0x2,
        /// The peer violated the protocol.
        PROTOCOL_VIOLATION = 0x3,
        /// A Request ID of the wrong parity, or a repeated one.
        INVALID_REQUEST_ID = 0x4,
        /// A Track Alias that another track uses.
        DUPLICATE_TRACK_ALIAS = 0x5,
        /// A key-value pair or a token that does not parse.
        KEY_VALUE_FORMATTING_ERROR = 0x6,
        /// PATH where it is not permitted, or a path that the server does not have.
        INVALID_PATH = 0x8,
        /// A PATH that is not the path of a URI.
        MALFORMED_PATH = 0x9,
        /// The peer took too long to leave after GOAWAY.
        GOAWAY_TIMEOUT = 0x10,
        /// The peer took too long to answer a control message.
        CONTROL_MESSAGE_TIMEOUT = 0x11,
        /// The peer took too long to send data on an open data stream.
        DATA_STREAM_TIMEOUT = 0x12,
        /// More registered tokens than the cache permits.
        AUTH_TOKEN_CACHE_OVERFLOW = 0x13,
        /// A token alias that was registered already.
        DUPLICATE_AUTH_TOKEN_ALIAS = 0x14,
        /// No version in common; until draft-19.
        VERSION_NEGOTIATION_FAILED = 0x15,
        /// A token that cannot be registered as it is.
        MALFORMED_AUTH_TOKEN = 0x16,
        /// A token alias that is not registered.
        UNKNOWN_AUTH_TOKEN_ALIAS = 0x17,
        /// A token that has expired.
        EXPIRED_AUTH_TOKEN = 0x18,
        /// AUTHORITY where it is not permitted, or one that the server does not have.
        INVALID_AUTHORITY = 0x19,
        /// An AUTHORITY that is not the authority of a URI.
        MALFORMED_AUTHORITY = 0x1A,
        /// More unanswered updates of a request than the endpoint's SETUP permits; from draft-19 on.
        TOO_MANY_REQUEST_UPDATES = 0x1B,
    }
}

impl SessionError {
    /// Returns the violation that closes the session with this code.
    pub const fn violation(self, reason: &'static str) -> Violation {
        Violation {
            code: self,
            reason,
            number: None,
        }
    }
}

wire_codes! {
    /// Why a request failed [moqt-18 §10.6.2].
    RequestErrorCode {
        /// An error of the implementation.
        INTERNAL_ERROR = 0x0,
        /// The requester is not authorized.
        UNAUTHORIZED = 0x1,
        /// The request timed out.
        TIMEOUT = 0x2,
        /// A type of request that this endpoint does not support.
        NOT_SUPPORTED = 0x3,
        /// A token that cannot be parsed or has an invalid value.
        MALFORMED_AUTH_TOKEN = 0x4,
        /// A token that has expired.
        EXPIRED_AUTH_TOKEN = 0x5,
        /// The session is going away.
        GOING_AWAY = 0x6,
        /// The endpoint is overloaded; the retry interval tells when to try again.
        EXCESSIVE_LOAD = 0x9,
        /// The track or namespace does not exist.
        DOES_NOT_EXIST = 0x10,
        /// The range or filter cannot be satisfied.
        INVALID_RANGE = 0x11,
        /// The track breaks the object model.
        MALFORMED_TRACK = 0x12,
        /// A second subscription to the track in the same role; only draft-18.
        DUPLICATE_SUBSCRIPTION = 0x19,
        /// The endpoint is not interested in the offered track or namespace.
        UNINTERESTED = 0x20,
        /// The prefix overlaps with another of the same type in this session.
        PREFIX_OVERLAP = 0x30,
        /// The prefix matches more than the relay enumerates.
        NAMESPACE_TOO_LARGE = 0x31,
        /// The joining fetch refers to no established subscription; until draft-19.
        INVALID_JOINING_REQUEST_ID = 0x32,
        /// The track has a mandatory property that the endpoint does not support.
        UNSUPPORTED_EXTENSION = 0x33,
        /// The request may succeed at the redirect's target.
        REDIRECT = 0x34,
        /// The filters of too many subscribers conflict; from draft-19 on.
        CONFLICTING_FILTERS = 0x35,
        /// A range filter is invalid, or has more ranges than the endpoint accepts; from draft-19 on.
        INVALID_FILTER = 0x36,
    }
}

wire_codes! {
    /// Why a subscription ended [moqt-18 §10.11].
    PublishDoneCode {
        /// An error of the implementation.
        INTERNAL_ERROR = 0x0,
        /// The subscriber is not authorized any longer.
        UNAUTHORIZED = 0x1,
        /// The track has ended.
        TRACK_ENDED = 0x2,
        /// The end of the subscription's filter was reached; until draft-19.
        SUBSCRIPTION_ENDED = 0x3,
        /// One side sent GOAWAY.
        GOING_AWAY = 0x4,
        /// The subscriber's queue passed the publisher's limit.
        TOO_FAR_BEHIND = 0x5,
        /// The subscription has expired.
        EXPIRED = 0x6,
        /// A `REQUEST_UPDATE` of this subscription failed.
        UPDATE_FAILED = 0x8,
        /// The publisher is overloaded.
        EXCESSIVE_LOAD = 0x9,
        /// The track breaks the object model.
        MALFORMED_TRACK = 0x12,
    }
}

wire_codes! {
    /// Why a stream was reset or refused [moqt-18 §3.3.3].
    ResetCode {
        /// An error of the implementation.
        INTERNAL_ERROR = 0x0,
        /// Either side cancelled the request.
        CANCELLED = 0x1,
        /// A delivery timeout passed.
        DELIVERY_TIMEOUT = 0x2,
        /// The session is being closed.
        SESSION_CLOSED = 0x3,
        /// GOAWAY was sent or received.
        GOING_AWAY = 0x4,
        /// The subscription exceeded the publisher's resource limits.
        TOO_FAR_BEHIND = 0x5,
        /// The publisher does not know the status of the next object of a fetch.
        UNKNOWN_OBJECT_STATUS = 0x6,
        /// The request's token has expired.
        EXPIRED_AUTH_TOKEN = 0x7,
        /// The endpoint is overloaded.
        EXCESSIVE_LOAD = 0x9,
        /// The track breaks the object model.
        MALFORMED_TRACK = 0x12,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_codes_show_their_name_and_unknown_ones_their_value() {
        assert_eq!(
            SessionError::PROTOCOL_VIOLATION.to_string(),
            "PROTOCOL_VIOLATION"
        );
        assert_eq!(RequestErrorCode(0x9D).to_string(), "0x9d");
        assert_eq!(RequestErrorCode(0x9D).name(), None);
    }

    #[test]
    fn short_becomes_a_violation_where_no_more_can_come() {
        assert_eq!(
            DecodeError::Short.into_violation().code,
            SessionError::PROTOCOL_VIOLATION
        );
    }
}
