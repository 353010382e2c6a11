//! What one owner wants of the others: values that [`Owners`](crate::dispatch::Owners) hands on after the step that
//! caused them.

use std::collections::VecDeque;

use weir_moqt::{
    error::{RequestErrorCode, SessionError},
    name::Namespace,
    session::RequestId,
};
use weir_quic::Handle;

use crate::{
    ids::{PublisherId, SubgroupId, TrackId},
    sessions::peer::Purpose,
};

/// What one owner wants of the others.
#[derive(Debug)]
pub(crate) enum Effect {
    /// A session is to be closed from here.
    CloseSession(Handle, SessionError, String),
    /// The sessions that have nothing open were closed: the relay goes on to drain.
    DrainContinues,
    /// All sessions were closed: the relay has come to its end.
    DrainOver,
    /// A request of a session has ended, and what it stood for with it.
    RequestEnded(Handle, RequestId, Purpose),
    /// An update of a request was refused, and the request has to end with it where the draft says so.
    UpdateFailed(Handle, RequestId, RequestErrorCode),
    /// A namespace was announced by a session.
    NamespaceAnnounced(Namespace, Handle),
    /// A session waits for a track.
    TrackWanted {
        track: TrackId,
        /// The session is a link.
        by_link: bool,
        /// The new group that it asks for.
        new_group: Option<u64>,
    },
    /// A subscriber asks for a new group.
    NewGroupWanted(TrackId, u64),
    /// Who wants a track, or how much of it, has changed: its publishers have to know.
    DemandChanged(TrackId),
    /// Objects of a track may come from now on: whoever waits for it is to be admitted.
    Established(TrackId),
    /// A session offers a track with PUBLISH; `is_new` if none did before.
    Published { track: TrackId, is_new: bool },
    /// It is known now how far a track has come that is to be offered.
    OfferAwaited(TrackId),
    /// A publisher is no more; the code is for whoever waits for its answer.
    PublisherGone(TrackId, PublisherId, RequestErrorCode),
    /// A track may have no client left that publishes it: links are not served then.
    LinksUnserved(TrackId),
    /// Subscriptions of a track were established or refused: fetches that join them go on, or end.
    SubscriptionsAnswered(TrackId),
    /// A subscription may have come to its end.
    MaybeDrained(TrackId, Handle, RequestId),
    /// Nothing more is read of a subgroup.
    LogRead(TrackId, SubgroupId),
    /// A track was found malformed by what a publisher sent.
    Malformed(TrackId, Handle),
    /// Somebody who had to do with a track has gone: it may be forgotten.
    Released(TrackId),
}

/// Effects in the order in which they came about.
pub(crate) type Effects = VecDeque<Effect>;
