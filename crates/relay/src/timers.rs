//! All wake-ups of the relay, in one queue.

use std::{collections::BTreeSet, time::Instant};

use weir_moqt::session::RequestId;
use weir_quic::Handle;

use crate::{ids::TrackId, registry::RelayId};

/// The purpose of a wake-up. Its object knows when the wake-up is due, and cancels it when it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The next step of the drain.
    Draining,
    /// A session's own timers.
    Session(Handle),
    /// The authorization of some of a session's requests may have expired.
    Expiry(Handle),
    /// The time of a request to wait for a publisher is over.
    Rendezvous(Handle, RequestId),
    /// The time of a track without a publisher is over.
    Orphaned(TrackId),
    /// The time for the last streams of a publisher is over.
    Leaving(TrackId),
    /// Answers of publishers to SUBSCRIBE for a track are overdue.
    Unanswered(TrackId),
    /// The answer of a publisher to a FETCH of the relay is overdue.
    UnansweredFetch(Handle, RequestId),
    /// The time of a fetch to wait for publishers is over.
    Fill(Handle, RequestId),
    /// The time of a publisher to answer a session's TRACK_STATUS is over.
    TrackStatus(Handle, RequestId),
    /// The deadline of some streams of a session may have passed.
    Delivery(Handle),
    /// The next attempt to connect to an upstream relay is due.
    Upstream(usize),
    /// A link that was replaced can be closed.
    LinkReplaced(usize),
    /// The registry of the fleet is asked for events.
    Registry,
    /// Links to relays of the fleet that are no longer needed are closed.
    FleetLinks,
    /// A link to a relay of the fleet should be established by now.
    FleetLinkSlow(RelayId),
    /// The publisher's relay is asked again for a track, after a redirect that led nowhere.
    Redirected(TrackId),
    /// Links may be asked again to wait for a track.
    Awaited(TrackId),
    /// An upstream relay is asked whether requests return to this relay.
    Ring(usize),
    /// Namespaces that other relays had time to confirm are reviewed.
    Interests,
    /// Subscriptions to prefixes at other relays are sent again, or more of them may end.
    InterestsRefused,
    /// The oldest group of the cache may have expired.
    Cache,
    /// A session whose tokens were verified may have more of them verified.
    Verifying(Handle),
    /// More sessions are to be judged by rules that have changed.
    Judge,
    /// More requests of sessions that are gone are to be ended.
    Ending,
    /// More sessions that hold much are to be closed, because memory runs out.
    Greedy,
    /// Subgroups that subscribers have released are to be trimmed.
    Trim,
    /// A fetch continues that paused for the sake of others.
    Fetch(Handle, RequestId),
    /// Announcements and questions continue that are made in pieces.
    Walks,
    /// Streams that a session has stopped in this turn are to be given up.
    Stopped(Handle),
    /// A session has allowed more streams in this turn.
    Streams(Handle),
    /// A session without rights has to have made a permitted request.
    Unauthorized(Handle),
    /// The next check of whether a publisher's session still receives packets.
    Silence(Handle),
}

/// Wake-ups ordered by time.
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

    /// Returns the number of wake-ups.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
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
