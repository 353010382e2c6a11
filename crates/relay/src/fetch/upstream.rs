//! Requesting from publishers what the cache does not have. Fetches of peers that wait for the same range share a
//! request.

use weir_moqt::{
    error::{RequestErrorCode, ResetCode},
    location::Location,
    message::FetchKind,
    parameter::{GroupOrder, Parameters},
};
use weir_quic::Handle;

use crate::{
    cache::{Known, Span},
    fetch::Serving,
    fetch::served_fetch::ServedFetch,
    fetch::serving::oldest,
    fetch::upstream_fetch::UpstreamFetch,
    fetch::upstream_stream::UpstreamEvent,
    ids::{FetchId, TrackId},
    sessions::{deadlines::ANSWER_TIME, peer::PeerKind},
    timers::Timer,
    track::Publisher,
    turn::Turn,
};

impl Serving<'_> {
    /// Returns whether the answer to a fetch of the relay will contain the object at `location`. Reading of a paused
    /// stream is resumed.
    pub(super) fn resume_upstream(
        &mut self,
        turn: &mut Turn<'_>,
        fetch: &ServedFetch,
        location: Location,
    ) -> bool {
        let order = fetch.span().order;
        let ids = self.fetches.upstream_ids(fetch.track());
        let id = ids.into_iter().find(|id| {
            let upstream = self.fetches.upstream.get(id);
            upstream
                .is_some_and(|upstream| upstream.span().order == order && upstream.covers(location))
        });
        let Some(id) = id else {
            return false;
        };
        if let Some(upstream) = self.fetches.upstream.get_mut(&id)
            && upstream.on_stream(UpstreamEvent::Wanted)
            && let Some(stream) = upstream.stream().id()
        {
            let now = turn.now;
            turn.with_session(id.0, |session, connection| {
                session.resume_data(now, connection, stream);
            });
        }
        true
    }

    /// Returns the last location before the nearest one behind `first` that publishers may still send. `None` if that one
    /// is behind `last`, or if the fetch has no time left to wait for it.
    pub(super) fn end_before_answers(
        &self,
        fetch: &ServedFetch,
        (first, last): (Location, Location),
    ) -> Option<Location> {
        if !fetch.has_time() {
            return None;
        }
        let span = fetch.span();
        let upstream = self.fetches.upstream_for(fetch.track());
        let awaited = upstream.filter_map(|upstream| upstream.next_within(span));
        let behind = awaited.filter(|&at| span.is_before(first, at) && !span.is_before(last, at));
        let nearest = behind.reduce(|nearest, at| {
            if span.is_before(at, nearest) {
                at
            } else {
                nearest
            }
        });
        span.before(nearest?)
    }

    /// Requests from a publisher what a fetch is missing: the range from `first` to `last`, and the next few unknown
    /// ranges behind it. Returns whether a publisher was asked.
    pub(super) fn request(
        &mut self,
        turn: &mut Turn<'_>,
        (handle, _): FetchId,
        fetch: &mut ServedFetch,
        (first, last): (Location, Location),
    ) -> bool {
        let publishers = self.publishers(turn, fetch.track(), handle);
        let mut range = Some((first, last));
        let mut is_requested = false;
        for _ in 0..REQUESTS_AHEAD_MAX {
            let Some((first, last)) = range else { break };
            let span = span_between(fetch.span(), first, last);
            if !self.ask_first(turn, fetch.track(), span, publishers.clone()) {
                break;
            }
            is_requested = true;
            fetch.set_requested(span.last());
            range = self.next_unknown(turn, fetch, span.last());
        }
        if !is_requested {
            fetch.set_requested(last);
        }
        is_requested
    }

    /// Returns the next range behind `last` of which nothing is known, or only objects that are too old to be served.
    fn next_unknown(
        &mut self,
        turn: &Turn<'_>,
        fetch: &ServedFetch,
        last: Location,
    ) -> Option<(Location, Location)> {
        let track = self.tracks.get(fetch.track())?;
        let oldest = oldest(turn, track);
        let span = fetch.span();
        let mut next = span.after(last)?;
        for _ in 0..LOOKUPS_AHEAD_MAX {
            next = match track.cache().look(next, span, oldest) {
                Known::Unknown(last) => {
                    return (!track.is_arriving(next)).then_some((next, last));
                }
                Known::Absent(last) => span.after(last)?,
                Known::Object(_) => span.after(next)?,
            };
        }
        None
    }

    /// Returns the sessions that may have objects of a track: first those that send it, then those that announced its
    /// namespace [moqt-18 §9.5], last those that are unresponsive. `except` is the session that fetches it.
    fn publishers(&mut self, turn: &mut Turn<'_>, id: TrackId, except: Handle) -> Vec<Handle> {
        let Some(track) = self.tracks.get(id) else {
            return Vec::new();
        };
        let known = track.publishers().iter();
        let mut found: Vec<Handle> = known
            .filter(|publisher| publisher.is_established() || publisher.is_offering())
            .map(Publisher::session)
            .collect();
        let namespace = &track.name().namespace;
        let mut asker = turn.kind(except);
        if asker == PeerKind::Relay && self.delivery.has_child(id, except) {
            asker = PeerKind::Child;
        }
        found.extend(self.catalogue.announcers_of(turn, namespace));
        found.extend(self.catalogue.fallbacks_for(namespace));
        let mut publishers = Vec::new();
        for handle in found {
            if handle != except
                && self.may_ask(turn, handle, asker)
                && !publishers.contains(&handle)
            {
                publishers.push(handle);
            }
        }
        publishers.sort_by_key(|&handle| turn.is_unresponsive(handle));
        publishers
    }

    /// Returns whether a session may be asked for objects that a session of the kind `asker` fetches.
    fn may_ask(&mut self, turn: &mut Turn<'_>, handle: Handle, asker: PeerKind) -> bool {
        let max = turn.config.limits.fetches_upstream_per_session_max;
        let Some(peer) = turn.sessions.get(handle) else {
            return false;
        };
        let serves = peer.kind().serves(asker);
        if !serves || !self.fetches.supports_fetch(handle) {
            return false;
        }
        let has_room = peer.is_link() || peer.counts().upstream_fetches < max;
        turn.counters.fetches_upstream_refused += u64::from(!has_room);
        has_room
    }

    /// Sends FETCH to the first of `publishers` that accepts another request. The rest are asked if that publisher
    /// refuses. Returns whether one was asked.
    pub(super) fn ask_first(
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
                track: track.name().clone(),
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
            let account = (!turn.is_link(handle)).then_some(handle);
            let mut upstream = UpstreamFetch::new(track_id, account, span, publishers);
            let by = turn.now + ANSWER_TIME;
            upstream.await_answer(by);
            turn.timers.set(by, Timer::UnansweredFetch(handle, request));
            self.fetches
                .insert_upstream(turn.sessions, (handle, request), upstream);
            return true;
        }
        false
    }

    /// Handles a publisher that has not answered a fetch of the relay in time: the next one is asked instead, if there is
    /// one.
    pub(crate) fn on_unanswered(&mut self, turn: &mut Turn<'_>, id: FetchId) {
        turn.note_unresponsive(id.0);
        let Some(upstream) = self.fetches.upstream.get_mut(&id) else {
            return;
        };
        upstream.take_answer_by();
        if !upstream.alternatives().is_empty() {
            self.fail_upstream(turn, id, RequestErrorCode::TIMEOUT);
        }
    }

    /// Cancels the fetches of the relay for a track that no fetch of a peer needs.
    pub(super) fn cancel_unwanted(&mut self, turn: &mut Turn<'_>, track: TrackId) {
        let mut unwanted = self.fetches.upstream_ids(track);
        unwanted.retain(|id| !self.fetches.is_wanted(*id));
        for id in unwanted {
            self.remove_upstream(turn, id);
            turn.cancel(id, ResetCode::CANCELLED);
        }
    }
}

/// Returns the locations from `first` to `last`, in the order of `of`. A range over several descending groups covers
/// these groups whole.
fn span_between(of: &Span, first: Location, last: Location) -> Span {
    let order = of.order;
    let is_descending = order == GroupOrder::Descending;
    let (start, end) = if is_descending && first.group != last.group {
        (of.first_of(last.group), of.last_of(first.group))
    } else {
        (first, last)
    };
    Span { start, end, order }
}

/// Number of ranges that one fetch of a peer requests at once.
const REQUESTS_AHEAD_MAX: usize = 4;
/// Number of objects and ranges looked up in the cache to find the next range to request.
const LOOKUPS_AHEAD_MAX: usize = 1000;
