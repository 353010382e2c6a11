//! The beginning of a session, its control streams, and the types of streams.

use super::VIOLATION;
use crate::{
    case::{Case, Level, On},
    edition::{Sections, in_22, in_both},
    script::{A, Check, Progress, Script, answered, closed, progress, set_up},
    seen::{Ended, Slot},
    wire::{Request, Value, close, framed, int, message, option},
};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::must(
            "setup.answered",
            in_both("10.3", "9.1"),
            "each endpoint opens a control stream that begins with SETUP",
            |script| {
                script.connect(A);
                script.set_up_with(A, &[]);
                script.expect(A, set_up());
            },
        ),
        Case::must(
            "setup.pipelined",
            in_both("3.3", "6.3"),
            "requests that arrive before SETUP should be buffered until setup is complete",
            |script| {
                script.connect(A);
                let slot = script.request(A, Request::TrackStatus);
                script.wait(50);
                script.set_up_with(A, &[]);
                script.expect(A, answered(slot));
            },
        )
        .level(Level::Should),
    ];
    cases.push(of_server());
    cases.extend(ignored_options());
    cases.push(limits());
    cases.extend(bad_options());
    cases.extend(urls());
    cases.extend(control_streams());
    cases.extend(stream_types());
    cases
}

/// The relay's own SETUP.
fn of_server() -> Case {
    Case::must(
        "setup.without-path-and-authority",
        in_both("10.3.1", "9.1.1"),
        "a server sends neither PATH nor AUTHORITY",
        |script| {
            script.connect(A);
            script.then();
            script.set_up_with(A, &[]);
            script.expect(
                A,
                Check::new("SETUP without PATH and AUTHORITY", |seen| {
                    match seen.setup() {
                        Some(setup) if setup.path.is_some() || setup.authority.is_some() => {
                            Progress::Broken("the relay sent PATH or AUTHORITY".to_owned())
                        }
                        setup => progress(setup.is_some()),
                    }
                }),
            );
        },
    )
}

/// Options that a relay does not know.
fn ignored_options() -> impl Iterator<Item = Case> {
    let int = |option| (option, Value::Int(7));
    let bytes = |option| (option, Value::Bytes(b"unknown".to_vec()));
    let rows = [
        ("integer", in_both("10.3", "9.1"), vec![int(0x3FF0)]),
        ("bytes", in_both("10.3", "9.1"), vec![bytes(0x3FF1)]),
        (
            "repeated",
            in_both("10.3", "9.1"),
            vec![bytes(0x3FF1), bytes(0x3FF1)],
        ),
        ("grease-odd", in_both("14", "13"), vec![bytes(0x9D)]),
        ("grease-even", in_both("14", "13"), vec![int(0x11C)]),
    ];
    rows.into_iter().map(|(name, sections, options)| {
        Case::must(
            format!("setup.unknown-option-{name}"),
            sections,
            "an endpoint ignores unknown Setup Options, repeated or not",
            move |script| {
                script.connect(A);
                script.set_up_with(A, &options);
                script.expect(A, set_up());
                script.then();
                script.alive(A);
            },
        )
    })
}

/// The limits that an endpoint of draft-22 announces.
fn limits() -> Case {
    Case::must(
        "setup.limits",
        in_22("9.1"),
        "SETUP may limit range filters and outstanding updates",
        |script| {
            script.connect(A);
            let limits = [
                (option::MAX_FILTER_RANGES, Value::Int(200)),
                (option::MAX_REQUEST_UPDATES, Value::Int(300)),
            ];
            script.set_up_with(A, &limits);
            script.expect(A, set_up());
            script.then();
            script.alive(A);
        },
    )
}

/// A case in which SETUP has these options.
fn with_options(
    name: &str,
    sections: Sections,
    requirement: &str,
    codes: &'static [u64],
    options: impl Fn() -> Vec<(u64, Value)> + Send + 'static,
) -> Case {
    Case::must(name, sections, requirement, move |script| {
        script.connect(A);
        script.then();
        script.set_up_with(A, &options());
        script.expect(A, closed(codes));
    })
}

fn bad_options() -> Vec<Case> {
    let token = |bytes: &'static [u8]| {
        move || vec![(option::AUTHORIZATION_TOKEN, Value::Bytes(bytes.to_vec()))]
    };
    vec![
        with_options(
            "setup.token-delete",
            in_both("10.2.2", "9.1.4"),
            "a token of type DELETE in SETUP closes the session",
            VIOLATION,
            token(&[0, 1]),
        ),
        with_options(
            "setup.token-use-alias",
            in_both("10.2.2", "9.1.4"),
            "a token of type USE_ALIAS in SETUP closes the session",
            VIOLATION,
            token(&[2, 1]),
        ),
        with_options(
            "setup.token-undecodable",
            in_both("10.2.2", "8.9"),
            "a token that cannot be decoded closes the session",
            &[close::KEY_VALUE_FORMATTING_ERROR],
            token(&[9, 1]),
        ),
        with_options(
            "setup.type-above-maximum",
            in_both("1.4.3", "8.3"),
            "a Delta Type beyond 2^64 - 1 closes the session",
            VIOLATION,
            || {
                let beyond = [int(u64::MAX), int(0)].concat();
                vec![(0x3FF0, Value::Raw([int(0), beyond].concat()))]
            },
        ),
        with_options(
            "setup.value-cut",
            in_both("10", "9"),
            "a message whose length does not match its content closes the session",
            &[close::PROTOCOL_VIOLATION, close::KEY_VALUE_FORMATTING_ERROR],
            || vec![(0x3FF1, Value::Raw(vec![100, 1, 2]))],
        ),
        Case::must(
            "setup.token-beyond-cache",
            in_both("10.3.1.4", "9.1.4"),
            "a token in SETUP that exceeds the token cache does not fail the session with AUTH_TOKEN_CACHE_OVERFLOW",
            |script| {
                script.connect(A);
                script.then();
                let token = [vec![1, 1, 0], vec![b'x'; 60_000]].concat();
                script.set_up_with(A, &[(option::AUTHORIZATION_TOKEN, Value::Bytes(token))]);
                script.expect(A, not_overflowed());
            },
        ),
    ]
}

/// SETUP is answered, or refused for another reason than the token cache.
fn not_overflowed() -> Check {
    Check::new("SETUP, or another error", |seen| match &seen.ended {
        Some(Ended {
            code: Some(close::AUTH_TOKEN_CACHE_OVERFLOW),
            ..
        }) => Progress::Broken("the session was closed with AUTH_TOKEN_CACHE_OVERFLOW".to_owned()),
        Some(Ended { code: Some(_), .. }) => Progress::Met,
        Some(_) | None => set_up().test(seen),
    })
}

/// PATH and AUTHORITY.
fn urls() -> Vec<Case> {
    /// Replaces an option of the usual SETUP.
    fn replaced(
        name: &str,
        sections: Sections,
        requirement: &str,
        codes: &'static [u64],
        replacement: (u64, &'static str),
    ) -> Case {
        Case::must(name, sections, requirement, move |script| {
            let (option, text) = replacement;
            script.connect(A);
            script.then();
            script.space.options.retain(|(one, _)| *one != option);
            script.set_up_with(A, &[(option, Value::Bytes(text.as_bytes().to_vec()))]);
            script.expect(A, closed(codes));
        })
    }
    vec![
        replaced(
            "setup.path-malformed",
            in_both("10.3.1.2", "9.1.2"),
            "a PATH that is not the path of a URI closes the session",
            &[close::MALFORMED_PATH],
            (option::PATH, "/a path with spaces"),
        )
        .on(On::Quic),
        replaced(
            "setup.authority-malformed",
            in_both("10.3.1.1", "9.1.1"),
            "an AUTHORITY that is not the authority of a URI closes the session",
            &[close::MALFORMED_AUTHORITY],
            (option::AUTHORITY, "exa mple:port"),
        )
        .on(On::Quic),
        replaced(
            "setup.path-over-webtransport",
            in_both("10.3.1.2", "9.1.2"),
            "PATH over WebTransport closes the session",
            &[close::INVALID_PATH],
            (option::PATH, "/"),
        )
        .on(On::WebTransport),
        replaced(
            "setup.authority-over-webtransport",
            in_both("10.3.1.1", "9.1.1"),
            "AUTHORITY over WebTransport closes the session",
            &[close::INVALID_AUTHORITY],
            (option::AUTHORITY, "localhost"),
        )
        .on(On::WebTransport),
    ]
}

fn control_streams() -> Vec<Case> {
    let case = |name: &str, script: fn(&mut Script)| {
        Case::must(
            name,
            in_both("3.3", "6.3"),
            "the end of a control stream closes the session",
            move |new| {
                new.join(A);
                // The relay has the client's SETUP.
                new.alive(A);
                new.then();
                script(new);
                new.expect(A, closed(VIOLATION));
            },
        )
    };
    vec![
        case("control.finished", |script| script.finish(A, Slot::Control)),
        case("control.reset", |script| script.reset(A, Slot::Control, 0)),
        Case::must(
            "control.stays-open",
            in_both("3.3", "6.3"),
            "the relay does not close its control stream",
            |script| {
                script.join(A);
                script.then();
                script.never(A, control_ended());
            },
        ),
        Case::must(
            "control.second-setup",
            in_both("10.3", "9.1"),
            "SETUP is the first message on the control stream, once",
            |script| {
                script.join(A);
                script.then();
                script.write(A, Slot::Control, framed(message::SETUP, &[]));
                script.expect(A, closed(VIOLATION));
            },
        )
        .level(Level::Implied),
        Case::must(
            "control.second-stream",
            in_both("3.3", "6.3"),
            "each peer opens one control stream",
            |script| {
                script.join(A);
                script.then();
                let slot = script.uni();
                script.write(A, slot, framed(message::SETUP, &[]));
                script.expect(A, closed(VIOLATION));
            },
        )
        .level(Level::Implied),
    ]
}

/// The relay's control stream has ended.
fn control_ended() -> Check {
    Check::new("the end of the control stream", |seen| {
        let mut streams = seen.streams();
        let is_control = |one: &crate::seen::Incoming| {
            let first = one.messages.first();
            matches!(first, Some(weir_moqt::message::Message::Setup(_)))
        };
        progress(streams.any(|(_, one)| is_control(one) && one.end.is_some()))
    })
}

/// Unidirectional streams whose type no version defines.
fn stream_types() -> impl Iterator<Item = Case> {
    let types = [
        0x00,
        0x01,
        0x04,
        0x06,
        0x0F,
        0x20,
        0x40,
        0x80,
        0x9D,
        0x2F01,
        0x3FFF,
        u64::MAX,
    ];
    types.into_iter().map(|kind| {
        Case::must(
            format!("stream.unknown-type-{kind:#x}"),
            in_both("3.4", "6.4.1"),
            "an unknown stream type closes the session",
            move |script| {
                script.join(A);
                script.then();
                let slot = script.uni();
                script.write(A, slot, [int(kind), vec![0; 16]].concat());
                script.expect(A, closed(&[]));
            },
        )
    })
}
