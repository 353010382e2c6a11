//! Values of this codec in the types of `moqtap-codec`.

use moqtap_codec::draft18::message as theirs;
use moqtap_codec::kvp::{KeyValuePair, KvpValue};
use moqtap_codec::types::TrackNamespace;
use moqtap_codec::varint::{Moqt18, VarInt};
use std::time::Duration;
use weir_moqt::location::Location;
use weir_moqt::message::{
    Fetch, FetchKind, GoAway, Message, Publish, PublishDone, Redirect, RequestError, Setup,
    Subscribe,
};
use weir_moqt::name::{FullTrackName, Namespace};
use weir_moqt::parameter::{Filter, GroupOrder, Parameters};
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

fn filter(value: Filter) -> Vec<u8> {
    match value {
        Filter::NextGroupStart => ints(&[1]),
        Filter::LargestObject => ints(&[2]),
        Filter::AbsoluteStart(start) => ints(&[3, start.group, start.object]),
        Filter::AbsoluteRange { start, end_group } => {
            ints(&[4, start.group, start.object, end_group - start.group])
        }
    }
}

fn namespace(value: &Namespace) -> TrackNamespace {
    TrackNamespace(value.fields().map(<[u8]>::to_vec).collect())
}

fn parameters(value: &Parameters) -> Vec<KeyValuePair> {
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
    pairs.extend(value.filter.map(|value| bytes(0x21, filter(value))));
    pairs.extend(value.group_order.map(|value| {
        number(
            0x22,
            match value {
                GroupOrder::Ascending => 1,
                GroupOrder::Descending => 2,
            },
        )
    }));
    pairs.extend(value.new_group_request.map(|value| number(0x32, value)));
    pairs.extend(value.track_namespace_prefix.as_ref().map(|value| {
        let mut out = Vec::new();
        namespace(value).encode_moqt::<Moqt18>(&mut out);
        bytes(0x34, out)
    }));
    pairs
}

fn properties(value: &Properties) -> Vec<KeyValuePair> {
    let pair = |(property_type, value): (u64, Value<'_>)| match value {
        Value::Int(value) => number(property_type, value),
        Value::Bytes(value) => bytes(property_type, value.to_vec()),
    };
    value.iter().map(pair).collect()
}

fn setup(value: &Setup) -> theirs::Setup {
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
    let implementation = value.implementation.as_ref();
    options.extend(implementation.map(|text| bytes(0x07, text.clone().into_bytes())));
    theirs::Setup { options }
}

fn name(value: &FullTrackName) -> Vec<u8> {
    value.name.as_bytes().to_vec()
}

/// The last location of a range as encoded: its object plus one, 0 for the whole group.
fn end(value: Location) -> (VarInt, VarInt) {
    (int(value.group), int(value.object.wrapping_add(1)))
}

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
            let (end_group, end_object) = end(*last);
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
        FetchKind::AbsoluteJoining { request_id, group } => (
            theirs::FetchType::AbsoluteJoining,
            joining(*request_id, *group),
        ),
    };
    theirs::Fetch {
        request_id: int(value.request_id),
        fetch_type,
        fetch_payload,
        parameters: parameters(&value.parameters),
    }
}

fn redirect(value: &Redirect) -> theirs::Redirect {
    theirs::Redirect {
        connect_uri: value.connect_uri.clone().into_bytes(),
        track_namespace: namespace(&value.track.namespace),
        track_name: name(&value.track),
    }
}

fn goaway(value: &GoAway) -> theirs::GoAway {
    theirs::GoAway {
        new_session_uri: value.new_session_uri.clone().into_bytes(),
        timeout: int(value.timeout.map_or(0, millis)),
        request_id: value.request_id.map(int),
    }
}

fn subscribe(value: &Subscribe) -> theirs::Subscribe {
    theirs::Subscribe {
        request_id: int(value.request_id),
        track_namespace: namespace(&value.track.namespace),
        track_name: name(&value.track),
        parameters: parameters(&value.parameters),
    }
}

fn publish(value: &Publish) -> theirs::Publish {
    theirs::Publish {
        request_id: int(value.request_id),
        track_namespace: namespace(&value.track.namespace),
        track_name: name(&value.track),
        track_alias: int(value.track_alias),
        parameters: parameters(&value.parameters),
        track_properties: properties(&value.properties),
    }
}

fn publish_done(value: &PublishDone) -> theirs::PublishDone {
    theirs::PublishDone {
        status_code: int(value.code.0),
        stream_count: int(value.stream_count.unwrap_or((1 << 62) - 1)),
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
        Message::Setup(value) => Theirs::Setup(setup(value)),
        Message::GoAway(value) => Theirs::GoAway(goaway(value)),
        Message::Subscribe(value) => Theirs::Subscribe(subscribe(value)),
        Message::SubscribeOk(value) => Theirs::SubscribeOk(theirs::SubscribeOk {
            track_alias: int(value.track_alias),
            parameters: parameters(&value.parameters),
            track_properties: properties(&value.properties),
        }),
        Message::Publish(value) => Theirs::Publish(publish(value)),
        Message::PublishDone(value) => Theirs::PublishDone(publish_done(value)),
        Message::Fetch(value) => Theirs::Fetch(fetch(value)),
        Message::FetchOk(value) => {
            let (end_group, end_object) = end(value.end);
            Theirs::FetchOk(theirs::FetchOk {
                end_of_track: value.end_of_track.into(),
                end_group,
                end_object,
                parameters: parameters(&value.parameters),
                track_properties: properties(&value.properties),
            })
        }
        Message::TrackStatus(value) => Theirs::TrackStatus(theirs::TrackStatus {
            request_id: int(value.request_id),
            track_namespace: namespace(&value.track.namespace),
            track_name: name(&value.track),
            parameters: parameters(&value.parameters),
        }),
        Message::PublishNamespace(value) => Theirs::PublishNamespace(theirs::PublishNamespace {
            request_id: int(value.request_id),
            track_namespace: namespace(&value.namespace),
            parameters: parameters(&value.parameters),
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
                parameters: parameters(&value.parameters),
            })
        }
        Message::SubscribeTracks(value) => Theirs::SubscribeTracks(theirs::SubscribeTracks {
            request_id: int(value.request_id),
            namespace_prefix: namespace(&value.prefix),
            parameters: parameters(&value.parameters),
        }),
        Message::PublishBlocked(track) => Theirs::PublishBlocked(theirs::PublishBlocked {
            namespace_suffix: namespace(&track.namespace),
            track_name: track.name.as_bytes().to_vec(),
        }),
        Message::RequestUpdate(value) => Theirs::RequestUpdate(theirs::RequestUpdate {
            request_id: int(value.request_id),
            parameters: parameters(&value.parameters),
        }),
        Message::RequestOk(value) => Theirs::RequestOk(theirs::RequestOk {
            parameters: parameters(&value.parameters),
            track_properties: properties(&value.properties),
        }),
        Message::RequestError(value) => Theirs::RequestError(request_error(value)),
    }
}
