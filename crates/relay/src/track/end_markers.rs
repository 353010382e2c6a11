//! The ends of groups and of the track, and the gaps, as far as publishers declared them.

use std::collections::VecDeque;

use weir_moqt::{
    data::{ObjectHeader, ObjectStatus},
    location::Location,
    property::Properties,
};

use super::object_gaps::Gaps;

/// The last objects of a track's latest groups, and of the track [moqt-18 §2.4.2].
#[derive(Debug, Default)]
pub(super) struct EndMarkers {
    groups: VecDeque<(u64, u64)>,
    track: Option<Location>,
    /// The declared gaps.
    pub(super) gaps: Gaps,
}

impl EndMarkers {
    /// Returns whether an object may exist at `location`; notes the end that its status declares. `largest` is the
    /// largest location so far.
    #[inline]
    pub(super) fn admits(
        &mut self,
        location: Location,
        status: ObjectStatus,
        properties: &Properties,
        largest: Option<Location>,
    ) -> bool {
        let is_behind =
            |&(group, last): &(u64, u64)| location.group == group && location.object > last;
        if self.track.is_some_and(|last| location > last)
            || self.groups.iter().any(is_behind)
            || !self.gaps.admits(location)
            || !are_allowed(properties, location)
        {
            return false;
        }
        match status {
            ObjectStatus::Normal => true,
            ObjectStatus::EndOfGroup => {
                self.end_group(location.group, location.object);
                largest.is_none_or(|largest| largest.group != location.group || largest <= location)
            }
            ObjectStatus::EndOfTrack => {
                self.track = Some(location);
                largest.is_none_or(|largest| largest <= location)
            }
        }
    }

    /// The same for an object of a stream.
    pub(super) fn admits_object(
        &mut self,
        group: u64,
        object: &ObjectHeader,
        largest: Option<Location>,
    ) -> bool {
        let location = Location {
            group,
            object: object.id,
        };
        self.admits(location, object.status, &object.properties, largest)
    }

    /// Sets the last object of the track, known from an answer to a fetch.
    pub(super) fn end_track(&mut self, last: Location) {
        self.track.get_or_insert(last);
    }

    /// Sets the last object of a group.
    pub(super) fn end_group(&mut self, group: u64, object: u64) {
        if self.groups.iter().any(|&(known, _)| known == group) {
            return;
        }
        if self.groups.len() == GROUPS_MAX {
            self.groups.pop_front();
        }
        self.groups.push_back((group, object));
    }
}

/// Returns whether an object may have these properties.
#[inline]
fn are_allowed(properties: &Properties, location: Location) -> bool {
    properties.is_empty()
        || (properties.mandatory().is_none() && properties.check_object(location).is_ok())
}

/// Number of groups remembered, which covers those that may be under way.
const GROUPS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(group: u64, object: u64) -> Location {
        Location { group, object }
    }

    fn admits(ends: &mut EndMarkers, location: Location, status: ObjectStatus) -> bool {
        ends.admits(location, status, &Properties::EMPTY, None)
    }

    #[test]
    fn nothing_comes_after_the_end_of_a_group_or_of_the_track() {
        let (mut ends, normal) = (EndMarkers::default(), ObjectStatus::Normal);
        assert!(admits(&mut ends, at(1, 5), ObjectStatus::EndOfGroup));
        assert!(admits(&mut ends, at(1, 4), normal), "it was overtaken");
        assert!(
            admits(&mut ends, at(1, 5), ObjectStatus::EndOfGroup),
            "it came again"
        );
        assert!(!admits(&mut ends, at(1, 6), normal));
        assert!(admits(&mut ends, at(2, 6), normal));
        assert!(admits(&mut ends, at(3, 0), ObjectStatus::EndOfTrack));
        assert!(!admits(&mut ends, at(3, 1), normal));
        assert!(!admits(&mut ends, at(4, 0), normal));
        assert!(admits(&mut ends, at(2, 9), normal));
    }

    #[test]
    fn a_fetch_may_tell_the_end_of_the_track() {
        let (mut ends, normal) = (EndMarkers::default(), ObjectStatus::Normal);
        ends.end_track(at(3, 4));
        assert!(admits(&mut ends, at(3, 4), normal));
        assert!(!admits(&mut ends, at(3, 5), normal));
        assert!(!admits(&mut ends, at(4, 0), normal));
    }

    #[test]
    fn an_end_before_what_was_there_is_none() {
        let mut ends = EndMarkers::default();
        let none = &Properties::EMPTY;
        assert!(!ends.admits(at(1, 5), ObjectStatus::EndOfGroup, none, Some(at(1, 6))));
        assert!(ends.admits(at(2, 5), ObjectStatus::EndOfGroup, none, Some(at(3, 0))));
        assert!(!ends.admits(at(2, 5), ObjectStatus::EndOfTrack, none, Some(at(3, 0))));
    }

    #[test]
    fn ends_that_are_remembered_are_bounded() {
        let mut ends = EndMarkers::default();
        for group in 0..=GROUPS_MAX as u64 {
            ends.end_group(group, 5);
        }
        assert_eq!(ends.groups.len(), GROUPS_MAX);
        assert!(
            admits(&mut ends, at(0, 6), ObjectStatus::Normal),
            "forgotten"
        );
        assert!(!admits(&mut ends, at(1, 6), ObjectStatus::Normal));
    }
}
