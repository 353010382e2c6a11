//! Checks that this codec and `moqtap-codec` agree, in both directions and on errors.
//!
//! Where they differ, the text of the draft decides. The differences are:
//!
//! - The end of a range on a fetch stream: `moqtap-codec` expects an Object Payload Length after it. The draft names
//!   the fields that are present, and other implementations read it as this codec does.
//! - An object of a fetch that refers to the subgroup of an object sent as a datagram: `moqtap-codec` uses the last
//!   object that had a subgroup. The draft says "the prior Object's Subgroup ID", and the prior object has none.
//! - Object IDs of a subgroup, and subgroup IDs of a fetch, above 2^62 - 1: `moqtap-codec` refuses them.
//! - Types of data streams and datagrams, and the status in a datagram, in more bytes than they need: `moqtap-codec`
//!   refuses them. The draft says: "Any encoding length that can represent the value is valid."
//! - A FETCH whose range ends before it starts: `moqtap-codec` refuses to decode it. The draft says that
//!   `INVALID_RANGE` answers a range that cannot be satisfied, so this codec decodes it.
//! - Violations that `moqtap-codec` does not check: malformed PATH and AUTHORITY, aliases in tokens of SETUP,
//!   `DEFAULT_PUBLISHER_PRIORITY` above 255, a URI in GOAWAY that is not text, End Of Track above 1, properties of an
//!   object that is not normal on a subgroup stream.
//! - Nested immutable properties of an object: `moqtap-codec` reports a violation, this codec a malformed track.
//! - The end of a range from draft-20 on: `moqtap-codec` reads distances, this codec the IDs that the draft names.
//! - A range filter that is malformed is refused here by the session, as the draft says, and by neither decoder.

#[path = "wire/oracle.rs"]
mod oracle;
#[path = "wire/strategies.rs"]
mod strategies;

use bytes::{Bytes, BytesMut};
use moqtap_codec::error::CodecError;
use moqtap_codec::kvp::KvpError;
use proptest::prelude::*;
use proptest::sample::Index;
use weir_moqt::data::{
    FetchDecoder, FetchEncoder, FetchEntry, ObjectDatagram, ObjectHeader, ObjectStatus, RangeEnd,
    SubgroupHeader, SubgroupId,
};
use weir_moqt::draft::Draft;
use weir_moqt::error::DecodeError;
use weir_moqt::message::{MESSAGE_BYTES_MAX, Message};
use weir_moqt::parameter::GroupOrder;
use weir_moqt::reader::{MessageReader, SubgroupItem, SubgroupReader};

use self::oracle::int;

/// Returns whether only this codec makes a violation of it, as listed at the top of this file.
fn is_our_rule(error: DecodeError) -> bool {
    let DecodeError::Invalid { reason, .. } = error else {
        return false;
    };
    [
        "PATH is not the path of a URI",
        "AUTHORITY is not the authority of a URI",
        "a token in SETUP refers to an alias",
        "DEFAULT_PUBLISHER_PRIORITY is above 255",
        "a URI is not UTF-8",
        "a URI is longer than 8192 bytes",
        "End Of Track is neither 0 nor 1",
        "an object without the status Normal has properties",
    ]
    .contains(&reason)
}

/// Returns whether an error of `moqtap-codec` concerns an object's properties, including immutable ones, and so means a
/// malformed track.
fn is_malformed_object(error: &CodecError) -> bool {
    matches!(
        error,
        CodecError::MalformedObjectProperties { .. }
            | CodecError::KeyDeltaOverflow(..)
            | CodecError::Kvp(KvpError::ValueTooLong(_))
    )
}

/// Returns whether an error of `moqtap-codec` concerns a parameter of `SUBSCRIBE_TRACKS`, or `GROUP_ORDER` of the PUBLISH that
/// follows from it. It permits those whose own definition names the message, this codec also those of SUBSCRIBE
/// [moqt-19 §10.19.1] [moqt-21 §9.18.1].
fn is_of_subscribe_tracks(error: &CodecError) -> bool {
    matches!(
        error,
        CodecError::ParameterOutOfScope {
            key: 0x02 | 0x04 | 0x06 | 0x20 | 0x32,
            message_type: 0x51,
        } | CodecError::ParameterOutOfScope {
            key: 0x22,
            message_type: 0x1D,
        }
    )
}

/// Returns whether the type of a stream or datagram is longer than necessary, which `moqtap-codec` refuses.
fn has_wide_type(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|first| *first >= 0x80)
}

/// Limits the subgroup ID to 2^62 - 1, the largest that `moqtap-codec` encodes.
fn below_their_limit(mut entry: FetchEntry) -> FetchEntry {
    if let FetchEntry::Object(object) = &mut entry {
        object.subgroup = object.subgroup.map(|subgroup| subgroup & ((1 << 62) - 1));
    }
    entry
}

fn corrupt(bytes: &mut Vec<u8>, changes: &[(Index, u8)], cut: Option<Index>) {
    for (at, byte) in changes {
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
    }
    if let Some(cut) = cut {
        bytes.truncate(cut.index(bytes.len() + 1));
    }
}

fn changes() -> impl Strategy<Value = Vec<(Index, u8)>> {
    // Small values are more likely, as in types and lengths.
    let byte = prop_oneof![any::<u8>(), 0_u8..0x40, Just(0xFF), Just(0x80)];
    proptest::collection::vec((any::<Index>(), byte), 1..4)
}

/// The properties of an object of a fetch, which one draft of `moqtap-codec` does not distinguish from none.
trait ObjectProperties {
    fn encoded(&self) -> &[u8];
}

impl ObjectProperties for Vec<u8> {
    fn encoded(&self) -> &[u8] {
        self
    }
}

impl ObjectProperties for Option<Vec<u8>> {
    fn encoded(&self) -> &[u8] {
        self.as_deref().unwrap_or_default()
    }
}

/// Defines the comparison for one draft. `$reason` gives the end of a range in the types of `moqtap-codec`.
macro_rules! oracle_tests {
    ($draft:ident = $variant:ident, $reason:expr) => {
        mod $draft {
            use moqtap_codec::$draft::data_stream as theirs;
            use moqtap_codec::$draft::message::ControlMessage;
            use moqtap_codec::$draft::types::ObjectStatus as TheirStatus;

            use super::*;

            const DRAFT: Draft = Draft::$variant;

            fn decode(bytes: Bytes) -> Result<Message, DecodeError> {
                let mut reader = MessageReader::new(DRAFT, MESSAGE_BYTES_MAX);
                reader.push(bytes);
                reader.poll()?.ok_or(DecodeError::Short)
            }

            fn encode(message: &Message) -> Vec<u8> {
                let mut out = BytesMut::new();
                message
                    .encode(DRAFT, &mut out)
                    .expect("the message is short enough");
                out.to_vec()
            }

            fn their_status(status: ObjectStatus) -> TheirStatus {
                match status {
                    ObjectStatus::Normal => TheirStatus::Normal,
                    ObjectStatus::EndOfGroup => TheirStatus::EndOfGroup,
                    ObjectStatus::EndOfTrack => TheirStatus::EndOfTrack,
                }
            }

            /// Compares the fields and the encoding of a datagram with those of this codec.
            fn compare_datagram(ours: &ObjectDatagram, header: &theirs::DatagramHeader, payload: &[u8]) {
                assert_eq!(header.track_alias, int(ours.track_alias));
                assert_eq!(header.group_id, int(ours.group));
                assert_eq!(header.object_id, int(ours.object));
                assert_eq!(header.publisher_priority, ours.priority);
                assert_eq!(header.is_end_of_group(), ours.end_of_group);
                assert_eq!(&header.properties[..], &ours.properties.as_bytes()[..]);
                assert_eq!(header.status(), their_status(ours.status));
                assert_eq!(payload, &ours.payload[..]);
            }

            /// Returns an object with a payload in the types of `moqtap-codec`.
            fn their_object(object: &ObjectHeader, payload: &[u8]) -> theirs::SubgroupObject {
                theirs::SubgroupObject {
                    object_id: int(object.id),
                    extension_headers: object.properties.as_bytes().to_vec(),
                    payload_length: int(object.payload_len),
                    object_status: payload.is_empty().then(|| their_status(object.status)),
                    payload: payload.to_vec(),
                }
            }

            fn compare_header(ours: &SubgroupHeader, theirs: &theirs::SubgroupHeader) {
                assert_eq!(theirs.track_alias, int(ours.track_alias));
                assert_eq!(theirs.group_id, int(ours.group));
                assert_eq!(theirs.publisher_priority, ours.priority);
                assert_eq!(theirs.has_properties(), ours.has_properties);
                assert_eq!(theirs.is_end_of_group(), ours.end_of_group);
                assert_eq!(theirs.is_first_object(), ours.first_object);
                let (mode, id) = match ours.subgroup {
                    SubgroupId::Zero => (0, 0),
                    SubgroupId::FirstObject => (1, 0),
                    SubgroupId::Explicit(id) => (2, id),
                };
                assert_eq!(theirs.subgroup_id_mode(), mode);
                assert_eq!(theirs.subgroup_id, int(id));
            }

            /// All objects of a stream, if they are well-formed and the last one is complete.
            fn read_subgroup(bytes: Bytes) -> Result<usize, DecodeError> {
                let mut reader = SubgroupReader::new(DRAFT, 1 << 20);
                reader.push(bytes);
                let mut objects = 0;
                while let Some(item) = reader.poll()? {
                    objects += usize::from(matches!(item, SubgroupItem::Object(_)));
                }
                reader.fin()?;
                Ok(objects)
            }

            fn read_their_subgroup(mut bytes: &[u8]) -> Result<usize, CodecError> {
                let header = theirs::SubgroupHeader::decode(&mut bytes)?;
                let mut reader = theirs::SubgroupObjectReader::new(&header);
                let mut objects = 0;
                while !bytes.is_empty() {
                    reader.read_object(&mut bytes)?;
                    objects += 1;
                }
                Ok(objects)
            }

            proptest! {
                #[test]
                fn messages(message in strategies::message(DRAFT)) {
                    let ours = encode(&message);
                    let decoded = ControlMessage::decode(&mut &ours[..]);
                    if decoded.as_ref().is_err_and(is_of_subscribe_tracks) {
                        return Ok(());
                    }
                    let theirs = oracle::$draft::message(&message);
                    prop_assert_eq!(&decoded.unwrap(), &theirs);
                    let mut encoded = Vec::new();
                    theirs.encode(&mut encoded).unwrap();
                    prop_assert_eq!(&encoded, &ours);
                    prop_assert_eq!(decode(encoded.into()), Ok(message));
                }

                #[test]
                fn corrupted_messages(message in strategies::message(DRAFT), changes in changes()) {
                    let mut bytes = encode(&message);
                    corrupt(&mut bytes, &changes, None);
                    let theirs = ControlMessage::decode(&mut &bytes[..]);
                    match (decode(bytes.into()), theirs) {
                        (Ok(ours), Ok(theirs)) => {
                            // Both encode the message again, and the results are compared as decoded values: `moqtap-codec` keeps
                            // some bytes of tokens and filters as they came, this codec those of properties. `moqtap-codec` does
                            // not write unknown options twice.
                            let mut encoded = Vec::new();
                            if theirs.encode(&mut encoded).is_ok() {
                                let again = decode(encoded.into()).unwrap();
                                prop_assert_eq!(oracle::$draft::message(&again), oracle::$draft::message(&ours));
                            }
                        }
                        (Err(_), Err(_)) => {}
                        (Err(error), Ok(theirs)) => {
                            prop_assert!(is_our_rule(error), "only we refuse {theirs:?}: {error}");
                        }
                        (Ok(ours), Err(error)) => {
                            // Of Track Properties, this codec leaves the values to the session.
                            let is_known = matches!(
                                error,
                                CodecError::InvalidRange(..) | CodecError::TrackPropertyValueOutOfRange { .. }
                            );
                            let is_known = is_known || is_of_subscribe_tracks(&error);
                            prop_assert!(is_known, "only they refuse {ours:?}: {error}");
                        }
                    }
                }

                #[test]
                fn datagrams(datagram in strategies::datagram()) {
                    let mut ours = BytesMut::new();
                    datagram.encode(DRAFT, &mut ours);
                    let (header, payload) = theirs::DatagramHeader::decode_object(&mut &ours[..]).unwrap();
                    compare_datagram(&datagram, &header, &payload);
                    let mut encoded = Vec::new();
                    header.encode_checked(&mut encoded).unwrap();
                    encoded.extend_from_slice(&payload);
                    prop_assert_eq!(&encoded, &ours);
                }

                #[test]
                fn corrupted_datagrams(
                    datagram in strategies::datagram(),
                    changes in changes(),
                    cut in proptest::option::of(any::<Index>()),
                ) {
                    let mut bytes = BytesMut::new();
                    datagram.encode(DRAFT, &mut bytes);
                    let mut bytes = bytes.to_vec();
                    corrupt(&mut bytes, &changes, cut);
                    let has_wide_type = has_wide_type(&bytes);
                    let theirs = theirs::DatagramHeader::decode_object(&mut &bytes[..]);
                    match (ObjectDatagram::decode(DRAFT, bytes.into()), theirs) {
                        (Ok(Some(ours)), Ok((header, payload))) => compare_datagram(&ours, &header, &payload),
                        // Padding is an error in `moqtap-codec`.
                        (Err(_) | Ok(None), Err(_)) => {}
                        (Ok(Some(ours)), Err(error)) => {
                            let has_wide_status =
                                ours.payload.is_empty() && matches!(error, CodecError::InvalidField);
                            let is_known = is_malformed_object(&error) || has_wide_type || has_wide_status;
                            prop_assert!(is_known, "only they refuse {ours:?}: {error}");
                        }
                        (ours, theirs) => prop_assert!(false, "{ours:?} against {theirs:?}"),
                    }
                }

                #[test]
                fn subgroups((header, objects) in strategies::subgroup()) {
                    let mut ours = BytesMut::new();
                    header.encode(DRAFT, &mut ours);
                    let mut encoded = Vec::new();
                    let their_header = theirs::SubgroupHeader::decode(&mut &ours[..]).unwrap();
                    compare_header(&header, &their_header);
                    their_header.encode_checked(&mut encoded).unwrap();

                    let mut writer = theirs::SubgroupObjectReader::new(&their_header);
                    let mut previous = None;
                    for (object, payload) in &objects {
                        object.encode_in_subgroup(previous, header.has_properties, DRAFT, &mut ours);
                        ours.extend_from_slice(payload);
                        previous = Some(object.id);
                        writer.write_object(&their_object(object, payload), &mut encoded).unwrap();
                    }
                    prop_assert_eq!(&encoded, &ours);

                    let mut rest = &ours[..];
                    theirs::SubgroupHeader::decode(&mut rest).unwrap();
                    let mut reader = theirs::SubgroupObjectReader::new(&their_header);
                    for (object, payload) in &objects {
                        let theirs = reader.read_object(&mut rest).unwrap();
                        let expected = their_object(object, payload);
                        prop_assert_eq!(theirs.object_id, expected.object_id);
                        prop_assert_eq!(theirs.extension_headers, expected.extension_headers);
                        prop_assert_eq!(theirs.payload_length, expected.payload_length);
                        prop_assert_eq!(theirs.object_status, expected.object_status);
                        prop_assert_eq!(theirs.payload, expected.payload);
                    }
                    prop_assert!(rest.is_empty());
                }

                #[test]
                fn corrupted_subgroups(
                    (header, objects) in strategies::subgroup(),
                    changes in changes(),
                    cut in proptest::option::of(any::<Index>()),
                ) {
                    let mut bytes = BytesMut::new();
                    header.encode(DRAFT, &mut bytes);
                    let mut previous = None;
                    for (object, payload) in &objects {
                        object.encode_in_subgroup(previous, header.has_properties, DRAFT, &mut bytes);
                        bytes.extend_from_slice(payload);
                        previous = Some(object.id);
                    }
                    let mut bytes = bytes.to_vec();
                    corrupt(&mut bytes, &changes, cut);
                    let has_wide_type = has_wide_type(&bytes);
                    let theirs = read_their_subgroup(&bytes);
                    match (read_subgroup(bytes.into()), theirs) {
                        (Ok(ours), Ok(theirs)) => prop_assert_eq!(ours, theirs),
                        (Err(_), Err(_)) => {}
                        (Err(error), Ok(_)) => prop_assert!(is_our_rule(error), "only we refuse: {error}"),
                        (Ok(_), Err(error)) => {
                            // Large object IDs are an invalid field in `moqtap-codec`.
                            let is_known = is_malformed_object(&error)
                                || has_wide_type
                                || matches!(error, CodecError::InvalidField);
                            prop_assert!(is_known, "only they refuse: {error}");
                        }
                    }
                }

                #[test]
                fn fetches((order, entries) in strategies::fetch(DRAFT)) {
                    let their_order = match order {
                        GroupOrder::Ascending => theirs::GroupOrder::Ascending,
                        GroupOrder::Descending => theirs::GroupOrder::Descending,
                    };
                    let mut encoder = FetchEncoder::new(DRAFT, order);
                    let mut reader = theirs::FetchObjectReader::new(their_order);
                    let mut writer = theirs::FetchObjectWriter::new(their_order);
                    let mut decoder = FetchDecoder::new(DRAFT, order);
                    for (entry, _) in entries {
                        if DRAFT >= Draft::Draft20 && matches!(entry, FetchEntry::EndOfRange { .. }) {
                            continue;
                        }
                        let entry = &below_their_limit(entry);
                        let mut ours = BytesMut::new();
                        encoder.encode(entry, &mut ours);
                        if let FetchEntry::EndOfRange { .. } = entry {
                            // The payload length that `moqtap-codec` expects, and the draft does not.
                            ours.extend_from_slice(&[0]);
                        }
                        let read = reader.read_object_header(&mut &ours[..]).unwrap();
                        match entry {
                            FetchEntry::Object(object) => {
                                prop_assert_eq!(read.header.end_of_range(), None);
                                prop_assert_eq!((read.group_id, read.object_id), (object.group, object.object));
                                prop_assert_eq!(read.subgroup_id, object.subgroup);
                                prop_assert_eq!(read.publisher_priority, Some(object.priority));
                                prop_assert_eq!(read.header.properties.encoded(), &object.properties.as_bytes()[..]);
                                prop_assert_eq!(read.header.payload_length, int(object.payload_len));
                            }
                            FetchEntry::EndOfRange { reason, location } => {
                                prop_assert_eq!(read.header.end_of_range(), Some($reason(*reason)));
                                let at = (read.group_id, read.object_id);
                                prop_assert_eq!(at, (location.group, location.object));
                            }
                        }

                        let mut theirs = Vec::new();
                        writer.write_object_header(&read, &mut theirs).unwrap();
                        prop_assert_eq!(&theirs, &ours);
                        let mut theirs = Bytes::from(theirs);
                        let again = decoder.decode(&mut theirs);
                        prop_assert_eq!(again.as_ref(), Ok(entry));
                    }
                }
            }
        }
    };
}

oracle_tests! {
    draft18 = Draft18, |reason| match reason {
        RangeEnd::NonExistent => theirs::EndOfRange::NonExistent,
        RangeEnd::Unknown | RangeEnd::TimedOut => theirs::EndOfRange::Unknown,
    }
}
oracle_tests! {
    draft19 = Draft19, |reason| match reason {
        RangeEnd::NonExistent => theirs::FetchEndOfRange::NonExistent,
        RangeEnd::Unknown => theirs::FetchEndOfRange::Unknown,
        RangeEnd::TimedOut => unreachable!("not in this draft"),
    }
}
oracle_tests! {
    draft20 = Draft20, |reason| match reason {
        RangeEnd::NonExistent => theirs::FetchEndOfRange::NonExistent,
        RangeEnd::Unknown => theirs::FetchEndOfRange::Unknown,
        RangeEnd::TimedOut => theirs::FetchEndOfRange::TimedOut,
    }
}
oracle_tests! {
    draft21 = Draft21, |reason| match reason {
        RangeEnd::NonExistent => theirs::FetchEndOfRange::NonExistent,
        RangeEnd::Unknown => theirs::FetchEndOfRange::Unknown,
        RangeEnd::TimedOut => theirs::FetchEndOfRange::TimedOut,
    }
}
oracle_tests! {
    draft22 = Draft22, |reason| match reason {
        RangeEnd::NonExistent => theirs::FetchEndOfRange::NonExistent,
        RangeEnd::Unknown => theirs::FetchEndOfRange::Unknown,
        RangeEnd::TimedOut => theirs::FetchEndOfRange::TimedOut,
    }
}
