//! What location filters of subscriptions let pass.

use crate::{
    case::{Case, Level},
    edition::{Sections, in_18, in_22, in_both},
    script::{A, B, C, Script, object, object_at, refused, subscribed},
    seen::Slot,
    wire::{self, Range, Request, Subgroup, group, refusal},
};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = ranges();
    cases.push(next_group());
    cases.extend(past());
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
