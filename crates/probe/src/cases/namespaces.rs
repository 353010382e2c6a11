//! Announced namespaces, and subscriptions to prefixes.

use weir_moqt::message::{Message, MessageKind};

use crate::{
    case::{Case, Level},
    edition::{in_22, in_both},
    script::{
        A, B, C, Check, Script, answered, message, ok, over, progress, refused, request, subscribed,
    },
    seen::Slot,
    wire::{self, Request, Value, parameter, refusal},
};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = announcing();
    cases.extend(withdrawing());
    cases.extend(matching());
    cases.extend(overlaps());
    cases.extend(tracks());
    cases.extend(tracks_not_offered());
    cases.extend(late_publishers());
    cases
}

/// The next message is NAMESPACE, or NAMESPACE_DONE, with this suffix.
fn suffix(slot: Slot, is_done: bool, field: &'static str) -> Check {
    let name = if is_done {
        "NAMESPACE_DONE"
    } else {
        "NAMESPACE"
    };
    message(
        slot,
        format!("{name} with the suffix ({field})"),
        move |message| {
            let (Message::Namespace(found) | Message::NamespaceDone(found)) = message else {
                return false;
            };
            if (message.kind() == MessageKind::NamespaceDone) != is_done {
                return false;
            }
            let fields: Vec<&[u8]> = found.fields().collect();
            match field {
                "" => fields.is_empty(),
                field => fields == [field.as_bytes()],
            }
        },
    )
}

/// A client joins and subscribes to the namespaces under that of the case.
fn watch(script: &mut Script, client: usize) -> Slot {
    script.join(client);
    let slot = script.request(client, Request::SubscribeNamespace);
    script.expect(client, ok(slot));
    slot
}

/// A client joins and announces a namespace below that of the case.
fn announce_below(script: &mut Script, client: usize) -> Slot {
    script.join(client);
    let below = script.track.below("below");
    let slot = script.request_of(client, Request::PublishNamespace, below);
    script.expect(client, ok(slot));
    slot
}

fn announcing() -> Vec<Case> {
    vec![
        Case::must(
            "publish-namespace.answered",
            in_both("6.2", "4.1"),
            "a PUBLISH_NAMESPACE gets exactly one REQUEST_OK or REQUEST_ERROR",
            |script| {
                script.join(A);
                script.then();
                let slot = script.request(A, Request::PublishNamespace);
                script.expect(A, answered(slot));
                script.never(A, answered(slot));
            },
        ),
        Case::must(
            "subscribe-namespace.existing",
            in_both("6.2", "4.2"),
            "a subscriber to a prefix gets NAMESPACE for a namespace that was announced before",
            |script| {
                announce_below(script, B);
                let slot = watch(script, A);
                script.then();
                script.expect(A, suffix(slot, false, "below"));
            },
        ),
        Case::must(
            "subscribe-namespace.later",
            in_both("6.2", "4.2"),
            "a subscriber to a prefix gets NAMESPACE for a namespace that is announced later",
            |script| {
                let slot = watch(script, A);
                announce_below(script, B);
                script.then();
                script.expect(A, suffix(slot, false, "below"));
            },
        ),
        Case::must(
            "subscribe-namespace.exact",
            in_both("10.16", "9.16"),
            "a NAMESPACE equal to the prefix has an empty suffix",
            |script| {
                let slot = watch(script, A);
                script.announce(B);
                script.then();
                script.expect(A, suffix(slot, false, ""));
            },
        ),
    ]
}

/// The first message after the answer is NAMESPACE_DONE.
fn done_without_namespace(slot: Slot) -> Check {
    Check::new("NAMESPACE_DONE without a NAMESPACE", move |seen| {
        let messages = seen.on(slot).map(|it| it.messages.as_slice());
        let second = messages.and_then(|messages| messages.get(1));
        progress(matches!(second, Some(Message::NamespaceDone(_))))
    })
}

/// Namespaces that go.
fn withdrawing() -> Vec<Case> {
    vec![
        Case::must(
            "subscribe-namespace.withdrawn",
            in_both("10.18", "4.2"),
            "a subscriber to a prefix gets NAMESPACE_DONE when the namespace is withdrawn",
            |script| {
                let slot = watch(script, A);
                let announced = announce_below(script, B);
                script.expect(A, suffix(slot, false, "below"));
                script.then();
                script.reset(B, announced, 1);
                script.stop(B, announced, 1);
                script.expect(A, suffix(slot, true, "below"));
            },
        ),
        Case::must(
            "subscribe-namespace.withdrawn-before",
            in_both("10.18", "4.2"),
            "a subscriber to a prefix gets no NAMESPACE_DONE without the NAMESPACE before it",
            |script| {
                script.join(A);
                let announced = announce_below(script, B);
                script.reset(B, announced, 1);
                script.stop(B, announced, 1);
                script.then();
                let slot = script.request(A, Request::SubscribeNamespace);
                script.expect(A, ok(slot));
                script.never(A, done_without_namespace(slot));
            },
        ),
        Case::must(
            "subscribe-namespace.publisher-leaves",
            in_both("10.18", "4.2"),
            "a subscriber to a prefix gets NAMESPACE_DONE when the publisher leaves",
            |script| {
                let slot = watch(script, A);
                announce_below(script, B);
                script.expect(A, suffix(slot, false, "below"));
                script.then();
                script.step(crate::script::Step::Close(B, 0));
                script.expect(A, suffix(slot, true, "below"));
            },
        ),
    ]
}

/// Prefixes that do not match, and one that matches everything.
fn matching() -> Vec<Case> {
    vec![
        Case::must(
            "subscribe-namespace.other-field",
            in_both("9.5", "2.4.2"),
            "fields of a namespace match exactly: (foo) does not match (foobar)",
            |script| {
                let slot = watch(script, A);
                script.join(B);
                let beside = script.track.beside("more");
                let announced = script.request_of(B, Request::PublishNamespace, beside);
                script.expect(B, ok(announced));
                script.then();
                script.never(A, message(slot, "NAMESPACE", |_| true));
            },
        ),
        Case::must(
            "subscribe-namespace.empty-prefix",
            in_both("6.1", "4.2"),
            "a prefix without fields gets REQUEST_OK or REQUEST_ERROR",
            |script| {
                script.join(A);
                script.then();
                let mut everything = script.track.clone();
                everything.namespace.clear();
                let slot = script.request_of(A, Request::SubscribeNamespace, everything);
                script.expect(A, answered(slot));
            },
        ),
    ]
}

const OVERLAP: &[u64] = &[refusal::PREFIX_OVERLAP];

/// Prefixes of one session that overlap.
fn overlaps() -> Vec<Case> {
    let mut cases = Vec::new();
    for (request, sections) in [
        (Request::SubscribeNamespace, in_both("10.18", "4.2")),
        (Request::SubscribeTracks, in_both("10.19", "3.6")),
    ] {
        for (name, other) in [
            ("equal", None),
            ("longer", Some(true)),
            ("shorter", Some(false)),
        ] {
            cases.push(Case::must(
                format!("{}.overlap-{name}", request.word()),
                sections,
                "a prefix that shares a prefix with another of the session is refused with PREFIX_OVERLAP",
                move |script| {
                    script.join(A);
                    let (short, long) = (script.track.clone(), script.track.below("below"));
                    let (first, second) = match other {
                        None => (short.clone(), short),
                        Some(true) => (short, long),
                        Some(false) => (long, short),
                    };
                    let one = script.request_of(A, request, first);
                    script.expect(A, ok(one));
                    script.then();
                    let two = script.request_of(A, request, second);
                    script.expect(A, refused(two, OVERLAP));
                },
            ));
        }
        cases.extend(overlaps_by_update(request));
    }
    cases.push(Case::must(
        "subscribe-tracks.independent-of-namespaces",
        in_both("10.19", "12.3"),
        "SUBSCRIBE_NAMESPACE and SUBSCRIBE_TRACKS may have the same prefix",
        |script| {
            watch(script, A);
            script.then();
            let slot = script.request(A, Request::SubscribeTracks);
            script.expect(A, ok(slot));
        },
    ));
    cases
}

/// Updates to a prefix that overlaps with another one of the session.
fn overlaps_by_update(request: Request) -> [Case; 2] {
    /// Returns the request that is updated.
    fn overlap(script: &mut Script, request: Request) -> Slot {
        script.join(A);
        let one = script.request(A, request);
        script.expect(A, ok(one));
        let other = script.track.beside("more");
        let two = script.request_of(A, request, other);
        script.expect(A, ok(two));
        script.then();
        let prefix = Value::Raw(script.track.below("below").namespace());
        script.update(A, two, vec![(parameter::TRACK_NAMESPACE_PREFIX, prefix)]);
        script.expect(A, refused(two, OVERLAP));
        two
    }
    let word = request.word();
    // Draft-18 says so of SUBSCRIBE_NAMESPACE only.
    let ends = if request == Request::SubscribeNamespace {
        in_both("10.9.1", "9.5.1")
    } else {
        in_22("9.5.1")
    };
    [
        Case::must(
            format!("{word}.overlap-by-update"),
            in_both("10.2.14", "9.20.20"),
            "an update to a prefix that overlaps with another is refused with PREFIX_OVERLAP",
            move |script| {
                overlap(script, request);
            },
        ),
        Case::must(
            format!("{word}.failed-update-ends"),
            ends,
            "the stream of a request ends after an update that fails",
            move |script| {
                let slot = overlap(script, request);
                script.expect(A, over(slot));
            },
        ),
    ]
}

/// SUBSCRIBE_TRACKS and the PUBLISH messages that follow from it.
fn tracks() -> Vec<Case> {
    vec![
        Case::must(
            "subscribe-tracks.later",
            in_both("9.5", "7.6"),
            "a PUBLISH is forwarded to subscribers of a prefix of its namespace",
            |script| {
                script.collect(A, vec![]);
                script.publish(B);
                script.then();
                script.taken_publish(A);
            },
        ),
        Case::must(
            "subscribe-tracks.existing",
            in_both("10.19", "3.6"),
            "a subscriber to a prefix gets PUBLISH for tracks that were published before",
            |script| {
                script.publish(B);
                script.collect(A, vec![]);
                script.then();
                script.taken_publish(A);
            },
        ),
        Case::must(
            "subscribe-tracks.forward-0",
            in_both("10.19", "3.6.2"),
            "after SUBSCRIBE_TRACKS with FORWARD 0, PUBLISH has FORWARD 0",
            |script| {
                script.collect(A, vec![(parameter::FORWARD, Value::Byte(0))]);
                script.publish(B);
                script.then();
                let taken = script.taken();
                let is_paused = |message: &Message| matches!(message, Message::Publish(it) if it.parameters.forward == Some(false));
                script.expect(A, request(taken, MessageKind::Publish, is_paused));
            },
        ),
    ]
}

/// Tracks that are not offered.
fn tracks_not_offered() -> Vec<Case> {
    vec![
        Case::must(
            "subscribe-tracks.own-tracks",
            in_both("6.1", "3.6"),
            "a subscriber to a prefix gets no PUBLISH for its own tracks",
            |script| {
                script.collect(A, vec![]);
                let slot = script.request(A, Request::Publish);
                script.expect(A, ok(slot));
                script.then();
                let taken = script.taken();
                script.never(A, request(taken, MessageKind::Publish, |_| true));
            },
        ),
        Case::must(
            "subscribe-tracks.cancelled",
            in_both("6.1", "3.6"),
            "after SUBSCRIBE_TRACKS was cancelled, a relay sends no further PUBLISH",
            |script| {
                let slot = script.collect(A, vec![]);
                script.reset(A, slot, 1);
                script.stop(A, slot, 1);
                script.wait(100);
                script.publish(B);
                script.then();
                let taken = script.taken();
                script.never(A, request(taken, MessageKind::Publish, |_| true));
            },
        ),
    ]
}

/// Publishers that come after their subscribers.
fn late_publishers() -> Vec<Case> {
    vec![
        Case::must(
            "publish-namespace.with-subscribers",
            in_both("9.5", "7.6"),
            "a relay subscribes at a publisher that announces the namespace of an existing subscription",
            |script| {
                script.channel(B, A);
                script.announce(C);
                script.then();
                script.taken_subscribe(C);
            },
        ),
        Case::must(
            "rendezvous.no-second-publish",
            in_both("9.5", "7.6"),
            "a PUBLISH that serves a waiting SUBSCRIBE is not forwarded to that subscriber",
            |script| {
                script.collect(A, vec![]);
                let track = script.track.clone();
                let patient = vec![(parameter::RENDEZVOUS_TIMEOUT, Value::Int(5000))];
                let slot = script.request_with(A, Request::Subscribe, track, patient);
                script.wait(100);
                script.publish(B);
                script.then();
                script.expect(A, subscribed(slot));
                let taken = script.taken();
                script.never(A, request(taken, MessageKind::Publish, |_| true));
            },
        ),
        Case::must(
            "rendezvous.with-announcement",
            in_both("10.2.6", "9.20.6"),
            "a SUBSCRIBE with a rendezvous timeout should wait for an announcement",
            |script| {
                script.join(A);
                let track = script.track.clone();
                let patient = vec![(parameter::RENDEZVOUS_TIMEOUT, Value::Int(4000))];
                let slot = script.request_with(A, Request::Subscribe, track, patient);
                script.wait(100);
                script.announce(B);
                script.then();
                let taken = script.taken_subscribe(B);
                script.write(B, taken, wire::subscribe_ok(wire::ALIAS, &[], &[]));
                script.expect(A, subscribed(slot));
            },
        )
        .level(Level::Should),
    ]
}
