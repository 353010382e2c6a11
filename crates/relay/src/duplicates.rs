//! What publishers of one track sent lately, to tell the repetitions when there are several of them.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use weir_moqt::{location::Location, session::RequestId};
use weir_quic::Handle;

/// Who sends: a session and its subscription.
pub(crate) type Sender = (Handle, RequestId);

/// A group and a subgroup in it.
pub(crate) type SubgroupKey = (u64, u64);

/// The last objects and subgroups of a track.
///
/// A lone publisher sends an object only once [moqt-18 §2.1], so that nothing is looked up until a second
/// one is there. It is not a record of the track: a publisher that comes back after a fall, and counts from the
/// beginning, is heard.
#[derive(Debug, Default)]
pub(crate) struct Duplicates {
    is_shared: bool,
    datagrams: VecDeque<(Instant, Location)>,
    subgroups: VecDeque<Passed>,
}

/// A subgroup that is or was passed on.
#[derive(Clone, Copy, Debug)]
struct Passed {
    key: SubgroupKey,
    sender: Sender,
    /// Its stream goes on.
    is_live: bool,
    /// First object that was not passed on in full.
    next: u64,
    /// Last sign of life.
    at: Instant,
}

impl Duplicates {
    /// There is more than one publisher from now on.
    pub(crate) fn share(&mut self) {
        self.is_shared = true;
    }

    /// Whether there was more than one publisher lately.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Whether datagrams came.
    pub(crate) fn has_datagrams(&self) -> bool {
        !self.datagrams.is_empty()
    }

    /// The last publisher is gone; the next one starts afresh.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether a datagram at `location` came already.
    #[inline]
    pub(crate) fn is_repeated(&mut self, now: Instant, location: Location) -> bool {
        if self.is_shared && self.knows(now, location) {
            return true;
        }
        if self.datagrams.len() == REMEMBERED_MAX {
            self.datagrams.pop_front();
        }
        self.datagrams.push_back((now, location));
        false
    }

    /// Whether `sender` may pass on an object of a subgroup on a stream on which it passes on nothing yet.
    /// If so, the subgroup is its from now on.
    pub(crate) fn claim(
        &mut self,
        now: Instant,
        key: SubgroupKey,
        sender: Sender,
        object: u64,
    ) -> bool {
        let found = self.place(key);
        if let Some(place) = found.filter(|_| self.is_shared) {
            let passed = &self.subgroups[place];
            let is_recent = now.saturating_duration_since(passed.at) <= REPETITION_MAX;
            let is_taken = if passed.is_live {
                passed.sender != sender
            } else {
                object < passed.next
            };
            if is_recent && is_taken {
                return false;
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
            is_live: true,
            next: object,
            at: now,
        });
        true
    }

    /// `sender` passes on another object of a subgroup that is its.
    pub(crate) fn touch(&mut self, now: Instant, key: SubgroupKey) {
        if let Some(place) = self.place(key) {
            self.subgroups[place].at = now;
        }
    }

    /// The stream on which `sender` passed on a subgroup is over; `next` is the first object that did not
    /// come in full.
    pub(crate) fn release(&mut self, now: Instant, key: SubgroupKey, sender: Sender, next: u64) {
        if let Some(place) = self.place(key)
            && self.subgroups[place].sender == sender
        {
            let passed = &mut self.subgroups[place];
            passed.is_live = false;
            passed.next = passed.next.max(next);
            passed.at = now;
        }
    }

    fn knows(&self, now: Instant, location: Location) -> bool {
        let recent = |at: Instant| now.saturating_duration_since(at) <= REPETITION_MAX;
        self.datagrams
            .iter()
            .rev()
            .take_while(|&&(at, _)| recent(at))
            .any(|&(_, known)| known == location)
    }

    fn place(&self, key: SubgroupKey) -> Option<usize> {
        self.subgroups.iter().rposition(|passed| passed.key == key)
    }
}

/// Five seconds of audio.
const REMEMBERED_MAX: usize = 256;
/// Publishers of one track are not further apart than this.
const REPETITION_MAX: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{epoch, handles};

    fn at(group: u64) -> Location {
        Location { group, object: 0 }
    }

    fn sender(request: u64) -> Sender {
        (handles::<1>()[0], RequestId(request))
    }

    #[test]
    fn a_lone_publisher_is_not_doubted() {
        let (now, mut seen) = (epoch(), Duplicates::default());
        assert!(!seen.is_repeated(now, at(1)));
        assert!(!seen.is_repeated(now, at(1)));
        assert!(seen.claim(now, (1, 0), sender(0), 0));
        assert!(seen.claim(now, (1, 0), sender(2), 0));
    }

    #[test]
    fn datagrams_before_the_second_publisher_count_too() {
        let (now, mut seen) = (epoch(), Duplicates::default());
        assert!(!seen.is_repeated(now, at(1)));
        seen.share();
        assert!(seen.is_repeated(now + REPETITION_MAX, at(1)));
        let late = now + REPETITION_MAX + Duration::from_nanos(1);
        assert!(!seen.is_repeated(late, at(1)), "too long ago");
    }

    #[test]
    fn remembered_datagrams_are_bounded() {
        let (now, mut seen) = (epoch(), Duplicates::default());
        seen.share();
        for group in 0..REMEMBERED_MAX as u64 {
            assert!(!seen.is_repeated(now, at(group)));
        }
        assert!(seen.is_repeated(now, at(0)), "at the limit");
        assert!(!seen.is_repeated(now, at(1000)));
        assert!(!seen.is_repeated(now, at(0)), "the oldest made room");
        assert_eq!(seen.datagrams.len(), REMEMBERED_MAX);
    }

    #[test]
    fn remembered_subgroups_are_bounded() {
        let (now, mut seen) = (epoch(), Duplicates::default());
        seen.share();
        for group in 0..=REMEMBERED_MAX as u64 {
            assert!(seen.claim(now, (group, 0), sender(0), 0));
        }
        assert_eq!(seen.subgroups.len(), REMEMBERED_MAX);
        assert!(!seen.claim(now, (1, 0), sender(2), 0));
        assert!(seen.claim(now, (0, 0), sender(2), 0), "forgotten");
    }

    #[test]
    fn another_goes_on_where_one_was_cut() {
        let (now, mut seen) = (epoch(), Duplicates::default());
        seen.share();
        assert!(seen.claim(now, (1, 0), sender(0), 0));
        assert!(seen.claim(now, (1, 0), sender(0), 0), "its own stream");
        assert!(!seen.claim(now, (1, 0), sender(2), 9));
        seen.release(now, (1, 0), sender(0), 4);
        assert!(!seen.claim(now, (1, 0), sender(2), 3), "passed on already");
        assert!(seen.claim(now, (1, 0), sender(2), 4));
        assert!(!seen.claim(now, (1, 0), sender(0), 5));
        seen.clear();
        assert!(seen.claim(now, (1, 0), sender(0), 0), "a fresh start");
    }

    #[test]
    fn a_silent_owner_loses_its_subgroup() {
        let (now, mut seen) = (epoch(), Duplicates::default());
        seen.share();
        assert!(seen.claim(now, (1, 0), sender(0), 0));
        let later = now + REPETITION_MAX + Duration::from_nanos(1);
        seen.touch(now + REPETITION_MAX, (1, 0));
        assert!(!seen.claim(later, (1, 0), sender(2), 0));
        assert!(seen.claim(later + REPETITION_MAX, (1, 0), sender(2), 0));
    }
}
