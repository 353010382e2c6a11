//! The data under way to one session, over all its subscriptions and fetches.

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

/// The data under way to one session.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// Streams that are blocked.
    pub(super) blocked: BlockedStreams,
    /// Streams that have to arrive by a deadline.
    pub(super) deadlines: Deadlines,
    /// Bytes that the session's subscriptions have not read.
    lag_bytes: u64,
}

impl Outgoing {
    pub(super) fn lag_bytes(&self) -> u64 {
        self.lag_bytes
    }

    /// Takes the deadline timer, which is to be cancelled.
    pub(super) fn disarm(&mut self) -> Option<Instant> {
        self.deadlines.disarm()
    }

    /// Notes that a subscription fell behind or caught up, and applies the session's limit to this subscription. Other
    /// subscriptions do not lose groups for it.
    pub(super) fn note_lag(
        &mut self,
        subscription: &mut Subscription,
        connection: &mut Connection<'_>,
        fan_out: &mut FanOut<'_>,
    ) {
        self.take_lag(fan_out);
        let max = fan_out.limits.lag_bytes_per_session_max;
        let max = if subscription.kind.is_link() {
            // A link carries the objects of many sessions.
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

    /// Notes which streams of a subscription became blocked or ceased to be. Returns the number that became blocked.
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

    /// Removes a stream from the blocked streams.
    pub(super) fn unblock(&mut self, stream: StreamId) -> Option<(i32, Reader)> {
        self.blocked.remove(stream)
    }
}

/// The lag limit of a link, in sessions.
const LINK_SESSIONS: u64 = 16;
