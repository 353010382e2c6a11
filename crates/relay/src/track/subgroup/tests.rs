use std::time::Duration;

use weir_moqt::{
    data::ObjectStatus,
    property::Properties,
    reader::{SubgroupItem, SubgroupReader},
};

use super::*;
use crate::{cache::Content, tests::epoch};

const DRAFT: Draft = Draft::Draft18;

fn subgroup(has_properties: bool) -> Subgroup {
    let header = SubgroupHeader {
        track_alias: 9,
        group: 4,
        subgroup: WireSubgroup::FirstObject,
        priority: Some(3),
        has_properties,
        end_of_group: true,
        first_object: true,
    };
    Subgroup::new(0, header, 2, DRAFT)
}

fn object(id: u64, payload_len: u64) -> ObjectHeader {
    ObjectHeader {
        id,
        properties: Properties::EMPTY,
        status: ObjectStatus::Normal,
        payload_len,
    }
}

/// Decodes the log from `start` on.
fn read(subgroup: &Subgroup, start: &Start) -> Vec<SubgroupItem> {
    let mut reader = SubgroupReader::new(DRAFT, 1000);
    let mut items = Vec::new();
    let mut feed = |data: Bytes| {
        reader.push(data);
        while let Some(item) = reader.poll().unwrap() {
            items.push(item);
        }
    };
    if !start.prologue.is_empty() {
        feed(start.prologue.clone());
    }
    let mut cursor = start.cursor;
    while let Some(piece) = subgroup.from(cursor) {
        cursor += piece.data.len() as u64;
        feed(piece.data);
    }
    reader.fin().unwrap();
    items
}

#[test]
fn a_small_object_does_not_keep_the_memory_of_a_large_one_that_is_cut() {
    let (now, mut subgroup) = (epoch(), subgroup(false));
    let mut kept = Vec::new();
    subgroup.begin(object(0, 10));
    subgroup.extend(&[1; 10]);
    subgroup.begin(object(1, 20_000));
    subgroup.extend(&[2; 10_000]);
    subgroup.publish(now, 20_000, |_, _, content| kept.push(content));
    subgroup.extend(&[2; 10_000]);
    subgroup.begin(object(2, 10));
    subgroup.extend(&[3; 10]);
    // The large object is too large in the end.
    subgroup.publish(now, 20_000, |_, _, content| kept.push(content));
    let [
        Content::Stream { payload: one, .. },
        _,
        Content::Stream { payload: other, .. },
    ] = &kept[..]
    else {
        panic!("three objects");
    };
    assert_eq!((&one[..], &other[..]), (&[1; 10][..], &[3; 10][..]));
    assert!(one.is_unique() && other.is_unique(), "memory of their own");
}

#[test]
fn an_object_that_comes_byte_by_byte_is_kept_in_few_pieces() {
    const BYTES: u64 = 20_000;
    let (now, mut subgroup) = (epoch(), subgroup(false));
    subgroup.begin(object(0, BYTES));
    let mut start = None;
    let mut kept = None;
    for number in 0..BYTES {
        subgroup.extend(&number.to_le_bytes()[..1]);
        let marks = subgroup.publish(now, BYTES, |_, _, content| kept = Some(content));
        start = start.or_else(|| marks.first().map(|mark| subgroup.start_at(mark)));
    }
    assert!(subgroup.log.len() < 300, "{} pieces", subgroup.log.len());
    let start = start.expect("the object has begun");
    let payload = |from: u64| (from..BYTES).map(|number| number.to_le_bytes()[0]);
    let items = read(&subgroup, &start);
    let received: Vec<u8> = items
        .iter()
        .filter_map(|item| match item {
            SubgroupItem::Payload(data) => Some(data.to_vec()),
            SubgroupItem::Header(_) | SubgroupItem::Object(_) => None,
        })
        .flatten()
        .collect();
    assert!(received.iter().copied().eq(payload(0)));
    let end = subgroup.len();
    for left in [1, 2, 4095, 4096, 4097, BYTES - 1] {
        let piece = subgroup.from(end - left).expect("it is in the log");
        assert!(
            payload(BYTES - left)
                .zip(piece.data)
                .all(|(one, other)| one == other)
        );
    }
    let Some(Content::Stream { payload, rest, .. }) = kept else {
        panic!("the object is kept");
    };
    assert!(rest.len() < 10, "{} parts", rest.len());
    let bytes: usize = rest.iter().map(Bytes::len).sum();
    assert_eq!((payload.len() + bytes) as u64, BYTES);
}

#[test]
fn the_first_reader_gets_the_publishers_bytes() {
    let (now, mut subgroup) = (epoch(), subgroup(false));
    subgroup.begin(object(2, 3));
    subgroup.extend(b"abc");
    subgroup.begin(object(7, 0));
    let marks = subgroup.publish(now, 0, |_, _, _| {});
    let items = read(&subgroup, &subgroup.start_at(&marks[0]));
    let payload = Bytes::from_static(b"abc");
    assert_eq!(
        items,
        [
            SubgroupItem::Header(subgroup.header),
            SubgroupItem::Object(object(2, 3)),
            SubgroupItem::Payload(payload),
            SubgroupItem::Object(object(7, 0)),
        ]
    );
    assert_eq!(subgroup.key(), (4, 2));
}

#[test]
fn a_late_reader_starts_with_a_whole_object_and_its_own_header() {
    for has_properties in [false, true] {
        let (now, mut subgroup) = (epoch(), subgroup(has_properties));
        subgroup.begin(object(2, 3));
        subgroup.extend(b"abc");
        subgroup.begin(object(7, 2));
        let marks = subgroup.publish(now, 0, |_, _, _| {});
        subgroup.extend(b"de");
        subgroup.begin(object(8, 1));
        subgroup.extend(b"f");
        assert_eq!(subgroup.publish(now, 0, |_, _, _| {}).len(), 1);
        let items = read(&subgroup, &subgroup.start_at(&marks[1]));
        let header = SubgroupHeader {
            subgroup: WireSubgroup::Explicit(2),
            first_object: false,
            ..subgroup.header
        };
        assert_eq!(
            items,
            [
                SubgroupItem::Header(header),
                SubgroupItem::Object(object(7, 2)),
                SubgroupItem::Payload(Bytes::from_static(b"de")),
                SubgroupItem::Object(object(8, 1)),
                SubgroupItem::Payload(Bytes::from_static(b"f")),
            ]
        );
    }
}

#[test]
fn pieces_taken_by_all_are_forgotten() {
    let (now, mut subgroup) = (epoch(), subgroup(false));
    subgroup.begin(object(2, 30));
    subgroup.publish(now, 0, |_, _, _| {});
    let header_bytes = subgroup.len();
    for _ in 0..3 {
        subgroup.extend(&[0; 10]);
        subgroup.publish(now, 0, |_, _, _| {});
    }
    assert_eq!(subgroup.held(), header_bytes + 30);
    subgroup.trim(header_bytes + 9);
    assert_eq!(subgroup.held(), 30, "a piece goes only as a whole");
    subgroup.trim(header_bytes + 10);
    assert_eq!(subgroup.held(), 20);
    assert!(subgroup.from(0).is_none());
    let piece = subgroup.from(header_bytes + 15).unwrap();
    assert_eq!(piece.data.len(), 5);
    subgroup.trim(subgroup.len());
    assert_eq!(subgroup.held(), 0);
    assert!(subgroup.from(subgroup.len()).is_none());
}

#[test]
fn a_piece_is_as_old_as_the_object_it_goes_on_with() {
    let (start, mut subgroup) = (epoch(), subgroup(false));
    let at = |secs| start + Duration::from_secs(secs);
    let mut cursors = vec![0];
    let mut publish = |subgroup: &mut Subgroup, secs| {
        subgroup.publish(at(secs), 0, |_, _, _| {});
        cursors.push(subgroup.len());
    };
    subgroup.begin(object(0, 4));
    publish(&mut subgroup, 1);
    subgroup.extend(b"ab");
    publish(&mut subgroup, 2);
    subgroup.extend(b"cd");
    subgroup.begin(object(1, 1));
    publish(&mut subgroup, 3);
    subgroup.extend(b"e");
    publish(&mut subgroup, 4);
    subgroup.begin(object(2, 0));
    publish(&mut subgroup, 5);
    let received = cursors.iter().map(|&cursor| subgroup.received(cursor));
    let expected = [1, 1, 1, 3, 5].map(|secs| Some(at(secs)));
    assert_eq!(
        received.collect::<Vec<_>>(),
        [&expected[..], &[None]].concat()
    );
}

#[test]
fn the_next_object_is_the_first_that_is_not_complete() {
    let mut subgroup = subgroup(false);
    assert_eq!(subgroup.next_object(), 0);
    subgroup.begin(object(5, 2));
    assert_eq!(subgroup.next_object(), 5);
    subgroup.extend(b"a");
    assert_eq!(subgroup.next_object(), 5);
    subgroup.extend(b"b");
    assert_eq!(subgroup.next_object(), 6);
    subgroup.begin(object(u64::MAX, 0));
    assert_eq!(subgroup.next_object(), u64::MAX);
}

#[test]
fn complete_objects_are_handed_to_the_cache_in_the_large_parts_they_came_in() {
    let (now, mut subgroup) = (epoch(), subgroup(true));
    let mut kept = Vec::new();
    let mut publish = |subgroup: &mut Subgroup, partial_max| {
        subgroup.publish(now, partial_max, |id, _, content| {
            let Content::Stream {
                properties,
                payload,
                rest,
                ..
            } = content
            else {
                panic!("it came on a stream");
            };
            let mut parts = vec![payload];
            parts.extend(rest);
            kept.push((id, properties, parts));
        });
    };
    let properties = Properties::builder().int(0x08, 500).build();
    subgroup.begin(ObjectHeader {
        properties: properties.clone(),
        ..object(2, 5)
    });
    subgroup.extend(b"whole");
    subgroup.begin(object(3, 6));
    subgroup.extend(b"th");
    publish(&mut subgroup, 100);
    assert_eq!(subgroup.partial_bytes(), 2);
    subgroup.extend(b"re");
    publish(&mut subgroup, 100);
    assert_eq!(subgroup.partial_bytes(), 4, "at the limit");
    subgroup.extend(b"ee");
    subgroup.begin(object(4, 3));
    subgroup.extend(b"to");
    publish(&mut subgroup, 2);
    subgroup.extend(b"o");
    subgroup.begin(object(5, 0));
    subgroup.begin(object(6, 9));
    subgroup.extend(b"cut");
    publish(&mut subgroup, 2);
    assert_eq!(subgroup.partial_bytes(), 0, "one past the limit");
    subgroup.extend(b"cut");
    subgroup.end(now, Ended::Reset(ResetCode::CANCELLED));
    publish(&mut subgroup, 100);
    let mut large = self::subgroup(true);
    large.begin(object(7, 10_000));
    for _ in 0..4 {
        large.extend(&[9; 2500]);
        publish(&mut large, 10_000);
    }
    let bytes = |text: &'static [u8]| Bytes::from_static(text);
    let none = Bytes::new;
    let expected = [
        (2, properties.as_bytes().clone(), vec![bytes(b"whole")]),
        (3, none(), vec![bytes(b"threee")]),
        (4, none(), vec![bytes(b"too")]),
        (5, none(), vec![none()]),
        (7, none(), vec![bytes(&[9; 2500]); 4]),
    ];
    assert_eq!(kept, expected);
}
