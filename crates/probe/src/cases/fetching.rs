//! FETCH, standalone and joining, and what publishers may answer.

use weir_moqt::{
    message::{Message, MessageKind},
    parameter::GroupOrder,
};

use super::{VIOLATION, closes};
use crate::{
    case::Case,
    script::{
        A, B, C, Channel, Check, Progress, Script, Step, closed, fetched, kind, message, object_at,
        progress, refused, request,
    },
    seen::{Object, Slot, Way},
    wire::{self, Request, Subgroup, Value, framed, group, int, parameter, refusal},
};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = refusals();
    cases.extend(ranges());
    cases.extend(orders());
    cases.extend(joining_refusals());
    cases.extend(joining());
    cases.extend(publishers());
    for fetch_type in [0_u64, 4] {
        cases.push(closes(
            format!("fetch.type-{fetch_type}"),
            "10.12",
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
fn stock(script: &mut Script) -> Channel {
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
            "5.2",
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
            "10.12.3",
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
            "10.12.3",
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
    let case = |name: &str, text: &str, start, end, found: &'static [(u64, u64)]| {
        Case::must(name, "10.12.3", text, move |script| {
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
            "a FETCH returns all objects of its range, in order, on one stream",
            (0, 0),
            (1, 0),
            &[(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)],
        ),
        case(
            "fetch.part",
            "a FETCH returns no objects outside of its range",
            (0, 1),
            (1, 2),
            &[(0, 1), (0, 2), (1, 0), (1, 1)],
        ),
        case(
            "fetch.one-group",
            "an end with object 0 requests the whole group",
            (0, 0),
            (0, 0),
            &[(0, 0), (0, 1), (0, 2)],
        ),
        case(
            "fetch.one-object",
            "a range of one object returns one object",
            (1, 1),
            (1, 2),
            &[(1, 1)],
        ),
    ]
}

/// Group orders, ends and forwarding preferences.
fn orders() -> Vec<Case> {
    vec![
        Case::must(
            "fetch.descending",
            "10.12.3",
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
            "10.13",
            "FETCH_OK names the largest object plus one if the range ends beyond it",
            |script| {
                stock(script);
                script.join(A);
                script.then();
                let slot = fetch(script, (0, 0), (9, 0));
                script.expect(
                    A,
                    message(slot, "FETCH_OK with the end {1, 3}", |message| {
                        // The codec reads ends as inclusive.
                        let end = weir_moqt::location::Location::new(1, 2);
                        matches!(message, Message::FetchOk(ok) if ok.end == end)
                    }),
                );
            },
        ),
        Case::must(
            "fetch.datagram",
            "11.4.4.1",
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
            "10.12.2",
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
            "10.12.2",
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
            "10.12.2",
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
        Case::must(name, "10.12.2.1", text, move |script| {
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
    ]
}

/// What a publisher answers to the relay's own FETCH, if the relay sends one for a track that is only announced.
fn publishers() -> Vec<Case> {
    let case = |name: &str, section, text: &str, answer: fn(u64) -> (Vec<u8>, Vec<u8>)| {
        Case::must(name, section, text, move |script| {
            script.announce(A);
            script.step(Step::Behave(A, Box::new(|line| line.is_mute = true)));
            script.join(B);
            let track = script.track.clone();
            script.ask(B, move |id| wire::fetch(id, &track, (5, 0), (6, 0), &[]));
            let taken = script.taken();
            script.expect(A, request(taken, MessageKind::Fetch, |_| true));
            script.then();
            let slot = script.uni();
            script.step(Step::Reply(
                A,
                slot,
                Box::new(move |seen| {
                    let first = seen.on(taken).and_then(|it| it.messages.first());
                    let Some(Message::Fetch(fetch)) = first else {
                        return Err("the relay's FETCH is gone".to_owned());
                    };
                    let id = fetch.request_id;
                    Ok([&int(wire::stream::FETCH)[..], &int(id), &answer(id).1].concat())
                }),
            ));
            script.write(A, taken, answer(0).0);
            script.expect(A, closed(VIOLATION));
        })
    };
    vec![
        case(
            "fetch-stream.first-without-location",
            "11.4.4.1",
            "a first object that refers to one before closes the session",
            |_| (wire::fetch_ok((6, 0), &[]), vec![0x10, 1, 1, b'a']),
        ),
        case(
            "fetch-stream.unknown-flags",
            "11.4.4",
            "unknown serialization flags close the session",
            |_| {
                (
                    wire::fetch_ok((6, 0), &[]),
                    [int(0x80), vec![5, 0, 0]].concat(),
                )
            },
        ),
        case(
            "fetch-stream.group-above-maximum",
            "11.4.4.1",
            "a group ID beyond 2^64 - 1 closes the session",
            |_| {
                let first = vec![0x1C, 5, 0, 128, 1, b'a'];
                let beyond = [vec![0x0C], int(u64::MAX), vec![0, 1, b'a']].concat();
                (wire::fetch_ok((6, 0), &[]), [first, beyond].concat())
            },
        ),
        case(
            "fetch-ok.end-before-start",
            "10.13",
            "a FETCH_OK that ends before the start of the FETCH closes the session",
            |_| (wire::fetch_ok((1, 1), &[]), vec![]),
        ),
    ]
}
