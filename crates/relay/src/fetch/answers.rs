//! Publishers' answers to fetches of the relay: objects for the cache, and errors for the fetches that wait.

use bytes::Bytes;
use weir_moqt::{
    data::{FetchEntry, FetchObject},
    error::{RequestErrorCode, ResetCode},
    location::Location,
    message::FetchOk,
    session::StreamEnd,
};
use weir_quic::Handle;
use weir_transport::StreamId;

use crate::{
    cache::{Contradiction, Keeper, TrackCache},
    effect::Effect,
    fetch::Serving,
    fetch::upstream_fetch::{Fault, UpstreamFetch},
    fetch::upstream_stream::UpstreamEvent,
    ids::{FetchId, TrackId},
    timers::Timer,
    turn::Turn,
};

impl Serving<'_> {
    /// Handles the FETCH_OK of a publisher.
    pub(crate) fn on_fetch_ok(&mut self, turn: &mut Turn<'_>, id: FetchId, ok: &FetchOk) {
        let Some(upstream) = self.fetches.upstream.get_mut(&id) else {
            return;
        };
        let (track_id, span) = (upstream.track(), *upstream.span());
        if let Some(at) = upstream.take_answer_by() {
            turn.timers.cancel(at, Timer::UnansweredFetch(id.0, id.1));
        }
        upstream.grant(ok.end, ok.end_of_track);
        self.tracks.note_known(track_id);
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        track.on_fetch_ok(ok, &span);
        for reader in self.fetches.served_from(track_id) {
            if let Some(fetch) = self.fetches.served.get_mut(&reader) {
                fetch.note_grant(&span, ok.end, ok.end_of_track);
            }
        }
        self.finish_if_complete(turn, id);
        self.on_cached(turn, track_id);
    }

    /// Handles the beginning of the stream that answers a fetch of the relay.
    pub(crate) fn on_stream(&mut self, turn: &mut Turn<'_>, id: FetchId, stream: StreamId) {
        if let Some(upstream) = self.fetches.upstream.get_mut(&id) {
            upstream.on_stream(UpstreamEvent::Begun(stream));
            self.fetches.streams_received.insert((id.0, stream), id.1);
        } else {
            turn.with_session(id.0, |session, connection| {
                session.stop_data(connection, stream, ResetCode::CANCELLED);
            });
        }
    }

    /// Handles the next entry of such a stream: an object begins, or a range without objects ends.
    pub(crate) fn on_entry(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        stream: StreamId,
        entry: FetchEntry,
    ) {
        let Some(id) = self.fetches.upstream_of(handle, stream) else {
            return;
        };
        if let FetchEntry::Object(object) = &entry
            && self.check_location(turn, id, object).is_err()
        {
            return self.on_fault(turn, id, Fault::Contradiction);
        }
        let taken = self.with_cache(turn, id, |upstream, cache, keeper| {
            upstream.take_entry(cache, keeper, entry)
        });
        match taken {
            Some(Ok(())) => self.after_data(turn, id),
            Some(Err(fault)) => self.on_fault(turn, id, fault),
            None => {}
        }
    }

    /// Checks that an object may exist at its location, and notes the gaps that its properties declare.
    fn check_location(
        &mut self,
        turn: &mut Turn<'_>,
        id: FetchId,
        object: &FetchObject,
    ) -> Result<(), Contradiction> {
        let upstream = self.fetches.upstream.get(&id);
        let Some(track) = upstream.and_then(|upstream| self.tracks.get(upstream.track())) else {
            return Ok(());
        };
        let location = Location::new(object.group, object.object);
        track.admit_fetched(turn, location, &object.properties)
    }

    /// Handles the next bytes of an object's payload on such a stream.
    pub(crate) fn on_payload(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        stream: StreamId,
        data: &Bytes,
    ) {
        let Some(id) = self.fetches.upstream_of(handle, stream) else {
            return;
        };
        let taken = self.with_cache(turn, id, |upstream, cache, keeper| {
            upstream.take_payload(cache, keeper, data)
        });
        match taken {
            Some(Err(fault)) => self.on_fault(turn, id, fault.into()),
            Some(Ok(())) | None => self.after_data(turn, id),
        }
    }

    /// Ends a fetch of the relay whose answer is malformed. If the answer contradicts what is known, the track is
    /// malformed.
    fn on_fault(&mut self, turn: &mut Turn<'_>, id: FetchId, fault: Fault) {
        turn.counters.fetches_malformed += 1;
        let upstream = self.fetches.upstream.get(&id);
        match (fault, upstream) {
            (Fault::Contradiction, Some(upstream)) => {
                turn.push(Effect::Malformed(upstream.track(), id.0));
            }
            (Fault::Contradiction, None) | (Fault::OutOfOrder, _) => {
                self.fail_upstream(turn, id, RequestErrorCode::MALFORMED_TRACK);
            }
        }
    }

    /// Handles the end of such a stream.
    pub(crate) fn on_stream_end(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        stream: StreamId,
        end: StreamEnd,
    ) {
        let ended = self.fetches.streams_received.remove(&(handle, stream));
        let Some(request) = ended else {
            return;
        };
        let id = (handle, request);
        match end {
            StreamEnd::Fin => {
                if let Some(upstream) = self.fetches.upstream.get_mut(&id) {
                    upstream.on_stream(UpstreamEvent::Fin);
                }
                self.finish_if_complete(turn, id);
            }
            StreamEnd::Reset(_) => self.fail_upstream(turn, id, RequestErrorCode::INTERNAL_ERROR),
        }
    }

    /// Handles the end of the request stream of a fetch of the relay. A FIN may overtake the last objects.
    pub(crate) fn on_upstream_closed(&mut self, turn: &mut Turn<'_>, id: FetchId, is_fin: bool) {
        let upstream = self.fetches.upstream.get(&id);
        if !(is_fin && upstream.is_some_and(UpstreamFetch::is_granted)) {
            self.fail_upstream(turn, id, RequestErrorCode::INTERNAL_ERROR);
        }
    }

    /// Repeats a fetch of the relay whose publisher sent GOAWAY for it [moqt-18 §10.4], with this publisher first.
    pub(crate) fn on_upstream_moved(&mut self, turn: &mut Turn<'_>, id: FetchId) {
        if let Some(upstream) = self.fetches.upstream.get_mut(&id) {
            upstream.prefer(id.0);
        }
        self.fail_upstream(turn, id, RequestErrorCode::GOING_AWAY);
    }

    /// Ends all fetches of peers from a track that is malformed by what `publisher` sent, and the relay's own fetches
    /// from that publisher [moqt-18 §2.4.2].
    pub(crate) fn on_malformed(&mut self, turn: &mut Turn<'_>, track: TrackId, publisher: Handle) {
        let code = RequestErrorCode::MALFORMED_TRACK;
        let upstream = self.fetches.upstream_ids(track);
        self.fail_all(turn, track, code);
        for id in upstream.into_iter().filter(|id| id.0 == publisher) {
            self.fail_upstream(turn, id, code);
        }
    }

    /// Ends a fetch of the relay whose answer is complete.
    fn finish_if_complete(&mut self, turn: &mut Turn<'_>, id: FetchId) {
        let upstream = self.fetches.upstream.get(&id);
        if !upstream.is_some_and(UpstreamFetch::is_complete) {
            return;
        }
        self.with_cache(turn, id, |upstream, cache, keeper| {
            upstream.exclude_rest(cache, keeper);
        });
        if let Some(upstream) = self.remove_upstream(turn, id) {
            turn.with_session(id.0, |session, connection| session.forget(connection, id.1));
            self.on_cached(turn, upstream.track());
            turn.push(Effect::Released(upstream.track()));
        }
    }

    /// Ends a fetch of the relay that was refused or broken off with `code`. If no part of it was answered, the next
    /// publisher is asked. Without another publisher, the fetches of peers that wait for it fail with the code.
    pub(crate) fn fail_upstream(
        &mut self,
        turn: &mut Turn<'_>,
        id: FetchId,
        code: RequestErrorCode,
    ) {
        let Some(upstream) = self.remove_upstream(turn, id) else {
            return;
        };
        turn.cancel(id, ResetCode::CANCELLED);
        let track = upstream.track();
        if code == RequestErrorCode::NOT_SUPPORTED && turn.sessions.get(id.0).is_some() {
            self.fetches.note_unsupported(id.0);
        }
        if code == RequestErrorCode::UNSUPPORTED_EXTENSION {
            // Objects that came before the answer are not passed on either [moqt-18 §2.5.1].
            self.tracks.clear_cache(track);
            self.fail_all(turn, track, code);
        }
        let others = upstream.alternatives().to_vec();
        if !self.ask_first(turn, track, *upstream.span(), others) {
            self.note_failure(&upstream, code);
        }
        self.on_cached(turn, track);
        turn.push(Effect::Released(track));
    }

    /// Tells the fetches of peers that wait for a fetch of the relay why it failed.
    fn note_failure(&mut self, upstream: &UpstreamFetch, code: RequestErrorCode) {
        // The relay follows no redirects.
        let code = if code == RequestErrorCode::REDIRECT {
            RequestErrorCode::DOES_NOT_EXIST
        } else {
            code
        };
        for id in self.fetches.waiting_for(upstream.track()) {
            if let Some(fetch) = self.fetches.served.get_mut(&id)
                && fetch.next().is_some_and(|next| upstream.covers(next))
            {
                fetch.note_failure(code);
            }
        }
    }

    /// Serves the fetches of peers that wait for what has arrived. If none of them can take more, the stream is not
    /// read until one can.
    fn after_data(&mut self, turn: &mut Turn<'_>, id: FetchId) {
        let Some(upstream) = self.fetches.upstream.get(&id) else {
            return;
        };
        let track = upstream.track();
        self.on_cached(turn, track);
        if self.fetches.is_awaited(id) {
            return;
        }
        if let Some(upstream) = self.fetches.upstream.get_mut(&id)
            && upstream.on_stream(UpstreamEvent::Unwanted)
            && let Some(stream) = upstream.stream().id()
        {
            turn.with_session(id.0, |session, _| session.pause_data(stream));
        }
    }

    /// Removes a fetch of the relay, with what it holds of an incomplete object.
    pub(super) fn remove_upstream(
        &mut self,
        turn: &mut Turn<'_>,
        id: FetchId,
    ) -> Option<UpstreamFetch> {
        let mut upstream = self.fetches.upstream.remove(&id)?;
        if let Some(at) = upstream.take_answer_by() {
            turn.timers.cancel(at, Timer::UnansweredFetch(id.0, id.1));
        }
        let (account, held) = (upstream.account(), upstream.held_bytes());
        self.tracks.hold_fetched_part(account, held, 0);
        turn.remove_request(id);
        if let Some(stream) = upstream.stream().id() {
            self.fetches.streams_received.remove(&(id.0, stream));
        }
        self.fetches.leave(upstream.track(), id);
        Some(upstream)
    }

    /// Calls a function with a fetch of the relay and the cache that it fills, then keeps the cache within its limits.
    fn with_cache<T>(
        &mut self,
        turn: &mut Turn<'_>,
        id: FetchId,
        act: impl FnOnce(&mut UpstreamFetch, &mut TrackCache, &mut Keeper<'_>) -> T,
    ) -> Option<T> {
        let upstream = self.fetches.upstream.get_mut(&id)?;
        let track = upstream.track();
        self.tracks.with_cache(turn, track, |cache, keeper| {
            let before = upstream.held_bytes();
            let result = act(upstream, cache, keeper);
            let parts = &mut keeper.ledger.fetched_parts;
            parts.hold(upstream.account(), before, upstream.held_bytes());
            result
        })
    }
}
