//! FETCH requests of peers: admission, and the track and range of each.

use weir_moqt::{
    error::RequestErrorCode,
    location::Location,
    message::{Fetch, FetchKind},
};
use weir_quic::Handle;

use crate::{
    delivery::{Delivery, Joined},
    effect::Effect,
    fetch::Serving,
    fetch::served_fetch::{Join, ServedFetch},
    ids::{FetchId, TrackId},
    sessions::peer::Purpose,
    track::Track,
    turn::Turn,
};

impl Serving<'_> {
    /// Handles a FETCH of a peer.
    pub(crate) fn on_fetch(&mut self, turn: &mut Turn<'_>, id: FetchId, message: &Fetch) {
        let limits = &turn.config.limits;
        let Some(peer) = turn.sessions.get(id.0) else {
            return;
        };
        if !peer.is_link() && peer.counts().fetches >= limits.fetches_per_session_max {
            turn.counters.refused_limit_fetches += 1;
            return turn.refuse(id.0, id.1, RequestErrorCode::EXCESSIVE_LOAD);
        }
        let (draft, fill_max) = (peer.session().draft(), limits.fill_max);
        let track = match self.fetched_track(turn, id, &message.kind) {
            Ok(track) => track,
            Err(code @ RequestErrorCode::EXCESSIVE_LOAD) => {
                return turn.refuse(id.0, id.1, code);
            }
            Err(code) => return turn.refuse_fetch(id, code),
        };
        if let FetchKind::Standalone { start, end, .. } = message.kind
            && end < start
        {
            turn.push(Effect::Released(track));
            return turn.refuse_fetch(id, RequestErrorCode::INVALID_RANGE);
        }
        let mut fetch = ServedFetch::new(draft, track, message, fill_max);
        if let FetchKind::Recent { groups, .. } = message.kind {
            let range = self.tracks.get(track);
            let Some((start, end)) = range.and_then(|track| recent(track, groups)) else {
                turn.push(Effect::Released(track));
                return turn.refuse_fetch(id, RequestErrorCode::NOT_SUPPORTED);
            };
            fetch.set_range(start, end);
        }
        self.fetches.insert_served(turn.sessions, id, fetch);
        self.start(turn, id);
    }

    /// The track that a FETCH is for.
    fn fetched_track(
        &mut self,
        turn: &mut Turn<'_>,
        (handle, request): FetchId,
        kind: &FetchKind,
    ) -> Result<TrackId, RequestErrorCode> {
        if let FetchKind::Standalone { track, .. } | FetchKind::Recent { track, .. } = kind {
            let track = self.tracks.find_or_await(turn, (handle, request), track);
            return track.map_err(|full| {
                full.count(turn.counters);
                RequestErrorCode::EXCESSIVE_LOAD
            });
        }
        let subscription = Join::of(kind).map(|join| join.subscription);
        match subscription.and_then(|request| turn.purpose((handle, request))) {
            Some(Purpose::Subscriber(track)) => Ok(track),
            Some(_) | None => Err(RequestErrorCode::INVALID_JOINING_REQUEST_ID),
        }
    }

    /// Continues the fetches that join a subscription of a track, after subscriptions were established or refused.
    pub(crate) fn on_subscriptions_answered(&mut self, turn: &mut Turn<'_>, track: TrackId) {
        for id in self.fetches.served_from(track) {
            let fetch = self.fetches.served.get(&id);
            if fetch.is_some_and(|fetch| fetch.join().is_some()) {
                self.start(turn, id);
            }
        }
    }

    /// Determines the range of a fetch as far as it can be known, and begins to serve it.
    fn start(&mut self, turn: &mut Turn<'_>, id: FetchId) {
        let Some(fetch) = self.fetches.served.get_mut(&id) else {
            return;
        };
        let range = match (self.tracks.get(fetch.track()), fetch.join()) {
            (None, _) => Err(RequestErrorCode::DOES_NOT_EXIST),
            (Some(track), None) => set_standalone_range(fetch, track),
            (Some(_), Some(join)) => set_joining_range(fetch, self.delivery, id.0, join),
        };
        match range {
            Ok(Range::Set) => self.serve(turn, id),
            Ok(Range::Awaited) => {}
            Err(code) => {
                if let Some(fetch) = self.fetches.served.remove(&id) {
                    self.fail(turn, id, &fetch, code);
                }
            }
        }
    }
}

/// Whether a fetch has its range.
enum Range {
    Set,
    /// The subscription that it joins is not established yet.
    Awaited,
}

/// Returns the range of a number of groups before the largest one; `None` if the relay does not know the largest
/// location, which it does while somebody subscribes to the track.
fn recent(track: &Track, groups: u64) -> Option<(Location, Location)> {
    let (largest, is_final) = track.known_end()?;
    let start = Location::new(largest.group.saturating_sub(groups), 0);
    (track.is_live() || is_final).then_some((start, largest))
}

/// Limits the range of a standalone fetch to what has been published, if that is known.
fn set_standalone_range(fetch: &mut ServedFetch, track: &Track) -> Result<Range, RequestErrorCode> {
    let span = *fetch.span();
    match track.known_end() {
        Some((end, is_final)) if span.start <= end => {
            if track.is_live() || is_final || span.end <= end {
                fetch.set_end(end, is_final);
            }
            Ok(Range::Set)
        }
        Some(_) | None if track.is_live() => Err(RequestErrorCode::INVALID_RANGE),
        Some(_) | None => Ok(Range::Set),
    }
}

/// Sets the range of a joining fetch, which ends where the subscription begins.
fn set_joining_range(
    fetch: &mut ServedFetch,
    delivery: &Delivery,
    handle: Handle,
    join: Join,
) -> Result<Range, RequestErrorCode> {
    let subscription = (handle, join.subscription);
    let end = match delivery.joined(fetch.track(), subscription) {
        None => return Err(RequestErrorCode::INVALID_JOINING_REQUEST_ID),
        Some(Joined::Pending) => return Ok(Range::Awaited),
        Some(Joined::Paused | Joined::Forwarding(None)) => {
            return Err(RequestErrorCode::INVALID_RANGE);
        }
        Some(Joined::Forwarding(Some(end))) => end,
    };
    let (start, end) = join.range(end);
    if start > end {
        return Err(RequestErrorCode::INVALID_RANGE);
    }
    fetch.set_range(start, end);
    Ok(Range::Set)
}
