//! Walks: what a request asks the relay to do for everything under a prefix, in pieces.
//!
//! SUBSCRIBE_NAMESPACE and SUBSCRIBE_TRACKS send their session all matches; PUBLISH_NAMESPACE asks its session for all
//! tracks that subscribers wait for. A message of 40 bytes may match thousands. In each turn, a few walks take some steps,
//! one after the other, so that no message holds up the relay.

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
    /// When a walk began last with its request, and not with the timer.
    begun: Option<Instant>,
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

    /// Returns whether a walk may begin with its request: one at a time. Others, which may come in the same packet, begin
    /// with the timer.
    pub(crate) fn may_walk(&mut self, turn: &Turn<'_>) -> bool {
        self.walks.begun.replace(turn.now) != Some(turn.now)
    }

    /// Continues a walk later, at a name; `None` if it is at its end.
    pub(crate) fn walk_on(&mut self, turn: &mut Turn<'_>, walk: Walk, at: Option<FullTrackName>) {
        if let Some(at) = at {
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

/// Walks that take steps in one turn.
pub(crate) const WALKS_PER_TURN: usize = 4;
/// Notifications that one walk sends in a turn.
pub(crate) const NOTIFICATIONS_MAX: usize = 64;
/// Tracks that one walk examines in a turn, of which most need nothing.
pub(crate) const TRACKS_MAX: usize = 128;
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
