//! The code points of messages and parameters, and the messages in which each parameter may occur.

use crate::kinds::{MessageKind, RangeFilterKind, RequestKind};
use crate::scope::{Scopes, Step};

/// The parameters, independent of their code points.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum ParameterKind {
    ObjectDeliveryTimeout,
    AuthorizationToken,
    RendezvousTimeout,
    SubgroupDeliveryTimeout,
    Expires,
    LargestObject,
    FillTimeout,
    Forward,
    SubscriberPriority,
    LocationFilter,
    GroupOrder,
    FillParameters,
    Range(RangeFilterKind),
    NewGroupRequest,
    TrackNamespacePrefix,
    IncludeProperties,
}

impl ParameterKind {
    /// Returns whether a message may contain the parameter more than once.
    pub(crate) const fn may_repeat(self) -> bool {
        matches!(self, Self::AuthorizationToken | Self::Range(_))
    }
}

/// The encoding of a parameter's value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum ParameterEncoding {
    /// One byte.
    Uint8,
    /// One variable-length integer.
    Varint,
    /// A structure with a length before it.
    LengthPrefixed,
    /// A structure that delimits itself.
    Structure,
}

/// One parameter of a draft.
#[derive(Debug)]
pub(crate) struct ParameterRow {
    /// The parameter type.
    pub(crate) code: u64,
    /// The parameter.
    pub(crate) kind: ParameterKind,
    /// The encoding of the value.
    pub(crate) encoding: ParameterEncoding,
    /// The messages in which the parameter may occur.
    pub(crate) scopes: Scopes,
}

/// The message types of drafts 18 and 19. It omits 0x1E, which the draft's table lists as `PUBLISH_OK`: that message has no
/// format, and according to the change log `REQUEST_OK` replaces it [moqt-18 §10].
pub(super) static MESSAGES_18: [(u64, MessageKind); 18] = [
    (0x02, MessageKind::RequestUpdate),
    (0x03, MessageKind::Subscribe),
    (0x04, MessageKind::SubscribeOk),
    (0x05, MessageKind::RequestError),
    (0x06, MessageKind::PublishNamespace),
    (0x07, MessageKind::RequestOk),
    (0x08, MessageKind::Namespace),
    (0x0B, MessageKind::PublishDone),
    (0x0D, MessageKind::TrackStatus),
    (0x0E, MessageKind::NamespaceDone),
    (0x0F, MessageKind::PublishBlocked),
    (0x10, MessageKind::GoAway),
    (0x16, MessageKind::Fetch),
    (0x18, MessageKind::FetchOk),
    (0x1D, MessageKind::Publish),
    (0x50, MessageKind::SubscribeNamespace),
    (0x51, MessageKind::SubscribeTracks),
    (0x2F00, MessageKind::Setup),
];

/// The message types from draft-20 on [moqt-22 §9].
pub(super) static MESSAGES_20: [(u64, MessageKind); 19] = [
    (0x02, MessageKind::RequestUpdate),
    (0x03, MessageKind::Subscribe),
    (0x04, MessageKind::SubscribeOk),
    (0x05, MessageKind::RequestError),
    (0x06, MessageKind::PublishNamespace),
    (0x07, MessageKind::RequestOk),
    (0x08, MessageKind::Namespace),
    (0x0B, MessageKind::PublishDone),
    (0x0D, MessageKind::TrackStatus),
    (0x0E, MessageKind::NamespaceDone),
    (0x0F, MessageKind::PublishBlocked),
    (0x10, MessageKind::GoAway),
    (0x16, MessageKind::Fetch),
    (0x18, MessageKind::FetchOk),
    (0x1D, MessageKind::Publish),
    (0x22, MessageKind::PublishStateNotify),
    (0x50, MessageKind::SubscribeNamespace),
    (0x51, MessageKind::SubscribeTracks),
    (0x2F00, MessageKind::Setup),
];

const SUBSCRIPTIONS: &[RequestKind] = &[RequestKind::Subscribe, RequestKind::Publish];
const NAMESPACES: &[RequestKind] = &[
    RequestKind::SubscribeNamespace,
    RequestKind::SubscribeTracks,
];
const SUBSCRIBE: Scopes = Scopes::of(RequestKind::Subscribe, Step::Request);
const SUBSCRIBE_OK: Scopes = Scopes::of(RequestKind::Subscribe, Step::Answer);
const PUBLISH: Scopes = Scopes::of(RequestKind::Publish, Step::Request);
const PUBLISH_OK: Scopes = Scopes::of(RequestKind::Publish, Step::Answer);
const FETCH: Scopes = Scopes::of(RequestKind::Fetch, Step::Request);
const FETCH_UPDATE: Scopes = Scopes::of(RequestKind::Fetch, Step::Update);
const TRACK_STATUS: Scopes = Scopes::of(RequestKind::TrackStatus, Step::Request);
const TRACK_STATUS_OK: Scopes = Scopes::of(RequestKind::TrackStatus, Step::Answer);
const SUBSCRIBE_TRACKS: Scopes = Scopes::of(RequestKind::SubscribeTracks, Step::Request);
const TRACKS_UPDATE: Scopes = Scopes::of(RequestKind::SubscribeTracks, Step::Update);
const NAMESPACE_OK: Scopes = Scopes::each(
    Step::Answer,
    &[
        RequestKind::PublishNamespace,
        RequestKind::SubscribeNamespace,
        RequestKind::SubscribeTracks,
    ],
);
const NOTIFY: Scopes = Scopes::PUBLISH_STATE_NOTIFY;
const FILL: Scopes = Scopes::FILL;
const ANY_REQUEST: Scopes = Scopes::each(Step::Request, &RequestKind::ALL);
const ANY_UPDATE: Scopes = Scopes::each(Step::Update, &RequestKind::ALL);
const SUBSCRIPTION_UPDATE: Scopes = Scopes::each(Step::Update, SUBSCRIPTIONS);
const SUBSCRIPTION_UPDATE_OK: Scopes = Scopes::each(Step::UpdateAnswer, SUBSCRIPTIONS);
const ANY_UPDATE_OK: Scopes = Scopes::each(Step::UpdateAnswer, &RequestKind::ALL);
const NAMESPACE_UPDATE: Scopes = Scopes::each(Step::Update, NAMESPACES);

/// Declares the parameters of a draft, one per line: type, meaning, encoding, and the messages that may contain it.
macro_rules! parameters {
    ($($code:literal $kind:ident$(($range:ident))? $encoding:ident $($scope:ident)+;)*) => {
        [$(ParameterRow {
            code: $code,
            kind: ParameterKind::$kind$((RangeFilterKind::$range))?,
            encoding: ParameterEncoding::$encoding,
            scopes: Scopes::NONE$(.or($scope))+,
        },)*]
    };
}

/// The parameters of draft-18 [moqt-18 §10.2, §15.7].
///
/// For the delivery timeouts the draft names `REQUEST_UPDATE` without the kind of request, so they may occur in any.
/// For EXPIRES it does not name `TRACK_STATUS_OK`, but that message has "the same parameters" as `SUBSCRIBE_OK`
/// [moqt-18 §10.14].
pub(super) static PARAMETERS_18: [ParameterRow; 13] = parameters! {
    0x02 ObjectDeliveryTimeout   Varint         SUBSCRIBE PUBLISH_OK ANY_UPDATE;
    0x03 AuthorizationToken      LengthPrefixed ANY_REQUEST ANY_UPDATE;
    0x04 RendezvousTimeout       Varint         SUBSCRIBE;
    0x06 SubgroupDeliveryTimeout Varint         SUBSCRIBE PUBLISH_OK ANY_UPDATE;
    0x08 Expires                 Varint         SUBSCRIBE_OK PUBLISH PUBLISH_OK SUBSCRIPTION_UPDATE_OK TRACK_STATUS_OK;
    0x09 LargestObject           Structure      SUBSCRIBE_OK PUBLISH SUBSCRIPTION_UPDATE_OK TRACK_STATUS_OK;
    0x0A FillTimeout             Varint         FETCH;
    0x10 Forward                 Uint8          SUBSCRIBE SUBSCRIPTION_UPDATE PUBLISH PUBLISH_OK SUBSCRIBE_TRACKS;
    0x20 SubscriberPriority      Uint8          SUBSCRIBE FETCH SUBSCRIPTION_UPDATE FETCH_UPDATE PUBLISH_OK;
    0x21 LocationFilter          LengthPrefixed SUBSCRIBE PUBLISH_OK SUBSCRIPTION_UPDATE;
    0x22 GroupOrder              Uint8          SUBSCRIBE PUBLISH_OK FETCH;
    0x32 NewGroupRequest         Varint         SUBSCRIBE PUBLISH_OK SUBSCRIPTION_UPDATE;
    0x34 TrackNamespacePrefix    Structure      NAMESPACE_UPDATE;
};

/// The parameters of draft-19 [moqt-19 §10.2, §15.7]. "Any Parameter that can be specified on a Subscription [...] is valid
/// in `SUBSCRIBE_TRACKS`" [moqt-19 §10.19.1], and PUBLISH repeats its `GROUP_ORDER`, although the definition of that
/// parameter does not name PUBLISH.
pub(super) static PARAMETERS_19: [ParameterRow; 18] = parameters! {
    0x02 ObjectDeliveryTimeout   Varint         SUBSCRIBE SUBSCRIBE_TRACKS PUBLISH_OK ANY_UPDATE;
    0x03 AuthorizationToken      LengthPrefixed ANY_REQUEST ANY_UPDATE;
    0x04 RendezvousTimeout       Varint         SUBSCRIBE SUBSCRIBE_TRACKS;
    0x06 SubgroupDeliveryTimeout Varint         SUBSCRIBE SUBSCRIBE_TRACKS PUBLISH_OK ANY_UPDATE;
    0x08 Expires                 Varint         SUBSCRIBE_OK PUBLISH PUBLISH_OK NAMESPACE_OK ANY_UPDATE_OK TRACK_STATUS_OK;
    0x09 LargestObject           Structure      SUBSCRIBE_OK PUBLISH SUBSCRIPTION_UPDATE_OK TRACK_STATUS_OK;
    0x0A FillTimeout             Varint         FETCH;
    0x10 Forward                 Uint8          SUBSCRIBE SUBSCRIPTION_UPDATE PUBLISH PUBLISH_OK SUBSCRIBE_TRACKS;
    0x20 SubscriberPriority      Uint8          SUBSCRIBE SUBSCRIBE_TRACKS FETCH SUBSCRIPTION_UPDATE FETCH_UPDATE PUBLISH_OK;
    0x21 LocationFilter          LengthPrefixed SUBSCRIBE SUBSCRIBE_TRACKS PUBLISH_OK SUBSCRIPTION_UPDATE;
    0x22 GroupOrder              Uint8          SUBSCRIBE SUBSCRIBE_TRACKS PUBLISH FETCH;
    0x25 Range(Subgroup)         LengthPrefixed SUBSCRIBE SUBSCRIBE_TRACKS FETCH PUBLISH_OK SUBSCRIPTION_UPDATE TRACKS_UPDATE;
    0x26 Range(ObjectId)         LengthPrefixed SUBSCRIBE SUBSCRIBE_TRACKS FETCH PUBLISH_OK SUBSCRIPTION_UPDATE TRACKS_UPDATE;
    0x27 Range(Priority)         LengthPrefixed SUBSCRIBE SUBSCRIBE_TRACKS FETCH PUBLISH_OK SUBSCRIPTION_UPDATE TRACKS_UPDATE;
    0x28 Range(ObjectProperty)   LengthPrefixed SUBSCRIBE SUBSCRIBE_TRACKS FETCH PUBLISH_OK SUBSCRIPTION_UPDATE TRACKS_UPDATE;
    0x29 Range(TrackProperty)    LengthPrefixed SUBSCRIBE_TRACKS TRACKS_UPDATE;
    0x32 NewGroupRequest         Varint         SUBSCRIBE SUBSCRIBE_TRACKS PUBLISH_OK SUBSCRIPTION_UPDATE;
    0x34 TrackNamespacePrefix    Structure      NAMESPACE_UPDATE;
};

/// The parameters of drafts 20 and 21 [moqt-21 §9.20]. `SUBSCRIBE_TRACKS` may have the parameters of SUBSCRIBE according
/// to its own section, although most of their definitions do not name it [moqt-21 §9.18.1].
pub(super) static PARAMETERS_20: [ParameterRow; 20] = parameters! {
    0x02 ObjectDeliveryTimeout   Varint         SUBSCRIBE SUBSCRIBE_TRACKS PUBLISH ANY_UPDATE;
    0x03 AuthorizationToken      LengthPrefixed ANY_REQUEST ANY_UPDATE;
    0x04 RendezvousTimeout       Varint         SUBSCRIBE SUBSCRIBE_TRACKS;
    0x06 SubgroupDeliveryTimeout Varint         SUBSCRIBE SUBSCRIBE_TRACKS PUBLISH ANY_UPDATE;
    0x08 Expires                 Varint         SUBSCRIBE_OK PUBLISH PUBLISH_OK NAMESPACE_OK ANY_UPDATE_OK;
    0x09 LargestObject           Structure      SUBSCRIBE_OK PUBLISH SUBSCRIPTION_UPDATE_OK TRACK_STATUS_OK NOTIFY;
    0x0A FillTimeout             Varint         FETCH FILL;
    0x10 Forward                 Uint8          SUBSCRIBE SUBSCRIPTION_UPDATE TRACKS_UPDATE PUBLISH SUBSCRIBE_TRACKS NOTIFY;
    0x20 SubscriberPriority      Uint8          SUBSCRIBE SUBSCRIBE_TRACKS PUBLISH FETCH SUBSCRIPTION_UPDATE FETCH_UPDATE FILL;
    0x21 LocationFilter          LengthPrefixed SUBSCRIBE PUBLISH FETCH SUBSCRIPTION_UPDATE SUBSCRIBE_TRACKS NOTIFY FILL;
    0x22 GroupOrder              Uint8          SUBSCRIBE PUBLISH FETCH SUBSCRIBE_TRACKS FILL;
    0x23 FillParameters          LengthPrefixed SUBSCRIBE SUBSCRIPTION_UPDATE SUBSCRIBE_TRACKS;
    0x25 Range(Subgroup)         LengthPrefixed SUBSCRIBE FETCH SUBSCRIBE_TRACKS SUBSCRIPTION_UPDATE FILL;
    0x26 Range(ObjectId)         LengthPrefixed SUBSCRIBE FETCH SUBSCRIBE_TRACKS SUBSCRIPTION_UPDATE FILL;
    0x27 Range(Priority)         LengthPrefixed SUBSCRIBE FETCH SUBSCRIBE_TRACKS SUBSCRIPTION_UPDATE FILL;
    0x28 Range(ObjectProperty)   LengthPrefixed SUBSCRIBE FETCH SUBSCRIBE_TRACKS SUBSCRIPTION_UPDATE FILL;
    0x29 Range(TrackProperty)    LengthPrefixed SUBSCRIBE_TRACKS TRACKS_UPDATE;
    0x32 NewGroupRequest         Varint         SUBSCRIBE SUBSCRIBE_TRACKS SUBSCRIPTION_UPDATE;
    0x34 TrackNamespacePrefix    Structure      NAMESPACE_UPDATE;
    0x35 IncludeProperties       Uint8          SUBSCRIBE TRACK_STATUS FETCH SUBSCRIBE_TRACKS;
};

/// The parameters of draft-22, in which a location filter delimits itself [moqt-22 §9.20].
pub(super) static PARAMETERS_22: [ParameterRow; 20] = parameters! {
    0x02 ObjectDeliveryTimeout   Varint         SUBSCRIBE SUBSCRIBE_TRACKS PUBLISH ANY_UPDATE;
    0x03 AuthorizationToken      LengthPrefixed ANY_REQUEST ANY_UPDATE;
    0x04 RendezvousTimeout       Varint         SUBSCRIBE SUBSCRIBE_TRACKS;
    0x06 SubgroupDeliveryTimeout Varint         SUBSCRIBE SUBSCRIBE_TRACKS PUBLISH ANY_UPDATE;
    0x08 Expires                 Varint         SUBSCRIBE_OK PUBLISH PUBLISH_OK NAMESPACE_OK ANY_UPDATE_OK;
    0x09 LargestObject           Structure      SUBSCRIBE_OK PUBLISH SUBSCRIPTION_UPDATE_OK TRACK_STATUS_OK NOTIFY;
    0x0A FillTimeout             Varint         FETCH FILL;
    0x10 Forward                 Uint8          SUBSCRIBE SUBSCRIPTION_UPDATE TRACKS_UPDATE PUBLISH SUBSCRIBE_TRACKS NOTIFY;
    0x20 SubscriberPriority      Uint8          SUBSCRIBE SUBSCRIBE_TRACKS PUBLISH FETCH SUBSCRIPTION_UPDATE FETCH_UPDATE FILL;
    0x21 LocationFilter          Structure      SUBSCRIBE PUBLISH FETCH SUBSCRIPTION_UPDATE SUBSCRIBE_TRACKS NOTIFY FILL;
    0x22 GroupOrder              Uint8          SUBSCRIBE PUBLISH FETCH SUBSCRIBE_TRACKS FILL;
    0x23 FillParameters          LengthPrefixed SUBSCRIBE SUBSCRIPTION_UPDATE SUBSCRIBE_TRACKS;
    0x25 Range(Subgroup)         LengthPrefixed SUBSCRIBE FETCH SUBSCRIBE_TRACKS SUBSCRIPTION_UPDATE FILL;
    0x26 Range(ObjectId)         LengthPrefixed SUBSCRIBE FETCH SUBSCRIBE_TRACKS SUBSCRIPTION_UPDATE FILL;
    0x27 Range(Priority)         LengthPrefixed SUBSCRIBE FETCH SUBSCRIBE_TRACKS SUBSCRIPTION_UPDATE FILL;
    0x28 Range(ObjectProperty)   LengthPrefixed SUBSCRIBE FETCH SUBSCRIBE_TRACKS SUBSCRIPTION_UPDATE FILL;
    0x29 Range(TrackProperty)    LengthPrefixed SUBSCRIBE_TRACKS TRACKS_UPDATE;
    0x32 NewGroupRequest         Varint         SUBSCRIBE SUBSCRIBE_TRACKS SUBSCRIPTION_UPDATE;
    0x34 TrackNamespacePrefix    Structure      NAMESPACE_UPDATE;
    0x35 IncludeProperties       Uint8          SUBSCRIBE TRACK_STATUS FETCH SUBSCRIBE_TRACKS;
};
