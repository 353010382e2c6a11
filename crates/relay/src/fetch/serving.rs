//! FETCH: what peers ask for of the past, served from the cache as fast as they take it.

use std::time::Instant;

use weir_moqt::{
    error::{RequestErrorCode, ResetCode},
    location::Location,
    message::{Fetch as FetchMessage, FetchKind, FetchOk},
    parameter::Parameters,
    session::RequestId,
};
use weir_quic::Handle;
use weir_transport::{StreamId, Transport as _};

use crate::{
    cache::{Known, Span},
    delivery::Reader,
    effect::Effect,
    fetch::Serving,
    fetch::served_fetch::{Fetch, Written},
    ids::FetchId,
    ids::TrackId,
    timers::Timer,
    track::Track,
    turn::Turn,
};

/// How a fetch goes on.
enum Step {
    /// It has to wait: for publishers, or for its connection.
    Rest,
    /// It is complete.
    Over,
    /// It cannot be served.
    Failed(RequestErrorCode),
    /// The peer wants no more.
    Unwanted,
}

/// What to do about objects of which nothing is known.
enum Gap {
    Wait,
    /// They stay unknown.
    Pass,
    /// The end of the fetch has changed with it.
    Again,
    Fail(RequestErrorCode),
}

impl Serving<'_> {
    /// A session asks for objects of the past.
    pub(crate) fn on_fetch(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        id: RequestId,
        message: &FetchMessage,
    ) {
        let limits = &turn.config.limits;
        let Some(peer) = turn.sessions.get(handle) else {
            return;
        };
        if !peer.is_link() && peer.counts.fetches >= limits.fetches_per_session_max {
            turn.counters.refused_limit_fetches += 1;
            return turn.refuse(handle, id, RequestErrorCode::EXCESSIVE_LOAD);
        }
        let draft = peer.session.draft();
        let track_id = match self.fetched_track(turn, handle, &message.kind) {
            Ok(track_id) => track_id,
            Err(code @ RequestErrorCode::EXCESSIVE_LOAD) => {
                turn.counters.refused_limit_tracks += 1;
                return turn.refuse(handle, id, code);
            }
            Err(code) => return turn.refuse_fetch(handle, id, code),
        };
        let parameters = &message.parameters;
        let (start, end) = match &message.kind {
            FetchKind::Standalone { start, end, .. } => (*start, *end),
            // Until the subscription says what it is.
            FetchKind::RelativeJoining { .. } | FetchKind::AbsoluteJoining { .. } => {
                (Location::ZERO, Location::ZERO)
            }
        };
        if end < start {
            turn.push(Effect::Released(track_id));
            let code = RequestErrorCode::INVALID_RANGE;
            return turn.refuse_fetch(handle, id, code);
        }
        let order = parameters.group_order.unwrap_or_default();
        let span = Span { start, end, order };
        let longest = turn.config.limits.fill_max;
        let budget = parameters.fill_timeout.unwrap_or(longest).min(longest);
        let mut fetch = Fetch::new(draft, track_id, span, parameters, budget);
        if let &FetchKind::RelativeJoining { request_id, .. }
        | &FetchKind::AbsoluteJoining { request_id, .. } = &message.kind
        {
            fetch.joins = Some(message.kind.clone());
            let has_tokens = !parameters.authorization_tokens.is_empty();
            fetch.stands_with = (!has_tokens).then_some(RequestId(request_id));
        }
        self.insert_served(turn.sessions, (handle, id), Box::new(fetch));
        self.start_fetch(turn, (handle, id));
    }

    /// Sends what there is of a fetch, as far as its connection takes it.
    pub(crate) fn serve_fetch(&mut self, turn: &mut Turn<'_>, id: FetchId) {
        let Some(mut fetch) = self.fetches.served.remove(&id) else {
            return;
        };
        let (handle, request) = id;
        if let Some(until) = fetch.wake(turn.now) {
            turn.timers.cancel(until, Timer::Fill(handle, request));
        }
        self.fetches.end_wait(fetch.track, id);
        match self.advance_fetch(turn, id, &mut fetch) {
            Step::Rest => {
                if let Some(stream) = fetch.full_stream() {
                    let (rank, reader) = (fetch.rank(), Reader::Fetch(request));
                    let is_new = self.delivery.block(handle, stream, rank, reader);
                    turn.counters.streams_waited += u64::from(is_new);
                }
                if let Some(stream) = fetch.stream() {
                    self.fetches.streams_sent.insert((handle, stream), request);
                }
                self.fetches.served.insert(id, fetch);
            }
            Step::Over => {
                turn.counters.fetches_served += 1;
                turn.with_session(handle, |session, connection| {
                    session.finish(connection, request);
                });
                self.drop_fetch(turn, id, &fetch);
            }
            Step::Failed(code) => self.fail_fetch(turn, id, &fetch, code),
            Step::Unwanted => self.cancel_fetch(turn, id, &fetch),
        }
    }

    fn advance_fetch(&mut self, turn: &mut Turn<'_>, id: FetchId, fetch: &mut Fetch) -> Step {
        if !fetch.is_answered && self.is_unheard_of(fetch.track) && self.rest(turn, id, fetch) {
            return Step::Rest;
        }
        loop {
            if fetch.is_end_known && !fetch.is_answered && fetch.has_entries() {
                self.answer_fetch(turn, id, fetch);
            }
            let is_last = fetch.at.is_none();
            if is_last && !fetch.is_answered {
                self.answer_fetch(turn, id, fetch);
            }
            let Some(mut connection) = turn.endpoint.connection(turn.now, id.0) else {
                return Step::Unwanted;
            };
            match fetch.write(id.1, &mut connection, is_last) {
                Written::All if is_last => return Step::Over,
                Written::All => {}
                Written::Full => return Step::Rest,
                Written::Gone => return Step::Unwanted,
            }
            let (Some(at), Some(track)) = (fetch.at, self.tracks.get(fetch.track)) else {
                continue;
            };
            let track_priority = track.properties().publisher_priority();
            let oldest = oldest(turn.now, turn.config.limits.cache_age_max, track);
            match track.cache().look(at, &fetch.span, oldest) {
                Known::Object(entry) => {
                    let (object, payload) = entry.fetched(at.group, track_priority);
                    turn.counters.fetch_objects_sent += 1;
                    fetch.push_object(object, payload);
                }
                Known::Absent(last) => fetch.skip_absent(last),
                Known::Unknown(last) => match self.on_unknown(turn, id, fetch, (at, last)) {
                    Gap::Wait => return Step::Rest,
                    Gap::Again => {}
                    Gap::Pass => {
                        turn.counters.fetch_ranges_unknown += 1;
                        fetch.skip_unknown(last);
                    }
                    Gap::Fail(code) => return Step::Failed(code),
                },
            }
        }
    }

    /// Whether nobody has said yet what track this is. Objects in answer to a fetch of the relay may come before that, and
    /// cannot be passed on: the track may be one that has to be understood [moqt-18 §2.5.1].
    fn is_unheard_of(&mut self, id: TrackId) -> bool {
        if self.tracks.get(id).is_none_or(|track| track.is_known()) {
            return false;
        }
        let mut feeders = self.fetches.upstream_for(id);
        feeders.any(|feeder| feeder.granted.is_none())
    }

    /// Lets a fetch wait for what comes into the cache; returns whether it has time to.
    fn rest(&mut self, turn: &mut Turn<'_>, id: FetchId, fetch: &mut Fetch) -> bool {
        let Some(until) = fetch.wait(turn.now) else {
            return false;
        };
        turn.timers.set(until, Timer::Fill(id.0, id.1));
        self.fetches.begin_wait(fetch.track, id);
        true
    }

    /// A fetch has come to objects of which nothing is known: waits for them if they are coming, asks a publisher for
    /// them, or goes on without them [moqt-18 §9.1, §10.2.5].
    fn on_unknown(
        &mut self,
        turn: &mut Turn<'_>,
        id: FetchId,
        fetch: &mut Fetch,
        (at, last): (Location, Location),
    ) -> Gap {
        let Some(track) = self.tracks.get(fetch.track) else {
            return Gap::Fail(RequestErrorCode::DOES_NOT_EXIST);
        };
        let mut subgroups = track.subgroups().iter();
        let is_coming =
            subgroups.any(|subgroup| subgroup.is_arriving(at)) || self.is_fed(turn, fetch, at);
        let is_new = fetch.asked.is_none_or(|to| fetch.span.is_before(to, at));
        if fetch.has_time()
            && (is_coming || is_new && self.ask_for(turn, id, fetch, (at, last)))
            && self.rest(turn, id, fetch)
        {
            return Gap::Wait;
        }
        let Some(track) = self.tracks.get(fetch.track) else {
            return Gap::Fail(RequestErrorCode::DOES_NOT_EXIST);
        };
        let failure = fetch.failure;
        if !fetch.is_end_known {
            return match track.known_end() {
                Some((end, is_final)) if end >= fetch.span.start => {
                    fetch.set_end(end, is_final);
                    Gap::Again
                }
                Some(_) => Gap::Fail(failure.unwrap_or(RequestErrorCode::INVALID_RANGE)),
                None if fetch.has_time() => {
                    Gap::Fail(failure.unwrap_or(RequestErrorCode::DOES_NOT_EXIST))
                }
                None => Gap::Fail(failure.unwrap_or(RequestErrorCode::TIMEOUT)),
            };
        }
        match failure {
            Some(code) if !fetch.is_answered && fetch.span.after(last).is_none() => Gap::Fail(code),
            Some(_) | None => Gap::Pass,
        }
    }

    fn answer_fetch(&mut self, turn: &mut Turn<'_>, (handle, request): FetchId, fetch: &mut Fetch) {
        let Some(track) = self.tracks.get(fetch.track) else {
            return;
        };
        let ok = FetchOk {
            end_of_track: fetch.is_end_of_track,
            end: fetch.span.end,
            parameters: Parameters::default(),
            properties: track.properties().clone(),
        };
        fetch.is_answered = true;
        turn.with_session(handle, |session, connection| {
            session.fetch_ok(connection, request, ok);
        });
    }

    /// A fetch cannot be served: its peer is told, if it was told nothing else.
    pub(super) fn fail_fetch(
        &mut self,
        turn: &mut Turn<'_>,
        id: FetchId,
        fetch: &Fetch,
        code: RequestErrorCode,
    ) {
        if fetch.is_answered {
            return self.cancel_fetch(turn, id, fetch);
        }
        reset(turn, id.0, fetch, ResetCode::UNKNOWN_OBJECT_STATUS);
        turn.refuse_fetch(id.0, id.1, code);
        self.drop_fetch(turn, id, fetch);
    }

    /// A fetch is over before it is complete.
    fn cancel_fetch(&mut self, turn: &mut Turn<'_>, id: FetchId, fetch: &Fetch) {
        reset(turn, id.0, fetch, ResetCode::CANCELLED);
        turn.with_session(id.0, |session, connection| {
            session.cancel(connection, id.1, ResetCode::CANCELLED);
        });
        self.drop_fetch(turn, id, fetch);
    }

    /// Ends all fetches of a track that may not be passed on.
    pub(crate) fn cut_fetches(
        &mut self,
        turn: &mut Turn<'_>,
        track: TrackId,
        code: RequestErrorCode,
    ) {
        let reset_code = match code {
            RequestErrorCode::MALFORMED_TRACK => ResetCode::MALFORMED_TRACK,
            _ => ResetCode::CANCELLED,
        };
        for id in self.fetches.served_from(track) {
            let Some(mut fetch) = self.fetches.served.remove(&id) else {
                continue;
            };
            if let Some(until) = fetch.wake(turn.now) {
                turn.timers.cancel(until, Timer::Fill(id.0, id.1));
            }
            reset(turn, id.0, &fetch, reset_code);
            if fetch.is_answered {
                turn.with_session(id.0, |session, connection| {
                    session.cancel(connection, id.1, reset_code);
                });
            } else {
                turn.refuse_fetch(id.0, id.1, code);
            }
            self.drop_fetch(turn, id, &fetch);
        }
    }

    /// Forgets a fetch that is over.
    fn drop_fetch(&mut self, turn: &mut Turn<'_>, id: FetchId, fetch: &Fetch) {
        let (handle, request) = id;
        if let Some(peer) = turn.sessions.get(handle) {
            peer.remove(request);
        }
        if let Some(stream) = fetch.stream() {
            self.delivery.unblock(handle, stream);
            self.fetches.streams_sent.remove(&(handle, stream));
        }
        self.leave(fetch.track, id);
        self.release_feeders(turn, fetch.track);
        turn.push(Effect::Released(fetch.track));
    }

    /// The peer ended its FETCH, or is gone itself.
    pub(crate) fn fetch_gone(&mut self, turn: &mut Turn<'_>, id: FetchId) {
        if let Some(mut fetch) = self.fetches.served.remove(&id) {
            if let Some(until) = fetch.wake(turn.now) {
                turn.timers.cancel(until, Timer::Fill(id.0, id.1));
            }
            turn.counters.fetches_cancelled += 1;
            self.cancel_fetch(turn, id, &fetch);
        }
    }

    /// The peer wants no more of the stream of a fetch; returns whether it is one.
    pub(crate) fn stop_fetch(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        stream: StreamId,
    ) -> bool {
        let Some(&request) = self.fetches.streams_sent.get(&(handle, stream)) else {
            return false;
        };
        self.fetch_gone(turn, (handle, request));
        true
    }

    /// The peer changes one of its requests: of a FETCH only the priority can be.
    pub(crate) fn update_fetch(
        &mut self,
        turn: &mut Turn<'_>,
        id: FetchId,
        parameters: &Parameters,
    ) {
        let Some(fetch) = self.fetches.served.get_mut(&id) else {
            return;
        };
        if let Some(priority) = parameters.subscriber_priority {
            fetch.set_priority(priority);
        }
        if let (Some(stream), Some(mut connection)) =
            (fetch.stream(), turn.endpoint.connection(turn.now, id.0))
        {
            connection.set_priority(stream, fetch.rank());
        }
        if let Some(stream) = fetch.full_stream() {
            let reader = Reader::Fetch(id.1);
            self.delivery.block(id.0, stream, fetch.rank(), reader);
        }
    }

    /// The connection takes more of a fetch, or another stream.
    pub(crate) fn resume_fetch(&mut self, turn: &mut Turn<'_>, id: FetchId) {
        if let Some(fetch) = self.fetches.served.get_mut(&id) {
            fetch.resume();
            self.serve_fetch(turn, id);
        }
    }

    /// A fetch has waited for publishers long enough: what is missing stays unknown [moqt-18 §10.2.5].
    pub(crate) fn on_fill_over(&mut self, turn: &mut Turn<'_>, id: FetchId) {
        turn.counters.fetches_waited_out += 1;
        self.serve_fetch(turn, id);
    }

    /// Something was added to the cache, or will not come: the fetches that wait for it look again.
    pub(crate) fn refill(&mut self, turn: &mut Turn<'_>, track_id: TrackId) {
        for id in self.fetches.take_waiting(track_id) {
            self.serve_fetch(turn, id);
        }
    }
}

impl Turn<'_> {
    pub(super) fn refuse_fetch(&mut self, handle: Handle, id: RequestId, code: RequestErrorCode) {
        let counters = &mut *self.counters;
        let count = match code {
            RequestErrorCode::DOES_NOT_EXIST => &mut counters.refused_does_not_exist,
            RequestErrorCode::INVALID_RANGE => &mut counters.refused_range,
            RequestErrorCode::INVALID_JOINING_REQUEST_ID => &mut counters.refused_joining,
            _ => &mut counters.fetches_failed,
        };
        *count += 1;
        self.refuse(handle, id, code);
    }
}

/// When objects must have come to be served [moqt-18 §12.3].
fn oldest(now: Instant, age_max: std::time::Duration, track: &Track) -> Option<Instant> {
    let duration = track.properties().max_cache_duration();
    now.checked_sub(duration.map_or(age_max, |duration| duration.min(age_max)))
}

/// Resets the stream of a fetch, if one is open.
fn reset(turn: &mut Turn<'_>, handle: Handle, fetch: &Fetch, code: ResetCode) {
    if let Some(mut connection) = turn.endpoint.connection(turn.now, handle)
        && let Some(stream) = fetch.stream()
    {
        connection.reset(stream, code.0);
    }
}
