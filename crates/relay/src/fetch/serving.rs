//! Serving fetches of peers from the cache, as fast as their streams take the objects.

use std::time::{Duration, Instant};

use weir_moqt::{
    error::{RequestErrorCode, ResetCode},
    location::Location,
    parameter::Parameters,
};
use weir_quic::Handle;
use weir_transport::{StreamId, Transport as _};

use crate::{
    cache::Known,
    delivery::Reader,
    effect::Effect,
    fetch::Serving,
    fetch::served_fetch::ServedFetch,
    fetch::served_stream::Written,
    ids::{FetchId, TrackId},
    timers::Timer,
    track::Track,
    turn::Turn,
};

/// The state of a fetch after it was served as far as possible.
enum Outcome {
    /// The fetch waits for publishers or for its connection.
    Waits,
    /// The whole range has been sent.
    Complete,
    /// The fetch cannot be served.
    Failed(RequestErrorCode),
    /// The peer stopped the stream.
    Unwanted,
}

/// How a fetch treats a range of which nothing is known.
enum Gap {
    /// Wait for publishers.
    Wait,
    /// Tell the peer that the range is unknown up to this location, inclusive.
    Skip(Location),
    /// Look up the cache again, because the end of the fetch has changed.
    Retry,
    Fail(RequestErrorCode),
}

impl Serving<'_> {
    /// Sends what the cache has for a fetch, as far as its connection accepts it.
    pub(crate) fn serve(&mut self, turn: &mut Turn<'_>, id: FetchId) {
        let Some(mut fetch) = self.fetches.served.remove(&id) else {
            return;
        };
        self.end_wait(turn, id, &mut fetch);
        match self.advance(turn, id, &mut fetch) {
            Outcome::Waits => {
                let (stream, reader) = (fetch.stream().id(), Reader::Fetch(id.1));
                if let Some(stream) = stream {
                    self.fetches.streams_sent.insert((id.0, stream), id.1);
                }
                if let Some(stream) = fetch.stream().blocked_id() {
                    let is_new = self.delivery.block(id.0, stream, fetch.rank(), reader);
                    turn.counters.streams_waited += u64::from(is_new);
                }
                self.fetches.served.insert(id, fetch);
            }
            Outcome::Complete => {
                turn.counters.fetches_served += 1;
                turn.with_session(id.0, |session, connection| {
                    session.finish(connection, id.1);
                });
                self.remove(turn, id, &fetch);
            }
            Outcome::Failed(code) => self.fail(turn, id, &fetch, code),
            Outcome::Unwanted => self.abort(turn, id, &fetch, ResetCode::CANCELLED),
        }
    }

    fn advance(&mut self, turn: &mut Turn<'_>, id: FetchId, fetch: &mut ServedFetch) -> Outcome {
        let is_premature = !fetch.is_answered() && self.awaits_properties(fetch.track());
        if is_premature && self.begin_wait(turn, id, fetch) {
            return Outcome::Waits;
        }
        let mut pause = PAUSE;
        for _ in 0..STEPS_MAX {
            if !self.fetches.effort.is_left(turn.now) {
                // Before those that had their share.
                pause = Duration::from_micros(1);
                break;
            }
            if fetch.is_answer_due() {
                self.send_answer(turn, id, fetch);
            }
            let Some(mut connection) = turn.endpoint.connection(turn.now, id.0) else {
                return Outcome::Unwanted;
            };
            match (fetch.write(id.1, &mut connection), fetch.next()) {
                (Written::All, None) => return Outcome::Complete,
                (Written::Blocked, _) => return Outcome::Waits,
                (Written::Stopped, _) => return Outcome::Unwanted,
                (Written::All, Some(next)) => {
                    if let Some(outcome) = self.take_next(turn, id, fetch, next) {
                        return outcome;
                    }
                }
            }
        }
        turn.timers.set(turn.now + pause, Timer::Fetch(id.0, id.1));
        Outcome::Waits
    }

    /// Appends what the cache knows of the next location to a fetch. Returns the outcome if the fetch cannot continue.
    fn take_next(
        &mut self,
        turn: &mut Turn<'_>,
        id: FetchId,
        fetch: &mut ServedFetch,
        next: Location,
    ) -> Option<Outcome> {
        let Some(track) = self.tracks.get(fetch.track()) else {
            return Some(Outcome::Failed(RequestErrorCode::DOES_NOT_EXIST));
        };
        let track_priority = track.properties().publisher_priority();
        let oldest = oldest(turn, track);
        let known = track.cache().look(next, fetch.span(), oldest);
        let visited = match known {
            // Only stale objects may have been passed over.
            Known::Unknown(_) => track.cache().groups_len(),
            Known::Object(_) | Known::Absent(_) => 0,
        };
        self.fetches.effort.spend(1 + visited / GROUPS_PER_STEP);
        match known {
            Known::Object(entry) => {
                let (object, payload) = entry.fetched(next.group, track_priority);
                turn.counters.fetch_objects_sent += 1;
                fetch.push_object(object, payload);
            }
            Known::Absent(last) => fetch.skip_absent(last),
            Known::Unknown(last) => match self.on_unknown(turn, id, fetch, (next, last)) {
                Gap::Wait => return Some(Outcome::Waits),
                Gap::Retry => {}
                Gap::Skip(last) => {
                    turn.counters.fetch_ranges_unknown += 1;
                    fetch.skip_unknown(last);
                }
                Gap::Fail(code) => return Some(Outcome::Failed(code)),
            },
        }
        None
    }

    /// Returns whether the properties of a track are unknown and a publisher is about to send them. Objects of the
    /// track wait for them: the track may have properties that a subscriber has to understand [moqt-18 §2.5.1].
    fn awaits_properties(&mut self, track: TrackId) -> bool {
        let is_known = self.tracks.get(track).is_none_or(|track| track.is_known());
        let mut upstream = self.fetches.upstream_for(track);
        !is_known && upstream.any(|upstream| !upstream.is_granted())
    }

    /// Lets a fetch wait for objects in the cache. Returns false if it has no time left.
    fn begin_wait(&mut self, turn: &mut Turn<'_>, id: FetchId, fetch: &mut ServedFetch) -> bool {
        let Some(until) = fetch.begin_wait(turn.now) else {
            return false;
        };
        turn.timers.set(until, Timer::Fill(id.0, id.1));
        self.fetches.add_waiting(fetch.track(), id);
        true
    }

    fn end_wait(&mut self, turn: &mut Turn<'_>, id: FetchId, fetch: &mut ServedFetch) {
        if let Some(until) = fetch.end_wait(turn.now) {
            turn.timers.cancel(until, Timer::Fill(id.0, id.1));
            self.fetches.remove_waiting(fetch.track(), id);
        }
    }

    /// Decides how a fetch treats a range of which nothing is known: wait if the objects are under way, request them
    /// from a publisher, or skip the range [moqt-18 §9.1, §10.2.5].
    fn on_unknown(
        &mut self,
        turn: &mut Turn<'_>,
        id: FetchId,
        fetch: &mut ServedFetch,
        (first, last): (Location, Location),
    ) -> Gap {
        let Some(track) = self.tracks.get(fetch.track()) else {
            return Gap::Fail(RequestErrorCode::DOES_NOT_EXIST);
        };
        let is_coming = track.is_arriving(first) || self.resume_upstream(turn, fetch, first);
        if fetch.has_time()
            && (is_coming
                || !fetch.is_requested(first) && self.request(turn, id, fetch, (first, last)))
            && self.begin_wait(turn, id, fetch)
        {
            return Gap::Wait;
        }
        if let Some(last) = self.end_before_answers(fetch, (first, last)) {
            return Gap::Skip(last);
        }
        if fetch.is_end_unknown() {
            return self.find_end(fetch);
        }
        let is_rest = fetch.span().after(last).is_none();
        match fetch.failure() {
            Some(code) if !fetch.is_answered() && is_rest => Gap::Fail(code),
            Some(_) | None => Gap::Skip(last),
        }
    }

    /// Sets the end of a fetch, which is unknown, to the largest location that the relay knows.
    fn find_end(&mut self, fetch: &mut ServedFetch) -> Gap {
        let track = self.tracks.get(fetch.track());
        let code = match track.and_then(|track| track.known_end()) {
            Some((end, is_final)) if end >= fetch.span().start => {
                fetch.set_end(end, is_final);
                return Gap::Retry;
            }
            Some(_) => RequestErrorCode::INVALID_RANGE,
            None if fetch.has_time() => RequestErrorCode::DOES_NOT_EXIST,
            None => RequestErrorCode::TIMEOUT,
        };
        Gap::Fail(fetch.failure().unwrap_or(code))
    }

    fn send_answer(&mut self, turn: &mut Turn<'_>, id: FetchId, fetch: &mut ServedFetch) {
        if let Some(track) = self.tracks.get(fetch.track()) {
            let ok = fetch.answer(track.properties().clone());
            turn.with_session(id.0, |session, connection| {
                session.fetch_ok(connection, id.1, ok);
            });
        }
    }

    /// Ends a fetch that cannot be served. If FETCH_OK has been sent, the stream is reset instead of an error being
    /// sent.
    pub(super) fn fail(
        &mut self,
        turn: &mut Turn<'_>,
        id: FetchId,
        fetch: &ServedFetch,
        code: RequestErrorCode,
    ) {
        if fetch.is_answered() {
            return self.abort(turn, id, fetch, ResetCode::CANCELLED);
        }
        reset(turn, id.0, fetch, ResetCode::UNKNOWN_OBJECT_STATUS);
        turn.refuse_fetch(id, code);
        self.remove(turn, id, fetch);
    }

    /// Ends an incomplete fetch, and resets its stream with `code`.
    fn abort(&mut self, turn: &mut Turn<'_>, id: FetchId, fetch: &ServedFetch, code: ResetCode) {
        reset(turn, id.0, fetch, code);
        turn.cancel(id, code);
        self.remove(turn, id, fetch);
    }

    /// Ends all fetches of peers from a track whose objects may not be passed on.
    pub(super) fn fail_all(&mut self, turn: &mut Turn<'_>, track: TrackId, code: RequestErrorCode) {
        let reset_code = match code {
            RequestErrorCode::MALFORMED_TRACK => ResetCode::MALFORMED_TRACK,
            _ => ResetCode::CANCELLED,
        };
        for id in self.fetches.served_from(track) {
            let Some(mut fetch) = self.fetches.served.remove(&id) else {
                continue;
            };
            self.end_wait(turn, id, &mut fetch);
            if fetch.is_answered() {
                self.abort(turn, id, &fetch, reset_code);
            } else {
                reset(turn, id.0, &fetch, reset_code);
                turn.refuse_fetch(id, code);
                self.remove(turn, id, &fetch);
            }
        }
    }

    /// Removes a fetch that has ended.
    fn remove(&mut self, turn: &mut Turn<'_>, id: FetchId, fetch: &ServedFetch) {
        if let Some(stream) = fetch.stream().id() {
            self.fetches.streams_sent.remove(&(id.0, stream));
            self.delivery.unblock(id.0, stream);
        }
        turn.remove_request(id);
        self.fetches.leave(fetch.track(), id);
        self.cancel_unwanted(turn, fetch.track());
        turn.push(Effect::Released(fetch.track()));
    }

    /// Ends a fetch that its peer has cancelled, or whose session has ended.
    pub(crate) fn cancel(&mut self, turn: &mut Turn<'_>, id: FetchId) {
        if let Some(mut fetch) = self.fetches.served.remove(&id) {
            self.end_wait(turn, id, &mut fetch);
            turn.counters.fetches_cancelled += 1;
            self.abort(turn, id, &fetch, ResetCode::CANCELLED);
        }
    }

    /// Ends the fetch whose stream the peer has stopped. Returns false if the stream answers no fetch.
    pub(crate) fn on_stopped(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        stream: StreamId,
    ) -> bool {
        let request = self.fetches.streams_sent.get(&(handle, stream));
        let Some(&request) = request else {
            return false;
        };
        self.cancel(turn, (handle, request));
        true
    }

    /// Changes the priority of a fetch, if the request is one; nothing else of a FETCH can be updated.
    pub(crate) fn on_update(&mut self, turn: &mut Turn<'_>, id: FetchId, parameters: &Parameters) {
        let Some(fetch) = self.fetches.served.get_mut(&id) else {
            return;
        };
        if let Some(priority) = parameters.subscriber_priority {
            fetch.set_priority(priority);
        }
        let stream = fetch.stream();
        if let (Some(stream), Some(mut connection)) =
            (stream.id(), turn.endpoint.connection(turn.now, id.0))
        {
            connection.set_priority(stream, fetch.rank());
        }
        if let Some(stream) = stream.blocked_id() {
            let reader = Reader::Fetch(id.1);
            self.delivery.block(id.0, stream, fetch.rank(), reader);
        }
    }

    /// Continues a fetch whose stream has room again, or can be opened.
    pub(crate) fn resume(&mut self, turn: &mut Turn<'_>, id: FetchId) {
        if let Some(fetch) = self.fetches.served.get_mut(&id) {
            fetch.resume();
            self.serve(turn, id);
        }
    }

    /// Continues a fetch whose time to wait for publishers is over [moqt-18 §10.2.5].
    pub(crate) fn on_fill_timeout(&mut self, turn: &mut Turn<'_>, id: FetchId) {
        turn.counters.fetches_waited_out += 1;
        self.serve(turn, id);
    }

    /// Continues the fetches that wait for the cache of a track, after an object was added or will not come.
    pub(crate) fn on_cached(&mut self, turn: &mut Turn<'_>, track: TrackId) {
        for id in self.fetches.take_waiting(track) {
            self.serve(turn, id);
        }
    }
}

/// Objects and gaps of one fetch that are served in one turn. The rest follows after [`PAUSE`], so that a fetch of many
/// small objects does not hold up the others.
const STEPS_MAX: usize = 256;
/// Groups that are passed over in about the time of a step.
const GROUPS_PER_STEP: usize = 16;
/// The time between two turns of a fetch.
const PAUSE: Duration = Duration::from_micros(200);

impl Turn<'_> {
    pub(super) fn refuse_fetch(&mut self, id: FetchId, code: RequestErrorCode) {
        let counters = &mut *self.counters;
        let count = match code {
            RequestErrorCode::DOES_NOT_EXIST => &mut counters.refused_does_not_exist,
            RequestErrorCode::INVALID_RANGE => &mut counters.refused_range,
            RequestErrorCode::INVALID_JOINING_REQUEST_ID => &mut counters.refused_joining,
            _ => &mut counters.fetches_failed,
        };
        *count += 1;
        // The log has the refusal of the subscription that a fetch joins.
        if code == RequestErrorCode::INVALID_JOINING_REQUEST_ID {
            self.refuse_quietly(id, code);
        } else {
            self.refuse(id.0, id.1, code);
        }
    }
}

/// Returns the earliest time of arrival of objects that may still be served [moqt-18 §12.3].
pub(super) fn oldest(turn: &Turn<'_>, track: &Track) -> Option<Instant> {
    let age_max = turn.config.limits.cache_age_max;
    let duration = track.properties().max_cache_duration();
    turn.now
        .checked_sub(duration.map_or(age_max, |duration| duration.min(age_max)))
}

/// Resets the stream of a fetch, if it is open.
fn reset(turn: &mut Turn<'_>, handle: Handle, fetch: &ServedFetch, code: ResetCode) {
    if let Some(mut connection) = turn.endpoint.connection(turn.now, handle) {
        fetch.stream().reset(&mut connection, code);
    }
}
