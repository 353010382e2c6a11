use super::*;
use crate::error::SessionError;

fn decode(encoded: &[u8]) -> Result<Properties, DecodeError> {
    Properties::decode(Bytes::copy_from_slice(encoded))
}

fn one(property_type: u64, value: u64) -> Properties {
    Properties::builder().int(property_type, value).build()
}

fn immutable(inner: &Properties) -> Properties {
    Properties::builder()
        .bytes(IMMUTABLE, inner.as_bytes().clone())
        .build()
}

fn fault(properties: &Properties) -> Option<&'static str> {
    properties
        .check_object(Location::new(10, 10))
        .err()
        .map(|malformed| malformed.0)
}

#[test]
fn the_builder_sorts_and_keeps_the_order_of_equals() {
    let built = Properties::builder()
        .int(0x3E, 1)
        .bytes(0x0D, &b"x"[..])
        .int(0x08, 2)
        .int(0x08, 1)
        .build();
    assert_eq!(
        &built.as_bytes()[..],
        [0x08, 2, 0, 1, 0x05, 1, b'x', 0x31, 1]
    );
    let pairs: Vec<_> = built.iter().collect();
    let expected = [
        (0x08, Value::Int(2)),
        (0x08, Value::Int(1)),
        (0x0D, Value::Bytes(b"x")),
        (0x3E, Value::Int(1)),
    ];
    assert_eq!(pairs, expected);
}

#[test]
fn a_value_has_at_most_65535_bytes() {
    let longest = Properties::builder()
        .bytes(0x0D, vec![0; VALUE_BYTES_MAX])
        .build();
    assert_eq!(decode(longest.as_bytes()), Ok(longest));
    let mut longer = BytesMut::new();
    PairWriter::default().bytes(0x0D, &vec![0; VALUE_BYTES_MAX + 1], &mut longer);
    let DecodeError::Invalid { code, .. } = decode(&longer).expect_err("too long") else {
        panic!("more bytes would not help")
    };
    assert_eq!(code, SessionError::PROTOCOL_VIOLATION);
}

#[test]
#[should_panic(expected = "at most 65535")]
fn the_builder_refuses_a_longer_value() {
    drop(Properties::builder().bytes(0x0D, vec![0; VALUE_BYTES_MAX + 1]));
}

#[test]
fn the_largest_type_is_2_to_the_64_minus_1() {
    let largest = Properties::builder().bytes(u64::MAX, &b""[..]).build();
    assert_eq!(decode(largest.as_bytes()), Ok(largest));
}

#[test]
fn a_cut_pair_is_a_formatting_error() {
    for cut in [&[2][..], &[0x0D], &[0x0D, 2, 0], &[0x80], &[2, 0x80]] {
        let DecodeError::Invalid { code, .. } = decode(cut).expect_err("cut") else {
            panic!("properties have a known length")
        };
        assert_eq!(code, SessionError::KEY_VALUE_FORMATTING_ERROR, "{cut:02x?}");
    }
}

#[test]
fn values_are_found_outside_first_and_inside_immutable_ones_then() {
    let inner = Properties::builder().int(0x08, 1).int(0x0A, 2).build();
    let both = Properties::builder()
        .int(0x0A, 3)
        .bytes(IMMUTABLE, inner.as_bytes().clone())
        .build();
    assert_eq!(both.find_int(0x08), Some(1));
    assert_eq!(both.find_int(0x0A), Some(3));
    assert_eq!(both.find(0x0C), None);
    assert_eq!(both.find_int(IMMUTABLE), None);
    assert_eq!(both.find(IMMUTABLE), Some(Value::Bytes(inner.as_bytes())));
}

#[test]
fn a_track_without_properties_has_the_defaults() {
    let none = Properties::EMPTY;
    assert_eq!(none.publisher_priority(), 128);
    assert_eq!(none.group_order(), GroupOrder::Ascending);
    assert_eq!(none.object_delivery_timeout(), None);
    assert_eq!(none.subgroup_delivery_timeout(), None);
    assert_eq!(none.max_cache_duration(), None);
    assert!(!none.dynamic_groups());
    assert_eq!(none.mandatory(), None);
    assert_eq!(
        (none.prior_group_id_gap(), none.prior_object_id_gap()),
        (None, None)
    );
}

#[test]
fn a_track_with_properties_has_their_values() {
    let set = Properties::builder()
        .int(OBJECT_DELIVERY_TIMEOUT, 5)
        .int(MAX_CACHE_DURATION, 6)
        .int(SUBGROUP_DELIVERY_TIMEOUT, 0)
        .int(DEFAULT_PUBLISHER_PRIORITY, 255)
        .int(DEFAULT_PUBLISHER_GROUP_ORDER, 2)
        .int(DYNAMIC_GROUPS, 1)
        .build();
    assert_eq!(set.check_track(), Ok(()));
    assert_eq!(
        set.object_delivery_timeout(),
        Some(Duration::from_millis(5))
    );
    assert_eq!(set.max_cache_duration(), Some(Duration::from_millis(6)));
    assert_eq!(set.subgroup_delivery_timeout(), Some(Duration::ZERO));
    assert_eq!(set.publisher_priority(), 255);
    assert_eq!(set.group_order(), GroupOrder::Descending);
    assert!(set.dynamic_groups());
}

#[test]
fn values_out_of_range_close_the_session() {
    for (property_type, first_bad) in [
        (DEFAULT_PUBLISHER_PRIORITY, 256),
        (DEFAULT_PUBLISHER_GROUP_ORDER, 0),
        (DEFAULT_PUBLISHER_GROUP_ORDER, 3),
        (DYNAMIC_GROUPS, 2),
    ] {
        assert!(one(property_type, first_bad).check_track().is_err());
        assert!(
            immutable(&one(property_type, first_bad))
                .check_track()
                .is_err()
        );
    }
}

#[test]
fn mandatory_types_lie_between_0x4000_and_0x7fff() {
    assert_eq!(one(0x3FFE, 1).mandatory(), None);
    assert_eq!(one(0x4000, 1).mandatory(), Some(0x4000));
    assert_eq!(
        Properties::builder()
            .bytes(0x7FFF, &b""[..])
            .build()
            .mandatory(),
        Some(0x7FFF)
    );
    assert_eq!(one(0x8000, 1).mandatory(), None);
    assert_eq!(immutable(&one(0x5000, 1)).mandatory(), Some(0x5000));
}

#[test]
fn an_object_may_have_a_gap_up_to_its_own_location() {
    assert_eq!(fault(&one(PRIOR_GROUP_ID_GAP, 10)), None);
    assert_eq!(fault(&one(PRIOR_OBJECT_ID_GAP, 10)), None);
    assert!(fault(&one(PRIOR_GROUP_ID_GAP, 11)).is_some());
    assert!(fault(&one(PRIOR_OBJECT_ID_GAP, 11)).is_some());
    assert!(fault(&immutable(&one(PRIOR_OBJECT_ID_GAP, 11))).is_some());
}

#[test]
fn an_object_has_some_properties_once() {
    let gap = || Properties::builder().int(PRIOR_GROUP_ID_GAP, 1);
    assert!(fault(&gap().int(PRIOR_GROUP_ID_GAP, 1).build()).is_some());
    let inside = gap().build();
    assert!(fault(&gap().bytes(IMMUTABLE, inside.as_bytes().clone()).build()).is_some());
    let twice = Properties::builder()
        .bytes(IMMUTABLE, &b""[..])
        .bytes(IMMUTABLE, &b""[..]);
    assert!(fault(&twice.build()).is_some());
    assert_eq!(
        fault(&Properties::builder().int(0x08, 1).int(0x08, 1).build()),
        None
    );
}

#[test]
fn an_object_with_broken_immutable_properties_is_malformed() {
    assert!(fault(&immutable(&immutable(&Properties::EMPTY))).is_some());
    assert!(fault(&Properties::builder().bytes(IMMUTABLE, &b"\x02"[..]).build()).is_some());
    assert_eq!(fault(&immutable(&one(0x08, 1))), None);
}

#[test]
fn an_object_has_no_mandatory_track_property() {
    assert!(fault(&one(0x4000, 0)).is_some());
    assert!(fault(&immutable(&one(0x4000, 0))).is_some());
}
