//! Messages: their types, their lengths, their streams, and Request IDs.

use super::{VIOLATION, closes};
use crate::{
    case::{Case, Level},
    edition::{in_18, in_both},
    script::{A, B, Script, answered, closed, subscribed},
    seen::Slot,
    wire::{self, Request, close, framed, message},
};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = unknown_types();
    cases.extend(first_messages());
    cases.extend(requests_on_control());
    cases.extend(lengths());
    cases.extend(request_ids());
    cases.push(
        closes(
            "request.second-on-stream",
            in_both("10", "9"),
            "a request is the first message of its stream",
            VIOLATION,
            |script| {
                let first = Request::TrackStatus.encode(0, &script.track, &[]);
                [first, Request::Subscribe.encode(2, &script.track, &[])].concat()
            },
        )
        .level(Level::Implied),
    );
    cases
}

/// Message types that the drafts do not define.
fn unknown_types() -> Vec<Case> {
    let mut cases = Vec::new();
    let both = in_both("10", "9");
    let of_both = [0x01, 0x20, 0x21, 0x3E, 0x40, 0x41, 0x9D].map(|kind| (kind, both));
    let later = (message::PUBLISH_STATE_NOTIFY, in_18("10"));
    for (kind, sections) in of_both.into_iter().chain([later]) {
        cases.push(Case::must(
            format!("message.unknown-type-{kind:#x}-on-control"),
            sections,
            "an unknown message type closes the session",
            move |script| {
                script.join(A);
                script.then();
                script.write(A, Slot::Control, framed(kind, &[0]));
                script.expect(A, closed(&[]));
            },
        ));
    }
    cases.push(closes(
        "message.unknown-type-on-request-stream",
        in_both("10", "9"),
        "an unknown message type closes the session",
        &[],
        |_| framed(0x3E, &[0]),
    ));
    cases.push(Case::must(
        "message.unknown-type-after-request",
        in_both("10", "9"),
        "an unknown message type closes the session",
        |script| {
            let channel = script.channel(B, A);
            script.then();
            script.write(A, channel.subscription, framed(0x3E, &[0]));
            script.expect(A, closed(&[]));
        },
    ));
    cases
}

/// Encodes a message.
type Encode = fn(&Script) -> Vec<u8>;

/// Messages that no request stream begins with.
fn first_messages() -> impl Iterator<Item = Case> {
    let rows: [(&str, Encode); 11] = [
        ("setup", |_| framed(message::SETUP, &[])),
        ("goaway", |script| wire::goaway(script.edition, b"", None)),
        ("subscribe-ok", |_| wire::subscribe_ok(1, &[], &[])),
        ("publish-done", |_| wire::publish_done(2, 0, b"")),
        ("fetch-ok", |script| {
            wire::fetch_ok(script.edition, (0, 1), &[])
        }),
        ("namespace", |script| {
            framed(message::NAMESPACE, &script.track.namespace())
        }),
        ("namespace-done", |script| {
            framed(message::NAMESPACE_DONE, &script.track.namespace())
        }),
        ("publish-blocked", |script| {
            framed(message::PUBLISH_BLOCKED, &script.track.full())
        }),
        ("request-update", |_| wire::update(0, &[])),
        ("request-ok", |_| wire::request_ok(&[], &[])),
        ("request-error", |_| wire::request_error(0, b"")),
    ];
    rows.into_iter().map(|(name, bytes)| {
        closes(
            format!("request-stream.begins-with-{name}"),
            in_both("3.3", "6.3"),
            "a request stream that does not begin with a request closes the session",
            VIOLATION,
            bytes,
        )
    })
}

fn requests_on_control() -> impl Iterator<Item = Case> {
    Request::ALL.into_iter().map(|request| {
        Case::must(
            format!("control.{}", request.word()),
            in_both("10", "9"),
            "requests have streams of their own",
            move |script| {
                script.join(A);
                script.then();
                let bytes = request.encode(0, &script.track, &[]);
                script.write(A, Slot::Control, bytes);
                script.expect(A, closed(VIOLATION));
            },
        )
        .level(Level::Implied)
    })
}

/// What follows from a wrong length.
const WRONG_LENGTH: &str = "a message whose length does not match its content closes the session";

/// Messages whose length does not match their content.
fn lengths() -> Vec<Case> {
    let mut cases = Vec::new();
    for request in Request::ALL {
        // What follows the parameters of PUBLISH are Track Properties.
        if request != Request::Publish {
            cases.push(closes(
                format!("length.{}-too-long", request.word()),
                in_both("10", "9"),
                WRONG_LENGTH,
                VIOLATION,
                move |script| {
                    let payload = request.payload(0, &script.track, &[]);
                    framed(request.message(), &[payload, vec![0]].concat())
                },
            ));
        }
        cases.push(closes(
            format!("length.{}-too-short", request.word()),
            in_both("10", "9"),
            WRONG_LENGTH,
            VIOLATION,
            move |script| {
                let payload = request.payload(0, &script.track, &[]);
                framed(request.message(), &payload[..payload.len() - 1])
            },
        ));
    }
    for (name, bytes) in [
        ("too-long", &[0, 0, 1, 0][..]),
        ("too-short", &[5, b'a'][..]),
    ] {
        cases.push(Case::must(
            format!("length.goaway-{name}"),
            in_both("10", "9"),
            WRONG_LENGTH,
            move |script| {
                script.join(A);
                script.then();
                script.write(A, Slot::Control, framed(message::GOAWAY, bytes));
                script.expect(A, closed(VIOLATION));
            },
        ));
    }
    cases.extend(lengths_of_others());
    cases
}

/// Updates and ends of requests whose length does not match their content.
fn lengths_of_others() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, payload) in [("too-long", &[2, 0, 0][..]), ("too-short", &[2][..])] {
        cases.push(Case::must(
            format!("length.request-update-{name}"),
            in_both("10", "9"),
            WRONG_LENGTH,
            move |script| {
                let channel = script.channel(B, A);
                script.then();
                let bytes = framed(message::REQUEST_UPDATE, payload);
                script.write(A, channel.subscription, bytes);
                script.expect(A, closed(VIOLATION));
            },
        ));
    }
    cases.push(Case::must(
        "length.publish-done-too-long",
        in_both("10", "9"),
        WRONG_LENGTH,
        |script| {
            let slot = script.publish(A);
            script.then();
            let bytes = framed(message::PUBLISH_DONE, &[2, 0, 0, 0]);
            script.write(A, slot, bytes);
            script.expect(A, closed(VIOLATION));
        },
    ));
    cases
}

fn request_ids() -> Vec<Case> {
    const INVALID: &[u64] = &[close::INVALID_REQUEST_ID];
    let mut cases = Vec::new();
    for request in Request::ALL {
        cases.push(closes(
            format!("request-id.parity-{}", request.word()),
            in_both("10.1", "6.4.2.1"),
            "a Request ID of the other side closes the session",
            INVALID,
            move |script| request.encode(1, &script.track, &[]),
        ));
        cases.push(Case::must(
            format!("request-id.repeated-{}", request.word()),
            in_both("10.1", "6.4.2.1"),
            "a Request ID that was used before closes the session",
            move |script| {
                script.join(A);
                let first = script.request(A, Request::TrackStatus);
                script.expect(A, answered(first));
                script.then();
                let slot = script.bi();
                let bytes = request.encode(0, &script.track, &[]);
                script.write(A, slot, bytes);
                script.expect(A, closed(INVALID));
            },
        ));
    }
    for (name, id) in [("parity", 3), ("repeated", 0)] {
        cases.push(Case::must(
            format!("request-id.{name}-request-update"),
            in_both("10.1", "6.4.2.1"),
            "an update has a new Request ID of its sender",
            move |script| {
                let channel = script.channel(B, A);
                script.then();
                script.write(A, channel.subscription, wire::update(id, &[]));
                script.expect(A, closed(INVALID));
            },
        ));
    }
    cases.push(Case::must(
        "request-id.non-minimal-integer",
        in_both("1.4.1", "8.1"),
        "an integer may be encoded in more bytes than it needs",
        |script| {
            script.announce(B);
            script.join(A);
            let slot = script.bi();
            let fields = [script.track.full(), vec![0]].concat();
            let payload = [vec![0xFE, 0, 0, 0, 0, 0, 0, 0], fields].concat();
            script.write(A, slot, framed(message::SUBSCRIBE, &payload));
            let taken = script.taken_subscribe(B);
            script.write(B, taken, wire::subscribe_ok(wire::ALIAS, &[], &[]));
            script.then();
            script.expect(A, subscribed(slot));
        },
    ));
    cases
}
