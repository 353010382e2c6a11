//! The cache of a track: objects that the relay forwarded or fetched, and ranges known not to exist.
//!
//! It shares the bytes that subscribers were sent instead of copying them. It does not fetch: `fetch/upstream.rs`
//! requests what the cache does not know.

mod absent;
mod contradiction;
mod eviction;
mod gaps;
mod parts;
mod span;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use bytes::Bytes;
use weir_moqt::{
    data::{FetchObject, ObjectDatagram},
    draft::Draft,
    location::Location,
    parameter::GroupOrder,
    property::Properties,
};
use weir_quic::Handle;

use self::parts::Parts;
pub(crate) use self::{
    absent::{Absent, LAST, after, before},
    contradiction::Contradiction,
    eviction::{EVICTIONS_AT_ONCE, EVICTIONS_PER_TURN},
    gaps::declared_by,
    span::Span,
};
use crate::{Counters, Limits, ids::TrackId, turn::Turn};

/// The content of the caches of all tracks together, and the order in which groups expire.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    bytes: u64,
    objects: u64,
    /// Objects that have arrived in part on subgroup streams; not counted in `bytes`.
    pub(crate) parts: Parts,
    /// Objects that have arrived in part in answers to the relay's fetches. They have a limit of their own, so that
    /// incomplete objects of publishers leave room for them.
    pub(crate) fetched_parts: Parts,
    /// When the cache timer is due.
    pub(crate) wake: Option<Instant>,
    /// Tracks whose cache is beyond its limit until the timer has evicted the rest.
    pub(crate) overfull: BTreeSet<TrackId>,
    /// The bytes that the cache is being cut to, because memory runs out.
    pub(crate) aim: Option<u64>,
    /// Every cached group by its age: when it began, or, once some of it has expired, about when the rest began.
    queue: BTreeMap<Age, Aging>,
    next: u64,
}

/// The place of a group among all, the oldest first. The number tells those of the same time apart.
type Age = (Instant, u64);

/// A group in the ledger.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aging {
    pub(crate) track: TrackId,
    pub(crate) group: u64,
}

/// The cache of one track.
#[derive(Debug, Default)]
pub(crate) struct TrackCache {
    groups: BTreeMap<u64, Group>,
    absent: Absent,
    /// Groups by their age.
    order: BTreeMap<Age, u64>,
    bytes: u64,
    /// The priority of objects that do not carry one.
    default_priority: u8,
    /// The largest location that arrived, or that a publisher reported in answer to a fetch.
    largest: Option<Location>,
}

#[derive(Debug)]
struct Group {
    age: Age,
    /// When the last object was added.
    touched: Instant,
    bytes: u64,
    /// Sorted by object ID.
    objects: VecDeque<Entry>,
}

/// A cached object.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    object: u64,
    /// When the object began to arrive.
    received: Instant,
    content: Content,
}

/// The contents of an object, without its location.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// A datagram as it was forwarded.
    Datagram(Bytes),
    /// An object of a stream.
    Stream {
        subgroup: u64,
        priority: Option<u8>,
        /// The encoded properties, without their length.
        properties: Bytes,
        /// The whole payload, or its first part.
        payload: Bytes,
        /// The remaining parts of the payload.
        rest: Vec<Bytes>,
    },
    /// An object that arrived in answer to a fetch.
    Fetched {
        /// `None` for an object that was sent as a datagram.
        subgroup: Option<u64>,
        priority: u8,
        properties: Bytes,
        payload: Bytes,
    },
}

/// The cache's knowledge of a location and of the following ones, in the order of a span.
#[derive(Debug)]
pub(crate) enum Known<'a> {
    /// An object exists.
    Object(&'a Entry),
    /// No objects exist up to this location, inclusive.
    Absent(Location),
    /// Nothing is known up to this location, inclusive.
    Unknown(Location),
}

/// The state needed to store an object: ledger, counters and limits.
pub(crate) struct Keeper<'a> {
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) counters: &'a mut Counters,
    pub(crate) limits: &'a Limits,
    pub(crate) track: TrackId,
    pub(crate) now: Instant,
}

impl Ledger {
    /// Returns the keeper for a track in this turn.
    pub(crate) fn keeper<'a>(&'a mut self, turn: &'a mut Turn<'_>, track: TrackId) -> Keeper<'a> {
        Keeper {
            ledger: self,
            counters: turn.counters,
            limits: &turn.config.limits,
            track,
            now: turn.now,
        }
    }

    /// Returns the bytes of all tracks, including overhead.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn objects(&self) -> u64 {
        self.objects
    }

    /// Returns the track of the group to evict first.
    pub(crate) fn oldest(&self) -> Option<TrackId> {
        self.queue.first_key_value().map(|(_, turn)| turn.track)
    }

    /// Returns the group to examine next, and when.
    pub(crate) fn due(&self, age_max: Duration) -> Option<(Instant, Aging)> {
        let (&(since, _), &turn) = self.queue.first_key_value()?;
        Some((since.checked_add(age_max)?, turn))
    }

    fn enqueue(&mut self, track: TrackId, group: u64, since: Instant) -> Age {
        let age = (since, self.next);
        self.next += 1;
        self.queue.insert(age, Aging { track, group });
        age
    }
}

impl Keeper<'_> {
    /// Returns how many bytes may be held of an incomplete object of `session`, of which `held` bytes are held already.
    pub(crate) fn partial_max(&self, session: Option<Handle>, held: u64) -> u64 {
        let limits = self.limits;
        if limits.cache_track_bytes_max == 0 {
            return 0;
        }
        let max = limits.cache_partial_bytes_max;
        let room = self.ledger.parts.room(session, held, max);
        room.min(limits.cache_object_bytes_max)
    }

    /// Returns the same for an object that arrives in answer to a fetch, whatever its size.
    pub(crate) fn fetched_partial_max(&self, session: Option<Handle>, held: u64) -> u64 {
        let max = self.limits.cache_fetched_partial_bytes_max;
        self.ledger.fetched_parts.room(session, held, max)
    }
}

impl Content {
    fn bytes(&self) -> u64 {
        let len = match self {
            Self::Datagram(encoded) => encoded.len(),
            Self::Stream {
                properties,
                payload,
                rest,
                ..
            } => properties.len() + payload.len() + rest.iter().map(Bytes::len).sum::<usize>(),
            Self::Fetched {
                properties,
                payload,
                ..
            } => properties.len() + payload.len(),
        };
        len as u64
    }
}

impl Entry {
    /// Returns the object in the form of a FETCH stream, and the parts of its payload.
    pub(crate) fn fetched(&self, group: u64, default_priority: u8) -> (FetchObject, Vec<Bytes>) {
        let decoded = |properties: &Bytes| {
            Properties::decode(properties.clone()).unwrap_or(Properties::EMPTY)
        };
        let (subgroup, priority, properties, parts) = match &self.content {
            Content::Datagram(encoded) => {
                let datagram = ObjectDatagram::decode(Draft::KEPT, encoded.clone());
                let datagram = datagram.ok().flatten();
                let (priority, properties, payload) = datagram.map_or_else(
                    || (None, Properties::EMPTY, Bytes::new()),
                    |datagram| (datagram.priority, datagram.properties, datagram.payload),
                );
                (None, priority, properties, vec![payload])
            }
            Content::Stream {
                subgroup,
                priority,
                properties,
                payload,
                rest,
            } => {
                let parts = std::iter::once(payload).chain(rest).cloned().collect();
                (Some(*subgroup), *priority, decoded(properties), parts)
            }
            Content::Fetched {
                subgroup,
                priority,
                properties,
                payload,
            } => {
                let parts = vec![payload.clone()];
                (*subgroup, Some(*priority), decoded(properties), parts)
            }
        };
        let object = FetchObject {
            group,
            subgroup,
            object: self.object,
            priority: priority.unwrap_or(default_priority),
            properties,
            payload_len: parts.iter().map(|part| part.len() as u64).sum(),
        };
        (object, parts)
    }
}

impl TrackCache {
    /// Returns the number of groups of which the cache holds objects.
    pub(crate) fn groups_len(&self) -> usize {
        self.groups.len()
    }

    /// Returns whether the cache holds no object.
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Returns the priority of objects that do not carry one.
    pub(crate) fn default_priority(&self) -> u8 {
        self.default_priority
    }

    pub(crate) fn set_default_priority(&mut self, priority: u8) {
        self.default_priority = priority;
    }

    /// Returns the largest location that arrived, or that a publisher reported in answer to a fetch.
    pub(crate) fn largest(&self) -> Option<Location> {
        self.largest
    }

    /// Notes a location that arrived, or that a publisher reported in answer to a fetch.
    pub(crate) fn note_location(&mut self, location: Location) {
        self.largest = self.largest.max(Some(location));
    }

    /// Returns whether no object is known to follow `largest`.
    pub(crate) fn is_final(&self, largest: Location) -> bool {
        let end = self.absent.around(LAST);
        end.is_some_and(|(first, _)| after(largest).is_none_or(|next| first <= next))
    }

    /// Stores an object, then evicts what exceeds the limits. Does nothing if the object is known not to exist, or is
    /// stored already; only a fetched copy replaces the stored one. Fails if a different object is stored at the
    /// location: the track is malformed.
    pub(crate) fn insert(
        &mut self,
        keeper: &mut Keeper<'_>,
        location: Location,
        received: Instant,
        content: Content,
    ) -> Result<(), Contradiction> {
        let limits = keeper.limits;
        let size = content.bytes();
        self.note_location(location);
        // A fetched object is kept even if the cache is off: a fetch waits for it.
        let is_awaited = matches!(content, Content::Fetched { .. });
        let is_off = limits.cache_track_bytes_max == 0 && !is_awaited;
        if is_off || self.rules_out(location) {
            return Ok(());
        }
        if size > limits.cache_object_bytes_max {
            keeper.counters.cache_objects_too_large += 1;
            return Ok(());
        }
        let entry = Entry {
            object: location.object,
            received,
            content,
        };
        let size = size + OBJECT_BYTES;
        let mut added = size;
        let group = self.groups.entry(location.group).or_insert_with(|| {
            added += GROUP_BYTES;
            let ledger = &mut *keeper.ledger;
            let age = ledger.enqueue(keeper.track, location.group, keeper.now);
            self.order.insert(age, location.group);
            Group {
                age,
                touched: keeper.now,
                bytes: GROUP_BYTES,
                // Many groups have one object.
                objects: VecDeque::with_capacity(1),
            }
        });
        let place = match group.objects.back() {
            Some(last) if last.object >= location.object => group.place(location.object),
            Some(_) | None => Err(group.objects.len()),
        };
        let mut removed = 0;
        match place {
            Ok(place) => {
                let known = &mut group.objects[place];
                known.check(&entry, self.default_priority)?;
                // An object that is too old to be served is fetched again, and the copy is as fresh as a first one.
                if !is_awaited {
                    return Ok(());
                }
                removed = known.content.bytes() + OBJECT_BYTES;
                *known = entry;
            }
            Err(place) => {
                group.objects.insert(place, entry);
                keeper.ledger.objects += 1;
            }
        }
        group.touched = keeper.now;
        group.bytes = group.bytes + size - removed;
        self.bytes = self.bytes + added - removed;
        keeper.ledger.bytes = keeper.ledger.bytes + added - removed;
        self.make_room(keeper);
        Ok(())
    }

    fn make_room(&mut self, keeper: &mut Keeper<'_>) {
        let mut left = EVICTIONS_AT_ONCE;
        if !self.cut(keeper, &mut left) {
            keeper.ledger.overfull.insert(keeper.track);
        }
    }

    /// Returns whether no object is known to exist at `location`.
    #[inline]
    pub(crate) fn rules_out(&self, location: Location) -> bool {
        self.absent.around(location).is_some()
    }

    /// Returns the object at `location`, if it is cached.
    pub(crate) fn find(&self, location: Location) -> Option<&Entry> {
        let group = self.groups.get(&location.group)?;
        let place = group.place(location.object).ok()?;
        group.objects.get(place)
    }

    /// Returns whether the cache holds an object from `first` to `last`, inclusive.
    pub(crate) fn holds_any(&self, first: Location, last: Location) -> bool {
        // Only the first group and the last may hold objects outside the range, so this ends at the second at the latest.
        let mut groups = self.groups.range(first.group..=last.group);
        groups.any(|(&id, group)| {
            let from = if id == first.group { first.object } else { 0 };
            let next = group.place(from).unwrap_or_else(|place| place);
            let next = group.objects.get(next);
            next.is_some_and(|next| Location::new(id, next.object) <= last)
        })
    }

    /// Notes that no objects exist from `first` to `last`, inclusive.
    pub(crate) fn exclude(&mut self, keeper: &mut Keeper<'_>, first: Location, last: Location) {
        // Each cached group may have one more range, for its end.
        let max = keeper.limits.cache_gaps_per_track_max + self.groups.len();
        if self.absent.insert(first, last, max) {
            keeper.counters.cache_gaps_forgotten += 1;
        }
    }

    /// Returns what is known of the location `at` and those behind it in `span`. Objects received before `oldest` count
    /// as unknown.
    pub(crate) fn look(&self, at: Location, span: &Span, oldest: Option<Instant>) -> Known<'_> {
        let segment_end = span.last_of(at.group);
        let range = self.absent.around(at);
        // Up to here, only objects can differ from what is known of `at`.
        let last = match range {
            Some((_, last)) => last,
            None => self.absent.next(at).and_then(before).unwrap_or(LAST),
        };
        let objects = self.groups.get(&at.group).map(|group| &group.objects);
        let mut next = None;
        if let Some(objects) = objects {
            let from = objects.partition_point(|entry| entry.object < at.object);
            let objects = objects.range(from..);
            let mut objects =
                objects.take_while(|entry| Location::new(at.group, entry.object) <= last);
            match objects.find(|entry| entry.is_fresh(oldest)) {
                Some(entry) if entry.object == at.object => return Known::Object(entry),
                Some(entry) => next = Some(Location::new(at.group, entry.object)),
                None => {}
            }
        }
        if span.order == GroupOrder::Ascending {
            let next = next.or_else(|| self.next_fresh(at.group, last.min(span.end), oldest));
            let last = last.min(stop(next, span.end));
            return match range {
                Some(_) => Known::Absent(last),
                None => Known::Unknown(last),
            };
        }
        let known_above = if let Some((first, _)) = range {
            let partial = u64::from(first.object > 0);
            first.group.saturating_add(partial)
        } else {
            let below = self.absent.previous(at);
            below.map_or(0, |last| last.group.saturating_add(1))
        };
        let mut last = last.min(stop(next, segment_end));
        if last == segment_end && at == span.first_of(at.group) && at.object == 0 {
            // The whole group has this state, and so may the groups below it.
            let lowest = known_above.max(self.group_above(at.group));
            last = span.last_of(lowest.clamp(span.whole_from(), at.group));
        }
        match range {
            Some(_) => Known::Absent(last),
            None => Known::Unknown(last),
        }
    }

    /// Returns the first fresh object of the groups above this one, up to `last`.
    fn next_fresh(&self, group: u64, last: Location, oldest: Option<Instant>) -> Option<Location> {
        let above = group.checked_add(1).filter(|above| *above <= last.group)?;
        self.groups
            .range(above..=last.group)
            .find_map(|(&id, group)| {
                let mut fresh = group.objects.iter().filter(|entry| entry.is_fresh(oldest));
                fresh.next().map(|entry| Location::new(id, entry.object))
            })
    }

    /// Returns the group directly above the next smaller group of which something is known.
    fn group_above(&self, group: u64) -> u64 {
        let below = self.groups.range(..group).next_back();
        below.map_or(0, |(&below, _)| below.saturating_add(1))
    }

    /// Removes all objects and all ranges known not to exist.
    pub(crate) fn clear(&mut self, ledger: &mut Ledger) {
        while let Some((&id, _)) = self.groups.first_key_value() {
            self.forget_group(ledger, id);
        }
        self.absent.clear();
        self.largest = None;
    }

    fn len(&self) -> usize {
        match self.groups.len() {
            1 => self.groups.values().map(|group| group.objects.len()).sum(),
            groups => groups,
        }
    }

    /// Removes the first objects of a group.
    fn forget_objects(&mut self, ledger: &mut Ledger, id: u64, count: usize) {
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        if count >= group.objects.len() {
            return self.forget_group(ledger, id);
        }
        let forgotten = group.objects.drain(..count);
        let bytes: u64 = forgotten
            .map(|entry| entry.content.bytes() + OBJECT_BYTES)
            .sum();
        let held = group.objects.len();
        if group.objects.capacity() > 4 * held {
            group.objects.shrink_to(2 * held);
        }
        group.bytes -= bytes;
        self.bytes -= bytes;
        ledger.bytes -= bytes;
        ledger.objects -= count as u64;
    }

    /// Changes the place of a group in the order in which groups are examined and evicted.
    fn requeue(&mut self, ledger: &mut Ledger, track: TrackId, id: u64, since: Instant) {
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        ledger.queue.remove(&group.age);
        self.order.remove(&group.age);
        group.age = ledger.enqueue(track, id, since);
        self.order.insert(group.age, id);
    }

    fn forget_group(&mut self, ledger: &mut Ledger, id: u64) {
        if let Some(group) = self.groups.remove(&id) {
            self.absent.forget_within(id);
            self.order.remove(&group.age);
            ledger.queue.remove(&group.age);
            ledger.bytes -= group.bytes;
            ledger.objects -= group.objects.len() as u64;
            self.bytes -= group.bytes;
        }
    }
}

impl Group {
    fn place(&self, object: u64) -> Result<usize, usize> {
        self.objects
            .binary_search_by_key(&object, |entry| entry.object)
    }
}

impl Entry {
    fn is_fresh(&self, oldest: Option<Instant>) -> bool {
        oldest.is_none_or(|oldest| self.received >= oldest)
    }
}

/// Returns the location before `next`, or `end` if that is smaller.
fn stop(next: Option<Location>, end: Location) -> Location {
    next.and_then(before).map_or(end, |stop| stop.min(end))
}

/// Overhead of a cached object, in addition to its bytes: its entry in a queue that may be half empty, and an allocation
/// of its own that a received packet shares with nobody.
const OBJECT_BYTES: u64 = 384;
/// Overhead of a cached group, in addition to its objects.
const GROUP_BYTES: u64 = 352;

#[cfg(test)]
mod tests;
