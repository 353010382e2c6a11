//! What ends: requests, publishers and tracks, and sessions that the relay closes because they lost their rights or hold
//! too much memory.

use std::{collections::VecDeque, time::Duration};

use weir_moqt::{
    error::{PublishDoneCode, RequestErrorCode, ResetCode, SessionError},
    message::PublishDone,
    session::RequestId,
};
use weir_quic::Handle;

use super::Owners;
use crate::{
    catalogue::TrackStatusEvent,
    delivery::Scope,
    effect::Effect,
    ids::{PublisherId, RequestKey, TrackId},
    links::is_moved,
    load::Excess,
    sessions::peer::Purpose,
    timers::Timer,
    track::{Publisher, Track},
    turn::Turn,
};

impl Owners {
    /// Ends requests of a session that is gone.
    pub(super) fn end_later(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        requests: VecDeque<(RequestId, Purpose)>,
    ) {
        self.ending.push_back((handle, requests));
        if self.ending.len() == 1 {
            self.end_requests(turn);
        }
    }

    /// Ends requests of sessions that are gone, some in each turn: a session may have thousands.
    pub(super) fn end_requests(&mut self, turn: &mut Turn<'_>) {
        let mut left = ENDED_PER_TURN;
        while left > 0
            && let Some((handle, requests)) = self.ending.front_mut()
        {
            let handle = *handle;
            if let Some((request, purpose)) = requests.pop_front() {
                left = left.saturating_sub(self.work_to_end((handle, request), &purpose));
                self.on_ended(turn, (handle, request), purpose);
            } else {
                self.fetches.forget_session(handle);
                self.ending.pop_front();
            }
        }
        self.publish_grown(turn);
        if !self.ending.is_empty() {
            turn.timers.set(turn.now + CLOSING_PAUSE, Timer::Ending);
        }
    }

    /// Returns how many requests a request counts as when it ends.
    fn work_to_end(&self, (handle, id): PublisherId, purpose: &Purpose) -> usize {
        match purpose {
            Purpose::Subscriber(track) => {
                1 + self.delivery.streams_of((*track, handle, id)) / STREAMS_ENDED_FOR_ONE
            }
            Purpose::Source(track) => {
                let (subscriptions, waiting) = self.delivery.lens(*track);
                1 + subscriptions + waiting
            }
            Purpose::Namespace(namespace) => {
                ENDED_FOR_NAMESPACE + self.catalogue.watchers_of(namespace)
            }
            Purpose::Prefix(_)
            | Purpose::Fetch(_)
            | Purpose::UpstreamFetch(_)
            | Purpose::TrackStatus
            | Purpose::UpstreamTrackStatus(_)
            | Purpose::UpstreamPrefix
            | Purpose::Announcement
            | Purpose::RingProbe
            | Purpose::AwaitsLink => 1,
        }
    }

    /// Handles the end of a request or of a whole session.
    pub(super) fn on_ended(
        &mut self,
        turn: &mut Turn<'_>,
        (handle, id): (Handle, RequestId),
        purpose: Purpose,
    ) {
        let code = RequestErrorCode::DOES_NOT_EXIST;
        match purpose {
            Purpose::Source(track) => self.on_publisher_gone(turn, track, (handle, id), code),
            Purpose::Subscriber(track) => {
                let who = (track, handle, id);
                self.delivery.on_unsubscribed(turn, &mut self.tracks, who);
            }
            Purpose::Namespace(namespace) => {
                self.catalogue.withdraw(turn, handle, &namespace);
            }
            Purpose::Prefix(_) => self.catalogue.on_prefix_closed(turn, (handle, id)),
            Purpose::UpstreamPrefix => self.linking().on_interest_closed(turn, (handle, id)),
            Purpose::Announcement | Purpose::RingProbe => {}
            Purpose::AwaitsLink => self.links.forget_parked((handle, id)),
            Purpose::Fetch(_) => self.serving().cancel(turn, (handle, id)),
            Purpose::UpstreamFetch(_) => self.serving().fail_upstream(turn, (handle, id), code),
            Purpose::TrackStatus => {
                let event = TrackStatusEvent::Cancelled;
                self.catalogue
                    .on_track_status_event(turn, (handle, id), event);
            }
            Purpose::UpstreamTrackStatus(requester) => {
                let event = TrackStatusEvent::UpstreamClosed;
                self.catalogue.on_track_status_event(turn, requester, event);
            }
        }
    }

    /// Handles the loss of a publisher of a track. `code` is for requests that wait for its answer.
    pub(super) fn on_publisher_gone(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        publisher: PublisherId,
        code: RequestErrorCode,
    ) {
        let is_end = self.tracks.cut_publisher(turn, id, publisher);
        self.publish_grown(turn);
        if let Some(gone) = self.tracks.remove_publisher(id, publisher, is_end)
            && gone.is_last
        {
            self.after_last_publisher(turn, id, &gone.publisher, code);
        } else {
            self.linking().on_declined(turn, id, publisher.0);
        }
        self.linking().withdraw_unpublished(turn, id);
        self.linking().end_unserved(turn, id);
        turn.push(Effect::Released(id));
    }

    fn after_last_publisher(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        last: &Publisher,
        code: RequestErrorCode,
    ) {
        let done = last.done();
        if let Some(done) = done.filter(|done| !(last.is_link() && is_moved(done.code))) {
            self.tracks.restart(id);
            self.delivery.end(turn, id, Scope::All, done);
            self.linking().ask_publishers(turn, id, None);
        } else if last.was_established() {
            self.tracks.restart(id);
            if self.delivery.has_lasting(id) {
                self.tracks.orphan(turn, id);
            }
            self.linking()
                .ask_publishers(turn, id, Some(last.session()));
            self.linking().ask_fallback(turn, id, None);
        } else {
            self.linking().ask_fallback(turn, id, Some(last.session()));
        }
        let is_asking = |track: &mut Track| track.is_asking();
        if !self.tracks.get(id).is_none_or(is_asking) && !self.links.awaits(id) {
            self.delivery.on_publishers_declined(turn, id, code);
        }
        turn.push(Effect::DemandChanged(id));
    }

    /// Handles a track that is malformed by what `publisher` sent. Its subscriptions and fetches end at once, and
    /// nothing more of the track is accepted from the publisher [moqt-18 §2.4.2].
    pub(super) fn on_malformed(&mut self, turn: &mut Turn<'_>, id: TrackId, publisher: Handle) {
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        turn.counters.tracks_malformed += 1;
        tracing::debug!(track = %track.name(), connection = publisher.index(), "malformed");
        let publishers = self.tracks.publishers_of(id);
        let code = PublishDoneCode::MALFORMED_TRACK;
        self.delivery.cut_all(turn, &mut self.tracks, id, code);
        let code = RequestErrorCode::MALFORMED_TRACK;
        self.serving().on_malformed(turn, id, publisher);
        for gone in publishers.iter().filter(|it| it.session() == publisher) {
            let (handle, request) = gone.id();
            turn.cancel((handle, request), ResetCode::MALFORMED_TRACK);
            self.on_publisher_gone(turn, id, gone.id(), code);
        }
        self.publish_grown(turn);
    }

    /// Forgets a track without publishers, subscribers and fetches.
    pub(super) fn forget_if_unused(&mut self, turn: &mut Turn<'_>, id: TrackId) {
        if self.delivery.is_unused(id) && self.fetches.is_unused(id) {
            self.links.forget_track(id);
            self.delivery.forget_track(id);
            self.tracks.forget_if_unused(turn, id);
        }
    }

    /// Closes a session from this side.
    pub(super) fn close_session(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        code: SessionError,
        reason: &str,
    ) {
        turn.with_session(handle, |session, connection| {
            session.close(connection, code, reason);
        });
        self.on_lost(turn, handle, reason);
    }

    /// Handles the expiry timer of a session: ends requests that have expired, some in each turn.
    pub(super) fn on_expiry(&mut self, turn: &mut Turn<'_>, handle: Handle) {
        turn.clear_expiry_timer(handle);
        // The end of one request may end others. Those are not revoked, since they were told why they end.
        let mut left = EXPIRED_PER_TURN;
        while left > 0
            && let Some(id) = turn.pop_expired(handle)
        {
            let purpose = turn.purpose((handle, id));
            let work = purpose.map_or(1, |purpose| self.work_to_end((handle, id), &purpose));
            left = left.saturating_sub(work);
            self.expire(turn, (handle, id));
            self.carry_effects(turn);
        }
        if left == 0 {
            turn.endpoint.note_enough();
        }
        turn.set_expiry_timer(handle, turn.now + CLOSING_PAUSE);
    }

    /// Ends a request whose authorization has expired.
    fn expire(&mut self, turn: &mut Turn<'_>, id: PublisherId) {
        turn.counters.requests_expired += 1;
        self.revoke(turn, id);
    }

    /// Ends a request that is not permitted any longer.
    fn revoke(&mut self, turn: &mut Turn<'_>, (handle, id): PublisherId) {
        if let Some(Purpose::Subscriber(track)) = turn.purpose((handle, id)) {
            let who = (track, handle, id);
            let code = PublishDoneCode::EXPIRED;
            return self.delivery.cut(turn, &mut self.tracks, who, code);
        }
        turn.cancel((handle, id), ResetCode::EXPIRED_AUTH_TOKEN);
        if let Some(purpose) = turn.remove_request((handle, id)) {
            self.on_ended(turn, (handle, id), purpose);
        }
        self.publish_grown(turn);
    }

    /// Handles a track whose publisher did not come back in time.
    pub(super) fn on_orphaned(&mut self, turn: &mut Turn<'_>, id: TrackId) {
        self.tracks.on_orphaned(turn, id);
        let gone = PublishDone::new(PublishDoneCode::TRACK_ENDED, "the publisher is gone");
        self.delivery.end(turn, id, Scope::All, &gone);
        turn.push(Effect::DemandChanged(id));
    }

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
        let may_close = rest > 0 && excess.closes_sessions;
        if may_close && self.greedy.begin(rest, || turn.sessions.handles()) {
            self.close_greedy(turn);
        }
    }

    /// Looks for sessions that hold much, some in each turn, and then closes those that hold the most, a few in each turn.
    pub(super) fn close_greedy(&mut self, turn: &mut Turn<'_>) {
        if self.greedy.is_searching() {
            let sessions = &*turn.sessions;
            let next = self.greedy.next_unseen(|it| sessions.requests_of(it));
            let held: Vec<_> = next
                .into_iter()
                .map(|it| (self.held_by(turn, it), it))
                .collect();
            self.greedy.note(held);
        }
        for _ in 0..CLOSED_PER_TURN {
            let next = (!self.greedy.is_searching())
                .then(|| self.greedy.next_to_close())
                .flatten();
            let Some((bytes, handle)) = next else {
                break;
            };
            if turn.sessions.get(handle).is_none() {
                continue;
            }
            turn.counters.sessions_closed_memory += 1;
            tracing::info!(connection = handle.index(), bytes, "closed: out of memory");
            let reason = "the relay is out of memory, and this session holds the most";
            self.close_session(turn, handle, SessionError::INTERNAL_ERROR, reason);
        }
        if !self.greedy.is_idle() {
            turn.timers.set(turn.now + CLOSING_PAUSE, Timer::Greedy);
        }
    }

    /// Returns the bytes that a session keeps in memory, as far as they can be told apart: what it has not read, what it
    /// sent out of order or left incomplete, its requests, and what it publishes.
    fn held_by(&mut self, turn: &mut Turn<'_>, handle: Handle) -> u64 {
        let Some(peer) = turn.sessions.get(handle) else {
            return 0;
        };
        let (published, named): (Vec<_>, Vec<_>) =
            (peer.published().collect(), peer.named().collect());
        let mut bytes = peer.held_bytes() + self.delivery.lag_of(handle);
        bytes += self.tracks.part_bytes(handle) + self.catalogue.held_by(handle);
        for track in published {
            let track = self.tracks.get(track);
            bytes += track.map_or(0, |track| track.properties().as_bytes().len() as u64);
        }
        for track in named {
            let track = self.tracks.get(track);
            bytes += track.map_or(0, |track| track.name_bytes() as u64);
        }
        if let Some(connection) = turn.endpoint.connection(turn.now, handle) {
            let stats = connection.stats();
            bytes += stats.stream_bytes_unsent + stats.stream_bytes_unread;
            bytes += stats.datagram_bytes_waiting as u64;
        }
        bytes
    }

    /// Judges some sessions and requests by rules that have changed.
    pub(super) fn on_judge(&mut self, turn: &mut Turn<'_>) {
        let mut left = JUDGED_PER_TURN;
        while left > 0
            && let Some((handle, request)) = turn.next_to_judge()
        {
            let before = turn.tokens_verified(handle);
            let work = if let Some(id) = request {
                self.judge_request(turn, (handle, id))
            } else {
                self.judge_session(turn, handle)
            };
            let tokens = turn.tokens_verified(handle).saturating_sub(before);
            left = left.saturating_sub(work + tokens * JUDGED_FOR_TOKEN);
            self.carry_effects(turn);
        }
        turn.judge_later();
    }

    fn judge_session(&mut self, turn: &mut Turn<'_>, handle: Handle) -> usize {
        if let Err(denial) = turn.judge_session(handle) {
            turn.counters.sessions_revoked += 1;
            let (code, reason) = (denial.session_error(), denial.to_string());
            turn.log_ended_session(handle, code, &reason);
            self.close_session(turn, handle, code, &reason);
            JUDGED_PER_TURN
        } else {
            turn.judge_requests_of(handle);
            JUDGED_FOR_SESSION
        }
    }

    /// Judges a request, and ends it if it is not permitted any longer. Returns how much work that was.
    fn judge_request(&mut self, turn: &mut Turn<'_>, (handle, id): RequestKey) -> usize {
        let Some(subject) = self.subject(turn, (handle, id)) else {
            return 1;
        };
        let is_asked = turn.sessions.get(handle).is_some_and(|peer| {
            let is_source = matches!(peer.purpose(id), Some(Purpose::Source(_)));
            is_source && !peer.session().is_of_peer(id)
        });
        let is_over = if is_asked {
            turn.sessions.judging.is_lost(&subject.namespace)
        } else {
            !turn.is_still_permitted((handle, id), &subject)
        };
        let purpose = turn.purpose((handle, id)).filter(|_| is_over);
        let Some(purpose) = purpose else {
            return 1;
        };
        let work = self.work_to_end((handle, id), &purpose);
        if let Purpose::Namespace(namespace) = purpose {
            turn.sessions.judging.note_lost(namespace);
        }
        turn.counters.requests_revoked += 1;
        self.revoke(turn, (handle, id));
        work
    }
}

/// Sessions that hold much that are closed in one turn. Each may have thousands of requests.
const CLOSED_PER_TURN: usize = 2;
/// Requests of sessions that are gone that are ended in one turn.
const ENDED_PER_TURN: usize = 512;
/// Requests that a withdrawn namespace counts as, beside those who subscribe to its prefix and are notified.
const ENDED_FOR_NAMESPACE: usize = 32;
/// Streams of a subscription that count as a further request when it ends.
const STREAMS_ENDED_FOR_ONE: usize = 8;
/// Requests of a session that are ended in one turn because they have expired. Their subscribers are told.
const EXPIRED_PER_TURN: usize = 128;
/// The time between two turns that close sessions or end requests.
const CLOSING_PAUSE: Duration = Duration::from_millis(1);
/// Requests that are judged in one turn.
const JUDGED_PER_TURN: usize = 256;
/// Requests that a session counts as, of which the requests are listed.
const JUDGED_FOR_SESSION: usize = 32;
/// Requests that the verification of a token counts as.
const JUDGED_FOR_TOKEN: usize = 32;
