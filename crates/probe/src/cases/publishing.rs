//! PUBLISH, Track Aliases, and answers of publishers.

use weir_moqt::message::{Message, MessageKind};

use super::VIOLATION;
use crate::{
    case::{Case, Level},
    edition::{Edition, Sections, in_18, in_22, in_both},
    script::{
        A, B, C, Check, Script, answered, closed, message, object_at, ok, progress, refused,
        request, subscribed,
    },
    seen::Slot,
    wire::{
        self, Range, Request, Subgroup, Value, close, done, group, parameter, property, refusal,
    },
};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = accepting();
    cases.extend(resuming());
    cases.extend(aliases());
    cases.extend(mandatory_properties());
    cases.extend(answers());
    cases.extend(later_answers());
    cases.extend(unknown_codes());
    cases.extend(relay_requests());
    cases.extend(new_groups());
    cases
}

fn accepting() -> Vec<Case> {
    vec![
        Case::must(
            "publish.answered",
            in_both("5.1", "3.1"),
            "a PUBLISH gets exactly one REQUEST_OK or REQUEST_ERROR",
            |script| {
                script.join(A);
                script.then();
                let slot = script.request(A, Request::Publish);
                script.expect(A, answered(slot));
                script.never(A, answered(slot));
            },
        ),
        Case::must(
            "publish.duplicate",
            in_18("5.1"),
            "a second PUBLISH for a track in one session is refused with DUPLICATE_SUBSCRIPTION",
            |script| {
                script.publish(A);
                script.then();
                let track = script.track.clone();
                let slot = script.ask(A, move |id| wire::publish(id, &track, 2, &[], &[]));
                script.expect(A, refused(slot, &[refusal::DUPLICATE_SUBSCRIPTION]));
            },
        ),
        Case::must(
            "publish.second",
            in_22("3.1"),
            "a second PUBLISH for a track in one session gets REQUEST_OK or REQUEST_ERROR",
            |script| {
                script.publish(A);
                script.then();
                let track = script.track.clone();
                let slot = script.ask(A, move |id| wire::publish(id, &track, 2, &[], &[]));
                script.expect(A, answered(slot));
                script.alive(A);
            },
        ),
        Case::must(
            "publish.with-subscribers",
            in_both("9.5", "7.6"),
            "a PUBLISH for a track with established subscribers gets REQUEST_OK with Forward State 1",
            |script| {
                script.channel(B, C);
                script.join(A);
                script.then();
                let slot = script.request(A, Request::Publish);
                let text = "REQUEST_OK without FORWARD 0";
                script.expect(
                    A,
                    message(slot, text, |message| {
                        matches!(message, Message::RequestOk(ok) if ok.parameters.forward != Some(false))
                    }),
                );
            },
        ),
    ]
}

/// Paused publishers, and several of them.
fn resuming() -> Vec<Case> {
    vec![
        Case::must(
            "publish.with-subscription-parameters",
            in_22("9.8"),
            "a PUBLISH may have the parameters that the subscription begins with",
            |script| {
                script.join(A);
                script.then();
                let track = script.track.clone();
                let parameters = vec![
                    (parameter::OBJECT_DELIVERY_TIMEOUT, Value::Int(9000)),
                    (parameter::SUBGROUP_DELIVERY_TIMEOUT, Value::Int(9000)),
                    (parameter::SUBSCRIBER_PRIORITY, Value::Byte(7)),
                    Range::From(0, 0).filter(script.edition),
                    (parameter::GROUP_ORDER, Value::Byte(2)),
                ];
                let slot = script.request_with(A, Request::Publish, track, parameters);
                script.expect(A, ok(slot));
            },
        ),
        Case::must(
            "publish.forward-0-resumed",
            in_both("9.5", "7.6"),
            "a SUBSCRIBE with Forward State 1 sets the Forward State of paused publishers to 1",
            |script| {
                script.join(B);
                let track = script.track.clone();
                let paused = vec![(parameter::FORWARD, Value::Byte(0))];
                let slot = script.request_with(B, Request::Publish, track, paused);
                script.expect(
                    B,
                    message(slot, "REQUEST_OK", |message| {
                        matches!(message, Message::RequestOk(_))
                    }),
                );
                script.join(A);
                script.then();
                let subscription = script.request(A, Request::Subscribe);
                script.expect(A, subscribed(subscription));
                script.expect(B, forwards(script.edition, slot));
            },
        ),
        Case::must(
            "publish.several-publishers",
            in_both("9.3", "7.3"),
            "objects of several publishers of a track are forwarded",
            |script| {
                script.channel(B, A);
                script.join(C);
                let slot = script.request(C, Request::Publish);
                script.expect(C, ok(slot));
                script.then();
                script.stream(B, group(Subgroup::of(0), &[b"of-one"]));
                script.expect(A, object_at(0, 0, b"of-one"));
                script.stream(C, group(Subgroup::of(1), &[b"of-another"]));
                script.expect(A, object_at(1, 0, b"of-another"));
            },
        ),
    ]
}

/// The relay lets the publisher forward: with an update, or in draft-18 with its REQUEST_OK. In draft-22, that has no FORWARD.
fn forwards(edition: Edition, slot: Slot) -> Check {
    let by_answer = edition == Edition::Eighteen;
    Check::new("Forward State 1", move |seen| {
        let messages = seen.on(slot).map(|it| it.messages.as_slice());
        progress(messages.unwrap_or_default().iter().any(|message| {
            matches!(message, Message::RequestOk(ok) if by_answer && ok.parameters.forward != Some(false))
                || matches!(message, Message::RequestUpdate(it) if it.parameters.forward == Some(true))
        }))
    })
}

fn aliases() -> Vec<Case> {
    const DUPLICATE: &[u64] = &[close::DUPLICATE_TRACK_ALIAS];
    vec![
        Case::must(
            "alias.repeated-publish",
            in_both("11.1", "3.1.3"),
            "a Track Alias of another track closes the session with DUPLICATE_TRACK_ALIAS",
            |script| {
                script.publish(A);
                script.then();
                let other = script.track.named("other");
                script.request_of(A, Request::Publish, other);
                script.expect(A, closed(DUPLICATE));
            },
        ),
        Case::must(
            "alias.repeated-subscribe-ok",
            in_both("11.1", "3.1.3"),
            "a Track Alias of another track closes the session with DUPLICATE_TRACK_ALIAS",
            |script| {
                script.channel(A, B);
                let other = script.track.named("other");
                script.request_of(B, Request::Subscribe, other);
                let taken = script.taken_subscribe(A);
                script.then();
                script.write(A, taken, wire::subscribe_ok(wire::ALIAS, &[], &[]));
                script.expect(A, closed(DUPLICATE));
            },
        ),
        Case::must(
            "alias.unknown-stream",
            in_both("11.4.2", "3.1.3.1"),
            "a subgroup of an unknown Track Alias may be abandoned or wait",
            |script| {
                script.join(A);
                script.then();
                let unknown = Subgroup {
                    alias: 4711,
                    ..Subgroup::of(0)
                };
                script.stream(A, group(unknown, &[b"a"]));
                script.alive(A);
            },
        )
        .level(Level::Implied),
        Case::must(
            "alias.unknown-datagram",
            in_both("11.3", "3.1.3.1"),
            "a datagram of an unknown Track Alias may be dropped or wait",
            |script| {
                script.join(A);
                script.then();
                script.datagram(A, wire::datagram(0, 0, b"a"));
                script.alive(A);
            },
        )
        .level(Level::Implied),
    ]
}

fn mandatory_properties() -> Vec<Case> {
    const REFUSED: &[u64] = &[refusal::UNSUPPORTED_EXTENSION];
    let mandatory = || vec![(property::MANDATORY_UNKNOWN, Value::Int(1))];
    vec![
        Case::must(
            "mandatory-property.publish",
            in_both("2.5.1", "3.7"),
            "a PUBLISH with an unknown mandatory property is refused with UNSUPPORTED_EXTENSION",
            move |script| {
                script.join(A);
                script.then();
                let track = script.track.clone();
                let slot = script.ask(A, move |id| wire::publish(id, &track, 1, &[], &mandatory()));
                script.expect(A, refused(slot, REFUSED));
            },
        ),
        Case::must(
            "mandatory-property.subscribe-ok",
            in_both("2.5.1", "3.7"),
            "subscribers of a track with an unknown mandatory property get UNSUPPORTED_EXTENSION",
            move |script| {
                let channel = script.pending(B, A);
                script.then();
                let accepted = wire::subscribe_ok(1, &[], &mandatory());
                script.write(B, channel.publication, accepted);
                script.expect(A, refused(channel.subscription, REFUSED));
            },
        ),
        Case::must(
            "mandatory-property.cancels-upstream",
            in_both("2.5.1", "3.7"),
            "the relay cancels a subscription with an unknown mandatory property",
            move |script| {
                let taken = script.pending(B, A).publication;
                script.then();
                script.write(B, taken, wire::subscribe_ok(1, &[], &mandatory()));
                script.expect(B, crate::script::over(taken));
            },
        ),
    ]
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
        Case::must(
            "answer.forward-in-publish-ok",
            in_22("9.20.18"),
            "a FORWARD in the answer to a PUBLISH closes the session",
            |script| {
                script.collect(A, vec![]);
                script.publish(B);
                let taken = script.taken();
                script.expect(A, request(taken, MessageKind::Publish, |_| true));
                script.then();
                let forward = (parameter::FORWARD, Value::Byte(1));
                script.write(A, taken, wire::request_ok(&[forward], &[]));
                script.expect(A, closed(VIOLATION));
            },
        ),
        Case::must(
            "answer.properties-in-publish-ok",
            in_both("10.5", "9.3"),
            "Track Properties in the answer to a PUBLISH close the session",
            |script| {
                script.collect(A, vec![]);
                script.publish(B);
                let taken = script.taken();
                script.expect(A, request(taken, MessageKind::Publish, |_| true));
                script.then();
                let property = (property::OF_APPLICATION, Value::Bytes(vec![1]));
                script.write(A, taken, wire::request_ok(&[], &[property]));
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

/// What the relay asks of publishers.
fn relay_requests() -> Vec<Case> {
    vec![
        Case::must(
            "relay.forward-1-upstream",
            in_both("9.5", "7.6"),
            "a relay that subscribes for a SUBSCRIBE with Forward State 1 uses Forward State 1",
            |script| {
                script.announce(B);
                script.join(A);
                script.then();
                script.request(A, Request::Subscribe);
                let taken = script.taken();
                let forwards = |message: &Message| matches!(message, Message::Subscribe(it) if it.parameters.forward != Some(false));
                script.expect(B, request(taken, MessageKind::Subscribe, forwards));
            },
        ),
        Case::must(
            "relay.request-id-parity",
            in_both("10.1", "6.4.2.1"),
            "the Request IDs of a server are odd, from 1 on",
            |script| {
                script.announce(B);
                script.join(A);
                script.then();
                script.request(A, Request::Subscribe);
                let taken = script.taken();
                let is_odd = |message: &Message| matches!(message, Message::Subscribe(it) if it.request_id % 2 == 1);
                script.expect(B, request(taken, MessageKind::Subscribe, is_odd));
            },
        ),
    ]
}

/// What the relay passes on to publishers, and what it sends to nobody.
fn new_groups() -> Vec<Case> {
    vec![
        Case::must(
            "relay.new-group-request",
            in_both("10.2.13", "9.20.19"),
            "a NEW_GROUP_REQUEST for a track without a subscription goes upstream",
            |script| {
                script.announce(B);
                script.join(A);
                script.then();
                let track = script.track.clone();
                let wanted = vec![(parameter::NEW_GROUP_REQUEST, Value::Int(0))];
                script.request_with(A, Request::Subscribe, track, wanted);
                let taken = script.taken();
                let asks = |message: &Message| matches!(message, Message::Subscribe(it) if it.parameters.new_group_request.is_some());
                script.expect(B, request(taken, MessageKind::Subscribe, asks));
            },
        ),
        Case::must(
            "relay.new-group-request-established",
            in_both("10.2.13", "9.20.19"),
            "a NEW_GROUP_REQUEST for an established track with dynamic groups goes upstream",
            |script| {
                let dynamic = vec![(property::DYNAMIC_GROUPS, Value::Int(1))];
                let channel = script.channel_with(B, A, vec![], &dynamic);
                script.then();
                let wanted = vec![(parameter::NEW_GROUP_REQUEST, Value::Int(0))];
                script.update(A, channel.subscription, wanted);
                let text = "REQUEST_UPDATE with NEW_GROUP_REQUEST";
                script.expect(
                    B,
                    message(channel.publication, text, |message| {
                        matches!(message, Message::RequestUpdate(it) if it.parameters.new_group_request.is_some())
                    }),
                );
            },
        ),
        Case::must(
            "relay.no-unasked-publish",
            in_both("5.1", "3.1"),
            "a relay sends no PUBLISH to a client that has not shown interest",
            |script| {
                script.join(A);
                script.publish(B);
                script.then();
                let taken = script.taken();
                script.never(A, request(taken, MessageKind::Publish, |_| true));
            },
        ),
    ]
}
