//! The range of locations of a subscription filter.

use weir_moqt::{location::Location, parameter::Filter};

/// Returns the start and the last group of a filter, given the largest object so far [moqt-18 §5.1.2].
pub(super) fn range(filter: Filter, largest: Option<Location>) -> (Location, u64) {
    let origin = Location {
        group: 0,
        object: 0,
    };
    match filter {
        Filter::LargestObject => {
            let start = largest.map_or(origin, |largest| Location {
                group: largest.group,
                object: largest.object.saturating_add(1),
            });
            (start, u64::MAX)
        }
        Filter::NextGroupStart => {
            let start = largest.map_or(origin, |largest| Location {
                group: largest.group.saturating_add(1),
                object: 0,
            });
            (start, u64::MAX)
        }
        Filter::AbsoluteStart(start) => (start, u64::MAX),
        Filter::AbsoluteRange { start, end_group } => (start, end_group),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_become_ranges() {
        let largest = Some(Location {
            group: 7,
            object: 3,
        });
        let at = |group, object| Location { group, object };
        assert_eq!(range(Filter::LargestObject, largest), (at(7, 4), u64::MAX));
        assert_eq!(range(Filter::NextGroupStart, largest), (at(8, 0), u64::MAX));
        assert_eq!(range(Filter::LargestObject, None), (at(0, 0), u64::MAX));
        assert_eq!(range(Filter::NextGroupStart, None), (at(0, 0), u64::MAX));
        assert_eq!(
            range(Filter::AbsoluteStart(at(2, 2)), largest),
            (at(2, 2), u64::MAX)
        );
        let range_filter = Filter::AbsoluteRange {
            start: at(2, 2),
            end_group: 9,
        };
        assert_eq!(range(range_filter, largest), (at(2, 2), 9));
    }
}
