//! Control messages: one semantic type each, the same for all drafts [moqt-18 §10].
//!
//! Identifiers are absolute, ranges inclusive, defaults and sentinels resolved. A message is decoded from its type and
//! the payload behind its length by [`Message::decode`], which [`crate::reader::MessageReader`] does for a stream, and
//! written with both by [`Message::encode`]. What depends on the state of a session is not checked here, but the methods
//! named `check` do it once the session knows which request an answer belongs to.

mod fields;
mod request;
mod response;
mod setup;

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

use self::fields::{Field, in_order};
use crate::cursor::Cursor;
use crate::draft::Draft;
use crate::error::{DecodeError, MessageTooLong, PublishDoneCode, RequestErrorCode};
pub use crate::kinds::{MessageKind, RequestKind};
use crate::location::Location;
use crate::name::{FullTrackName, Namespace};
use crate::parameter::Parameters;
use crate::property::Properties;
use crate::scope::Scopes;
use crate::token::Token;
use crate::varint;

/// The longest payload of a message, in bytes: its length has 16 bits [moqt-18 §10].
pub const MESSAGE_BYTES_MAX: usize = 65_535;

/// The longest reason phrase, in bytes [moqt-18 §1.4.4].
pub const REASON_BYTES_MAX: usize = 1024;

/// The longest URI in GOAWAY, in bytes [moqt-18 §10.4]; a redirect's URI is held to it as well.
pub const URI_BYTES_MAX: usize = 8192;

/// Declares the messages, each with what it carries.
macro_rules! messages {
    ($($(#[$doc:meta])* $kind:ident($content:ty),)*) => {
        /// A control message.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Message {
            $($(#[$doc])* $kind($content),)*
        }

        impl Message {
            /// What kind of message this is.
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
    /// The session, or one request, should move elsewhere [moqt-18 §10.4].
    GoAway(GoAway),
    /// Asks for new objects of a track [moqt-18 §10.7].
    Subscribe(Subscribe),
    /// Grants SUBSCRIBE [moqt-18 §10.8].
    SubscribeOk(SubscribeOk),
    /// Offers new objects of a track [moqt-18 §10.10].
    Publish(Publish),
    /// The end of a subscription [moqt-18 §10.11].
    PublishDone(PublishDone),
    /// Asks for past objects of a track [moqt-18 §10.12].
    Fetch(Fetch),
    /// Grants FETCH [moqt-18 §10.13].
    FetchOk(FetchOk),
    /// Asks what is known about a track [moqt-18 §10.14].
    TrackStatus(TrackStatus),
    /// Offers the tracks of a namespace [moqt-18 §10.15].
    PublishNamespace(PublishNamespace),
    /// A namespace appeared under the prefix asked for; carries what follows the prefix [moqt-18 §10.16].
    Namespace(Namespace),
    /// A namespace is gone; carries what follows the prefix asked for [moqt-18 §10.17].
    NamespaceDone(Namespace),
    /// Asks for the namespaces under a prefix [moqt-18 §10.18].
    SubscribeNamespace(SubscribeNamespace),
    /// Asks for the tracks under a prefix [moqt-18 §10.19].
    SubscribeTracks(SubscribeTracks),
    /// A track under the prefix asked for cannot be offered; carries what follows the prefix [moqt-18 §10.20].
    PublishBlocked(FullTrackName),
    /// Changes a request [moqt-18 §10.9].
    RequestUpdate(RequestUpdate),
    /// Grants a request or an update [moqt-18 §10.5].
    RequestOk(RequestOk),
    /// Refuses a request or an update [moqt-18 §10.6].
    RequestError(RequestError),
}

in_order! {
    /// Asks for new objects of a track.
    pub struct Subscribe {
        /// The request's ID.
        pub request_id: u64,
        /// The track.
        pub track: FullTrackName,
        /// What is asked for.
        pub parameters: Parameters,
    }

    /// Grants a subscription.
    pub struct SubscribeOk {
        /// The number that stands for the track on data streams and datagrams.
        pub track_alias: u64,
        /// Expiry and largest object.
        pub parameters: Parameters,
        /// The track's properties.
        pub properties: Properties,
    }

    /// Offers a subscription.
    pub struct Publish {
        /// The request's ID.
        pub request_id: u64,
        /// The track.
        pub track: FullTrackName,
        /// The number that stands for the track on data streams and datagrams.
        pub track_alias: u64,
        /// What is offered.
        pub parameters: Parameters,
        /// The track's properties.
        pub properties: Properties,
    }

    /// Asks for past objects.
    pub struct Fetch {
        /// The request's ID.
        pub request_id: u64,
        /// Which objects.
        pub kind: FetchKind,
        /// What else is asked for.
        pub parameters: Parameters,
    }

    /// Asks what is known about a track.
    pub struct TrackStatus {
        /// The request's ID.
        pub request_id: u64,
        /// The track.
        pub track: FullTrackName,
        /// Authorization.
        pub parameters: Parameters,
    }

    /// Offers the tracks of a namespace.
    pub struct PublishNamespace {
        /// The request's ID.
        pub request_id: u64,
        /// The namespace.
        pub namespace: Namespace,
        /// Authorization.
        pub parameters: Parameters,
    }

    /// Asks for the namespaces under a prefix.
    pub struct SubscribeNamespace {
        /// The request's ID.
        pub request_id: u64,
        /// The prefix.
        pub prefix: Namespace,
        /// Authorization.
        pub parameters: Parameters,
    }

    /// Asks for the tracks under a prefix.
    pub struct SubscribeTracks {
        /// The request's ID.
        pub request_id: u64,
        /// The prefix.
        pub prefix: Namespace,
        /// Authorization, and whether the tracks are to be forwarded.
        pub parameters: Parameters,
    }

    /// Changes a request, on its stream.
    pub struct RequestUpdate {
        /// The ID of the update itself; every update takes a new one.
        pub request_id: u64,
        /// What changes.
        pub parameters: Parameters,
    }

    /// Grants a request or an update.
    #[derive(Default)]
    pub struct RequestOk {
        /// What is granted.
        pub parameters: Parameters,
        /// The track's properties, in the answer to `TRACK_STATUS` only.
        pub properties: Properties,
    }
}

/// What each side says about itself first. Unknown options are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// Path and query of the URI the client connects to; from clients over native QUIC only.
    pub path: Option<String>,
    /// Authority of the URI the client connects to; from clients over native QUIC only.
    pub authority: Option<String>,
    /// Name and version of the implementation. Read leniently where it is not UTF-8.
    pub implementation: Option<String>,
    /// How many bytes of tokens the sender is willing to keep registered; nothing unless set.
    pub max_auth_token_cache_size: Option<u64>,
    /// What authorizes the session; only [`Token::Register`] and [`Token::UseValue`] may stand here.
    pub authorization_tokens: Vec<Token>,
}

/// The sender is about to end the session, or the request on whose stream this comes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GoAway {
    /// Where to go on, at most [`URI_BYTES_MAX`] bytes; empty for the same URI. Clients must leave it empty.
    pub new_session_uri: String,
    /// How long the sender waits before it ends things itself, if it says. In milliseconds on the wire.
    pub timeout: Option<Duration>,
    /// On the control stream, the smallest request ID of the receiver that was not processed; absent on request streams.
    pub request_id: Option<u64>,
}

/// The last word of a publisher about a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishDone {
    /// Why it ends.
    pub code: PublishDoneCode,
    /// How many data streams were opened for it, if the publisher knows.
    pub stream_count: Option<u64>,
    /// For people, at most [`REASON_BYTES_MAX`] bytes; encoding cuts what is longer.
    pub reason: String,
}

impl PublishDone {
    /// Makes the end of a subscription that does not say how many streams there were.
    pub fn new(code: PublishDoneCode, reason: impl Into<String>) -> Self {
        Self {
            code,
            stream_count: None,
            reason: reason.into(),
        }
    }
}

/// Which objects a FETCH asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchKind {
    /// A range of a track. A range that ends before it starts is for the publisher to refuse.
    Standalone {
        /// The track.
        track: FullTrackName,
        /// The first location.
        start: Location,
        /// The last location, included; object `u64::MAX` for all of its group.
        end: Location,
    },
    /// From some groups before the start of a subscription up to that start.
    RelativeJoining {
        /// The request ID of the subscription.
        request_id: u64,
        /// How many groups before the group the subscription starts in.
        groups: u64,
    },
    /// From a group up to the start of a subscription.
    AbsoluteJoining {
        /// The request ID of the subscription.
        request_id: u64,
        /// The first group.
        group: u64,
    },
}

/// Grants a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchOk {
    /// Whether `end` is the last object the track will ever have.
    pub end_of_track: bool,
    /// The last location the answer covers, included; object `u64::MAX` for all of its group.
    pub end: Location,
    /// No parameter is defined for this message.
    pub parameters: Parameters,
    /// The track's properties.
    pub properties: Properties,
}

/// Refuses a request or an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestError {
    /// Why.
    pub code: RequestErrorCode,
    /// When it may be tried again, if at all. In milliseconds, plus one, on the wire.
    pub retry_after: Option<Duration>,
    /// For people, at most [`REASON_BYTES_MAX`] bytes; encoding cuts what is longer.
    pub reason: String,
    /// Where to try instead; present exactly if `code` is [`RequestErrorCode::REDIRECT`].
    pub redirect: Option<Redirect>,
}

impl RequestError {
    /// Makes an error that does not say when or where to try again.
    pub fn new(code: RequestErrorCode, reason: impl Into<String>) -> Self {
        Self {
            code,
            retry_after: None,
            reason: reason.into(),
            redirect: None,
        }
    }
}

/// Where a request may succeed [moqt-18 §10.6.1].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redirect {
    /// The URI to connect to, at most [`URI_BYTES_MAX`] bytes; empty for the session's own. Clients must leave it empty.
    pub connect_uri: String,
    /// The track or namespace to ask for; without a byte for the one asked for before.
    pub track: FullTrackName,
}

impl Message {
    /// Decodes the message of type `message_type` that `payload` is the whole of. Tokens and properties keep `payload`
    /// alive; names do not.
    ///
    /// The error is never [`DecodeError::Short`]: fields that go on behind the payload's end are the peer's fault.
    pub fn decode(draft: Draft, message_type: u64, payload: &Bytes) -> Result<Self, DecodeError> {
        let kind = draft.message_kind(message_type).ok_or(UNKNOWN_MESSAGE)?;
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

    /// Appends the message with its type and length. On an error, `out` is left as it was.
    pub fn encode(&self, draft: Draft, out: &mut BytesMut) -> Result<(), MessageTooLong> {
        let start = out.len();
        varint::encode(draft.message_type(self.kind()), out);
        let length_at = out.len();
        out.put_u16(0);
        self.write(draft, out);
        let bytes = out.len() - length_at - 2;
        let Ok(length) = u16::try_from(bytes) else {
            out.truncate(start);
            return Err(MessageTooLong {
                kind: self.kind().name(),
                bytes,
            });
        };
        out[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }
}

/// An unknown message type, which cannot be skipped [moqt-18 §10].
pub(crate) const UNKNOWN_MESSAGE: DecodeError = DecodeError::protocol("unknown message type");

/// Reads text behind its length, at most `bytes_max` bytes of it; `beyond` says so if there is more.
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

/// Reads a reason phrase, leniently where it is not UTF-8 [moqt-18 §1.4.4].
fn read_reason(cursor: &mut Cursor<'_>) -> Result<String, DecodeError> {
    let bytes = read_text(
        cursor,
        REASON_BYTES_MAX,
        "a reason phrase is longer than 1024 bytes",
    )?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Writes a reason phrase, cut before the character that would not fit.
fn write_reason(reason: &str, out: &mut BytesMut) {
    let kept = &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)];
    write_text(kept, out);
}

/// Reads the URI of a GOAWAY or a redirect.
fn read_uri(cursor: &mut Cursor<'_>) -> Result<String, DecodeError> {
    let bytes = read_text(cursor, URI_BYTES_MAX, "a URI is longer than 8192 bytes")?;
    String::from_utf8(bytes.into()).map_err(|_| DecodeError::protocol("a URI is not text"))
}

fn write_text(text: &str, out: &mut BytesMut) {
    varint::encode(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests;
