//! The stream on which a publisher answers a FETCH of the relay.

use weir_transport::StreamId;

/// The state of a stream that answers a FETCH of the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamStream {
    /// It has not begun.
    Awaited,
    /// It is read as data comes.
    Reading(StreamId),
    /// It is not read, because no fetch of a peer waits for it.
    Paused(StreamId),
    /// All of it has been read.
    Finished,
}

/// What changes the state of such a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamEvent {
    /// It began.
    Begun(StreamId),
    /// No fetch of a peer waits for it any more.
    Unwanted,
    /// A fetch of a peer needs it.
    Wanted,
    /// Its FIN was read.
    Fin,
}

impl UpstreamStream {
    /// The state after an event; an event that cannot happen in a state leaves it as it is.
    pub(crate) fn after(self, event: UpstreamEvent) -> Self {
        match (self, event) {
            (Self::Awaited, UpstreamEvent::Begun(stream))
            | (Self::Paused(stream), UpstreamEvent::Wanted) => Self::Reading(stream),
            (Self::Reading(stream), UpstreamEvent::Unwanted) => Self::Paused(stream),
            (Self::Reading(_) | Self::Paused(_), UpstreamEvent::Fin) => Self::Finished,
            (state, _) => state,
        }
    }

    /// Its ID, while it is being received.
    pub(crate) fn id(self) -> Option<StreamId> {
        match self {
            Self::Reading(stream) | Self::Paused(stream) => Some(stream),
            Self::Awaited | Self::Finished => None,
        }
    }
}
