//! What location filters of subscriptions let pass, and filters that cannot be read.

use super::{VIOLATION, closes};
use crate::{
    case::{Case, Level},
    edition::{Sections, in_18, in_22, in_both},
    script::{A, B, C, Script, closed, object, object_at, refused, subscribed},
    seen::Slot,
    wire::{self, Range, Request, Subgroup, group, refusal},
};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = ranges();
    cases.push(next_group());
    cases.extend(past());
    cases.extend(malformed());
    cases.extend(malformed_in_others());
    cases
}

/// The last object of a group, whatever it is.
const WHOLE_GROUP: u64 = u64::MAX;

/// Ranges that the filter gives.
fn ranges() -> Vec<Case> {
    /// The subscriber's filter lets the second group pass, and neither the first nor the third.
    fn case(name: &str, sections: Sections, range: Range, third_passes: bool) -> Case {
        Case::must(
            format!("filter.{name}"),
            sections,
            "objects outside of the filter's range are not sent",
            move |script| {
                script.channel_with(B, A, vec![range.filter(script.edition)], &[]);
                script.then();
                for (number, payload) in [(10, b"1"), (11, b"2"), (12, b"3")] {
                    script.stream(B, group(Subgroup::of(number), &[&payload[..]]));
                }
                script.expect(A, object_at(11, 0, b"2"));
                script.never(A, object("group 10", |object| object.group == 10));
                if third_passes {
                    script.expect(A, object_at(12, 0, b"3"));
                } else {
                    script.never(A, object("group 12", |object| object.group == 12));
                }
            },
        )
    }
    let both = in_both("5.1.2", "3.3.1");
    let range = Range::Absolute((11, 0), (11, WHOLE_GROUP));
    vec![
        case("absolute-start", both, Range::From(11, 0), true),
        case("absolute-range", both, range, false),
        case(
            "range-of-objects",
            in_22("9.20.9"),
            Range::Absolute((11, 0), (11, 0)),
            false,
        ),
    ]
}

fn next_group() -> Case {
    Case::must(
        "filter.next-group",
        in_both("5.1.2", "3.3.1"),
        "with the filter Next Group Start, objects of the current group are not sent",
        |script| {
            script.channel(B, A);
            let slot = script.uni();
            script.write(B, slot, group(Subgroup::of(5), &[b"a"]));
            script.expect(A, object_at(5, 0, b"a"));
            script.join(C);
            let track = script.track.clone();
            let next = vec![Range::NextGroup.filter(script.edition)];
            let late = script.request_with(C, Request::Subscribe, track, next);
            script.expect(C, subscribed(late));
            script.then();
            script.write(B, slot, wire::object(0, b"b"));
            script.stream(B, group(Subgroup::of(6), &[b"c"]));
            script.expect(C, object_at(6, 0, b"c"));
            script.never(C, object("group 5", |object| object.group == 5));
        },
    )
}

/// A client subscribes to groups before the largest one. Returns the request.
fn ask_for_past(script: &mut Script) -> Slot {
    script.channel(B, A);
    script.stream(B, group(Subgroup::of(5), &[b"a"]));
    script.expect(A, object_at(5, 0, b"a"));
    script.join(C);
    script.then();
    let track = script.track.clone();
    let past = Range::Absolute((1, 0), (2, WHOLE_GROUP));
    let past = vec![past.filter(script.edition)];
    script.request_with(C, Request::Subscribe, track, past)
}

/// Ranges that were published before. They contradict each other: draft-18 refuses them, and draft-22 does not.
fn past() -> Vec<Case> {
    vec![
        Case::must(
            "filter.range-in-the-past",
            in_18("5.1.2"),
            "a SUBSCRIBE whose whole range was published should be refused with INVALID_RANGE",
            |script| {
                let slot = ask_for_past(script);
                script.expect(C, refused(slot, &[refusal::INVALID_RANGE]));
            },
        )
        .level(Level::Should),
        Case::must(
            "filter.valid-range-in-the-past",
            in_22("3.3.1"),
            "a SUBSCRIBE whose whole range was published is valid",
            |script| {
                let slot = ask_for_past(script);
                script.expect(C, subscribed(slot));
            },
        ),
    ]
}

/// A location filter: name, sections, requirement, level, type and fields.
type Filter = (
    &'static str,
    Sections,
    &'static str,
    Level,
    u64,
    &'static [u64],
);

/// Filters that a relay cannot read, in SUBSCRIBE.
fn malformed() -> impl Iterator<Item = Case> {
    let rows = malformed_of_18().into_iter().chain(malformed_of_22());
    rows.map(|(name, sections, requirement, level, kind, fields)| {
        closes(
            format!("filter.{name}"),
            sections,
            requirement,
            VIOLATION,
            move |script| {
                let filter = wire::filter(script.edition, kind, fields);
                Request::Subscribe.encode(0, &script.track, &[filter])
            },
        )
        .level(level)
    })
}

const UNKNOWN_FILTER: &str = "an unknown filter type closes the session";
const FILTER_ABOVE: &str = "a filter that ends beyond group 2^64 - 1 closes the session";
const FILTER_CUT: &str = "a filter ends with its last field";

fn malformed_of_18() -> [Filter; 5] {
    let at = in_18("5.1.2");
    [
        ("type-0", at, UNKNOWN_FILTER, Level::Must, 0, &[]),
        ("type-5", at, UNKNOWN_FILTER, Level::Must, 5, &[]),
        (
            "end-above-maximum",
            at,
            FILTER_ABOVE,
            Level::Must,
            4,
            &[u64::MAX, 0, 1],
        ),
        ("cut", at, FILTER_CUT, Level::Implied, 3, &[0]),
        ("too-long", at, FILTER_CUT, Level::Implied, 2, &[0]),
    ]
}

/// A filter that is cut or too long is a message of a wrong length.
fn malformed_of_22() -> [Filter; 6] {
    let (at, length) = (in_22("9.20.9"), in_22("9"));
    [
        ("type-6", at, UNKNOWN_FILTER, Level::Must, 6, &[]),
        ("type-128", at, UNKNOWN_FILTER, Level::Must, 128, &[]),
        (
            "end-above-maximum",
            at,
            FILTER_ABOVE,
            Level::Must,
            3,
            &[u64::MAX, 0, 1],
        ),
        (
            "range-above-maximum",
            at,
            FILTER_ABOVE,
            Level::Must,
            4,
            &[u64::MAX, 0, 1, 0],
        ),
        ("cut", length, FILTER_CUT, Level::Must, 2, &[0]),
        ("too-long", length, FILTER_CUT, Level::Must, 5, &[0]),
    ]
}

/// The filters of draft-22 in other messages than SUBSCRIBE.
fn malformed_in_others() -> Vec<Case> {
    let rows = [
        ("type-6", UNKNOWN_FILTER, 6, &[][..]),
        ("end-above-maximum", FILTER_ABOVE, 3, &[u64::MAX, 0, 1]),
    ];
    let mut cases = Vec::new();
    for (name, requirement, kind, fields) in rows {
        for request in [Request::Fetch, Request::Publish] {
            cases.push(closes(
                format!("filter.{name}-{}", request.word()),
                in_22("9.20.9"),
                requirement,
                VIOLATION,
                move |script| {
                    let filter = wire::filter(script.edition, kind, fields);
                    request.encode(0, &script.track, &[filter])
                },
            ));
        }
        cases.push(Case::must(
            format!("filter.{name}-request-update"),
            in_22("9.20.9"),
            requirement,
            move |script| {
                let channel = script.channel(B, A);
                script.then();
                let filter = wire::filter(script.edition, kind, fields);
                script.update(A, channel.subscription, vec![filter]);
                script.expect(A, closed(VIOLATION));
            },
        ));
    }
    cases
}
