//! Tests of the cache against a simple reference model, and of its limits.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::{tests::epoch, track::Tracks};

/// A cache with its ledger and counters.
struct Desk {
    ledger: Ledger,
    counters: Counters,
    limits: Limits,
    track: TrackId,
    cache: TrackCache,
}

impl Desk {
    fn new(limits: Limits) -> Self {
        let mut tracks = Tracks::default();
        let track = tracks.find_or_create(&"a--x".parse().unwrap(), 1);
        Self {
            ledger: Ledger::default(),
            counters: Counters::default(),
            limits,
            track: track.unwrap(),
            cache: TrackCache::default(),
        }
    }

    fn with(&mut self, now: Instant, act: impl FnOnce(&mut TrackCache, &mut Keeper<'_>)) {
        let mut keeper = Keeper {
            ledger: &mut self.ledger,
            counters: &mut self.counters,
            limits: &self.limits,
            track: self.track,
            now,
        };
        act(&mut self.cache, &mut keeper);
        let objects = self.cache.groups.values();
        let objects: usize = objects.map(|group| group.objects.len()).sum();
        assert_eq!(self.ledger.objects, objects as u64);
        assert_eq!(self.ledger.bytes, self.cache.bytes);
        assert_eq!(self.ledger.queue.len(), self.cache.groups.len());
        assert_eq!(self.cache.order.len(), self.cache.groups.len());
    }

    /// Removes what is older than `age_max`.
    fn expire(&mut self, now: Instant, age_max: Duration) {
        self.limits.cache_age_max = age_max;
        self.with(now, |cache, keeper| {
            while let Some((due, turn)) = keeper.ledger.due(age_max)
                && due <= now
            {
                cache.expire(keeper, turn.group, &mut { usize::MAX });
            }
        });
    }

    /// Evicts the oldest group, with so much work at most.
    fn evict(&mut self, now: Instant, mut work: usize) {
        self.with(now, |cache, keeper| cache.evict(keeper, &mut work));
    }

    /// Returns false if the object contradicts a cached one.
    fn insert(&mut self, now: Instant, location: Location, bytes: usize) -> bool {
        let mut kept = Ok(());
        self.with(now, |cache, keeper| {
            kept = cache.insert(keeper, location, now, content(location, bytes));
        });
        kept.is_ok()
    }

    fn places(&self) -> Vec<(u64, u64)> {
        let groups = self.cache.groups.iter();
        groups
            .flat_map(|(&id, group)| group.objects.iter().map(move |entry| (id, entry.object)))
            .collect()
    }
}

fn at(group: u64, object: u64) -> Location {
    Location::new(group, object)
}

fn content(location: Location, bytes: usize) -> Content {
    let byte = location.object.to_le_bytes()[0];
    Content::Stream {
        subgroup: location.object % 2,
        priority: None,
        properties: Bytes::new(),
        payload: vec![byte; bytes].into(),
        rest: Vec::new(),
    }
}

fn limits() -> Limits {
    Limits::default()
}

/// What a walk through a span finds: objects, and ranges of each kind as (first, last).
#[derive(Debug, Default, PartialEq)]
struct Walk {
    objects: Vec<Location>,
    absent: Vec<Location>,
    unknown: Vec<Location>,
}

const GROUPS: u64 = 6;
const OBJECTS: u64 = 5;

/// Walks the cache, and records each location of the small range of these tests.
fn walk(cache: &TrackCache, span: &Span, oldest: Option<Instant>) -> Walk {
    let mut walk = Walk::default();
    let mut next = Some(span.first());
    let mut steps = 0;
    while let Some(at) = next {
        steps += 1;
        assert!(steps < 1000, "it comes to an end");
        let (list, last) = match cache.look(at, span, oldest) {
            Known::Object(entry) => {
                assert_eq!(entry.object, at.object);
                (&mut walk.objects, at)
            }
            Known::Absent(last) => (&mut walk.absent, last),
            Known::Unknown(last) => (&mut walk.unknown, last),
        };
        assert!(!span.is_before(last, at), "{at} to {last} goes forward");
        assert!(span.contains(last));
        for (first, last) in span.ranges(at, last) {
            for group in first.group..=last.group.min(GROUPS) {
                for object in 0..OBJECTS {
                    let location = Location::new(group, object);
                    if first <= location && location <= last {
                        list.push(location);
                    }
                }
            }
        }
        next = span.after(last);
    }
    walk
}

/// Returns the same from a table of all locations.
fn reference(table: &BTreeMap<Location, bool>, span: &Span) -> Walk {
    let mut all: Vec<Location> = (0..=GROUPS)
        .flat_map(|group| (0..OBJECTS).map(move |object| Location::new(group, object)))
        .filter(|&location| span.contains(location))
        .collect();
    if span.order == GroupOrder::Descending {
        all.sort_by_key(|location| (std::cmp::Reverse(location.group), location.object));
    }
    let mut walk = Walk::default();
    for location in all {
        match table.get(&location) {
            Some(true) => walk.objects.push(location),
            Some(false) => walk.absent.push(location),
            None => walk.unknown.push(location),
        }
    }
    walk
}

fn location() -> impl Strategy<Value = Location> {
    let object = prop_oneof![6 => 0..OBJECTS, 1 => Just(u64::MAX)];
    (0..GROUPS, object).prop_map(|(group, object)| at(group, object))
}

proptest! {
    /// Lists are sorted before the comparison: a descending run of several groups is one range.
    #[test]
    fn any_range_is_what_a_table_says(
        steps in vec((0..4u8, location(), location()), 0..25),
        (one, other) in (location(), location()),
        is_descending in any::<bool>(),
    ) {
        let mut desk = Desk::new(limits());
        let mut table = BTreeMap::new();
        let mut stale = BTreeSet::new();
        let (before, now) = (epoch(), epoch() + Duration::from_secs(1));
        for (kind, one, other) in steps {
            let (first, last) = (one.min(other), one.max(other));
            if kind < 2 {
                let is_new = first.object < OBJECTS && !table.contains_key(&first);
                if is_new && kind == 0 {
                    // As if it were not there.
                    stale.insert(first);
                    desk.insert(before, first, 10);
                } else if is_new && !stale.contains(&first) {
                    desk.insert(now, first, 10);
                    table.insert(first, true);
                }
            } else {
                desk.with(now, |cache, keeper| cache.exclude(keeper, first, last));
                for group in 0..GROUPS {
                    for object in 0..OBJECTS {
                        let location = at(group, object);
                        if first <= location && location <= last {
                            table.entry(location).or_insert(false);
                        }
                    }
                }
            }
        }
        let order = if is_descending { GroupOrder::Descending } else { GroupOrder::Ascending };
        let span = Span { start: one.min(other), end: one.max(other), order };
        let mut found = walk(&desk.cache, &span, Some(now));
        let mut expected = reference(&table, &span);
        prop_assert_eq!(&found.objects, &expected.objects, "objects come in their order");
        for walk in [&mut found, &mut expected] {
            walk.absent.sort_unstable();
            walk.unknown.sort_unstable();
        }
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn accounts_are_kept_whatever_happens(
        steps in vec((0..5u8, location(), 0..400usize), 0..60),
    ) {
        let mut desk = Desk::new(Limits { cache_track_bytes_max: 3000, ..limits() });
        let mut now = epoch();
        for (kind, location, bytes) in steps {
            now += Duration::from_secs(1);
            match kind {
                0..=2 => drop(desk.insert(now, location, bytes)),
                3 => desk.evict(now, bytes),
                _ => {
                    desk.expire(now, Duration::from_secs(5));
                }
            }
            prop_assert!(desk.ledger.bytes <= 3000 || desk.ledger.objects <= 1);
        }
        desk.with(now, |cache, keeper| cache.clear(keeper.ledger));
        prop_assert_eq!((desk.ledger.bytes, desk.ledger.objects), (0, 0));
    }
}

#[test]
fn the_oldest_group_makes_room() {
    let each = 100 + OBJECT_BYTES;
    let max = 2 * (GROUP_BYTES + 2 * each);
    let mut desk = Desk::new(Limits {
        cache_track_bytes_max: max,
        ..limits()
    });
    let now = epoch();
    for location in [at(7, 0), at(7, 1), at(3, 0), at(3, 1)] {
        desk.insert(now, location, 100);
    }
    assert_eq!(desk.places().len(), 4, "at the limit");
    desk.insert(now, at(3, 2), 100);
    assert_eq!(desk.places(), [(3, 0), (3, 1), (3, 2)], "one past it");
    assert_eq!(desk.counters.cache_groups_evicted, 1);
}

#[test]
fn a_group_that_is_alone_gives_up_its_first_objects() {
    let each = 100 + OBJECT_BYTES;
    let mut desk = Desk::new(Limits {
        cache_track_bytes_max: GROUP_BYTES + 4 * each,
        ..limits()
    });
    for object in 0..5 {
        desk.insert(epoch(), at(1, object), 100);
    }
    assert_eq!(desk.places(), [(1, 3), (1, 4)]);
    assert_eq!(desk.counters.cache_objects_evicted, 3);
}

#[test]
fn large_groups_leave_in_pieces() {
    let start = epoch();
    let mut desk = Desk::new(Limits {
        cache_age_max: Duration::from_secs(5),
        ..limits()
    });
    for object in 0..300 {
        desk.insert(start, at(1, object), 10);
        desk.insert(start, at(2, object), 10);
    }
    desk.evict(start, 100);
    assert_eq!(desk.places().len(), 500);
    assert_eq!(desk.places()[0], (1, 100));
    desk.evict(start, 0);
    assert_eq!(desk.places().len(), 500, "no work is left");
    desk.evict(start, 200);
    assert_eq!(desk.places()[0], (2, 0));
    assert_eq!(desk.counters.cache_groups_evicted, 1);
    desk.evict(start, 1000);
    assert_eq!(desk.places()[0], (2, 150), "half of the only one");
    let due = start + Duration::from_secs(5);
    let mut work = 120;
    desk.with(due, |cache, keeper| cache.expire(keeper, 2, &mut work));
    assert_eq!((desk.places()[0], work), ((2, 270), 0));
    let mut work = 120;
    desk.with(due, |cache, keeper| cache.expire(keeper, 2, &mut work));
    assert_eq!((desk.places().len(), work), (0, 90));
    assert_eq!(desk.counters.cache_groups_expired, 1);
}

#[test]
fn what_is_left_of_a_group_that_was_alone_is_as_old_as_its_objects() {
    let mut desk = Desk::new(limits());
    let start = epoch();
    let second = |secs| start + Duration::from_secs(secs);
    for object in 0..4 {
        desk.insert(second(object), at(1, object), 10);
    }
    desk.evict(second(4), 100);
    let (due, _) = desk.ledger.due(Duration::ZERO).expect("a group is left");
    assert_eq!(due, second(2));
}

#[test]
fn a_group_that_shrank_gives_its_memory_back() {
    let start = epoch();
    let mut desk = Desk::new(limits());
    for object in 0..10_000 {
        let now = start + Duration::from_secs(object / 9_990);
        desk.insert(now, at(1, object), 10);
    }
    desk.expire(start + Duration::from_secs(5), Duration::from_secs(5));
    let group = &desk.cache.groups[&1];
    assert_eq!(group.objects.len(), 10);
    assert!(group.objects.capacity() <= 40);
}

#[test]
fn objects_that_began_long_before_they_ended_expire_with_their_age() {
    let start = epoch();
    let mut desk = Desk::new(limits());
    let later = start + Duration::from_secs(5);
    desk.with(later, |cache, keeper| {
        let kept = cache.insert(keeper, at(1, 0), start, content(at(1, 0), 10));
        kept.unwrap();
    });
    desk.expire(later + Duration::from_secs(4), Duration::from_secs(4));
    assert_eq!(desk.places(), []);
    desk.with(later, |cache, keeper| {
        for object in [0, 1] {
            let location = at(2, object);
            let kept = cache.insert(keeper, location, start, content(location, 10));
            kept.unwrap();
        }
    });
    desk.with(later + Duration::from_secs(2), |cache, keeper| {
        cache.expire(keeper, 2, &mut 100);
    });
    assert_eq!(
        desk.places(),
        [],
        "none of them is fresh, though the last was added just now"
    );
}

#[test]
fn objects_are_bounded_in_size_and_kept_once() {
    let mut desk = Desk::new(Limits {
        cache_object_bytes_max: 100,
        ..limits()
    });
    desk.insert(epoch(), at(1, 0), 100);
    desk.insert(epoch(), at(1, 1), 101);
    assert!(desk.insert(epoch(), at(1, 0), 100), "the same");
    assert!(!desk.insert(epoch(), at(1, 0), 7), "another one");
    assert_eq!(desk.places(), [(1, 0)]);
    assert_eq!(desk.counters.cache_objects_too_large, 1);
    assert_eq!(desk.cache.bytes, GROUP_BYTES + OBJECT_BYTES + 100);
}

#[test]
fn what_does_not_exist_is_not_kept_and_gaps_are_bounded() {
    let mut desk = Desk::new(Limits {
        cache_gaps_per_track_max: 2,
        ..limits()
    });
    for group in [1, 3] {
        desk.with(epoch(), |cache, keeper| {
            cache.exclude(keeper, at(group, 1), at(group, u64::MAX));
        });
    }
    desk.insert(epoch(), at(1, 1), 5);
    assert_eq!(desk.places(), []);
    assert_eq!(desk.counters.cache_gaps_forgotten, 0, "at the limit");
    desk.with(epoch(), |cache, keeper| {
        cache.exclude(keeper, at(5, 1), at(5, 1));
    });
    assert_eq!(desk.counters.cache_gaps_forgotten, 1, "one past it");
    desk.insert(epoch(), at(1, 1), 5);
    assert_eq!(desk.places(), [(1, 1)]);
}

#[test]
fn each_group_of_which_objects_are_kept_may_have_an_end_besides() {
    let mut desk = Desk::new(Limits {
        cache_gaps_per_track_max: 2,
        ..limits()
    });
    for group in 0..20 {
        desk.insert(epoch(), at(group, 0), 5);
        desk.with(epoch(), |cache, keeper| {
            cache.exclude(keeper, at(group, 1), at(group, u64::MAX));
        });
    }
    assert_eq!(desk.counters.cache_gaps_forgotten, 0);
    assert_eq!(desk.cache.absent.len(), 20);
    for _ in 0..5 {
        desk.evict(epoch(), EVICTIONS_AT_ONCE);
    }
    assert_eq!(desk.cache.absent.len(), 15, "it goes with its group");
    assert_eq!(desk.counters.cache_gaps_forgotten, 0);
}

#[test]
fn objects_that_are_too_old_are_unknown_and_then_forgotten() {
    let mut desk = Desk::new(limits());
    let start = epoch();
    let at_secs = |secs| start + Duration::from_secs(secs);
    desk.insert(at_secs(0), at(1, 0), 5);
    desk.insert(at_secs(10), at(2, 0), 5);
    desk.insert(at_secs(20), at(1, 1), 5);
    let span = Span {
        start: at(1, 0),
        end: at(2, 0),
        order: GroupOrder::Ascending,
    };
    let objects = |desk: &Desk, oldest| walk(&desk.cache, &span, Some(at_secs(oldest))).objects;
    assert_eq!(
        objects(&desk, 0),
        [at(1, 0), at(1, 1), at(2, 0)],
        "just in time"
    );
    assert_eq!(objects(&desk, 1), [at(1, 1), at(2, 0)]);
    let expire = |desk: &mut Desk, now| {
        desk.expire(at_secs(now), Duration::from_secs(15));
        desk.places()
    };
    assert_eq!(
        expire(&mut desk, 24),
        [(1, 1), (2, 0)],
        "a group that grew stays"
    );
    assert_eq!(expire(&mut desk, 25), [(1, 1)]);
    assert_eq!(expire(&mut desk, 34), [(1, 1)]);
    assert_eq!(expire(&mut desk, 35), []);
    assert_eq!(desk.counters.cache_groups_expired, 2);
}

#[test]
fn a_fetched_copy_replaces_an_older_one() {
    let mut desk = Desk::new(limits());
    let start = epoch();
    let at_secs = |secs| start + Duration::from_secs(secs);
    desk.insert(at_secs(0), at(1, 0), 50);
    desk.insert(at_secs(0), at(1, 1), 50);
    let properties = Properties::builder().int(0x0e, 7).build();
    let properties = Bytes::copy_from_slice(properties.as_bytes());
    let size = properties.len() as u64;
    desk.with(at_secs(10), |cache, keeper| {
        let copy = Content::Fetched {
            subgroup: Some(0),
            priority: 0,
            properties,
            payload: vec![0; 50].into(),
        };
        let kept = cache.insert(keeper, at(1, 0), at_secs(10), copy);
        assert!(kept.is_ok());
    });
    desk.insert(at_secs(10), at(1, 1), 50);
    assert_eq!(desk.places(), [(1, 0), (1, 1)]);
    let each = 50 + OBJECT_BYTES;
    assert_eq!(desk.cache.bytes, GROUP_BYTES + 2 * each + size);
    let span = Span {
        start: at(1, 0),
        end: at(1, 1),
        order: GroupOrder::Ascending,
    };
    let fresh = walk(&desk.cache, &span, Some(at_secs(10))).objects;
    assert_eq!(fresh, [at(1, 0)], "one that was forwarded keeps its age");
    desk.expire(at_secs(24), Duration::from_secs(15));
    assert!(desk.cache.find(at(1, 0)).is_some(), "it is kept as long");
    desk.expire(at_secs(30), Duration::from_secs(15));
    assert_eq!(desk.places(), []);
    assert_eq!((desk.ledger.bytes, desk.ledger.objects), (0, 0));
}

#[test]
fn objects_are_not_kept_much_longer_than_permitted() {
    // Groups of one object, of some, and one without end.
    for objects in [1, 7, u64::MAX] {
        let mut desk = Desk::new(limits());
        let age = Duration::from_secs(40);
        for second in 0..200 {
            let now = epoch() + Duration::from_secs(second);
            desk.insert(now, at(second / objects, second % objects), 10);
            desk.expire(now, age);
            let kept = desk.places().len();
            assert!(kept <= 40 + 40 / 8 + 1, "{kept} after {second} s");
            let expected = usize::try_from(second.min(39)).unwrap();
            assert!(kept >= expected, "{kept} after {second} s");
        }
    }
}
