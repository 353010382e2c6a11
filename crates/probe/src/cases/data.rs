//! Data streams and datagrams that break the rules, and padding.

use super::{VIOLATION, closes};
use crate::{
    case::{Case, Level},
    edition::{Sections, in_both},
    script::{A, closed},
    wire::{self, ALIAS, Subgroup, Value, int, property, stream, subgroup},
};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = subgroup_types();
    cases.extend(datagram_types());
    cases.extend(datagrams());
    cases.extend(objects());
    cases.extend(properties());
    cases.extend(padding());
    cases
}

/// A case in which a publisher sends a unidirectional stream.
fn on_stream(
    name: impl Into<String>,
    sections: Sections,
    requirement: &str,
    bytes: impl Fn() -> Vec<u8> + Send + 'static,
) -> Case {
    Case::must(name, sections, requirement, move |script| {
        script.publish(A);
        script.then();
        script.stream(A, bytes());
        script.expect(A, closed(VIOLATION));
    })
}

/// A case in which a publisher sends a datagram.
fn in_datagram(
    name: impl Into<String>,
    sections: Sections,
    requirement: &str,
    bytes: impl Fn() -> Vec<u8> + Send + 'static,
) -> Case {
    Case::must(name, sections, requirement, move |script| {
        script.publish(A);
        script.then();
        script.datagram(A, bytes());
        script.expect(A, closed(VIOLATION));
    })
}

fn subgroup_types() -> Vec<Case> {
    let reserved = (0x10_u64..0x80).filter(|kind| kind & 0x10 != 0 && kind & 0x06 == 0x06);
    reserved
        .map(|kind| {
            on_stream(
                format!("subgroup.reserved-type-{kind:#x}"),
                in_both("11.4.2", "11.3.1"),
                "a subgroup type with the reserved mode of the subgroup ID closes the session",
                move || [int(kind), int(ALIAS), vec![0; 8]].concat(),
            )
        })
        .collect()
}

fn datagram_types() -> Vec<Case> {
    let invalid = [
        0x22, 0x23, 0x26, 0x27, 0x2A, 0x2B, 0x2E, 0x2F, 0x10, 0x30, 0x40, 0x80, 0x9D,
    ];
    invalid
        .into_iter()
        .map(|kind| {
            in_datagram(
                format!("datagram.invalid-type-{kind:#x}"),
                in_both("11.3.1", "11.2.1"),
                "an invalid datagram type closes the session",
                move || [int(kind), int(ALIAS), vec![0; 8]].concat(),
            )
        })
        .collect()
}

fn datagrams() -> Vec<Case> {
    vec![
        in_datagram(
            "datagram.empty-properties",
            in_both("11.3.1", "11.2.1"),
            "a datagram with the bit PROPERTIES and a length of 0 closes the session",
            || [int(0x09), int(ALIAS), vec![0, 0, 0], b"a".to_vec()].concat(),
        ),
        in_datagram(
            "datagram.status-with-properties",
            in_both("11.3.1", "11.2.1"),
            "a datagram with properties and a status other than Normal closes the session",
            || [int(0x29), int(ALIAS), vec![0, 0, 2, 0x38, 1, 3]].concat(),
        ),
        in_datagram(
            "datagram.status-with-payload",
            in_both("11.3.1", "11.2.1"),
            "a datagram with a status has no payload",
            || [int(0x28), int(ALIAS), vec![0, 0, 3], b"payload".to_vec()].concat(),
        )
        .level(Level::Implied),
        in_datagram(
            "datagram.unknown-status",
            in_both("11.2.1.1", "11.1.1"),
            "an unknown object status should close the session",
            || [int(0x28), int(ALIAS), vec![0, 0, 9]].concat(),
        )
        .level(Level::Should),
        in_datagram(
            "datagram.cut",
            in_both("11.3.1", "11.2.1"),
            "a datagram contains its whole header",
            || [int(0x00), int(ALIAS)].concat(),
        )
        .level(Level::Implied),
        in_datagram(
            "datagram.empty",
            in_both("11", "11"),
            "a datagram starts with its type",
            Vec::new,
        )
        .level(Level::Implied),
    ]
}

fn objects() -> Vec<Case> {
    let header = || Subgroup::of(0).encode();
    vec![
        on_stream(
            "object.id-above-maximum",
            in_both("11.4.2", "11.3.1"),
            "an object ID beyond 2^64 - 1 closes the session",
            move || {
                let objects = [wire::object(u64::MAX, b"a"), wire::object(0, b"b")].concat();
                [header(), objects].concat()
            },
        ),
        on_stream(
            "object.status-with-properties",
            in_both("11.2.1.2", "11.1.2"),
            "properties of an object that is not Normal close the session",
            || {
                let header = Subgroup {
                    bits: subgroup::PROPERTIES,
                    ..Subgroup::of(0)
                };
                [header.encode(), vec![0, 2, 0x38, 1, 0, 3]].concat()
            },
        ),
        on_stream(
            "object.unknown-status-1",
            in_both("11.2.1.1", "11.1.1"),
            "an unknown object status should close the session",
            move || [header(), wire::status(0, 1)].concat(),
        )
        .level(Level::Should),
        on_stream(
            "object.unknown-status-9",
            in_both("11.2.1.1", "11.1.1"),
            "an unknown object status should close the session",
            move || [header(), wire::status(0, 9)].concat(),
        )
        .level(Level::Should),
        on_stream(
            "stream.finished-within-payload",
            in_both("11.4", "11.3"),
            "a stream that ends in the middle of an object should close the session",
            move || [header(), vec![0, 10], b"short".to_vec()].concat(),
        )
        .level(Level::Should),
        on_stream(
            "stream.finished-within-header",
            in_both("11.4", "11.3"),
            "a stream that ends in the middle of an object should close the session",
            move || [header(), vec![0xC0]].concat(),
        )
        .level(Level::Should),
    ]
}

/// Object properties that do not parse.
fn properties() -> Vec<Case> {
    fn with(properties: &[u8]) -> Vec<u8> {
        let header = Subgroup {
            bits: subgroup::PROPERTIES,
            ..Subgroup::of(0)
        };
        let object = [vec![0], wire::prefixed(properties), vec![1, b'a']].concat();
        [header.encode(), object].concat()
    }
    vec![
        closes(
            "property.dynamic-groups-2-in-immutable",
            in_both("12.7", "10.7"),
            "a property is looked for in the Immutable Properties too: a DYNAMIC_GROUPS above 1 closes the session",
            VIOLATION,
            |script| {
                let groups = wire::pairs(&[(property::DYNAMIC_GROUPS, Value::Int(2))]);
                let immutable = (property::IMMUTABLE, Value::Bytes(groups));
                wire::publish(0, &script.track, ALIAS, &[], &[immutable])
            },
        ),
        on_stream(
            "property.type-above-maximum",
            in_both("1.4.3", "8.3"),
            "a Delta Type beyond 2^64 - 1 closes the session",
            || with(&[int(0x38), int(1), int(u64::MAX), int(1)].concat()),
        ),
        on_stream(
            "property.value-65536-bytes",
            in_both("1.4.3", "8.3"),
            "a value of more than 65,535 bytes closes the session",
            || with(&[int(property::OF_APPLICATION), int(65_536), vec![b'x'; 8]].concat()),
        ),
    ]
}

fn padding() -> Vec<Case> {
    vec![
        Case::must(
            "padding.stream",
            in_both("11.5.1", "11.5.1"),
            "a receiver discards padding streams, so that they use up no flow control",
            |script| {
                script.join(A);
                script.then();
                for _ in 0..5 {
                    let zeros = vec![0; 1_000_000];
                    script.stream(A, [int(stream::PADDING), zeros].concat());
                }
                script.alive(A);
                script.stream(A, int(stream::PADDING));
                script.alive(A);
            },
        ),
        Case::must(
            "padding.datagram",
            in_both("11.5.2", "11.5.2"),
            "a receiver discards padding datagrams",
            |script| {
                script.join(A);
                script.then();
                for length in [0, 1, 1000] {
                    script.datagram(A, [int(stream::PADDING_DATAGRAM), vec![0; length]].concat());
                }
                script.alive(A);
            },
        ),
    ]
}
