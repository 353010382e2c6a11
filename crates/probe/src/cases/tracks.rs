//! The parameters of SUBSCRIBE_TRACKS, with which the subscription to each track begins.

use weir_moqt::{
    message::{Message, MessageKind},
    parameter::GroupOrder,
};

use crate::{
    case::{Case, Level},
    edition::in_22,
    script::{A, B, Script, object, object_at, ok, request},
    wire::{self, Range, Subgroup, Value, group, parameter, property},
};

pub(super) fn cases() -> Vec<Case> {
    vec![repeated(), filtered(), without_properties()]
}

/// A client sends SUBSCRIBE_TRACKS with parameters, and another publishes a track with a property.
fn collect(script: &mut Script, parameters: Vec<(u64, Value)>) {
    script.collect(A, parameters);
    script.join(B);
    let track = script.track.clone();
    let publication = script.ask(B, move |id| {
        let kept = (property::OF_APPLICATION, Value::Bytes(b"kept".to_vec()));
        wire::publish(id, &track, wire::ALIAS, &[], &[kept])
    });
    script.expect(B, ok(publication));
}

fn repeated() -> Case {
    Case::must(
        "subscribe-tracks.parameters",
        in_22("3.6.2"),
        "a PUBLISH that follows from SUBSCRIBE_TRACKS repeats its GROUP_ORDER and LOCATION_FILTER",
        |script| {
            let filter = Range::From(200, 0).filter(script.edition);
            collect(
                script,
                vec![filter, (parameter::GROUP_ORDER, Value::Byte(2))],
            );
            script.then();
            let taken = script.taken();
            let repeats = |message: &Message| {
                matches!(message, Message::Publish(it)
                    if it.parameters.group_order == Some(GroupOrder::Descending)
                        && it.parameters.filter.is_some())
            };
            script.expect(A, request(taken, MessageKind::Publish, repeats));
        },
    )
}

fn filtered() -> Case {
    Case::must(
        "subscribe-tracks.filter",
        in_22("3.6.2"),
        "objects outside of the LOCATION_FILTER of SUBSCRIBE_TRACKS are not sent",
        |script| {
            collect(script, vec![Range::From(200, 0).filter(script.edition)]);
            let taken = script.taken();
            script.expect(A, request(taken, MessageKind::Publish, |_| true));
            script.then();
            script.stream(B, group(Subgroup::of(5), &[b"early"]));
            script.stream(B, group(Subgroup::of(200), &[b"wanted"]));
            script.expect(A, object_at(200, 0, b"wanted"));
            script.never(A, object("group 5", |object| object.group == 5));
        },
    )
}

fn without_properties() -> Case {
    Case::must(
        "subscribe-tracks.include-properties-0",
        in_22("9.20.21"),
        "after SUBSCRIBE_TRACKS with INCLUDE_PROPERTIES 0, the Track Properties of PUBLISH should be empty",
        |script| {
            collect(
                script,
                vec![(parameter::INCLUDE_PROPERTIES, Value::Byte(0))],
            );
            script.then();
            let taken = script.taken();
            let is_empty = |message: &Message| {
                matches!(message, Message::Publish(it) if it.properties.as_bytes().is_empty())
            };
            script.expect(A, request(taken, MessageKind::Publish, is_empty));
        },
    )
    .level(Level::Should)
}
