//! Data streams and datagrams of publishers, and of answers to a FETCH.

use weir_link::Random;

use super::below;
use crate::wire::{self, Subgroup, Value, int, object_with, prefixed, property, stream, subgroup};

/// Encodes valid data of a Track Alias in a group.
pub(crate) type Encode = fn(u64, u64) -> Vec<u8>;

/// Every kind of data stream that belongs to no request, with its name in the names of cases.
pub(crate) const STREAMS: [(&str, Encode); 4] = [
    ("subgroup", |alias, group| {
        wire::group(header(alias, group), &[b"some", b"", b"objects"])
    }),
    ("subgroup-with-all-fields", |alias, group| {
        let header = Subgroup {
            id: 3,
            priority: Some(7),
            bits: subgroup::END_OF_GROUP | subgroup::FIRST_OBJECT,
            ..header(alias, group)
        };
        wire::group(header, &[b"some", b"objects"])
    }),
    ("subgroup-with-properties", |alias, group| {
        let header = Subgroup {
            bits: subgroup::PROPERTIES | subgroup::FIRST_OBJECT,
            ..header(alias, group)
        };
        let first = object_with(0, &properties(), b"some");
        let second = object_with(4, &properties()[1..], b"objects");
        [header.encode(), first, second].concat()
    }),
    ("padding-stream", |_, _| {
        [int(stream::PADDING), vec![0; 40]].concat()
    }),
];

/// Every kind of datagram, with its name in the names of cases.
pub(crate) const DATAGRAMS: [(&str, Encode); 4] = [
    ("datagram", |alias, group| {
        let fields = [vec![0], int(alias), int(group), int(1), vec![7]];
        [&fields.concat()[..], b"payload"].concat()
    }),
    ("datagram-with-properties", |alias, group| {
        let properties = prefixed(&wire::pairs(&properties()));
        let fields = [int(0x09), int(alias), int(group), int(2), properties];
        [&fields.concat()[..], b"payload"].concat()
    }),
    ("datagram-of-status", |alias, group| {
        [int(0x28), int(alias), int(group), int(3), int(3)].concat()
    }),
    ("padding-datagram", |_, _| {
        [int(stream::PADDING_DATAGRAM), vec![0; 40]].concat()
    }),
];

/// Returns the stream that answers a FETCH: objects of a group, one with properties, and the end of a range.
pub(crate) fn fetch_stream(request: u64, group: u64) -> Vec<u8> {
    let first = [vec![0x1C], int(group), vec![0, 128, 4], b"some".to_vec()].concat();
    let properties = prefixed(&wire::pairs(&properties()));
    let second = [&[0x20][..], &properties, &[7], b"objects"].concat();
    let absent = [int(0x8C), int(0), int(2)].concat();
    [
        int(stream::FETCH),
        int(request),
        first,
        second,
        vec![0, 1, b'x'],
        absent,
    ]
    .concat()
}

/// Returns data of any kind, which is sent on a stream if it says so.
pub(crate) fn any(random: &mut Random, alias: u64, group: u64) -> (bool, Vec<u8>) {
    if random.below(2) == 0 {
        let (_, encode) = STREAMS[below(random, STREAMS.len())];
        return (true, encode(alias, group));
    }
    let (_, encode) = DATAGRAMS[below(random, DATAGRAMS.len())];
    (false, encode(alias, group))
}

fn header(alias: u64, group: u64) -> Subgroup {
    Subgroup {
        alias,
        ..Subgroup::of(group)
    }
}

/// Properties of an object: a gap, and one that relays do not know.
fn properties() -> [(u64, Value); 2] {
    [
        (property::PRIOR_OBJECT_ID_GAP, Value::Int(0)),
        (property::OF_APPLICATION, Value::Bytes(vec![1, 2, 3])),
    ]
}
