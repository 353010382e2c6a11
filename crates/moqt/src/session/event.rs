//! What a session tells its role.

use bytes::Bytes;

use super::request_ids::RequestId;
use crate::data::{FetchEntry, ObjectDatagram, ObjectHeader, SubgroupHeader};
use crate::error::{ResetCode, Violation};
use crate::message::{
    Fetch, FetchOk, GoAway, Publish, PublishDone, PublishNamespace, RequestError, RequestOk, Setup,
    Subscribe, SubscribeNamespace, SubscribeOk, SubscribeTracks, TrackStatus,
};
use crate::name::{Namespace, TrackName};
use crate::parameter::Parameters;
use weir_transport::StreamId;

/// One thing that happened, in the order it happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The peer's SETUP is here; tokens in it are resolved.
    Ready {
        /// What the peer said.
        peer: Setup,
    },
    /// The peer asks for something; tokens in it are resolved. Wants exactly one answer.
    Request {
        /// Names the request from now on.
        id: RequestId,
        /// What it asks for.
        request: Request,
    },
    /// The peer changes a request. Wants exactly one `update_ok` or `update_error`, before or after
    /// the answer to the request itself; several updates are answered in their order.
    Update {
        /// The request.
        id: RequestId,
        /// The ID the update itself used up.
        update_id: RequestId,
        /// The parameters that change; tokens are resolved.
        parameters: Parameters,
    },
    /// The peer answered an own request with an OK.
    Accepted {
        /// The request.
        id: RequestId,
        /// The answer.
        ok: Accepted,
    },
    /// The peer answered the oldest own update of a request. After an error only a subscription
    /// goes on, until its publisher sends `PUBLISH_DONE`.
    Updated {
        /// The request.
        id: RequestId,
        /// The answer.
        result: Result<RequestOk, RequestError>,
    },
    /// The peer answered an own request with an error, or the session had to give it up. It is
    /// over, and nothing else comes for it.
    Rejected {
        /// The request.
        id: RequestId,
        /// Why.
        error: RequestError,
    },
    /// The publisher of a subscription is done. Objects may still come for a bounded time.
    Done {
        /// The subscription.
        id: RequestId,
        /// Why and how much there was.
        done: PublishDone,
    },
    /// A namespace under the prefix of an own `SUBSCRIBE_NAMESPACE`.
    Namespace {
        /// The request.
        id: RequestId,
        /// The namespace behind the prefix.
        suffix: Namespace,
    },
    /// A namespace announced before is gone.
    NamespaceDone {
        /// The request.
        id: RequestId,
        /// The namespace behind the prefix.
        suffix: Namespace,
    },
    /// A track under the prefix of an own `SUBSCRIBE_TRACKS` that the peer has no stream for.
    PublishBlocked {
        /// The request.
        id: RequestId,
        /// The track's namespace behind the prefix.
        suffix: Namespace,
        /// The track's name.
        name: TrackName,
    },
    /// The peer ended a request. At most once for each, never after [`Event::Rejected`] and never
    /// after an end from here; it may follow [`Event::Done`].
    Closed {
        /// The request.
        id: RequestId,
        /// How.
        reason: CloseReason,
    },
    /// The peer is about to close the session. New requests are refused from now on.
    GoAway(GoAway),
    /// The peer wants one request moved elsewhere.
    RequestGoAway {
        /// The request.
        id: RequestId,
        /// Where to, and how long it waits.
        goaway: GoAway,
    },
    /// A subgroup stream of a subscription begins.
    Subgroup {
        /// The data stream.
        stream: StreamId,
        /// The subscription: an own `SUBSCRIBE`, or the peer's `PUBLISH`.
        request: RequestId,
        /// What all its objects share.
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
    /// A data stream is over. The role stopped none of its streams that end this way.
    StreamEnd {
        /// The data stream.
        stream: StreamId,
        /// How.
        end: StreamEnd,
    },
    /// A datagram that waited for its alias. All others are returned by `handle_datagram` itself.
    Datagram {
        /// The subscription: an own `SUBSCRIBE`, or the peer's `PUBLISH`.
        request: RequestId,
        /// The object.
        datagram: ObjectDatagram,
    },
    /// The session closed the transport; nothing follows.
    Violated(Violation),
}

/// The peer's request, with everything it said.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// It wants the objects of a track.
    Subscribe(Subscribe),
    /// It offers the objects of a track.
    Publish(Publish),
    /// It wants objects of the past.
    Fetch(Fetch),
    /// It wants to know how a track stands.
    TrackStatus(TrackStatus),
    /// It has tracks in a namespace.
    PublishNamespace(PublishNamespace),
    /// It wants to know the namespaces under a prefix.
    SubscribeNamespace(SubscribeNamespace),
    /// It wants all tracks under a prefix.
    SubscribeTracks(SubscribeTracks),
}

/// An OK to an own request.
#[derive(Clone, Debug, PartialEq)]
pub enum Accepted {
    /// To `SUBSCRIBE`.
    Subscribe(SubscribeOk),
    /// To `FETCH`.
    Fetch(FetchOk),
    /// To everything else.
    Ok(RequestOk),
}

/// How a peer ended a request.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum CloseReason {
    /// It finished its direction.
    Fin,
    /// It reset its direction; `EXCESSIVE_LOAD` also stands for a limit of this session it passed.
    Reset(ResetCode),
    /// It stopped this endpoint's direction.
    Stopped(ResetCode),
}

/// How a data stream ended.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum StreamEnd {
    /// All objects came.
    Fin,
    /// The peer gave up.
    Reset(ResetCode),
}

/// Why a request was not sent. Nothing happened, and no Request ID was used up.
#[derive(Copy, Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refused {
    /// Too many requests, queued requests or updates are open.
    #[error("too many requests are open or waiting")]
    Limit,
    /// The peer sent GOAWAY.
    #[error("the peer is going away")]
    GoingAway,
    /// The peer allows no further stream for now.
    #[error("the peer allows no further stream")]
    NoStream,
    /// The session is closed.
    #[error("the session is closed")]
    Closed,
    /// The request an update is for is over.
    #[error("the request is over")]
    Over,
    /// The message does not fit the 16-bit length of a control message.
    #[error("the message is longer than 65535 bytes")]
    TooLong,
}
