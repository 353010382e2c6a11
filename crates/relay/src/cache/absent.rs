//! The locations of a track that are known not to exist.

use std::collections::BTreeMap;

use weir_moqt::location::Location;

/// The largest location that a track can have.
pub(crate) const LAST: Location = Location::new(u64::MAX, u64::MAX);

/// A set of locations, as ranges that neither overlap nor touch.
#[derive(Debug, Default)]
pub(crate) struct Absent {
    /// The last location of each range, by its first.
    ranges: BTreeMap<Location, Location>,
}

impl Absent {
    /// Adds the locations from `first` to `last`, inclusive. Beyond `ranges_max` ranges, removes the range with the
    /// smallest locations; returns whether one was removed.
    pub(crate) fn insert(&mut self, first: Location, last: Location, ranges_max: usize) -> bool {
        if last < first {
            return false;
        }
        let (mut first, mut last) = (first, last);
        // Merges all ranges that overlap or touch the new one.
        let reach = after(last).unwrap_or(LAST);
        while let Some((&other_first, &other_last)) = self.ranges.range(..=reach).next_back()
            && after(other_last).is_none_or(|next| next >= first)
        {
            first = first.min(other_first);
            last = last.max(other_last);
            self.ranges.remove(&other_first);
        }
        self.ranges.insert(first, last);
        if self.ranges.len() > ranges_max {
            self.ranges.pop_first();
            return true;
        }
        false
    }

    /// Removes ranges within a single group, such as its end. Used when the objects of the group are gone, which have
    /// to be fetched anyway.
    pub(crate) fn forget_within(&mut self, group: u64) {
        let own = Location::new(group, 0)..=Location::new(group, u64::MAX);
        let within = self.ranges.extract_if(own, |_, last| last.group == group);
        let _forgotten = within.count();
    }

    /// Returns whether the set is empty.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the range that contains `location`.
    #[inline]
    pub(crate) fn around(&self, location: Location) -> Option<(Location, Location)> {
        let (&first, &last) = self.ranges.range(..=location).next_back()?;
        (last >= location).then_some((first, last))
    }

    /// Returns the first location of the set after `location`, which is not in the set.
    pub(crate) fn next(&self, location: Location) -> Option<Location> {
        self.ranges
            .range(location..)
            .next()
            .map(|(&first, _)| first)
    }

    /// Returns the last location of the set before `location`, which is not in the set.
    pub(crate) fn previous(&self, location: Location) -> Option<Location> {
        let range = self.ranges.range(..location).next_back();
        range.map(|(_, &last)| last)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    pub(crate) fn clear(&mut self) {
        self.ranges.clear();
    }
}

/// Returns the location directly after `location`.
pub(crate) fn after(location: Location) -> Option<Location> {
    match location.object.checked_add(1) {
        Some(object) => Some(Location { object, ..location }),
        None => Some(Location::new(location.group.checked_add(1)?, 0)),
    }
}

/// Returns the location directly before `location`.
pub(crate) fn before(location: Location) -> Option<Location> {
    match location.object.checked_sub(1) {
        Some(object) => Some(Location { object, ..location }),
        None => Some(Location::new(location.group.checked_sub(1)?, u64::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(group: u64, object: u64) -> Location {
        Location::new(group, object)
    }

    #[test]
    fn ranges_that_touch_become_one() {
        let mut absent = Absent::default();
        absent.insert(at(1, 5), at(1, 6), 9);
        absent.insert(at(1, 8), at(1, u64::MAX), 9);
        assert_eq!(absent.len(), 2);
        absent.insert(at(1, 7), at(1, 7), 9);
        assert_eq!(absent.around(at(1, 6)), Some((at(1, 5), at(1, u64::MAX))));
        absent.insert(at(2, 0), at(3, u64::MAX), 9);
        assert_eq!(absent.around(at(2, 9)), Some((at(1, 5), at(3, u64::MAX))));
        assert_eq!(absent.len(), 1);
        absent.insert(at(0, 0), LAST, 9);
        assert_eq!(absent.around(LAST), Some((at(0, 0), LAST)));
        absent.insert(at(4, 0), LAST, 9);
        assert_eq!(absent.len(), 1);
        absent.insert(at(4, 1), at(4, 0), 9);
        assert_eq!(
            absent.len(),
            1,
            "a range that ends before it starts is none"
        );
    }

    #[test]
    fn neighbours_are_found() {
        let mut absent = Absent::default();
        absent.insert(at(1, 5), at(1, 6), 9);
        absent.insert(at(3, 0), at(4, 2), 9);
        assert_eq!(absent.around(at(1, 7)), None);
        assert_eq!(absent.around(at(1, 4)), None);
        assert_eq!(absent.next(at(1, 7)), Some(at(3, 0)));
        assert_eq!(absent.next(at(4, 3)), None);
        assert_eq!(absent.previous(at(2, 0)), Some(at(1, 6)));
        assert_eq!(absent.previous(at(1, 0)), None);
    }

    #[test]
    fn what_is_known_of_one_group_is_forgotten_with_it() {
        let mut absent = Absent::default();
        for (first, last) in [
            (at(1, 5), at(2, 6)),
            (at(2, 8), at(2, 8)),
            (at(2, 10), at(2, u64::MAX - 1)),
            (at(3, 0), at(4, 1)),
        ] {
            absent.insert(first, last, 9);
        }
        absent.forget_within(2);
        assert_eq!(absent.len(), 2);
        assert_eq!(absent.around(at(2, 6)), Some((at(1, 5), at(2, 6))));
        assert_eq!(absent.around(at(2, 8)), None);
        absent.forget_within(3);
        assert_eq!(absent.around(at(3, 0)), Some((at(3, 0), at(4, 1))));
    }

    #[test]
    fn ranges_are_bounded() {
        let mut absent = Absent::default();
        assert!(!absent.insert(at(1, 0), at(1, 0), 2));
        assert!(!absent.insert(at(3, 0), at(3, 0), 2), "at the limit");
        assert!(absent.insert(at(5, 0), at(5, 0), 2), "one past it");
        assert_eq!(absent.around(at(1, 0)), None, "the smallest is forgotten");
        assert_eq!(absent.len(), 2);
    }
}
