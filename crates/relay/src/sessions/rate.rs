//! How often something may happen in a second, and what becomes of sessions that do it more often.

use std::time::{Duration, Instant};

use weir_moqt::{
    error::{RequestErrorCode, SessionError},
    parameter::Parameters,
    session::RequestId,
};
use weir_quic::Handle;

use crate::{dispatch::Owners, turn::Turn};

/// Counts events by the second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rate {
    since: Option<Instant>,
    count: u32,
}

impl Rate {
    /// Takes note of an event; returns whether it is within `max` of its second.
    pub(crate) fn permits(&mut self, now: Instant, max: u32) -> bool {
        let is_same = |since: Instant| now.saturating_duration_since(since) < SECOND;
        if !self.since.is_some_and(is_same) {
            *self = Self {
                since: Some(now),
                count: 0,
            };
        }
        self.count = self.count.saturating_add(1);
        self.count <= max
    }
}

impl Owners {
    /// The peer changes a request, if not too often.
    pub(crate) fn on_update_asked(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        id: RequestId,
        parameters: &Parameters,
    ) {
        let max = turn.config.limits.updates_per_second_max;
        let peer = turn.sessions.get(handle);
        if peer.is_some_and(|peer| peer.is_neighbour || peer.updates.permits(turn.now, max)) {
            return self.on_update(turn, handle, id, parameters);
        }
        turn.counters.updates_refused += 1;
        let code = RequestErrorCode::EXCESSIVE_LOAD;
        self.fail_update(turn, handle, id, code);
    }

    /// The peer reset or stopped a stream; who does nothing else is shown the door.
    pub(crate) fn note_reset(&mut self, turn: &mut Turn<'_>, handle: Handle) {
        let max = turn.config.limits.resets_per_second_max;
        let Some(peer) = turn.sessions.get(handle) else {
            return;
        };
        if !peer.is_neighbour && !peer.resets.permits(turn.now, max) {
            turn.counters.sessions_closed_resets += 1;
            let code = SessionError::INTERNAL_ERROR;
            self.close_session(turn, handle, code, "too many streams were reset");
        }
    }

    /// Streams that the peer reset before it was known what they are for count as well. So do those whose alias nothing
    /// explained: they are not read, and it is not known how they end.
    #[inline]
    pub(crate) fn note_early_resets(&mut self, turn: &mut Turn<'_>, handle: Handle) {
        let Some(peer) = turn.sessions.get(handle) else {
            return;
        };
        let counters = peer.session.counters();
        let unknown = counters.streams_unknown_over_limit + counters.streams_unknown_expired;
        let count = counters.streams_reset_early + unknown;
        for _ in std::mem::replace(&mut peer.resets_early, count)..count {
            self.note_reset(turn, handle);
        }
    }
}

const SECOND: Duration = Duration::from_secs(1);

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
