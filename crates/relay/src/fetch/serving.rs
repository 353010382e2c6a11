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
    delivery::blocked_streams::Reader,
    dispatch::Owners,
    fetch::served::{Fetch, FetchId, Written},
    sessions::peer::Part,
    timers::Timer,
    track::Track,
    track::table::TrackId,
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

impl Owners {
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
        if !peer.is_neighbour && peer.counts.fetches >= limits.fetches_per_session_max {
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
            self.forget_if_unused(turn, track_id);
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
        if let (Some(peer), Some(track)) = (turn.sessions.get(handle), self.tracks.get(track_id)) {
            peer.insert(id, Part::Fetch(track_id));
            track.readers.insert((handle, id));
        }
        self.fetches.insert((handle, id), Box::new(fetch));
        self.start_fetch(turn, (handle, id));
    }

    /// The track that a FETCH is for.
    fn fetched_track(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        kind: &FetchKind,
    ) -> Result<TrackId, RequestErrorCode> {
        match kind {
            FetchKind::Standalone { track, .. } => {
                let max = turn.config.limits.tracks_max;
                let track = self.tracks.find_or_create(track, max);
                track.ok_or(RequestErrorCode::EXCESSIVE_LOAD)
            }
            &FetchKind::RelativeJoining { request_id, .. }
            | &FetchKind::AbsoluteJoining { request_id, .. } => {
                let peer = turn.sessions.get(handle);
                let part = peer.and_then(|peer| peer.requests.get(&RequestId(request_id)));
                match part {
                    Some(&Part::Subscriber(track)) => Ok(track),
                    Some(_) | None => Err(RequestErrorCode::INVALID_JOINING_REQUEST_ID),
                }
            }
        }
    }

    /// Finds out which range a fetch covers, as far as that can be known, and begins to serve it.
    fn start_fetch(&mut self, turn: &mut Turn<'_>, id: FetchId) {
        let Some(mut fetch) = self.fetches.remove(&id) else {
            return;
        };
        match self.range_of(turn, id.0, &mut fetch) {
            Ok(true) => {
                self.fetches.insert(id, fetch);
                self.serve_fetch(turn, id);
            }
            Ok(false) => drop(self.fetches.insert(id, fetch)),
            Err(code) => self.fail_fetch(turn, id, &fetch, code),
        }
    }

    /// Settles the range of a fetch; false if its subscription is not established yet.
    fn range_of(
        &mut self,
        _turn: &mut Turn<'_>,
        handle: Handle,
        fetch: &mut Fetch,
    ) -> Result<bool, RequestErrorCode> {
        let Some(track) = self.tracks.get(fetch.track) else {
            return Err(RequestErrorCode::DOES_NOT_EXIST);
        };
        let Some(kind) = fetch.joins.take() else {
            return match track.known_end() {
                _ if !track.is_live() => {
                    if let Some((end, is_final)) = track.known_end()
                        && (is_final || fetch.span.end <= end)
                        && fetch.span.start <= end
                    {
                        fetch.set_end(end, is_final);
                    }
                    Ok(true)
                }
                Some((end, is_final)) if fetch.span.start <= end => {
                    fetch.set_end(end, is_final);
                    Ok(true)
                }
                Some(_) | None => Err(RequestErrorCode::INVALID_RANGE),
            };
        };
        let (request_id, groups) = match kind {
            FetchKind::RelativeJoining { request_id, groups } => (request_id, Ok(groups)),
            FetchKind::AbsoluteJoining { request_id, group } => (request_id, Err(group)),
            FetchKind::Standalone { .. } => return Ok(true),
        };
        let request = RequestId(request_id);
        let mut waiting = track.waiting.iter();
        if let Some(waiting) = waiting.find(|waiting| waiting.is_of(handle, request)) {
            if waiting.parameters.forward == Some(false) {
                return Err(RequestErrorCode::INVALID_RANGE);
            }
            fetch.joins = Some(kind);
            return Ok(false);
        }
        let Some(subscriber) = track.subscriber(handle, request) else {
            return Err(RequestErrorCode::INVALID_JOINING_REQUEST_ID);
        };
        let joining = subscriber.joining.filter(|_| subscriber.forward);
        let joining = joining.ok_or(RequestErrorCode::INVALID_RANGE)?;
        let group = match groups {
            Ok(groups) => joining.group.saturating_sub(groups),
            Err(group) => group,
        };
        let start = Location::new(group, 0);
        if start > joining {
            return Err(RequestErrorCode::INVALID_RANGE);
        }
        fetch.set_range(start, joining);
        Ok(true)
    }

    /// Subscriptions of a track were established or refused: the fetches that join them go on, or end.
    pub(crate) fn settle_joins(&mut self, turn: &mut Turn<'_>, track_id: TrackId) {
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        for id in track.readers.clone() {
            if self.fetches.get(&id).is_some_and(|f| f.joins.is_some()) {
                self.start_fetch(turn, id);
            }
        }
    }

    /// Sends what there is of a fetch, as far as its connection takes it.
    pub(crate) fn serve_fetch(&mut self, turn: &mut Turn<'_>, id: FetchId) {
        let Some(mut fetch) = self.fetches.remove(&id) else {
            return;
        };
        let (handle, request) = id;
        if let Some(until) = fetch.wake(turn.now) {
            turn.timers.cancel(until, Timer::Fill(handle, request));
        }
        if let Some(track) = self.tracks.get(fetch.track) {
            track.hungry.remove(&id);
        }
        match self.advance_fetch(turn, id, &mut fetch) {
            Step::Rest => {
                if let (Some(stream), Some(peer)) = (fetch.full_stream(), turn.sessions.get(handle))
                {
                    let is_new = peer
                        .full
                        .insert(stream, fetch.rank(), Reader::Fetch(request));
                    turn.counters.streams_waited += u64::from(is_new);
                }
                if let (Some(stream), Some(peer)) = (fetch.stream(), turn.sessions.get(handle)) {
                    peer.fetch_streams.insert(stream, request);
                }
                self.fetches.insert(id, fetch);
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
            let track_priority = track.properties.publisher_priority();
            let oldest = oldest(turn.now, turn.config.limits.cache_age_max, track);
            match track.cache.look(at, &fetch.span, oldest) {
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
        let Some(track) = self.tracks.get(id).filter(|track| !track.is_known) else {
            return false;
        };
        let mut feeders = track.feeders.iter().filter_map(|id| self.feeders.get(id));
        feeders.any(|feeder| feeder.granted.is_none())
    }

    /// Lets a fetch wait for what comes into the cache; returns whether it has time to.
    fn rest(&mut self, turn: &mut Turn<'_>, id: FetchId, fetch: &mut Fetch) -> bool {
        let Some(until) = fetch.wait(turn.now) else {
            return false;
        };
        turn.timers.set(until, Timer::Fill(id.0, id.1));
        if let Some(track) = self.tracks.get(fetch.track) {
            track.hungry.insert(id);
        }
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
        let mut subgroups = track.subgroups.iter();
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
            properties: track.properties.clone(),
        };
        fetch.is_answered = true;
        turn.with_session(handle, |session, connection| {
            session.fetch_ok(connection, request, ok);
        });
    }

    /// A fetch cannot be served: its peer is told, if it was told nothing else.
    fn fail_fetch(
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
        let readers = self.tracks.get(track).map(|track| track.readers.clone());
        for id in readers.into_iter().flatten() {
            let Some(mut fetch) = self.fetches.remove(&id) else {
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
            if let Some(stream) = fetch.stream() {
                peer.full.remove(stream);
                peer.fetch_streams.remove(&stream);
            }
        }
        if let Some(track) = self.tracks.get(fetch.track) {
            track.readers.remove(&id);
            track.hungry.remove(&id);
        }
        self.release_feeders(turn, fetch.track);
        self.forget_if_unused(turn, fetch.track);
    }

    /// The peer ended its FETCH, or is gone itself.
    pub(crate) fn fetch_gone(&mut self, turn: &mut Turn<'_>, id: FetchId) {
        if let Some(mut fetch) = self.fetches.remove(&id) {
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
        let peer = turn.sessions.get(handle);
        let Some(&request) = peer.and_then(|peer| peer.fetch_streams.get(&stream)) else {
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
        let Some(fetch) = self.fetches.get_mut(&id) else {
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
        if let (Some(stream), Some(peer)) = (fetch.full_stream(), turn.sessions.get(id.0)) {
            let reader = Reader::Fetch(id.1);
            peer.full.insert(stream, fetch.rank(), reader);
        }
    }

    /// The connection takes more of a fetch, or another stream.
    pub(crate) fn resume_fetch(&mut self, turn: &mut Turn<'_>, id: FetchId) {
        if let Some(fetch) = self.fetches.get_mut(&id) {
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
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        for id in std::mem::take(&mut track.hungry) {
            self.serve_fetch(turn, id);
        }
    }
}

impl Turn<'_> {
    fn refuse_fetch(&mut self, handle: Handle, id: RequestId, code: RequestErrorCode) {
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
    let duration = track.properties.max_cache_duration();
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
