//! FETCH, standalone and joining.

use weir_moqt::{
    data::RangeEnd,
    message::{Message, MessageKind},
    parameter::GroupOrder,
};

use super::{VIOLATION, closes};
use crate::{
    case::Case,
    edition::{in_18, in_22, in_both},
    script::{
        A, B, C, Channel, Check, Progress, Script, Step, fetched, kind, message, object_at,
        progress, refused,
    },
    seen::{Object, Slot, Way},
    wire::{self, Range, Request, Subgroup, Value, framed, group, int, parameter, refusal},
};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = refusals();
    cases.extend(ranges());
    cases.extend(filters());
    cases.extend(filters_beyond());
    cases.push(timeout_0());
    cases.extend(orders());
    cases.extend(joining_refusals());
    cases.extend(joining());
    for fetch_type in [0_u64, 4] {
        cases.push(closes(
            format!("fetch.type-{fetch_type}"),
            in_18("10.12"),
            "a FETCH of an unknown type closes the session",
            VIOLATION,
            move |script| {
                let range = vec![0, 0, 0, 0, 0];
                let payload = [int(0), int(fetch_type), script.track.full(), range].concat();
                framed(wire::message::FETCH, &payload)
            },
        ));
    }
    cases
}

/// A publisher with the objects {0, 0} to {1, 2}, which answers fetches with them, and a subscriber that received them.
pub(super) fn stock(script: &mut Script) -> Channel {
    let channel = script.channel(B, C);
    let library = |line: &mut crate::line::Line| {
        line.library = (0..2)
            .flat_map(|group| (0..3).map(move |id| (group, id, payload(group, id))))
            .collect();
    };
    script.step(Step::Behave(B, Box::new(library)));
    for number in 0..2 {
        let payloads: Vec<Vec<u8>> = (0..3).map(|id| payload(number, id)).collect();
        let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
        script.stream(B, group(Subgroup::of(number), &payloads));
    }
    for number in 0..2 {
        for id in 0..3 {
            script.expect(C, object_at(number, id, &payload(number, id)));
        }
    }
    channel
}

fn payload(group: u64, id: u64) -> Vec<u8> {
    format!("object {id} of group {group}").into_bytes()
}

/// Sends a FETCH of a range; the end is the last object plus one, or 0 for the whole group.
fn fetch(script: &mut Script, start: (u64, u64), end: (u64, u64)) -> Slot {
    let track = script.track.clone();
    script.ask(A, move |id| wire::fetch(id, &track, start, end, &[]))
}

fn refusals() -> Vec<Case> {
    const RANGE: &[u64] = &[refusal::INVALID_RANGE];
    vec![
        Case::must(
            "fetch.no-publisher",
            in_both("5.2", "3.2"),
            "a FETCH gets exactly one FETCH_OK or REQUEST_ERROR",
            |script| {
                script.join(A);
                script.then();
                let slot = script.request(A, Request::Fetch);
                script.expect(A, refused(slot, &[]));
            },
        ),
        Case::must(
            "fetch.beyond-largest",
            in_both("10.12.3", "3.2"),
            "a FETCH that starts beyond the largest object is refused with INVALID_RANGE",
            |script| {
                stock(script);
                script.join(A);
                script.then();
                let slot = fetch(script, (7, 0), (8, 0));
                script.expect(A, refused(slot, RANGE));
            },
        ),
        Case::must(
            "fetch.nothing-published",
            in_both("10.12.3", "3.2"),
            "a FETCH of a track without objects is refused with INVALID_RANGE",
            |script| {
                script.channel(B, C);
                script.join(A);
                script.then();
                let slot = fetch(script, (0, 0), (1, 0));
                script.expect(A, refused(slot, RANGE));
            },
        ),
    ]
}

fn ranges() -> Vec<Case> {
    let case = |name: &str, later, text: &str, start, end, found: &'static [(u64, u64)]| {
        Case::must(name, in_both("10.12.3", later), text, move |script| {
            stock(script);
            script.join(A);
            script.then();
            let slot = fetch(script, start, end);
            script.expect(A, kind(slot, MessageKind::FetchOk));
            script.expect(A, fetched(0, found));
            if let Some((group, id)) = found.first() {
                script.expect(A, object_at(*group, *id, &payload(*group, *id)));
            }
        })
    };
    vec![
        case(
            "fetch.all",
            "3.2.1",
            "a FETCH returns all objects of its range, in order, on one stream",
            (0, 0),
            (1, 0),
            &[(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)],
        ),
        case(
            "fetch.part",
            "3.3.1",
            "a FETCH returns no objects outside of its range",
            (0, 1),
            (1, 2),
            &[(0, 1), (0, 2), (1, 0), (1, 1)],
        ),
        case(
            "fetch.one-group",
            "3.2",
            "a FETCH may ask for a whole group",
            (0, 0),
            (0, 0),
            &[(0, 0), (0, 1), (0, 2)],
        ),
        case(
            "fetch.one-object",
            "3.2",
            "a range of one object returns one object",
            (1, 1),
            (1, 2),
            &[(1, 1)],
        ),
    ]
}

/// The ranges of filters, which draft-22 has.
fn filters() -> Vec<Case> {
    type Found = &'static [(u64, u64)];
    let case = |name: &str, sections, text: &str, range: Option<Range>, found: Found| {
        Case::must(name, sections, text, move |script| {
            stock(script);
            script.join(A);
            script.then();
            let slot = fetch_range(script, range);
            script.expect(A, kind(slot, MessageKind::FetchOk));
            script.expect(A, fetched(0, found));
        })
    };
    vec![
        case(
            "fetch.without-filter",
            in_22("3.2"),
            "a FETCH without a filter returns all objects up to the largest one",
            None,
            &[(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)],
        ),
        case(
            "fetch.current-group",
            in_22("9.20.9"),
            "a filter with a relative start of 1 starts with the group of the largest object",
            Some(Range::Recent(0)),
            &[(1, 0), (1, 1), (1, 2)],
        ),
        case(
            "fetch.start-only",
            in_22("9.20.9"),
            "a FETCH whose filter has no end ends with the largest object",
            Some(Range::From(0, 2)),
            &[(0, 2), (1, 0), (1, 1), (1, 2)],
        ),
        case(
            "fetch.start-of-track",
            in_22("9.20.9"),
            "a filter with the absolute start {0, 0} starts with the track",
            Some(Range::From(0, 0)),
            &[(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)],
        ),
    ]
}

/// Filters that start beyond the largest object.
fn filters_beyond() -> Vec<Case> {
    let case = |name: &str, text: &str, range: Range| {
        Case::must(name, in_22("3.2"), text, move |script| {
            stock(script);
            script.join(A);
            script.then();
            let slot = fetch_range(script, Some(range));
            script.expect(A, refused(slot, &[refusal::INVALID_RANGE]));
        })
    };
    vec![
        case(
            "fetch.next-group",
            "a FETCH that starts beyond the largest object is refused with INVALID_RANGE",
            Range::NextGroup,
        ),
        case(
            "fetch.next-object",
            "a FETCH that starts beyond the largest object is refused with INVALID_RANGE",
            Range::NextObject,
        ),
    ]
}

fn timeout_0() -> Case {
    Case::must(
        "fetch.fill-timeout-0",
        in_22("9.20.5"),
        "with a FILL_TIMEOUT of 0, a relay reports objects that it does not have as timed out",
        |script| {
            script.channel(B, C);
            script.step(Step::Behave(B, Box::new(|line| line.is_mute = true)));
            script.stream(B, group(Subgroup::of(5), &[b"a"]));
            script.expect(C, object_at(5, 0, b"a"));
            script.join(A);
            script.then();
            let track = script.track.clone();
            let at_once = (parameter::FILL_TIMEOUT, Value::Int(0));
            script.ask(A, move |id| {
                wire::fetch(id, &track, (0, 0), (5, 0), std::slice::from_ref(&at_once))
            });
            script.expect(A, fetched(0, &[(5, 0)]));
            script.expect(A, timed_out());
        },
    )
}

/// Sends a FETCH with a filter, or without one.
fn fetch_range(script: &mut Script, range: Option<Range>) -> Slot {
    let (track, edition) = (script.track.clone(), script.edition);
    let parameters = range.map(|range| range.filter(edition));
    let parameters = parameters.into_iter().collect();
    script.request_with(A, Request::Fetch, track, parameters)
}

/// A fetch stream says that objects timed out.
fn timed_out() -> Check {
    Check::new("End of Timed-Out Range", |seen| match seen.gaps.first() {
        Some((_, RangeEnd::TimedOut)) => Progress::Met,
        Some((_, other)) => Progress::Broken(format!("the relay sent the end {other:?}")),
        None => Progress::Pending,
    })
}

/// Group orders, ends and forwarding preferences.
fn orders() -> Vec<Case> {
    vec![
        Case::must(
            "fetch.descending",
            in_both("10.12.3", "3.2.1"),
            "a FETCH in descending group order returns the newest group first",
            |script| {
                stock(script);
                script.join(A);
                let descending = |line: &mut crate::line::Line| {
                    line.seen.fetch_order = GroupOrder::Descending;
                };
                script.step(Step::Behave(A, Box::new(descending)));
                script.then();
                let track = script.track.clone();
                let slot = script.ask(A, move |id| {
                    let order = (parameter::GROUP_ORDER, Value::Byte(2));
                    wire::fetch(id, &track, (0, 0), (1, 0), &[order])
                });
                script.expect(A, kind(slot, MessageKind::FetchOk));
                let order = &[(1, 0), (1, 1), (1, 2), (0, 0), (0, 1), (0, 2)];
                script.expect(A, fetched(0, order));
            },
        ),
        Case::must(
            "fetch.end-beyond-largest",
            in_both("10.13", "9.12"),
            "FETCH_OK ends with the largest object if the range ends beyond it",
            |script| {
                stock(script);
                script.join(A);
                script.then();
                let slot = fetch(script, (0, 0), (9, 0));
                script.expect(
                    A,
                    message(slot, "FETCH_OK up to object 2 of group 1", |message| {
                        // The codec reads ends as inclusive.
                        let end = weir_moqt::location::Location::new(1, 2);
                        matches!(message, Message::FetchOk(ok) if ok.end == end)
                    }),
                );
            },
        ),
        Case::must(
            "fetch.datagram",
            in_both("11.4.4.1", "11.4.1.1"),
            "an object that was published as a datagram is marked as one in a fetch",
            |script| {
                script.channel(B, C);
                script.datagram(B, wire::datagram(0, 0, b"datagram"));
                script.expect(C, object_at(0, 0, b"datagram"));
                script.join(A);
                script.then();
                fetch(script, (0, 0), (0, 1));
                script.expect(A, fetched_as_datagram());
            },
        ),
    ]
}

/// An object that arrived by a fetch has no subgroup.
fn fetched_as_datagram() -> Check {
    Check::new("an object with the bit for datagrams", |seen| {
        let is_fetched = |object: &&Object| matches!(object.way, Way::Fetch { .. });
        match seen.objects.iter().find(is_fetched) {
            Some(object) if object.subgroup.is_none() => Progress::Met,
            Some(_) => Progress::Broken("the object has a subgroup".to_owned()),
            None => progress(false),
        }
    })
}

fn joining_refusals() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, fetch_type) in [("relative", 2), ("absolute", 3)] {
        cases.push(Case::must(
            format!("joining-fetch.unknown-request-{name}"),
            in_18("10.12.2"),
            "a joining FETCH of an unknown subscription is refused with INVALID_JOINING_REQUEST_ID",
            move |script| {
                script.join(A);
                script.then();
                let slot = script.ask(A, move |id| wire::joining_fetch(id, fetch_type, 4000, 0));
                script.expect(A, refused(slot, &[refusal::INVALID_JOINING_REQUEST_ID]));
            },
        ));
        cases.push(Case::must(
            format!("joining-fetch.no-objects-{name}"),
            in_18("10.12.2"),
            "a joining FETCH of a track without objects is refused with INVALID_RANGE",
            move |script| {
                script.channel(B, A);
                script.then();
                let slot = script.ask(A, move |id| wire::joining_fetch(id, fetch_type, 0, 0));
                script.expect(A, refused(slot, &[refusal::INVALID_RANGE]));
            },
        ));
        cases.push(Case::must(
            format!("joining-fetch.forward-0-{name}"),
            in_18("10.12.2"),
            "a joining FETCH of a subscription with Forward State 0 is refused with INVALID_RANGE",
            move |script| {
                stock(script);
                script.join(A);
                let track = script.track.clone();
                let paused = vec![(parameter::FORWARD, Value::Byte(0))];
                let subscription = script.request_with(A, Request::Subscribe, track, paused);
                script.expect(A, kind(subscription, MessageKind::SubscribeOk));
                script.then();
                let slot = script.ask(A, move |id| wire::joining_fetch(id, fetch_type, 0, 0));
                script.expect(A, refused(slot, &[refusal::INVALID_RANGE]));
            },
        ));
    }
    cases
}

fn joining() -> Vec<Case> {
    let case = |name: &str, text: &str, fetch_type, start, found: &'static [(u64, u64)]| {
        Case::must(name, in_18("10.12.2.1"), text, move |script| {
            stock(script);
            script.join(A);
            let subscription = script.request(A, Request::Subscribe);
            script.expect(A, kind(subscription, MessageKind::SubscribeOk));
            script.then();
            let slot = script.ask(A, move |id| wire::joining_fetch(id, fetch_type, 0, start));
            script.expect(A, kind(slot, MessageKind::FetchOk));
            script.expect(A, fetched(2, found));
        })
    };
    let after_update = Case::must(
        "joining-fetch.after-pending-update",
        in_18("10.12.2"),
        "an update of the subscription that comes before a joining FETCH counts for it",
        |script| {
            stock(script);
            script.join(A);
            let paused = vec![(parameter::FORWARD, Value::Byte(0))];
            let track = script.track.clone();
            let subscription = script.request_with(A, Request::Subscribe, track, paused);
            script.expect(A, kind(subscription, MessageKind::SubscribeOk));
            script.then();
            let forward = vec![(parameter::FORWARD, Value::Byte(1))];
            script.update(A, subscription, forward);
            let slot = script.ask(A, |id| wire::joining_fetch(id, 2, 0, 0));
            script.expect(A, kind(slot, MessageKind::FetchOk));
        },
    );
    vec![
        case(
            "joining-fetch.relative-0",
            "a relative joining FETCH of 0 starts with the current group and ends at the subscription",
            2,
            0,
            &[(1, 0), (1, 1), (1, 2)],
        ),
        case(
            "joining-fetch.relative-1",
            "a relative joining FETCH of 1 starts a group earlier",
            2,
            1,
            &[(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)],
        ),
        case(
            "joining-fetch.absolute",
            "an absolute joining FETCH starts with its group",
            3,
            0,
            &[(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)],
        ),
        after_update,
    ]
}
