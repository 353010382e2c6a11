//! Keeping, the second step of an object: what the cache stores, and when it expires.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use weir_moqt::{
    data::{ObjectDatagram, ObjectStatus},
    draft::Draft,
    location::Location,
};
use weir_quic::Handle;

use super::{AdmittedDatagram, Ended, Mark, Subgroup, Tracks};
use crate::{
    cache::{Content, Contradiction, EVICTIONS_AT_ONCE, EVICTIONS_PER_TURN, Keeper, TrackCache},
    effect::Effect,
    ids::{SubgroupId, TrackId},
    sessions::peer::PeerKind,
    timers::Timer,
    turn::Turn,
};

/// An object of a datagram, encoded for its subscribers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutgoingDatagram {
    pub(crate) location: Location,
    /// The whole datagram, with the relay's own Track Alias: the same bytes for every subscriber.
    pub(crate) encoded: Bytes,
    /// The kind of peer that sent it.
    pub(crate) from: PeerKind,
}

impl Subgroup {
    /// Stores what arrived in this turn in the cache. Returns the objects that begin in it.
    fn keep(
        &mut self,
        cache: &mut TrackCache,
        keeper: &mut Keeper<'_>,
    ) -> (Vec<Mark>, Result<(), Contradiction>) {
        let group = self.header.group;
        let held = self.partial_bytes();
        let session = self.session();
        let partial_max = if self.is_within_object() {
            keeper.partial_max(session, held)
        } else {
            0
        };
        let was_holding = self.holds_part();
        let mut sound = Ok(());
        let marks = self.publish(keeper.now, partial_max, |object, received, content| {
            let location = Location { group, object };
            let kept = cache.insert(keeper, location, received, content);
            sound = sound.and(kept);
        });
        let parts = &mut keeper.ledger.parts;
        parts.hold(session, held, self.partial_bytes());
        let is_dropped = self.is_within_object() && !self.holds_part();
        if is_dropped && (was_holding || !marks.is_empty()) {
            keeper.counters.cache_objects_too_large += 1;
        }
        for mark in &marks {
            let (status, properties) = (mark.object.status, &mark.object.properties);
            let learnt = cache.learn(keeper, mark.location, status, properties);
            sound = sound.and(learnt);
        }
        if self.header.end_of_group && self.ended() == Some(Ended::Finished) {
            cache.end_group(keeper, Location::new(group, self.next_object()));
        }
        (marks, sound)
    }
}

impl Tracks {
    /// Stores an object that came in a datagram. Returns the datagram for subscribers; `None` if it contradicts what is
    /// known.
    pub(crate) fn keep_datagram(
        &mut self,
        turn: &mut Turn<'_>,
        admitted: AdmittedDatagram,
        mut datagram: ObjectDatagram,
    ) -> Option<OutgoingDatagram> {
        let track = self.table.get(admitted.track)?;
        let location = Location::new(datagram.group, datagram.object);
        datagram.track_alias = track.alias;
        let properties = datagram.properties.as_bytes();
        let length = datagram.payload.len() + properties.len() + DATAGRAM_HEADER_BYTES;
        let mut encoded = BytesMut::with_capacity(length);
        datagram.encode(Draft::KEPT, &mut encoded);
        let encoded = encoded.freeze();
        let now = turn.now;
        let mut keeper = self.ledger.keeper(turn, admitted.track);
        let mut sound = track.cache.learn_datagram(&mut keeper, &datagram);
        if datagram.status == ObjectStatus::Normal {
            let content = Content::Datagram(encoded.clone());
            let kept = track.cache.insert(&mut keeper, location, now, content);
            sound = sound.and(kept);
        }
        if sound.is_err() {
            turn.push(Effect::Malformed(admitted.track, admitted.publisher));
            return None;
        }
        self.tend_cache(turn);
        Some(OutgoingDatagram {
            location,
            encoded,
            from: admitted.from,
        })
    }

    /// Stores what came of a subgroup in this turn. Returns the objects that begin in it; `None` if it contradicts what
    /// is known.
    pub(crate) fn keep_subgroup(
        &mut self,
        turn: &mut Turn<'_>,
        (id, log): (TrackId, SubgroupId),
    ) -> Option<Vec<Mark>> {
        let track = self.table.get(id)?;
        let index = track.place(log)?;
        let subgroup = &mut track.subgroups[index];
        let mut keeper = self.ledger.keeper(turn, id);
        let (marks, sound) = subgroup.keep(&mut track.cache, &mut keeper);
        if let (Err(Contradiction), Some((publisher, _))) = (sound, subgroup.sender) {
            turn.push(Effect::Malformed(id, publisher));
            turn.push(Effect::LogRead(id, log));
            return None;
        }
        self.tend_cache(turn);
        Some(marks)
    }

    /// Calls a function with the cache of a track.
    pub(crate) fn with_cache<T>(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        act: impl FnOnce(&mut TrackCache, &mut Keeper<'_>) -> T,
    ) -> Option<T> {
        let track = self.table.get(id)?;
        let mut keeper = self.ledger.keeper(turn, id);
        let result = act(&mut track.cache, &mut keeper);
        self.tend_cache(turn);
        Some(result)
    }

    /// Clears the cache of a track.
    pub(crate) fn clear_cache(&mut self, id: TrackId) {
        if let Some(track) = self.table.get(id) {
            track.cache.clear(&mut self.ledger);
        }
    }

    /// Returns the bytes held of incomplete objects of a session.
    pub(crate) fn part_bytes(&self, session: Handle) -> u64 {
        self.ledger.parts.of(session) + self.ledger.fetched_parts.of(session)
    }

    /// Changes the number of bytes held of an incomplete object in answer to a fetch of the relay.
    pub(crate) fn hold_fetched_part(&mut self, session: Option<Handle>, before: u64, after: u64) {
        self.ledger.fetched_parts.hold(session, before, after);
    }

    /// Evicts what exceeds the limits of the cache, and updates its timer.
    #[inline]
    fn tend_cache(&mut self, turn: &mut Turn<'_>) {
        let mut left = EVICTIONS_AT_ONCE;
        self.cut_cache(turn, &mut left);
        if self.is_overfull(turn) {
            self.wake_for_cache(turn, turn.now + CACHE_PAUSE);
        } else if self.ledger.wake.is_none() {
            self.wake_for_cache(turn, turn.now);
        }
    }

    /// Evicts the oldest groups until `bytes` are freed or nothing is left, most of them in later turns. Returns the bytes
    /// that are freed then.
    pub(crate) fn shrink_cache(&mut self, turn: &mut Turn<'_>, bytes: u64) -> u64 {
        let before = self.ledger.bytes();
        let aim = before.saturating_sub(bytes);
        self.ledger.aim = Some(self.ledger.aim.map_or(aim, |earlier| earlier.min(aim)));
        let mut left = EVICTIONS_PER_TURN;
        self.cut_cache(turn, &mut left);
        if self.is_overfull(turn) {
            self.wake_for_cache(turn, turn.now + CACHE_PAUSE);
        }
        before - aim
    }

    /// Returns whether the limits of the cache do not hold yet.
    fn is_overfull(&self, turn: &Turn<'_>) -> bool {
        !self.ledger.overfull.is_empty() || self.ledger.bytes() > self.cache_max(turn)
    }

    /// Returns the bytes that the cache may hold at present.
    fn cache_max(&self, turn: &Turn<'_>) -> u64 {
        let max = turn.config.limits.cache_bytes_max;
        self.ledger.aim.map_or(max, |aim| aim.min(max))
    }

    /// Evicts the oldest groups while there is too much in the cache, as far as the work that is `left` suffices.
    fn cut_cache(&mut self, turn: &mut Turn<'_>, left: &mut usize) {
        let max = self.cache_max(turn);
        while *left > 0 {
            let oldest = self.ledger.oldest().filter(|_| self.ledger.bytes() > max);
            let Some(id) = oldest else {
                self.ledger.aim = None;
                return;
            };
            if let Some(track) = self.table.get(id) {
                let mut keeper = self.ledger.keeper(turn, id);
                track.cache.evict(&mut keeper, left);
            }
            turn.push(Effect::Released(id));
        }
    }

    /// Sets the timer of the cache to when its first group expires, but not before `earliest`; to `earliest` if the limits
    /// do not hold.
    fn wake_for_cache(&mut self, turn: &mut Turn<'_>, earliest: Instant) {
        let due = self.ledger.due(turn.config.limits.cache_age_max);
        let wake = if self.is_overfull(turn) {
            Some(earliest)
        } else {
            due.map(|(due, _)| due.max(earliest))
        };
        let Some(wake) = wake else {
            return;
        };
        if self.ledger.wake.is_none_or(|planned| wake < planned) {
            if let Some(planned) = self.ledger.wake.replace(wake) {
                turn.timers.cancel(planned, Timer::Cache);
            }
            turn.timers.set(wake, Timer::Cache);
        }
    }

    /// Removes objects that have expired, and those beyond the limits, in pieces.
    pub(crate) fn on_cache_due(&mut self, turn: &mut Turn<'_>) {
        self.ledger.wake = None;
        let mut left = EVICTIONS_PER_TURN;
        self.cut_cache(turn, &mut left);
        while left > 0
            && let Some(id) = self.ledger.overfull.pop_first()
        {
            let Some(track) = self.table.get(id) else {
                continue;
            };
            let mut keeper = self.ledger.keeper(turn, id);
            if !track.cache.cut(&mut keeper, &mut left) {
                self.ledger.overfull.insert(id);
            }
        }
        let is_done = self.expire(turn, &mut left) && !self.is_overfull(turn);
        let rest = if is_done { CACHE_REST } else { CACHE_PAUSE };
        self.wake_for_cache(turn, turn.now + rest);
    }

    /// Removes groups that have expired, as far as the work that is `left` suffices. Returns whether none is left.
    fn expire(&mut self, turn: &mut Turn<'_>, left: &mut usize) -> bool {
        let age_max = turn.config.limits.cache_age_max;
        while let Some((due, aging)) = self.ledger.due(age_max)
            && due <= turn.now
        {
            if *left == 0 {
                return false;
            }
            if let Some(track) = self.table.get(aging.track) {
                let mut keeper = self.ledger.keeper(turn, aging.track);
                track.cache.expire(&mut keeper, aging.group, left);
            }
            turn.push(Effect::Released(aging.track));
        }
        true
    }
}

/// The time between two turns in which the timer of the cache removes objects.
const CACHE_PAUSE: Duration = Duration::from_millis(1);
/// The smallest interval between two checks of the cache.
const CACHE_REST: Duration = Duration::from_secs(1);
/// Space for the header of an object in a datagram: type, alias, group, object, priority, length of properties.
const DATAGRAM_HEADER_BYTES: usize = 40;
