//! What peers may not answer to requests of the relay, or send after an answer, and unknown codes.

use weir_moqt::message::MessageKind;

use super::VIOLATION;
use crate::{
    case::{Case, Level},
    edition::{Edition, Sections, in_22, in_both},
    script::{A, B, Script, Step, closed, kind, refused, subscribed},
    wire::{self, Request, Subgroup, Value, done, group, parameter, property, refusal},
};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = answers();
    cases.extend(later_answers());
    cases.extend(answers_to_publish());
    cases.extend(unknown_codes());
    cases
}

/// The relay's SUBSCRIBE at a publisher, which answers with `answer`.
fn answering(
    name: &str,
    sections: Sections,
    requirement: &str,
    answer: fn(Edition) -> Vec<u8>,
) -> Case {
    Case::must(name, sections, requirement, move |script: &mut Script| {
        let taken = script.pending(A, B).publication;
        script.then();
        script.write(A, taken, answer(script.edition));
        script.expect(A, closed(VIOLATION));
    })
}

/// What follows from a reason that is too long.
const LONG_REASON: &str = "a reason of more than 1,024 bytes closes the session";

/// Answers that a publisher may not give.
fn answers() -> Vec<Case> {
    vec![
        answering(
            "answer.reason-1025-bytes-request-error",
            in_both("1.4.4", "8.5"),
            LONG_REASON,
            |_| wire::request_error(refusal::DOES_NOT_EXIST, &[b'r'; 1025]),
        ),
        answering(
            "answer.redirect-with-uri",
            in_both("10.6.1", "9.4.1"),
            "a REDIRECT from a client with a URI closes the session",
            |_| {
                let redirect = [wire::prefixed(b"moqt://example.net"), vec![0, 0]].concat();
                let payload = [wire::int(refusal::REDIRECT), vec![0, 0], redirect].concat();
                wire::framed(wire::message::REQUEST_ERROR, &payload)
            },
        ),
        answering(
            "answer.two-subscribe-oks",
            in_both("5.1", "3.1"),
            "a second SUBSCRIBE_OK should close the session",
            |_| wire::subscribe_ok(1, &[], &[]).repeat(2),
        )
        .level(Level::Should),
        answering(
            "answer.fetch-ok-to-subscribe",
            in_both("10.13", "9.12"),
            "FETCH_OK answers FETCH only",
            |edition| wire::fetch_ok(edition, (0, 1), &[]),
        )
        .level(Level::Implied),
        answering(
            "answer.request-ok-to-subscribe",
            in_both("10.5", "9.3"),
            "REQUEST_OK does not answer SUBSCRIBE",
            |_| wire::request_ok(&[], &[]),
        )
        .level(Level::Implied),
        answering(
            "answer.namespace-to-subscribe",
            in_both("10.16", "9.16"),
            "NAMESPACE answers SUBSCRIBE_NAMESPACE only",
            |_| wire::framed(wire::message::NAMESPACE, &wire::namespace(&[b"a".to_vec()])),
        )
        .level(Level::Implied),
    ]
}

/// Messages after the first answer that a client may not send.
fn later_answers() -> Vec<Case> {
    vec![
        Case::must(
            "answer.reason-1025-bytes-publish-done",
            in_both("1.4.4", "8.5"),
            LONG_REASON,
            |script| {
                let slot = script.publish(A);
                script.then();
                script.write(
                    A,
                    slot,
                    wire::publish_done(done::TRACK_ENDED, 0, &[b'r'; 1025]),
                );
                script.expect(A, closed(VIOLATION));
            },
        ),
        Case::must(
            "answer.publish-done-of-subscriber",
            in_both("10.11", "9.9"),
            "only a publisher sends PUBLISH_DONE",
            |script| {
                let channel = script.channel(B, A);
                script.then();
                let ended = wire::publish_done(done::TRACK_ENDED, 0, b"");
                script.write(A, channel.subscription, ended);
                script.expect(A, closed(VIOLATION));
            },
        )
        .level(Level::Implied),
    ]
}

/// A case in which a subscriber answers a PUBLISH of the relay.
fn accepting(name: &str, sections: Sections, requirement: &str, answer: fn() -> Vec<u8>) -> Case {
    Case::must(name, sections, requirement, move |script: &mut Script| {
        let taken = script.offer(B, A);
        script.then();
        script.write(A, taken, answer());
        script.expect(A, closed(VIOLATION));
    })
}

/// Answers that a subscriber may not give to a PUBLISH, and messages that it may not send afterwards.
fn answers_to_publish() -> Vec<Case> {
    vec![
        accepting(
            "answer.forward-in-publish-ok",
            in_22("9.20.18"),
            "a FORWARD in the answer to a PUBLISH closes the session",
            || wire::request_ok(&[(parameter::FORWARD, Value::Byte(1))], &[]),
        ),
        accepting(
            "answer.properties-in-publish-ok",
            in_both("10.5", "9.3"),
            "Track Properties in the answer to a PUBLISH close the session",
            || wire::request_ok(&[], &[(property::OF_APPLICATION, Value::Bytes(vec![1]))]),
        ),
        accepting(
            "answer.two-publish-oks",
            in_both("5.1", "3.1"),
            "a second answer to a PUBLISH should close the session",
            || wire::request_ok(&[], &[]).repeat(2),
        )
        .level(Level::Should),
        accepting(
            "state-notify.of-subscriber-to-publish",
            in_22("9.10"),
            "a PUBLISH_STATE_NOTIFY of a subscriber closes the session",
            || {
                let forward = (parameter::FORWARD, Value::Byte(1));
                [wire::request_ok(&[], &[]), wire::state_notify(&[forward])].concat()
            },
        ),
        Case::must(
            "answer.properties-in-update-ok",
            in_22("9.3"),
            "Track Properties in the answer to an update close the session",
            |script| {
                let slot = script.publish_paused(A);
                script.step(Step::Behave(A, Box::new(|line| line.is_mute = true)));
                script.join(B);
                let subscription = script.request(B, Request::Subscribe);
                script.expect(B, subscribed(subscription));
                script.expect(A, kind(slot, MessageKind::RequestUpdate));
                script.then();
                let property = (property::OF_APPLICATION, Value::Bytes(vec![1]));
                script.write(A, slot, wire::request_ok(&[], &[property]));
                script.expect(A, closed(VIOLATION));
            },
        ),
    ]
}

/// Codes that are not in the registries are handled as `INTERNAL_ERROR`.
fn unknown_codes() -> Vec<Case> {
    const TEXT: &str = "an unknown error code does not close the session";
    const UNKNOWN: u64 = 0x9D;
    let mut cases = Vec::new();
    for (word, sections, of_error, of_end) in [
        ("unknown", in_both("14", "13"), UNKNOWN, UNKNOWN),
        (
            "removed",
            in_22("13"),
            refusal::INVALID_JOINING_REQUEST_ID,
            done::SUBSCRIPTION_ENDED,
        ),
    ] {
        let name = format!("code.{word}-request-error");
        cases.push(Case::must(name, sections, TEXT, move |script| {
            let channel = script.pending(A, B);
            script.then();
            script.write(A, channel.publication, wire::request_error(of_error, b""));
            script.finish(A, channel.publication);
            script.expect(B, refused(channel.subscription, &[]));
            script.alive(A);
        }));
        let name = format!("code.{word}-publish-done");
        cases.push(Case::must(name, sections, TEXT, move |script| {
            let slot = script.publish(A);
            script.then();
            script.write(A, slot, wire::publish_done(of_end, 0, b""));
            script.finish(A, slot);
            script.alive(A);
        }));
    }
    cases.push(Case::must(
        "code.unknown-stop",
        in_both("14", "13"),
        TEXT,
        |script| {
            let channel = script.channel(B, A);
            script.then();
            script.stop(A, channel.subscription, UNKNOWN);
            script.reset(A, channel.subscription, UNKNOWN);
            script.alive(A);
        },
    ));
    cases.push(Case::must(
        "code.unknown-reset",
        in_both("14", "13"),
        TEXT,
        |script| {
            script.publish(A);
            script.then();
            let slot = script.uni();
            script.write(A, slot, group(Subgroup::of(0), &[b"a"]));
            script.wait(20);
            script.reset(A, slot, UNKNOWN);
            script.alive(A);
        },
    ));
    cases
}
