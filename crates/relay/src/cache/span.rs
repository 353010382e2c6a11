//! A range of locations in the order in which a fetch delivers them.

use weir_moqt::{location::Location, parameter::GroupOrder};

/// A range, both ends included, and the order of its groups. Within a group objects always come in the order of
/// their IDs [moqt-18 §10.12.3].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: Location,
    /// Not before `start`; object `u64::MAX` covers the whole group.
    pub(crate) end: Location,
    pub(crate) order: GroupOrder,
}

impl Span {
    /// Returns the location that is delivered first.
    pub(crate) fn first(&self) -> Location {
        match self.order {
            GroupOrder::Ascending => self.start,
            GroupOrder::Descending => self.first_of(self.end.group),
        }
    }

    /// Returns the location that is delivered last.
    pub(crate) fn last(&self) -> Location {
        match self.order {
            GroupOrder::Ascending => self.end,
            GroupOrder::Descending => self.last_of(self.start.group),
        }
    }

    /// Returns `at` if it is in the range, otherwise the first location of the range that follows it.
    pub(crate) fn within(&self, at: Location) -> Option<Location> {
        match self.order {
            _ if at <= self.end => Some(at),
            GroupOrder::Ascending => None,
            GroupOrder::Descending if at.group > self.end.group => Some(self.first()),
            GroupOrder::Descending => {
                let below = at.group.checked_sub(1)?;
                (below >= self.start.group).then(|| self.first_of(below))
            }
        }
    }

    /// Returns the nearest location of the same group, or else of the range.
    pub(crate) fn clamp(&self, location: Location) -> Location {
        location.clamp(self.start, self.end)
    }

    /// Returns the location that follows `at`.
    pub(crate) fn after(&self, at: Location) -> Option<Location> {
        if at < self.last_of(at.group) {
            let object = at.object.saturating_add(1);
            return Some(Location { object, ..at });
        }
        let group = match self.order {
            GroupOrder::Ascending if at.group < self.end.group => at.group.saturating_add(1),
            GroupOrder::Descending if at.group > self.start.group => at.group.saturating_sub(1),
            GroupOrder::Ascending | GroupOrder::Descending => return None,
        };
        Some(self.first_of(group))
    }

    /// Returns the location that `at` follows.
    pub(crate) fn before(&self, at: Location) -> Option<Location> {
        if at > self.first_of(at.group) {
            let object = at.object.saturating_sub(1);
            return Some(Location { object, ..at });
        }
        let group = match self.order {
            GroupOrder::Ascending if at.group > self.start.group => at.group.saturating_sub(1),
            GroupOrder::Descending if at.group < self.end.group => at.group.saturating_add(1),
            GroupOrder::Ascending | GroupOrder::Descending => return None,
        };
        Some(self.last_of(group))
    }

    /// Returns whether `one` comes before `other`.
    pub(crate) fn is_before(&self, one: Location, other: Location) -> bool {
        match self.order {
            GroupOrder::Ascending => one < other,
            GroupOrder::Descending if one.group == other.group => one.object < other.object,
            GroupOrder::Descending => one.group > other.group,
        }
    }

    pub(crate) fn contains(&self, location: Location) -> bool {
        self.start <= location && location <= self.end
    }

    /// Returns the first location of a group within the range.
    pub(crate) fn first_of(&self, group: u64) -> Location {
        self.start.max(Location::new(group, 0))
    }

    /// Returns the last location of a group within the range.
    pub(crate) fn last_of(&self, group: u64) -> Location {
        self.end.min(Location::new(group, u64::MAX))
    }

    /// Returns the smallest group whose first object is in the range.
    pub(crate) fn whole_from(&self) -> u64 {
        self.start.group + u64::from(self.start.object > 0 && self.start.group < u64::MAX)
    }

    /// Returns the locations from `from` to `to` in this order, as ranges of ascending locations.
    pub(crate) fn ranges(&self, from: Location, to: Location) -> Vec<(Location, Location)> {
        if self.order == GroupOrder::Ascending || from.group == to.group {
            return vec![(from, to)];
        }
        let mut ranges = vec![(from, self.last_of(from.group))];
        if let (Some(below), above) = (from.group.checked_sub(1), to.group.saturating_add(1))
            && above <= below
        {
            ranges.push((Location::new(above, 0), Location::new(below, u64::MAX)));
        }
        ranges.push((self.first_of(to.group), to));
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(group: u64, object: u64) -> Location {
        Location::new(group, object)
    }

    fn span(order: GroupOrder) -> Span {
        Span {
            start: at(2, 3),
            end: at(4, 1),
            order,
        }
    }

    #[test]
    fn groups_come_in_their_order_and_objects_in_theirs() {
        let up = span(GroupOrder::Ascending);
        assert_eq!(up.first(), at(2, 3));
        assert_eq!(up.after(at(2, 3)), Some(at(2, 4)));
        assert_eq!(up.after(at(2, u64::MAX)), Some(at(3, 0)));
        assert_eq!(up.after(at(4, 0)), Some(at(4, 1)));
        assert_eq!(up.after(at(4, 1)), None);
        let down = span(GroupOrder::Descending);
        assert_eq!(down.first(), at(4, 0));
        assert_eq!(down.after(at(4, 1)), Some(at(3, 0)));
        assert_eq!(down.after(at(3, u64::MAX)), Some(at(2, 3)));
        assert_eq!(down.after(at(2, u64::MAX)), None);
        assert_eq!(up.before(at(2, 3)), None);
        assert_eq!(up.before(at(4, 1)), Some(at(4, 0)));
        assert_eq!(down.before(at(4, 0)), None);
        assert_eq!(up.before(at(4, 0)), Some(at(3, u64::MAX)));
        assert_eq!(down.before(at(2, 3)), Some(at(3, u64::MAX)));
        assert_eq!(down.before(at(3, 0)), Some(at(4, 1)));
        assert!(down.is_before(at(4, 1), at(3, 0)));
        assert!(!down.is_before(at(3, 1), at(3, 1)));
        assert_eq!(up.within(at(4, 2)), None);
        assert_eq!(up.within(at(4, 1)), Some(at(4, 1)));
        assert_eq!(down.within(at(5, 0)), Some(at(4, 0)));
        assert_eq!(down.within(at(4, 2)), Some(at(3, 0)));
        assert_eq!(down.within(at(3, 9)), Some(at(3, 9)));
        assert!(down.contains(at(3, u64::MAX)) && !down.contains(at(4, 2)));
    }

    #[test]
    fn a_stretch_of_a_descending_range_is_cut_at_its_groups() {
        let down = span(GroupOrder::Descending);
        let all = down.ranges(at(4, 0), at(2, 7));
        let expected = [
            (at(4, 0), at(4, 1)),
            (at(3, 0), at(3, u64::MAX)),
            (at(2, 3), at(2, 7)),
        ];
        assert_eq!(all, expected);
        assert_eq!(down.ranges(at(3, 1), at(2, 4)).len(), 2);
        assert_eq!(down.ranges(at(3, 1), at(3, 4)), [(at(3, 1), at(3, 4))]);
    }
}
