//! PUBLISH, Track Aliases, and answers of publishers.

use weir_moqt::message::{Message, MessageKind};

use super::VIOLATION;
use crate::{
    case::{Case, Level},
    script::{
        A, B, C, Check, Script, answered, closed, message, object_at, ok, progress, refused,
        request, subscribed,
    },
    seen::Slot,
    wire::{self, Request, Subgroup, Value, close, done, group, parameter, property, refusal},
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
            "5.1",
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
            "5.1",
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
            "publish.with-subscribers",
            "9.5",
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
            "publish.forward-0-resumed",
            "9.5",
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
                script.expect(B, forwards(slot));
            },
        ),
        Case::must(
            "publish.several-publishers",
            "9.3",
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

/// The relay lets the publisher forward, with its REQUEST_OK or with a later update.
fn forwards(slot: Slot) -> Check {
    Check::new("Forward State 1", move |seen| {
        let messages = seen.on(slot).map(|it| it.messages.as_slice());
        progress(messages.unwrap_or_default().iter().any(|message| {
            matches!(message, Message::RequestOk(ok) if ok.parameters.forward != Some(false))
                || matches!(message, Message::RequestUpdate(it) if it.parameters.forward == Some(true))
        }))
    })
}

fn aliases() -> Vec<Case> {
    const DUPLICATE: &[u64] = &[close::DUPLICATE_TRACK_ALIAS];
    vec![
        Case::must(
            "alias.repeated-publish",
            "11.1",
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
            "11.1",
            "a Track Alias of another track closes the session with DUPLICATE_TRACK_ALIAS",
            |script| {
                script.channel(A, B);
                let other = script.track.named("other");
                script.request_of(B, Request::Subscribe, other);
                let taken = script.taken();
                script.expect(A, request(taken, MessageKind::Subscribe, |_| true));
                script.then();
                script.write(A, taken, wire::subscribe_ok(wire::ALIAS, &[], &[]));
                script.expect(A, closed(DUPLICATE));
            },
        ),
        Case::must(
            "alias.unknown-stream",
            "11.4.2",
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
            "11.3",
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
            "2.5.1",
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
            "2.5.1",
            "subscribers of a track with an unknown mandatory property get UNSUPPORTED_EXTENSION",
            move |script| {
                script.announce(B);
                script.join(A);
                let slot = script.request(A, Request::Subscribe);
                let taken = script.taken();
                script.expect(B, request(taken, MessageKind::Subscribe, |_| true));
                script.then();
                script.write(B, taken, wire::subscribe_ok(1, &[], &mandatory()));
                script.expect(A, refused(slot, REFUSED));
            },
        ),
        Case::must(
            "mandatory-property.cancels-upstream",
            "2.5.1",
            "the relay cancels a subscription with an unknown mandatory property",
            move |script| {
                script.announce(B);
                script.join(A);
                script.request(A, Request::Subscribe);
                let taken = script.taken();
                script.expect(B, request(taken, MessageKind::Subscribe, |_| true));
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
    section: &'static str,
    requirement: &str,
    answer: fn() -> Vec<u8>,
) -> Case {
    Case::must(name, section, requirement, move |script: &mut Script| {
        script.announce(A);
        script.join(B);
        script.request(B, Request::Subscribe);
        let taken = script.taken();
        script.expect(A, request(taken, MessageKind::Subscribe, |_| true));
        script.then();
        script.write(A, taken, answer());
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
            "1.4.4",
            LONG_REASON,
            || wire::request_error(refusal::DOES_NOT_EXIST, &[b'r'; 1025]),
        ),
        answering(
            "answer.redirect-with-uri",
            "10.6.1",
            "a REDIRECT from a client with a URI closes the session",
            || {
                let redirect = [wire::prefixed(b"moqt://example.net"), vec![0, 0]].concat();
                let payload = [wire::int(refusal::REDIRECT), vec![0, 0], redirect].concat();
                wire::framed(wire::message::REQUEST_ERROR, &payload)
            },
        ),
        answering(
            "answer.two-subscribe-oks",
            "5.1",
            "a second SUBSCRIBE_OK should close the session",
            || {
                [
                    wire::subscribe_ok(1, &[], &[]),
                    wire::subscribe_ok(1, &[], &[]),
                ]
                .concat()
            },
        )
        .level(Level::Should),
        answering(
            "answer.fetch-ok-to-subscribe",
            "10.13",
            "FETCH_OK answers FETCH only",
            || wire::fetch_ok((0, 1), &[]),
        )
        .level(Level::Implied),
        answering(
            "answer.request-ok-to-subscribe",
            "10.5",
            "REQUEST_OK does not answer SUBSCRIBE",
            || wire::request_ok(&[], &[]),
        )
        .level(Level::Implied),
        answering(
            "answer.namespace-to-subscribe",
            "10.16",
            "NAMESPACE answers SUBSCRIBE_NAMESPACE only",
            || wire::framed(wire::message::NAMESPACE, &wire::namespace(&[b"a".to_vec()])),
        )
        .level(Level::Implied),
    ]
}

/// Messages after the first answer that a client may not send.
fn later_answers() -> Vec<Case> {
    vec![
        Case::must(
            "answer.reason-1025-bytes-publish-done",
            "1.4.4",
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
            "10.11",
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
            "answer.properties-in-publish-ok",
            "10.5",
            "Track Properties in the answer to a PUBLISH close the session",
            |script| {
                script.join(A);
                let tracks = script.request(A, Request::SubscribeTracks);
                script.expect(A, ok(tracks));
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
    vec![
        Case::must("code.unknown-request-error", "14", TEXT, |script| {
            script.announce(A);
            script.join(B);
            let slot = script.request(B, Request::Subscribe);
            let taken = script.taken();
            script.expect(A, request(taken, MessageKind::Subscribe, |_| true));
            script.then();
            script.write(A, taken, wire::request_error(UNKNOWN, b""));
            script.finish(A, taken);
            script.expect(B, refused(slot, &[]));
            script.alive(A);
        }),
        Case::must("code.unknown-publish-done", "14", TEXT, |script| {
            let slot = script.publish(A);
            script.then();
            script.write(A, slot, wire::publish_done(UNKNOWN, 0, b""));
            script.finish(A, slot);
            script.alive(A);
        }),
        Case::must("code.unknown-reset", "14", TEXT, |script| {
            script.publish(A);
            script.then();
            let slot = script.uni();
            script.write(A, slot, group(Subgroup::of(0), &[b"a"]));
            script.wait(20);
            script.reset(A, slot, UNKNOWN);
            script.alive(A);
        }),
    ]
}

/// What the relay asks of publishers.
fn relay_requests() -> Vec<Case> {
    vec![
        Case::must(
            "relay.forward-1-upstream",
            "9.5",
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
            "10.1",
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
            "10.2.13",
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
            "10.2.13",
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
            "5.1",
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
