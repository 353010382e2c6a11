//! Detection of repeated objects, which several publishers of one track cause.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use weir_moqt::location::Location;

use crate::{
    cache::Contradiction,
    ids::{PublisherId, SubgroupKey},
};

/// The most recent objects and subgroups of a track.
///
/// A single publisher sends an object only once [moqt-18 §2.1], so nothing is looked up until a second publisher joins.
/// Only recent objects are remembered: a publisher that reconnects and counts from the beginning is accepted. If its
/// former session is not closed yet, the new one announces that it has published nothing, which restarts the track.
/// Then only objects since the restart count as repetitions, until another publisher sends something.
#[derive(Debug, Default)]
pub(super) struct Duplicates {
    is_shared: bool,
    restart: Option<Restart>,
    datagrams: VecDeque<(Instant, Location)>,
    subgroups: VecDeque<Passed>,
}

/// A subgroup that is or was forwarded.
#[derive(Clone, Copy, Debug)]
struct Passed {
    key: SubgroupKey,
    sender: PublisherId,
    /// The publisher's priority.
    priority: u8,
    /// Whether its stream is open.
    is_live: bool,
    /// The last object of the subgroup, once one of its streams was finished.
    last: Option<u64>,
    /// The first object that was not forwarded in full.
    next: u64,
    /// When its sender was last heard.
    at: Instant,
}

/// The decision on a stream of a subgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// Its objects are forwarded.
    Granted,
    /// Its objects are dropped: another publisher sends them or has sent them.
    Repeated,
    /// The stream contradicts other streams of the subgroup [moqt-18 §2.4.2].
    Contradictory,
}

/// A restart of the track by a publisher, valid until another publisher sends something.
#[derive(Clone, Copy, Debug)]
struct Restart {
    sender: PublisherId,
    since: Instant,
    has_begun: bool,
}

/// How an object of a publisher that restarted the track is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Restarted {
    /// When the publisher restarted the track. Earlier objects do not make this one a repetition.
    pub(super) since: Instant,
    /// Whether it is the first object since the restart.
    pub(super) is_first: bool,
}

impl Duplicates {
    /// Notes that the track has more than one publisher.
    pub(super) fn share(&mut self) {
        self.is_shared = true;
    }

    /// Returns whether the track had more than one publisher recently.
    #[inline]
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Begins a restart: `sender` announced that it has published nothing, although others have.
    pub(super) fn begin_restart(&mut self, now: Instant, sender: PublisherId) {
        self.restart = Some(Restart {
            sender,
            since: now,
            has_begun: false,
        });
    }

    /// Notes an object from `sender`. Returns the restart if `sender` has restarted the track. An object of another
    /// publisher shows that this publisher is alive, and undoes the restart.
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

    /// Returns whether `sender` has restarted the track, and the others have sent nothing since.
    pub(super) fn has_restarted(&self, sender: PublisherId) -> bool {
        self.restarted_since(sender).is_some()
    }

    /// Returns when `sender` restarted the track, if the others have sent nothing since.
    pub(super) fn restarted_since(&self, sender: PublisherId) -> Option<Instant> {
        let restart = self.restart.filter(|restart| restart.sender == sender);
        restart.map(|restart| restart.since)
    }

    /// Returns whether the track has had datagrams.
    pub(super) fn has_datagrams(&self) -> bool {
        !self.datagrams.is_empty()
    }

    /// Returns whether an object from `first` to `last`, inclusive, is known to have come in a datagram or as the last
    /// of a complete subgroup.
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

    /// Forgets everything, after the last publisher is gone.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns whether a datagram at `location` has come before; only since the restart, if its sender has `restarted`
    /// the track.
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

    /// Decides whether `sender` may pass on a subgroup, from an object with the given ID and priority on. If so,
    /// `sender` becomes the owner of the subgroup.
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

    /// Returns the current owner of a subgroup, if there are several publishers.
    pub(super) fn owner(&self, key: SubgroupKey) -> Option<PublisherId> {
        let place = self.place(key).filter(|_| self.is_shared)?;
        let passed = &self.subgroups[place];
        passed.is_live.then_some(passed.sender)
    }

    /// Notes that `sender` sent something of a subgroup that it passes on. Returns whether another publisher has
    /// continued the subgroup. Late bytes of others do not undo a restart.
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

    /// Notes that the stream on which `sender` passed on a subgroup is over; `next` is the first object that is
    /// incomplete.
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

    /// Notes that a stream of a subgroup was finished after the object `last`. Fails if another stream of it ended
    /// elsewhere.
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

/// Returns whether an object that came at `at` is recent enough to be repeated.
fn is_recent(now: Instant, at: Instant, restarted: Option<Restarted>) -> bool {
    now.saturating_duration_since(at) <= REPETITION_MAX
        && restarted.is_none_or(|restarted| at >= restarted.since)
}

/// Five seconds of audio.
const REMEMBERED_MAX: usize = 256;
/// The largest delay between the publishers of one track.
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
