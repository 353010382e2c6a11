//! Random valid datagrams and streams.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use weir_moqt::data::{
    FetchEntry, FetchObject, ObjectDatagram, ObjectHeader, ObjectStatus, RangeEnd, SubgroupHeader,
    SubgroupId,
};
use weir_moqt::draft::Draft;
use weir_moqt::location::Location;
use weir_moqt::parameter::GroupOrder;
use weir_moqt::property::Properties;

use super::{bytes, group_order, int, object_properties};

fn special_status() -> impl Strategy<Value = ObjectStatus> {
    select(vec![ObjectStatus::EndOfGroup, ObjectStatus::EndOfTrack])
}

pub(crate) fn datagram() -> impl Strategy<Value = ObjectDatagram> {
    let normal = (object_properties(), bytes(60), any::<bool>())
        .prop_map(|(properties, payload, end)| (ObjectStatus::Normal, properties, payload, end));
    let special =
        special_status().prop_map(|status| (status, Properties::EMPTY, Bytes::new(), false));
    let object = prop_oneof![Just(0), int()];
    let ids = (int(), int(), object, option::of(any::<u8>()));
    (ids, prop_oneof![3 => normal, 1 => special]).prop_map(
        |((track_alias, group, object, priority), (status, properties, payload, end_of_group))| {
            ObjectDatagram {
                track_alias,
                group,
                object,
                priority,
                end_of_group,
                properties,
                status,
                payload,
            }
        },
    )
}

pub(crate) fn subgroup_header() -> impl Strategy<Value = SubgroupHeader> {
    let subgroup = prop_oneof![
        Just(SubgroupId::Zero),
        Just(SubgroupId::FirstObject),
        int().prop_map(SubgroupId::Explicit),
    ];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (int(), int(), subgroup, option::of(any::<u8>()), flags).prop_map(
        |(track_alias, group, subgroup, priority, flags)| SubgroupHeader {
            track_alias,
            group,
            subgroup,
            priority,
            has_properties: flags.0,
            end_of_group: flags.1,
            first_object: flags.2,
        },
    )
}

/// A stream: its header, and objects with their payloads.
pub(crate) fn subgroup() -> impl Strategy<Value = (SubgroupHeader, Vec<(ObjectHeader, Bytes)>)> {
    let normal = (object_properties(), bytes(60))
        .prop_map(|(properties, payload)| (ObjectStatus::Normal, properties, payload));
    let special = special_status().prop_map(|status| (status, Properties::EMPTY, Bytes::new()));
    let step = prop_oneof![3 => Just(0_u64), 1 => 0_u64..1 << 40];
    let objects = vec((step, prop_oneof![4 => normal, 1 => special]), 0..6);
    (subgroup_header(), objects).prop_map(|(header, objects)| {
        let mut next = 0;
        let objects = objects
            .into_iter()
            .map(|(step, (status, properties, payload))| {
                let id = next + step;
                next = id + 1;
                let properties = if header.has_properties {
                    properties
                } else {
                    Properties::EMPTY
                };
                let payload_len = payload.len() as u64;
                (
                    ObjectHeader {
                        id,
                        properties,
                        status,
                        payload_len,
                    },
                    payload,
                )
            });
        (header, objects.collect())
    })
}

/// The entries of a stream with their payloads, in the returned order of groups.
pub(crate) fn fetch(draft: Draft) -> impl Strategy<Value = (GroupOrder, Vec<(FetchEntry, Bytes)>)> {
    let group_step = prop_oneof![3 => Just(0_u64), 1 => 1_u64..3, 1 => 1_u64..1 << 30];
    let object = (
        (group_step, 1_u64..300),
        option::of(prop_oneof![0_u64..3, int()]),
        0_u8..3,
        object_properties(),
        bytes(60),
        prop_oneof![6 => Just(None), 1 => range_end(draft).prop_map(Some)],
    );
    (group_order(), vec(object, 0..8)).prop_map(|(order, objects)| {
        let mut at = Location {
            group: 1 << 40,
            object: 0,
        };
        let entries = objects.into_iter().map(
            |((groups, step), subgroup, priority, properties, payload, end_of_range)| {
                let group = match order {
                    GroupOrder::Ascending => at.group + groups,
                    GroupOrder::Descending => at.group - groups,
                };
                let object = if groups == 0 {
                    at.object + step
                } else {
                    step - 1
                };
                at = Location { group, object };
                if let Some(reason) = end_of_range {
                    return (
                        FetchEntry::EndOfRange {
                            reason,
                            location: at,
                        },
                        Bytes::new(),
                    );
                }
                let payload_len = payload.len() as u64;
                let object = FetchObject {
                    group,
                    subgroup,
                    object,
                    priority,
                    properties,
                    payload_len,
                };
                (FetchEntry::Object(object), payload)
            },
        );
        let entries = entries.collect();
        (order, entries)
    })
}

fn range_end(draft: Draft) -> impl Strategy<Value = RangeEnd> {
    let mut reasons = vec![RangeEnd::NonExistent, RangeEnd::Unknown];
    if draft >= Draft::Draft20 {
        reasons.push(RangeEnd::TimedOut);
    }
    select(reasons)
}
