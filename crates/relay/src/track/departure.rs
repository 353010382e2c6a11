//! How the sources of a track go: declined, done, or gone; and what becomes of its subscribers.

use std::time::{Duration, Instant};

use weir_moqt::{
    error::{PublishDoneCode, RequestErrorCode},
    message::{PublishDone, RequestError},
    session::RequestId,
};
use weir_quic::Handle;

use crate::{
    delivery::subscription::Subscriber,
    dispatch::Owners,
    links::peer_threads::is_moved,
    sessions::peer::Part,
    timers::Timer,
    track::table::TrackId,
    track::{Leaving, Origin, Source},
    turn::Turn,
};

impl Owners {
    /// A publisher declined the relay's SUBSCRIBE, or its session had to give it up. The relay does not follow
    /// redirects; to the subscriber the track is simply not there.
    pub(crate) fn on_source_rejected(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        id: RequestId,
        error: &RequestError,
    ) {
        let code = if error.code == RequestErrorCode::REDIRECT {
            RequestErrorCode::DOES_NOT_EXIST
        } else {
            error.code
        };
        if let Some(track_id) = turn.sessions.get(handle).and_then(|peer| peer.source(id)) {
            self.source_gone(turn, track_id, (handle, id), code);
        }
    }

    /// A publisher says that it is done with a track; what it has sent may still be on its way.
    pub(crate) fn on_source_done(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        id: RequestId,
        done: PublishDone,
    ) {
        let Some(track_id) = turn.sessions.get(handle).and_then(|peer| peer.source(id)) else {
            return;
        };
        let until = turn.now + turn.config.limits.done_linger;
        if let Some(track) = self.tracks.get(track_id)
            && let Some(source) = track.source(handle, id)
        {
            source.leaving = Some(Leaving {
                done,
                since: turn.now,
                until,
                stream_bytes: source.stream_bytes,
            });
        }
        self.settle_leaving(turn, track_id);
    }

    /// A publisher ended a request of its own, or the relay's. After its last word that says nothing new.
    pub(crate) fn on_source_closed(
        &mut self,
        turn: &mut Turn<'_>,
        track_id: TrackId,
        who: (Handle, RequestId),
    ) {
        let track = self.tracks.get(track_id);
        let source = track.and_then(|track| track.source(who.0, who.1));
        if source.is_some_and(|source| source.leaving.is_none()) {
            let code = RequestErrorCode::DOES_NOT_EXIST;
            self.source_gone(turn, track_id, who, code);
        }
    }

    /// Lets go of publishers that are done and whose streams have arrived, or had time enough to.
    pub(crate) fn settle_leaving(&mut self, turn: &mut Turn<'_>, track_id: TrackId) {
        let linger = turn.config.limits.done_linger;
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        let mut gone = Vec::new();
        let mut next: Option<Instant> = None;
        let has_datagrams = track.duplicates.has_datagrams();
        let silence = track.sources.iter().find_map(|source| {
            let sender = (source.handle, source.request);
            Some((sender, track.silence_until(sender)?))
        });
        for source in &mut track.sources {
            let (is_complete, is_going_on) = (source.is_complete(), source.streams_open > 0);
            let Some(leaving) = &mut source.leaving else {
                continue;
            };
            if leaving.until <= turn.now
                && is_going_on
                && leaving.stream_bytes < source.stream_bytes
            {
                leaving.stream_bytes = source.stream_bytes;
                leaving.until = turn.now + linger;
            }
            // Nothing of a neighbour is overtaken.
            let grace = if has_datagrams && !source.is_neighbour {
                DATAGRAM_GRACE
            } else {
                Duration::ZERO
            };
            let until = if is_complete {
                leaving.until.min(leaving.since + grace)
            } else {
                leaving.until
            };
            let silence = silence.filter(|(sender, _)| *sender == (source.handle, source.request));
            let until = silence.map_or(until, |(_, silence)| until.max(silence));
            if until <= turn.now {
                turn.counters.publishers_incomplete += u64::from(!is_complete);
                gone.push((source.handle, source.request));
            } else {
                next = Some(next.map_or(until, |next| next.min(until)));
            }
        }
        if track.leaving_at != next {
            if let Some(at) = std::mem::replace(&mut track.leaving_at, next) {
                turn.timers.cancel(at, Timer::Leaving(track_id));
            }
            if let Some(at) = next {
                turn.timers.set(at, Timer::Leaving(track_id));
            }
        }
        for who in gone {
            let code = RequestErrorCode::DOES_NOT_EXIST;
            self.source_gone(turn, track_id, who, code);
        }
    }

    /// The time for the last streams of a publisher is over.
    pub(crate) fn on_leaving(&mut self, turn: &mut Turn<'_>, track_id: TrackId) {
        if let Some(track) = self.tracks.get(track_id) {
            track.leaving_at = None;
            self.settle_leaving(turn, track_id);
        }
    }

    /// A publisher of a track is no more. `code` is for those who wait for its answer.
    pub(crate) fn source_gone(
        &mut self,
        turn: &mut Turn<'_>,
        track_id: TrackId,
        (handle, request): (Handle, RequestId),
        code: RequestErrorCode,
    ) {
        self.cut_streams(turn, handle, request);
        if let Some(peer) = turn.sessions.get(handle) {
            peer.remove(request);
        }
        turn.with_session(handle, |session, connection| {
            session.forget(connection, request);
        });
        self.publish_grown(turn);
        let is_ended = self.is_ended_by(turn, track_id, (handle, request));
        if is_ended && let Some(track) = self.tracks.get(track_id) {
            for other in track.sources.clone() {
                self.cut_streams(turn, other.handle, other.request);
            }
            self.publish_grown(turn);
        }
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        if let Some(source) = track.remove_source(handle, request) {
            if is_ended || !track.is_within_reach() {
                self.after_last_source(turn, track_id, source, code);
            } else if !track.is_fed() {
                track.start_afresh();
            }
        }
        self.dismiss_neighbours(turn, track_id);
        self.forget_if_unused(turn, track_id);
    }

    fn after_last_source(
        &mut self,
        turn: &mut Turn<'_>,
        track_id: TrackId,
        last: Source,
        code: RequestErrorCode,
    ) {
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        let ended = last
            .leaving
            .filter(|leaving| !(last.is_neighbour && is_moved(leaving.done.code)));
        match (ended, last.origin) {
            (Some(leaving), _) => {
                track.start_afresh();
                self.dismiss_subscribers(turn, track_id, &leaving.done, |_| true);
                self.ask_publishers(turn, track_id, None);
            }
            (None, Origin::Published | Origin::Subscribed) => {
                track.start_afresh();
                self.orphan(turn, track_id);
                self.ask_publishers(turn, track_id, Some(last.handle));
            }
            (None, Origin::Asked) => {}
        }
        if self
            .tracks
            .get(track_id)
            .is_some_and(|track| !track.is_asking())
        {
            self.on_publishers_declined(turn, track_id, code);
        }
        self.update_upstream(turn, track_id);
    }

    /// Keeps the subscribers of a track for a while, in case its publisher comes back.
    fn orphan(&mut self, turn: &mut Turn<'_>, track_id: TrackId) {
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        if !track.subscribers.is_empty() && track.orphaned_until.is_none() {
            let until = turn.now + turn.config.limits.publisher_linger;
            track.orphaned_until = Some(until);
            turn.timers.set(until, Timer::Orphaned(track_id));
        }
    }

    /// The publisher did not come back.
    pub(crate) fn on_orphaned(&mut self, turn: &mut Turn<'_>, track_id: TrackId) {
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        track.orphaned_until = None;
        turn.counters.tracks_abandoned += 1;
        let gone = PublishDone {
            code: PublishDoneCode::TRACK_ENDED,
            stream_count: None,
            reason: "the publisher is gone".to_owned(),
        };
        self.dismiss_subscribers(turn, track_id, &gone, |_| true);
        self.update_upstream(turn, track_id);
    }

    /// Ends a track for all those of its subscribers that it is over for: at once for those who have everything, for the others as soon as
    /// their streams are complete [moqt-18 §10.11].
    pub(crate) fn dismiss_subscribers(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        done: &PublishDone,
        is_over: impl Fn(&Subscriber) -> bool,
    ) {
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        let mut drained = Vec::new();
        for subscriber in track.subscribers.iter_mut().filter(|other| is_over(other)) {
            let ending = &mut subscriber.ending;
            ending.get_or_insert_with(|| Box::new(done.clone()));
            if subscriber.is_drained() {
                drained.push((subscriber.handle, subscriber.request));
            }
        }
        for (handle, request) in drained {
            self.dismiss_if_drained(turn, id, handle, request);
        }
        self.forget_if_unused(turn, id);
    }

    /// Sends PUBLISH_DONE to a subscriber whose track has ended, once its streams are complete.
    pub(crate) fn dismiss_if_drained(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        handle: Handle,
        request: RequestId,
    ) {
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        let Ok(place) = track.place(handle, request) else {
            return;
        };
        let subscriber = &mut track.subscribers[place];
        if !subscriber.is_drained() {
            return;
        }
        let Some(done) = subscriber.ending.take() else {
            return;
        };
        let done = PublishDone {
            stream_count: Some(subscriber.streams_opened()),
            ..*done
        };
        track.subscribers.remove(place);
        if let Some(peer) = turn.sessions.get(handle) {
            peer.remove(request);
        }
        turn.with_session(handle, |session, connection| {
            session.publish_done(connection, request, done);
        });
        self.forget_if_unused(turn, id);
    }

    /// Ends a subscription at once, whatever it still waits for; what it has open is reset.
    pub(crate) fn cut_subscriber(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        (handle, request): (Handle, RequestId),
        code: PublishDoneCode,
    ) {
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        let subscriber = track.subscriber(handle, request);
        let Some(streams) = subscriber.map(|subscriber| subscriber.streams_opened()) else {
            let code = match code {
                PublishDoneCode::EXPIRED => RequestErrorCode::EXPIRED_AUTH_TOKEN,
                PublishDoneCode::MALFORMED_TRACK => RequestErrorCode::MALFORMED_TRACK,
                _ => RequestErrorCode::INTERNAL_ERROR,
            };
            self.refuse_waiting(turn, handle, request, code);
            return self.update_upstream(turn, id);
        };
        if let Some(peer) = turn.sessions.get(handle) {
            peer.remove(request);
        }
        self.subscriber_gone(turn, id, handle, request);
        let done = PublishDone {
            code,
            stream_count: Some(streams),
            reason: String::new(),
        };
        turn.with_session(handle, |session, connection| {
            session.publish_done(connection, request, done);
        });
    }

    /// Forgets a track that nobody has to do with any more; if the cache remembers something of it, that stays.
    pub(crate) fn forget_if_unused(&mut self, turn: &mut Turn<'_>, id: TrackId) {
        let Some(track) = self.tracks.get(id).filter(|track| track.is_unused()) else {
            return;
        };
        if let Some(at) = track.orphaned_until.take() {
            turn.timers.cancel(at, Timer::Orphaned(id));
        }
        if let Some(at) = track.leaving_at.take() {
            turn.timers.cancel(at, Timer::Leaving(id));
        }
        if track.cache.is_empty() {
            self.tracks.remove_if_unused(id);
        } else if let Some(oldest) = self.tracks.rest(id, turn.config.limits.tracks_resting_max) {
            turn.counters.tracks_resting_forgotten += 1;
            if let Some(mut track) = self.tracks.remove_if_unused(oldest) {
                track.cache.clear(&mut self.ledger);
            }
        }
    }

    /// The request of `peer` that stood for `part` is over, or the whole session.
    pub(crate) fn part_gone(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        request: RequestId,
        part: Part,
    ) {
        match part {
            Part::Source(track) => {
                let code = RequestErrorCode::DOES_NOT_EXIST;
                self.source_gone(turn, track, (handle, request), code);
            }
            Part::Subscriber(track) => self.subscriber_gone(turn, track, handle, request),
            Part::Namespace(namespace) => {
                if self.namespaces.remove(&namespace, handle) {
                    self.untell_all(turn, &namespace);
                }
                self.withdraw_from_neighbours(turn, &namespace);
            }
            Part::Interest(interest) => self.interest_gone(handle, request, &interest),
            Part::Fetch(_) => self.fetch_gone(turn, (handle, request)),
            Part::Feeder(_) => {
                let code = RequestErrorCode::DOES_NOT_EXIST;
                self.fail_feeder(turn, (handle, request), code);
            }
            Part::Status(asked) => self.asker_gone(turn, asked),
            Part::Inquiry => {
                let code = RequestErrorCode::DOES_NOT_EXIST;
                self.inquiry_gone(turn, (handle, request), code);
            }
        }
    }
}

/// How long datagrams may be overtaken by the last word of their publisher, which does not count them.
const DATAGRAM_GRACE: Duration = Duration::from_millis(200);
