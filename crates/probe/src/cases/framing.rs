//! Messages: their types, their lengths, their streams, and Request IDs.

use weir_moqt::message::MessageKind;

use super::{VIOLATION, closes};
use crate::{
    case::{Case, Level},
    script::{A, B, Script, answered, closed, request, subscribed},
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
            "10",
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

/// Message types that draft-18 does not define.
fn unknown_types() -> Vec<Case> {
    let mut cases = Vec::new();
    for kind in [0x01, 0x20, 0x21, 0x3E, 0x40, 0x41, 0x9D] {
        cases.push(Case::must(
            format!("message.unknown-type-{kind:#x}-on-control"),
            "10",
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
        "10",
        "an unknown message type closes the session",
        &[],
        |_| framed(0x3E, &[0]),
    ));
    cases.push(Case::must(
        "message.unknown-type-after-request",
        "10",
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
        ("goaway", |_| wire::goaway(b"", None)),
        ("subscribe-ok", |_| wire::subscribe_ok(1, &[], &[])),
        ("publish-done", |_| wire::publish_done(2, 0, b"")),
        ("fetch-ok", |_| wire::fetch_ok((0, 0), &[])),
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
            "3.3",
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
            "10",
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
                "10",
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
            "10",
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
            "10",
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
            "10",
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
        "10",
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
            "10.1",
            "a Request ID of the other side closes the session",
            INVALID,
            move |script| request.encode(1, &script.track, &[]),
        ));
        cases.push(Case::must(
            format!("request-id.repeated-{}", request.word()),
            "10.1",
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
            "10.1",
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
        "1.4.1",
        "an integer may be encoded in more bytes than it needs",
        |script| {
            script.announce(B);
            script.join(A);
            let slot = script.bi();
            let fields = [script.track.full(), vec![0]].concat();
            let payload = [vec![0xFE, 0, 0, 0, 0, 0, 0, 0], fields].concat();
            script.write(A, slot, framed(message::SUBSCRIBE, &payload));
            let taken = script.taken();
            script.expect(B, request(taken, MessageKind::Subscribe, |_| true));
            script.write(B, taken, wire::subscribe_ok(wire::ALIAS, &[], &[]));
            script.then();
            script.expect(A, subscribed(slot));
        },
    ));
    cases
}
