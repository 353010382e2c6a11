//! Enumerations that each draft maps to its own code points: requests, messages, streams and object statuses.
//!
//! Their public paths are [`crate::message`] and [`crate::data`]; [`crate::draft`] holds the code points.

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

    /// Returns the draft's name of the message.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Subscribe => MessageKind::Subscribe.name(),
            Self::Publish => MessageKind::Publish.name(),
            Self::Fetch => MessageKind::Fetch.name(),
            Self::TrackStatus => MessageKind::TrackStatus.name(),
            Self::PublishNamespace => MessageKind::PublishNamespace.name(),
            Self::SubscribeNamespace => MessageKind::SubscribeNamespace.name(),
            Self::SubscribeTracks => MessageKind::SubscribeTracks.name(),
        }
    }
}

macro_rules! message_kinds {
    ($($kind:ident = $name:literal,)*) => {
        /// The kinds of message.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
        pub enum MessageKind {
            $(#[doc = concat!("`", $name, "`.")] $kind,)*
        }

        impl MessageKind {
            /// Returns the draft's name of the message.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }
    };
}

message_kinds! {
    Setup = "SETUP",
    GoAway = "GOAWAY",
    Subscribe = "SUBSCRIBE",
    SubscribeOk = "SUBSCRIBE_OK",
    Publish = "PUBLISH",
    PublishDone = "PUBLISH_DONE",
    PublishStateNotify = "PUBLISH_STATE_NOTIFY",
    Fetch = "FETCH",
    FetchOk = "FETCH_OK",
    TrackStatus = "TRACK_STATUS",
    PublishNamespace = "PUBLISH_NAMESPACE",
    Namespace = "NAMESPACE",
    NamespaceDone = "NAMESPACE_DONE",
    SubscribeNamespace = "SUBSCRIBE_NAMESPACE",
    SubscribeTracks = "SUBSCRIBE_TRACKS",
    PublishBlocked = "PUBLISH_BLOCKED",
    RequestUpdate = "REQUEST_UPDATE",
    RequestOk = "REQUEST_OK",
    RequestError = "REQUEST_ERROR",
}

/// The status of an object [moqt-18 §11.2.1.1].
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

/// Why no objects follow up to the end of a range, on a fetch stream [moqt-18 §11.4.4.2] [moqt-22 §11.4.1.2].
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum RangeEnd {
    /// The objects do not exist.
    NonExistent,
    /// The publisher does not know the objects.
    Unknown,
    /// The publisher did not get the objects in the time that the fetch allows. Drafts without this reason say that the
    /// objects are unknown.
    TimedOut,
}

/// What a range filter compares [moqt-19 §5.1.3].
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RangeFilterKind {
    /// The subgroup ID of objects.
    Subgroup,
    /// The object ID.
    ObjectId,
    /// The publisher priority of objects.
    Priority,
    /// A property of objects.
    ObjectProperty,
    /// A property of the track.
    TrackProperty,
}

/// The content of a unidirectional stream, according to its type [moqt-18 §3.4].
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum StreamKind {
    /// Control messages, beginning with SETUP. The stream type is the message type of SETUP.
    Control,
    /// The objects of a subgroup.
    Subgroup,
    /// The objects of a fetch.
    Fetch,
    /// Bytes to discard.
    Padding,
}
