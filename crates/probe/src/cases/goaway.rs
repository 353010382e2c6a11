//! GOAWAY from clients.

use super::VIOLATION;
use crate::{
    case::Case,
    script::{A, B, closed, object_at},
    seen::Slot,
    wire::{self, Subgroup, close, group},
};

pub(super) fn cases() -> Vec<Case> {
    let on_control = |name: &str, text: &str, codes: &'static [u64], bytes: fn() -> Vec<u8>| {
        Case::must(name, "10.4", text, move |script| {
            script.join(A);
            script.then();
            script.write(A, Slot::Control, bytes());
            script.expect(A, closed(codes));
        })
    };
    vec![
        on_control(
            "goaway.with-uri",
            "a GOAWAY from a client with a URI closes the session",
            VIOLATION,
            || wire::goaway(b"moqt://example.net", Some(1)),
        ),
        on_control(
            "goaway.uri-8193-bytes",
            "a GOAWAY with a URI of more than 8,192 bytes closes the session",
            VIOLATION,
            || wire::goaway(&[b'u'; 8193], Some(1)),
        ),
        on_control(
            "goaway.repeated",
            "a second GOAWAY on the control stream closes the session",
            VIOLATION,
            || [wire::goaway(b"", Some(1)), wire::goaway(b"", Some(1))].concat(),
        ),
        on_control(
            "goaway.request-id-parity",
            "a GOAWAY with a Request ID of the wrong side closes the session",
            &[close::INVALID_REQUEST_ID],
            || wire::goaway(b"", Some(2)),
        ),
        Case::must(
            "goaway.repeated-on-request",
            "10.4",
            "a second GOAWAY on a request stream closes the session",
            |script| {
                let channel = script.channel(B, A);
                script.then();
                for _ in 0..2 {
                    script.write(A, channel.subscription, wire::goaway(b"", None));
                }
                script.expect(A, closed(VIOLATION));
            },
        ),
        Case::must(
            "goaway.keeps-subscriptions",
            "10.4",
            "GOAWAY does not affect established subscriptions",
            |script| {
                script.channel(B, A);
                script.write(A, Slot::Control, wire::goaway(b"", Some(1)));
                script.wait(50);
                script.then();
                script.stream(B, group(Subgroup::of(0), &[b"a"]));
                script.expect(A, object_at(0, 0, b"a"));
            },
        ),
    ]
}
