//! GOAWAY from clients.

use super::VIOLATION;
use crate::{
    case::Case,
    edition::{Edition, Sections, in_18, in_22, in_both},
    script::{A, B, closed, object_at},
    seen::Slot,
    wire::{self, Subgroup, close, group},
};

pub(super) fn cases() -> Vec<Case> {
    let bad = |name: &str, text: &str, bytes: fn(Edition) -> Vec<u8>| {
        on_control(name, in_both("10.4", "9.2"), text, VIOLATION, bytes)
    };
    vec![
        bad(
            "goaway.with-uri",
            "a GOAWAY from a client with a URI closes the session",
            |edition| wire::goaway(edition, b"moqt://example.net", Some(1)),
        ),
        bad(
            "goaway.uri-8193-bytes",
            "a GOAWAY with a URI of more than 8,192 bytes closes the session",
            |edition| wire::goaway(edition, &[b'u'; 8193], Some(1)),
        ),
        bad(
            "goaway.repeated",
            "a second GOAWAY on the control stream closes the session",
            |edition| wire::goaway(edition, b"", Some(1)).repeat(2),
        ),
        on_control(
            "goaway.request-id-parity",
            in_18("10.4"),
            "a GOAWAY with a Request ID of the wrong side closes the session",
            &[close::INVALID_REQUEST_ID],
            |edition| wire::goaway(edition, b"", Some(2)),
        ),
        on_control(
            "goaway.with-request-id",
            in_22("9"),
            "a GOAWAY with a Request ID, as earlier drafts have it, is longer than its content and closes the session",
            VIOLATION,
            |_| wire::goaway(Edition::Eighteen, b"", Some(1)),
        ),
        Case::must(
            "goaway.repeated-on-request",
            in_both("10.4", "9.2"),
            "a second GOAWAY on a request stream closes the session",
            |script| {
                let channel = script.channel(B, A);
                script.then();
                for _ in 0..2 {
                    let goaway = wire::goaway(script.edition, b"", None);
                    script.write(A, channel.subscription, goaway);
                }
                script.expect(A, closed(VIOLATION));
            },
        ),
        Case::must(
            "goaway.keeps-subscriptions",
            in_both("10.4", "9.2"),
            "GOAWAY does not affect established subscriptions",
            |script| {
                script.channel(B, A);
                let goaway = wire::goaway(script.edition, b"", Some(1));
                script.write(A, Slot::Control, goaway);
                script.wait(50);
                script.then();
                script.stream(B, group(Subgroup::of(0), &[b"a"]));
                script.expect(A, object_at(0, 0, b"a"));
            },
        ),
    ]
}

/// A case in which a client sends bytes on its control stream, and the relay has to close the session.
fn on_control(
    name: &str,
    sections: Sections,
    requirement: &str,
    codes: &'static [u64],
    bytes: fn(Edition) -> Vec<u8>,
) -> Case {
    Case::must(name, sections, requirement, move |script| {
        script.join(A);
        script.then();
        script.write(A, Slot::Control, bytes(script.edition));
        script.expect(A, closed(codes));
    })
}
