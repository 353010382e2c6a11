//! Messages byte by byte.

use super::*;

#[test]
fn the_examples_of_the_draft() {
    for (bytes, value) in [
        (&[0x25][..], 37),
        (&[0xbb, 0xbd], 15_293),
        (&[0xed, 0x7f, 0x3e, 0x7d], 226_442_877),
        (&[0xfa, 0xa1, 0xa0, 0xe4, 0x03, 0xd8], 2_893_212_287_960),
        (
            &[0xfc, 0x89, 0x98, 0xab, 0xc6, 0x6b, 0xc0],
            151_288_809_941_952,
        ),
        (
            &[0xfe, 0xfa, 0x31, 0x8f, 0xa8, 0xe3, 0xca, 0x11],
            70_423_237_261_249_041,
        ),
        (&[0xff; 9], u64::MAX),
    ] {
        assert_eq!(int(value), bytes);
    }
    assert_eq!(int(0), [0]);
}

fn track(edition: Edition) -> Track {
    Track {
        edition,
        namespace: vec![b"a".to_vec()],
        name: b"x".to_vec(),
    }
}

#[test]
fn a_subscribe_byte_by_byte() {
    let track = track(Edition::Eighteen);
    let forward = (parameter::FORWARD, Value::Byte(0));
    let priority = (parameter::SUBSCRIBER_PRIORITY, Value::Byte(7));
    assert_eq!(
        Request::Subscribe.encode(2, &track, &[forward, priority]),
        [0x03, 0, 11, 2, 1, 1, b'a', 1, b'x', 2, 0x10, 0, 0x10, 7]
    );
}

#[test]
fn a_fetch_byte_by_byte() {
    let order = [(parameter::GROUP_ORDER, Value::Byte(2))];
    let encode = |edition, end| fetch(2, &track(edition), (300, 1), end, &order);
    let start = [0x16, 0, 15, 2];
    let name = [1, 1, b'a', 1, b'x'];
    let eighteen = [&[1][..], &name, &[0x81, 0x2C, 1, 0x81, 0x2D, 8, 1, 0x22, 2]].concat();
    let mut framed = [&start[..], &eighteen].concat();
    framed[2] = u8::try_from(framed.len() - 3).unwrap();
    assert_eq!(encode(Edition::Eighteen, (301, 8)), framed);
    let range = [2, 0x21, 4, 0x81, 0x2C, 1, 1, 7, 1, 2];
    let mut framed = [&start[..], &name, &range].concat();
    framed[2] = u8::try_from(framed.len() - 3).unwrap();
    assert_eq!(encode(Edition::TwentyTwo, (301, 8)), framed);
    let whole_group = [2, 0x21, 3, 0x81, 0x2C, 1, 1, 1, 2];
    let mut framed = [&start[..], &name, &whole_group].concat();
    framed[2] = u8::try_from(framed.len() - 3).unwrap();
    assert_eq!(encode(Edition::TwentyTwo, (301, 0)), framed);
}

#[test]
fn filters_byte_by_byte() {
    let bytes = |range: Range, edition| parameters(&[range.filter(edition)]);
    let eighteen = |range| bytes(range, Edition::Eighteen);
    let twenty_two = |range| bytes(range, Edition::TwentyTwo);
    assert_eq!(eighteen(Range::NextGroup), [1, 0x21, 1, 1]);
    assert_eq!(twenty_two(Range::NextGroup), [1, 0x21, 1, 0]);
    assert_eq!(eighteen(Range::NextObject), [1, 0x21, 1, 2]);
    assert_eq!(twenty_two(Range::NextObject), [1, 0x21, 5]);
    let from = Range::From(300, 2);
    assert_eq!(eighteen(from), [1, 0x21, 4, 3, 0x81, 0x2C, 2]);
    assert_eq!(twenty_two(from), [1, 0x21, 2, 0x81, 0x2C, 2]);
    let groups = Range::Absolute((300, 2), (301, u64::MAX));
    assert_eq!(eighteen(groups), [1, 0x21, 5, 4, 0x81, 0x2C, 2, 1]);
    assert_eq!(twenty_two(groups), [1, 0x21, 3, 0x81, 0x2C, 2, 1]);
    assert_eq!(twenty_two(Range::Recent(1)), [1, 0x21, 1, 2]);
}

#[test]
fn what_else_differs_byte_by_byte() {
    for (edition, fetched, away) in [
        (
            Edition::Eighteen,
            [0x18, 0, 4, 0, 5, 8, 0],
            &[0x10, 0, 3, 0, 0, 9][..],
        ),
        (
            Edition::TwentyTwo,
            [0x18, 0, 4, 0, 5, 7, 0],
            &[0x10, 0, 2, 0, 0],
        ),
    ] {
        assert_eq!(fetch_ok(edition, (5, 8), &[]), fetched);
        assert_eq!(goaway(edition, b"", Some(9)), away);
    }
    let filled = fill(&[Range::Recent(0).filter(Edition::TwentyTwo)]);
    assert_eq!(parameters(&[filled]), [1, 0x23, 4, 1, 0x21, 1, 1]);
    let forward = (parameter::FORWARD, Value::Byte(0));
    assert_eq!(state_notify(&[forward]), [0x22, 0, 3, 1, 0x10, 0]);
}

#[test]
fn a_subgroup_byte_by_byte() {
    let header = Subgroup {
        id: 3,
        priority: Some(9),
        ..Subgroup::of(5)
    };
    assert_eq!(
        group(header, &[b"hi", b""]),
        [0x54, 1, 5, 3, 9, 0, 2, b'h', b'i', 0, 0, 0]
    );
}
