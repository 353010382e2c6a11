//! `PUBLISH_STATE_NOTIFY`, which draft-22 has.

use super::VIOLATION;
use crate::{
    case::Case,
    edition::in_22,
    script::{A, B, C, Script, Step, answered, closed, object_at, ok},
    seen::Slot,
    wire::{self, Request, Subgroup, Value, group, parameter},
};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![permitted(), of_subscriber(), on_control()];
    cases.extend(other_requests());
    cases.push(of_fetch());
    cases.extend(parameters());
    cases
}

/// A notification with the largest object, as a publisher sends it.
fn notification() -> Vec<u8> {
    wire::state_notify(&[
        (parameter::LARGEST_OBJECT, Value::Location(200, 300)),
        (parameter::FORWARD, Value::Byte(1)),
    ])
}

fn permitted() -> Case {
    Case::must(
        "state-notify.of-publisher",
        in_22("9.10"),
        "a PUBLISH_STATE_NOTIFY of a publisher has no answer, and the subscription goes on",
        |script| {
            let channel = script.channel(A, B);
            script.then();
            script.write(A, channel.publication, notification());
            script.never(A, answered(channel.publication));
            script.stream(A, group(Subgroup::of(201), &[b"a"]));
            script.expect(B, object_at(201, 0, b"a"));
        },
    )
}

fn of_subscriber() -> Case {
    Case::must(
        "state-notify.of-subscriber",
        in_22("9.10"),
        "a PUBLISH_STATE_NOTIFY of a subscriber closes the session",
        |script| {
            let channel = script.channel(B, A);
            script.then();
            script.write(A, channel.subscription, notification());
            script.expect(A, closed(VIOLATION));
        },
    )
}

fn on_control() -> Case {
    Case::must(
        "state-notify.on-control",
        in_22("9.10"),
        "a PUBLISH_STATE_NOTIFY on the control stream closes the session",
        |script| {
            script.join(A);
            script.then();
            script.write(A, Slot::Control, notification());
            script.expect(A, closed(VIOLATION));
        },
    )
}

/// Requests that are no subscriptions, and stay open.
fn other_requests() -> impl Iterator<Item = Case> {
    let requests = [
        Request::PublishNamespace,
        Request::SubscribeNamespace,
        Request::SubscribeTracks,
    ];
    requests.into_iter().map(|request| {
        Case::must(
            format!("state-notify.on-{}", request.word()),
            in_22("9.10"),
            "a PUBLISH_STATE_NOTIFY for a request that is no subscription closes the session",
            move |script| {
                script.join(A);
                let slot = script.request(A, request);
                script.expect(A, ok(slot));
                script.then();
                script.write(A, slot, notification());
                script.expect(A, closed(VIOLATION));
            },
        )
    })
}

/// A FETCH that its publisher has not answered.
fn of_fetch() -> Case {
    Case::must(
        "state-notify.on-fetch",
        in_22("9.10"),
        "a PUBLISH_STATE_NOTIFY for a request that is no subscription closes the session",
        |script| {
            script.announce(B);
            script.step(Step::Behave(B, Box::new(|line| line.is_mute = true)));
            script.join(A);
            let slot = script.request(A, Request::Fetch);
            script.then();
            script.write(A, slot, notification());
            script.expect(A, closed(VIOLATION));
        },
    )
}

fn parameters() -> Vec<Case> {
    let case = |name: &str, sections, text: &str, bytes: fn() -> Vec<u8>| {
        Case::must(name, sections, text, move |script: &mut Script| {
            let channel = script.channel(A, C);
            script.then();
            script.write(A, channel.publication, bytes());
            script.expect(A, closed(VIOLATION));
        })
    };
    vec![
        case(
            "state-notify.unknown-parameter",
            in_22("9.20"),
            "an unknown parameter closes the session",
            || wire::state_notify(&[(0x70, Value::Int(1))]),
        ),
        case(
            "state-notify.expires",
            in_22("9.20.16"),
            "a parameter in a message that may not have it closes the session",
            || wire::state_notify(&[(parameter::EXPIRES, Value::Int(1))]),
        ),
        case(
            "state-notify.forward-2",
            in_22("9.20.18"),
            "a FORWARD that is neither 0 nor 1 closes the session",
            || wire::state_notify(&[(parameter::FORWARD, Value::Byte(2))]),
        ),
        case(
            "state-notify.too-long",
            in_22("9"),
            "a message whose length does not match its content closes the session",
            || wire::framed(wire::message::PUBLISH_STATE_NOTIFY, &[0, 0]),
        ),
    ]
}
