//! Gaps that publishers declared: locations of a track at which no object will exist [moqt-18 §12.8, §12.9].
//!
//! Locations that an answer to a fetch leaves out are not gaps. If an object comes there later [moqt-18 §2.1], it is
//! dropped, and the track continues.

use std::collections::BTreeMap;

use weir_moqt::{location::Location, property::Properties};

use super::Track;
use crate::{
    Counters, Limits,
    cache::{Absent, Contradiction, declared_by},
};

/// The gaps that objects of a track declared.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    declared: Absent,
    /// The number of missing groups before each group, as one of its objects declared it.
    groups: BTreeMap<u64, u64>,
}

impl Gaps {
    /// Returns whether an object may exist at `location`.
    #[inline]
    pub(super) fn admits(&self, location: Location) -> bool {
        self.declared.is_empty() || self.declared.around(location).is_none()
    }

    /// Notes the gap that the object at `location` declares. Beyond `gaps_declared_per_track_max` ranges or groups, the one
    /// with the smallest location is removed. Fails if another object of the group declared otherwise.
    fn note(
        &mut self,
        location: Location,
        properties: &Properties,
        limits: &Limits,
        counters: &mut Counters,
    ) -> Result<(), Contradiction> {
        let max = limits.gaps_declared_per_track_max;
        if let Some(gap) = properties.prior_group_id_gap() {
            let known = *self.groups.entry(location.group).or_insert(gap);
            if known != gap {
                return Err(Contradiction);
            }
            if self.groups.len() > max {
                self.groups.pop_first();
                counters.gaps_declared_forgotten += 1;
            }
        }
        for (first, last) in declared_by(location, properties) {
            if self.declared.insert(first, last, max) {
                counters.gaps_declared_forgotten += 1;
            }
        }
        Ok(())
    }
}

impl Track {
    /// Notes the gaps that an object declares. Fails if an object in a gap exists, or if another object declared
    /// otherwise.
    #[inline]
    pub(crate) fn note_gaps(
        &mut self,
        location: Location,
        properties: &Properties,
        limits: &Limits,
        counters: &mut Counters,
    ) -> Result<(), Contradiction> {
        if properties.is_empty() {
            return Ok(());
        }
        let mut ranges = declared_by(location, properties);
        if ranges.any(|(first, last)| self.has_had_any(first, last)) {
            return Err(Contradiction);
        }
        self.end_markers
            .gaps
            .note(location, properties, limits, counters)
    }

    /// Returns whether an object from `first` to `last`, inclusive, is known to have begun.
    fn has_had_any(&self, first: Location, last: Location) -> bool {
        let mut subgroups = self.subgroups.iter();
        self.cache.holds_any(first, last)
            || self.duplicates.has_any(first, last)
            || subgroups.any(|subgroup| subgroup.has_begun_any(first, last))
    }
}

#[cfg(test)]
mod tests {
    use weir_moqt::property::{PRIOR_GROUP_ID_GAP, PRIOR_OBJECT_ID_GAP};

    use super::*;

    fn at(group: u64, object: u64) -> Location {
        Location { group, object }
    }

    fn saying(group_gap: Option<u64>, object_gap: Option<u64>) -> Properties {
        let mut properties = Properties::builder();
        if let Some(gap) = group_gap {
            properties = properties.int(PRIOR_GROUP_ID_GAP, gap);
        }
        if let Some(gap) = object_gap {
            properties = properties.int(PRIOR_OBJECT_ID_GAP, gap);
        }
        properties.build()
    }

    fn note(
        gaps: &mut Gaps,
        location: Location,
        properties: &Properties,
        max: usize,
    ) -> (Result<(), Contradiction>, u64) {
        let limits = Limits {
            gaps_declared_per_track_max: max,
            ..Limits::default()
        };
        let mut counters = Counters::default();
        let noted = gaps.note(location, properties, &limits, &mut counters);
        (noted, counters.gaps_declared_forgotten)
    }

    #[test]
    fn nothing_is_admitted_where_nothing_will_be() {
        let mut gaps = Gaps::default();
        let said = saying(Some(2), Some(3));
        assert_eq!(note(&mut gaps, at(10, 5), &said, 9), (Ok(()), 0));
        for (location, is_there) in [
            (at(7, u64::MAX), true),
            (at(8, 0), false),
            (at(9, u64::MAX), false),
            (at(10, 0), true),
            (at(10, 1), true),
            (at(10, 2), false),
            (at(10, 4), false),
            (at(10, 5), true),
            (at(11, 2), true),
        ] {
            assert_eq!(gaps.admits(location), is_there, "{location:?}");
        }
    }

    #[test]
    fn ranges_reach_to_the_ends_of_what_there_could_be() {
        let ranges = |location, said| declared_by(location, &said).collect::<Vec<_>>();
        let whole = ranges(
            at(u64::MAX, u64::MAX),
            saying(Some(u64::MAX), Some(u64::MAX)),
        );
        assert_eq!(
            whole,
            [
                (at(0, 0), at(u64::MAX - 1, u64::MAX)),
                (at(u64::MAX, 0), at(u64::MAX, u64::MAX - 1))
            ]
        );
        assert_eq!(ranges(at(3, 3), saying(Some(0), Some(0))), []);
        assert_eq!(
            ranges(at(3, 3), saying(Some(4), Some(4))),
            [],
            "not that far"
        );
    }

    #[test]
    fn objects_of_a_group_say_the_same_of_groups_before_it_or_nothing() {
        let mut gaps = Gaps::default();
        for (location, said, is_sound) in [
            (at(10, 0), saying(Some(2), None), true),
            (at(10, 1), saying(None, None), true),
            (at(10, 2), saying(Some(2), None), true),
            (at(11, 0), saying(Some(0), None), true),
            (at(10, 3), saying(Some(1), None), false),
            (at(11, 1), saying(Some(11), None), false),
        ] {
            let (noted, _) = note(&mut gaps, location, &said, 9);
            assert_eq!(noted.is_ok(), is_sound, "{location:?}");
        }
    }

    #[test]
    fn gaps_that_are_remembered_are_bounded() {
        let mut gaps = Gaps::default();
        for object in [1, 3, 5] {
            let forgotten = note(&mut gaps, at(0, object), &saying(None, Some(1)), 3).1;
            assert_eq!(forgotten, 0, "at the limit");
        }
        assert!(!gaps.admits(at(0, 0)));
        let (_, forgotten) = note(&mut gaps, at(0, 7), &saying(None, Some(1)), 3);
        assert_eq!(forgotten, 1, "one past it");
        assert!(gaps.admits(at(0, 0)), "forgotten");
        assert!(!gaps.admits(at(0, 2)));
        let mut gaps = Gaps::default();
        for group in [1, 2, 3] {
            let forgotten = note(&mut gaps, at(group, 0), &saying(Some(0), None), 3).1;
            assert_eq!(forgotten, 0, "at the limit");
        }
        let (_, forgotten) = note(&mut gaps, at(4, 0), &saying(Some(0), None), 3);
        assert_eq!(forgotten, 1, "one past it");
        let otherwise = saying(Some(1), None);
        assert!(
            note(&mut gaps, at(1, 1), &otherwise, 3).0.is_ok(),
            "forgotten"
        );
        assert!(note(&mut gaps, at(3, 1), &otherwise, 3).0.is_err());
    }
}
