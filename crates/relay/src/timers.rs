//! Everything that can wake the relay, in one queue.

use std::{collections::BTreeSet, time::Instant};

use weir_moqt::session::RequestId;
use weir_quic::Handle;

use crate::track::table::TrackId;

/// What a wake-up is for. Whoever is named here knows when it is due, and cancels it when it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The relay comes to its end.
    Draining,
    /// A session's own timers.
    Session(Handle),
    /// The authorization of some of a session's requests may be over.
    Expiry(Handle),
    /// A request has waited for a publisher long enough.
    Rendezvous(Handle, RequestId),
    /// A track has been without a publisher long enough.
    Orphaned(TrackId),
    /// The last streams of a publisher have had time enough to arrive.
    Leaving(TrackId),
    /// A fetch has waited for publishers long enough.
    Fill(Handle, RequestId),
    /// A publisher has had time enough to say how a track stands.
    Inquiry(Handle, RequestId),
    /// Some streams of a session may not have arrived in time.
    Delivery(Handle),
    /// The oldest group of the cache may be too old.
    Cache,
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
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tests::{epoch, handles};

    #[test]
    fn wake_ups_come_in_order_and_not_after_they_are_cancelled() {
        let [handle] = handles();
        let at = |start: Instant, secs| start + Duration::from_secs(secs);
        let (start, mut timers) = (epoch(), Timers::default());
        let waits = |request| Timer::Rendezvous(handle, RequestId(request));
        assert_eq!(timers.next(), None);
        for request in [3, 1, 2] {
            timers.set(at(start, request), waits(request));
        }
        timers.set(at(start, 1), waits(1));
        assert_eq!(timers.next(), Some(at(start, 1)));
        assert_eq!(timers.expired(start), None);
        timers.cancel(at(start, 2), waits(2));
        timers.cancel(at(start, 2), waits(3));
        assert_eq!(timers.expired(at(start, 5)), Some(waits(1)));
        assert_eq!(timers.expired(at(start, 5)), Some(waits(3)));
        assert_eq!(timers.expired(at(start, 5)), None);
    }
}
