//! The order in which blocked streams continue, whether they carry a subgroup or the answer to a fetch.

use std::cmp::Reverse;

use weir_quic::Handle;
use weir_transport::StreamId;

use crate::{delivery::Reader, fetch::Serving, turn::Turn};

impl Serving<'_> {
    /// Continues a blocked stream that has room again. Blocked streams of a higher rank are tried first.
    pub(crate) fn resume_stream(&mut self, turn: &mut Turn<'_>, handle: Handle, stream: StreamId) {
        let Some((rank, own)) = self.delivery.unblock(handle, stream) else {
            return;
        };
        for other in self.delivery.blocked_above(handle, rank) {
            if let Some((_, reader)) = self.delivery.unblock(handle, other) {
                self.resume_reader(turn, handle, reader);
            }
        }
        self.resume_reader(turn, handle, own);
    }

    /// Handles a higher stream limit of the peer: opens streams by rank, and among equal ranks for one subscription
    /// after another.
    pub(crate) fn resume_pending(&mut self, turn: &mut Turn<'_>, handle: Handle) {
        let mut pending = self.delivery.pending_streams(turn, handle);
        let fetches = self.fetches.pending(handle);
        pending.extend(fetches.map(|(rank, id)| (Reverse(rank), Reader::Fetch(id))));
        while !pending.is_empty() {
            pending.sort_unstable();
            // All others of the session wait for nothing, however many streams the peer allows.
            let mut next_round = Vec::new();
            for (_, reader) in pending {
                self.resume_reader(turn, handle, reader);
                let next = self.next_pending(handle, reader);
                if next.is_some_and(|(_, other)| other == reader) {
                    return;
                }
                next_round.extend(next);
            }
            pending = next_round;
        }
    }

    /// Returns what the subscription or the fetch that `reader` belongs to next needs a stream for.
    fn next_pending(&self, handle: Handle, reader: Reader) -> Option<(Reverse<i32>, Reader)> {
        match reader {
            Reader::Subgroup(track, request, _) => {
                self.delivery.pending_stream(handle, (track, request))
            }
            Reader::Fetch(request) => {
                let is_pending = self.fetches.is_pending((handle, request));
                is_pending.then_some((Reverse(0), reader))
            }
        }
    }

    fn resume_reader(&mut self, turn: &mut Turn<'_>, handle: Handle, reader: Reader) {
        match reader {
            Reader::Subgroup(track, request, log) => {
                let what = (track, request, log);
                self.delivery.resume(turn, self.tracks, handle, what);
            }
            Reader::Fetch(request) => self.resume(turn, (handle, request)),
        }
    }
}
