//! PUBLISH, Track Aliases, and what the relay asks of publishers.

use weir_moqt::{
    location::Location,
    message::{Message, MessageKind},
};

use super::VIOLATION;
use crate::{
    case::{Case, Level},
    edition::{Edition, in_18, in_22, in_both},
    script::{
        A, B, C, Check, Progress, answered, closed, message, object_at, ok, progress, refused,
        request, subscribed,
    },
    seen::Slot,
    wire::{self, Range, Request, Subgroup, Value, close, group, parameter, property, refusal},
};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = accepting();
    cases.extend(resuming());
    cases.extend(updating());
    cases.extend(offering());
    cases.extend(aliases());
    cases.push(alias_of_relay());
    cases.extend(mandatory_properties());
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
                let slot = script.publish_paused(B);
                script.join(A);
                script.then();
                let subscription = script.request(A, Request::Subscribe);
                script.expect(A, subscribed(subscription));
                script.expect(B, forwards(script.edition, slot));
            },
        ),
        Case::must(
            "publish.forward-0-with-subscribers",
            in_both("9.5", "7.6"),
            "a paused PUBLISH for a track with an unpaused subscriber is resumed",
            |script| {
                script.channel(B, C);
                script.then();
                let slot = script.publish_paused(A);
                script.expect(A, forwards(script.edition, slot));
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

/// Updates that a publisher sends.
fn updating() -> Vec<Case> {
    vec![
        Case::must(
            "update.of-publish",
            in_both("10.9", "9.5"),
            "a REQUEST_UPDATE of a PUBLISH by its publisher gets a REQUEST_OK or REQUEST_ERROR",
            |script| {
                let slot = script.publish(A);
                script.then();
                script.update(A, slot, vec![]);
                script.expect(A, answered(slot));
            },
        ),
        Case::must(
            "update.of-responder",
            in_22("9.5"),
            "a REQUEST_UPDATE of the publisher that answered a SUBSCRIBE closes the session",
            |script| {
                let channel = script.channel(A, B);
                script.then();
                script.update(A, channel.publication, vec![]);
                script.expect(A, closed(VIOLATION));
            },
        ),
    ]
}

/// What a PUBLISH of the relay says of the track.
fn offering() -> Vec<Case> {
    vec![
        Case::must(
            "publish.track-properties",
            in_both("9.6", "7.7"),
            "a relay forwards all Track Properties in PUBLISH",
            |script| {
                let kept = vec![(property::OF_APPLICATION, Value::Bytes(b"kept".to_vec()))];
                let encoded = wire::pairs(&kept);
                script.collect(A, vec![]);
                script.join(B);
                script.then();
                let track = script.track.clone();
                script.ask(B, move |id| wire::publish(id, &track, 1, &[], &kept));
                let taken = script.taken();
                let has_kept = move |message: &Message| matches!(message, Message::Publish(it) if it.properties.as_bytes()[..] == encoded[..]);
                script.expect(A, request(taken, MessageKind::Publish, has_kept));
            },
        ),
        Case::must(
            "publish.largest-object",
            in_both("10.2.11", "9.20.17"),
            "PUBLISH has LARGEST_OBJECT if objects were published",
            |script| {
                script.publish(B);
                script.join(C);
                let slot = script.request(C, Request::Subscribe);
                script.expect(C, subscribed(slot));
                script.stream(B, group(Subgroup::of(4), &[b"a", b"b"]));
                script.expect(C, object_at(4, 1, b"b"));
                script.collect(A, vec![]);
                script.then();
                let taken = script.taken();
                let largest = Some(Location::new(4, 1));
                let has_largest = move |message: &Message| matches!(message, Message::Publish(it) if it.parameters.largest_object == largest);
                script.expect(A, request(taken, MessageKind::Publish, has_largest));
            },
        ),
        Case::must(
            "subscribe-tracks.token-not-copied",
            in_22("9.20.2"),
            "PUBLISH does not have the token of SUBSCRIBE_TRACKS",
            |script| {
                let token = Value::Bytes([vec![3, 0], b"secret".to_vec()].concat());
                script.collect(A, vec![(parameter::AUTHORIZATION_TOKEN, token)]);
                script.publish(B);
                script.then();
                let taken = script.taken();
                let has_none = |message: &Message| matches!(message, Message::Publish(it) if it.parameters.authorization_tokens.is_empty());
                script.expect(A, request(taken, MessageKind::Publish, has_none));
            },
        ),
    ]
}

/// The Track Aliases in two answers differ.
fn other_aliases(first: Slot, second: Slot) -> Check {
    Check::new("two Track Aliases", move |seen| {
        let alias = |slot| {
            let Message::SubscribeOk(ok) = seen.on(slot)?.messages.first()? else {
                return None;
            };
            Some(ok.track_alias)
        };
        match (alias(first), alias(second)) {
            (Some(one), Some(other)) if one == other => {
                Progress::Broken(format!("both tracks have the Track Alias {one}"))
            }
            (one, other) => progress(one.is_some() && other.is_some()),
        }
    })
}

fn alias_of_relay() -> Case {
    Case::must(
        "alias.of-two-tracks",
        in_both("11.1", "3.1.3"),
        "a publisher does not use one Track Alias for two tracks at once",
        |script| {
            let channel = script.channel(B, A);
            script.then();
            let other = script.track.named("other");
            let slot = script.request_of(A, Request::Subscribe, other);
            let taken = script.taken_subscribe(B);
            script.write(B, taken, wire::subscribe_ok(wire::ALIAS + 1, &[], &[]));
            script.expect(A, other_aliases(channel.subscription, slot));
        },
    )
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
