//! Random valid values of everything that the codec encodes.

mod filters;
mod streams;

use std::time::Duration;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use weir_moqt::draft::Draft;
use weir_moqt::error::{PublishDoneCode, RequestErrorCode};
use weir_moqt::location::Location;
use weir_moqt::message::{
    Fetch, FetchKind, FetchOk, GoAway, Message, Publish, PublishDone, PublishNamespace,
    PublishStateNotify, Redirect, RequestError, RequestKind, RequestOk, RequestUpdate, Setup,
    Subscribe, SubscribeNamespace, SubscribeOk, SubscribeTracks, TrackStatus,
};
use weir_moqt::name::{FullTrackName, Namespace, TrackName};
use weir_moqt::parameter::{GroupOrder, Parameters, Step};
use weir_moqt::property::{self, Properties, PropertiesBuilder};
use weir_moqt::token::Token;

use self::filters::{fill, filter, range_filters};
pub(crate) use self::streams::{datagram, fetch, subgroup};

/// Integers of all encoded lengths.
pub(crate) fn int() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0_u32..64).prop_map(|(value, shift)| value >> shift)
}

fn bytes(len_max: usize) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..=len_max).prop_map(Bytes::from)
}

fn millis() -> impl Strategy<Value = Duration> {
    int().prop_map(Duration::from_millis)
}

pub(crate) fn location() -> impl Strategy<Value = Location> {
    (int(), int()).prop_map(|(group, object)| Location { group, object })
}

pub(crate) fn namespace() -> impl Strategy<Value = Namespace> {
    let few = vec(vec(any::<u8>(), 1..20), 0..4);
    let many = vec(vec(any::<u8>(), 1..200), 0..=20);
    prop_oneof![3 => few, 1 => many]
        .prop_map(|fields| Namespace::new(fields).expect("few and short fields"))
}

fn track_name() -> impl Strategy<Value = TrackName> {
    bytes(90).prop_map(|name| TrackName::new(name).expect("a short name"))
}

pub(crate) fn track() -> impl Strategy<Value = FullTrackName> {
    (namespace(), track_name())
        .prop_map(|(namespace, name)| FullTrackName::new(namespace, name).expect("a short name"))
}

fn setup_token() -> impl Strategy<Value = Token> {
    prop_oneof![
        (int(), int(), bytes(40)).prop_map(|(alias, token_type, value)| Token::Register {
            alias,
            token_type,
            value
        }),
        (int(), bytes(40)).prop_map(|(token_type, value)| Token::UseValue { token_type, value }),
    ]
}

fn token() -> impl Strategy<Value = Token> {
    prop_oneof![
        setup_token(),
        int().prop_map(|alias| Token::Delete { alias }),
        int().prop_map(|alias| Token::UseAlias { alias }),
    ]
}

pub(crate) fn group_order() -> impl Strategy<Value = GroupOrder> {
    select(vec![GroupOrder::Ascending, GroupOrder::Descending])
}

/// Parameters that may occur at this step of a request of this kind.
fn parameters(draft: Draft, kind: RequestKind, step: Step) -> BoxedStrategy<Parameters> {
    let durations = (
        option::of(millis()),
        option::of(millis()),
        option::of(millis()),
        option::of(millis()),
        option::of(millis()),
    );
    let others = (
        vec(token(), 0..4),
        option::of(location()),
        option::of(any::<bool>()),
        option::of(any::<u8>()),
        option::of(filter(draft)),
        option::of(group_order()),
        option::of(int()),
        option::of(namespace()),
    );
    let later = (
        range_filters(),
        option::of(fill(draft)),
        option::of(any::<bool>()),
    );
    let parameters = (durations, others, later).prop_map(move |(durations, others, later)| {
        let (range_filters, fill, include_properties) = later;
        let has_filters = draft >= Draft::Draft19;
        let has_fills = draft >= Draft::Draft20;
        let all = Parameters {
            object_delivery_timeout: durations.0,
            rendezvous_timeout: durations.1,
            subgroup_delivery_timeout: durations.2,
            expires: durations.3,
            fill_timeout: durations.4,
            authorization_tokens: others.0,
            largest_object: others.1,
            forward: others.2,
            subscriber_priority: others.3,
            filter: others.4,
            group_order: others.5,
            new_group_request: others.6,
            track_namespace_prefix: others.7,
            range_filters: if has_filters {
                range_filters
            } else {
                Vec::new()
            },
            fill: fill.filter(|_| has_fills),
            include_properties: include_properties.filter(|_| has_fills),
        };
        allowed(draft, &all, kind, step)
    });
    parameters.boxed()
}

/// Removes the parameters that may not occur, checking each of them alone.
fn allowed(draft: Draft, all: &Parameters, kind: RequestKind, step: Step) -> Parameters {
    macro_rules! keep {
        ($kept:ident, $($field:ident),+) => {
            $(
                let alone = Parameters { $field: all.$field.clone(), ..Parameters::default() };
                if alone.check(draft, kind, step).is_ok() {
                    $kept.$field = alone.$field;
                }
            )+
        };
    }
    let mut kept = Parameters::default();
    keep!(
        kept,
        object_delivery_timeout,
        authorization_tokens,
        rendezvous_timeout,
        subgroup_delivery_timeout,
        expires,
        largest_object,
        fill_timeout,
        forward,
        subscriber_priority,
        filter,
        group_order,
        new_group_request,
        track_namespace_prefix,
        fill,
        include_properties
    );
    for filter in &all.range_filters {
        let alone = Parameters {
            range_filters: vec![filter.clone()],
            ..Parameters::default()
        };
        if alone.check(draft, kind, step).is_ok() {
            kept.range_filters.extend(alone.range_filters);
        }
    }
    kept
}

fn pairs(builder: PropertiesBuilder, pairs: Vec<(u64, u64, Bytes)>) -> PropertiesBuilder {
    pairs
        .into_iter()
        .fold(builder, |builder, (property_type, int, bytes)| {
            if property_type.is_multiple_of(2) {
                builder.int(property_type, int)
            } else {
                builder.bytes(property_type, bytes)
            }
        })
}

/// Well-formed pairs of types that have no meaning.
fn unknown_pairs() -> impl Strategy<Value = Vec<(u64, u64, Bytes)>> {
    let types = prop_oneof![0x38_u64..0x3C, 0x9D_u64..0x200, 0x8000_u64..u64::MAX];
    vec((types, int(), bytes(30)), 0..4)
}

pub(crate) fn object_properties() -> impl Strategy<Value = Properties> {
    let known = (
        option::of(int()),
        option::of(int()),
        option::of(unknown_pairs()),
    );
    (unknown_pairs(), known).prop_map(|(unknown, (group_gap, object_gap, immutable))| {
        let mut builder = pairs(Properties::builder(), unknown);
        if let Some(gap) = group_gap {
            builder = builder.int(property::PRIOR_GROUP_ID_GAP, gap);
        }
        if let Some(gap) = object_gap {
            builder = builder.int(property::PRIOR_OBJECT_ID_GAP, gap);
        }
        if let Some(immutable) = immutable {
            let inner = pairs(Properties::builder(), immutable).build();
            builder = builder.bytes(property::IMMUTABLE, inner.as_bytes().clone());
        }
        builder.build()
    })
}

fn track_properties() -> impl Strategy<Value = Properties> {
    let known = (
        option::of(int()),
        option::of(int()),
        option::of(any::<u8>()),
        option::of(1_u64..=2),
        option::of(0_u64..=1),
        option::of(unknown_pairs()),
    );
    (unknown_pairs(), known).prop_map(|(unknown, known)| {
        let mut builder = pairs(Properties::builder(), unknown);
        let ints = [
            (property::OBJECT_DELIVERY_TIMEOUT, known.0),
            (property::MAX_CACHE_DURATION, known.1),
            (property::DEFAULT_PUBLISHER_PRIORITY, known.2.map(u64::from)),
            (property::DEFAULT_PUBLISHER_GROUP_ORDER, known.3),
            (property::DYNAMIC_GROUPS, known.4),
        ];
        for (property_type, value) in ints {
            if let Some(value) = value {
                builder = builder.int(property_type, value);
            }
        }
        if let Some(immutable) = known.5 {
            let inner = pairs(Properties::builder(), immutable).build();
            builder = builder.bytes(property::IMMUTABLE, inner.as_bytes().clone());
        }
        builder.build()
    })
}

fn reason() -> impl Strategy<Value = String> {
    ".{0,60}"
}

fn uri() -> impl Strategy<Value = String> {
    "(moqt://[a-z]{1,20}(:[0-9]{1,5})?(/[a-z]{0,9}){0,3})?"
}

fn setup(draft: Draft) -> impl Strategy<Value = Setup> {
    let has_limits = draft >= Draft::Draft19;
    (
        option::of("((/[a-zA-Z0-9._~-]{0,9}){1,4}(\\?[a-z=&]{0,9})?)?"),
        option::of("([a-z]{1,9}@)?([a-z.]{1,20}|\\[[0-9a-f:]{2,20}\\])(:[0-9]{0,5})?"),
        option::of(".{0,40}"),
        option::of(int()),
        vec(setup_token(), 0..4),
        (option::of(int()), option::of(int()), option::of(int())),
    )
        .prop_map(
            move |(
                path,
                authority,
                implementation,
                max_auth_token_cache_size,
                authorization_tokens,
                limits,
            )| {
                let (max_filter_ranges, max_request_updates, fleet_relay) = limits;
                Setup {
                    max_filter_ranges: max_filter_ranges.filter(|_| has_limits),
                    max_request_updates: max_request_updates.filter(|_| has_limits),
                    path,
                    authority,
                    implementation,
                    max_auth_token_cache_size,
                    authorization_tokens,
                    fleet_relay,
                }
            },
        )
}

fn goaway(draft: Draft) -> impl Strategy<Value = GoAway> {
    (uri(), option::of(int()), option::of(int())).prop_map(
        move |(new_session_uri, timeout, request_id)| GoAway {
            new_session_uri,
            timeout: timeout.map(|timeout| Duration::from_millis(timeout.max(1))),
            request_id: request_id.filter(|_| draft == Draft::Draft18),
        },
    )
}

/// A range that does not end before it starts, be it by its last object or by the end of a group.
fn range() -> impl Strategy<Value = (Location, Location)> {
    let end = prop_oneof![1 => Just(u64::MAX), 3 => 0..u64::MAX - 1];
    (int(), 0..u64::MAX - 1, 0_u64..1000, end).prop_map(|(group, object, groups, end)| {
        let start = Location { group, object };
        let end = Location {
            group: group.saturating_add(groups),
            object: end.max(object),
        };
        (start, end)
    })
}

fn fetch_kind(draft: Draft) -> BoxedStrategy<FetchKind> {
    if draft >= Draft::Draft20 {
        let recent = (track(), 0..u64::MAX - 1)
            .prop_map(|(track, groups)| FetchKind::Recent { track, groups });
        let end = prop_oneof![3 => Just(None), 1 => Just(Some(Location::MAX))];
        let standalone = (track(), range(), end).prop_map(|(track, (start, last), end)| {
            let end = end.unwrap_or(last);
            FetchKind::Standalone { track, start, end }
        });
        return prop_oneof![standalone, recent].boxed();
    }
    prop_oneof![
        (track(), range()).prop_map(|(track, (start, end))| FetchKind::Standalone {
            track,
            start,
            end
        }),
        (int(), int())
            .prop_map(|(request_id, groups)| FetchKind::RelativeJoining { request_id, groups }),
        (int(), int()).prop_map(|(request_id, group)| FetchKind::AbsoluteJoining {
            request_id,
            start: Location::new(group, 0),
            end: Location::MAX,
        }),
    ]
    .boxed()
}

fn publish_done(draft: Draft) -> impl Strategy<Value = PublishDone> {
    let unknown = stream_count_unknown(draft);
    let known = int().prop_map(move |count| Some(count).filter(|count| *count != unknown));
    // Code 3 does not exist in all drafts.
    let code = prop_oneof![0_u64..3, 4_u64..u64::MAX];
    (code, known, reason()).prop_map(|(code, stream_count, reason)| PublishDone {
        code: PublishDoneCode(code),
        stream_count,
        reason,
    })
}

fn request_error() -> impl Strategy<Value = RequestError> {
    // Without the codes that do not exist in all drafts.
    let codes = prop_oneof![0_u64..0x19, 0x1A_u64..0x32, Just(0x33), 0x37_u64..u64::MAX];
    let plain = codes.prop_map(|code| (code, None));
    let redirect = (uri(), track())
        .prop_map(|(connect_uri, track)| (0x34, Some(Redirect { connect_uri, track })));
    let retry_after = option::of((0..u64::MAX - 1).prop_map(Duration::from_millis));
    (prop_oneof![plain, redirect], retry_after, reason()).prop_map(
        |((code, redirect), retry_after, reason)| RequestError {
            code: RequestErrorCode(code),
            retry_after,
            reason,
            redirect,
        },
    )
}

fn request_ok(draft: Draft) -> impl Strategy<Value = RequestOk> {
    let answers = vec![
        (RequestKind::Publish, Step::Answer),
        (RequestKind::PublishNamespace, Step::Answer),
        (RequestKind::Subscribe, Step::UpdateAnswer),
    ];
    let without_properties = select(answers)
        .prop_flat_map(move |(kind, step)| parameters(draft, kind, step))
        .prop_map(|parameters| RequestOk {
            parameters,
            properties: Properties::EMPTY,
        });
    let of_track_status = (
        parameters(draft, RequestKind::TrackStatus, Step::Answer),
        track_properties(),
    )
        .prop_map(|(parameters, properties)| RequestOk {
            parameters,
            properties,
        });
    prop_oneof![without_properties, of_track_status]
}

fn first_message(draft: Draft, kind: RequestKind) -> BoxedStrategy<Message> {
    let request = (int(), parameters(draft, kind, Step::Request));
    match kind {
        RequestKind::Subscribe => (request, track())
            .prop_map(|((request_id, parameters), track)| {
                Message::Subscribe(Subscribe {
                    request_id,
                    track,
                    parameters,
                })
            })
            .boxed(),
        RequestKind::Publish => (request, track(), int(), track_properties())
            .prop_map(
                |((request_id, parameters), track, track_alias, properties)| {
                    Message::Publish(Publish {
                        request_id,
                        track,
                        track_alias,
                        parameters,
                        properties,
                    })
                },
            )
            .boxed(),
        RequestKind::Fetch => (request, fetch_kind(draft))
            .prop_map(|((request_id, parameters), kind)| fetch_of(request_id, kind, parameters))
            .boxed(),
        RequestKind::TrackStatus => (request, track())
            .prop_map(|((request_id, parameters), track)| {
                Message::TrackStatus(TrackStatus {
                    request_id,
                    track,
                    parameters,
                })
            })
            .boxed(),
        RequestKind::PublishNamespace => (request, namespace())
            .prop_map(|((request_id, parameters), namespace)| {
                Message::PublishNamespace(PublishNamespace {
                    request_id,
                    namespace,
                    parameters,
                })
            })
            .boxed(),
        RequestKind::SubscribeNamespace => {
            of_prefix(draft, kind, |request_id, prefix, parameters| {
                Message::SubscribeNamespace(SubscribeNamespace {
                    request_id,
                    prefix,
                    parameters,
                })
            })
        }
        RequestKind::SubscribeTracks => of_prefix(draft, kind, |request_id, prefix, parameters| {
            Message::SubscribeTracks(SubscribeTracks {
                request_id,
                prefix,
                parameters,
            })
        }),
    }
}

/// A FETCH, whose filter is part of its kind.
fn fetch_of(request_id: u64, kind: FetchKind, parameters: Parameters) -> Message {
    let parameters = Parameters {
        filter: None,
        ..parameters
    };
    Message::Fetch(Fetch {
        request_id,
        kind,
        parameters,
    })
}

/// A request about the namespaces under a prefix.
fn of_prefix(
    draft: Draft,
    kind: RequestKind,
    message: fn(u64, Namespace, Parameters) -> Message,
) -> BoxedStrategy<Message> {
    (int(), namespace(), parameters(draft, kind, Step::Request))
        .prop_map(move |(request_id, prefix, parameters)| message(request_id, prefix, parameters))
        .boxed()
}

fn answer(draft: Draft) -> impl Strategy<Value = Message> {
    let subscribe_ok = (
        int(),
        parameters(draft, RequestKind::Subscribe, Step::Answer),
        track_properties(),
    )
        .prop_map(|(track_alias, parameters, properties)| {
            Message::SubscribeOk(SubscribeOk {
                track_alias,
                parameters,
                properties,
            })
        });
    let fetch_ok = (any::<bool>(), location(), track_properties()).prop_map(
        |(end_of_track, end, properties)| {
            let parameters = Parameters::default();
            Message::FetchOk(FetchOk {
                end_of_track,
                end,
                parameters,
                properties,
            })
        },
    );
    prop_oneof![
        subscribe_ok,
        fetch_ok,
        request_ok(draft).prop_map(Message::RequestOk),
        request_error().prop_map(Message::RequestError),
        publish_done(draft).prop_map(Message::PublishDone),
    ]
}

fn update(draft: Draft) -> impl Strategy<Value = Message> {
    let kinds = [
        RequestKind::Subscribe,
        RequestKind::Fetch,
        RequestKind::SubscribeTracks,
    ];
    let parameters =
        select(kinds.to_vec()).prop_flat_map(move |kind| parameters(draft, kind, Step::Update));
    (int(), parameters).prop_map(|(request_id, parameters)| {
        Message::RequestUpdate(RequestUpdate {
            request_id,
            parameters,
        })
    })
}

fn state_notify(draft: Draft) -> impl Strategy<Value = Message> {
    let parameters = (
        option::of(location()),
        option::of(any::<bool>()),
        option::of(filter(draft)),
    );
    parameters.prop_map(|(largest_object, forward, filter)| {
        Message::PublishStateNotify(PublishStateNotify {
            parameters: Parameters {
                largest_object,
                forward,
                filter,
                ..Parameters::default()
            },
        })
    })
}

/// The number of streams that means an unknown one.
pub(crate) fn stream_count_unknown(draft: Draft) -> u64 {
    if draft >= Draft::Draft20 {
        u64::MAX
    } else {
        (1 << 62) - 1
    }
}

pub(crate) fn message(draft: Draft) -> impl Strategy<Value = Message> {
    let notify = if draft >= Draft::Draft20 {
        state_notify(draft).boxed()
    } else {
        update(draft).boxed()
    };
    prop_oneof![
        7 => select(RequestKind::ALL.to_vec()).prop_flat_map(move |kind| first_message(draft, kind)).boxed(),
        5 => answer(draft).boxed(),
        2 => update(draft).boxed(),
        1 => notify,
        2 => setup(draft).prop_map(Message::Setup).boxed(),
        1 => goaway(draft).prop_map(Message::GoAway),
        1 => namespace().prop_map(Message::Namespace),
        1 => namespace().prop_map(Message::NamespaceDone),
        1 => (namespace(), track_name())
            .prop_map(|(suffix, name)| Message::PublishBlocked(FullTrackName { namespace: suffix, name })),
    ]
}
