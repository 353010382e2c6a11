//! Drafts: everything that depends on the draft, such as names, code points and layouts.
//!
//! No other file distinguishes drafts. To add a draft, add a variant to [`Draft`] and let its methods answer for it.

use crate::kinds::{MessageKind, ObjectStatus, RequestKind, StreamKind};
use crate::scope::{Scopes, Step};

/// A draft of the MOQT protocol.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Draft {
    /// draft-ietf-moq-transport-18.
    Draft18,
}

impl Draft {
    /// All drafts, in order of preference.
    pub const ALL: [Self; 1] = [Self::Draft18];

    /// The draft in which a relay stores and forwards objects. They are encoded once, and the same bytes go to all
    /// subscribers, into the cache, and to other threads of the relay. A draft with another encoding of objects needs a
    /// conversion there.
    pub const KEPT: Self = Self::Draft18;

    /// Returns the protocol's name in ALPN and in WebTransport [moqt-18 §3.1].
    pub const fn alpn(self) -> &'static str {
        match self {
            Self::Draft18 => "moqt-18",
        }
    }

    /// Returns the draft with the ALPN `alpn`.
    pub fn from_alpn(alpn: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|draft| draft.alpn().as_bytes() == alpn)
    }

    /// Returns the type of a control message [moqt-18 §10].
    pub(crate) fn message_type(self, kind: MessageKind) -> u64 {
        let row = self.messages().iter().find(|(_, found)| *found == kind);
        row.expect("the table has a row for each message").0
    }

    /// Returns the control message with this type.
    pub(crate) fn message_kind(self, message_type: u64) -> Option<MessageKind> {
        let row = self
            .messages()
            .iter()
            .find(|(found, _)| *found == message_type);
        row.map(|(_, kind)| *kind)
    }

    const fn messages(self) -> &'static [(u64, MessageKind)] {
        match self {
            Self::Draft18 => &MESSAGES_18,
        }
    }

    /// Returns the parameters, in ascending order of type.
    pub(crate) const fn parameters(self) -> &'static [ParameterRow] {
        match self {
            Self::Draft18 => &PARAMETERS_18,
        }
    }

    /// Returns the parameter with this type.
    pub(crate) fn parameter(self, code: u64) -> Option<&'static ParameterRow> {
        self.parameters().iter().find(|row| row.code == code)
    }

    /// Returns the stream count in PUBLISH_DONE that means an unknown number [moqt-18 §10.11].
    pub(crate) const fn stream_count_unknown(self) -> u64 {
        match self {
            Self::Draft18 => (1 << 62) - 1,
        }
    }

    /// Returns what a unidirectional stream of this type carries [moqt-18 §3.4].
    #[inline]
    pub(crate) const fn stream_kind(self, stream_type: u64) -> Option<StreamKind> {
        match (self, stream_type) {
            (Self::Draft18, 0x05) => Some(StreamKind::Fetch),
            (Self::Draft18, 0x2F00) => Some(StreamKind::Control),
            (Self::Draft18, PADDING_STREAM) => Some(StreamKind::Padding),
            (Self::Draft18, _) if is_subgroup_18(stream_type) => Some(StreamKind::Subgroup),
            (Self::Draft18, _) => None,
        }
    }

    /// Returns the stream type of a subgroup with these flags [moqt-18 §11.4.2].
    #[inline]
    pub(crate) fn subgroup_stream_type(self, flags: u8) -> u64 {
        match self {
            Self::Draft18 => u64::from(SUBGROUP_FORM | flags),
        }
    }

    /// Returns the stream type of a fetch [moqt-18 §11.4.4].
    pub(crate) const fn fetch_stream_type(self) -> u64 {
        match self {
            Self::Draft18 => 0x05,
        }
    }

    /// Returns the stream type of padding [moqt-18 §11.5.1].
    pub(crate) const fn padding_stream_type(self) -> u64 {
        match self {
            Self::Draft18 => PADDING_STREAM,
        }
    }

    /// Returns the datagram type of padding [moqt-18 §11.5.2].
    pub(crate) const fn padding_datagram_type(self) -> u64 {
        match self {
            Self::Draft18 => 0x132B_3E29,
        }
    }

    /// Returns the flags of a datagram type; `None` if it carries no object [moqt-18 §11.3.1].
    #[inline]
    pub(crate) fn datagram_flags(self, datagram_type: u64) -> Option<u8> {
        let flags = u8::try_from(datagram_type).ok()?;
        let defined = match self {
            Self::Draft18 => {
                flags & !0x2F == 0
                    && flags & (DATAGRAM_STATUS | DATAGRAM_END_OF_GROUP)
                        != DATAGRAM_STATUS | DATAGRAM_END_OF_GROUP
            }
        };
        defined.then_some(flags)
    }

    /// Returns the object status with this code [moqt-18 §11.2.1.1].
    #[inline]
    pub(crate) const fn object_status(self, code: u64) -> Option<ObjectStatus> {
        match (self, code) {
            (Self::Draft18, 0x0) => Some(ObjectStatus::Normal),
            (Self::Draft18, 0x3) => Some(ObjectStatus::EndOfGroup),
            (Self::Draft18, 0x4) => Some(ObjectStatus::EndOfTrack),
            (Self::Draft18, _) => None,
        }
    }

    /// Returns the code of an object status.
    pub(crate) const fn object_status_code(self, status: ObjectStatus) -> u64 {
        match (self, status) {
            (Self::Draft18, ObjectStatus::Normal) => 0x0,
            (Self::Draft18, ObjectStatus::EndOfGroup) => 0x3,
            (Self::Draft18, ObjectStatus::EndOfTrack) => 0x4,
        }
    }

    /// Returns what follows these serialization flags on a fetch stream [moqt-18 §11.4.4].
    pub(crate) fn fetch_flags(self, flags: u64) -> Option<FetchFlags> {
        match (self, flags) {
            (Self::Draft18, FETCH_END_OF_NON_EXISTENT_RANGE) => {
                Some(FetchFlags::EndOfRange { unknown: false })
            }
            (Self::Draft18, FETCH_END_OF_UNKNOWN_RANGE) => {
                Some(FetchFlags::EndOfRange { unknown: true })
            }
            (Self::Draft18, _) => u8::try_from(flags)
                .ok()
                .filter(|flags| *flags < 128)
                .map(FetchFlags::Object),
        }
    }

    /// Returns the serialization flags of the end of a range [moqt-18 §11.4.4.2].
    pub(crate) const fn fetch_end_of_range(self, unknown: bool) -> u64 {
        match (self, unknown) {
            (Self::Draft18, false) => FETCH_END_OF_NON_EXISTENT_RANGE,
            (Self::Draft18, true) => FETCH_END_OF_UNKNOWN_RANGE,
        }
    }
}

/// The fields that follow serialization flags.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum FetchFlags {
    /// An object with these flags.
    Object(u8),
    /// The end of a range of objects.
    EndOfRange {
        /// Whether the objects are unknown rather than known not to exist.
        unknown: bool,
    },
}

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
    SubscriptionFilter,
    GroupOrder,
    NewGroupRequest,
    TrackNamespacePrefix,
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

/// Object datagrams: properties are present.
pub(crate) const DATAGRAM_PROPERTIES: u8 = 0x01;
/// Object datagrams: no object with a larger ID exists in the group.
pub(crate) const DATAGRAM_END_OF_GROUP: u8 = 0x02;
/// Object datagrams: the object ID is absent and 0.
pub(crate) const DATAGRAM_ZERO_OBJECT_ID: u8 = 0x04;
/// Object datagrams: the priority is absent; the track's default applies.
pub(crate) const DATAGRAM_DEFAULT_PRIORITY: u8 = 0x08;
/// Object datagrams: the status takes the place of the payload.
pub(crate) const DATAGRAM_STATUS: u8 = 0x20;

/// Subgroup headers: all objects have a properties length.
pub(crate) const SUBGROUP_PROPERTIES: u8 = 0x01;
/// Subgroup headers: the two bits that tell how the subgroup ID is given.
pub(crate) const SUBGROUP_ID_MODE: u8 = 0x06;
/// Subgroup headers: the subgroup ID is 0.
pub(crate) const SUBGROUP_ID_ZERO: u8 = 0x00;
/// Subgroup headers: the subgroup ID is the ID of the first object.
pub(crate) const SUBGROUP_ID_FIRST_OBJECT: u8 = 0x02;
/// Subgroup headers: the subgroup ID is a field.
pub(crate) const SUBGROUP_ID_EXPLICIT: u8 = 0x04;
/// Subgroup headers: the subgroup contains the largest object of its group.
pub(crate) const SUBGROUP_END_OF_GROUP: u8 = 0x08;
/// Subgroup headers: the bit that distinguishes the stream types of subgroups.
const SUBGROUP_FORM: u8 = 0x10;
/// Subgroup headers: the priority is absent; the track's default applies.
pub(crate) const SUBGROUP_DEFAULT_PRIORITY: u8 = 0x20;
/// Subgroup headers: the first object of the stream is the first of the subgroup.
pub(crate) const SUBGROUP_FIRST_OBJECT: u8 = 0x40;

/// Fetch objects: the two bits that tell how the subgroup ID is given.
pub(crate) const FETCH_SUBGROUP_MODE: u8 = 0x03;
/// Fetch objects: the subgroup ID is 0.
pub(crate) const FETCH_SUBGROUP_ZERO: u8 = 0x00;
/// Fetch objects: the subgroup ID is that of the prior object.
pub(crate) const FETCH_SUBGROUP_PRIOR: u8 = 0x01;
/// Fetch objects: the subgroup ID is one more than that of the prior object.
pub(crate) const FETCH_SUBGROUP_NEXT: u8 = 0x02;
/// Fetch objects: the subgroup ID is a field.
pub(crate) const FETCH_SUBGROUP_EXPLICIT: u8 = 0x03;
/// Fetch objects: the object ID delta is a field.
pub(crate) const FETCH_OBJECT_ID: u8 = 0x04;
/// Fetch objects: the group ID delta is a field.
pub(crate) const FETCH_GROUP_ID: u8 = 0x08;
/// Fetch objects: the priority is a field.
pub(crate) const FETCH_PRIORITY: u8 = 0x10;
/// Fetch objects: properties are present.
pub(crate) const FETCH_PROPERTIES: u8 = 0x20;
/// Fetch objects: the object was sent as a datagram and has no subgroup ID.
pub(crate) const FETCH_DATAGRAM: u8 = 0x40;

const FETCH_END_OF_NON_EXISTENT_RANGE: u64 = 0x8C;
const FETCH_END_OF_UNKNOWN_RANGE: u64 = 0x10C;
const PADDING_STREAM: u64 = 0x132B_3E28;

/// Returns whether a type has the form 0b0XX1XXXX without the reserved subgroup ID mode [moqt-18 §11.4.2].
const fn is_subgroup_18(stream_type: u64) -> bool {
    const FORM: u64 = SUBGROUP_FORM as u64;
    const MODE: u64 = SUBGROUP_ID_MODE as u64;
    stream_type < 0x80 && stream_type & FORM != 0 && stream_type & MODE != MODE
}

/// The message types of draft-18. It omits 0x1E, which the draft's table lists as `PUBLISH_OK`: that message has no
/// format, and according to the change log `REQUEST_OK` replaces it [moqt-18 §10].
static MESSAGES_18: [(u64, MessageKind); 18] = [
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
const TRACK_STATUS_OK: Scopes = Scopes::of(RequestKind::TrackStatus, Step::Answer);
const SUBSCRIBE_TRACKS: Scopes = Scopes::of(RequestKind::SubscribeTracks, Step::Request);
const ANY_REQUEST: Scopes = Scopes::each(Step::Request, &RequestKind::ALL);
const ANY_UPDATE: Scopes = Scopes::each(Step::Update, &RequestKind::ALL);
const SUBSCRIPTION_UPDATE: Scopes = Scopes::each(Step::Update, SUBSCRIPTIONS);
const SUBSCRIPTION_UPDATE_OK: Scopes = Scopes::each(Step::UpdateAnswer, SUBSCRIPTIONS);
const NAMESPACE_UPDATE: Scopes = Scopes::each(Step::Update, NAMESPACES);

/// Declares the parameters of a draft, one per line: type, meaning, encoding, and the messages that may contain it.
macro_rules! parameters {
    ($($code:literal $kind:ident $encoding:ident $($scope:ident)+;)*) => {
        [$(ParameterRow {
            code: $code,
            kind: ParameterKind::$kind,
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
static PARAMETERS_18: [ParameterRow; 13] = parameters! {
    0x02 ObjectDeliveryTimeout   Varint         SUBSCRIBE PUBLISH_OK ANY_UPDATE;
    0x03 AuthorizationToken      LengthPrefixed ANY_REQUEST ANY_UPDATE;
    0x04 RendezvousTimeout       Varint         SUBSCRIBE;
    0x06 SubgroupDeliveryTimeout Varint         SUBSCRIBE PUBLISH_OK ANY_UPDATE;
    0x08 Expires                 Varint         SUBSCRIBE_OK PUBLISH PUBLISH_OK SUBSCRIPTION_UPDATE_OK TRACK_STATUS_OK;
    0x09 LargestObject           Structure      SUBSCRIBE_OK PUBLISH SUBSCRIPTION_UPDATE_OK TRACK_STATUS_OK;
    0x0A FillTimeout             Varint         FETCH;
    0x10 Forward                 Uint8          SUBSCRIBE SUBSCRIPTION_UPDATE PUBLISH PUBLISH_OK SUBSCRIBE_TRACKS;
    0x20 SubscriberPriority      Uint8          SUBSCRIBE FETCH SUBSCRIPTION_UPDATE FETCH_UPDATE PUBLISH_OK;
    0x21 SubscriptionFilter      LengthPrefixed SUBSCRIBE PUBLISH_OK SUBSCRIPTION_UPDATE;
    0x22 GroupOrder              Uint8          SUBSCRIBE PUBLISH_OK FETCH;
    0x32 NewGroupRequest         Varint         SUBSCRIBE PUBLISH_OK SUBSCRIPTION_UPDATE;
    0x34 TrackNamespacePrefix    Structure      NAMESPACE_UPDATE;
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_is_found_by_its_alpn() {
        for draft in Draft::ALL {
            assert_eq!(Draft::from_alpn(draft.alpn().as_bytes()), Some(draft));
        }
        assert_eq!(Draft::from_alpn(b"moqt-18 "), None);
        assert_eq!(Draft::from_alpn(b"moq-00"), None);
    }

    #[test]
    fn each_type_number_belongs_to_one_message() {
        for draft in Draft::ALL {
            assert!(draft.messages().is_sorted_by(|a, b| a.0 < b.0));
            for (number, kind) in draft.messages() {
                assert_eq!(draft.message_type(*kind), *number);
                assert_eq!(draft.message_kind(*number), Some(*kind));
            }
        }
    }

    #[test]
    fn each_stream_type_is_of_one_kind() {
        let draft = Draft::Draft18;
        assert_eq!(draft.stream_kind(0x05), Some(StreamKind::Fetch));
        assert_eq!(draft.stream_kind(0x2F00), Some(StreamKind::Control));
        assert_eq!(draft.stream_kind(0x132B_3E28), Some(StreamKind::Padding));
        let subgroups = (0..0x1000).filter(|t| draft.stream_kind(*t) == Some(StreamKind::Subgroup));
        assert_eq!(subgroups.count(), 4 * 12);
    }

    #[test]
    fn each_datagram_type_of_the_draft_has_flags() {
        let defined = (0..0x1000).filter(|t| Draft::Draft18.datagram_flags(*t).is_some());
        assert_eq!(defined.count(), 16 + 8);
    }
}
