//! Memory that runs out: the cache is cut, then the sessions that hold the most are closed.

use std::{cmp::Reverse, collections::VecDeque, time::Duration};

use weir_moqt::error::SessionError;
use weir_quic::Handle;

use super::Owners;
use crate::{load::Excess, timers::Timer, turn::Turn};

/// The search for the sessions that hold the most, and those of them that are to be closed.
#[derive(Debug, Default)]
pub(super) struct Greedy {
    /// Bytes to free.
    bytes: u64,
    /// Sessions that the search has not come to.
    unseen: VecDeque<Handle>,
    /// Those that hold much, with the bytes.
    found: Vec<(u64, Handle)>,
    /// Those to close, the one that holds the most first.
    closing: VecDeque<(u64, Handle)>,
}

impl Greedy {
    /// Keeps those found that hold the most.
    fn keep_most(&mut self) {
        self.found
            .sort_unstable_by_key(|&(bytes, _)| Reverse(bytes));
        self.found.truncate(CLOSED_AT_ONCE_MAX);
    }

    /// Ends the search: as many are to be closed as it takes.
    fn choose(&mut self) {
        self.keep_most();
        self.closing.clear();
        let mut rest = self.bytes;
        for (bytes, handle) in std::mem::take(&mut self.found) {
            if rest == 0 {
                break;
            }
            rest = rest.saturating_sub(bytes);
            self.closing.push_back((bytes, handle));
        }
    }
}

impl Owners {
    /// Frees memory because the process needs too much: this thread's share of `excess`. The oldest groups of the cache
    /// go first, then the sessions that hold the most, if they may.
    pub(crate) fn free_memory(&mut self, turn: &mut Turn<'_>, excess: Excess) {
        if excess.bytes == 0 {
            return;
        }
        let share = excess
            .bytes
            .div_ceil(u64::from(turn.endpoint.shard().count()));
        let rest = share.saturating_sub(self.tracks.shrink_cache(turn, share));
        if rest == 0 || !excess.closes_sessions {
            return;
        }
        self.greedy.bytes = rest;
        if self.greedy.unseen.is_empty() {
            self.greedy.unseen = turn.sessions.handles().into();
            self.greedy.found.clear();
            self.close_greedy(turn);
        }
    }

    /// Looks for sessions that hold much, some in each turn, and then closes those that hold the most, a few in each turn.
    pub(super) fn close_greedy(&mut self, turn: &mut Turn<'_>) {
        if !self.greedy.unseen.is_empty() {
            self.look_on(turn);
        }
        if self.greedy.unseen.is_empty() {
            self.close_next(turn);
        }
        if !self.greedy.unseen.is_empty() || !self.greedy.closing.is_empty() {
            turn.timers.set(turn.now + PAUSE, Timer::Greedy);
        }
    }

    fn look_on(&mut self, turn: &mut Turn<'_>) {
        for _ in 0..LOOKED_AT_PER_TURN {
            let Some(handle) = self.greedy.unseen.pop_front() else {
                break;
            };
            let bytes = self.held_by(turn, handle);
            if bytes >= HELD_BYTES_MIN {
                self.greedy.found.push((bytes, handle));
            }
        }
        self.greedy.keep_most();
        if self.greedy.unseen.is_empty() {
            self.greedy.choose();
        }
    }

    fn close_next(&mut self, turn: &mut Turn<'_>) {
        for _ in 0..CLOSED_PER_TURN {
            let Some((bytes, handle)) = self.greedy.closing.pop_front() else {
                return;
            };
            if turn.sessions.get(handle).is_none() {
                continue;
            }
            turn.counters.sessions_closed_memory += 1;
            tracing::info!(connection = handle.index(), bytes, "closed: out of memory");
            let reason = "the relay is out of memory, and this session holds the most";
            self.close_session(turn, handle, SessionError::INTERNAL_ERROR, reason);
        }
    }

    /// Returns the bytes that a session keeps in memory, as far as they can be told apart: what it has not read, what it
    /// sent out of order or left incomplete, its requests, and what it publishes.
    fn held_by(&mut self, turn: &mut Turn<'_>, handle: Handle) -> u64 {
        let Some(peer) = turn.sessions.get(handle) else {
            return 0;
        };
        let published: Vec<_> = peer.published().collect();
        let mut bytes = peer.held_bytes() + self.delivery.lag_of(handle);
        bytes += self.tracks.part_bytes(handle) + self.catalogue.held_by(handle);
        for track in published {
            let track = self.tracks.get(track);
            bytes += track.map_or(0, |track| track.properties().as_bytes().len() as u64);
        }
        if let Some(connection) = turn.endpoint.connection(turn.now, handle) {
            let stats = connection.stats();
            bytes += stats.stream_bytes_unsent + stats.stream_bytes_unread;
            bytes += stats.datagram_bytes_waiting as u64;
        }
        bytes
    }
}

/// Bytes from which a session may be closed to free memory. A session that only watches holds a few KiB.
const HELD_BYTES_MIN: u64 = 64 << 10;
/// Sessions that are looked at in one turn.
const LOOKED_AT_PER_TURN: usize = 512;
/// Sessions that are closed before memory is measured again.
const CLOSED_AT_ONCE_MAX: usize = 64;
/// Sessions of those that are closed in one turn. Each may have thousands of requests.
const CLOSED_PER_TURN: usize = 2;
/// The time between two turns that look or close.
const PAUSE: Duration = Duration::from_millis(1);
