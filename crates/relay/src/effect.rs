//! What one owner wants of the others: values that [`Owners`](crate::dispatch::Owners) hands on after the step that
//! caused them.

use std::collections::VecDeque;

use weir_moqt::{
    error::{PublishDoneCode, RequestErrorCode, SessionError},
    name::Namespace,
    session::RequestId,
};
use weir_quic::Handle;

use crate::{sessions::peer::Part, track::table::TrackId};

/// What one owner wants of the others.
#[derive(Debug)]
pub(crate) enum Effect {
    /// A session is to be closed from here.
    CloseSession(Handle, SessionError, String),
    /// A request of a session has ended, and what it stood for with it.
    RequestEnded(Handle, RequestId, Part),
    /// An update of a request was refused, and the request has to end with it where the draft says so.
    UpdateFailed(Handle, RequestId, RequestErrorCode),
    /// A namespace was announced by a session.
    NamespaceAnnounced(Namespace, Handle),
    /// Who wants a track, or how much of it, has changed: its publishers have to know.
    DemandChanged(TrackId),
    /// Subscriptions of a track were established or refused: fetches that join them go on, or end.
    JoinsSettled(TrackId),
    /// A subscription may have come to its end.
    MaybeDrained(TrackId, Handle, RequestId),
    /// A subscription has to end at once.
    CutSubscription(TrackId, Handle, RequestId, PublishDoneCode),
    /// A track was found malformed by what a publisher sent.
    Malformed(TrackId, Handle),
    /// Something came into the cache of a track, or will not come.
    Cached(TrackId),
    /// Somebody who had to do with a track has gone: it may be forgotten.
    Released(TrackId),
}

/// Effects in the order in which they came about.
pub(crate) type Effects = VecDeque<Effect>;
