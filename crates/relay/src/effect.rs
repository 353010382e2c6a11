//! Effects: what one owner asks of the others. [`Owners`](crate::dispatch::Owners) carries them out after the step that
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
    registry::RelayId,
    sessions::peer::{PeerKind, PrefixKind, Purpose},
};

/// A request of one owner to the others.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Close a session from this side.
    CloseSession(Handle, SessionError, String),
    /// The sessions without open requests were closed: continue the drain.
    DrainContinues,
    /// All sessions were closed: the drain is over.
    DrainOver,
    /// A request of a session has ended, with its purpose.
    RequestEnded(Handle, RequestId, Purpose),
    /// An update of a request was refused, and the request ends with it where the draft says so.
    UpdateFailed(Handle, RequestId, RequestErrorCode),
    /// A session announced a namespace.
    NamespaceAnnounced(Namespace, Handle),
    /// A session does not announce a namespace any more.
    NamespaceWithdrawn(Namespace),
    /// A relay of the fleet has registered a namespace.
    NamespaceRegistered(Namespace),
    /// A link to a relay of the fleet was established, or was lost or could not be established.
    FleetLinkChanged(RelayId, Option<Handle>),
    /// A link can be asked for namespaces that no session announced.
    FallbackFound(Handle),
    /// The second link takes over from the first one, which has old credentials.
    LinkReplaced(Handle, Handle),
    /// A link can no longer be asked for namespaces that no session announced.
    FallbackLost(Handle),
    /// A session subscribed to a prefix.
    PrefixWanted(PrefixKind, Namespace),
    /// A subscription to a prefix has ended.
    PrefixUnwanted(PrefixKind, Namespace),
    /// A session waits for a track.
    TrackWanted {
        track: TrackId,
        /// The kind of peer that the session is with.
        by: PeerKind,
        /// The new group that the request asks for.
        new_group: Option<u64>,
    },
    /// A subscriber asks for a new group.
    NewGroupWanted(TrackId, u64),
    /// The demand for a track has changed, and its publishers have to know.
    DemandChanged(TrackId),
    /// A publisher accepted or offered a track: requests that wait for it become subscriptions.
    Established(TrackId),
    /// A session published a track; `is_new` if no other session had.
    Published { track: TrackId, is_new: bool },
    /// The largest location of a track that awaits an offer has become known.
    OfferAwaited(TrackId),
    /// A publisher is gone; the code is for requests that wait for its answer.
    PublisherGone(TrackId, PublisherId, RequestErrorCode),
    /// A track may have no publisher left that serves links of some kind, in which case their subscriptions end.
    LinksUnserved(TrackId),
    /// Subscriptions of a track were established or refused: fetches that join them continue or end.
    SubscriptionsAnswered(TrackId),
    /// The last stream of a subscription may be complete.
    MaybeDrained(TrackId, Handle, RequestId),
    /// No subscriber reads a subgroup further.
    LogRead(TrackId, SubgroupId),
    /// A track is malformed by what a publisher sent.
    Malformed(TrackId, Handle),
    /// A user of a track is gone: the track may be forgotten.
    Released(TrackId),
}

/// Effects in the order in which they were pushed.
pub(crate) type Effects = VecDeque<Effect>;
