//! What goes through the relay, into the cache, and when it is forgotten.

use std::time::{Duration, Instant};

use weir_moqt::{
    data::{FetchObject, ObjectDatagram, ObjectHeader, ObjectStatus, SubgroupHeader},
    location::Location,
    property::Properties,
};

use crate::{
    cache::{Contradiction, Keeper, LAST, TrackCache},
    dispatch::Owners,
    timers::Timer,
    track::object_gaps::told_by,
    track::subgroup::{Ended, Mark, Subgroup},
    turn::Turn,
};

impl TrackCache {
    /// Takes over what arrived of a subgroup in this turn, and gives the objects that begin in it.
    pub(crate) fn keep_subgroup(
        &mut self,
        keeper: &mut Keeper<'_>,
        subgroup: &mut Subgroup,
    ) -> (Vec<Mark>, Result<(), Contradiction>) {
        let group = subgroup.header.group;
        let held = subgroup.partial_bytes();
        let session = subgroup.session();
        let partial_max = if subgroup.is_within_object() {
            keeper.partial_max(session, held)
        } else {
            0
        };
        let was_holding = subgroup.holds_part();
        let mut sound = Ok(());
        let marks = subgroup.publish(keeper.now, partial_max, |object, received, content| {
            let location = Location { group, object };
            let kept = self.insert(keeper, location, received, content);
            sound = sound.and(kept);
        });
        let parts = &mut keeper.ledger.parts;
        parts.hold(session, held, subgroup.partial_bytes());
        let is_dropped = subgroup.is_within_object() && !subgroup.holds_part();
        if is_dropped && (was_holding || !marks.is_empty()) {
            keeper.counters.cache_objects_too_large += 1;
        }
        for mark in &marks {
            let (status, properties) = (mark.object.status, &mark.object.properties);
            let learnt = self.learn(keeper, mark.location, status, properties);
            sound = sound.and(learnt);
        }
        if subgroup.header.end_of_group && subgroup.ended() == Some(Ended::Finished) {
            self.end_group(keeper, Location::new(group, subgroup.next_object()));
        }
        (marks, sound)
    }

    /// Takes over what a datagram says of objects that do not exist.
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

    /// Looks whether a datagram is the object that is remembered in its place, if one is.
    pub(crate) fn check_datagram(&self, datagram: &ObjectDatagram) -> Result<(), Contradiction> {
        let known = self.find(Location::new(datagram.group, datagram.object));
        let Some(known) = known.filter(|_| datagram.status == ObjectStatus::Normal) else {
            return Ok(());
        };
        let header = FetchObject {
            group: datagram.group,
            subgroup: None,
            object: datagram.object,
            priority: datagram.priority.unwrap_or(self.default_priority),
            properties: datagram.properties.clone(),
            payload_len: datagram.payload.len() as u64,
        };
        known.check_header(&header, self.default_priority)?;
        known.check_payload(0, &datagram.payload)
    }

    /// Looks whether an object that begins on a stream is the one that is remembered in its place, if one is.
    pub(crate) fn check_object(
        &self,
        header: &SubgroupHeader,
        number: u64,
        object: &ObjectHeader,
    ) -> Result<(), Contradiction> {
        let known = self.find(Location::new(header.group, object.id));
        let Some(known) = known.filter(|_| object.status == ObjectStatus::Normal) else {
            return Ok(());
        };
        let header = FetchObject {
            group: header.group,
            subgroup: Some(number),
            object: object.id,
            priority: header.priority.unwrap_or(self.default_priority),
            properties: object.properties.clone(),
            payload_len: object.payload_len,
        };
        known.check_header(&header, self.default_priority)
    }

    /// Takes over what an object says of others that do not exist [moqt-18 §11.2.1.1, §12.8, §12.9].
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
        told_by(location, properties)
            .try_for_each(|(first, last)| self.exclude_gap(keeper, first, last))
    }

    /// A publisher says that there never were objects from `first` to `last`, both included.
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

    fn end_group(&mut self, keeper: &mut Keeper<'_>, first: Location) {
        let last = Location::new(first.group, u64::MAX);
        self.exclude(keeper, first, last);
    }
}

impl Owners {
    /// Keeps the cache within its limits, and its timer up to date.
    #[inline]
    pub(crate) fn tend_cache(&mut self, turn: &mut Turn<'_>) {
        while self.ledger.bytes() > turn.config.limits.cache_bytes_max {
            let Some(id) = self.ledger.oldest() else {
                break;
            };
            if let Some(track) = self.tracks.get(id) {
                track.cache.evict(&mut self.ledger, &mut *turn.counters);
            }
            self.forget_if_unused(turn, id);
        }
        if self.ledger.wake.is_none() {
            self.wake_for_cache(turn, None);
        }
    }

    fn wake_for_cache(&mut self, turn: &mut Turn<'_>, earliest: Option<Instant>) {
        if let Some((due, _)) = self.ledger.due(turn.config.limits.cache_age_max) {
            let wake = earliest.map_or(due, |earliest| due.max(earliest));
            self.ledger.wake = Some(wake);
            turn.timers.set(wake, Timer::Cache);
        }
    }

    /// Forgets what is too old.
    pub(crate) fn on_cache_due(&mut self, turn: &mut Turn<'_>) {
        self.ledger.wake = None;
        let age_max = turn.config.limits.cache_age_max;
        let Some(oldest) = turn.now.checked_sub(age_max) else {
            return;
        };
        while let Some((due, aging)) = self.ledger.due(age_max)
            && due <= turn.now
        {
            if let Some(track) = self.tracks.get(aging.track) {
                let (ledger, counters) = (&mut self.ledger, &mut *turn.counters);
                track.cache.expire(ledger, counters, aging, oldest);
            }
            self.forget_if_unused(turn, aging.track);
        }
        self.wake_for_cache(turn, Some(turn.now + CACHE_REST));
    }
}

/// The cache is not looked at more often than this, however much comes.
const CACHE_REST: Duration = Duration::from_secs(1);
