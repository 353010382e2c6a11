//! Fills: past objects of a subscription, which draft-22 requests with a parameter of SUBSCRIBE or of its update.

use weir_moqt::{
    message::{Message, MessageKind},
    parameter::GroupOrder,
};

use super::{VIOLATION, closes, fetching::stock, upstream_fetches};
use crate::{
    case::Case,
    edition::{Edition, in_22},
    line::Line,
    script::{
        A, B, C, Channel, Check, Script, Step, fetched, message, object_at, ok, progress, request,
        subscribed,
    },
    seen::Slot,
    wire::{self, Range, Request, Subgroup, Value, group, parameter},
};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = ranges();
    cases.extend(of_updates());
    cases.extend(without_stream());
    cases.push(descending());
    cases.push(counted());
    cases.push(cancelled());
    cases.extend(malformed());
    cases
}

/// Objects of the stock, in order.
type Found = &'static [(u64, u64)];

const ALL: Found = &[(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)];

/// Joins and subscribes to a stock with parameters.
fn subscribe(script: &mut Script, parameters: Vec<(u64, Value)>) -> Slot {
    script.join(A);
    let track = script.track.clone();
    let slot = script.request_with(A, Request::Subscribe, track, parameters);
    script.expect(A, subscribed(slot));
    slot
}

/// Returns a fill of a range, or of the range of the subscription.
fn fill(script: &Script, range: Option<Range>) -> (u64, Value) {
    let filter = range.map(|range| range.filter(script.edition));
    wire::fill(filter.as_slice())
}

/// The range that a fill returns: the filter of the subscription, and that of its fill.
fn ranges() -> Vec<Case> {
    let case = |name: &str, text: &str, live: Option<Range>, past: Option<Range>, found: Found| {
        Case::must(name, in_22("3.4"), text, move |script| {
            stock(script);
            script.then();
            let filter = live.map(|range| range.filter(script.edition));
            let parameters = filter.into_iter().chain([fill(script, past)]);
            subscribe(script, parameters.collect());
            script.expect(A, fetched(0, found));
        })
    };
    let next = Some(Range::NextObject);
    vec![
        case(
            "fill.current-group",
            "a fill with a relative start of 1 returns the current group, on a stream with the Request ID of SUBSCRIBE",
            next,
            Some(Range::Recent(0)),
            &[(1, 0), (1, 1), (1, 2)],
        ),
        case(
            "fill.two-groups",
            "a fill with a relative start of 2 starts a group earlier",
            next,
            Some(Range::Recent(1)),
            ALL,
        ),
        case(
            "fill.absolute-range",
            "a fill returns the objects of its range, both ends included",
            next,
            Some(Range::Absolute((0, 1), (1, 1))),
            &[(0, 1), (0, 2), (1, 0), (1, 1)],
        ),
        case(
            "fill.ends-with-largest",
            "a fill ends with the largest object, whatever its filter says",
            next,
            Some(Range::Absolute((1, 1), (300, u64::MAX))),
            &[(1, 1), (1, 2)],
        ),
        case(
            "fill.range-of-subscription",
            "a fill without a filter has the range of its subscription",
            Some(Range::From(1, 1)),
            None,
            &[(1, 1), (1, 2)],
        ),
        case(
            "fill.whole-track",
            "a fill of a subscription without a filter is the whole track up to the largest object",
            None,
            None,
            ALL,
        ),
    ]
}

/// Fills that an update requests.
fn of_updates() -> Vec<Case> {
    let update = |script: &mut Script, slot: Slot, range: Range| {
        let parameters = vec![fill(script, Some(range))];
        script.update(A, slot, parameters);
        script.expect(A, ok(slot));
    };
    vec![
        Case::must(
            "fill.by-update",
            in_22("3.4"),
            "a fill that an update requests has the Request ID of the update",
            move |script| {
                stock(script);
                let next = vec![Range::NextObject.filter(script.edition)];
                let slot = subscribe(script, next);
                script.then();
                update(script, slot, Range::Recent(0));
                script.expect(A, fetched(2, &[(1, 0), (1, 1), (1, 2)]));
            },
        ),
        Case::must(
            "fill.two-at-once",
            in_22("3.4"),
            "a new fill does not cancel an earlier one",
            move |script| {
                stock(script);
                let next = vec![Range::NextObject.filter(script.edition)];
                let slot = subscribe(script, next);
                script.then();
                update(script, slot, Range::From(0, 0));
                update(script, slot, Range::Recent(0));
                script.expect(A, fetched(2, ALL));
                script.expect(A, fetched(4, &[(1, 0), (1, 1), (1, 2)]));
            },
        ),
        Case::must(
            "fill.update-without",
            in_22("3.4.1"),
            "an update without FILL_PARAMETERS opens no fill fetch stream",
            |script| {
                stock(script);
                let next = vec![Range::NextObject.filter(script.edition)];
                let slot = subscribe(script, next);
                script.then();
                let priority = (parameter::SUBSCRIBER_PRIORITY, Value::Byte(7));
                script.update(A, slot, vec![priority]);
                script.expect(A, ok(slot));
                script.never(A, fetch_stream());
            },
        ),
    ]
}

/// The relay has opened a fetch stream.
fn fetch_stream() -> Check {
    Check::new("a fill fetch stream", |seen| {
        let mut streams = seen.streams();
        progress(streams.any(|(_, one)| one.fetch.is_some()))
    })
}

/// Fills for which no stream is opened.
fn without_stream() -> Vec<Case> {
    let goes_on = |script: &mut Script| {
        script.never(A, fetch_stream());
        script.stream(B, group(Subgroup::of(9), &[b"a"]));
        script.expect(A, object_at(9, 0, b"a"));
    };
    vec![
        Case::must(
            "fill.forward-0",
            in_22("3.4.1"),
            "a fill of a subscription with Forward State 0 opens no stream, not even after the state becomes 1",
            |script| {
                stock(script);
                script.then();
                let fill = fill(script, Some(Range::Recent(0)));
                let paused = (parameter::FORWARD, Value::Byte(0));
                let slot = subscribe(script, vec![paused, fill]);
                script.update(A, slot, vec![(parameter::FORWARD, Value::Byte(1))]);
                script.expect(A, ok(slot));
                script.never(A, fetch_stream());
            },
        ),
        Case::must(
            "fill.beyond-largest",
            in_22("3.4"),
            "a fill that starts after the largest object opens no stream",
            move |script| {
                stock(script);
                script.then();
                let fill = fill(script, Some(Range::From(7, 0)));
                subscribe(script, vec![fill]);
                goes_on(script);
            },
        ),
        Case::must(
            "fill.nothing-published",
            in_22("3.4"),
            "a fill of a track without objects opens no stream",
            move |script| {
                script.channel(B, C);
                script.then();
                let fill = fill(script, Some(Range::Recent(0)));
                subscribe(script, vec![fill]);
                goes_on(script);
            },
        ),
    ]
}

fn descending() -> Case {
    Case::must(
        "fill.descending",
        in_22("9.20.8"),
        "GROUP_ORDER inside FILL_PARAMETERS orders the groups of the fill",
        |script| {
            stock(script);
            script.then();
            let parameters = [
                Range::Recent(1).filter(script.edition),
                (parameter::GROUP_ORDER, Value::Byte(2)),
            ];
            script.join(A);
            let descending = |line: &mut Line| line.seen.fetch_order = GroupOrder::Descending;
            script.step(Step::Behave(A, Box::new(descending)));
            let next = Range::NextObject.filter(script.edition);
            let track = script.track.clone();
            let parameters = vec![next, wire::fill(&parameters)];
            let slot = script.request_with(A, Request::Subscribe, track, parameters);
            script.expect(A, subscribed(slot));
            let order = &[(1, 0), (1, 1), (1, 2), (0, 0), (0, 1), (0, 2)];
            script.expect(A, fetched(0, order));
        },
    )
}

/// The stream of a fill is one of those that `PUBLISH_DONE` counts.
fn counted() -> Case {
    Case::must(
        "fill.stream-count",
        in_22("9.9"),
        "Stream Count of PUBLISH_DONE includes fill fetch streams, or is unknown",
        |script| {
            let Channel { publication, .. } = stock(script);
            let next = Range::NextObject.filter(script.edition);
            let fill = fill(script, Some(Range::Recent(0)));
            let slot = subscribe(script, vec![next, fill]);
            script.expect(A, fetched(0, &[(1, 0), (1, 1), (1, 2)]));
            script.stream(B, group(Subgroup::of(2), &[b"a"]));
            script.expect(A, object_at(2, 0, b"a"));
            script.then();
            let ended = wire::publish_done(wire::done::TRACK_ENDED, 3, b"");
            script.write(B, publication, ended);
            script.finish(B, publication);
            let text = "PUBLISH_DONE with 2 streams, or an unknown number";
            script.expect(
                A,
                message(slot, text, |message| {
                    matches!(message, Message::PublishDone(done) if matches!(done.stream_count, Some(2) | None))
                }),
            );
        },
    )
}

/// A subscription that is cancelled before its fill is complete.
fn cancelled() -> Case {
    Case::must(
        "fill.cancelled-with-subscription",
        in_22("3.4.1"),
        "when a subscription is cancelled, its open fill fetch streams are reset",
        |script| {
            script.channel(B, C);
            script.step(Step::Behave(B, Box::new(|line| line.is_mute = true)));
            script.stream(B, group(Subgroup::of(5), &[b"a"]));
            script.expect(C, object_at(5, 0, b"a"));
            let next = Range::NextObject.filter(script.edition);
            let fill = fill(script, Some(Range::From(0, 0)));
            let slot = subscribe(script, vec![next, fill]);
            let taken = script.taken();
            script.expect(B, request(taken, MessageKind::Fetch, |_| true));
            // The publisher sends one of the earlier objects, and no end.
            script.write(B, taken, wire::fetch_ok(script.edition, (4, 0), &[]));
            upstream_fetches::serve(script, B, taken, &[0x1C, 1, 0, 128, 1, b'b']);
            script.expect(A, object_at(1, 0, b"b"));
            script.then();
            script.stop(A, slot, 1);
            script.reset(A, slot, 1);
            script.expect(A, upstream_fetches::stream_reset(None));
        },
    )
}

/// Returns a fill with a location filter.
fn of_filter(kind: u64, fields: &[u64]) -> (u64, Value) {
    wire::fill(&[wire::filter(Edition::TwentyTwo, kind, fields)])
}

/// Parameters that a fill may not have.
fn malformed() -> Vec<Case> {
    let case = |name: &str, sections, text: &str, parameter: fn() -> (u64, Value)| {
        closes(name, sections, text, VIOLATION, move |script| {
            Request::Subscribe.encode(0, &script.track, &[parameter()])
        })
    };
    let unlisted = "a parameter inside FILL_PARAMETERS that may not be there closes the session";
    let above = "a filter that ends beyond group 2^64 - 1 closes the session";
    vec![
        case("fill.with-forward", in_22("9.20.15"), unlisted, || {
            wire::fill(&[(parameter::FORWARD, Value::Byte(1))])
        }),
        case("fill.with-fill", in_22("9.20.15"), unlisted, || {
            wire::fill(&[wire::fill(&[])])
        }),
        case(
            "fill.with-unknown-parameter",
            in_22("9.20.15"),
            unlisted,
            || wire::fill(&[(0x70, Value::Int(1))]),
        ),
        case(
            "fill.group-order-3",
            in_22("9.20.8"),
            "a GROUP_ORDER that is neither 1 nor 2 closes the session",
            || wire::fill(&[(parameter::GROUP_ORDER, Value::Byte(3))]),
        ),
        case("fill.with-token", in_22("9.20.15"), unlisted, || {
            let token = (parameter::AUTHORIZATION_TOKEN, Value::Bytes(vec![3, 0]));
            wire::fill(&[token])
        }),
        case(
            "fill.with-track-property-filter",
            in_22("9.20.15"),
            unlisted,
            || {
                let filter = Value::Bytes(vec![0, 0x38, 0, 5]);
                wire::fill(&[(parameter::TRACK_PROPERTY_FILTER, filter)])
            },
        ),
        case(
            "fill.unknown-filter",
            in_22("9.20.9"),
            "an unknown filter type closes the session",
            || of_filter(6, &[]),
        ),
        case("fill.filter-above-maximum", in_22("9.20.9"), above, || {
            of_filter(3, &[u64::MAX, 0, 1])
        }),
        case("fill.range-above-maximum", in_22("9.20.9"), above, || {
            of_filter(4, &[u64::MAX, 0, 1, 0])
        }),
    ]
}
