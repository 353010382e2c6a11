//! Rate limits of a session.

use std::time::{Duration, Instant};

use weir_moqt::{error::SessionError, session::RequestId};
use weir_quic::Handle;

use crate::{effect::Effect, sessions::peer::Purpose, turn::Turn};

/// Counts events per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rate {
    since: Option<Instant>,
    count: u32,
}

impl Rate {
    /// Counts an event; returns whether it is within `max` of its second.
    pub(crate) fn permits(&mut self, now: Instant, max: u32) -> bool {
        let is_left = self.is_left(now, max);
        self.note(1);
        is_left
    }

    /// Returns whether fewer than `max` events were counted in this second.
    fn is_left(&mut self, now: Instant, max: u32) -> bool {
        let is_same = |since: Instant| now.saturating_duration_since(since) < SECOND;
        if !self.since.is_some_and(is_same) {
            *self = Self {
                since: Some(now),
                count: 0,
            };
        }
        self.count < max
    }

    fn note(&mut self, count: u32) {
        self.count = self.count.saturating_add(count);
    }
}

impl Turn<'_> {
    /// Returns whether a session may change one of its requests now.
    pub(crate) fn permits_update(&mut self, handle: Handle) -> bool {
        let max = self.config.limits.updates_per_second_max;
        let peer = self.sessions.get(handle);
        let is_permitted =
            peer.is_some_and(|peer| peer.is_link() || peer.updates.permits(self.now, max));
        self.counters.updates_refused += u64::from(!is_permitted);
        is_permitted
    }

    /// Returns whether the matches of one more prefix of a session may be counted now.
    pub(crate) fn may_count_matches(&mut self, handle: Handle) -> bool {
        let peer = self.sessions.get(handle);
        peer.is_some_and(|peer| peer.matches.is_left(self.now, MATCHES_PER_SECOND_MAX))
    }

    /// Notes that matches of prefixes of a session were counted or passed over.
    pub(crate) fn note_matches(&mut self, handle: Handle, count: usize) {
        if let Some(peer) = self.sessions.get(handle) {
            peer.matches.note(u32::try_from(count).unwrap_or(u32::MAX));
        }
    }

    /// Returns the purpose of a request of the relay that the peer asks to move, if the rate limit permits it.
    pub(crate) fn moved_purpose(&mut self, (handle, id): (Handle, RequestId)) -> Option<Purpose> {
        let max = self.config.limits.updates_per_second_max;
        let peer = self.sessions.get(handle)?;
        let purpose = peer.purpose(id).cloned()?;
        if peer.session().is_of_peer(id) {
            return None;
        }
        if !peer.updates.permits(self.now, max) {
            self.counters.updates_refused += 1;
            return None;
        }
        self.counters.requests_renewed += 1;
        Some(purpose)
    }

    /// Counts a stream that the peer reset or stopped, and closes a session that exceeds the limit.
    pub(crate) fn note_reset(&mut self, handle: Handle) {
        let max = self.config.limits.resets_per_second_max;
        let Some(peer) = self.sessions.get(handle) else {
            return;
        };
        if !peer.is_link() && !peer.resets.permits(self.now, max) {
            self.counters.sessions_closed_resets += 1;
            let code = SessionError::INTERNAL_ERROR;
            let reason = "too many streams were reset".to_owned();
            self.push(Effect::CloseSession(handle, code, reason));
        }
    }

    /// Counts the streams that the peer reset before they could be attributed, and streams whose Track Alias stayed
    /// unknown. The latter are not read, so their end is unknown.
    #[inline]
    pub(crate) fn note_early_resets(&mut self, handle: Handle) {
        let Some(peer) = self.sessions.get(handle) else {
            return;
        };
        let counters = peer.session().counters();
        let unknown = counters.streams_unknown_over_limit + counters.streams_unknown_expired;
        let count = counters.streams_reset_early + unknown;
        for _ in std::mem::replace(&mut peer.resets_early, count)..count {
            self.note_reset(handle);
        }
    }
}

const SECOND: Duration = Duration::from_secs(1);
/// Matches of prefixes that are counted for one session in a second: those of sixteen prefixes of the largest size.
const MATCHES_PER_SECOND_MAX: u32 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::epoch;

    #[test]
    fn so_many_in_a_second_and_not_one_more() {
        let (start, mut rate) = (epoch(), Rate::default());
        for _ in 0..3 {
            assert!(rate.permits(start, 3));
        }
        assert!(!rate.permits(start + Duration::from_millis(999), 3));
        assert!(rate.permits(start + SECOND, 3));
        assert!(!Rate::default().permits(start, 0));
    }
}
