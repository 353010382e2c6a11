//! What publishers of one track sent lately, to tell the repetitions when there are several of them.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use weir_moqt::location::Location;

use crate::{
    cache::Contradiction,
    ids::{PublisherId, SubgroupKey},
};

/// The last objects and subgroups of a track.
///
/// A lone publisher sends an object only once [moqt-18 §2.1], so that nothing is looked up until a second
/// one is there. It is not a record of the track: a publisher that comes back after a fall, and counts from the
/// beginning, is heard. That its former session may linger changes nothing: of a publisher that says it has
/// published nothing yet, only what came since counts as a repetition, until one of the others is heard of again.
#[derive(Debug, Default)]
pub(super) struct Duplicates {
    is_shared: bool,
    restart: Option<Restart>,
    datagrams: VecDeque<(Instant, Location)>,
    subgroups: VecDeque<Passed>,
}

/// A subgroup that is or was passed on.
#[derive(Clone, Copy, Debug)]
struct Passed {
    key: SubgroupKey,
    sender: PublisherId,
    /// The publisher's priority.
    priority: u8,
    /// Its stream goes on.
    is_live: bool,
    /// The last object of the subgroup, once a stream of it was finished.
    last: Option<u64>,
    /// First object that was not passed on in full.
    next: u64,
    /// Last sign of life.
    at: Instant,
}

/// What becomes of a stream of a subgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// Its objects are passed on.
    Granted,
    /// Another publisher sends them, or has sent them.
    Repeated,
    /// It is not what other streams of the subgroup say [moqt-18 §2.4.2].
    Contradictory,
}

/// A publisher that restarted the track, while nothing came from the others.
#[derive(Clone, Copy, Debug)]
struct Restart {
    sender: PublisherId,
    since: Instant,
    has_begun: bool,
}

/// How an object of a publisher that restarted the track is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Restarted {
    /// When it restarted: what came before is no repetition.
    pub(super) since: Instant,
    /// It is its first object.
    pub(super) is_first: bool,
}

impl Duplicates {
    /// There is more than one publisher from now on.
    pub(super) fn share(&mut self) {
        self.is_shared = true;
    }

    /// Whether there was more than one publisher lately.
    #[inline]
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// `sender` says that it has published nothing yet, though others have.
    pub(super) fn begin_restart(&mut self, now: Instant, sender: PublisherId) {
        self.restart = Some(Restart {
            sender,
            since: now,
            has_begun: false,
        });
    }

    /// An object came from `sender`. Tells since when, if `sender` has restarted the track; an object of another
    /// publisher shows that this one is there, and undoes the restart.
    pub(super) fn note_sender(&mut self, sender: PublisherId) -> Option<Restarted> {
        let restart = self.restart.as_mut()?;
        if restart.sender != sender {
            self.restart = None;
            return None;
        }
        let is_first = !std::mem::replace(&mut restart.has_begun, true);
        let since = restart.since;
        Some(Restarted { since, is_first })
    }

    /// Whether `sender` has restarted the track, and nothing came from the others since.
    pub(super) fn has_restarted(&self, sender: PublisherId) -> bool {
        self.restarted_since(sender).is_some()
    }

    /// When `sender` restarted the track, if nothing came from the others since.
    pub(super) fn restarted_since(&self, sender: PublisherId) -> Option<Instant> {
        let restart = self.restart.filter(|restart| restart.sender == sender);
        restart.map(|restart| restart.since)
    }

    /// Whether datagrams came.
    pub(super) fn has_datagrams(&self) -> bool {
        !self.datagrams.is_empty()
    }

    /// Whether it is remembered that an object from `first` to `last`, both included, came in a datagram or was the last
    /// of a subgroup that is over.
    pub(super) fn has_any(&self, first: Location, last: Location) -> bool {
        let mut datagrams = self.datagrams.iter();
        let mut subgroups = self.subgroups.iter();
        let is_within = |location: Location| first <= location && location <= last;
        datagrams.any(|&(_, known)| is_within(known))
            || subgroups.any(|passed| {
                let object = passed.next.checked_sub(1).filter(|_| !passed.is_live);
                object.is_some_and(|object| is_within(Location::new(passed.key.0, object)))
            })
    }

    /// The last publisher is gone; the next one starts afresh.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether a datagram at `location` came already, since its sender has `restarted` the track.
    #[inline]
    pub(super) fn is_repeated(
        &mut self,
        now: Instant,
        location: Location,
        restarted: Option<Restarted>,
    ) -> bool {
        if self.is_shared && self.knows(now, location, restarted) {
            return true;
        }
        if self.datagrams.len() == REMEMBERED_MAX {
            self.datagrams.pop_front();
        }
        self.datagrams.push_back((now, location));
        false
    }

    /// Whether `sender` may pass on an object of a subgroup with that priority on a stream on which it passes on nothing
    /// yet. If so, the subgroup is its from now on.
    pub(super) fn claim(
        &mut self,
        now: Instant,
        key: SubgroupKey,
        sender: PublisherId,
        (object, priority): (u64, u8),
        restarted: Option<Restarted>,
    ) -> Claim {
        let found = self.place(key);
        let is_before =
            |passed: &Passed| restarted.is_some_and(|restarted| passed.at < restarted.since);
        let known = found.map(|place| self.subgroups[place]);
        let known = known.filter(|passed| !is_before(passed));
        if let Some(passed) = known {
            if passed.priority != priority || passed.last.is_some_and(|last| object > last) {
                return Claim::Contradictory;
            }
            let is_recent = self.is_shared && is_recent(now, passed.at, restarted);
            let is_taken = if passed.is_live {
                passed.sender != sender
            } else {
                object < passed.next
            };
            if is_recent && is_taken {
                return Claim::Repeated;
            }
        }
        if let Some(place) = found {
            self.subgroups.remove(place);
        } else if self.subgroups.len() == REMEMBERED_MAX {
            self.subgroups.pop_front();
        }
        self.subgroups.push_back(Passed {
            key,
            sender,
            priority,
            is_live: true,
            last: known.and_then(|passed| passed.last),
            next: object,
            at: now,
        });
        Claim::Granted
    }

    /// Whose subgroup it is at present, if there are several publishers.
    pub(super) fn owner(&self, key: SubgroupKey) -> Option<PublisherId> {
        let place = self.place(key).filter(|_| self.is_shared)?;
        let passed = &self.subgroups[place];
        passed.is_live.then_some(passed.sender)
    }

    /// Something of a subgroup came from `sender`, which passes it on. Returns whether another one has gone on with it
    /// since. Late bytes of others do not undo a restart.
    pub(super) fn touch(&mut self, now: Instant, key: SubgroupKey, sender: PublisherId) -> bool {
        let Some(place) = self.place(key) else {
            return false;
        };
        let passed = &mut self.subgroups[place];
        if passed.sender != sender {
            return true;
        }
        if self.restart.is_none_or(|restart| restart.sender == sender) {
            passed.at = now;
        }
        false
    }

    /// The stream on which `sender` passed on a subgroup is over; `next` is the first object that did not
    /// come in full.
    pub(super) fn release(
        &mut self,
        now: Instant,
        key: SubgroupKey,
        sender: PublisherId,
        next: u64,
    ) {
        if let Some(place) = self.place(key)
            && self.subgroups[place].sender == sender
        {
            let passed = &mut self.subgroups[place];
            passed.is_live = false;
            passed.next = passed.next.max(next);
            passed.at = now;
        }
    }

    /// A stream of a subgroup was finished behind the object `last`. Fails if another one ended elsewhere.
    pub(super) fn finish(&mut self, key: SubgroupKey, last: u64) -> Result<(), Contradiction> {
        let Some(place) = self.place(key) else {
            return Ok(());
        };
        let known = self.subgroups[place].last.get_or_insert(last);
        (*known == last).then_some(()).ok_or(Contradiction)
    }

    fn knows(&self, now: Instant, location: Location, restarted: Option<Restarted>) -> bool {
        self.datagrams
            .iter()
            .rev()
            .take_while(|&&(at, _)| is_recent(now, at, restarted))
            .any(|&(_, known)| known == location)
    }

    fn place(&self, key: SubgroupKey) -> Option<usize> {
        self.subgroups.iter().rposition(|passed| passed.key == key)
    }
}

/// Whether what came at `at` can be what is repeated now.
fn is_recent(now: Instant, at: Instant, restarted: Option<Restarted>) -> bool {
    now.saturating_duration_since(at) <= REPETITION_MAX
        && restarted.is_none_or(|restarted| at >= restarted.since)
}

/// Five seconds of audio.
const REMEMBERED_MAX: usize = 256;
/// Publishers of one track are not further apart than this.
const REPETITION_MAX: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use weir_moqt::session::RequestId;

    use super::*;
    use crate::tests::{epoch, handles};

    fn at(group: u64) -> Location {
        Location { group, object: 0 }
    }

    fn sender(request: u64) -> PublisherId {
        (handles::<1>()[0], RequestId(request))
    }

    fn is_granted(claim: Claim) -> bool {
        claim == Claim::Granted
    }

    #[test]
    fn a_lone_publisher_is_not_doubted() {
        let (now, mut seen) = (epoch(), Duplicates::default());
        assert!(!seen.is_repeated(now, at(1), None));
        assert!(!seen.is_repeated(now, at(1), None));
        assert!(is_granted(seen.claim(now, (1, 0), sender(0), (0, 9), None)));
        assert!(is_granted(seen.claim(now, (1, 0), sender(2), (0, 9), None)));
    }

    #[test]
    fn datagrams_before_the_second_publisher_count_too() {
        let (now, mut seen) = (epoch(), Duplicates::default());
        assert!(!seen.is_repeated(now, at(1), None));
        seen.share();
        assert!(seen.is_repeated(now + REPETITION_MAX, at(1), None));
        let late = now + REPETITION_MAX + Duration::from_nanos(1);
        assert!(!seen.is_repeated(late, at(1), None), "too long ago");
    }

    #[test]
    fn remembered_datagrams_are_bounded() {
        let (now, mut seen) = (epoch(), Duplicates::default());
        seen.share();
        for group in 0..REMEMBERED_MAX as u64 {
            assert!(!seen.is_repeated(now, at(group), None));
        }
        assert!(seen.is_repeated(now, at(0), None), "at the limit");
        assert!(!seen.is_repeated(now, at(1000), None));
        assert!(!seen.is_repeated(now, at(0), None), "the oldest made room");
        assert_eq!(seen.datagrams.len(), REMEMBERED_MAX);
    }

    #[test]
    fn remembered_subgroups_are_bounded() {
        let (now, mut seen) = (epoch(), Duplicates::default());
        seen.share();
        for group in 0..=REMEMBERED_MAX as u64 {
            assert!(is_granted(seen.claim(
                now,
                (group, 0),
                sender(0),
                (0, 9),
                None
            )));
        }
        assert_eq!(seen.subgroups.len(), REMEMBERED_MAX);
        assert!(!is_granted(seen.claim(
            now,
            (1, 0),
            sender(2),
            (0, 9),
            None
        )));
        assert!(
            is_granted(seen.claim(now, (0, 0), sender(2), (0, 9), None)),
            "forgotten"
        );
    }

    #[test]
    fn another_goes_on_where_one_was_cut() {
        let (now, mut seen) = (epoch(), Duplicates::default());
        seen.share();
        assert!(is_granted(seen.claim(now, (1, 0), sender(0), (0, 9), None)));
        assert!(
            is_granted(seen.claim(now, (1, 0), sender(0), (0, 9), None)),
            "its own stream"
        );
        assert!(!is_granted(seen.claim(
            now,
            (1, 0),
            sender(2),
            (9, 9),
            None
        )));
        seen.release(now, (1, 0), sender(0), 4);
        assert!(
            !is_granted(seen.claim(now, (1, 0), sender(2), (3, 9), None)),
            "passed on already"
        );
        assert!(is_granted(seen.claim(now, (1, 0), sender(2), (4, 9), None)));
        assert!(!is_granted(seen.claim(
            now,
            (1, 0),
            sender(0),
            (5, 9),
            None
        )));
        seen.clear();
        assert!(
            is_granted(seen.claim(now, (1, 0), sender(0), (0, 9), None)),
            "a fresh start"
        );
    }

    #[test]
    fn a_silent_owner_loses_its_subgroup() {
        let (now, mut seen) = (epoch(), Duplicates::default());
        seen.share();
        assert!(is_granted(seen.claim(now, (1, 0), sender(0), (0, 9), None)));
        let later = now + REPETITION_MAX + Duration::from_nanos(1);
        assert!(!seen.touch(now + REPETITION_MAX, (1, 0), sender(0)));
        assert!(!is_granted(seen.claim(
            later,
            (1, 0),
            sender(2),
            (0, 9),
            None
        )));
        assert!(is_granted(seen.claim(
            later + REPETITION_MAX,
            (1, 0),
            sender(2),
            (0, 9),
            None
        )));
        assert!(seen.touch(later + REPETITION_MAX, (1, 0), sender(0)));
    }

    #[test]
    fn a_publisher_that_restarts_is_believed_until_another_sends() {
        let (now, mut seen) = (epoch(), Duplicates::default());
        let (old, new) = (sender(0), sender(2));
        assert!(!seen.is_repeated(now, at(1), None));
        assert!(is_granted(seen.claim(now, (5, 0), old, (0, 9), None)));
        seen.share();
        let later = now + Duration::from_millis(1);
        seen.begin_restart(later, new);
        let first = seen.note_sender(new);
        assert_eq!(first.map(|restarted| restarted.is_first), Some(true));
        assert!(
            !seen.is_repeated(later, at(1), first),
            "said before it came"
        );
        let restarted = seen.note_sender(new);
        assert_eq!(restarted.map(|restarted| restarted.is_first), Some(false));
        assert!(
            seen.is_repeated(later, at(1), restarted),
            "its own repetition"
        );
        assert!(is_granted(seen.claim(
            later,
            (5, 0),
            new,
            (0, 9),
            restarted
        )));
        assert!(seen.has_restarted(new) && !seen.has_restarted(old));
        assert_eq!(seen.note_sender(old), None);
        assert!(seen.is_repeated(later, at(1), None));
        assert!(!is_granted(seen.claim(later, (5, 0), old, (1, 9), None)));
        assert_eq!(seen.note_sender(new), None, "it is one of two now");
        assert!(!seen.has_restarted(new));
    }

    #[test]
    fn streams_of_a_subgroup_that_contradict_each_other_are_found() {
        for is_shared in [false, true] {
            let (now, mut seen) = (epoch(), Duplicates::default());
            if is_shared {
                seen.share();
            }
            let other = if is_shared { sender(2) } else { sender(0) };
            assert!(is_granted(seen.claim(now, (1, 0), sender(0), (0, 9), None)));
            let louder = seen.claim(now, (1, 0), other, (0, 8), None);
            assert_eq!(louder, Claim::Contradictory);
            assert_eq!(seen.finish((1, 0), 4), Ok(()));
            seen.release(now, (1, 0), sender(0), 5);
            assert!(seen.claim(now, (1, 0), other, (4, 9), None) != Claim::Contradictory);
            let longer = seen.claim(now, (1, 0), other, (5, 9), None);
            assert_eq!(longer, Claim::Contradictory);
            assert_eq!(seen.finish((1, 0), 4), Ok(()));
            assert_eq!(seen.finish((1, 0), 3), Err(Contradiction));
            assert_eq!(seen.finish((9, 0), 3), Ok(()), "nothing is known of it");
        }
    }
}
