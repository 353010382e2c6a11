//! Drafts: everything that depends on the draft, such as names, code points and layouts.
//!
//! No other file distinguishes drafts. To add a draft, add a variant to [`Draft`] and let its methods answer for it. What
//! the drafts so far have in common is matched with `_` in place of the draft.
//!
//! Draft-21 is draft-20 in another order of sections, so the two share all tables.

mod tables;

use self::tables::{
    MESSAGES_18, MESSAGES_20, PARAMETERS_18, PARAMETERS_19, PARAMETERS_20, PARAMETERS_22,
};
pub(crate) use self::tables::{ParameterEncoding, ParameterKind, ParameterRow};
use crate::error::{PublishDoneCode, RequestErrorCode};
use crate::kinds::{MessageKind, ObjectStatus, RangeEnd, StreamKind};

/// A draft of the MOQT protocol. Later drafts are greater.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Draft {
    /// draft-ietf-moq-transport-18.
    Draft18,
    /// draft-ietf-moq-transport-19.
    Draft19,
    /// draft-ietf-moq-transport-20.
    Draft20,
    /// draft-ietf-moq-transport-21.
    Draft21,
    /// draft-ietf-moq-transport-22.
    Draft22,
}

impl Draft {
    /// All drafts, newest first: the order of preference in which they are offered.
    pub const ALL: [Self; 5] = [
        Self::Draft22,
        Self::Draft21,
        Self::Draft20,
        Self::Draft19,
        Self::Draft18,
    ];

    /// The draft in which a relay stores and forwards objects. They are encoded once, and the same bytes go to all
    /// subscribers, into the cache, and to other threads of the relay: subgroups and datagrams have the same encoding
    /// in all drafts here. A draft with another encoding of objects needs a conversion there.
    pub const KEPT: Self = Self::Draft18;

    /// Returns the protocol's name in ALPN and in WebTransport [moqt-18 §3.1].
    pub const fn alpn(self) -> &'static str {
        match self {
            Self::Draft18 => "moqt-18",
            Self::Draft19 => "moqt-19",
            Self::Draft20 => "moqt-20",
            Self::Draft21 => "moqt-21",
            Self::Draft22 => "moqt-22",
        }
    }

    /// Returns the ALPN names of all drafts, newest first.
    pub fn alpns() -> [&'static str; Self::ALL.len()] {
        Self::ALL.map(Self::alpn)
    }

    /// Returns the draft with the ALPN `alpn`.
    pub fn from_alpn(alpn: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|draft| draft.alpn().as_bytes() == alpn)
    }

    /// Returns the draft that a person calls by its ALPN (`moqt-22`) or its number (`22`).
    pub fn by_name(name: &str) -> Option<Self> {
        let is_named = |draft: &Self| {
            let alpn = draft.alpn();
            alpn == name || alpn.strip_prefix("moqt-") == Some(name)
        };
        Self::ALL.into_iter().find(is_named)
    }

    /// Returns which names [`by_name`](Self::by_name) finds, as the end of an error text.
    pub fn expected() -> String {
        format!(
            "expected one of {}, or its number",
            Self::alpns().join(", ")
        )
    }

    /// Returns whether a session may have several subscriptions to one track [moqt-19 §5.1].
    pub const fn permits_several_subscriptions(self) -> bool {
        match self {
            Self::Draft18 => false,
            Self::Draft19 | Self::Draft20 | Self::Draft21 | Self::Draft22 => true,
        }
    }

    /// Returns whether a subscription is refused if its filter ends before the largest object. In later drafts such a
    /// filter is valid [moqt-18 §5.1.2] [moqt-22 §3.3.1].
    pub const fn refuses_past_filters(self) -> bool {
        self.has_joining_fetches()
    }

    /// Returns whether past objects of a subscription are requested with a FETCH that joins it. In later drafts the
    /// subscription asks for a fill, and FETCH has a filter in place of a range [moqt-18 §10.12] [moqt-22 §3.4, §9.11].
    pub(crate) const fn has_joining_fetches(self) -> bool {
        match self {
            Self::Draft18 | Self::Draft19 => true,
            Self::Draft20 | Self::Draft21 | Self::Draft22 => false,
        }
    }

    /// Returns whether the end of a range is encoded as the object after the last, with 0 for the whole group. In later
    /// drafts it is the last object itself [moqt-18 §10.12.1] [moqt-22 §9.12].
    pub(crate) const fn has_exclusive_ends(self) -> bool {
        self.has_joining_fetches()
    }

    /// Returns whether the answer to PUBLISH sets the parameters of the subscription. In later drafts the subscriber
    /// sends `REQUEST_UPDATE` for that [moqt-18 §10.2] [moqt-22 §9.20].
    pub(crate) const fn publish_ok_has_parameters(self) -> bool {
        self.has_joining_fetches()
    }

    /// Returns whether the parameter `GROUP_ORDER` may answer a PUBLISH [moqt-18 §10.2.8].
    pub(crate) const fn publish_ok_has_group_order(self) -> bool {
        self.goaway_has_request_id()
    }

    /// Returns the encoding of location filters.
    pub(crate) const fn filter_form(self) -> FilterForm {
        match self {
            Self::Draft18 | Self::Draft19 => FilterForm::Subscription,
            Self::Draft20 | Self::Draft21 => FilterForm::Counted,
            Self::Draft22 => FilterForm::Typed,
        }
    }

    /// Returns whether GOAWAY on the control stream has a Request ID [moqt-18 §10.4].
    pub(crate) const fn goaway_has_request_id(self) -> bool {
        match self {
            Self::Draft18 => true,
            Self::Draft19 | Self::Draft20 | Self::Draft21 | Self::Draft22 => false,
        }
    }

    /// Returns whether SETUP announces limits of range filters and updates [moqt-19 §10.3.1].
    pub(crate) const fn setup_has_limits(self) -> bool {
        !self.goaway_has_request_id()
    }

    /// Returns whether the redirect of `SUBSCRIBE_TRACKS` may not name a track [moqt-19 §10.6.1].
    pub(crate) const fn redirects_tracks_by_namespace(self) -> bool {
        !self.goaway_has_request_id()
    }

    /// Returns the code with which this draft expresses an error of a request. A code that the draft does not have
    /// becomes the nearest that it has.
    pub(crate) fn request_error(self, code: RequestErrorCode) -> RequestErrorCode {
        let is_missing = match code {
            RequestErrorCode::DUPLICATE_SUBSCRIPTION => self.permits_several_subscriptions(),
            RequestErrorCode::INVALID_JOINING_REQUEST_ID => !self.has_joining_fetches(),
            RequestErrorCode::INVALID_FILTER | RequestErrorCode::CONFLICTING_FILTERS => {
                !self.setup_has_limits()
            }
            _ => false,
        };
        if !is_missing {
            return code;
        }
        match code {
            RequestErrorCode::DUPLICATE_SUBSCRIPTION => RequestErrorCode::NOT_SUPPORTED,
            RequestErrorCode::CONFLICTING_FILTERS => RequestErrorCode::EXCESSIVE_LOAD,
            _ => RequestErrorCode::INVALID_RANGE,
        }
    }

    /// Returns the code with which this draft expresses the end of a subscription [moqt-18 §10.11] [moqt-22 §9.9].
    pub(crate) fn publish_done(self, code: PublishDoneCode) -> PublishDoneCode {
        if code == PublishDoneCode::SUBSCRIPTION_ENDED && !self.has_joining_fetches() {
            PublishDoneCode::INTERNAL_ERROR
        } else {
            code
        }
    }

    /// Returns the type of a control message [moqt-18 §10]; `None` if the draft does not have it.
    pub(crate) fn message_type(self, kind: MessageKind) -> Option<u64> {
        let row = self.messages().iter().find(|(_, found)| *found == kind);
        row.map(|(message_type, _)| *message_type)
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
            Self::Draft18 | Self::Draft19 => &MESSAGES_18,
            Self::Draft20 | Self::Draft21 | Self::Draft22 => &MESSAGES_20,
        }
    }

    /// Returns the parameters, in ascending order of type.
    pub(crate) const fn parameters(self) -> &'static [ParameterRow] {
        match self {
            Self::Draft18 => &PARAMETERS_18,
            Self::Draft19 => &PARAMETERS_19,
            Self::Draft20 | Self::Draft21 => &PARAMETERS_20,
            Self::Draft22 => &PARAMETERS_22,
        }
    }

    /// Returns the parameter with this type.
    pub(crate) fn parameter(self, code: u64) -> Option<&'static ParameterRow> {
        self.parameters().iter().find(|row| row.code == code)
    }

    /// Returns the stream count in PUBLISH_DONE that means an unknown number [moqt-18 §10.11] [moqt-22 §9.9].
    pub(crate) const fn stream_count_unknown(self) -> u64 {
        match self {
            Self::Draft18 | Self::Draft19 => (1 << 62) - 1,
            Self::Draft20 | Self::Draft21 | Self::Draft22 => u64::MAX,
        }
    }

    /// Returns what a unidirectional stream of this type carries [moqt-18 §3.4].
    #[inline]
    pub(crate) const fn stream_kind(self, stream_type: u64) -> Option<StreamKind> {
        match (self, stream_type) {
            (_, FETCH_STREAM) => Some(StreamKind::Fetch),
            (_, 0x2F00) => Some(StreamKind::Control),
            (_, PADDING_STREAM) => Some(StreamKind::Padding),
            (_, _) if is_subgroup(stream_type) => Some(StreamKind::Subgroup),
            (_, _) => None,
        }
    }

    /// Returns the stream type of a subgroup with these flags [moqt-18 §11.4.2].
    #[inline]
    pub(crate) fn subgroup_stream_type(self, flags: u8) -> u64 {
        match self {
            Self::Draft18 | Self::Draft19 | Self::Draft20 | Self::Draft21 | Self::Draft22 => {
                u64::from(SUBGROUP_FORM | flags)
            }
        }
    }

    /// Returns the stream type of a fetch [moqt-18 §11.4.4].
    pub(crate) const fn fetch_stream_type(self) -> u64 {
        match self {
            Self::Draft18 | Self::Draft19 | Self::Draft20 | Self::Draft21 | Self::Draft22 => {
                FETCH_STREAM
            }
        }
    }

    /// Returns the stream type of padding [moqt-18 §11.5.1].
    pub(crate) const fn padding_stream_type(self) -> u64 {
        match self {
            Self::Draft18 | Self::Draft19 | Self::Draft20 | Self::Draft21 | Self::Draft22 => {
                PADDING_STREAM
            }
        }
    }

    /// Returns the datagram type of padding [moqt-18 §11.5.2].
    pub(crate) const fn padding_datagram_type(self) -> u64 {
        match self {
            Self::Draft18 | Self::Draft19 | Self::Draft20 | Self::Draft21 | Self::Draft22 => {
                0x132B_3E29
            }
        }
    }

    /// Returns the flags of a datagram type; `None` if it carries no object [moqt-18 §11.3.1].
    #[inline]
    pub(crate) fn datagram_flags(self, datagram_type: u64) -> Option<u8> {
        let flags = u8::try_from(datagram_type).ok()?;
        let is_defined = match self {
            Self::Draft18 | Self::Draft19 | Self::Draft20 | Self::Draft21 | Self::Draft22 => {
                flags & !0x2F == 0
                    && flags & (DATAGRAM_STATUS | DATAGRAM_END_OF_GROUP)
                        != DATAGRAM_STATUS | DATAGRAM_END_OF_GROUP
            }
        };
        is_defined.then_some(flags)
    }

    /// Returns the object status with this code [moqt-18 §11.2.1.1].
    #[inline]
    pub(crate) const fn object_status(self, code: u64) -> Option<ObjectStatus> {
        match (self, code) {
            (_, 0x0) => Some(ObjectStatus::Normal),
            (_, 0x3) => Some(ObjectStatus::EndOfGroup),
            (_, 0x4) => Some(ObjectStatus::EndOfTrack),
            (_, _) => None,
        }
    }

    /// Returns the code of an object status.
    pub(crate) const fn object_status_code(self, status: ObjectStatus) -> u64 {
        match (self, status) {
            (_, ObjectStatus::Normal) => 0x0,
            (_, ObjectStatus::EndOfGroup) => 0x3,
            (_, ObjectStatus::EndOfTrack) => 0x4,
        }
    }

    /// Returns what follows these serialization flags on a fetch stream [moqt-18 §11.4.4] [moqt-22 §11.4.1].
    pub(crate) fn fetch_flags(self, flags: u64) -> Option<FetchFlags> {
        match (self, flags) {
            (_, FETCH_END_OF_NON_EXISTENT_RANGE) => Some(FetchFlags::End(RangeEnd::NonExistent)),
            (_, FETCH_END_OF_UNKNOWN_RANGE) => Some(FetchFlags::End(RangeEnd::Unknown)),
            (Self::Draft20 | Self::Draft21 | Self::Draft22, FETCH_END_OF_TIMED_OUT_RANGE) => {
                Some(FetchFlags::End(RangeEnd::TimedOut))
            }
            (_, _) => u8::try_from(flags)
                .ok()
                .filter(|flags| *flags < 128)
                .map(FetchFlags::Object),
        }
    }

    /// Returns the serialization flags of the end of a range. Drafts without an end of a timed-out range call it
    /// unknown [moqt-18 §11.4.4.2] [moqt-22 §11.4.1.2].
    pub(crate) const fn fetch_end_of_range(self, end: RangeEnd) -> u64 {
        match (self, end) {
            (_, RangeEnd::NonExistent) => FETCH_END_OF_NON_EXISTENT_RANGE,
            (Self::Draft20 | Self::Draft21 | Self::Draft22, RangeEnd::TimedOut) => {
                FETCH_END_OF_TIMED_OUT_RANGE
            }
            (_, RangeEnd::Unknown | RangeEnd::TimedOut) => FETCH_END_OF_UNKNOWN_RANGE,
        }
    }
}

/// How a location filter is encoded.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum FilterForm {
    /// A type 1 to 4 and its fields [moqt-18 §5.1.2].
    Subscription,
    /// Up to four fields, as many as fit in the length of the parameter [moqt-21 §9.20.10].
    Counted,
    /// A type 0 to 5 and its fields [moqt-22 §9.20.9].
    Typed,
}

/// The fields that follow serialization flags.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum FetchFlags {
    /// An object with these flags.
    Object(u8),
    /// The end of a range of objects.
    End(RangeEnd),
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
const FETCH_END_OF_TIMED_OUT_RANGE: u64 = 0x20C;
const FETCH_STREAM: u64 = 0x05;
const PADDING_STREAM: u64 = 0x132B_3E28;

/// Returns whether a type has the form 0b0XX1XXXX without the reserved subgroup ID mode [moqt-18 §11.4.2].
const fn is_subgroup(stream_type: u64) -> bool {
    const FORM: u64 = SUBGROUP_FORM as u64;
    const MODE: u64 = SUBGROUP_ID_MODE as u64;
    stream_type < 0x80 && stream_type & FORM != 0 && stream_type & MODE != MODE
}

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
    fn newer_drafts_come_first() {
        assert!(Draft::ALL.is_sorted_by(|one, next| one > next));
    }

    #[test]
    fn a_draft_is_found_by_its_number_and_its_alpn() {
        assert_eq!(Draft::by_name("18"), Some(Draft::Draft18));
        assert_eq!(Draft::by_name("moqt-22"), Some(Draft::Draft22));
        for unknown in ["", "17", "moqt-", "moqt-moqt-22", " 22"] {
            assert_eq!(Draft::by_name(unknown), None, "{unknown:?}");
        }
    }

    #[test]
    fn each_type_number_belongs_to_one_message() {
        for draft in Draft::ALL {
            assert!(draft.messages().is_sorted_by(|a, b| a.0 < b.0));
            for (number, kind) in draft.messages() {
                assert_eq!(draft.message_type(*kind), Some(*number));
                assert_eq!(draft.message_kind(*number), Some(*kind));
            }
        }
    }

    #[test]
    fn each_stream_type_is_of_one_kind() {
        for draft in Draft::ALL {
            assert_eq!(draft.stream_kind(0x05), Some(StreamKind::Fetch));
            assert_eq!(draft.stream_kind(0x2F00), Some(StreamKind::Control));
            assert_eq!(draft.stream_kind(0x132B_3E28), Some(StreamKind::Padding));
            let kinds = (0..0x1000).map(|stream_type| draft.stream_kind(stream_type));
            let subgroups = kinds.filter(|kind| *kind == Some(StreamKind::Subgroup));
            assert_eq!(subgroups.count(), 4 * 12);
        }
    }

    #[test]
    fn each_datagram_type_of_the_draft_has_flags() {
        for draft in Draft::ALL {
            let defined = (0..0x1000).filter(|t| draft.datagram_flags(*t).is_some());
            assert_eq!(defined.count(), 16 + 8);
        }
    }

    #[test]
    fn parameters_are_in_ascending_order() {
        for draft in Draft::ALL {
            assert!(draft.parameters().is_sorted_by(|a, b| a.code < b.code));
        }
    }

    #[test]
    fn an_error_that_a_draft_lacks_becomes_one_that_it_has() {
        let map = |draft: Draft, code| draft.request_error(code);
        let duplicate = RequestErrorCode::DUPLICATE_SUBSCRIPTION;
        assert_eq!(map(Draft::Draft18, duplicate), duplicate);
        assert_eq!(
            map(Draft::Draft19, duplicate),
            RequestErrorCode::NOT_SUPPORTED
        );
        let joining = RequestErrorCode::INVALID_JOINING_REQUEST_ID;
        assert_eq!(map(Draft::Draft19, joining), joining);
        assert_eq!(
            map(Draft::Draft20, joining),
            RequestErrorCode::INVALID_RANGE
        );
        let filter = RequestErrorCode::INVALID_FILTER;
        assert_eq!(map(Draft::Draft18, filter), RequestErrorCode::INVALID_RANGE);
        assert_eq!(map(Draft::Draft22, filter), filter);
        let ended = PublishDoneCode::SUBSCRIPTION_ENDED;
        assert_eq!(Draft::Draft19.publish_done(ended), ended);
        assert_eq!(
            Draft::Draft20.publish_done(ended),
            PublishDoneCode::INTERNAL_ERROR
        );
    }
}
