use bytes::{BufMut, Bytes, BytesMut};

use super::*;
use crate::data::{ObjectHeader, ObjectStatus, SubgroupHeader, SubgroupId};
use crate::draft::Draft;
use crate::error::{DecodeError, SessionError};
use crate::message::{MESSAGE_BYTES_MAX, Message};
use crate::property::Properties;
use crate::varint;

const DRAFT: Draft = Draft::Draft18;

fn code(error: DecodeError) -> SessionError {
    match error {
        DecodeError::Short => panic!("a reader never fails for want of bytes"),
        DecodeError::Invalid { code, .. } => code,
    }
}

/// A header and an object with properties of `len` bytes in total and a payload of two bytes.
fn subgroup_with_properties(len: usize) -> Bytes {
    let mut out = BytesMut::new();
    let header = SubgroupHeader {
        track_alias: 1,
        group: 2,
        subgroup: SubgroupId::Zero,
        priority: None,
        has_properties: true,
        end_of_group: false,
        first_object: true,
    };
    header.encode(DRAFT, &mut out);
    // Type and length take four bytes for values of 128 bytes and more.
    let properties = Properties::builder().bytes(0x0D, vec![7; len - 3]).build();
    assert_eq!(properties.as_bytes().len(), len);
    let object = ObjectHeader {
        id: 0,
        properties,
        status: ObjectStatus::Normal,
        payload_len: 2,
    };
    object.encode_in_subgroup(None, true, DRAFT, &mut out);
    out.put_slice(b"ab");
    out.freeze()
}

/// Reads a whole stream, pushed in pieces of `size` bytes.
fn read_subgroup(
    stream: &Bytes,
    size: usize,
    header_bytes_max: usize,
) -> Result<usize, DecodeError> {
    let mut reader = SubgroupReader::new(DRAFT, header_bytes_max);
    let mut items = 0;
    for start in (0..stream.len()).step_by(size) {
        reader.push(stream.slice(start..stream.len().min(start + size)));
        while reader.poll()?.is_some() {
            items += 1;
        }
    }
    reader.fin()?;
    Ok(items)
}

#[test]
fn a_header_may_be_as_long_as_the_limit() {
    // Delta, length of properties, properties, payload length: 1 + 2 + 200 + 1.
    let stream = subgroup_with_properties(200);
    for size in [1, 3, 50, stream.len()] {
        assert!(
            read_subgroup(&stream, size, 204).is_ok(),
            "in pieces of {size}"
        );
        let error = read_subgroup(&stream, size, 203).expect_err("one byte too many");
        assert_eq!(
            code(error),
            SessionError::INTERNAL_ERROR,
            "in pieces of {size}"
        );
    }
}

#[test]
fn a_length_beyond_all_memory_is_refused_at_once() {
    let mut out = BytesMut::from(&subgroup_with_properties(200)[..3]);
    out.put_u8(0);
    varint::encode(u64::MAX, &mut out);
    let error = read_subgroup(&out.freeze(), 1, usize::MAX - 1).expect_err("no such length");
    assert_eq!(code(error), SessionError::INTERNAL_ERROR);
}

#[test]
fn payload_is_handed_on_where_it_lies() {
    let stream = subgroup_with_properties(200);
    let mut reader = SubgroupReader::new(DRAFT, 1000);
    // The header arrives in two pieces, the second of which holds the payload as well.
    let second = stream.slice(100..);
    reader.push(stream.slice(..100));
    assert!(matches!(reader.poll(), Ok(Some(SubgroupItem::Header(_)))));
    assert_eq!(reader.poll(), Ok(None));
    reader.push(second.clone());
    assert!(matches!(reader.poll(), Ok(Some(SubgroupItem::Object(_)))));
    let Ok(Some(SubgroupItem::Payload(payload))) = reader.poll() else {
        panic!("the payload has arrived")
    };
    assert_eq!(payload.as_ptr(), second[second.len() - 2..].as_ptr());
    assert_eq!(reader.poll(), Ok(None));
    assert_eq!(reader.fin(), Ok(()));
}

#[test]
#[should_panic(expected = "poll a reader to the end")]
fn a_reader_is_polled_before_the_next_push() {
    let mut reader = SubgroupReader::new(DRAFT, 1000);
    reader.push(Bytes::from_static(&[0x30]));
    reader.push(Bytes::from_static(&[0]));
}

#[test]
#[should_panic(expected = "header of a fetch comes before")]
fn the_order_of_a_fetch_is_known_after_its_header() {
    FetchReader::new(DRAFT, 1000).set_group_order(crate::parameter::GroupOrder::Descending);
}

#[test]
fn a_fetched_object_may_have_a_header_as_long_as_the_limit() {
    let mut stream = vec![0x05, 0, 0x3C, 0, 0, 0, 103, 0x0D, 101];
    stream.extend_from_slice(&[0; 101]);
    stream.push(0);
    let stream = Bytes::from(stream);
    let read = |size: usize, header_bytes_max| -> Result<(), DecodeError> {
        let mut reader = FetchReader::new(DRAFT, header_bytes_max);
        for start in (0..stream.len()).step_by(size) {
            reader.push(stream.slice(start..stream.len().min(start + size)));
            while reader.poll()?.is_some() {}
        }
        reader.fin()
    };
    for size in [1, 40, stream.len()] {
        assert_eq!(read(size, stream.len() - 2), Ok(()));
        let error = read(size, stream.len() - 3).expect_err("one byte too many");
        assert_eq!(code(error), SessionError::INTERNAL_ERROR);
    }
}

/// A stream with one `PUBLISH` whose payload is `len` bytes long.
fn publish_of(len: usize) -> Bytes {
    let mut stream = BytesMut::new();
    stream.put_u8(0x1D);
    stream.put_u16(u16::try_from(len).expect("16 bits"));
    let properties = len - 5;
    stream.put_slice(&[0, 0, 0, 0, 0]);
    // Properties of two bytes each, and one of three if the length is odd.
    if properties % 2 == 1 {
        stream.put_slice(&[0x08, 0x80, 0x01]);
    } else {
        stream.put_slice(&[0x08, 0x01]);
    }
    while stream.len() < len + 3 {
        stream.put_slice(&[0, 1]);
    }
    stream.freeze()
}

#[test]
fn a_message_may_be_as_long_as_the_limit() {
    for (len, payload_bytes_max) in [(1000, 1000), (1001, 1001), (65_535, MESSAGE_BYTES_MAX)] {
        for pieces in [1, 2, 7] {
            let stream = publish_of(len);
            let mut reader = MessageReader::new(DRAFT, payload_bytes_max);
            let mut messages = 0;
            let size = stream.len().div_ceil(pieces);
            for start in (0..stream.len()).step_by(size) {
                reader.push(stream.slice(start..stream.len().min(start + size)));
                while let Some(message) = reader.poll().expect("a message") {
                    assert!(matches!(message, Message::Publish(_)));
                    messages += 1;
                }
            }
            assert_eq!((messages, reader.fin()), (1, Ok(())));
        }
    }
}

#[test]
fn a_message_longer_than_the_limit_is_refused_by_its_length() {
    let stream = publish_of(1001);
    let mut reader = MessageReader::new(DRAFT, 1000);
    reader.push(stream.slice(..3));
    assert_eq!(
        reader.poll().map_err(code),
        Err(SessionError::INTERNAL_ERROR)
    );
}

#[test]
fn an_unknown_message_is_refused_by_its_type() {
    let mut reader = MessageReader::new(DRAFT, MESSAGE_BYTES_MAX);
    reader.push(Bytes::from_static(&[0x1E]));
    let error = reader.poll().expect_err("no draft has it");
    assert_eq!(code(error), SessionError::PROTOCOL_VIOLATION);
    let text = error.to_string();
    assert!(text.starts_with("unknown message type 0x1e ("), "{text}");
    let decoded = Message::decode(DRAFT, 0x1E, &Bytes::new());
    assert_eq!(decoded, Err(error));
}
