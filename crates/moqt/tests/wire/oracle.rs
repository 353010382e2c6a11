//! Values of this codec in the types of `moqtap-codec`.

use moqtap_codec::kvp::{KeyValuePair, KvpValue};
use moqtap_codec::types::TrackNamespace;
use moqtap_codec::varint::{Moqt18, VarInt};
use std::time::Duration;
use weir_moqt::draft::Draft;
use weir_moqt::location::Location;
use weir_moqt::message::{
    Fetch, FetchKind, GoAway, Message, Publish, PublishDone, Redirect, RequestError, Setup,
    Subscribe,
};
use weir_moqt::name::{FullTrackName, Namespace};
use weir_moqt::parameter::{Filter, GroupOrder, Parameters, RangeFilter, RangeFilterKind};
use weir_moqt::property::{Properties, Value};
use weir_moqt::token::Token;

pub(crate) fn int(value: u64) -> VarInt {
    VarInt::from_u64_moqt(value)
}

fn millis(value: Duration) -> u64 {
    u64::try_from(value.as_millis()).expect("64 bits of milliseconds")
}

/// Integers one after the other, as `moqtap-codec` keeps structures.
fn ints(values: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    for value in values {
        int(*value).encode_moqt::<Moqt18>(&mut out);
    }
    out
}

fn number(key: u64, value: u64) -> KeyValuePair {
    KeyValuePair {
        key: int(key),
        value: KvpValue::Varint(int(value)),
    }
}

fn bytes(key: u64, value: Vec<u8>) -> KeyValuePair {
    KeyValuePair {
        key: int(key),
        value: KvpValue::Bytes(value),
    }
}

fn token(value: &Token) -> Vec<u8> {
    match value {
        Token::Delete { alias } => ints(&[0, *alias]),
        Token::Register {
            alias,
            token_type,
            value,
        } => [ints(&[1, *alias, *token_type]), value.to_vec()].concat(),
        Token::UseAlias { alias } => ints(&[2, *alias]),
        Token::UseValue { token_type, value } => [ints(&[3, *token_type]), value.to_vec()].concat(),
    }
}

/// The value of a location filter, without the length that some drafts put before it.
fn filter(draft: Draft, value: Filter) -> Vec<u8> {
    let fields = match value {
        Filter::NextGroupStart => vec![0],
        Filter::Recent { groups } => vec![groups + 1],
        Filter::LargestObject | Filter::EVERYTHING => vec![],
        Filter::AbsoluteStart(start) => vec![start.group, start.object],
        Filter::AbsoluteRange { start, end } => {
            let mut fields = vec![start.group, start.object, end.group - start.group];
            fields.extend(Some(end.object).filter(|object| *object != u64::MAX));
            fields
        }
    };
    let code = match (draft, value) {
        (Draft::Draft18 | Draft::Draft19, Filter::NextGroupStart) => return ints(&[1]),
        (Draft::Draft18 | Draft::Draft19, Filter::LargestObject) => return ints(&[2]),
        (Draft::Draft18 | Draft::Draft19, Filter::EVERYTHING) => return ints(&[3, 0, 0]),
        (Draft::Draft18 | Draft::Draft19, _) => fields.len() as u64 + 1,
        (Draft::Draft20 | Draft::Draft21, Filter::LargestObject) => return ints(&[0, 0]),
        (Draft::Draft20 | Draft::Draft21, _) => return ints(&fields),
        (Draft::Draft22, Filter::LargestObject) => 5,
        (Draft::Draft22, _) => fields.len() as u64,
    };
    [ints(&[code]), ints(&fields)].concat()
}

fn namespace(value: &Namespace) -> TrackNamespace {
    TrackNamespace(value.fields().map(<[u8]>::to_vec).collect())
}

fn range_filter(filter: &RangeFilter) -> KeyValuePair {
    let key = match filter.kind {
        RangeFilterKind::Subgroup => 0x25,
        RangeFilterKind::ObjectId => 0x26,
        RangeFilterKind::Priority => 0x27,
        RangeFilterKind::ObjectProperty => 0x28,
        RangeFilterKind::TrackProperty => 0x29,
    };
    bytes(key, filter.value.to_vec())
}

fn parameters(draft: Draft, value: &Parameters) -> Vec<KeyValuePair> {
    let mut pairs = Vec::new();
    pairs.extend(
        value
            .object_delivery_timeout
            .map(|value| number(0x02, millis(value))),
    );
    pairs.extend(
        value
            .authorization_tokens
            .iter()
            .map(|value| bytes(0x03, token(value))),
    );
    pairs.extend(
        value
            .rendezvous_timeout
            .map(|value| number(0x04, millis(value))),
    );
    pairs.extend(
        value
            .subgroup_delivery_timeout
            .map(|value| number(0x06, millis(value))),
    );
    pairs.extend(value.expires.map(|value| number(0x08, millis(value))));
    let largest = value.largest_object;
    pairs.extend(largest.map(|value| bytes(0x09, ints(&[value.group, value.object]))));
    pairs.extend(value.fill_timeout.map(|value| number(0x0A, millis(value))));
    pairs.extend(value.forward.map(|value| number(0x10, value.into())));
    pairs.extend(
        value
            .subscriber_priority
            .map(|value| number(0x20, value.into())),
    );
    pairs.extend(value.filter.map(|value| bytes(0x21, filter(draft, value))));
    pairs.extend(value.group_order.map(|value| {
        number(
            0x22,
            match value {
                GroupOrder::Ascending => 1,
                GroupOrder::Descending => 2,
            },
        )
    }));
    pairs.extend(
        value
            .fill
            .as_ref()
            .map(|fill| bytes(0x23, fill_value(draft, fill))),
    );
    pairs.extend(value.range_filters.iter().map(range_filter));
    pairs.extend(value.new_group_request.map(|value| number(0x32, value)));
    pairs.extend(value.track_namespace_prefix.as_ref().map(|value| {
        let mut out = Vec::new();
        namespace(value).encode_moqt::<Moqt18>(&mut out);
        bytes(0x34, out)
    }));
    pairs.extend(
        value
            .include_properties
            .map(|value| number(0x35, value.into())),
    );
    pairs
}

/// The parameters of a fill, with their number before them.
fn fill_value(draft: Draft, value: &Parameters) -> Vec<u8> {
    let pairs = parameters(draft, value);
    let mut out = ints(&[pairs.len() as u64]);
    let mut previous = 0;
    for pair in pairs {
        let key = pair.key.into_inner();
        out.extend(ints(&[key - previous]));
        previous = key;
        match pair.value {
            KvpValue::Varint(value) if key == 0x0A => out.extend(ints(&[value.into_inner()])),
            KvpValue::Varint(value) => {
                out.push(u8::try_from(value.into_inner()).expect("one byte"));
            }
            KvpValue::Bytes(value) => {
                if !(key == 0x21 && draft == Draft::Draft22) {
                    out.extend(ints(&[value.len() as u64]));
                }
                out.extend(value);
            }
        }
    }
    out
}

fn properties(value: &Properties) -> Vec<KeyValuePair> {
    let pair = |(property_type, value): (u64, Value<'_>)| match value {
        Value::Int(value) => number(property_type, value),
        Value::Bytes(value) => bytes(property_type, value.to_vec()),
    };
    value.iter().map(pair).collect()
}

fn setup(value: &Setup) -> Vec<KeyValuePair> {
    let mut options = Vec::new();
    options.extend(
        value
            .path
            .as_ref()
            .map(|text| bytes(0x01, text.clone().into_bytes())),
    );
    options.extend(
        value
            .authorization_tokens
            .iter()
            .map(|value| bytes(0x03, token(value))),
    );
    options.extend(
        value
            .max_auth_token_cache_size
            .map(|value| number(0x04, value)),
    );
    options.extend(
        value
            .authority
            .as_ref()
            .map(|text| bytes(0x05, text.clone().into_bytes())),
    );
    options.extend(value.max_filter_ranges.map(|value| number(0x06, value)));
    let implementation = value.implementation.as_ref();
    options.extend(implementation.map(|text| bytes(0x07, text.clone().into_bytes())));
    options.extend(value.max_request_updates.map(|value| number(0x08, value)));
    options.extend(value.fleet_relay.map(|value| number(0x7765_6972, value)));
    options
}

fn name(value: &FullTrackName) -> Vec<u8> {
    value.name.as_bytes().to_vec()
}

/// The last location of a range as encoded; until draft-19 its object plus one, 0 for the whole group.
fn end(draft: Draft, value: Location) -> (VarInt, VarInt) {
    let more = u64::from(draft <= Draft::Draft19);
    (int(value.group), int(value.object.wrapping_add(more)))
}

/// Defines a module that converts the messages of one draft.
macro_rules! conversions {
    ($draft:ident = $variant:ident, $unknown:expr, $fetch:ident, $skipped:expr, $notify:expr $(, $request_id:ident)?) => {
        pub(crate) mod $draft {
            use moqtap_codec::$draft::message as theirs;

            use super::*;

            const DRAFT: Draft = Draft::$variant;
            const UNKNOWN_COUNT: u64 = $unknown;

            $fetch!();

            fn goaway(value: &GoAway) -> theirs::GoAway {
                theirs::GoAway {
                    new_session_uri: value.new_session_uri.clone().into_bytes(),
                    timeout: int(value.timeout.map_or(0, millis)),
                    $($request_id: value.request_id.map(int),)?
                }
            }

            fn redirect(value: &Redirect) -> theirs::Redirect {
                theirs::Redirect {
                    connect_uri: value.connect_uri.clone().into_bytes(),
                    track_namespace: namespace(&value.track.namespace),
                    track_name: name(&value.track),
                }
            }

            fn subscribe(value: &Subscribe) -> theirs::Subscribe {
                theirs::Subscribe {
                    request_id: int(value.request_id),
                    track_namespace: namespace(&value.track.namespace),
                    track_name: name(&value.track),
                    parameters: parameters(DRAFT, &value.parameters),
                }
            }

            fn publish(value: &Publish) -> theirs::Publish {
                theirs::Publish {
                    request_id: int(value.request_id),
                    track_namespace: namespace(&value.track.namespace),
                    track_name: name(&value.track),
                    track_alias: int(value.track_alias),
                    parameters: parameters(DRAFT, &value.parameters),
                    track_properties: properties(&value.properties),
                }
            }

            fn publish_done(value: &PublishDone) -> theirs::PublishDone {
                theirs::PublishDone {
                    status_code: int(value.code.0),
                    stream_count: int(value.stream_count.unwrap_or(UNKNOWN_COUNT)),
                    reason_phrase: value.reason.clone().into_bytes(),
                }
            }

            fn request_error(value: &RequestError) -> theirs::RequestError {
                theirs::RequestError {
                    error_code: int(value.code.0),
                    retry_interval: int(value.retry_after.map_or(0, |after| millis(after) + 1)),
                    reason_phrase: value.reason.clone().into_bytes(),
                    redirect: value.redirect.as_ref().map(redirect),
                }
            }

            pub(crate) fn message(value: &Message) -> theirs::ControlMessage {
                use theirs::ControlMessage as Theirs;
                match value {
                    Message::Setup(value) => Theirs::Setup(theirs::Setup { options: setup(value) }),
                    Message::GoAway(value) => Theirs::GoAway(goaway(value)),
                    Message::Subscribe(value) => Theirs::Subscribe(subscribe(value)),
                    Message::SubscribeOk(value) => Theirs::SubscribeOk(theirs::SubscribeOk {
                        track_alias: int(value.track_alias),
                        parameters: parameters(DRAFT, &value.parameters),
                        track_properties: properties(&value.properties),
                    }),
                    Message::Publish(value) => Theirs::Publish(publish(value)),
                    Message::PublishDone(value) => Theirs::PublishDone(publish_done(value)),
                    Message::Fetch(value) => Theirs::Fetch(fetch(value)),
                    Message::FetchOk(value) => {
                        let (end_group, end_object) = end(DRAFT, value.end);
                        Theirs::FetchOk(theirs::FetchOk {
                            end_of_track: value.end_of_track.into(),
                            end_group,
                            end_object,
                            parameters: parameters(DRAFT, &value.parameters),
                            track_properties: properties(&value.properties),
                        })
                    }
                    Message::TrackStatus(value) => Theirs::TrackStatus(theirs::TrackStatus {
                        request_id: int(value.request_id),
                        track_namespace: namespace(&value.track.namespace),
                        track_name: name(&value.track),
                        parameters: parameters(DRAFT, &value.parameters),
                    }),
                    Message::PublishNamespace(value) => Theirs::PublishNamespace(theirs::PublishNamespace {
                        request_id: int(value.request_id),
                        track_namespace: namespace(&value.namespace),
                        parameters: parameters(DRAFT, &value.parameters),
                    }),
                    Message::Namespace(suffix) => Theirs::Namespace(theirs::Namespace {
                        namespace_suffix: namespace(suffix),
                    }),
                    Message::NamespaceDone(suffix) => Theirs::NamespaceDone(theirs::NamespaceDone {
                        namespace_suffix: namespace(suffix),
                    }),
                    Message::SubscribeNamespace(value) => {
                        Theirs::SubscribeNamespace(theirs::SubscribeNamespace {
                            request_id: int(value.request_id),
                            namespace_prefix: namespace(&value.prefix),
                            parameters: parameters(DRAFT, &value.parameters),
                        })
                    }
                    Message::SubscribeTracks(value) => Theirs::SubscribeTracks(theirs::SubscribeTracks {
                        request_id: int(value.request_id),
                        namespace_prefix: namespace(&value.prefix),
                        parameters: parameters(DRAFT, &value.parameters),
                    }),
                    Message::PublishBlocked(track) => {
                        $skipped(namespace(&track.namespace), track.name.as_bytes().to_vec())
                    }
                    Message::PublishStateNotify(value) => $notify(parameters(DRAFT, &value.parameters)),
                    Message::RequestUpdate(value) => Theirs::RequestUpdate(theirs::RequestUpdate {
                        request_id: int(value.request_id),
                        parameters: parameters(DRAFT, &value.parameters),
                    }),
                    Message::RequestOk(value) => Theirs::RequestOk(theirs::RequestOk {
                        parameters: parameters(DRAFT, &value.parameters),
                        track_properties: properties(&value.properties),
                    }),
                    Message::RequestError(value) => Theirs::RequestError(request_error(value)),
                }
            }
        }
    };
}

/// Defines the conversion of a FETCH whose kind is a field.
macro_rules! typed_fetch {
    () => {
        fn fetch(value: &Fetch) -> theirs::Fetch {
            let joining = |joining_request_id, joining_start| theirs::FetchPayload::Joining {
                joining_request_id: int(joining_request_id),
                joining_start: int(joining_start),
            };
            let (fetch_type, fetch_payload) = match &value.kind {
                FetchKind::Standalone {
                    track,
                    start,
                    end: last,
                } => {
                    let (end_group, end_object) = end(DRAFT, *last);
                    let payload = theirs::FetchPayload::Standalone {
                        track_namespace: namespace(&track.namespace),
                        track_name: name(track),
                        start_group: int(start.group),
                        start_object: int(start.object),
                        end_group,
                        end_object,
                    };
                    (theirs::FetchType::Standalone, payload)
                }
                FetchKind::RelativeJoining { request_id, groups } => (
                    theirs::FetchType::RelativeJoining,
                    joining(*request_id, *groups),
                ),
                FetchKind::AbsoluteJoining {
                    request_id, start, ..
                } => (
                    theirs::FetchType::AbsoluteJoining,
                    joining(*request_id, start.group),
                ),
                FetchKind::Recent { .. } => unreachable!("not in this draft"),
            };
            theirs::Fetch {
                request_id: int(value.request_id),
                fetch_type,
                fetch_payload,
                parameters: parameters(DRAFT, &value.parameters),
            }
        }
    };
}

/// Defines the conversion of a FETCH whose range is a parameter.
macro_rules! filtered_fetch {
    () => {
        fn fetch(value: &Fetch) -> theirs::Fetch {
            let (track, range) = match &value.kind {
                FetchKind::Standalone { track, start, end } if *end == Location::MAX => {
                    (track, Filter::AbsoluteStart(*start))
                }
                FetchKind::Standalone { track, start, end } => (
                    track,
                    Filter::AbsoluteRange {
                        start: *start,
                        end: *end,
                    },
                ),
                FetchKind::Recent { track, groups } => (track, Filter::Recent { groups: *groups }),
                FetchKind::RelativeJoining { .. } | FetchKind::AbsoluteJoining { .. } => {
                    unreachable!("not in this draft")
                }
            };
            let with_filter = Parameters {
                filter: Some(range).filter(|range| *range != Filter::EVERYTHING),
                ..value.parameters.clone()
            };
            theirs::Fetch {
                request_id: int(value.request_id),
                track_namespace: namespace(&track.namespace),
                track_name: name(track),
                parameters: parameters(DRAFT, &with_filter),
            }
        }
    };
}

conversions! {
    draft18 = Draft18, (1 << 62) - 1, typed_fetch,
    |namespace_suffix, track_name| {
        Theirs::PublishBlocked(theirs::PublishBlocked { namespace_suffix, track_name })
    },
    |_| unreachable!("not in this draft"),
    request_id
}
conversions! {
    draft19 = Draft19, (1 << 62) - 1, typed_fetch,
    |namespace_suffix, track_name| {
        Theirs::PublishSkipped(theirs::PublishSkipped { namespace_suffix, track_name })
    },
    |_| unreachable!("not in this draft")
}
conversions! {
    draft20 = Draft20, u64::MAX, filtered_fetch,
    |namespace_suffix, track_name| {
        Theirs::PublishSkipped(theirs::PublishSkipped { namespace_suffix, track_name })
    },
    |parameters| Theirs::PublishStateNotify(theirs::PublishStateNotify { parameters })
}
conversions! {
    draft21 = Draft21, u64::MAX, filtered_fetch,
    |namespace_suffix, track_name| {
        Theirs::PublishSkipped(theirs::PublishSkipped { namespace_suffix, track_name })
    },
    |parameters| Theirs::PublishStateNotify(theirs::PublishStateNotify { parameters })
}
conversions! {
    draft22 = Draft22, u64::MAX, filtered_fetch,
    |namespace_suffix, track_name| {
        Theirs::PublishSkipped(theirs::PublishSkipped { namespace_suffix, track_name })
    },
    |parameters| Theirs::PublishStateNotify(theirs::PublishStateNotify { parameters })
}
