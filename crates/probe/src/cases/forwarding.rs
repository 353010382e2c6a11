//! What the relay forwards, and how.

use std::collections::BTreeSet;

use crate::{
    case::{Case, Level},
    edition::{Sections, in_both},
    script::{
        A, B, C, Check, Progress, Script, message, object, object_at, ok, progress, subscribed,
    },
    seen::{Object, Seen, StreamEnd, Way},
    wire::{self, Subgroup, Value, group, property, subgroup},
};
use weir_moqt::{data::ObjectStatus, message::Message};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = payloads();
    cases.extend(headers());
    cases.extend(properties());
    cases.extend(preferences());
    cases.extend(streams());
    cases.extend(orders());
    cases.extend(ends_of_groups());
    cases.extend(several());
    cases.push(paused());
    cases
}

/// An object of this many bytes.
fn bytes(length: usize) -> Vec<u8> {
    (0..length)
        .map(|place| ((place * 31) >> 3).to_le_bytes()[0])
        .collect()
}

fn payloads() -> Vec<Case> {
    let mut cases = Vec::new();
    for length in [0, 1, 63, 64, 1200, 16_384, 70_000, 1_000_000] {
        cases.push(Case::must(
            format!("object.payload-{length}-bytes"),
            in_both("9.7", "7.8"),
            "a relay does not combine, split or modify payloads",
            move |script| {
                script.channel(B, A);
                script.then();
                script.stream(B, group(Subgroup::of(0), &[&bytes(length)]));
                script.expect(A, object_at(0, 0, &bytes(length)));
            },
        ));
    }
    for length in [1, 100, 1000] {
        cases.push(Case::must(
            format!("datagram.payload-{length}-bytes"),
            in_both("9.7", "7.8"),
            "a relay does not combine, split or modify payloads",
            move |script| {
                script.channel(B, A);
                script.then();
                script.datagram(B, wire::datagram(0, 0, &bytes(length)));
                script.expect(A, object_at(0, 0, &bytes(length)));
            },
        ));
    }
    cases
}

/// Fields of objects that the relay must not change.
fn headers() -> Vec<Case> {
    vec![Case::must(
        "object.priority-and-subgroup",
        in_both("9.7", "7.8"),
        "a relay does not modify the priority, the subgroup ID and the object ID",
        |script| {
            script.channel(B, A);
            script.then();
            let header = Subgroup {
                id: 9,
                priority: Some(33),
                ..Subgroup::of(70)
            };
            let stream = [
                header.encode(),
                wire::object(5, b"a"),
                wire::object(2, b"b"),
            ];
            script.stream(B, stream.concat());
            let is_meant = |object: &Object| {
                object.location() == (70, 8)
                    && object.subgroup == Some(9)
                    && object.priority == Some(33)
            };
            script.expect(A, object_at(70, 5, b"a"));
            let text = "object 8 of group 70, subgroup 9, with priority 33";
            script.expect(A, object(text, is_meant));
        },
    )]
}

/// A case in which an object has these properties.
fn with_properties(
    name: &str,
    sections: Sections,
    requirement: &str,
    properties: fn() -> Vec<(u64, Value)>,
) -> Case {
    Case::must(name, sections, requirement, move |script: &mut Script| {
        script.channel(B, A);
        script.then();
        let header = Subgroup {
            bits: subgroup::FIRST_OBJECT | subgroup::PROPERTIES,
            ..Subgroup::of(0)
        };
        let object_bytes = wire::object_with(0, &properties(), b"a");
        script.stream(B, [header.encode(), object_bytes].concat());
        let encoded = wire::pairs(&properties());
        let is_meant = move |object: &Object| object.properties[..] == encoded[..];
        script.expect(A, object("an object with its properties", is_meant));
    })
}

/// Properties of objects that the relay must not change.
fn properties() -> Vec<Case> {
    let kept = || vec![(property::OF_APPLICATION, Value::Bytes(b"kept".to_vec()))];
    let unchanged = "a relay forwards properties that it does not know unchanged";
    vec![
        with_properties("object.properties", in_both("2.5", "8.4"), unchanged, kept),
        with_properties(
            "object.immutable-properties",
            in_both("12.7", "10.7"),
            "a relay forwards Immutable Properties unchanged",
            // The integer takes more bytes than it needs.
            || vec![(property::IMMUTABLE, Value::Bytes(vec![0x38, 0x80, 5]))],
        ),
        Case::must(
            "datagram.properties",
            in_both("2.5", "8.4"),
            unchanged,
            move |script| {
                script.channel(B, A);
                script.then();
                let encoded = wire::pairs(&kept());
                let properties = wire::prefixed(&encoded);
                let start = [wire::int(0x09), wire::int(wire::ALIAS), vec![0, 0]].concat();
                script.datagram(B, [start, properties, b"a".to_vec()].concat());
                let is_meant = move |object: &Object| object.properties[..] == encoded[..];
                script.expect(A, object("a datagram with its properties", is_meant));
            },
        ),
    ]
}

/// How objects are sent, and under which Track Alias.
fn preferences() -> Vec<Case> {
    vec![
        Case::must(
            "datagram.stays-datagram",
            in_both("11.2.1", "2.1.1"),
            "an object is sent according to its forwarding preference",
            |script| {
                script.channel(B, A);
                script.then();
                script.datagram(B, wire::datagram(0, 0, b"a"));
                let is_datagram = |object: &Object| matches!(object.way, Way::Datagram { .. });
                script.expect(A, object("a datagram", is_datagram));
            },
        ),
        Case::must(
            "object.stays-on-stream",
            in_both("11.2.1", "2.1.1"),
            "an object is sent according to its forwarding preference",
            |script| {
                script.channel(B, A);
                script.then();
                script.stream(B, group(Subgroup::of(0), &[b"a"]));
                let on_stream = |object: &Object| matches!(object.way, Way::Subgroup { .. });
                script.expect(A, object("an object on a subgroup stream", on_stream));
            },
        ),
        Case::must(
            "object.track-alias",
            in_both("11.1", "3.1.3"),
            "objects have the Track Alias of SUBSCRIBE_OK",
            |script| {
                let channel = script.channel(B, A);
                script.then();
                script.stream(B, group(Subgroup::of(0), &[b"a"]));
                script.expect(
                    A,
                    Check::new("an object with the Track Alias", move |seen| {
                        let first = seen
                            .on(channel.subscription)
                            .and_then(|it| it.messages.first());
                        let Some(Message::SubscribeOk(accepted)) = first else {
                            return Progress::Pending;
                        };
                        let alias = Some(accepted.track_alias);
                        progress(seen.objects.iter().any(|one| one.way.alias() == alias))
                    }),
                );
            },
        ),
    ]
}

/// The subgroup streams that were seen.
fn subgroups(seen: &Seen) -> Vec<(u64, Option<StreamEnd>, bool)> {
    let headers = seen.streams().filter_map(|(_, one)| {
        let header = one.header?;
        Some((header.group, one.end, header.first_object))
    });
    headers.collect()
}

fn streams() -> Vec<Case> {
    vec![
        Case::must(
            "stream.first-object-bit",
            in_both("2.2", "2.2"),
            "a subgroup that begins with its first object has the bit FIRST_OBJECT",
            |script| {
                script.channel(B, A);
                script.then();
                script.stream(B, group(Subgroup::of(0), &[b"a"]));
                script.expect(
                    A,
                    Check::new("a stream with FIRST_OBJECT", |seen| {
                        match subgroups(seen).first() {
                            Some((_, _, true)) => Progress::Met,
                            Some((_, _, false)) => {
                                Progress::Broken("the bit is not set".to_owned())
                            }
                            None => Progress::Pending,
                        }
                    }),
                );
            },
        ),
        Case::must(
            "stream.finished",
            in_both("11.4.3", "11.3.2"),
            "a stream on which all objects of a subgroup were sent ends with FIN",
            |script| {
                script.channel(B, A);
                script.then();
                script.stream(B, group(Subgroup::of(0), &[b"a", b"b"]));
                script.expect(A, object_at(0, 1, b"b"));
                script.expect(A, stream_end(true));
            },
        ),
        skipping(),
        Case::must(
            "stream.reset",
            in_both("11.4.3", "11.3.2"),
            "a stream that ends before all objects of its subgroup were sent is reset",
            |script| {
                script.channel(B, A);
                let slot = script.uni();
                script.write(B, slot, group(Subgroup::of(0), &[b"a"]));
                script.expect(A, object_at(0, 0, b"a"));
                script.then();
                script.reset(B, slot, 1);
                script.expect(A, stream_end(false));
            },
        ),
    ]
}

/// An object after a gap.
fn skipping() -> Case {
    Case::must(
        "stream.gap-on-a-new-stream",
        in_both("11.4.3", "11.3.2"),
        "an object that may not be the next of its subgroup is not sent on the stream of those before it",
        |script| {
            script.channel(B, A);
            script.stream(B, group(Subgroup::of(0), &[b"a"]));
            script.expect(A, object_at(0, 0, b"a"));
            script.then();
            let later = Subgroup {
                bits: 0,
                ..Subgroup::of(0)
            };
            script.stream(B, [later.encode(), wire::object(5, b"f")].concat());
            script.never(
                A,
                Check::new("object 5 on the stream of object 0", one_stream),
            );
        },
    )
}

/// Whether objects 0 and 5 of group 0 came on one stream.
fn one_stream(seen: &mut Seen) -> Progress {
    let stream_of = |id| {
        let mut objects = seen.objects.iter();
        let found = objects.find(|one| one.location() == (0, id))?;
        match found.way {
            Way::Subgroup { stream, .. } => Some(stream),
            Way::Datagram { .. } | Way::Fetch { .. } => None,
        }
    };
    progress(stream_of(5).is_some_and(|stream| Some(stream) == stream_of(0)))
}

/// Objects of one stream, and of several.
fn orders() -> Vec<Case> {
    vec![
        Case::must(
            "stream.order",
            in_both("9.4", "7.4"),
            "objects of a stream are neither reordered nor dropped",
            |script| {
                script.channel(B, A);
                script.then();
                let payloads: Vec<Vec<u8>> = (0..200).map(|id| bytes(id + 1)).collect();
                let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
                script.stream(B, group(Subgroup::of(0), &payloads));
                script.expect(
                    A,
                    Check::new("200 objects in order", |seen| {
                        let ids = seen.objects.iter().map(|object| object.id);
                        if ids.clone().ne(0..seen.objects.len() as u64) {
                            return Progress::Broken(
                                "objects are missing or out of order".to_owned(),
                            );
                        }
                        progress(ids.count() == 200)
                    }),
                );
            },
        ),
        Case::must(
            "stream.one-per-subgroup",
            in_both("2.2", "2.2"),
            "objects of two subgroups are not sent on one stream",
            |script| {
                script.channel(B, A);
                script.then();
                for id in [1, 2] {
                    let header = Subgroup {
                        id,
                        ..Subgroup::of(0)
                    };
                    script.stream(B, [header.encode(), wire::object(id, b"a")].concat());
                }
                script.expect(A, object_at(0, 1, b"a"));
                script.expect(A, object_at(0, 2, b"a"));
                script.expect(
                    A,
                    Check::new("two streams", |seen| {
                        let used: BTreeSet<_> = seen
                            .objects
                            .iter()
                            .filter_map(|one| match one.way {
                                Way::Subgroup { stream, .. } => Some(stream),
                                Way::Datagram { .. } | Way::Fetch { .. } => None,
                            })
                            .collect();
                        progress(used.len() == 2)
                    }),
                );
            },
        ),
    ]
}

/// Ends of groups.
fn ends_of_groups() -> Vec<Case> {
    vec![
        Case::must(
            "stream.end-of-group",
            in_both("11.2.1.1", "11.1.1"),
            "the end of a group should reach subscribers",
            |script| {
                script.channel(B, A);
                script.then();
                let stream = [
                    Subgroup::of(0).encode(),
                    wire::object(0, b"a"),
                    wire::status(0, 3),
                ];
                script.stream(B, stream.concat());
                script.expect(
                    A,
                    Check::new("End of Group", |seen| {
                        let by_status = |one: &Object| one.status == ObjectStatus::EndOfGroup;
                        let by_bit = seen
                            .streams()
                            .any(|(_, one)| one.header.is_some_and(|header| header.end_of_group));
                        progress(by_bit || seen.objects.iter().any(by_status))
                    }),
                );
            },
        )
        .level(Level::Should),
    ]
}

/// The end of the first subgroup stream.
fn stream_end(is_fin: bool) -> Check {
    let text = if is_fin {
        "FIN of the stream"
    } else {
        "a reset of the stream"
    };
    Check::new(text, move |seen| match subgroups(seen).first() {
        Some((_, Some(end), _)) if (*end == StreamEnd::Fin) == is_fin => Progress::Met,
        Some((_, Some(end), _)) => Progress::Broken(format!("the relay sent {end:?}")),
        Some((_, None, _)) | None => Progress::Pending,
    })
}

/// Two subscribers, one of which is paused.
fn paused() -> Case {
    Case::must(
        "forward.paused-subscriber",
        in_both("5.1", "7.2"),
        "a paused subscriber does not pause the others of its track",
        |script| {
            script.channel(B, A);
            script.join(C);
            let track = script.track.clone();
            let paused = vec![(wire::parameter::FORWARD, Value::Byte(0))];
            let slot = script.request_with(C, wire::Request::Subscribe, track, paused);
            script.expect(C, subscribed(slot));
            script.then();
            script.stream(B, group(Subgroup::of(0), &[b"a"]));
            script.expect(A, object_at(0, 0, b"a"));
            script.never(C, object("an object", |_| true));
        },
    )
}

/// Several subscribers, and tracks that the relay offers.
fn several() -> Vec<Case> {
    vec![
        Case::must(
            "forward.all-subscribers",
            in_both("9.4", "7.4"),
            "each object is forwarded to each subscriber",
            |script| {
                script.channel(B, A);
                script.join(C);
                let slot = script.request(C, wire::Request::Subscribe);
                script.expect(C, subscribed(slot));
                script.then();
                script.stream(B, group(Subgroup::of(0), &[b"a"]));
                for client in [A, C] {
                    script.expect(client, object_at(0, 0, b"a"));
                }
            },
        ),
        Case::must(
            "forward.offered-track",
            in_both("9.5", "7.6"),
            "objects of a track that the relay published to a subscriber are forwarded",
            |script| {
                let taken = script.offer(B, A);
                script.write(A, taken, wire::request_ok(&[], &[]));
                script.then();
                script.stream(B, group(Subgroup::of(0), &[b"a"]));
                script.expect(A, object_at(0, 0, b"a"));
            },
        ),
        Case::must(
            "forward.other-session-unharmed",
            in_both("9.5", "7.6"),
            "an invalid message of one session is not propagated to another",
            |script| {
                let channel = script.channel(B, A);
                script.join(C);
                let slot = script.request(C, wire::Request::Publish);
                script.expect(C, ok(slot));
                script.then();
                let bad = [
                    Subgroup::of(3).encode(),
                    wire::object(u64::MAX, b"a"),
                    wire::object(0, b"b"),
                ];
                script.stream(C, bad.concat());
                script.expect(C, crate::script::closed(super::VIOLATION));
                script.stream(B, group(Subgroup::of(4), &[b"good"]));
                script.expect(A, object_at(4, 0, b"good"));
                let priority = (wire::parameter::SUBSCRIBER_PRIORITY, Value::Byte(3));
                script.update(A, channel.subscription, vec![priority]);
                script.expect(
                    A,
                    message(channel.subscription, "REQUEST_OK", |message| {
                        matches!(message, Message::RequestOk(_))
                    }),
                );
            },
        ),
    ]
}
