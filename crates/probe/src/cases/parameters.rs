//! Message parameters: unknown, misplaced, repeated, and with forbidden values.

use super::{VIOLATION, closes};
use crate::{
    case::{Case, Level},
    script::{A, B, Script, closed},
    wire::{self, Request, Value, framed, int, message, parameter, property},
};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = unknown();
    cases.extend(misplaced());
    cases.extend(misplaced_in_updates());
    cases.extend(repeated());
    cases.extend(values());
    cases.extend(filters());
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
                "10.2",
                TEXT,
                VIOLATION,
                move |script| request.encode(0, &script.track, &[(0x70, Value::Int(1))]),
            )
        })
        .collect();
    cases.push(closes(
        "parameter.grease",
        "10.2",
        TEXT,
        VIOLATION,
        |script| Request::Subscribe.encode(0, &script.track, &[(0x9D, Value::Bytes(vec![1]))]),
    ));
    cases.push(closes(
        "parameter.type-above-maximum",
        "10.2",
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
        "10.2",
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
        "10.2",
        TEXT,
        |script| {
            script.announce(A);
            script.join(B);
            script.request(B, Request::Subscribe);
            let taken = script.taken();
            let is_subscribe = weir_moqt::message::MessageKind::Subscribe;
            script.expect(A, crate::script::request(taken, is_subscribe, |_| true));
            script.then();
            let accepted = wire::subscribe_ok(wire::ALIAS, &[(0x70, Value::Int(1))], &[]);
            script.write(A, taken, accepted);
            script.expect(A, closed(VIOLATION));
        },
    ));
    cases
}

/// A parameter, its section, and messages in which it may not appear.
type Misplaced = (&'static str, u64, Value, &'static str, &'static [Request]);

/// Parameters of requests.
fn of_requests() -> [Misplaced; 6] {
    [
        (
            "forward",
            parameter::FORWARD,
            Value::Byte(1),
            "10.2.12",
            &[
                Request::Fetch,
                Request::TrackStatus,
                Request::PublishNamespace,
                Request::SubscribeNamespace,
            ],
        ),
        (
            "subscriber-priority",
            parameter::SUBSCRIBER_PRIORITY,
            Value::Byte(1),
            "10.2.7",
            &[
                Request::Publish,
                Request::TrackStatus,
                Request::PublishNamespace,
            ],
        ),
        (
            "group-order",
            parameter::GROUP_ORDER,
            Value::Byte(1),
            "10.2.8",
            &[Request::Publish, Request::SubscribeTracks],
        ),
        (
            "subscription-filter",
            parameter::SUBSCRIPTION_FILTER,
            Value::Bytes(vec![2]),
            "10.2.9",
            &[Request::Fetch, Request::Publish],
        ),
        (
            "rendezvous-timeout",
            parameter::RENDEZVOUS_TIMEOUT,
            Value::Int(1),
            "10.2.6",
            &[Request::Fetch, Request::Publish],
        ),
        (
            "fill-timeout",
            parameter::FILL_TIMEOUT,
            Value::Int(1),
            "10.2.5",
            &[Request::Subscribe],
        ),
    ]
}

/// Parameters of answers and of deliveries.
fn of_answers() -> [Misplaced; 6] {
    let prefix = || Value::Raw(wire::namespace(&[b"a".to_vec()]));
    [
        (
            "expires",
            parameter::EXPIRES,
            Value::Int(1),
            "10.2.10",
            &[Request::Subscribe, Request::Fetch],
        ),
        (
            "largest-object",
            parameter::LARGEST_OBJECT,
            Value::Location(0, 0),
            "10.2.11",
            &[Request::Subscribe, Request::Fetch],
        ),
        (
            "new-group-request",
            parameter::NEW_GROUP_REQUEST,
            Value::Int(0),
            "10.2.13",
            &[Request::Fetch, Request::Publish],
        ),
        (
            "track-namespace-prefix",
            parameter::TRACK_NAMESPACE_PREFIX,
            prefix(),
            "10.2.14",
            &[Request::Subscribe, Request::SubscribeNamespace],
        ),
        (
            "object-delivery-timeout",
            parameter::OBJECT_DELIVERY_TIMEOUT,
            Value::Int(9),
            "10.2.4",
            &[Request::Fetch, Request::Publish],
        ),
        (
            "subgroup-delivery-timeout",
            parameter::SUBGROUP_DELIVERY_TIMEOUT,
            Value::Int(9),
            "10.2.3",
            &[Request::Fetch, Request::Publish],
        ),
    ]
}

/// Parameters in messages in which they may not appear.
fn misplaced() -> impl Iterator<Item = Case> {
    let rows = of_requests().into_iter().chain(of_answers());
    rows.flat_map(|(name, kind, value, section, requests)| {
        requests.iter().map(move |request| {
            let value = value.clone();
            closes(
                format!("parameter.{name}-in-{}", request.word()),
                section,
                "a parameter in a message that may not have it closes the session",
                VIOLATION,
                move |script| request.encode(0, &script.track, &[(kind, value.clone())]),
            )
        })
    })
}

fn misplaced_in_updates() -> Vec<Case> {
    let case = |name: &str, section: &'static str, parameter: fn() -> (u64, Value)| {
        Case::must(
            format!("parameter.{name}-in-request-update"),
            section,
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
        case("group-order", "10.2.8", || {
            (parameter::GROUP_ORDER, Value::Byte(1))
        }),
        case("rendezvous-timeout", "10.2.6", || {
            (parameter::RENDEZVOUS_TIMEOUT, Value::Int(1))
        }),
        case("track-namespace-prefix", "10.2.14", || {
            let prefix = wire::namespace(&[b"a".to_vec()]);
            (parameter::TRACK_NAMESPACE_PREFIX, Value::Raw(prefix))
        }),
        case("expires", "10.2.10", || (parameter::EXPIRES, Value::Int(1))),
    ]
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
            "10.2",
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
            "10.2.12",
            "a FORWARD that is neither 0 nor 1 closes the session",
            VIOLATION,
            move |script| request.encode(0, &script.track, &[(parameter::FORWARD, Value::Byte(2))]),
        ));
    }
    for request in [Request::Subscribe, Request::Fetch] {
        for order in [0, 3] {
            cases.push(closes(
                format!("parameter.group-order-{order}-{}", request.word()),
                "10.2.8",
                "a GROUP_ORDER that is neither 1 nor 2 closes the session",
                VIOLATION,
                move |script| {
                    let order = (parameter::GROUP_ORDER, Value::Byte(order));
                    request.encode(0, &script.track, &[order])
                },
            ));
        }
    }
    cases.push(Case::must(
        "parameter.forward-2-request-update",
        "10.2.12",
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

fn filters() -> impl Iterator<Item = Case> {
    let rows: [(&str, &str, Level, u64, &[u64]); 5] = [
        (
            "type-0",
            "an unknown filter type closes the session",
            Level::Must,
            0,
            &[],
        ),
        (
            "type-5",
            "an unknown filter type closes the session",
            Level::Must,
            5,
            &[],
        ),
        (
            "end-above-maximum",
            "a filter that ends beyond group 2^64 - 1 closes the session",
            Level::Must,
            4,
            &[u64::MAX, 0, 1],
        ),
        (
            "cut",
            "a filter ends with its last field",
            Level::Implied,
            3,
            &[0],
        ),
        (
            "too-long",
            "a filter ends with its last field",
            Level::Implied,
            2,
            &[0],
        ),
    ];
    rows.into_iter()
        .map(|(name, requirement, level, kind, fields)| {
            closes(
                format!("filter.{name}"),
                "5.1.2",
                requirement,
                VIOLATION,
                move |script| {
                    Request::Subscribe.encode(0, &script.track, &[wire::filter(kind, fields)])
                },
            )
            .level(level)
        })
}

/// Track Properties with forbidden values, in PUBLISH and in SUBSCRIBE_OK.
fn properties() -> Vec<Case> {
    let rows = [
        (
            "group-order-3",
            "12.5",
            "a DEFAULT_PUBLISHER_GROUP_ORDER that is neither 1 nor 2 closes the session",
            property::DEFAULT_PUBLISHER_GROUP_ORDER,
            3,
        ),
        (
            "dynamic-groups-2",
            "12.6",
            "a DYNAMIC_GROUPS above 1 closes the session",
            property::DYNAMIC_GROUPS,
            2,
        ),
    ];
    let mut cases = Vec::new();
    for (name, section, requirement, kind, value) in rows {
        cases.push(closes(
            format!("property.{name}-publish"),
            section,
            requirement,
            VIOLATION,
            move |script| wire::publish(0, &script.track, 1, &[], &[(kind, Value::Int(value))]),
        ));
        cases.push(Case::must(
            format!("property.{name}-subscribe-ok"),
            section,
            requirement,
            move |script| {
                script.announce(A);
                script.join(B);
                script.request(B, Request::Subscribe);
                let taken = script.taken();
                let is_subscribe = weir_moqt::message::MessageKind::Subscribe;
                script.expect(A, crate::script::request(taken, is_subscribe, |_| true));
                script.then();
                let accepted = wire::subscribe_ok(1, &[], &[(kind, Value::Int(value))]);
                script.write(A, taken, accepted);
                script.expect(A, closed(VIOLATION));
            },
        ));
    }
    cases
}
