//! The closed sets that every draft numbers in its own way: requests, messages, streams and object statuses.
//!
//! Their public paths are [`crate::message`] and [`crate::data`]; the numbers are in [`crate::draft`].

/// The kinds of request, each named after its first message.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestKind {
    /// SUBSCRIBE.
    Subscribe,
    /// PUBLISH.
    Publish,
    /// FETCH.
    Fetch,
    /// `TRACK_STATUS`.
    TrackStatus,
    /// `PUBLISH_NAMESPACE`.
    PublishNamespace,
    /// `SUBSCRIBE_NAMESPACE`.
    SubscribeNamespace,
    /// `SUBSCRIBE_TRACKS`.
    SubscribeTracks,
}

impl RequestKind {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::Subscribe,
        Self::Publish,
        Self::Fetch,
        Self::TrackStatus,
        Self::PublishNamespace,
        Self::SubscribeNamespace,
        Self::SubscribeTracks,
    ];
}

/// The kinds of message.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum MessageKind {
    /// SETUP.
    Setup,
    /// GOAWAY.
    GoAway,
    /// SUBSCRIBE.
    Subscribe,
    /// `SUBSCRIBE_OK`.
    SubscribeOk,
    /// PUBLISH.
    Publish,
    /// `PUBLISH_DONE`.
    PublishDone,
    /// FETCH.
    Fetch,
    /// `FETCH_OK`.
    FetchOk,
    /// `TRACK_STATUS`.
    TrackStatus,
    /// `PUBLISH_NAMESPACE`.
    PublishNamespace,
    /// NAMESPACE.
    Namespace,
    /// `NAMESPACE_DONE`.
    NamespaceDone,
    /// `SUBSCRIBE_NAMESPACE`.
    SubscribeNamespace,
    /// `SUBSCRIBE_TRACKS`.
    SubscribeTracks,
    /// `PUBLISH_BLOCKED`.
    PublishBlocked,
    /// `REQUEST_UPDATE`.
    RequestUpdate,
    /// `REQUEST_OK`.
    RequestOk,
    /// `REQUEST_ERROR`.
    RequestError,
}

impl MessageKind {
    /// The draft's name of the message.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Setup => "SETUP",
            Self::GoAway => "GOAWAY",
            Self::Subscribe => "SUBSCRIBE",
            Self::SubscribeOk => "SUBSCRIBE_OK",
            Self::Publish => "PUBLISH",
            Self::PublishDone => "PUBLISH_DONE",
            Self::Fetch => "FETCH",
            Self::FetchOk => "FETCH_OK",
            Self::TrackStatus => "TRACK_STATUS",
            Self::PublishNamespace => "PUBLISH_NAMESPACE",
            Self::Namespace => "NAMESPACE",
            Self::NamespaceDone => "NAMESPACE_DONE",
            Self::SubscribeNamespace => "SUBSCRIBE_NAMESPACE",
            Self::SubscribeTracks => "SUBSCRIBE_TRACKS",
            Self::PublishBlocked => "PUBLISH_BLOCKED",
            Self::RequestUpdate => "REQUEST_UPDATE",
            Self::RequestOk => "REQUEST_OK",
            Self::RequestError => "REQUEST_ERROR",
        }
    }
}

/// What an object is, besides its payload [moqt-18 §11.2.1.1].
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum ObjectStatus {
    /// An object with a payload, which may be empty.
    #[default]
    Normal,
    /// No object with this ID or a larger one exists in the group.
    EndOfGroup,
    /// No object at this location or a larger one exists in the track.
    EndOfTrack,
}

/// What a unidirectional stream carries, as its first field says [moqt-18 §3.4].
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum StreamKind {
    /// Control messages, beginning with SETUP. The type is the one of SETUP itself, not a field before it.
    Control,
    /// The objects of a subgroup.
    Subgroup,
    /// The objects of a fetch.
    Fetch,
    /// Bytes to discard.
    Padding,
}
