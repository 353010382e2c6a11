//! Walks: what a request asks the relay to do for everything under a prefix, in pieces.
//!
//! SUBSCRIBE_NAMESPACE and SUBSCRIBE_TRACKS send their session all matches; PUBLISH_NAMESPACE asks its session for all
//! tracks that subscribers wait for. A message of 40 bytes may match thousands. The same holds for what a link begins, ends or
//! finds. In each turn, walks take some steps, one walk after the other, so that no message holds up the relay.

use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Unbounded},
    time::{Duration, Instant},
};

use weir_moqt::name::{FullTrackName, Namespace, TrackName};
use weir_quic::Handle;

use crate::{catalogue::Catalogue, ids::RequestKey, timers::Timer, turn::Turn};

/// What a walk is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Walk {
    /// A subscription to a prefix, by its request.
    Prefix(RequestKey),
    /// A session that announced a namespace.
    Announcer(Handle, Namespace),
    /// Tracks under a namespace that links are asked for.
    Waiting(Namespace),
    /// Tracks that come over a link, and for which another one is asked.
    Moving { from: Handle, to: Handle },
    /// Requests that have waited for a link.
    Parked,
    /// Namespaces that are announced over a new link.
    Announced(Handle),
    /// The relay's own subscriptions to prefixes.
    Interests,
    /// Namespaces that the relay behind a link has, or had.
    Found(Handle),
}

/// Some steps of a walk.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    /// The name at which the walk continues; `None` at its end.
    pub(crate) rest: Option<FullTrackName>,
    /// As how many steps they count.
    pub(crate) work: usize,
}

/// The walks that are not at their end.
#[derive(Debug, Default)]
pub(super) struct Walks {
    /// The name at which each continues.
    open: BTreeMap<Walk, FullTrackName>,
    /// The walk that took the last steps.
    last: Option<Walk>,
    /// Whether the timer is set.
    is_armed: bool,
    /// When walks took steps last, and how many.
    stepped: Option<Instant>,
    work: usize,
    /// Open walks that are to be taken once more, and where they begin.
    again: BTreeMap<Walk, FullTrackName>,
}

impl Walks {
    fn take(&mut self) -> Option<(Walk, FullTrackName)> {
        let after = self.last.as_ref().map_or(Unbounded, Excluded);
        let next = self.open.range((after, Unbounded)).next();
        let walk = next.or_else(|| self.open.first_key_value())?.0.clone();
        self.last = Some(walk.clone());
        self.open.remove_entry(&walk)
    }
}

impl Catalogue {
    /// Takes the next walk, with the name at which it continues.
    pub(crate) fn take_walk(&mut self) -> Option<(Walk, FullTrackName)> {
        self.walks.take()
    }

    /// Returns where a walk begins now. `None`: it waits for the timer, because others have taken many steps at this time, or
    /// it is under way and is repeated afterwards.
    pub(crate) fn begin_walk(
        &mut self,
        turn: &mut Turn<'_>,
        walk: &Walk,
        start: FullTrackName,
    ) -> Option<FullTrackName> {
        if self.walks.open.contains_key(walk) {
            self.walks.again.insert(walk.clone(), start);
            return None;
        }
        if self.walks.stepped != Some(turn.now) || self.walks.work < WORK_AT_ONCE {
            return Some(start);
        }
        self.walks.open.insert(walk.clone(), start);
        self.arm_walks(turn);
        None
    }

    /// Notes steps of a walk. It continues later, unless it is at its end.
    pub(crate) fn walk_on(&mut self, turn: &mut Turn<'_>, walk: Walk, steps: Steps) {
        if self.walks.stepped.replace(turn.now) != Some(turn.now) {
            self.walks.work = 0;
        }
        self.walks.work += steps.work + 1;
        let again = || self.walks.again.remove(&walk);
        if let Some(at) = steps.rest.or_else(again) {
            self.walks.open.insert(walk, at);
            self.arm_walks(turn);
        }
    }

    /// Notes that the timer of walks has expired.
    pub(crate) fn on_walks_due(&mut self) {
        self.walks.is_armed = false;
    }

    /// Sets the timer of walks, if there are any.
    pub(crate) fn arm_walks(&mut self, turn: &mut Turn<'_>) {
        if !self.walks.is_armed && !self.walks.open.is_empty() {
            self.walks.is_armed = true;
            turn.timers.set(turn.now + PAUSE, Timer::Walks);
        }
    }
}

/// Returns the name at which a walk over everything under `prefix` begins.
pub(crate) fn start(prefix: &Namespace) -> FullTrackName {
    FullTrackName {
        namespace: prefix.clone(),
        name: TrackName::EMPTY,
    }
}

/// Steps in one turn. That is checked after the steps of each walk, so the last one may exceed it.
pub(crate) const WORK_PER_TURN: usize = 384;
/// Notifications that one walk sends in a turn.
pub(crate) const NOTIFICATIONS_MAX: usize = 64;
/// As how many steps each of them counts.
pub(crate) const NOTIFICATION_WORK: usize = 2;
/// Tracks that one walk examines in a turn, of which most need nothing.
pub(crate) const TRACKS_MAX: usize = 128;
/// Requests that have waited for a link and are handled in a turn.
pub(crate) const PARKED_MAX: usize = 32;
/// As how many steps each of them counts.
pub(crate) const PARKED_WORK: usize = 4;
/// Steps at one time beyond which walks begin with the timer.
const WORK_AT_ONCE: usize = 64;
/// The time between two turns of walks.
const PAUSE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use weir_moqt::session::RequestId;

    use super::*;
    use crate::tests::handles;

    #[test]
    fn walks_take_turns() {
        let [one, other] = handles();
        let at = start(&Namespace::EMPTY);
        let keys =
            [(one, 0), (one, 2), (other, 0)].map(|(it, id)| Walk::Prefix((it, RequestId(id))));
        let mut walks = Walks::default();
        assert!(walks.take().is_none());
        for key in keys.clone() {
            walks.open.insert(key, at.clone());
        }
        for _ in 0..3 {
            for key in keys.clone() {
                let (taken, at) = walks.take().unwrap();
                assert_eq!(taken, key);
                walks.open.insert(taken, at);
            }
        }
        for key in keys {
            assert_eq!(walks.take().unwrap().0, key);
        }
        assert!(walks.take().is_none());
    }
}
