//! Sessions that the relay closes, since they lost their rights or hold too much memory, publishers that do not answer or
//! do not come back, and streams that peers stop.

use weir_moqt::{
    error::{PublishDoneCode, SessionError},
    message::PublishDone,
};
use weir_quic::Handle;
use weir_transport::StreamId;

use super::Owners;
use crate::{
    delivery::Scope,
    effect::Effect,
    ids::TrackId,
    sessions::peer::Purpose,
    track::{Publisher, Track},
    turn::Turn,
};

impl Owners {
    /// Handles `STOP_SENDING` of a stream.
    pub(super) fn on_stopped(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        stream: StreamId,
        code: u64,
    ) {
        let now = turn.now;
        let is_control = turn.with_session(handle, |session, connection| {
            session.handle_stopped(now, connection, stream, code)
        });
        match is_control {
            Some(true) => self.process_session(turn, handle),
            Some(false) => {
                if self.serving().on_stopped(turn, handle, stream) {
                    turn.counters.streams_stopped += 1;
                } else {
                    self.delivery.note_stopped(turn, handle, stream);
                }
                turn.note_reset(handle);
            }
            None => {}
        }
    }

    /// Handles the time at which answers of publishers are due. The requests of subscribers wait on.
    pub(super) fn on_unanswered(&mut self, turn: &mut Turn<'_>, id: TrackId) {
        let overdue = self.tracks.take_overdue(turn, id);
        for publisher in &overdue {
            turn.note_unresponsive(publisher.session());
        }
        let is_missing = |track: &mut Track| !track.is_established();
        if overdue.is_empty() || !self.tracks.get(id).is_some_and(is_missing) {
            return;
        }
        self.ask_publishers(turn, id, None);
        let link = overdue.iter().rfind(|publisher| publisher.is_link());
        self.ask_fallback(turn, id, link.map(Publisher::session));
    }

    /// Handles a track whose publisher did not come back in time.
    pub(super) fn on_orphaned(&mut self, turn: &mut Turn<'_>, id: TrackId) {
        self.tracks.on_orphaned(turn, id);
        let gone = PublishDone::new(PublishDoneCode::TRACK_ENDED, "the publisher is gone");
        self.delivery.end(turn, id, Scope::All, &gone);
        turn.push(Effect::DemandChanged(id));
    }

    /// Frees memory because the process has given out too much: this thread's share of `excess` bytes. The oldest groups
    /// of the cache go first, then the sessions that hold the most.
    pub(crate) fn free_memory(&mut self, turn: &mut Turn<'_>, excess: u64) {
        if excess == 0 {
            return;
        }
        let share = excess.div_ceil(u64::from(turn.endpoint.shard().count()));
        let mut rest = share.saturating_sub(self.tracks.shrink_cache(turn, share));
        if rest == 0 {
            return;
        }
        let mut held = Vec::new();
        for handle in turn.sessions.handles() {
            let bytes = self.held_by(turn, handle);
            if bytes >= HELD_BYTES_MIN {
                held.push((bytes, handle));
            }
        }
        held.sort_unstable_by_key(|&(bytes, _)| std::cmp::Reverse(bytes));
        for (bytes, handle) in held.into_iter().take(CLOSED_AT_ONCE_MAX) {
            if rest == 0 {
                return;
            }
            rest = rest.saturating_sub(bytes);
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

    /// Judges some sessions by rules that have changed: closes those without rights, and ends the requests that are not
    /// permitted any longer.
    pub(super) fn on_judge(&mut self, turn: &mut Turn<'_>) {
        for handle in turn.take_unjudged() {
            if let Err(denial) = turn.judge_session(handle) {
                turn.counters.sessions_revoked += 1;
                let reason = denial.to_string();
                self.close_session(turn, handle, denial.session_error(), &reason);
            } else {
                self.judge_requests(turn, handle);
            }
            self.carry_effects(turn);
        }
    }

    fn judge_requests(&mut self, turn: &mut Turn<'_>, handle: Handle) {
        let Some(peer) = turn.sessions.get(handle) else {
            return;
        };
        // Requests of the relay have no tokens. Offers have those of the request that asked for offers; tracks that the
        // relay asked for end with the announcement of their namespace.
        let mut requests: Vec<_> = peer.requests().collect();
        requests.sort_by_key(|&id| !peer.session().is_of_peer(id));
        let mut revoked = Vec::new();
        for id in requests {
            let Some(subject) = self.subject(turn, (handle, id)) else {
                continue;
            };
            let is_asked = turn.sessions.get(handle).is_some_and(|peer| {
                let is_source = matches!(peer.purpose(id), Some(Purpose::Source(_)));
                is_source && !peer.session().is_of_peer(id)
            });
            let is_over = if is_asked {
                revoked.iter().any(|it| subject.namespace.starts_with(it))
            } else {
                !turn.is_still_permitted((handle, id), &subject)
            };
            if !is_over {
                continue;
            }
            if let Some(Purpose::Namespace(namespace)) = turn.purpose((handle, id)) {
                revoked.push(namespace);
            }
            turn.counters.requests_revoked += 1;
            self.revoke(turn, (handle, id));
            self.carry_effects(turn);
        }
    }
}

/// Bytes from which a session may be closed to free memory. A session that only watches holds a few KiB.
const HELD_BYTES_MIN: u64 = 64 << 10;
/// Sessions that are closed before memory is measured again.
const CLOSED_AT_ONCE_MAX: usize = 64;
