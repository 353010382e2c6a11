//! Range filters and the limit that a relay announces for them, as draft-22 has them.

use weir_moqt::{error::RequestErrorCode, message::Message};

use crate::{
    case::Case,
    edition::in_22,
    script::{A, B, C, Check, Script, Step, message, object_at},
    seen::{Seen, Slot},
    wire::{Request, Subgroup, Value, group, int, parameter},
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
    cases
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
