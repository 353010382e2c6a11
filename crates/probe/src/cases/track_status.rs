//! `TRACK_STATUS`.

use weir_moqt::{location::Location, message::Message};

use crate::{
    case::{Case, Level},
    edition::{Sections, in_18, in_22, in_both},
    script::{A, B, C, Step, closed, finished, message, object, object_at, ok, refused},
    wire::{self, Request, Subgroup, Value, group, parameter, property},
};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = answers();
    cases.push(without_properties());
    cases.extend(others());
    cases
}

fn answers() -> Vec<Case> {
    vec![
        Case::must(
            "track-status.no-publisher",
            in_both("10.14", "9.13"),
            "a TRACK_STATUS that fails gets REQUEST_ERROR",
            |script| {
                script.join(A);
                script.then();
                let slot = script.request(A, Request::TrackStatus);
                script.expect(A, refused(slot, &[]));
            },
        ),
        Case::must(
            "track-status.established",
            in_both("10.14", "9.13"),
            "TRACK_STATUS gets REQUEST_OK with what SUBSCRIBE_OK would have, and the stream ends",
            |script| {
                let kept = vec![(property::OF_APPLICATION, Value::Bytes(b"kept".to_vec()))];
                let encoded = wire::pairs(&kept);
                script.channel_with(B, C, vec![], &kept);
                script.stream(B, group(Subgroup::of(4), &[b"a", b"b"]));
                script.expect(C, object_at(4, 1, b"b"));
                script.join(A);
                script.then();
                let slot = script.request(A, Request::TrackStatus);
                let text = "REQUEST_OK with LARGEST_OBJECT {4, 1} and the Track Properties";
                script.expect(
                    A,
                    message(slot, text, move |message| {
                        let Message::RequestOk(ok) = message else {
                            return false;
                        };
                        ok.parameters.largest_object == Some(Location::new(4, 1))
                            && ok.properties.as_bytes()[..] == encoded[..]
                    }),
                );
                script.expect(A, finished(slot));
            },
        ),
    ]
}

/// An answer without Track Properties.
fn without_properties() -> Case {
    Case::must(
        "track-status.include-properties-0",
        in_22("9.20.21"),
        "after INCLUDE_PROPERTIES 0, the Track Properties of REQUEST_OK should be empty",
        |script| {
            let kept = vec![(property::OF_APPLICATION, Value::Bytes(b"kept".to_vec()))];
            script.channel_with(B, C, vec![], &kept);
            script.join(A);
            script.then();
            let track = script.track.clone();
            let none = vec![(parameter::INCLUDE_PROPERTIES, Value::Byte(0))];
            let slot = script.request_with(A, Request::TrackStatus, track, none);
            script.expect(
                A,
                message(slot, "REQUEST_OK without Track Properties", |message| {
                    matches!(message, Message::RequestOk(ok) if ok.properties.as_bytes().is_empty())
                }),
            );
        },
    )
    .level(Level::Should)
}

/// What `TRACK_STATUS` does not do.
fn others() -> Vec<Case> {
    vec![
        Case::must(
            "track-status.no-subscription",
            in_both("10.14", "9.13"),
            "TRACK_STATUS creates no subscription: no objects are sent",
            |script| {
                script.channel(B, C);
                script.join(A);
                let slot = script.request(A, Request::TrackStatus);
                script.expect(A, ok(slot));
                script.then();
                script.stream(B, group(Subgroup::of(0), &[b"a"]));
                script.expect(C, object_at(0, 0, b"a"));
                script.never(A, object("an object", |_| true));
            },
        ),
        updated(
            in_18("10.14"),
            "a TRACK_STATUS cannot be updated",
            Level::Implied,
        ),
        updated(
            in_22("9.5"),
            "a REQUEST_UPDATE of a TRACK_STATUS closes the session",
            Level::Must,
        ),
    ]
}

/// An update of a `TRACK_STATUS`. Only draft-22 says what follows from it.
fn updated(sections: Sections, requirement: &str, level: Level) -> Case {
    Case::must("track-status.updated", sections, requirement, |script| {
        script.announce(B);
        script.join(A);
        script.step(Step::Behave(B, Box::new(|line| line.is_mute = true)));
        let slot = script.request(A, Request::TrackStatus);
        script.then();
        script.update(A, slot, vec![]);
        script.expect(A, closed(super::VIOLATION));
    })
    .level(level)
}
