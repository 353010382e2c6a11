//! Random valid filters and fills.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use weir_moqt::draft::Draft;
use weir_moqt::location::Location;
use weir_moqt::parameter::{Filter, Parameters, RangeFilter, RangeFilterKind};

use super::{bytes, group_order, int, location, millis};

pub(super) fn filter(draft: Draft) -> impl Strategy<Value = Filter> {
    let is_exact = draft >= Draft::Draft20;
    prop_oneof![
        Just(Filter::NextGroupStart),
        Just(Filter::LargestObject),
        (0..u64::MAX - 1).prop_map(move |groups| if is_exact {
            Filter::Recent { groups }
        } else {
            Filter::NextGroupStart
        }),
        Just(Filter::EVERYTHING),
        location().prop_map(Filter::AbsoluteStart),
        (location(), int(), option::of(int())).prop_map(move |(start, delta, object)| {
            let group = start.group.saturating_add(delta);
            let object = object.filter(|_| is_exact).unwrap_or(u64::MAX);
            Filter::AbsoluteRange {
                start,
                end: Location { group, object },
            }
        }),
    ]
}

/// Range filters in the order of their types.
pub(super) fn range_filters() -> impl Strategy<Value = Vec<RangeFilter>> {
    let kinds = vec![
        RangeFilterKind::Subgroup,
        RangeFilterKind::ObjectId,
        RangeFilterKind::Priority,
        RangeFilterKind::ObjectProperty,
        RangeFilterKind::TrackProperty,
    ];
    let filter = (select(kinds), bytes(12)).prop_map(|(kind, value)| RangeFilter { kind, value });
    vec(filter, 0..4).prop_map(|mut filters| {
        filters.sort_by_key(|filter| filter.kind);
        filters
    })
}

pub(super) fn fill(draft: Draft) -> impl Strategy<Value = Box<Parameters>> {
    let others = (option::of(any::<u8>()), option::of(group_order()));
    let filters = (option::of(filter(draft)), range_filters());
    (option::of(millis()), others, filters).prop_map(
        |(fill_timeout, (subscriber_priority, group_order), (filter, mut range_filters))| {
            range_filters.retain(|filter| filter.kind != RangeFilterKind::TrackProperty);
            Box::new(Parameters {
                fill_timeout,
                subscriber_priority,
                group_order,
                filter,
                range_filters,
                ..Parameters::default()
            })
        },
    )
}
