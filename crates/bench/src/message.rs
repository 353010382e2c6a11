//! The benchmark's own messages, which travel as objects of a track. [evens-00 §5.4]
//!
//! All numbers are in network order, without padding (decision 1). Decoding takes constant time,
//! allocates nothing and accepts exactly the bytes that encoding makes.

use bytes::Buf as _;
use thiserror::Error;

use crate::limits::{OBJECT_BYTES_MAX, OBJECT_BYTES_MIN, OBJECTS_PER_GROUP_MAX};

/// Bytes of a START message.
pub const START_BYTES: usize = 17;

/// Bytes of a DATA message before its `data`.
pub const DATA_HEADER_BYTES: usize = 25;

/// Bytes of a COMPLETION message.
pub const COMPLETION_BYTES: usize = 21;

/// One message. Of DATA, only the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// START, which announces the track.
    Start(Start),
    /// One object of the benchmark.
    Data(DataHeader),
    /// COMPLETION, which says what was sent.
    Completion(Completion),
}

/// START: what is going to be sent. [evens-00 §5.4.1]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Objects in one group, 1 to 10,000,000.
    pub objects_per_group: u32,
    /// Bytes of the first object of a group, 25 to 16 MiB.
    pub first_object_size: u32,
    /// Bytes of the other objects, 25 to 16 MiB.
    pub remaining_object_size: u32,
    /// Milliseconds between two objects, rounded (decision 6).
    pub interval_ms: u32,
}

/// DATA without its `data`. [evens-00 §5.4.2]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHeader {
    /// Number of the group, from zero.
    pub group_number: u64,
    /// Number of the object in its group, from zero.
    pub object_number: u64,
    /// When it was sent, in milliseconds since the first object was.
    pub milliseconds_since_first_object: u32,
    /// Bytes of `data`.
    pub data_length: u32,
}

/// COMPLETION: what was sent. [evens-00 §5.4.3]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// DATA objects sent (decision 16).
    pub objects_sent: u64,
    /// Groups that those objects were in.
    pub groups_sent: u64,
    /// Milliseconds from the first object to the last.
    pub total_duration_ms: u32,
}

/// Why an object is not a valid message of the benchmark.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum MessageError {
    /// An empty object.
    #[error("an empty object")]
    Empty,
    /// A message type that the draft does not define.
    #[error("type 0x{0:02x} is none of the benchmark's")]
    UnknownType(u8),
    /// A message whose length is wrong for its type or its own length field.
    #[error("an object of {found} bytes where the message has {expected}")]
    Length {
        /// Bytes that the message should have.
        expected: u64,
        /// Bytes that the object has.
        found: u64,
    },
    /// A field whose value is out of range.
    #[error("{0} is out of range")]
    Field(&'static str),
}

impl Message {
    /// Decodes an object of `object_bytes` bytes. `head` must hold the whole object or its first 25 bytes, whichever is
    /// less.
    pub fn decode(head: &[u8], object_bytes: u64) -> Result<Self, MessageError> {
        match head.first() {
            None => Err(MessageError::Empty),
            Some(&START_TYPE) => {
                Start::decode(&exactly::<START_BYTES>(head, object_bytes)?).map(Self::Start)
            }
            Some(&DATA_TYPE) => DataHeader::decode(head, object_bytes).map(Self::Data),
            Some(&COMPLETION_TYPE) => {
                let bytes = exactly::<COMPLETION_BYTES>(head, object_bytes)?;
                Ok(Self::Completion(Completion::decode(&bytes)))
            }
            Some(&other) => Err(MessageError::UnknownType(other)),
        }
    }
}

impl Start {
    /// Encodes the message.
    pub fn encode(&self) -> [u8; START_BYTES] {
        let mut bytes = [0; START_BYTES];
        bytes[0] = START_TYPE;
        bytes[1..5].copy_from_slice(&self.objects_per_group.to_be_bytes());
        bytes[5..9].copy_from_slice(&self.first_object_size.to_be_bytes());
        bytes[9..13].copy_from_slice(&self.remaining_object_size.to_be_bytes());
        bytes[13..17].copy_from_slice(&self.interval_ms.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8; START_BYTES]) -> Result<Self, MessageError> {
        let mut fields = &bytes[1..];
        let start = Self {
            objects_per_group: fields.get_u32(),
            first_object_size: fields.get_u32(),
            remaining_object_size: fields.get_u32(),
            interval_ms: fields.get_u32(),
        };
        let sizes = OBJECT_BYTES_MIN..=OBJECT_BYTES_MAX;
        if !(1..=OBJECTS_PER_GROUP_MAX).contains(&start.objects_per_group) {
            return Err(MessageError::Field("objects_per_group"));
        }
        if !sizes.contains(&start.first_object_size) {
            return Err(MessageError::Field("first_object_size"));
        }
        if !sizes.contains(&start.remaining_object_size) {
            return Err(MessageError::Field("remaining_object_size"));
        }
        Ok(start)
    }
}

impl DataHeader {
    /// Encodes the header.
    pub fn encode(&self) -> [u8; DATA_HEADER_BYTES] {
        let mut bytes = [0; DATA_HEADER_BYTES];
        bytes[0] = DATA_TYPE;
        bytes[1..9].copy_from_slice(&self.group_number.to_be_bytes());
        bytes[9..17].copy_from_slice(&self.object_number.to_be_bytes());
        bytes[17..21].copy_from_slice(&self.milliseconds_since_first_object.to_be_bytes());
        bytes[21..25].copy_from_slice(&self.data_length.to_be_bytes());
        bytes
    }

    fn decode(head: &[u8], object_bytes: u64) -> Result<Self, MessageError> {
        let header = DATA_HEADER_BYTES as u64;
        let Some(head) = head.first_chunk::<DATA_HEADER_BYTES>() else {
            return Err(MessageError::Length {
                expected: header,
                found: object_bytes,
            });
        };
        let mut fields = &head[1..];
        let decoded = Self {
            group_number: fields.get_u64(),
            object_number: fields.get_u64(),
            milliseconds_since_first_object: fields.get_u32(),
            data_length: fields.get_u32(),
        };
        let expected = header + u64::from(decoded.data_length);
        if expected != object_bytes {
            return Err(MessageError::Length {
                expected,
                found: object_bytes,
            });
        }
        Ok(decoded)
    }
}

impl Completion {
    /// Encodes the message.
    pub fn encode(&self) -> [u8; COMPLETION_BYTES] {
        let mut bytes = [0; COMPLETION_BYTES];
        bytes[0] = COMPLETION_TYPE;
        bytes[1..9].copy_from_slice(&self.objects_sent.to_be_bytes());
        bytes[9..17].copy_from_slice(&self.groups_sent.to_be_bytes());
        bytes[17..21].copy_from_slice(&self.total_duration_ms.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8; COMPLETION_BYTES]) -> Self {
        let mut fields = &bytes[1..];
        Self {
            objects_sent: fields.get_u64(),
            groups_sent: fields.get_u64(),
            total_duration_ms: fields.get_u32(),
        }
    }
}

/// Returns the bytes of an object that must have exactly `N`.
fn exactly<const N: usize>(head: &[u8], object_bytes: u64) -> Result<[u8; N], MessageError> {
    let length = MessageError::Length {
        expected: N as u64,
        found: object_bytes,
    };
    if object_bytes != N as u64 {
        return Err(length);
    }
    head.first_chunk().copied().ok_or(length)
}

const START_TYPE: u8 = 0x01;
const DATA_TYPE: u8 = 0x02;
const COMPLETION_TYPE: u8 = 0x03;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(bytes: &[u8]) -> Result<Message, MessageError> {
        Message::decode(bytes, bytes.len() as u64)
    }

    #[test]
    fn start_is_packed_in_network_order() {
        let start = Start {
            objects_per_group: 150,
            first_object_size: 21_333,
            remaining_object_size: 2_666,
            interval_ms: 33,
        };
        let bytes = b"\x01\0\0\0\x96\0\0\x53\x55\0\0\x0a\x6a\0\0\0\x21";
        assert_eq!(&start.encode(), bytes);
        assert_eq!(decode(bytes), Ok(Message::Start(start)));
    }

    #[test]
    fn data_is_packed_in_network_order() {
        let header = DataHeader {
            group_number: 1,
            object_number: 0x0203,
            milliseconds_since_first_object: 0x0405,
            data_length: 2,
        };
        let bytes = b"\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\x02\x03\0\0\x04\x05\0\0\0\x02";
        assert_eq!(&header.encode(), bytes);
        assert_eq!(Message::decode(bytes, 27), Ok(Message::Data(header)));
        assert_eq!(
            decode(&[bytes, &b"xy"[..]].concat()),
            Ok(Message::Data(header))
        );
    }

    #[test]
    fn completion_is_packed_in_network_order() {
        let completion = Completion {
            objects_sent: 1_500,
            groups_sent: 10,
            total_duration_ms: 29_980,
        };
        let bytes = b"\x03\0\0\0\0\0\0\x05\xdc\0\0\0\0\0\0\0\x0a\0\0\x75\x1c";
        assert_eq!(&completion.encode(), bytes);
        assert_eq!(decode(bytes), Ok(Message::Completion(completion)));
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let start = Start {
            objects_per_group: 1,
            first_object_size: 120,
            remaining_object_size: 120,
            interval_ms: 20,
        };
        let length = |expected, found| Err(MessageError::Length { expected, found });
        assert_eq!(decode(b""), Err(MessageError::Empty));
        assert_eq!(decode(b"\0"), Err(MessageError::UnknownType(0)));
        assert_eq!(decode(b"\x04rest"), Err(MessageError::UnknownType(4)));
        assert_eq!(decode(b"\x01\0"), length(17, 2));
        assert_eq!(
            decode(&[&start.encode()[..], b"x"].concat()),
            length(17, 18)
        );
        assert_eq!(Message::decode(&start.encode()[..9], 17), length(17, 17));
        assert_eq!(decode(b"\x02\0\0"), length(25, 3));
        assert_eq!(
            decode(&[b"\x02".as_slice(), &[0; 25]].concat()),
            length(25, 26)
        );
        assert_eq!(decode(b"\x03"), length(21, 1));

        let field = |start: Start| decode(&start.encode());
        let group = |objects_per_group| {
            field(Start {
                objects_per_group,
                ..start
            })
        };
        assert_eq!(group(0), Err(MessageError::Field("objects_per_group")));
        assert!(group(OBJECTS_PER_GROUP_MAX).is_ok());
        assert!(group(OBJECTS_PER_GROUP_MAX + 1).is_err());
        let first = |first_object_size| {
            field(Start {
                first_object_size,
                ..start
            })
        };
        assert!(first(25).is_ok() && first(OBJECT_BYTES_MAX).is_ok());
        assert!(first(24).is_err() && first(OBJECT_BYTES_MAX + 1).is_err());
        let remaining = |remaining_object_size| {
            field(Start {
                remaining_object_size,
                ..start
            })
        };
        assert_eq!(
            remaining(24),
            Err(MessageError::Field("remaining_object_size"))
        );
    }

    proptest! {
        #[test]
        fn what_decodes_encodes_to_the_same_bytes(kind in 0u8..5, rest in prop::collection::vec(any::<u8>(), 0..40)) {
            let bytes = [&[kind][..], &rest].concat();
            let encoded = match decode(&bytes) {
                Ok(Message::Start(start)) => start.encode().to_vec(),
                Ok(Message::Data(header)) => header.encode().to_vec(),
                Ok(Message::Completion(completion)) => completion.encode().to_vec(),
                Err(_) => return Ok(()),
            };
            prop_assert!(bytes.starts_with(&encoded));
        }

        #[test]
        fn data_comes_back(group_number: u64, object_number: u64, milliseconds_since_first_object: u32, data_length: u32) {
            let header = DataHeader { group_number, object_number, milliseconds_since_first_object, data_length };
            let object_bytes = 25 + u64::from(data_length);
            prop_assert_eq!(Message::decode(&header.encode(), object_bytes), Ok(Message::Data(header)));
        }
    }
}
