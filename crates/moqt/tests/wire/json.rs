//! Values of the codec in the JSON form of the golden vectors.

use serde_json::{Map, Value, json};
use weir_moqt::data::{
    FetchEntry, ObjectDatagram, ObjectHeader, ObjectStatus, RangeEnd, SubgroupHeader, SubgroupId,
};
use weir_moqt::location::Location;
use weir_moqt::message::{
    FetchKind, GoAway, Message, PublishDone, Redirect, RequestError, RequestUpdate, Setup,
};
use weir_moqt::name::{FullTrackName, Namespace};
use weir_moqt::parameter::{Filter, GroupOrder, Parameters, RangeFilter, RangeFilterKind};
use weir_moqt::property::{self, Properties};
use weir_moqt::token::Token;

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex digits"))
        .collect()
}

/// An object of fields, without those that are null.
fn fields(value: Value) -> Value {
    let Value::Object(fields) = value else {
        panic!("fields come as an object")
    };
    fields
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .collect::<Map<_, _>>()
        .into()
}

fn int(value: impl Into<u64>) -> Value {
    value.into().to_string().into()
}

fn maybe_int(value: Option<impl Into<u64>>) -> Value {
    value.map_or(Value::Null, int)
}

fn millis(value: Option<std::time::Duration>) -> Value {
    maybe_int(value.map(|value| u64::try_from(value.as_millis()).expect("64 bits")))
}

pub(crate) fn location(value: Location) -> Value {
    json!({"group": int(value.group), "object": int(value.object)})
}

pub(crate) fn namespace(value: &Namespace) -> Value {
    value.fields().map(hex).collect()
}

/// The fields of a track, merged with others.
fn track(value: &FullTrackName, mut others: Value) -> Value {
    others["namespace"] = namespace(&value.namespace);
    others["track_name"] = hex(value.name.as_bytes()).into();
    others
}

pub(crate) fn properties(value: &Properties) -> Value {
    value
        .iter()
        .map(|(property_type, value)| match value {
            property::Value::Int(value) => {
                json!({"type": int(property_type), "int": int(value)})
            }
            property::Value::Bytes(value) => {
                json!({"type": int(property_type), "bytes": hex(value)})
            }
        })
        .collect()
}

fn token(value: &Token) -> Value {
    match value {
        Token::Delete { alias } => json!({"alias_type": "DELETE", "alias": int(*alias)}),
        Token::Register {
            alias,
            token_type,
            value,
        } => json!({
            "alias_type": "REGISTER", "alias": int(*alias), "token_type": int(*token_type), "value": hex(value),
        }),
        Token::UseAlias { alias } => json!({"alias_type": "USE_ALIAS", "alias": int(*alias)}),
        Token::UseValue { token_type, value } => json!({
            "alias_type": "USE_VALUE", "token_type": int(*token_type), "value": hex(value),
        }),
    }
}

fn tokens(value: &[Token]) -> Value {
    value.iter().map(token).collect()
}

fn filter(value: Filter) -> Value {
    match value {
        Filter::NextGroupStart => json!({"type": "NextGroupStart"}),
        Filter::LargestObject => json!({"type": "LargestObject"}),
        Filter::AbsoluteStart(start) => json!({"type": "AbsoluteStart", "start": location(start)}),
        Filter::Recent { groups } => json!({"type": "Recent", "groups": int(groups)}),
        Filter::AbsoluteRange { start, end } => json!({
            "type": "AbsoluteRange", "start": location(start), "end": location(end),
        }),
    }
}

fn group_order(value: GroupOrder) -> &'static str {
    match value {
        GroupOrder::Ascending => "ascending",
        GroupOrder::Descending => "descending",
    }
}

fn parameters(value: &Parameters) -> Value {
    fields(json!({
        "object_delivery_timeout": millis(value.object_delivery_timeout),
        "authorization_tokens": (!value.authorization_tokens.is_empty()).then(|| tokens(&value.authorization_tokens)),
        "rendezvous_timeout": millis(value.rendezvous_timeout),
        "subgroup_delivery_timeout": millis(value.subgroup_delivery_timeout),
        "expires": millis(value.expires),
        "largest_object": value.largest_object.map(location),
        "fill_timeout": millis(value.fill_timeout),
        "forward": value.forward,
        "subscriber_priority": maybe_int(value.subscriber_priority),
        "filter": value.filter.map(filter),
        "group_order": value.group_order.map(group_order),
        "new_group_request": maybe_int(value.new_group_request),
        "track_namespace_prefix": value.track_namespace_prefix.as_ref().map(namespace),
        "fill": value.fill.as_deref().map(parameters),
        "range_filters": (!value.range_filters.is_empty()).then(|| range_filters(&value.range_filters)),
        "include_properties": value.include_properties,
    }))
}

fn range_filters(value: &[RangeFilter]) -> Value {
    value.iter().map(range_filter).collect()
}

fn range_filter(value: &RangeFilter) -> Value {
    let kind = match value.kind {
        RangeFilterKind::Subgroup => "Subgroup",
        RangeFilterKind::ObjectId => "ObjectId",
        RangeFilterKind::Priority => "Priority",
        RangeFilterKind::ObjectProperty => "ObjectProperty",
        RangeFilterKind::TrackProperty => "TrackProperty",
    };
    match value.condition() {
        Ok(None) => json!({"kind": kind}),
        Ok(Some(condition)) => fields(json!({
            "kind": kind,
            "set": int(condition.set),
            "property": maybe_int(condition.property),
            "ranges": condition.ranges.iter().map(|(start, end)| json!([int(*start), int(*end)])).collect::<Value>(),
        })),
        Err(error) => json!({"kind": kind, "invalid": error.0}),
    }
}

fn setup(value: &Setup) -> Value {
    json!({
        "path": value.path,
        "authority": value.authority,
        "implementation": value.implementation,
        "max_auth_token_cache_size": maybe_int(value.max_auth_token_cache_size),
        "authorization_tokens": tokens(&value.authorization_tokens),
        "max_filter_ranges": maybe_int(value.max_filter_ranges),
        "max_request_updates": maybe_int(value.max_request_updates),
    })
}

fn fetch_kind(value: &FetchKind) -> Value {
    match value {
        FetchKind::Standalone {
            track: name,
            start,
            end,
        } => track(
            name,
            json!({"type": "Standalone", "start": location(*start), "end": location(*end)}),
        ),
        FetchKind::RelativeJoining { request_id, groups } => json!({
            "type": "RelativeJoining", "request_id": int(*request_id), "groups": int(*groups),
        }),
        FetchKind::AbsoluteJoining {
            request_id, start, ..
        } => json!({
            "type": "AbsoluteJoining", "request_id": int(*request_id), "group": int(start.group),
        }),
        FetchKind::Recent {
            track: name,
            groups,
        } => track(name, json!({"type": "Recent", "groups": int(*groups)})),
    }
}

fn redirect(value: &Redirect) -> Value {
    track(&value.track, json!({"connect_uri": value.connect_uri}))
}

fn goaway(value: &GoAway) -> Value {
    json!({
        "new_session_uri": value.new_session_uri,
        "timeout": millis(value.timeout),
        "request_id": maybe_int(value.request_id),
    })
}

fn publish_done(value: &PublishDone) -> Value {
    json!({
        "code": int(value.code.0),
        "stream_count": maybe_int(value.stream_count),
        "reason": value.reason,
    })
}

fn request_error(value: &RequestError) -> Value {
    json!({
        "code": int(value.code.0),
        "retry_after": millis(value.retry_after),
        "reason": value.reason,
        "redirect": value.redirect.as_ref().map(redirect),
    })
}

fn request_update(value: &RequestUpdate) -> Value {
    json!({"request_id": int(value.request_id), "parameters": parameters(&value.parameters)})
}

pub(crate) fn message(value: &Message) -> Value {
    let mut json = match value {
        Message::Setup(value) => setup(value),
        Message::GoAway(value) => goaway(value),
        Message::Subscribe(value) => track(
            &value.track,
            json!({"request_id": int(value.request_id), "parameters": parameters(&value.parameters)}),
        ),
        Message::SubscribeOk(value) => json!({
            "track_alias": int(value.track_alias),
            "parameters": parameters(&value.parameters),
            "properties": properties(&value.properties),
        }),
        Message::Publish(value) => track(
            &value.track,
            json!({
                "request_id": int(value.request_id),
                "track_alias": int(value.track_alias),
                "parameters": parameters(&value.parameters),
                "properties": properties(&value.properties),
            }),
        ),
        Message::PublishDone(value) => publish_done(value),
        Message::Fetch(value) => json!({
            "request_id": int(value.request_id),
            "fetch": fetch_kind(&value.kind),
            "parameters": parameters(&value.parameters),
        }),
        Message::FetchOk(value) => json!({
            "end_of_track": value.end_of_track,
            "end": location(value.end),
            "parameters": parameters(&value.parameters),
            "properties": properties(&value.properties),
        }),
        Message::TrackStatus(value) => track(
            &value.track,
            json!({"request_id": int(value.request_id), "parameters": parameters(&value.parameters)}),
        ),
        Message::PublishNamespace(value) => json!({
            "request_id": int(value.request_id),
            "namespace": namespace(&value.namespace),
            "parameters": parameters(&value.parameters),
        }),
        Message::Namespace(suffix) | Message::NamespaceDone(suffix) => {
            json!({"suffix": namespace(suffix)})
        }
        Message::SubscribeNamespace(value) => json!({
            "request_id": int(value.request_id),
            "prefix": namespace(&value.prefix),
            "parameters": parameters(&value.parameters),
        }),
        Message::SubscribeTracks(value) => json!({
            "request_id": int(value.request_id),
            "prefix": namespace(&value.prefix),
            "parameters": parameters(&value.parameters),
        }),
        Message::PublishBlocked(track) => {
            json!({"suffix": namespace(&track.namespace), "track_name": hex(track.name.as_bytes())})
        }
        Message::PublishStateNotify(value) => json!({"parameters": parameters(&value.parameters)}),
        Message::RequestUpdate(value) => request_update(value),
        Message::RequestOk(value) => json!({
            "parameters": parameters(&value.parameters), "properties": properties(&value.properties),
        }),
        Message::RequestError(value) => request_error(value),
    };
    json["type"] = value.kind().name().into();
    fields(json)
}

fn status(value: ObjectStatus) -> &'static str {
    match value {
        ObjectStatus::Normal => "normal",
        ObjectStatus::EndOfGroup => "end_of_group",
        ObjectStatus::EndOfTrack => "end_of_track",
    }
}

pub(crate) fn datagram(value: &ObjectDatagram) -> Value {
    fields(json!({
        "track_alias": int(value.track_alias),
        "group": int(value.group),
        "object": int(value.object),
        "priority": maybe_int(value.priority),
        "end_of_group": value.end_of_group,
        "status": status(value.status),
        "properties": properties(&value.properties),
        "payload": hex(&value.payload),
    }))
}

pub(crate) fn subgroup_header(value: &SubgroupHeader) -> Value {
    let subgroup = match value.subgroup {
        SubgroupId::Zero => json!("zero"),
        SubgroupId::FirstObject => json!("first_object"),
        SubgroupId::Explicit(id) => json!({"explicit": int(id)}),
    };
    let header = fields(json!({
        "track_alias": int(value.track_alias),
        "group": int(value.group),
        "subgroup": subgroup,
        "priority": maybe_int(value.priority),
        "has_properties": value.has_properties,
        "end_of_group": value.end_of_group,
        "first_object": value.first_object,
    }));
    json!({"header": header})
}

pub(crate) fn object(value: &ObjectHeader) -> Value {
    json!({"object": {
        "id": int(value.id),
        "status": status(value.status),
        "payload_length": int(value.payload_len),
        "properties": properties(&value.properties),
    }})
}

pub(crate) fn fetch_entry(value: &FetchEntry) -> Value {
    match value {
        FetchEntry::Object(object) => {
            let object = fields(json!({
                "group": int(object.group),
                "subgroup": maybe_int(object.subgroup),
                "object": int(object.object),
                "priority": int(object.priority),
                "payload_length": int(object.payload_len),
                "properties": properties(&object.properties),
            }));
            json!({"object": object})
        }
        FetchEntry::EndOfRange { reason, location } => {
            let reason = match reason {
                RangeEnd::NonExistent => "non_existent",
                RangeEnd::Unknown => "unknown",
                RangeEnd::TimedOut => "timed_out",
            };
            json!({"end_of_range": {
                "reason": reason, "group": int(location.group), "object": int(location.object),
            }})
        }
    }
}
