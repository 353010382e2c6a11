//! Gaps in a track that the properties and status of objects declare.

use weir_moqt::{
    data::{ObjectDatagram, ObjectStatus},
    location::Location,
    property::Properties,
};

use super::{Contradiction, Keeper, LAST, TrackCache};

impl TrackCache {
    /// Notes which objects do not exist according to a datagram.
    #[inline]
    pub(crate) fn learn_datagram(
        &mut self,
        keeper: &mut Keeper<'_>,
        datagram: &ObjectDatagram,
    ) -> Result<(), Contradiction> {
        let location = Location::new(datagram.group, datagram.object);
        let learnt = self.learn(keeper, location, datagram.status, &datagram.properties);
        if datagram.end_of_group
            && let Some(object) = datagram.object.checked_add(1)
        {
            self.end_group(keeper, Location { object, ..location });
        }
        learnt
    }

    /// Notes which objects do not exist according to an object [moqt-18 §11.2.1.1, §12.8, §12.9].
    #[inline]
    pub(crate) fn learn(
        &mut self,
        keeper: &mut Keeper<'_>,
        location: Location,
        status: ObjectStatus,
        properties: &Properties,
    ) -> Result<(), Contradiction> {
        match status {
            ObjectStatus::Normal => {}
            ObjectStatus::EndOfGroup => self.end_group(keeper, location),
            ObjectStatus::EndOfTrack => self.exclude(keeper, location, LAST),
        }
        if properties.is_empty() {
            return Ok(());
        }
        declared_by(location, properties)
            .try_for_each(|(first, last)| self.exclude_gap(keeper, first, last))
    }

    /// Notes that, according to a publisher, no objects exist from `first` to `last`, inclusive.
    fn exclude_gap(
        &mut self,
        keeper: &mut Keeper<'_>,
        first: Location,
        last: Location,
    ) -> Result<(), Contradiction> {
        if self.holds_any(first, last) {
            return Err(Contradiction);
        }
        self.exclude(keeper, first, last);
        Ok(())
    }

    /// Notes that no object of a group exists from `first` on.
    pub(crate) fn end_group(&mut self, keeper: &mut Keeper<'_>, first: Location) {
        let last = Location::new(first.group, u64::MAX);
        self.exclude(keeper, first, last);
    }
}

/// Returns the ranges, both ends inclusive, that the object at `location` declares not to exist.
pub(crate) fn declared_by(
    location: Location,
    properties: &Properties,
) -> impl Iterator<Item = (Location, Location)> + use<> {
    let Location { group, object } = location;
    let groups = properties.prior_group_id_gap().and_then(|gap| {
        let first = group.checked_sub(gap).filter(|_| gap > 0)?;
        Some((Location::new(first, 0), Location::new(group - 1, u64::MAX)))
    });
    let objects = properties.prior_object_id_gap().and_then(|gap| {
        let first = object.checked_sub(gap).filter(|_| gap > 0)?;
        Some((
            Location::new(group, first),
            Location::new(group, object - 1),
        ))
    });
    groups.into_iter().chain(objects)
}
