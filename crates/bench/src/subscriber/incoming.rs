//! One subgroup stream of a subscriber. Assembles from its chunks as much of each object as is needed.

use weir_moqt::data::{ObjectHeader, ObjectStatus, SubgroupId};
use weir_moqt::property::Properties;
use weir_transport::StreamId;

use crate::message::DATA_HEADER_BYTES;
use crate::metrics::Delivered;
use crate::payload::{Content, HEAD_BYTES};

/// An incoming stream.
#[derive(Clone, Debug)]
pub(super) struct Incoming {
    pub(super) stream: StreamId,
    /// The index of the subscription at its subscriber.
    pub(super) subscription: usize,
    /// Whether it answers a joining FETCH.
    pub(super) is_past: bool,
    group: u64,
    /// The subgroup. On some streams it becomes known with the first object.
    subgroup: Option<u64>,
    next_object: u64,
    current: Option<Current>,
}

/// The object that is being received.
#[derive(Clone, Debug)]
struct Current {
    object: u64,
    bytes: u64,
    received: u64,
    head: [u8; HEAD_BYTES],
    matches: bool,
}

/// An object that has arrived completely.
#[derive(Clone, Debug)]
pub(super) struct Complete {
    group: u64,
    object: u64,
    bytes: u64,
    head: [u8; HEAD_BYTES],
    /// Whether its content is as expected, as far as it was compared.
    matches: bool,
    /// Whether a joining FETCH asked for it.
    pub(super) is_past: bool,
}

impl Incoming {
    pub(super) fn new(
        stream: StreamId,
        subscription: usize,
        group: u64,
        subgroup: SubgroupId,
    ) -> Self {
        Self {
            stream,
            subscription,
            is_past: false,
            group,
            subgroup: match subgroup {
                SubgroupId::Zero => Some(0),
                SubgroupId::Explicit(subgroup) => Some(subgroup),
                SubgroupId::FirstObject => None,
            },
            next_object: 0,
            current: None,
        }
    }

    /// Begins another group, as the stream of a fetch does.
    pub(super) fn enter_group(&mut self, group: u64) {
        if self.group != group {
            (self.group, self.next_object) = (group, 0);
        }
    }

    /// Begins an object, whose extension headers are `intact` or not. Returns the object if it is complete because it
    /// has no payload.
    pub(super) fn on_object(&mut self, header: &ObjectHeader, intact: bool) -> Option<Complete> {
        if header.status != ObjectStatus::Normal {
            return None;
        }
        self.next_object = header.id;
        self.subgroup.get_or_insert(header.id);
        let current = Current {
            object: header.id,
            bytes: header.payload_len,
            received: 0,
            head: [0; HEAD_BYTES],
            matches: intact,
        };
        self.current = Some(current);
        self.take_complete()
    }

    /// Takes the next bytes of the object and compares them with `content`. Returns the object if it is complete.
    pub(super) fn on_payload(
        &mut self,
        data: &[u8],
        content: Option<&Content>,
    ) -> Option<Complete> {
        let current = self.current.as_mut()?;
        let from = current.received;
        current.received += data.len() as u64;
        let start = usize::try_from(from).unwrap_or(usize::MAX).min(HEAD_BYTES);
        let head_bytes = (HEAD_BYTES - start).min(data.len());
        current.head[start..start + head_bytes].copy_from_slice(&data[..head_bytes]);
        if let Some(content) = content {
            let begin = content_begin(current.bytes) as u64;
            let before = usize::try_from(begin.saturating_sub(from)).unwrap_or(usize::MAX);
            let rest = &data[before.min(data.len())..];
            let offset = from.max(begin) - DATA_HEADER_BYTES as u64;
            current.matches &= rest.is_empty() || content.matches(offset, rest);
        }
        self.take_complete()
    }

    /// Returns MOQT group and subgroup, and the first object that is not complete.
    pub(super) fn position(&self) -> (u64, u64, u64) {
        (self.group, self.subgroup.unwrap_or(0), self.next_object)
    }

    fn take_complete(&mut self) -> Option<Complete> {
        let current = self
            .current
            .take_if(|current| current.received >= current.bytes)?;
        self.next_object = current.object.saturating_add(1);
        Some(Complete {
            group: self.group,
            object: current.object,
            bytes: current.bytes,
            head: current.head,
            matches: current.matches,
            is_past: self.is_past,
        })
    }
}

impl Complete {
    pub(super) fn delivered(&self) -> Delivered<'_> {
        let head_bytes = usize::try_from(self.bytes)
            .unwrap_or(usize::MAX)
            .min(HEAD_BYTES);
        Delivered {
            group: self.group,
            object: self.object,
            head: &self.head[..head_bytes],
            bytes: self.bytes,
            intact: self.matches,
        }
    }
}

/// Whether the content of a whole object is as sent.
pub(super) fn matches(object: &[u8], content: &Content) -> bool {
    let begin = content_begin(object.len() as u64);
    let offset = (begin - DATA_HEADER_BYTES) as u64;
    object
        .get(begin..)
        .is_none_or(|rest| content.matches(offset, rest))
}

/// Whether an object arrived with all extension headers that it was sent with. A relay may add properties that it
/// knows. [moqt-18 §2.5]
pub(super) fn carries(found: &Properties, sent: &Properties) -> bool {
    found == sent
        || sent
            .iter()
            .all(|one| found.iter().any(|other| other == one))
}

/// Returns where content begins in an object of `bytes`: after the tag, or after the header if there is no room for a
/// tag.
fn content_begin(bytes: u64) -> usize {
    if bytes >= HEAD_BYTES as u64 {
        HEAD_BYTES
    } else {
        DATA_HEADER_BYTES
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use proptest::prelude::*;

    use super::*;
    use crate::message::DataHeader;
    use crate::payload::Tag;

    fn header(id: u64, payload_len: u64) -> ObjectHeader {
        let (properties, status) = (Properties::EMPTY, ObjectStatus::Normal);
        ObjectHeader {
            id,
            properties,
            status,
            payload_len,
        }
    }

    fn object(content: &Content, data_length: u32) -> BytesMut {
        let header = DataHeader {
            group_number: 1,
            object_number: 2,
            milliseconds_since_first_object: 3,
            data_length,
        };
        let tag = Tag {
            run_id: 4,
            sequence: 5,
            planned_ns: 6,
            sent_ns: 7,
        };
        let mut object = BytesMut::new();
        content.write_object(&header, &tag, &mut object);
        object
    }

    #[test]
    fn an_object_without_payload_is_whole_at_once() {
        let mut incoming = Incoming::new(StreamId(3), 0, 9, SubgroupId::Zero);
        let complete = incoming.on_object(&header(0, 0), true).unwrap();
        assert!(complete.delivered().head.is_empty());
        let end = ObjectHeader {
            status: ObjectStatus::EndOfGroup,
            ..header(1, 0)
        };
        assert!(incoming.on_object(&end, true).is_none());
        assert_eq!(incoming.position(), (9, 0, 1));
    }

    #[test]
    fn nothing_follows_the_highest_number() {
        let mut incoming = Incoming::new(StreamId(3), 0, 9, SubgroupId::Zero);
        assert!(incoming.on_object(&header(u64::MAX, 0), true).is_some());
        assert_eq!(incoming.position(), (9, 0, u64::MAX));
    }

    #[test]
    fn a_changed_byte_is_noticed() {
        let content = Content::new(8, 500);
        // With a tag and content, with a tag alone, and without a tag.
        for (data_length, changed) in [
            (500, HEAD_BYTES),
            (500, HEAD_BYTES + 463),
            (35, DATA_HEADER_BYTES),
            (35, DATA_HEADER_BYTES + 34),
            (1, DATA_HEADER_BYTES),
        ] {
            let mut bytes = object(&content, data_length);
            assert!(matches(&bytes, &content));
            bytes[changed] ^= 1;
            assert!(!matches(&bytes, &content), "{data_length} {changed}");
            let mut incoming = Incoming::new(StreamId(3), 0, 9, SubgroupId::Zero);
            incoming.on_object(&header(0, bytes.len() as u64), true);
            let (first, second) = bytes.split_at(20);
            assert!(incoming.on_payload(first, Some(&content)).is_none());
            let complete = incoming.on_payload(second, Some(&content)).unwrap();
            assert!(!complete.delivered().intact, "{data_length} {changed}");
        }
    }

    #[test]
    fn extension_headers_may_be_added_to_but_not_changed() {
        let sent = Properties::builder().bytes(0x1F01, &b"one"[..]).build();
        let added = Properties::builder()
            .int(0x3C, 7)
            .bytes(0x1F01, &b"one"[..])
            .build();
        let changed = Properties::builder().bytes(0x1F01, &b"two"[..]).build();
        assert!(carries(&sent, &sent) && carries(&added, &sent));
        assert!(carries(&added, &Properties::EMPTY));
        assert!(!carries(&changed, &sent) && !carries(&Properties::EMPTY, &sent));
    }

    proptest! {
        #[test]
        fn chunks_do_not_matter(data_length in 0u32..400, cuts in prop::collection::vec(1usize..90, 0..40)) {
            let content = Content::new(8, 400);
            let bytes = object(&content, data_length);
            let mut incoming = Incoming::new(StreamId(3), 0, 9, SubgroupId::Zero);
            prop_assert!(incoming.on_object(&header(7, bytes.len() as u64), true).is_none());
            let mut rest = &bytes[..];
            let mut complete = None;
            for cut in cuts.into_iter().chain([bytes.len()]) {
                prop_assert_eq!(incoming.position(), (9, 0, if rest.is_empty() { 8 } else { 7 }));
                let (chunk, after) = rest.split_at(cut.min(rest.len()));
                if chunk.is_empty() {
                    continue;
                }
                prop_assert!(complete.is_none());
                complete = incoming.on_payload(chunk, Some(&content));
                rest = after;
            }
            let complete = complete.unwrap();
            let delivered = complete.delivered();
            prop_assert!(delivered.intact);
            prop_assert_eq!((delivered.group, delivered.object), (9, 7));
            prop_assert_eq!(delivered.bytes, bytes.len() as u64);
            prop_assert_eq!(delivered.head, &bytes[..bytes.len().min(HEAD_BYTES)]);
        }
    }
}
