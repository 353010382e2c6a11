//! SUBSCRIBE, its filters and updates.

use weir_moqt::{location::Location, message::Message};

use crate::{
    case::{Case, Level},
    edition::{in_18, in_22, in_both},
    script::{
        A, B, C, Check, Progress, answered, done, finished, message, object, object_at, ok, over,
        progress, refused, subscribed,
    },
    seen::{Slot, StreamEnd},
    wire::{self, Request, Subgroup, Value, group, parameter, property, refusal},
};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = without_publisher();
    cases.extend(establishing());
    cases.extend(reaching());
    cases.extend(largest());
    cases.push(without_properties());
    cases.extend(largest_of_objects());
    cases.extend(forwarding());
    cases.extend(endings());
    cases.extend(ends_of_publishers());
    cases.push(after_refusal());
    cases
}

/// Objects of a track whose SUBSCRIBE was refused.
fn after_refusal() -> Case {
    Case::must(
        "subscribe.refused-gets-no-objects",
        in_both("5.1.1", "3.1.2"),
        "no objects are sent for a SUBSCRIBE that was refused",
        |script| {
            script.join(A);
            let slot = script.request(A, Request::Subscribe);
            script.expect(A, refused(slot, &[]));
            script.publish(B);
            script.join(C);
            let other = script.request(C, Request::Subscribe);
            script.expect(C, subscribed(other));
            script.then();
            script.stream(B, group(Subgroup::of(0), &[b"a"]));
            script.expect(C, object_at(0, 0, b"a"));
            script.never(A, object("an object", |_| true));
        },
    )
}

/// `RENDEZVOUS_TIMEOUT` of so many milliseconds.
fn rendezvous(milliseconds: u64) -> Vec<(u64, Value)> {
    vec![(parameter::RENDEZVOUS_TIMEOUT, Value::Int(milliseconds))]
}

fn without_publisher() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, parameters) in [("absent", vec![]), ("zero", rendezvous(0))] {
        cases.push(Case::must(
            format!("subscribe.no-publisher-rendezvous-{name}"),
            in_both("10.2.6", "9.20.6"),
            "without a publisher, and with a rendezvous timeout of 0, the answer is DOES_NOT_EXIST",
            move |script| {
                script.join(A);
                script.then();
                let track = script.track.clone();
                let slot = script.request_with(A, Request::Subscribe, track, parameters.clone());
                script.expect(A, refused(slot, &[refusal::DOES_NOT_EXIST]));
            },
        ));
    }
    cases.push(
        Case::must(
            "subscribe.rendezvous-expires",
            in_both("10.2.6", "9.20.6"),
            "a rendezvous that finds no publisher should end with TIMEOUT",
            |script| {
                script.join(A);
                script.then();
                let track = script.track.clone();
                let slot = script.request_with(A, Request::Subscribe, track, rendezvous(300));
                script.expect(A, refused(slot, &[refusal::TIMEOUT]));
            },
        )
        .level(Level::Should),
    );
    cases.push(
        Case::must(
            "subscribe.rendezvous-with-publish",
            in_both("10.2.6", "9.20.6"),
            "a SUBSCRIBE with a rendezvous timeout should wait for a publisher",
            |script| {
                script.join(A);
                let track = script.track.clone();
                let slot = script.request_with(A, Request::Subscribe, track, rendezvous(4000));
                script.wait(100);
                script.publish(B);
                script.then();
                script.expect(A, subscribed(slot));
            },
        )
        .level(Level::Should),
    );
    cases
}

fn establishing() -> Vec<Case> {
    vec![
        Case::must(
            "subscribe.waits-for-upstream",
            in_both("9.4", "7.4"),
            "SUBSCRIBE_OK is sent only when an upstream subscription is established",
            |script| {
                let channel = script.pending(B, A);
                let (taken, slot) = (channel.publication, channel.subscription);
                script.then();
                script.never(A, answered(slot));
                script.write(B, taken, wire::subscribe_ok(wire::ALIAS, &[], &[]));
                script.expect(A, subscribed(slot));
            },
        ),
        Case::must(
            "subscribe.refused-upstream",
            in_both("5.1", "3.1"),
            "a SUBSCRIBE gets exactly one SUBSCRIBE_OK or REQUEST_ERROR, also if the publisher refuses",
            |script| {
                let channel = script.pending(B, A);
                let (taken, slot) = (channel.publication, channel.subscription);
                script.then();
                script.write(B, taken, wire::request_error(refusal::DOES_NOT_EXIST, b""));
                script.finish(B, taken);
                script.expect(A, refused(slot, &[]));
            },
        ),
        Case::must(
            "subscribe.published-track",
            in_both("9.5", "7.6"),
            "a SUBSCRIBE for a track with an established publisher gets SUBSCRIBE_OK",
            |script| {
                script.publish(B);
                script.join(A);
                script.then();
                let slot = script.request(A, Request::Subscribe);
                script.expect(A, subscribed(slot));
            },
        ),
        Case::must(
            "subscribe.own-track",
            in_both("5.1", "3.1"),
            "a relay accepts a SUBSCRIBE for a track that the subscriber publishes, and forwards its objects back",
            |script| {
                script.publish(A);
                script.then();
                let slot = script.request(A, Request::Subscribe);
                script.expect(A, subscribed(slot));
                script.stream(A, group(Subgroup::of(0), &[b"mine"]));
                script.expect(A, object_at(0, 0, b"mine"));
            },
        ),
    ]
}

/// Which publishers a SUBSCRIBE reaches.
fn reaching() -> Vec<Case> {
    vec![
        Case::must(
            "subscribe.duplicate",
            in_18("5.1"),
            "a second SUBSCRIBE for a track in one session is refused with DUPLICATE_SUBSCRIPTION",
            |script| {
                script.channel(B, A);
                script.then();
                let slot = script.request(A, Request::Subscribe);
                script.expect(A, refused(slot, &[refusal::DUPLICATE_SUBSCRIPTION]));
            },
        ),
        Case::must(
            "subscribe.second",
            in_22("3.1"),
            "a second SUBSCRIBE for a track in one session is answered, and the first one goes on",
            |script| {
                script.channel(B, A);
                script.then();
                let slot = script.request(A, Request::Subscribe);
                script.expect(A, answered(slot));
                script.stream(B, group(Subgroup::of(0), &[b"a"]));
                script.expect(A, object_at(0, 0, b"a"));
            },
        ),
        Case::must(
            "subscribe.announced-by-prefix",
            in_both("9.5", "7.6"),
            "a SUBSCRIBE reaches a publisher that announced a prefix of the namespace",
            |script| {
                script.announce(B);
                script.join(A);
                script.then();
                let track = script.track.below("more");
                script.request_of(A, Request::Subscribe, track);
                script.taken_subscribe(B);
            },
        ),
        Case::must(
            "subscribe.other-namespace",
            in_both("9.5", "2.4.2"),
            "fields of a namespace match exactly: (foo) does not match (foobar)",
            |script| {
                script.announce(B);
                script.join(A);
                script.then();
                let track = script.track.beside("more");
                let slot = script.request_of(A, Request::Subscribe, track);
                script.expect(A, refused(slot, &[refusal::DOES_NOT_EXIST]));
            },
        ),
        Case::must(
            "subscribe.all-announcers",
            in_both("9.5", "7.6"),
            "a SUBSCRIBE is sent to every publisher of the namespace",
            |script| {
                script.announce(B);
                script.announce(C);
                script.join(A);
                script.then();
                script.request(A, Request::Subscribe);
                for client in [B, C] {
                    script.taken_subscribe(client);
                }
            },
        ),
    ]
}

/// The next message is SUBSCRIBE_OK with this `LARGEST_OBJECT`.
fn has_largest(slot: Slot, group: u64, object: u64) -> Check {
    let text = format!("SUBSCRIBE_OK with LARGEST_OBJECT {{{group}, {object}}}");
    let largest = Some(Location::new(group, object));
    message(
        slot,
        text,
        move |message| matches!(message, Message::SubscribeOk(ok) if ok.parameters.largest_object == largest),
    )
}

/// `LARGEST_OBJECT` and Track Properties.
fn largest() -> Vec<Case> {
    let announced = |name: &str, properties: fn() -> Vec<(u64, Value)>, sections, text: &str| {
        Case::must(name, sections, text, move |script| {
            let channel = script.pending(B, A);
            let (taken, slot) = (channel.publication, channel.subscription);
            script.then();
            let largest = (parameter::LARGEST_OBJECT, Value::Location(700, 3));
            let accepted = wire::subscribe_ok(wire::ALIAS, &[largest], &properties());
            script.write(B, taken, accepted);
            let encoded = wire::pairs(&properties());
            if encoded.is_empty() {
                script.expect(A, has_largest(slot, 700, 3));
                return;
            }
            let text = "SUBSCRIBE_OK with the Track Properties of the publisher";
            script.expect(
                A,
                message(slot, text, move |message| {
                    matches!(message, Message::SubscribeOk(ok) if ok.properties.as_bytes()[..] == encoded[..])
                }),
            );
        })
    };
    vec![
        announced(
            "subscribe.largest-of-publisher",
            Vec::new,
            in_both("10.2.11", "9.20.17"),
            "LARGEST_OBJECT of SUBSCRIBE_OK is the one that the publisher sent",
        ),
        announced(
            "subscribe.track-properties",
            || vec![(property::OF_APPLICATION, Value::Bytes(b"kept".to_vec()))],
            in_both("9.6", "7.7"),
            "a relay forwards all Track Properties, also those that it does not know",
        ),
    ]
}

/// Track Properties that the subscriber does not want.
fn without_properties() -> Case {
    Case::must(
        "subscribe.include-properties-0",
        in_22("9.20.21"),
        "after INCLUDE_PROPERTIES 0, the Track Properties of SUBSCRIBE_OK should be empty",
        |script| {
            let none = vec![(parameter::INCLUDE_PROPERTIES, Value::Byte(0))];
            let channel = script.pending_with(B, A, none);
            script.then();
            let kept = (property::OF_APPLICATION, Value::Bytes(b"kept".to_vec()));
            let accepted = wire::subscribe_ok(wire::ALIAS, &[], &[kept]);
            script.write(B, channel.publication, accepted);
            script.expect(
                A,
                message(channel.subscription, "SUBSCRIBE_OK without Track Properties", |message| {
                    matches!(message, Message::SubscribeOk(ok) if ok.properties.as_bytes().is_empty())
                }),
            );
        },
    )
    .level(Level::Should)
}

/// `LARGEST_OBJECT` of what the relay received.
fn largest_of_objects() -> Vec<Case> {
    vec![
        Case::must(
            "subscribe.largest-of-objects",
            in_both("10.2.11", "9.20.17"),
            "LARGEST_OBJECT of SUBSCRIBE_OK is the largest object that the relay received",
            |script| {
                script.channel(B, A);
                script.stream(B, group(Subgroup::of(4), &[b"a", b"b", b"c"]));
                script.expect(A, object_at(4, 2, b"c"));
                script.join(C);
                script.then();
                let slot = script.request(C, Request::Subscribe);
                script.expect(C, has_largest(slot, 4, 2));
            },
        ),
        Case::must(
            "update.largest-object",
            in_both("10.2.11", "9.20.17"),
            "REQUEST_OK for an update has LARGEST_OBJECT if objects were published",
            |script| {
                let channel = script.channel(B, A);
                script.stream(B, group(Subgroup::of(4), &[b"a", b"b"]));
                script.expect(A, object_at(4, 1, b"b"));
                script.then();
                let priority = (parameter::SUBSCRIBER_PRIORITY, Value::Byte(7));
                script.update(A, channel.subscription, vec![priority]);
                let largest = Some(Location::new(4, 1));
                script.expect(
                    A,
                    message(channel.subscription, "REQUEST_OK with LARGEST_OBJECT {4, 1}", move |message| {
                        matches!(message, Message::RequestOk(ok) if ok.parameters.largest_object == largest)
                    }),
                );
            },
        ),
        Case::must(
            "subscribe.largest-absent",
            in_both("10.2.11", "9.20.17"),
            "SUBSCRIBE_OK has no LARGEST_OBJECT before the first object",
            |script| {
                let channel = script.pending(B, A);
                let (taken, slot) = (channel.publication, channel.subscription);
                script.write(B, taken, wire::subscribe_ok(wire::ALIAS, &[], &[]));
                script.then();
                script.expect(
                    A,
                    message(slot, "SUBSCRIBE_OK without LARGEST_OBJECT", |message| {
                        matches!(message, Message::SubscribeOk(ok) if ok.parameters.largest_object.is_none())
                    }),
                );
            },
        ),
    ]
}

/// The Forward State, and updates.
fn forwarding() -> Vec<Case> {
    let forward = |value| vec![(parameter::FORWARD, Value::Byte(value))];
    vec![
        Case::must(
            "subscribe.forward-0",
            in_both("5.1", "3.1.1"),
            "a subscription with Forward State 0 gets no objects",
            move |script| {
                script.channel_with(B, A, forward(0), &[]);
                script.then();
                script.stream(B, group(Subgroup::of(0), &[b"a"]));
                script.never(A, object("an object", |_| true));
            },
        ),
        Case::must(
            "subscribe.forward-0-to-1",
            in_both("5.1", "3.1.1"),
            "a subscription whose Forward State becomes 1 gets objects",
            move |script| {
                let channel = script.channel_with(B, A, forward(0), &[]);
                script.then();
                script.update(A, channel.subscription, forward(1));
                script.expect(A, ok(channel.subscription));
                script.stream(B, group(Subgroup::of(3), &[b"a"]));
                script.expect(A, object_at(3, 0, b"a"));
            },
        ),
        Case::must(
            "update.each-answered",
            in_both("10.9", "9.5"),
            "each REQUEST_UPDATE gets a REQUEST_OK or REQUEST_ERROR",
            |script| {
                let channel = script.channel(B, A);
                script.then();
                for priority in 1..=3 {
                    let priority = (parameter::SUBSCRIBER_PRIORITY, Value::Byte(priority));
                    script.update(A, channel.subscription, vec![priority]);
                }
                for _ in 1..=3 {
                    script.expect(A, ok(channel.subscription));
                }
                script.never(A, answered(channel.subscription));
            },
        ),
    ]
}

fn endings() -> Vec<Case> {
    vec![
        Case::must(
            "subscribe.cancel-resets-streams",
            in_both("5.1.1", "3.1.2"),
            "a publisher that receives STOP_SENDING for a subscription resets its open streams",
            |script| {
                let channel = script.channel(B, A);
                let slot = script.uni();
                script.write(B, slot, group(Subgroup::of(0), &[b"a"]));
                script.expect(A, object_at(0, 0, b"a"));
                script.then();
                script.stop(A, channel.subscription, 1);
                script.reset(A, channel.subscription, 1);
                script.expect(A, data_stream_reset());
            },
        ),
        Case::must(
            "publish-done.forwarded",
            in_both("9.4", "7.4"),
            "a subscription ends when the upstream publisher ends it",
            |script| {
                let channel = script.channel(B, A);
                script.stream(B, group(Subgroup::of(0), &[b"a"]));
                script.expect(A, object_at(0, 0, b"a"));
                script.then();
                let ended = wire::publish_done(wire::done::TRACK_ENDED, 1, b"");
                script.write(B, channel.publication, ended);
                script.finish(B, channel.publication);
                script.expect(A, done(channel.subscription, None));
            },
        ),
        Case::must(
            "publish-done.finishes-stream",
            in_both("10.11", "6.4.2.2"),
            "a sender should send FIN after PUBLISH_DONE",
            |script| {
                let channel = script.channel(B, A);
                let ended = wire::publish_done(wire::done::TRACK_ENDED, 0, b"");
                script.write(B, channel.publication, ended);
                script.finish(B, channel.publication);
                script.expect(A, done(channel.subscription, None));
                script.then();
                script.expect(A, finished(channel.subscription));
            },
        )
        .level(Level::Should),
    ]
}

/// What subscribers see of the end of a publisher.
fn ends_of_publishers() -> Vec<Case> {
    vec![
        Case::must(
            "publish-done.stream-count",
            in_both("10.11", "9.9"),
            "Stream Count of PUBLISH_DONE is the number of streams that the relay opened, or unknown",
            |script| {
                let channel = script.channel(B, A);
                for number in 0..3 {
                    script.stream(B, group(Subgroup::of(number), &[b"a"]));
                    script.expect(A, object_at(number, 0, b"a"));
                }
                let ended = wire::publish_done(wire::done::TRACK_ENDED, 3, b"");
                script.write(B, channel.publication, ended);
                script.finish(B, channel.publication);
                script.then();
                let text = "PUBLISH_DONE with 3 streams, or an unknown number";
                script.expect(
                    A,
                    message(channel.subscription, text, |message| {
                        matches!(message, Message::PublishDone(done) if matches!(done.stream_count, Some(3) | None))
                    }),
                );
            },
        ),
        Case::must(
            "publish-done.no-streams",
            in_both("10.11", "9.9"),
            "Stream Count of PUBLISH_DONE is 0 if the relay opened no stream",
            |script| {
                let channel = script.channel(B, A);
                script.then();
                let ended = wire::publish_done(wire::done::TRACK_ENDED, 0, b"");
                script.write(B, channel.publication, ended);
                script.finish(B, channel.publication);
                script.expect(
                    A,
                    message(channel.subscription, "PUBLISH_DONE with 0 streams", |message| {
                        matches!(message, Message::PublishDone(done) if done.stream_count == Some(0))
                    }),
                );
            },
        ),
        Case::must(
            "subscribe.publisher-vanishes",
            in_both("9.4", "7.4"),
            "a subscription does not outlive its only publisher for ever",
            |script| {
                let channel = script.channel(B, A);
                script.then();
                script.step(crate::script::Step::Close(B, 0));
                script.wait(4_900);
                script.wait(1_500);
                script.expect(A, over(channel.subscription));
            },
        )
        .level(Level::Implied),
    ]
}

/// A subgroup stream of the relay was reset.
fn data_stream_reset() -> Check {
    Check::new("a reset of the subgroup stream", |seen| {
        let mut streams = seen.streams().filter(|(_, one)| one.header.is_some());
        match streams.find_map(|(_, one)| one.end) {
            Some(StreamEnd::Reset(_)) => Progress::Met,
            Some(StreamEnd::Fin) => Progress::Broken("the relay finished the stream".to_owned()),
            None => progress(false),
        }
    })
}
