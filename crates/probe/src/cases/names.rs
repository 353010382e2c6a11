//! Namespaces and track names: their limits, and those that are reserved.

use super::{VIOLATION, closes};
use crate::{
    case::{Case, Level},
    edition::{Sections, in_both},
    script::{A, answered, refused},
    wire::{Request, Track, refusal},
};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for request in Request::ALL {
        cases.extend(beyond_limits(request));
        cases.push(at_limit(request));
        cases.push(reserved(
            request,
            "period",
            vec![b".".to_vec()],
            in_both("3.2.1", "2.4.3"),
        ));
        cases.push(reserved(
            request,
            "session",
            vec![b".session".to_vec(), b"unknown".to_vec()],
            in_both("3.2.2", "6.5"),
        ));
    }
    for request in [Request::Subscribe, Request::Fetch, Request::TrackStatus] {
        cases.push(Case::must(
            format!("name.session-without-track-{}", request.word()),
            in_both("3.2.2", "6.5"),
            "a request for the empty track name in .session is refused with DOES_NOT_EXIST",
            move |script| {
                script.join(A);
                script.then();
                let track = Track {
                    edition: script.edition,
                    namespace: vec![b".session".to_vec()],
                    name: Vec::new(),
                };
                let slot = script.request_of(A, request, track);
                script.expect(A, refused(slot, &[refusal::DOES_NOT_EXIST]));
            },
        ));
    }
    cases
}

fn beyond_limits(request: Request) -> [Case; 3] {
    let word = request.word();
    let case = |name: &str, requirement: &str, change: fn(&Track, bool) -> Track| {
        closes(
            format!("name.{name}-{word}"),
            in_both("2.4.1", "8.7"),
            requirement,
            VIOLATION,
            move |script| {
                let track = change(&script.track, request.names_track());
                request.encode(0, &track, &[])
            },
        )
    };
    [
        case(
            "33-fields",
            "a namespace of more than 32 fields closes the session",
            |track, _| with_fields(track, 33),
        ),
        case(
            "empty-field",
            "an empty field of a namespace closes the session",
            |track, _| track.below(""),
        ),
        case(
            "4097-bytes",
            "a name of more than 4,096 bytes closes the session",
            |track, names_track| of_length(track, 4097, names_track),
        ),
    ]
}

/// A name with 32 fields and 4,096 bytes is answered.
fn at_limit(request: Request) -> Case {
    Case::must(
        format!("name.at-limit-{}", request.word()),
        in_both("2.4.1", "8.7"),
        "a name of 32 fields and 4,096 bytes is valid",
        move |script| {
            script.join(A);
            script.then();
            let track = with_fields(&script.track, 32);
            let track = of_length(&track, 4096, request.names_track());
            let slot = script.request_of(A, request, track);
            script.expect(A, answered(slot));
        },
    )
}

/// Returns the track with so many fields.
fn with_fields(track: &Track, fields: usize) -> Track {
    let mut track = track.clone();
    track.namespace.resize(fields, b"f".to_vec());
    track
}

/// Returns the track with a name, or namespace, of so many bytes.
fn of_length(track: &Track, bytes: usize, names_track: bool) -> Track {
    let mut track = track.clone();
    let others: usize = track.namespace.iter().map(Vec::len).sum();
    if names_track {
        track.name = vec![b'n'; bytes - others];
    } else if let Some(last) = track.namespace.last_mut() {
        *last = vec![b'n'; bytes - others + last.len()];
    }
    track
}

/// A request for a reserved namespace is refused.
fn reserved(
    request: Request,
    name: &'static str,
    namespace: Vec<Vec<u8>>,
    sections: Sections,
) -> Case {
    let case = Case::must(
        format!("name.reserved-{name}-{}", request.word()),
        sections,
        match name {
            "period" => {
                "a request for the namespace of a single period is refused with DOES_NOT_EXIST"
            }
            _ => "a request for an unknown name in .session is refused with DOES_NOT_EXIST",
        },
        move |script| {
            script.join(A);
            script.then();
            let track = Track {
                edition: script.edition,
                namespace: namespace.clone(),
                name: b"unknown".to_vec(),
            };
            let slot = script.request_of(A, request, track);
            script.expect(A, refused(slot, &[refusal::DOES_NOT_EXIST]));
        },
    );
    // "The Application MUST NOT publish": of publishing there, the draft does not say how it is refused.
    let publishes = matches!(request, Request::Publish | Request::PublishNamespace);
    if publishes && name == "session" {
        case.level(Level::Implied)
    } else {
        case
    }
}
