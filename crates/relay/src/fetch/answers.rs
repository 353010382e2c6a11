//! What publishers answer to fetches of the relay: taken into the cache, and told to who waits for it.

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
    cache::{Contradiction, Keeper},
    effect::Effect,
    fetch::Serving,
    fetch::upstream_fetch::{Fault, Feeder},
    ids::FetchId,
    ids::TrackId,
    turn::Turn,
};

impl Serving<'_> {
    /// A publisher grants a fetch of the relay.
    pub(crate) fn on_feeder_granted(&mut self, turn: &mut Turn<'_>, id: FetchId, ok: &FetchOk) {
        let Some(feeder) = self.fetches.upstream.get_mut(&id) else {
            return;
        };
        let (track_id, span) = (feeder.track, feeder.span);
        feeder.grant(ok.end, ok.end_of_track);
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        track.on_fetch_ok(ok, &span);
        for reader in self.fetches.served_from(track_id) {
            if let Some(fetch) = self.fetches.served.get_mut(&reader)
                && !fetch.is_end_known
                && fetch.joins.is_none()
                && span.contains(fetch.span.end)
            {
                if ok.end < fetch.span.start {
                    fetch.failure = Some(RequestErrorCode::INVALID_RANGE);
                } else {
                    fetch.set_end(ok.end, ok.end_of_track);
                }
            }
        }
        self.settle_feeder(turn, id);
        self.refill(turn, track_id);
    }

    /// The stream that answers a fetch of the relay begins.
    pub(crate) fn on_feeder_stream(&mut self, turn: &mut Turn<'_>, id: FetchId, stream: StreamId) {
        if let Some(feeder) = self.fetches.upstream.get_mut(&id) {
            feeder.stream = Some(stream);
            self.fetches.streams_received.insert((id.0, stream), id.1);
        } else {
            turn.with_session(id.0, |session, connection| {
                session.stop_data(connection, stream, ResetCode::CANCELLED);
            });
        }
    }

    /// An object begins on such a stream, or a range is over.
    pub(crate) fn on_feeder_entry(
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
            && self.hear_fetched(turn, id, object).is_err()
        {
            return self.on_faulty(turn, id, Fault::Contradiction);
        }
        let taken = self.with_feeder(turn, id, |feeder, cache, keeper| {
            feeder.take_entry(cache, keeper, entry)
        });
        match taken {
            Some(Ok(())) => self.after_feeding(turn, id),
            Some(Err(fault)) => self.on_faulty(turn, id, fault),
            None => {}
        }
    }

    /// Looks whether an object may lie where it does, and takes note of the gaps that it tells of.
    fn hear_fetched(
        &mut self,
        turn: &mut Turn<'_>,
        id: FetchId,
        object: &FetchObject,
    ) -> Result<(), Contradiction> {
        let feeder = self.fetches.upstream.get(&id);
        let Some(track) = feeder.and_then(|feeder| self.tracks.get(feeder.track)) else {
            return Ok(());
        };
        let location = Location::new(object.group, object.object);
        track.admit_fetched(turn, location, &object.properties)
    }

    /// The next bytes of an object on such a stream.
    pub(crate) fn on_feeder_payload(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        stream: StreamId,
        data: &Bytes,
    ) {
        let Some(id) = self.fetches.upstream_of(handle, stream) else {
            return;
        };
        let taken = self.with_feeder(turn, id, |feeder, cache, keeper| {
            feeder.take_payload(cache, keeper, data)
        });
        match taken {
            Some(Err(fault)) => self.on_faulty(turn, id, fault.into()),
            Some(Ok(())) | None => self.after_feeding(turn, id),
        }
    }

    /// An answer is not what it has to be.
    fn on_faulty(&mut self, turn: &mut Turn<'_>, id: FetchId, fault: Fault) {
        turn.counters.fetches_malformed += 1;
        let track = self.fetches.upstream.get(&id).map(|feeder| feeder.track);
        if let (Fault::Contradiction, Some(track)) = (fault, track) {
            return turn.push(Effect::Malformed(track, id.0));
        }
        self.fail_feeder(turn, id, RequestErrorCode::MALFORMED_TRACK);
    }

    /// Such a stream is over.
    pub(crate) fn on_feeder_end(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        stream: StreamId,
        end: StreamEnd,
    ) {
        let Some(id) = self.fetches.upstream_of(handle, stream) else {
            return;
        };
        match end {
            StreamEnd::Fin => {
                if let Some(feeder) = self.fetches.upstream.get_mut(&id) {
                    feeder.has_ended = true;
                }
                self.settle_feeder(turn, id);
            }
            StreamEnd::Reset(_) => {
                self.fail_feeder(turn, id, RequestErrorCode::INTERNAL_ERROR);
            }
        }
    }

    /// Ends a fetch of the relay that is complete.
    fn settle_feeder(&mut self, turn: &mut Turn<'_>, id: FetchId) {
        let feeder = self.fetches.upstream.get(&id);
        if !feeder.is_some_and(|feeder| feeder.has_ended && feeder.granted.is_some()) {
            return;
        }
        self.with_feeder(turn, id, |feeder, cache, keeper| {
            feeder.conclude(cache, keeper);
        });
        if let Some(feeder) = self.remove_feeder(turn, id) {
            self.refill(turn, feeder.track);
            turn.push(Effect::Released(feeder.track));
        }
    }

    /// A publisher has no answer to a fetch of the relay: another one is asked for the rest, if there is one.
    pub(crate) fn fail_feeder(&mut self, turn: &mut Turn<'_>, id: FetchId, code: RequestErrorCode) {
        let Some(feeder) = self.remove_feeder(turn, id) else {
            return;
        };
        turn.with_session(id.0, |session, connection| {
            session.cancel(connection, id.1, ResetCode::CANCELLED);
        });
        if code == RequestErrorCode::NOT_SUPPORTED && turn.sessions.get(id.0).is_some() {
            self.fetches.unsupporting.insert(id.0);
        }
        if code == RequestErrorCode::UNSUPPORTED_EXTENSION {
            // What came before the answer is not passed on either [moqt-18 §2.5.1].
            self.tracks.clear_cache(feeder.track);
            self.cut_fetches(turn, feeder.track, code);
        }
        let code = if code == RequestErrorCode::REDIRECT {
            RequestErrorCode::DOES_NOT_EXIST
        } else {
            code
        };
        let track_id = feeder.track;
        let is_asked = feeder.at == Some(feeder.span.first())
            && self.ask_publishers_for(turn, track_id, feeder.span, feeder.others.clone());
        if !is_asked {
            for reader in self.fetches.waiting_for(track_id) {
                if let Some(fetch) = self.fetches.served.get_mut(&reader)
                    && fetch.at.is_some_and(|at| feeder.covers(at))
                {
                    fetch.failure.get_or_insert(code);
                }
            }
        }
        self.refill(turn, track_id);
        turn.push(Effect::Released(track_id));
    }

    /// A track was found malformed by what `publisher` sent: its fetches end, and the relay fetches nothing more of it
    /// from there [moqt-18 §2.4.2].
    pub(crate) fn on_malformed(&mut self, turn: &mut Turn<'_>, track: TrackId, publisher: Handle) {
        let code = RequestErrorCode::MALFORMED_TRACK;
        let upstream = self.fetches.upstream_ids(track);
        self.cut_fetches(turn, track, code);
        for id in upstream.into_iter().filter(|id| id.0 == publisher) {
            self.fail_feeder(turn, id, code);
        }
    }

    /// A publisher wants a fetch of the relay moved [moqt-18 §10.4]: it is asked again first.
    pub(crate) fn on_upstream_moved(&mut self, turn: &mut Turn<'_>, id: FetchId) {
        if let Some(feeder) = self.fetches.upstream.get_mut(&id) {
            feeder.others.insert(0, id.0);
        }
        self.fail_feeder(turn, id, RequestErrorCode::GOING_AWAY);
    }

    /// Ends the fetches of the relay that nobody waits for any more.
    pub(crate) fn release_feeders(&mut self, turn: &mut Turn<'_>, track_id: TrackId) {
        let fetches = &*self.fetches;
        let is_idle = |id: &FetchId| {
            let upstream = fetches.upstream.get(id);
            !upstream.is_some_and(|upstream| fetches.is_wanted(upstream, |track| &track.served))
        };
        let mut idle = fetches.upstream_ids(track_id);
        idle.retain(is_idle);
        for id in idle {
            self.remove_feeder(turn, id);
            turn.with_session(id.0, |session, connection| {
                session.cancel(connection, id.1, ResetCode::CANCELLED);
            });
        }
    }

    /// Something has come for those who wait. If none of them waits any more, for their connections are full, the
    /// stream is not read until one does.
    fn after_feeding(&mut self, turn: &mut Turn<'_>, id: FetchId) {
        let Some(feeder) = self.fetches.upstream.get(&id) else {
            return;
        };
        let track_id = feeder.track;
        self.refill(turn, track_id);
        let Some(feeder) = self.fetches.upstream.get(&id) else {
            return;
        };
        let is_awaited = self.fetches.is_wanted(feeder, |track| &track.waiting);
        if let Some(stream) = feeder.stream.filter(|_| !is_awaited && !feeder.is_paused) {
            turn.with_session(id.0, |session, _| session.pause_data(stream));
            if let Some(feeder) = self.fetches.upstream.get_mut(&id) {
                feeder.is_paused = true;
            }
        }
    }

    fn remove_feeder(&mut self, turn: &mut Turn<'_>, id: FetchId) -> Option<Feeder> {
        let feeder = self.fetches.upstream.remove(&id)?;
        let held = feeder.held_bytes();
        self.tracks.hold_fetched_part(feeder.session, held, 0);
        if let Some(peer) = turn.sessions.get(id.0) {
            peer.remove(id.1);
        }
        if let Some(stream) = feeder.stream {
            self.fetches.streams_received.remove(&(id.0, stream));
        }
        self.leave(feeder.track, id);
        Some(feeder)
    }

    fn with_feeder<T>(
        &mut self,
        turn: &mut Turn<'_>,
        id: FetchId,
        act: impl FnOnce(&mut Feeder, &mut crate::cache::TrackCache, &mut Keeper<'_>) -> T,
    ) -> Option<T> {
        let feeder = self.fetches.upstream.get_mut(&id)?;
        let track = feeder.track;
        self.tracks.with_cache(turn, track, |cache, keeper| {
            let before = feeder.held_bytes();
            let result = act(feeder, cache, keeper);
            let parts = &mut keeper.ledger.fetched_parts;
            parts.hold(feeder.session, before, feeder.held_bytes());
            result
        })
    }

    /// The publisher of a fetch of the relay ended it. A clean end may overtake the last objects.
    pub(crate) fn on_feeder_closed(&mut self, turn: &mut Turn<'_>, id: FetchId, is_clean: bool) {
        let feeder = self.fetches.upstream.get(&id);
        if !(is_clean && feeder.is_some_and(|feeder| feeder.granted.is_some())) {
            self.fail_feeder(turn, id, RequestErrorCode::INTERNAL_ERROR);
        }
    }
}
