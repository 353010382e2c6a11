//! Control messages: one type each, the same for all drafts [moqt-18 §10].
//!
//! Identifiers are absolute, ranges inclusive, defaults and sentinels resolved. [`Message::decode`] takes a message
//! type and its payload, which [`crate::reader::MessageReader`] reads from a stream; [`Message::encode`] writes type,
//! length and payload. Decoding does not check what depends on the state of a session. The methods named `check` do so
//! once the session knows which request an answer belongs to.

mod fields;
mod request;
mod response;
mod setup;

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

use self::fields::{Field, in_order};
use crate::cursor::Cursor;
use crate::draft::Draft;
use crate::error::{DecodeError, EncodeError, PublishDoneCode, RequestErrorCode};
pub use crate::kinds::{MessageKind, RequestKind};
use crate::location::Location;
use crate::name::{FullTrackName, Namespace};
use crate::parameter::Parameters;
use crate::property::Properties;
use crate::scope::Scopes;
use crate::token::Token;
use crate::varint;

/// The largest payload of a message, in bytes: its length has 16 bits [moqt-18 §10].
pub const MESSAGE_BYTES_MAX: usize = 65_535;

/// The longest reason phrase, in bytes [moqt-18 §1.4.4].
pub const REASON_BYTES_MAX: usize = 1024;

/// The longest URI in GOAWAY, in bytes [moqt-18 §10.4]; the limit applies to the URI of a redirect as well.
pub const URI_BYTES_MAX: usize = 8192;

/// Declares the messages, each with its contents.
macro_rules! messages {
    ($($(#[$doc:meta])* $kind:ident($content:ty),)*) => {
        /// A control message.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Message {
            $($(#[$doc])* $kind($content),)*
        }

        impl Message {
            /// Returns the kind of the message.
            pub const fn kind(&self) -> MessageKind {
                match self {
                    $(Self::$kind(_) => MessageKind::$kind,)*
                }
            }

            fn read(
                draft: Draft,
                kind: MessageKind,
                cursor: &mut Cursor<'_>,
            ) -> Result<Self, DecodeError> {
                let scopes = Scopes::of_message(kind);
                Ok(match kind {
                    $(MessageKind::$kind => Self::$kind(Field::read(draft, scopes, cursor)?),)*
                })
            }

            fn write(&self, draft: Draft, out: &mut BytesMut) {
                match self {
                    $(Self::$kind(content) => content.write(draft, out),)*
                }
            }
        }
    };
}

messages! {
    /// The first message on each control stream [moqt-18 §10.3].
    Setup(Setup),
    /// Announces that the sender will close the session, or end one request [moqt-18 §10.4].
    GoAway(GoAway),
    /// Subscribes to the new objects of a track [moqt-18 §10.7].
    Subscribe(Subscribe),
    /// Accepts SUBSCRIBE [moqt-18 §10.8].
    SubscribeOk(SubscribeOk),
    /// Offers the new objects of a track [moqt-18 §10.10].
    Publish(Publish),
    /// Ends a subscription [moqt-18 §10.11].
    PublishDone(PublishDone),
    /// Tells a subscriber that its subscription changed; from draft-20 on [moqt-22 §9.10].
    PublishStateNotify(PublishStateNotify),
    /// Requests past objects of a track [moqt-18 §10.12].
    Fetch(Fetch),
    /// Accepts FETCH [moqt-18 §10.13].
    FetchOk(FetchOk),
    /// Requests the status of a track [moqt-18 §10.14].
    TrackStatus(TrackStatus),
    /// Offers the tracks of a namespace [moqt-18 §10.15].
    PublishNamespace(PublishNamespace),
    /// A namespace appeared under the subscribed prefix; contains the suffix after the prefix [moqt-18 §10.16].
    Namespace(Namespace),
    /// A namespace is gone; contains the suffix after the subscribed prefix [moqt-18 §10.17].
    NamespaceDone(Namespace),
    /// Subscribes to the namespaces under a prefix [moqt-18 §10.18].
    SubscribeNamespace(SubscribeNamespace),
    /// Subscribes to the tracks under a prefix [moqt-18 §10.19].
    SubscribeTracks(SubscribeTracks),
    /// A track under the subscribed prefix cannot be offered; contains the suffix after the prefix [moqt-18 §10.20].
    /// `PUBLISH_SKIPPED` in later drafts.
    PublishBlocked(FullTrackName),
    /// Changes a request [moqt-18 §10.9].
    RequestUpdate(RequestUpdate),
    /// Accepts a request or an update [moqt-18 §10.5].
    RequestOk(RequestOk),
    /// Refuses a request or an update [moqt-18 §10.6].
    RequestError(RequestError),
}

in_order! {
    /// Subscribes to the new objects of a track.
    pub struct Subscribe {
        /// The Request ID.
        pub request_id: u64,
        /// The track.
        pub track: FullTrackName,
        /// The parameters.
        pub parameters: Parameters,
    }

    /// Accepts a subscription.
    pub struct SubscribeOk {
        /// The Track Alias, which identifies the track on data streams and datagrams.
        pub track_alias: u64,
        /// The parameters EXPIRES and `LARGEST_OBJECT`.
        pub parameters: Parameters,
        /// The Track Properties.
        pub properties: Properties,
    }

    /// Offers a subscription.
    pub struct Publish {
        /// The Request ID.
        pub request_id: u64,
        /// The track.
        pub track: FullTrackName,
        /// The Track Alias, which identifies the track on data streams and datagrams.
        pub track_alias: u64,
        /// The parameters.
        pub parameters: Parameters,
        /// The Track Properties.
        pub properties: Properties,
    }

    /// Requests the status of a track.
    pub struct TrackStatus {
        /// The Request ID.
        pub request_id: u64,
        /// The track.
        pub track: FullTrackName,
        /// The authorization tokens.
        pub parameters: Parameters,
    }

    /// Offers the tracks of a namespace.
    pub struct PublishNamespace {
        /// The Request ID.
        pub request_id: u64,
        /// The namespace.
        pub namespace: Namespace,
        /// The authorization tokens.
        pub parameters: Parameters,
    }

    /// Subscribes to the namespaces under a prefix.
    pub struct SubscribeNamespace {
        /// The Request ID.
        pub request_id: u64,
        /// The prefix.
        pub prefix: Namespace,
        /// The authorization tokens.
        pub parameters: Parameters,
    }

    /// Subscribes to the tracks under a prefix.
    pub struct SubscribeTracks {
        /// The Request ID.
        pub request_id: u64,
        /// The prefix.
        pub prefix: Namespace,
        /// The authorization tokens, and FORWARD.
        pub parameters: Parameters,
    }

    /// Tells a subscriber what its publisher changed of their subscription.
    #[derive(Default)]
    pub struct PublishStateNotify {
        /// The parameters that changed, and `LARGEST_OBJECT`.
        pub parameters: Parameters,
    }

    /// Changes a request, on its stream.
    pub struct RequestUpdate {
        /// The Request ID of the update itself; every update has its own.
        pub request_id: u64,
        /// The parameters that change.
        pub parameters: Parameters,
    }

    /// Accepts a request or an update.
    #[derive(Default)]
    pub struct RequestOk {
        /// The parameters.
        pub parameters: Parameters,
        /// The Track Properties, only in the answer to `TRACK_STATUS`.
        pub properties: Properties,
    }
}

/// The options of an endpoint, in its first message. Unknown options are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// Path and query of the URI that the client connects to; only from clients over native QUIC.
    pub path: Option<String>,
    /// Authority of the URI that the client connects to; only from clients over native QUIC.
    pub authority: Option<String>,
    /// Name and version of the implementation; invalid UTF-8 is replaced.
    pub implementation: Option<String>,
    /// Limit of the registered tokens, in bytes; 0 if absent.
    pub max_auth_token_cache_size: Option<u64>,
    /// The tokens that authorize the session; only [`Token::Register`] and [`Token::UseValue`] may occur.
    pub authorization_tokens: Vec<Token>,
    /// Limit of the ranges in all range filters of a request; 0 if absent. From draft-19 on.
    pub max_filter_ranges: Option<u64>,
    /// Limit of the unanswered updates of a request; 0 and absent for none. From draft-19 on.
    pub max_request_updates: Option<u64>,
    /// The number of the relay that sends this, if it connects as a relay of a fleet of weir's relays: the receiver serves
    /// it from what its own clients publish, or redirects it. An option of weir, which other implementations ignore.
    pub fleet_relay: Option<u64>,
}

/// Announces that the sender will close the session, or end the request on whose stream it is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GoAway {
    /// The URI to connect to instead, at most [`URI_BYTES_MAX`] bytes; empty for the same URI. Clients must leave it
    /// empty.
    pub new_session_uri: String,
    /// How long the sender waits before it closes the session or ends the request, if announced. Encoded in
    /// milliseconds.
    pub timeout: Option<Duration>,
    /// On the control stream, the smallest Request ID of the receiver that was not processed; absent on request
    /// streams, and from draft-19 on.
    pub request_id: Option<u64>,
}

/// The last message of a publisher for a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishDone {
    /// The reason code.
    pub code: PublishDoneCode,
    /// Number of data streams opened for the subscription, if known.
    pub stream_count: Option<u64>,
    /// The reason as text, at most [`REASON_BYTES_MAX`] bytes; encoding truncates longer text.
    pub reason: String,
}

impl PublishDone {
    /// Creates a PUBLISH_DONE without a stream count.
    pub fn new(code: PublishDoneCode, reason: impl Into<String>) -> Self {
        Self {
            code,
            stream_count: None,
            reason: reason.into(),
        }
    }
}

/// Requests past objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// The Request ID.
    pub request_id: u64,
    /// The track and range.
    pub kind: FetchKind,
    /// The parameters, without the location filter.
    pub parameters: Parameters,
}

/// The objects that a FETCH requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchKind {
    /// A range of a track. A publisher refuses a range that ends before it starts.
    Standalone {
        /// The track.
        track: FullTrackName,
        /// The first location.
        start: Location,
        /// The last location, inclusive; object `u64::MAX` for the whole group.
        end: Location,
    },
    /// From a number of groups before the largest one to the largest object; from draft-20 on.
    Recent {
        /// The track.
        track: FullTrackName,
        /// Number of groups before the largest one.
        groups: u64,
    },
    /// From a number of groups before the start of a subscription up to that start.
    RelativeJoining {
        /// The Request ID of the subscription.
        request_id: u64,
        /// Number of groups before the group in which the subscription starts.
        groups: u64,
    },
    /// From a location up to the start of a subscription.
    AbsoluteJoining {
        /// The Request ID of the subscription.
        request_id: u64,
        /// The first location; until draft-19, the first of a group.
        start: Location,
        /// The last location, inclusive, if that is before the start of the subscription; until draft-19,
        /// [`Location::MAX`].
        end: Location,
    },
}

/// Accepts a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchOk {
    /// Whether `end` is the last object of the track.
    pub end_of_track: bool,
    /// The last location that the answer covers, inclusive; object `u64::MAX` for the whole group.
    pub end: Location,
    /// The parameters; none is defined for this message.
    pub parameters: Parameters,
    /// The Track Properties.
    pub properties: Properties,
}

/// Refuses a request or an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestError {
    /// The error code.
    pub code: RequestErrorCode,
    /// When the request may be retried; `None` if it may not. Encoded in milliseconds, plus one.
    pub retry_after: Option<Duration>,
    /// The reason as text, at most [`REASON_BYTES_MAX`] bytes; encoding truncates longer text.
    pub reason: String,
    /// The redirect; present exactly if `code` is [`RequestErrorCode::REDIRECT`].
    pub redirect: Option<Redirect>,
}

impl RequestError {
    /// Creates an error without a retry interval or a redirect.
    pub fn new(code: RequestErrorCode, reason: impl Into<String>) -> Self {
        Self {
            code,
            retry_after: None,
            reason: reason.into(),
            redirect: None,
        }
    }
}

/// Where a request may succeed instead [moqt-18 §10.6.1].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redirect {
    /// The URI to connect to, at most [`URI_BYTES_MAX`] bytes; empty for that of the session. Clients must leave it
    /// empty.
    pub connect_uri: String,
    /// The track or namespace to request; empty for the original one.
    pub track: FullTrackName,
}

impl Message {
    /// Decodes the message of type `message_type` with the whole payload `payload`. Tokens and properties share
    /// `payload`; names do not.
    ///
    /// The error is never [`DecodeError::Short`]: a payload that ends within a field is invalid.
    pub fn decode(draft: Draft, message_type: u64, payload: &Bytes) -> Result<Self, DecodeError> {
        let kind = draft
            .message_kind(message_type)
            .ok_or_else(|| DecodeError::unknown_message(message_type))?;
        let mut cursor = Cursor::new(payload);
        let message = Self::read(draft, kind, &mut cursor).map_err(|error| match error {
            DecodeError::Short => DecodeError::protocol("a message is shorter than its fields"),
            DecodeError::Invalid { .. } => error,
        })?;
        if !cursor.is_empty() {
            return Err(DecodeError::protocol("a message is longer than its fields"));
        }
        Ok(message)
    }

    /// Appends the message with its type and length. On an error, `out` is unchanged.
    pub fn encode(&self, draft: Draft, out: &mut BytesMut) -> Result<(), EncodeError> {
        let start = out.len();
        let (Some(message_type), None) = (draft.message_type(self.kind()), self.missing_in(draft))
        else {
            let what = self.missing_in(draft);
            let what = what.unwrap_or_else(|| self.kind().name());
            return Err(EncodeError::NotInDraft { what });
        };
        varint::encode(message_type, out);
        let length_at = out.len();
        out.put_u16(0);
        self.write(draft, out);
        let bytes = out.len() - length_at - 2;
        let Ok(length) = u16::try_from(bytes) else {
            out.truncate(start);
            return Err(EncodeError::TooLong {
                kind: self.kind().name(),
                bytes,
            });
        };
        out[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }

    /// Returns the Track Properties, which are the last field of the messages that have them.
    pub(crate) fn properties(&self) -> Option<&Properties> {
        match self {
            Self::Publish(message) => Some(&message.properties),
            Self::SubscribeOk(message) => Some(&message.properties),
            Self::FetchOk(message) => Some(&message.properties),
            Self::RequestOk(message) => Some(&message.properties),
            Self::Setup(_)
            | Self::GoAway(_)
            | Self::Subscribe(_)
            | Self::PublishDone(_)
            | Self::PublishStateNotify(_)
            | Self::Fetch(_)
            | Self::TrackStatus(_)
            | Self::PublishNamespace(_)
            | Self::Namespace(_)
            | Self::NamespaceDone(_)
            | Self::SubscribeNamespace(_)
            | Self::SubscribeTracks(_)
            | Self::PublishBlocked(_)
            | Self::RequestUpdate(_)
            | Self::RequestError(_) => None,
        }
    }

    /// Returns what a draft lacks to express the message, apart from its type.
    fn missing_in(&self, draft: Draft) -> Option<&'static str> {
        match self {
            Self::Subscribe(message) => message.parameters.missing_in(draft),
            Self::Publish(message) => message.parameters.missing_in(draft),
            Self::SubscribeTracks(message) => message.parameters.missing_in(draft),
            Self::RequestUpdate(message) => message.parameters.missing_in(draft),
            Self::RequestOk(message) => message.parameters.missing_in(draft),
            Self::Fetch(message) => {
                let kind = message.kind.missing_in(draft);
                kind.or_else(|| message.parameters.missing_in(draft))
            }
            Self::PublishStateNotify(_)
            | Self::Setup(_)
            | Self::GoAway(_)
            | Self::SubscribeOk(_)
            | Self::PublishDone(_)
            | Self::FetchOk(_)
            | Self::TrackStatus(_)
            | Self::PublishNamespace(_)
            | Self::Namespace(_)
            | Self::NamespaceDone(_)
            | Self::SubscribeNamespace(_)
            | Self::PublishBlocked(_)
            | Self::RequestError(_) => None,
        }
    }
}

/// Reads text with its length, at most `bytes_max` bytes; `beyond` is the error for longer text.
fn read_text(
    cursor: &mut Cursor<'_>,
    bytes_max: usize,
    beyond: &'static str,
) -> Result<Bytes, DecodeError> {
    let len = cursor.varint()?;
    if len > bytes_max as u64 {
        return Err(DecodeError::protocol(beyond));
    }
    cursor.take(len)
}

/// Reads a reason phrase; invalid UTF-8 is replaced [moqt-18 §1.4.4].
fn read_reason(cursor: &mut Cursor<'_>) -> Result<String, DecodeError> {
    let bytes = read_text(
        cursor,
        REASON_BYTES_MAX,
        "a reason phrase is longer than 1024 bytes",
    )?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Appends a reason phrase, truncated at a character boundary.
fn write_reason(reason: &str, out: &mut BytesMut) {
    let kept = &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)];
    write_text(kept, out);
}

/// Reads the URI of a GOAWAY or a redirect.
fn read_uri(cursor: &mut Cursor<'_>) -> Result<String, DecodeError> {
    let bytes = read_text(cursor, URI_BYTES_MAX, "a URI is longer than 8192 bytes")?;
    String::from_utf8(bytes.into()).map_err(|_| DecodeError::protocol("a URI is not UTF-8"))
}

fn write_text(text: &str, out: &mut BytesMut) {
    varint::encode(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests;
