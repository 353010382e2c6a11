//! Tracks that break the object model: the relay ends their subscriptions with `MALFORMED_TRACK`.

use weir_moqt::message::MessageKind;

use super::upstream_fetches;
use crate::{
    case::{Case, Level},
    edition::{Sections, in_both},
    script::{A, B, C, Script, Step, done, object_at, over, request},
    wire::{self, Subgroup, Value, group, property, subgroup},
};

/// What the publisher sends: streams, or a datagram.
enum Sent {
    Stream(Vec<u8>),
    Datagram(Vec<u8>),
}

/// A row: name, sections, level, requirement, what is sent first, which has to arrive, and what makes the track malformed.
type Row = (
    &'static str,
    Sections,
    Level,
    &'static str,
    fn() -> Sent,
    fn() -> Sent,
);

pub(super) fn cases() -> Vec<Case> {
    let rows = duplicates()
        .into_iter()
        .chain(ends())
        .chain(gaps())
        .chain(hidden());
    let rows = rows.map(|(name, sections, level, requirement, first, second)| {
        Case::must(
            format!("malformed.{name}"),
            sections,
            requirement,
            move |script: &mut Script| {
                let channel = script.channel(B, A);
                send(script, first());
                script.expect(A, object_at(2, 1, b"first"));
                script.then();
                send(script, second());
                let code = Some(wire::done::MALFORMED_TRACK);
                script.expect(A, done(channel.subscription, code));
            },
        )
        .level(level)
    });
    rows.chain([upstream(), of_fetch()]).collect()
}

fn send(script: &mut Script, sent: Sent) {
    match sent {
        Sent::Stream(bytes) => drop(script.stream(B, bytes)),
        Sent::Datagram(bytes) => script.datagram(B, bytes),
    }
}

/// Object 1 of group 2, in subgroup 0, and the FIN.
fn usual() -> Sent {
    of(Subgroup::of(2), &wire::object(1, b"first"))
}

fn of(header: Subgroup, objects: &[u8]) -> Sent {
    Sent::Stream([&header.encode()[..], objects].concat())
}

/// An object of subgroup 7 of a group, with a property.
fn with_property(group: u64, id: u64, properties: &[(u64, Value)]) -> Sent {
    let header = Subgroup {
        id: 7,
        bits: subgroup::PROPERTIES,
        ..Subgroup::of(group)
    };
    of(header, &wire::object_with(id, properties, b"x"))
}

/// The object with another payload.
fn other_payload() -> Sent {
    of(Subgroup::of(2), &wire::object(1, b"other"))
}

fn duplicates() -> [Row; 4] {
    let row = |name, second: fn() -> Sent| -> Row {
        let text = "a duplicate object that differs makes the track malformed";
        let at = in_both("9.1", "7.1");
        (name, at, Level::Must, text, usual, second)
    };
    [
        row("other-payload", other_payload),
        row("other-subgroup", || {
            let header = Subgroup {
                id: 1,
                ..Subgroup::of(2)
            };
            of(header, &wire::object(1, b"first"))
        }),
        row("other-priority", || {
            let header = Subgroup {
                priority: Some(3),
                ..Subgroup::of(2)
            };
            of(header, &wire::object(1, b"first"))
        }),
        row("other-preference", || {
            Sent::Datagram(wire::datagram(2, 1, b"first"))
        }),
    ]
}

/// What becomes of a fetch.
fn of_fetch() -> Case {
    Case::must(
        "malformed.resets-fetch",
        in_both("2.4.2", "12.1"),
        "fetch streams of a malformed track are reset with MALFORMED_TRACK",
        |script| {
            script.channel(B, C);
            script.step(Step::Behave(B, Box::new(|line| line.is_mute = true)));
            send(script, usual());
            script.expect(C, object_at(2, 1, b"first"));
            script.join(A);
            let track = script.track.clone();
            script.ask(A, move |id| wire::fetch(id, &track, (0, 0), (1, 0), &[]));
            let taken = script.taken();
            script.expect(B, request(taken, MessageKind::Fetch, |_| true));
            // The publisher sends one of the objects, and no end.
            script.write(B, taken, wire::fetch_ok(script.edition, (1, 0), &[]));
            upstream_fetches::serve(script, B, taken, &[0x1C, 0, 0, 128, 1, b'a']);
            script.expect(A, object_at(0, 0, b"a"));
            script.then();
            send(script, other_payload());
            let code = Some(wire::done::MALFORMED_TRACK);
            script.expect(A, upstream_fetches::stream_reset(code));
        },
    )
}

/// What becomes of the relay's own subscription.
fn upstream() -> Case {
    Case::must(
        "malformed.cancels-upstream",
        in_both("2.4.2", "12.1"),
        "a subscriber cancels its subscription to a malformed track",
        |script| {
            let channel = script.channel(B, A);
            send(script, usual());
            script.expect(A, object_at(2, 1, b"first"));
            script.then();
            send(script, other_payload());
            script.expect(B, over(channel.publication));
        },
    )
}

fn ends() -> [Row; 4] {
    const IMPLIED: Level = Level::Implied;
    [
        (
            "beyond-subgroup",
            in_both("2.4.2", "12.1"),
            IMPLIED,
            "an object beyond the last one of its subgroup makes the track malformed",
            usual,
            || of(Subgroup::of(2), &wire::object(4, b"more")),
        ),
        (
            "beyond-group",
            in_both("2.4.2", "12.1"),
            IMPLIED,
            "an object beyond the end of its group makes the track malformed",
            || {
                let objects = [wire::object(1, b"first"), wire::status(0, 3)].concat();
                of(Subgroup::of(2), &objects)
            },
            || {
                of(
                    Subgroup {
                        id: 5,
                        ..Subgroup::of(2)
                    },
                    &wire::object(6, b"more"),
                )
            },
        ),
        (
            "beyond-end-of-group-bit",
            in_both("2.4.2", "12.1"),
            IMPLIED,
            "an object beyond the end of its group makes the track malformed",
            || {
                let header = Subgroup {
                    bits: subgroup::FIRST_OBJECT | subgroup::END_OF_GROUP,
                    ..Subgroup::of(2)
                };
                of(header, &wire::object(1, b"first"))
            },
            || {
                of(
                    Subgroup {
                        id: 5,
                        ..Subgroup::of(2)
                    },
                    &wire::object(6, b"more"),
                )
            },
        ),
        (
            "beyond-track",
            in_both("2.4.2", "12.1"),
            IMPLIED,
            "an object beyond the end of the track makes the track malformed",
            || {
                let objects = [wire::object(1, b"first"), wire::status(0, 4)].concat();
                of(Subgroup::of(2), &objects)
            },
            || Sent::Stream(group(Subgroup::of(5), &[b"more"])),
        ),
    ]
}

fn gaps() -> [Row; 7] {
    const IMPLIED: Level = Level::Implied;
    const GROUP: u64 = property::PRIOR_GROUP_ID_GAP;
    const OBJECT: u64 = property::PRIOR_OBJECT_ID_GAP;
    [
        (
            "mandatory-property",
            in_both("2.5.1", "3.7"),
            Level::Implied,
            "an object with a mandatory track property makes the track malformed",
            usual,
            || with_property(3, 0, &[(property::MANDATORY_UNKNOWN, Value::Int(1))]),
        ),
        (
            "nested-immutable",
            in_both("12.7", "10.7"),
            IMPLIED,
            "immutable properties inside of others make the track malformed",
            usual,
            || {
                let inner = wire::pairs(&[(property::IMMUTABLE, Value::Bytes(vec![]))]);
                with_property(3, 0, &[(property::IMMUTABLE, Value::Bytes(inner))])
            },
        ),
        (
            "group-gap-too-large",
            in_both("12.8", "10.8"),
            IMPLIED,
            "a Prior Group ID Gap larger than the group ID makes the track malformed",
            usual,
            || with_property(3, 0, &[(GROUP, Value::Int(4))]),
        ),
        (
            "group-gap-over-object",
            in_both("12.8", "10.8"),
            IMPLIED,
            "a Prior Group ID Gap over a received object makes the track malformed",
            usual,
            || with_property(3, 0, &[(GROUP, Value::Int(2))]),
        ),
        (
            "group-gap-repeated",
            in_both("12.8", "10.8"),
            IMPLIED,
            "two Prior Group ID Gaps in an object make the track malformed",
            usual,
            || with_property(9, 0, &[(GROUP, Value::Int(1)), (GROUP, Value::Int(1))]),
        ),
        (
            "object-gap-too-large",
            in_both("12.9", "10.9"),
            IMPLIED,
            "a Prior Object ID Gap larger than the object ID makes the track malformed",
            usual,
            || with_property(3, 1, &[(OBJECT, Value::Int(2))]),
        ),
        (
            "object-gap-over-object",
            in_both("12.9", "10.9"),
            IMPLIED,
            "a Prior Object ID Gap over a received object makes the track malformed",
            usual,
            || with_property(2, 4, &[(OBJECT, Value::Int(3))]),
        ),
    ]
}

/// Gaps that are repeated, or in the Immutable Properties.
fn hidden() -> [Row; 2] {
    const IMPLIED: Level = Level::Implied;
    const GROUP: u64 = property::PRIOR_GROUP_ID_GAP;
    const OBJECT: u64 = property::PRIOR_OBJECT_ID_GAP;
    [
        (
            "group-gap-in-immutable",
            in_both("12.7", "10.7"),
            IMPLIED,
            "a Prior Group ID Gap is looked for in the Immutable Properties too",
            usual,
            || {
                let gap = wire::pairs(&[(GROUP, Value::Int(4))]);
                with_property(3, 0, &[(property::IMMUTABLE, Value::Bytes(gap))])
            },
        ),
        (
            "object-gap-repeated",
            in_both("12.9", "10.9"),
            IMPLIED,
            "two Prior Object ID Gaps in an object make the track malformed",
            usual,
            || with_property(9, 3, &[(OBJECT, Value::Int(1)), (OBJECT, Value::Int(1))]),
        ),
    ]
}
