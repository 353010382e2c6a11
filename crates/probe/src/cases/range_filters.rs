//! Range filters and the limit that a relay announces for them, as draft-22 has them.

use weir_moqt::{error::RequestErrorCode, message::Message};

use crate::{
    case::Case,
    edition::in_22,
    script::{A, B, C, Check, Script, Step, done, message, object_at},
    seen::{Seen, Slot},
    wire::{self, Request, Subgroup, Value, group, int, parameter},
};

pub(super) fn cases() -> Vec<Case> {
    let requests = [Request::Subscribe, Request::Fetch, Request::SubscribeTracks];
    let beyond = requests.into_iter().map(|request| {
        Case::must(
            format!("range-filter.beyond-limit-{}", request.word()),
            in_22("9.1.6"),
            "more ranges than MAX_FILTER_RANGES permits are refused with INVALID_FILTER",
            move |script| {
                begin(script);
                let slot = ask(script, request, |most| vec![subgroups(most + 1)]);
                script.expect(A, invalid_filter(slot));
            },
        )
    });
    let mut cases: Vec<Case> = beyond.collect();
    cases.push(Case::must(
        "range-filter.repeated",
        in_22("3.3.2"),
        "two filters of one kind in a set are refused with INVALID_FILTER",
        |script| {
            begin(script);
            let slot = ask(script, Request::Subscribe, |_| {
                vec![subgroups(1), subgroups(1)]
            });
            script.expect(A, invalid_filter(slot));
        },
    ));
    cases.extend(invalid());
    cases.push(in_update());
    cases
}

/// Filters whose ranges or types are invalid.
fn invalid() -> impl Iterator<Item = Case> {
    use Request::{Subscribe, SubscribeTracks};
    let above = "a range beyond 2^64 - 1 is refused with INVALID_FILTER";
    let odd = "a filter of a property with an odd type is refused with INVALID_FILTER";
    let priority = "a filter of a priority above 255 is refused with INVALID_FILTER";
    let rows = [
        (
            "start-above-maximum",
            in_22("8.6"),
            above,
            Subscribe,
            parameter::SUBGROUP_FILTER,
            [vec![0, 2, 0], int(u64::MAX), vec![0]].concat(),
        ),
        (
            "end-above-maximum",
            in_22("8.6"),
            above,
            Subscribe,
            parameter::SUBGROUP_FILTER,
            [vec![0, 2], int(u64::MAX)].concat(),
        ),
        (
            "priority-256",
            in_22("9.20.12"),
            priority,
            Subscribe,
            parameter::PRIORITY_FILTER,
            [vec![0], int(256), vec![0]].concat(),
        ),
        (
            "odd-object-property",
            in_22("9.20.13"),
            odd,
            Subscribe,
            parameter::OBJECT_PROPERTY_FILTER,
            vec![0, 0x39, 0, 5],
        ),
        (
            "odd-track-property",
            in_22("9.20.14"),
            odd,
            SubscribeTracks,
            parameter::TRACK_PROPERTY_FILTER,
            vec![0, 0x39, 0, 5],
        ),
    ];
    rows.into_iter()
        .map(|(name, sections, text, request, kind, value)| {
            let name = format!("range-filter.{name}");
            Case::must(name, sections, text, move |script| {
                begin(script);
                let value = Value::Bytes(value.clone());
                let slot = ask(script, request, move |_| vec![(kind, value.clone())]);
                script.expect(A, invalid_filter(slot));
            })
        })
}

/// An update with too many ranges, with which the subscription ends.
fn in_update() -> Case {
    Case::must(
        "range-filter.update-ends-subscription",
        in_22("9.5.1"),
        "after an update that fails, the subscription ends with PUBLISH_DONE UPDATE_FAILED",
        |script| {
            let channel = script.channel(B, A);
            script.then();
            let twice = vec![subgroups(1), subgroups(1)];
            script.update(A, channel.subscription, twice);
            script.expect(A, invalid_filter(channel.subscription));
            let code = Some(wire::done::UPDATE_FAILED);
            script.expect(A, done(channel.subscription, code));
        },
    )
}

/// A track with an object, and a client that asks for it.
fn begin(script: &mut Script) {
    script.channel(B, C);
    script.stream(B, group(Subgroup::of(0), &[b"a"]));
    script.expect(C, object_at(0, 0, b"a"));
    script.join(A);
    script.then();
}

/// Sends a request with the filters that `filters` returns, given the most ranges that the relay permits.
fn ask(
    script: &mut Script,
    request: Request,
    filters: impl Fn(u64) -> Vec<(u64, Value)> + Send + 'static,
) -> Slot {
    let (slot, track) = (script.bi(), script.track.clone());
    let reply = move |seen: &Seen| {
        let most = seen.setup().and_then(|setup| setup.max_filter_ranges);
        let most = most.unwrap_or(0);
        if most > RANGES_MAX {
            return Err("the relay permits more ranges than a message has".to_owned());
        }
        Ok(request.encode(0, &track, &filters(most)))
    };
    script.step(Step::Reply(A, slot, Box::new(reply)));
    slot
}

/// Returns a filter of the subgroup ID with so many ranges, each of one ID.
fn subgroups(ranges: u64) -> (u64, Value) {
    let mut value = vec![0];
    for _ in 0..ranges {
        value.extend([int(2), int(0)].concat());
    }
    (parameter::SUBGROUP_FILTER, Value::Bytes(value))
}

/// The next message is `REQUEST_ERROR` with `INVALID_FILTER`.
fn invalid_filter(slot: Slot) -> Check {
    message(
        slot,
        "REQUEST_ERROR INVALID_FILTER",
        |message| matches!(message, Message::RequestError(error) if error.code == RequestErrorCode::INVALID_FILTER),
    )
}

/// The most ranges with which a case still fits a message.
const RANGES_MAX: u64 = 10_000;
