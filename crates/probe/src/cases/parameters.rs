//! Message parameters: unknown, misplaced, repeated, and with forbidden values.

use super::{VIOLATION, closes};
use crate::{
    case::{Case, Level},
    edition::{Sections, in_18, in_22, in_both},
    script::{A, B, Script, closed, ok},
    wire::{self, Request, Value, framed, int, message, parameter, property},
};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = unknown();
    cases.extend(misplaced());
    cases.extend(misplaced_in_updates());
    cases.extend(misplaced_in_other_updates());
    cases.extend(repeated());
    cases.extend(values());
    cases.extend(properties());
    cases
}

fn unknown() -> Vec<Case> {
    const TEXT: &str = "an unknown parameter closes the session";
    let mut cases: Vec<Case> = Request::ALL
        .into_iter()
        .map(|request| {
            closes(
                format!("parameter.unknown-{}", request.word()),
                in_both("10.2", "9.20"),
                TEXT,
                VIOLATION,
                move |script| request.encode(0, &script.track, &[(0x70, Value::Int(1))]),
            )
        })
        .collect();
    cases.push(closes(
        "parameter.grease",
        in_both("10.2", "9.20"),
        TEXT,
        VIOLATION,
        |script| Request::Subscribe.encode(0, &script.track, &[(0x9D, Value::Bytes(vec![1]))]),
    ));
    cases.push(closes(
        "parameter.type-above-maximum",
        in_both("10.2", "9.20"),
        "a parameter type beyond 2^64 - 1 closes the session",
        VIOLATION,
        |script| {
            let first = [int(parameter::FORWARD), vec![1]].concat();
            let beyond = [int(u64::MAX), vec![1]].concat();
            let payload = [int(0), script.track.full(), int(2), first, beyond].concat();
            framed(message::SUBSCRIBE, &payload)
        },
    ));
    cases.push(Case::must(
        "parameter.unknown-request-update",
        in_both("10.2", "9.20"),
        TEXT,
        |script| {
            let channel = script.channel(B, A);
            script.then();
            script.update(A, channel.subscription, vec![(0x70, Value::Int(1))]);
            script.expect(A, closed(VIOLATION));
        },
    ));
    cases.push(Case::must(
        "parameter.unknown-subscribe-ok",
        in_both("10.2", "9.20"),
        TEXT,
        |script| {
            let taken = script.pending(A, B).publication;
            script.then();
            let accepted = wire::subscribe_ok(wire::ALIAS, &[(0x70, Value::Int(1))], &[]);
            script.write(A, taken, accepted);
            script.expect(A, closed(VIOLATION));
        },
    ));
    cases
}

/// A parameter, its sections, and messages in which it may not appear.
type Misplaced = (&'static str, u64, Value, Sections, &'static [Request]);

/// Parameters of requests.
fn of_requests() -> [Misplaced; 6] {
    use Request::{Fetch, Publish, PublishNamespace, SubscribeNamespace, TrackStatus};
    [
        (
            "forward",
            parameter::FORWARD,
            Value::Byte(1),
            in_both("10.2.12", "9.20.18"),
            &[Fetch, TrackStatus, PublishNamespace, SubscribeNamespace],
        ),
        (
            "subscriber-priority",
            parameter::SUBSCRIBER_PRIORITY,
            Value::Byte(1),
            in_both("10.2.7", "9.20.7"),
            &[TrackStatus, PublishNamespace, SubscribeNamespace],
        ),
        (
            "group-order",
            parameter::GROUP_ORDER,
            Value::Byte(1),
            in_both("10.2.8", "9.20.8"),
            &[TrackStatus, PublishNamespace, SubscribeNamespace],
        ),
        (
            "rendezvous-timeout",
            parameter::RENDEZVOUS_TIMEOUT,
            Value::Int(1),
            in_both("10.2.6", "9.20.6"),
            &[Fetch, Publish, TrackStatus, PublishNamespace],
        ),
        (
            "fill-timeout",
            parameter::FILL_TIMEOUT,
            Value::Int(1),
            in_both("10.2.5", "9.20.5"),
            &[Request::Subscribe, Publish, TrackStatus],
        ),
        (
            "new-group-request",
            parameter::NEW_GROUP_REQUEST,
            Value::Int(0),
            in_both("10.2.13", "9.20.19"),
            &[Fetch, Publish, TrackStatus, PublishNamespace],
        ),
    ]
}

/// Parameters of answers, of deliveries and of updates.
fn of_answers() -> [Misplaced; 5] {
    use Request::{
        Fetch, PublishNamespace, Subscribe, SubscribeNamespace, SubscribeTracks, TrackStatus,
    };
    let prefix = Value::Raw(wire::namespace(&[b"a".to_vec()]));
    [
        (
            "expires",
            parameter::EXPIRES,
            Value::Int(1),
            in_both("10.2.10", "9.20.16"),
            &[Subscribe, Fetch, TrackStatus, PublishNamespace],
        ),
        (
            "largest-object",
            parameter::LARGEST_OBJECT,
            Value::Location(0, 0),
            in_both("10.2.11", "9.20.17"),
            &[Subscribe, Fetch, TrackStatus, PublishNamespace],
        ),
        (
            "track-namespace-prefix",
            parameter::TRACK_NAMESPACE_PREFIX,
            prefix,
            in_both("10.2.14", "9.20.20"),
            &[
                Subscribe,
                PublishNamespace,
                SubscribeNamespace,
                SubscribeTracks,
            ],
        ),
        (
            "object-delivery-timeout",
            parameter::OBJECT_DELIVERY_TIMEOUT,
            Value::Int(9),
            in_both("10.2.4", "9.20.4"),
            &[Fetch, TrackStatus, PublishNamespace],
        ),
        (
            "subgroup-delivery-timeout",
            parameter::SUBGROUP_DELIVERY_TIMEOUT,
            Value::Int(9),
            in_both("10.2.3", "9.20.3"),
            &[Fetch, TrackStatus, PublishNamespace],
        ),
    ]
}

/// Parameters that draft-18 forbids in a message, and draft-22 permits.
fn of_18() -> [Misplaced; 5] {
    use Request::{Fetch, Publish, SubscribeTracks};
    [
        (
            "subscriber-priority",
            parameter::SUBSCRIBER_PRIORITY,
            Value::Byte(1),
            in_18("10.2.7"),
            &[Publish],
        ),
        (
            "group-order",
            parameter::GROUP_ORDER,
            Value::Byte(1),
            in_18("10.2.8"),
            &[Publish, SubscribeTracks],
        ),
        (
            "location-filter",
            parameter::LOCATION_FILTER,
            Value::Bytes(vec![2]),
            in_18("10.2.9"),
            &[Fetch, Publish],
        ),
        (
            "object-delivery-timeout",
            parameter::OBJECT_DELIVERY_TIMEOUT,
            Value::Int(9),
            in_18("10.2.4"),
            &[Publish],
        ),
        (
            "subgroup-delivery-timeout",
            parameter::SUBGROUP_DELIVERY_TIMEOUT,
            Value::Int(9),
            in_18("10.2.3"),
            &[Publish],
        ),
    ]
}

/// Parameters that draft-18 does not have, or encodes otherwise.
fn of_22() -> [Misplaced; 5] {
    use Request::{Fetch, Publish, PublishNamespace, Subscribe, SubscribeNamespace, TrackStatus};
    let range = || Value::Bytes(vec![0, 0, 5]);
    [
        (
            "location-filter",
            parameter::LOCATION_FILTER,
            Value::Raw(vec![5]),
            in_22("9.20.9"),
            &[TrackStatus, PublishNamespace, SubscribeNamespace],
        ),
        (
            "fill-parameters",
            parameter::FILL_PARAMETERS,
            Value::Bytes(vec![0]),
            in_22("9.20.15"),
            &[Fetch, Publish, TrackStatus, PublishNamespace],
        ),
        (
            "include-properties",
            parameter::INCLUDE_PROPERTIES,
            Value::Byte(1),
            in_22("9.20.21"),
            &[Publish, PublishNamespace, SubscribeNamespace],
        ),
        (
            "subgroup-filter",
            parameter::SUBGROUP_FILTER,
            range(),
            in_22("3.3.2"),
            &[Publish, TrackStatus, PublishNamespace],
        ),
        (
            "track-property-filter",
            parameter::TRACK_PROPERTY_FILTER,
            Value::Bytes(vec![0, 0x38, 0, 5]),
            in_22("3.3.2"),
            &[Subscribe, Fetch, Publish],
        ),
    ]
}

/// Parameters in messages in which they may not appear.
fn misplaced() -> impl Iterator<Item = Case> {
    let rows = of_requests().into_iter().chain(of_answers());
    let rows = rows.chain(of_18()).chain(of_22());
    rows.flat_map(|(name, kind, value, sections, requests)| {
        requests.iter().map(move |request| {
            let value = value.clone();
            closes(
                format!("parameter.{name}-in-{}", request.word()),
                sections,
                "a parameter in a message that may not have it closes the session",
                VIOLATION,
                move |script| request.encode(0, &script.track, &[(kind, value.clone())]),
            )
        })
    })
}

fn misplaced_in_updates() -> Vec<Case> {
    let case = |name: &str, sections: Sections, parameter: fn() -> (u64, Value)| {
        Case::must(
            format!("parameter.{name}-in-request-update"),
            sections,
            "a parameter in an update that may not have it closes the session",
            move |script: &mut Script| {
                let channel = script.channel(B, A);
                script.then();
                script.update(A, channel.subscription, vec![parameter()]);
                script.expect(A, closed(VIOLATION));
            },
        )
    };
    vec![
        case("group-order", in_both("10.2.8", "9.20.8"), || {
            (parameter::GROUP_ORDER, Value::Byte(1))
        }),
        case("rendezvous-timeout", in_both("10.2.6", "9.20.6"), || {
            (parameter::RENDEZVOUS_TIMEOUT, Value::Int(1))
        }),
        case(
            "track-namespace-prefix",
            in_both("10.2.14", "9.20.20"),
            || {
                let prefix = wire::namespace(&[b"a".to_vec()]);
                (parameter::TRACK_NAMESPACE_PREFIX, Value::Raw(prefix))
            },
        ),
        case("expires", in_both("10.2.10", "9.20.16"), || {
            (parameter::EXPIRES, Value::Int(1))
        }),
        case("include-properties", in_22("9.20.21"), || {
            (parameter::INCLUDE_PROPERTIES, Value::Byte(1))
        }),
    ]
}

/// Parameters in updates of requests other than subscriptions.
fn misplaced_in_other_updates() -> impl Iterator<Item = Case> {
    use Request::{PublishNamespace, SubscribeNamespace, SubscribeTracks};
    let prefix = || Value::Raw(wire::namespace(&[b"a".to_vec()]));
    let rows = [
        (
            "forward",
            in_both("10.2.12", "9.20.18"),
            SubscribeNamespace,
            (parameter::FORWARD, Value::Byte(1)),
        ),
        (
            "subscriber-priority",
            in_both("10.2.7", "9.20.7"),
            PublishNamespace,
            (parameter::SUBSCRIBER_PRIORITY, Value::Byte(1)),
        ),
        (
            "new-group-request",
            in_both("10.2.13", "9.20.19"),
            SubscribeNamespace,
            (parameter::NEW_GROUP_REQUEST, Value::Int(0)),
        ),
        (
            "track-namespace-prefix",
            in_both("10.2.14", "9.20.20"),
            PublishNamespace,
            (parameter::TRACK_NAMESPACE_PREFIX, prefix()),
        ),
        (
            "location-filter",
            in_22("9.20.9"),
            SubscribeTracks,
            (parameter::LOCATION_FILTER, Value::Raw(vec![5])),
        ),
        (
            "fill-parameters",
            in_22("9.20.15"),
            SubscribeTracks,
            (parameter::FILL_PARAMETERS, Value::Bytes(vec![0])),
        ),
        (
            "subgroup-filter",
            in_22("3.3.2"),
            SubscribeTracks,
            (parameter::SUBGROUP_FILTER, Value::Bytes(vec![0, 0, 5])),
        ),
    ];
    rows.into_iter().map(|(name, sections, request, value)| {
        update_closes(
            format!("parameter.{name}-in-update-of-{}", request.word()),
            sections,
            "a parameter in an update that may not have it closes the session",
            request,
            value,
        )
    })
}

/// A case in which a client updates a request that is not a subscription, and the relay has to close the session.
fn update_closes(
    name: impl Into<String>,
    sections: Sections,
    requirement: &str,
    request: Request,
    value: (u64, Value),
) -> Case {
    Case::must(name, sections, requirement, move |script| {
        script.join(A);
        let slot = script.request(A, request);
        script.expect(A, ok(slot));
        script.then();
        script.update(A, slot, vec![value.clone()]);
        script.expect(A, closed(VIOLATION));
    })
}

fn repeated() -> impl Iterator<Item = Case> {
    let rows = [
        ("forward", parameter::FORWARD, Value::Byte(1)),
        (
            "subscriber-priority",
            parameter::SUBSCRIBER_PRIORITY,
            Value::Byte(1),
        ),
        (
            "rendezvous-timeout",
            parameter::RENDEZVOUS_TIMEOUT,
            Value::Int(1),
        ),
    ];
    rows.into_iter().map(|(name, kind, value)| {
        closes(
            format!("parameter.repeated-{name}"),
            in_both("10.2", "9.20"),
            "a receiver should close the session for a repeated parameter",
            VIOLATION,
            move |script| {
                let twice = [(kind, value.clone()), (kind, value.clone())];
                Request::Subscribe.encode(0, &script.track, &twice)
            },
        )
        .level(Level::Should)
    })
}

/// Values that a parameter may not have.
fn values() -> Vec<Case> {
    let mut cases = Vec::new();
    for request in [
        Request::Subscribe,
        Request::Publish,
        Request::SubscribeTracks,
    ] {
        cases.push(closes(
            format!("parameter.forward-2-{}", request.word()),
            in_both("10.2.12", "9.20.18"),
            "a FORWARD that is neither 0 nor 1 closes the session",
            VIOLATION,
            move |script| request.encode(0, &script.track, &[(parameter::FORWARD, Value::Byte(2))]),
        ));
    }
    for request in [Request::Subscribe, Request::Fetch] {
        for order in [0, 3] {
            cases.push(closes(
                format!("parameter.group-order-{order}-{}", request.word()),
                in_both("10.2.8", "9.20.8"),
                "a GROUP_ORDER that is neither 1 nor 2 closes the session",
                VIOLATION,
                move |script| {
                    let order = (parameter::GROUP_ORDER, Value::Byte(order));
                    request.encode(0, &script.track, &[order])
                },
            ));
        }
    }
    for request in [
        Request::Subscribe,
        Request::Fetch,
        Request::TrackStatus,
        Request::SubscribeTracks,
    ] {
        cases.push(closes(
            format!("parameter.include-properties-2-{}", request.word()),
            in_22("9.20.21"),
            "an INCLUDE_PROPERTIES that is neither 0 nor 1 closes the session",
            VIOLATION,
            move |script| {
                let wrong = (parameter::INCLUDE_PROPERTIES, Value::Byte(2));
                request.encode(0, &script.track, &[wrong])
            },
        ));
    }
    cases.push(update_closes(
        "parameter.forward-2-update-of-subscribe-tracks",
        in_22("9.20.18"),
        "a FORWARD that is neither 0 nor 1 closes the session",
        Request::SubscribeTracks,
        (parameter::FORWARD, Value::Byte(2)),
    ));
    cases.push(Case::must(
        "parameter.forward-2-request-update",
        in_both("10.2.12", "9.20.18"),
        "a FORWARD that is neither 0 nor 1 closes the session",
        |script| {
            let channel = script.channel(B, A);
            script.then();
            let forward = (parameter::FORWARD, Value::Byte(2));
            script.update(A, channel.subscription, vec![forward]);
            script.expect(A, closed(VIOLATION));
        },
    ));
    cases
}

/// Track Properties with forbidden values, in PUBLISH and in SUBSCRIBE_OK.
fn properties() -> Vec<Case> {
    let rows = [
        (
            "group-order-3",
            in_both("12.5", "10.5"),
            "a DEFAULT_PUBLISHER_GROUP_ORDER that is neither 1 nor 2 closes the session",
            property::DEFAULT_PUBLISHER_GROUP_ORDER,
            3,
        ),
        (
            "dynamic-groups-2",
            in_both("12.6", "10.6"),
            "a DYNAMIC_GROUPS above 1 closes the session",
            property::DYNAMIC_GROUPS,
            2,
        ),
    ];
    let mut cases = Vec::new();
    for (name, sections, requirement, kind, value) in rows {
        cases.push(closes(
            format!("property.{name}-publish"),
            sections,
            requirement,
            VIOLATION,
            move |script| wire::publish(0, &script.track, 1, &[], &[(kind, Value::Int(value))]),
        ));
        cases.push(Case::must(
            format!("property.{name}-subscribe-ok"),
            sections,
            requirement,
            move |script| {
                let taken = script.pending(A, B).publication;
                script.then();
                let accepted = wire::subscribe_ok(1, &[], &[(kind, Value::Int(value))]);
                script.write(A, taken, accepted);
                script.expect(A, closed(VIOLATION));
            },
        ));
    }
    cases
}
