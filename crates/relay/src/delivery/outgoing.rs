//! What is on its way to one session, over all its subscriptions and fetches.

use std::time::Instant;

use weir_moqt::session::RequestId;
use weir_quic::Connection;
use weir_transport::StreamId;

use super::{
    blocked_streams::{BlockedStreams, Reader},
    deadlines::Deadlines,
    stream::{FanOut, Wait},
    subscription::Subscription,
};
use crate::ids::TrackId;

/// What is on its way to one session.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// Streams that took no more data.
    pub(super) blocked: BlockedStreams,
    /// Streams that have to arrive in time.
    pub(super) deadlines: Deadlines,
    /// Bytes that its subscriptions are behind.
    lag_bytes: u64,
}

impl Outgoing {
    pub(super) fn lag_bytes(&self) -> u64 {
        self.lag_bytes
    }

    /// The timer that is set for its deadlines, which is no longer needed.
    pub(super) fn disarm(&mut self) -> Option<Instant> {
        self.deadlines.disarm()
    }

    /// Takes note of how far one of its subscriptions fell behind or caught up, and holds it to what the session may be
    /// behind in all. Others are not to pay for it, even of the same session.
    pub(super) fn note_lag(
        &mut self,
        subscription: &mut Subscription,
        connection: &mut Connection<'_>,
        fan_out: &mut FanOut<'_>,
    ) {
        self.take_lag(fan_out);
        let max = fan_out.limits.lag_bytes_per_session_max;
        let max = if subscription.is_link {
            // It stands for all sessions behind it.
            max.saturating_mul(LINK_SESSIONS)
        } else {
            max
        };
        if self.lag_bytes > max {
            let others = self.lag_bytes - subscription.behind();
            subscription.shed_beyond(connection, max.saturating_sub(others), fan_out);
            self.take_lag(fan_out);
        }
    }

    fn take_lag(&mut self, fan_out: &mut FanOut<'_>) {
        let change = std::mem::take(&mut fan_out.lag_change);
        self.lag_bytes = self.lag_bytes.saturating_add_signed(change);
    }

    /// Takes note of streams of a subscription that wait for room, or no longer do. Returns how many began to.
    pub(super) fn note_waits(
        &mut self,
        track: TrackId,
        request: RequestId,
        waits: Vec<Wait>,
    ) -> u64 {
        let mut begun = 0;
        for wait in waits {
            match wait {
                Wait::For(stream, rank, id) => {
                    let reader = Reader::Subgroup(track, request, id);
                    begun += u64::from(self.blocked.insert(stream, rank, reader));
                }
                Wait::Over(stream) => drop(self.blocked.remove(stream)),
            }
        }
        begun
    }

    /// Takes a stream off the list of those that wait for room.
    pub(super) fn unblock(&mut self, stream: StreamId) -> Option<(i32, Reader)> {
        self.blocked.remove(stream)
    }
}

/// A link may be behind by as much as so many sessions.
const LINK_SESSIONS: u64 = 16;
