//! The stream on which a publisher answers a FETCH of the relay.

use weir_transport::StreamId;

/// The state of a stream that answers a FETCH of the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamStream {
    /// The stream has not begun.
    Awaited,
    /// Data is read as it arrives.
    Reading(StreamId),
    /// Data is not read, because no fetch of a peer waits for it.
    Paused(StreamId),
    /// The FIN was read.
    Finished,
}

/// An event that changes the state of such a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamEvent {
    /// The stream began.
    Begun(StreamId),
    /// No fetch of a peer waits for the stream.
    Unwanted,
    /// A fetch of a peer needs the stream.
    Wanted,
    /// The FIN was read.
    Fin,
}

impl UpstreamStream {
    /// Returns the state after an event. An event that cannot happen in a state does not change it.
    pub(crate) fn after(self, event: UpstreamEvent) -> Self {
        match (self, event) {
            (Self::Awaited, UpstreamEvent::Begun(stream))
            | (Self::Paused(stream), UpstreamEvent::Wanted) => Self::Reading(stream),
            (Self::Reading(stream), UpstreamEvent::Unwanted) => Self::Paused(stream),
            (Self::Reading(_) | Self::Paused(_), UpstreamEvent::Fin) => Self::Finished,
            (state, _) => state,
        }
    }

    /// Returns the stream ID, while the stream is being received.
    pub(crate) fn id(self) -> Option<StreamId> {
        match self {
            Self::Reading(stream) | Self::Paused(stream) => Some(stream),
            Self::Awaited | Self::Finished => None,
        }
    }
}
