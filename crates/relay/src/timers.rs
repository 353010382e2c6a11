//! Everything that can wake the relay, in one queue.

use std::{collections::BTreeSet, time::Instant};

use weir_moqt::session::RequestId;
use weir_quic::Handle;

use crate::tracks::TrackId;

/// What a wake-up is for. Whoever is named here knows when it is due, and cancels it when it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A session's own timers.
    Session(Handle),
    /// A request has waited for a publisher long enough.
    Rendezvous(Handle, RequestId),
    /// A track has been without a publisher long enough.
    Orphaned(TrackId),
    /// The last streams of a publisher have had time enough to arrive.
    Leaving(TrackId),
}

/// Wake-ups in the order of their time; none outlives the one it is for.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    queue: BTreeSet<(Instant, Timer)>,
}

impl Timers {
    pub(crate) fn set(&mut self, at: Instant, timer: Timer) {
        self.queue.insert((at, timer));
    }

    pub(crate) fn cancel(&mut self, at: Instant, timer: Timer) {
        self.queue.remove(&(at, timer));
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.queue.first().map(|&(at, _)| at)
    }

    pub(crate) fn expired(&mut self, now: Instant) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        self.queue.pop_first().map(|(_, timer)| timer)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }
}
