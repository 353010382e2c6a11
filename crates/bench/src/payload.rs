//! The `data` of a DATA message: a tag with exact times, and synthetic content.
//!
//! The draft does not define the content of `data`. If `data` is long enough, it begins with a [`Tag`] (decision 23).
//! The rest is noise from a seed (decision 36), so that both ends know every byte and a relay cannot compress it.

use bytes::{BufMut as _, Bytes, BytesMut};
use weir_moqt::property::Properties;

use crate::message::{DATA_HEADER_BYTES, DataHeader};

/// Bytes of a [`Tag`].
pub const TAG_BYTES: usize = 36;

/// Bytes at the beginning of an object that hold all measured values: DATA header and tag.
pub const HEAD_BYTES: usize = DATA_HEADER_BYTES + TAG_BYTES;

/// Exact times and identity of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The run that the object belongs to. Objects of other runs are not counted.
    pub run_id: u64,
    /// The object's number in its track, from zero.
    pub sequence: u64,
    /// The planned time, by the publisher's [`crate::clock::RunClock`].
    pub planned_ns: u64,
    /// The time of sending, by the same clock.
    pub sent_ns: u64,
}

/// The synthetic content of a track, the same for each of its objects.
#[derive(Clone, Debug)]
pub struct Content {
    bytes: Bytes,
}

impl Tag {
    /// Whether `data` of this length has room for a tag.
    pub fn fits(data_length: u32) -> bool {
        data_length as usize >= TAG_BYTES
    }

    /// Encodes the tag.
    pub fn encode(&self) -> [u8; TAG_BYTES] {
        let mut bytes = [0; TAG_BYTES];
        bytes[..4].copy_from_slice(MAGIC);
        let numbers = [self.run_id, self.sequence, self.planned_ns, self.sent_ns];
        for (place, number) in bytes[4..].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        bytes
    }

    /// Decodes the tag at the beginning of `data`; `None` if there is none.
    pub fn decode(data: &[u8]) -> Option<Self> {
        let tag = data.first_chunk::<TAG_BYTES>()?;
        let (magic, numbers) = tag.split_first_chunk::<4>()?;
        if magic != MAGIC {
            return None;
        }
        let (numbers, _) = numbers.as_chunks::<8>();
        let [run_id, sequence, planned_ns, sent_ns] = numbers else {
            return None;
        };
        Some(Self {
            run_id: u64::from_be_bytes(*run_id),
            sequence: u64::from_be_bytes(*sequence),
            planned_ns: u64::from_be_bytes(*planned_ns),
            sent_ns: u64::from_be_bytes(*sent_ns),
        })
    }
}

impl Content {
    /// Returns `bytes` bytes of noise. The same seed gives the same noise, and shorter content is a prefix of longer.
    pub fn new(seed: u64, bytes: u32) -> Self {
        let bytes = bytes as usize;
        let mut noise = BytesMut::with_capacity(bytes.next_multiple_of(8));
        let mut state = seed;
        while noise.len() < bytes {
            noise.put_u64(split_mix(&mut state));
        }
        noise.truncate(bytes);
        Self {
            bytes: noise.freeze(),
        }
    }

    /// Returns the content of qperf's objects of up to `bytes` bytes.
    pub fn of_qperf(bytes: u32) -> Self {
        let places = DATA_HEADER_BYTES..DATA_HEADER_BYTES + bytes as usize;
        Self {
            bytes: places.map(crate::qperf::content_at).collect(),
        }
    }

    /// Appends one whole object: header, tag if it fits, and content up to `header.data_length`, which must not exceed
    /// the content.
    pub fn write_object(&self, header: &DataHeader, tag: &Tag, object: &mut BytesMut) {
        let data_length = header.data_length as usize;
        assert!(
            data_length <= self.bytes.len(),
            "the content covers the largest object"
        );
        object.reserve(DATA_HEADER_BYTES + data_length);
        object.put_slice(&header.encode());
        if Tag::fits(header.data_length) {
            object.put_slice(&tag.encode());
            object.put_slice(&self.bytes[TAG_BYTES..data_length]);
        } else {
            object.put_slice(&self.bytes[..data_length]);
        }
    }

    /// Whether `bytes` is the content at `offset` in the `data` of a tagged object, after the tag.
    pub fn matches(&self, offset: u64, bytes: &[u8]) -> bool {
        let Ok(offset) = usize::try_from(offset) else {
            return false;
        };
        let end = offset.checked_add(bytes.len());
        end.and_then(|end| self.bytes.get(offset..end))
            .is_some_and(|content| content == bytes)
    }
}

/// Returns `count` extension headers of `size_bytes` bytes each, from the seed, with property types that no draft
/// defines.
pub fn extension_headers(count: u8, size_bytes: u16, seed: u64) -> Properties {
    let content = Content::new(seed, u32::from(size_bytes));
    let types = (EXTENSION_TYPE_FIRST..).step_by(2);
    let properties = types.take(usize::from(count));
    properties
        .fold(Properties::builder(), |builder, property_type| {
            builder.bytes(property_type, content.bytes.clone())
        })
        .build()
}

/// The first property type of the benchmark's extension headers. Odd types carry bytes, and relays must forward unknown
/// properties. [moqt-18 §2.5]
const EXTENSION_TYPE_FIRST: u64 = 0x1F01;

/// Returns the next number of the `SplitMix64` generator: a bijection of a counter, so it never gets stuck.
pub(crate) fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The first bytes of a tag, which tell it from other content.
const MAGIC: &[u8; 4] = b"weir";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::message::Message;

    const TAG: Tag = Tag {
        run_id: 1,
        sequence: 2,
        planned_ns: 3,
        sent_ns: 4,
    };

    fn object(data_length: u32) -> BytesMut {
        let header = DataHeader {
            group_number: 5,
            object_number: 6,
            milliseconds_since_first_object: 7,
            data_length,
        };
        let mut object = BytesMut::new();
        Content::new(99, 200).write_object(&header, &TAG, &mut object);
        assert_eq!(
            Message::decode(&object, object.len() as u64),
            Ok(Message::Data(header))
        );
        object
    }

    #[test]
    fn an_object_carries_a_tag_if_there_is_room() {
        let (content, data) = (Content::new(99, 200), DATA_HEADER_BYTES);
        for length in [0, 35] {
            let object = object(length);
            assert_eq!(object.len(), data + length as usize);
            assert_eq!(Tag::decode(&object[data..]), None);
        }
        for length in [36, 95, 200] {
            let object = object(length);
            assert_eq!(object.len(), data + length as usize);
            assert_eq!(Tag::decode(&object[data..]), Some(TAG));
            assert!(content.matches(TAG_BYTES as u64, &object[HEAD_BYTES..]));
        }
    }

    #[test]
    fn content_differs_by_its_seed_alone() {
        let content = Content::new(1, 100);
        assert!(content.matches(0, &Content::new(1, 50).bytes));
        assert!(!content.matches(0, &Content::new(2, 50).bytes));
        assert!(!content.matches(90, &[0; 11]));
        assert!(!content.matches(u64::MAX, &[0; 11]));
        assert!(content.matches(100, &[]));
    }

    proptest! {
        #[test]
        fn tags_come_back(run_id: u64, sequence: u64, planned_ns: u64, sent_ns: u64) {
            let tag = Tag { run_id, sequence, planned_ns, sent_ns };
            prop_assert_eq!(Tag::decode(&tag.encode()), Some(tag));
        }

        #[test]
        fn other_bytes_are_no_tag(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Some(tag) = Tag::decode(&bytes) {
                prop_assert!(bytes.starts_with(&tag.encode()));
            }
        }
    }
}
