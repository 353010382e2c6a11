//! What the cache cannot serve: asked for upstream, once for all who wait for it.

use bytes::Bytes;
use weir_moqt::{
    data::{FetchEntry, FetchObject},
    error::{RequestErrorCode, ResetCode},
    location::Location,
    message::{FetchKind, FetchOk},
    parameter::{GroupOrder, Parameters},
    session::StreamEnd,
};
use weir_quic::Handle;
use weir_transport::StreamId;

use crate::{
    cache::{Contradiction, Keeper, Known, Span},
    dispatch::Owners,
    fetch::served::{Fetch, FetchId},
    fetch::upstream_fetch::{Fault, Feeder},
    sessions::peer::Part,
    track::table::TrackId,
    turn::Turn,
};

impl Owners {
    /// Whether an answer is on its way that brings the object at `at`. One that was held up goes on.
    pub(crate) fn is_fed(&mut self, turn: &mut Turn<'_>, fetch: &Fetch, at: Location) -> bool {
        let Some(track) = self.tracks.get(fetch.track) else {
            return false;
        };
        let mut found = None;
        for &id in &track.feeders {
            if let Some(feeder) = self.feeders.get_mut(&id)
                && feeder.span.order == fetch.span.order
                && feeder.covers(at)
            {
                let was_paused = std::mem::take(&mut feeder.is_paused);
                found = Some((id.0, feeder.stream.filter(|_| was_paused)));
                break;
            }
        }
        if let Some((handle, Some(stream))) = found {
            let now = turn.now;
            turn.with_session(handle, |session, connection| {
                session.resume_data(now, connection, stream);
            });
            turn.sessions.settle_later(handle);
        }
        found.is_some()
    }

    /// Asks a publisher for what a fetch is missing: the range from `at` to `last`, and the next few behind it
    /// of which nothing is known. Returns whether somebody was asked.
    pub(crate) fn ask_for(
        &mut self,
        turn: &mut Turn<'_>,
        (handle, _): FetchId,
        fetch: &mut Fetch,
        (at, last): (Location, Location),
    ) -> bool {
        let publishers = self.fetch_publishers(turn, fetch.track, handle);
        let mut next = Some((at, last));
        let mut is_asked = false;
        for _ in 0..ASKED_AHEAD_MAX {
            let Some((first, last)) = next else { break };
            // A range of several descending groups holds all of them.
            let is_descending = fetch.span.order == GroupOrder::Descending;
            let (start, end) = if is_descending && first.group != last.group {
                let (top, bottom) = (first.group, last.group);
                (fetch.span.first_of(bottom), fetch.span.last_of(top))
            } else {
                (first, last)
            };
            let order = fetch.span.order;
            let span = Span { start, end, order };
            if !self.ask_publishers_for(turn, fetch.track, span, publishers.clone()) {
                break;
            }
            is_asked = true;
            let last = span.last();
            fetch.asked = Some(last);
            next = self.next_unknown(fetch, last);
        }
        if !is_asked {
            fetch.asked = Some(last);
        }
        is_asked
    }

    /// The next range behind `last` of which nothing is known.
    fn next_unknown(&mut self, fetch: &Fetch, last: Location) -> Option<(Location, Location)> {
        let track = self.tracks.get(fetch.track)?;
        let mut at = fetch.span.after(last)?;
        for _ in 0..LOOKED_AHEAD_MAX {
            at = match track.cache.look(at, &fetch.span, None) {
                Known::Unknown(last) => {
                    let mut subgroups = track.subgroups.iter();
                    let is_coming = subgroups.any(|subgroup| subgroup.is_arriving(at));
                    return (!is_coming).then_some((at, last));
                }
                Known::Absent(last) => fetch.span.after(last)?,
                Known::Object(_) => fetch.span.after(at)?,
            };
        }
        None
    }

    /// The sessions that may have objects of a track, those that send it first [moqt-18 §9.5].
    fn fetch_publishers(
        &mut self,
        turn: &mut Turn<'_>,
        track_id: TrackId,
        except: Handle,
    ) -> Vec<Handle> {
        let Some(track) = self.tracks.get(track_id) else {
            return Vec::new();
        };
        let namespace = track.name.namespace.clone();
        let sources = track.sources.iter();
        let mut found: Vec<Handle> = sources
            .filter(|source| source.is_established() || source.is_offered())
            .map(|source| source.handle)
            .collect();
        found.extend(self.announcers_of(turn, &namespace));
        let mut publishers = Vec::new();
        let for_neighbour = turn.is_neighbour(except);
        for handle in found {
            let can = turn.sessions.get(handle).is_some_and(|peer| {
                let max = turn.config.limits.fetches_upstream_per_session_max;
                let has_room = peer.is_neighbour || peer.counts.feeders < max;
                let is_passed_on = peer.is_neighbour && for_neighbour;
                let may_be_asked = !peer.declines_fetch && !is_passed_on && handle != except;
                let is_refused = may_be_asked && !has_room;
                turn.counters.fetches_upstream_refused += u64::from(is_refused);
                may_be_asked && has_room
            });
            if can && !publishers.contains(&handle) {
                publishers.push(handle);
            }
        }
        publishers
    }

    fn ask_publishers_for(
        &mut self,
        turn: &mut Turn<'_>,
        track_id: TrackId,
        span: Span,
        mut publishers: Vec<Handle>,
    ) -> bool {
        while !publishers.is_empty() {
            let handle = publishers.remove(0);
            let Some(track) = self.tracks.get(track_id) else {
                return false;
            };
            let kind = FetchKind::Standalone {
                track: track.name.clone(),
                start: span.start,
                end: span.end,
            };
            let parameters = Parameters {
                group_order: Some(span.order),
                ..Parameters::default()
            };
            let request = turn.with_session(handle, |session, connection| {
                session.fetch(connection, kind, parameters)
            });
            let Some(Ok(request)) = request else {
                continue;
            };
            turn.counters.fetches_upstream += 1;
            let id = (handle, request);
            let session = (!turn.is_neighbour(handle)).then_some(handle);
            let feeder = Feeder::new(track_id, session, span, publishers);
            self.feeders.insert(id, feeder);
            if let Some(peer) = turn.sessions.get(handle) {
                peer.insert(request, Part::Feeder(track_id));
            }
            if let Some(track) = self.tracks.get(track_id) {
                track.feeders.insert(id);
            }
            return true;
        }
        false
    }

    /// A publisher grants a fetch of the relay.
    pub(crate) fn on_feeder_granted(&mut self, turn: &mut Turn<'_>, id: FetchId, ok: &FetchOk) {
        let Some(feeder) = self.feeders.get_mut(&id) else {
            return;
        };
        let (track_id, span) = (feeder.track, feeder.span);
        feeder.grant(ok.end, ok.end_of_track);
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        track.is_known = true;
        if !track.is_established() {
            track.properties = ok.properties.clone();
            track.cache.default_priority = ok.properties.publisher_priority();
        }
        if ok.end_of_track {
            track.ends.end_track(ok.end);
        }
        if ok.end < span.end || ok.end_of_track {
            track.cache.largest = track.cache.largest.max(Some(ok.end));
        }
        for reader in &track.readers {
            if let Some(fetch) = self.fetches.get_mut(reader)
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
        if let (Some(feeder), Some(peer)) = (self.feeders.get_mut(&id), turn.sessions.get(id.0)) {
            feeder.stream = Some(stream);
            peer.feeder_streams.insert(stream, id.1);
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
        let Some(id) = turn.feeder_of(handle, stream) else {
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
        let feeder = self.feeders.get(&id);
        let Some(track) = feeder.and_then(|feeder| self.tracks.get(feeder.track)) else {
            return Ok(());
        };
        let location = Location::new(object.group, object.object);
        if !track.ends.gaps.admits(location) {
            return Err(Contradiction);
        }
        let (limits, counters) = (&turn.config.limits, &mut turn.counters);
        track.hear_of_gaps(location, &object.properties, limits, counters)
    }

    /// The next bytes of an object on such a stream.
    pub(crate) fn on_feeder_payload(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        stream: StreamId,
        data: &Bytes,
    ) {
        let Some(id) = turn.feeder_of(handle, stream) else {
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
        let track = self.feeders.get(&id).map(|feeder| feeder.track);
        if let (Fault::Contradiction, Some(track)) = (fault, track) {
            return self.on_malformed(turn, track, id.0);
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
        let Some(id) = turn.feeder_of(handle, stream) else {
            return;
        };
        match end {
            StreamEnd::Fin => {
                if let Some(feeder) = self.feeders.get_mut(&id) {
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
        let feeder = self.feeders.get(&id);
        if !feeder.is_some_and(|feeder| feeder.has_ended && feeder.granted.is_some()) {
            return;
        }
        self.with_feeder(turn, id, |feeder, cache, keeper| {
            feeder.conclude(cache, keeper);
        });
        if let Some(feeder) = self.remove_feeder(turn, id) {
            self.refill(turn, feeder.track);
            self.forget_if_unused(turn, feeder.track);
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
        if code == RequestErrorCode::NOT_SUPPORTED
            && let Some(peer) = turn.sessions.get(id.0)
        {
            peer.declines_fetch = true;
        }
        if code == RequestErrorCode::UNSUPPORTED_EXTENSION {
            // What came before the answer is not passed on either [moqt-18 §2.5.1].
            if let Some(track) = self.tracks.get(feeder.track) {
                track.cache.clear(&mut self.ledger);
            }
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
        if let Some(track) = self.tracks.get(track_id).filter(|_| !is_asked) {
            for reader in &track.hungry {
                if let Some(fetch) = self.fetches.get_mut(reader)
                    && fetch.at.is_some_and(|at| feeder.covers(at))
                {
                    fetch.failure.get_or_insert(code);
                }
            }
        }
        self.refill(turn, track_id);
        self.forget_if_unused(turn, track_id);
    }

    /// Ends the fetches of the relay that nobody waits for any more.
    pub(crate) fn release_feeders(&mut self, turn: &mut Turn<'_>, track_id: TrackId) {
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        let (fetches, feeders) = (&self.fetches, &self.feeders);
        let is_idle = |id: &FetchId| {
            let Some(feeder) = feeders.get(id) else {
                return true;
            };
            let mut readers = track
                .readers
                .iter()
                .filter_map(|reader| fetches.get(reader));
            !readers.any(|fetch| {
                fetch
                    .at
                    .is_some_and(|at| feeder.is_wanted_by(&fetch.span, at))
            })
        };
        let idle: Vec<FetchId> = track.feeders.iter().copied().filter(is_idle).collect();
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
        let Some(feeder) = self.feeders.get(&id) else {
            return;
        };
        let track_id = feeder.track;
        self.refill(turn, track_id);
        let (Some(feeder), Some(track)) = (self.feeders.get(&id), self.tracks.get(track_id)) else {
            return;
        };
        let fetches = &self.fetches;
        let mut hungry = track.hungry.iter().filter_map(|id| fetches.get(id));
        let is_awaited = hungry.any(|fetch| {
            fetch
                .at
                .is_some_and(|at| feeder.is_wanted_by(&fetch.span, at))
        });
        if let Some(stream) = feeder.stream.filter(|_| !is_awaited && !feeder.is_paused) {
            turn.with_session(id.0, |session, _| session.pause_data(stream));
            if let Some(feeder) = self.feeders.get_mut(&id) {
                feeder.is_paused = true;
            }
        }
    }

    fn remove_feeder(&mut self, turn: &mut Turn<'_>, id: FetchId) -> Option<Feeder> {
        let feeder = self.feeders.remove(&id)?;
        let held = feeder.held_bytes();
        self.ledger.fetched_parts.hold(feeder.session, held, 0);
        if let Some(peer) = turn.sessions.get(id.0) {
            peer.remove(id.1);
            if let Some(stream) = feeder.stream {
                peer.feeder_streams.remove(&stream);
            }
        }
        if let Some(track) = self.tracks.get(feeder.track) {
            track.feeders.remove(&id);
        }
        Some(feeder)
    }

    fn with_feeder<T>(
        &mut self,
        turn: &mut Turn<'_>,
        id: FetchId,
        act: impl FnOnce(&mut Feeder, &mut crate::cache::TrackCache, &mut Keeper<'_>) -> T,
    ) -> Option<T> {
        let feeder = self.feeders.get_mut(&id)?;
        let track = self.tracks.get(feeder.track)?;
        let mut keeper = Keeper {
            ledger: &mut self.ledger,
            counters: turn.counters,
            limits: &turn.config.limits,
            track: feeder.track,
            now: turn.now,
        };
        let before = feeder.held_bytes();
        let result = act(feeder, &mut track.cache, &mut keeper);
        let (parts, after) = (&mut self.ledger.fetched_parts, feeder.held_bytes());
        parts.hold(feeder.session, before, after);
        self.tend_cache(turn);
        Some(result)
    }

    /// The publisher of a fetch of the relay ended it. A clean end may overtake the last objects.
    pub(crate) fn on_feeder_closed(&mut self, turn: &mut Turn<'_>, id: FetchId, is_clean: bool) {
        let feeder = self.feeders.get(&id);
        if !(is_clean && feeder.is_some_and(|feeder| feeder.granted.is_some())) {
            self.fail_feeder(turn, id, RequestErrorCode::INTERNAL_ERROR);
        }
    }
}

impl Turn<'_> {
    fn feeder_of(&mut self, handle: Handle, stream: StreamId) -> Option<FetchId> {
        let request = *self.sessions.get(handle)?.feeder_streams.get(&stream)?;
        Some((handle, request))
    }
}

/// How many ranges one fetch asks for at once.
const ASKED_AHEAD_MAX: usize = 4;
/// How many objects and ranges are looked at to find the next one to ask for.
const LOOKED_AHEAD_MAX: usize = 1000;
