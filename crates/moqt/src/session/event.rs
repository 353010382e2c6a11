//! The events of a session for its role.

use bytes::Bytes;
use weir_transport::StreamId;

use super::request_ids::RequestId;
use crate::data::{FetchEntry, ObjectDatagram, ObjectHeader, SubgroupHeader};
use crate::error::{ResetCode, Violation};
use crate::message::{
    Fetch, FetchKind, FetchOk, GoAway, Message, Publish, PublishDone, PublishNamespace,
    RequestError, RequestKind, RequestOk, Setup, Subscribe, SubscribeNamespace, SubscribeOk,
    SubscribeTracks, TrackStatus,
};
use crate::name::{Namespace, TrackName};
use crate::parameter::Parameters;
use crate::property::Properties;

/// An event. Events are returned in the order in which they happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The peer's SETUP came. Its tokens are resolved.
    Ready {
        /// The peer's SETUP.
        peer: Setup,
    },
    /// The peer sent a request. Its tokens are resolved. The role has to answer it exactly once.
    Request {
        /// The ID of the request.
        id: RequestId,
        /// The request.
        request: Request,
    },
    /// The peer updated a request. The role has to answer with exactly one `update_ok` or
    /// `update_error`, before or after the answer to the request. Several updates are answered in their order.
    Update {
        /// The request.
        id: RequestId,
        /// The Request ID of the update.
        update_id: RequestId,
        /// The parameters that change. Their tokens are resolved.
        parameters: Parameters,
    },
    /// The peer accepted an own request.
    Accepted {
        /// The request.
        id: RequestId,
        /// The answer.
        ok: Accepted,
    },
    /// The peer answered the oldest own update of a request. After an error, a subscription continues until its
    /// publisher sends `PUBLISH_DONE`; any other request is over.
    Updated {
        /// The request.
        id: RequestId,
        /// The answer.
        result: Result<RequestOk, RequestError>,
    },
    /// The peer answered an own request with an error, or the session cancelled it. No other event
    /// follows for it.
    Rejected {
        /// The request.
        id: RequestId,
        /// The error.
        error: RequestError,
    },
    /// The publisher ended a subscription. Objects may still come for a limited time.
    Done {
        /// The subscription.
        id: RequestId,
        /// Its `PUBLISH_DONE`.
        done: PublishDone,
    },
    /// The publisher reports a change of a subscription that the subscriber did not ask for.
    StateChanged {
        /// The subscription.
        id: RequestId,
        /// What changed, and the largest location.
        parameters: Parameters,
    },
    /// The peer announced a namespace under the prefix of an own `SUBSCRIBE_NAMESPACE`.
    Namespace {
        /// The request.
        id: RequestId,
        /// The suffix of the namespace after the prefix.
        suffix: Namespace,
    },
    /// A namespace announced before is gone.
    NamespaceDone {
        /// The request.
        id: RequestId,
        /// The suffix of the namespace after the prefix.
        suffix: Namespace,
    },
    /// A track under the prefix of an own `SUBSCRIBE_TRACKS` that the peer has no stream for.
    PublishBlocked {
        /// The request.
        id: RequestId,
        /// The suffix of the track's namespace after the prefix.
        suffix: Namespace,
        /// The track's name.
        name: TrackName,
    },
    /// The peer ended a request. Comes at most once for a request, possibly after [`Event::Done`], and
    /// never after [`Event::Rejected`] or after this endpoint ended the request.
    Closed {
        /// The request.
        id: RequestId,
        /// How the peer ended it.
        reason: CloseReason,
    },
    /// The peer is about to close the session. Further own requests are refused.
    GoAway(GoAway),
    /// The peer asks to move one request elsewhere.
    RequestGoAway {
        /// The request.
        id: RequestId,
        /// Where to move it, and how long the peer waits.
        goaway: GoAway,
    },
    /// A subgroup stream of a subscription begins.
    Subgroup {
        /// The data stream.
        stream: StreamId,
        /// The subscription: an own `SUBSCRIBE`, or the peer's `PUBLISH`.
        request: RequestId,
        /// The fields that all its objects share.
        header: SubgroupHeader,
    },
    /// An object of a subgroup stream; its payload follows.
    Object {
        /// The data stream.
        stream: StreamId,
        /// The object.
        object: ObjectHeader,
    },
    /// The stream that answers an own `FETCH` begins.
    Fetched {
        /// The data stream.
        stream: StreamId,
        /// The fetch.
        request: RequestId,
    },
    /// An object or the end of a range of a fetch stream; a payload follows an object.
    FetchObject {
        /// The data stream.
        stream: StreamId,
        /// The object or range.
        entry: FetchEntry,
    },
    /// The next bytes of the payload of the last object of a stream; never empty.
    Payload {
        /// The data stream.
        stream: StreamId,
        /// The bytes.
        data: Bytes,
    },
    /// A data stream ended. Does not come for a stream that the role stopped.
    StreamEnd {
        /// The data stream.
        stream: StreamId,
        /// How the stream ended.
        end: StreamEnd,
    },
    /// A datagram whose alias was unknown when it came. `handle_datagram` returns all others.
    Datagram {
        /// The subscription: an own `SUBSCRIBE`, or the peer's `PUBLISH`.
        request: RequestId,
        /// The object.
        datagram: ObjectDatagram,
    },
    /// The peer violated the protocol or exceeded a limit, and the session closed the transport. No event
    /// follows.
    Violated(Violation),
}

/// Declares the requests, each with the message of the same name.
macro_rules! requests {
    ($($(#[$doc:meta])* $request:ident,)*) => {
        /// A request of the peer, with all its fields.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Request {
            $($(#[$doc])* $request($request),)*
        }

        impl Request {
            /// Returns the request that a message begins, if it is a request.
            pub(super) fn from_message(message: Message) -> Option<Self> {
                match message {
                    $(Message::$request(request) => Some(Self::$request(request)),)*
                    _ => None,
                }
            }

            /// Returns the kind of the request.
            pub fn kind(&self) -> RequestKind {
                match self {
                    $(Self::$request(_) => RequestKind::$request,)*
                }
            }

            /// Returns the Request ID.
            pub fn id(&self) -> RequestId {
                match self {
                    $(Self::$request(request) => RequestId(request.request_id),)*
                }
            }

            /// Returns the parameters.
            pub fn parameters(&self) -> &Parameters {
                match self {
                    $(Self::$request(request) => &request.parameters,)*
                }
            }

            /// Returns the parameters, in which tokens are to be resolved.
            pub(super) fn parameters_mut(&mut self) -> &mut Parameters {
                match self {
                    $(Self::$request(request) => &mut request.parameters,)*
                }
            }
        }

        impl From<Request> for Message {
            fn from(request: Request) -> Self {
                match request {
                    $(Request::$request(request) => Self::$request(request),)*
                }
            }
        }
    };
}

requests! {
    /// SUBSCRIBE: the peer requests the new objects of a track.
    Subscribe,
    /// PUBLISH: the peer offers the objects of a track.
    Publish,
    /// FETCH: the peer requests past objects.
    Fetch,
    /// `TRACK_STATUS`: the peer requests what is known of a track.
    TrackStatus,
    /// `PUBLISH_NAMESPACE`: the peer offers the tracks of a namespace.
    PublishNamespace,
    /// `SUBSCRIBE_NAMESPACE`: the peer requests the namespaces under a prefix.
    SubscribeNamespace,
    /// `SUBSCRIBE_TRACKS`: the peer requests the tracks under a prefix.
    SubscribeTracks,
}

impl Request {
    /// Returns the namespace or prefix of the request; a joining fetch has none.
    pub fn namespace(&self) -> Option<&Namespace> {
        match self {
            Self::Subscribe(request) => Some(&request.track.namespace),
            Self::Publish(request) => Some(&request.track.namespace),
            Self::Fetch(request) => match &request.kind {
                FetchKind::Standalone { track, .. } | FetchKind::Recent { track, .. } => {
                    Some(&track.namespace)
                }
                FetchKind::RelativeJoining { .. } | FetchKind::AbsoluteJoining { .. } => None,
            },
            Self::TrackStatus(request) => Some(&request.track.namespace),
            Self::PublishNamespace(request) => Some(&request.namespace),
            Self::SubscribeNamespace(request) => Some(&request.prefix),
            Self::SubscribeTracks(request) => Some(&request.prefix),
        }
    }

    /// Returns the Track Properties; only a PUBLISH has any.
    pub(super) fn properties(&self) -> Option<&Properties> {
        match self {
            Self::Publish(request) => Some(&request.properties),
            Self::Subscribe(_)
            | Self::Fetch(_)
            | Self::TrackStatus(_)
            | Self::PublishNamespace(_)
            | Self::SubscribeNamespace(_)
            | Self::SubscribeTracks(_) => None,
        }
    }
}

/// The acceptance of an own request.
#[derive(Clone, Debug, PartialEq)]
pub enum Accepted {
    /// To `SUBSCRIBE`.
    Subscribe(SubscribeOk),
    /// To `FETCH`.
    Fetch(FetchOk),
    /// To any other request.
    Ok(RequestOk),
}

/// How a peer ended a request.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum CloseReason {
    /// The peer finished its direction.
    Fin,
    /// The peer reset its direction, or, with `EXCESSIVE_LOAD`, exceeded a limit of this session.
    Reset(ResetCode),
    /// The peer stopped this endpoint's direction.
    Stopped(ResetCode),
}

/// How a data stream ended.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum StreamEnd {
    /// With a FIN: all objects came.
    Fin,
    /// The peer reset the stream.
    Reset(ResetCode),
}

/// Why a request was not sent. No Request ID was used.
#[derive(Copy, Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refused {
    /// Too many requests, queued requests or updates are open.
    #[error("too many requests are open or waiting")]
    Limit,
    /// The peer sent GOAWAY.
    #[error("the peer is going away")]
    GoingAway,
    /// The peer's stream limit is reached.
    #[error("the peer allows no further stream")]
    NoStream,
    /// The session is closed.
    #[error("the session is closed")]
    Closed,
    /// The request to update is over.
    #[error("the request is over")]
    Over,
    /// The message exceeds the 16-bit length of a control message.
    #[error("the message is longer than 65535 bytes")]
    TooLong,
    /// The draft of the session has no such request.
    #[error("the draft of this session has no such request")]
    NotInDraft,
}
