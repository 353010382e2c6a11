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

macro_rules! message_kinds {
    ($($kind:ident = $name:literal,)*) => {
        /// The kinds of message.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
        pub enum MessageKind {
            $(#[doc = concat!("`", $name, "`.")] $kind,)*
        }

        impl MessageKind {
            /// The draft's name of the message.
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
