//! Everything that can wake the relay, in one queue.

use std::{cmp::Reverse, collections::BinaryHeap, time::Instant};

use weir_moqt::session::RequestId;
use weir_quic::Handle;

use crate::tracks::TrackId;

/// What a wake-up is for. Stale ones are harmless: whoever is woken looks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A session's own timers.
    Session(Handle),
    /// A request has waited for a publisher long enough.
    Rendezvous(Handle, RequestId),
    /// A track has been without a publisher long enough.
    Orphaned(TrackId),
    /// The last streams of a track have had time enough to arrive.
    Ending(TrackId),
}

/// Wake-ups in the order of their time.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    queue: BinaryHeap<Reverse<(Instant, Timer)>>,
}

impl Timers {
    pub(crate) fn set(&mut self, at: Instant, timer: Timer) {
        self.queue.push(Reverse((at, timer)));
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.queue.peek().map(|Reverse((at, _))| *at)
    }

    pub(crate) fn expired(&mut self, now: Instant) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        self.queue.pop().map(|Reverse((_, timer))| timer)
    }
}
