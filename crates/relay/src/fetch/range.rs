//! Which track and which range of it a fetch is for; those that join a subscription wait for it to be established.

use weir_moqt::{
    error::RequestErrorCode, location::Location, message::FetchKind, session::RequestId,
};
use weir_quic::Handle;

use crate::{
    delivery::Joined, fetch::Serving, fetch::served_fetch::Fetch, ids::FetchId, ids::TrackId,
    sessions::peer::Part, turn::Turn,
};

impl Serving<'_> {
    /// The track that a FETCH is for.
    pub(super) fn fetched_track(
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
    pub(super) fn start_fetch(&mut self, turn: &mut Turn<'_>, id: FetchId) {
        let Some(mut fetch) = self.fetches.served.remove(&id) else {
            return;
        };
        match self.range_of(id.0, &mut fetch) {
            Ok(true) => {
                self.fetches.served.insert(id, fetch);
                self.serve_fetch(turn, id);
            }
            Ok(false) => drop(self.fetches.served.insert(id, fetch)),
            Err(code) => self.fail_fetch(turn, id, &fetch, code),
        }
    }

    /// Settles the range of a fetch; false if its subscription is not established yet.
    fn range_of(&mut self, handle: Handle, fetch: &mut Fetch) -> Result<bool, RequestErrorCode> {
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
        let joining = match self.delivery.joined(fetch.track, (handle, request)) {
            Some(Joined::Pending) => {
                fetch.joins = Some(kind);
                return Ok(false);
            }
            Some(Joined::Forwarding(Some(joining))) => joining,
            Some(Joined::Forwarding(None) | Joined::Paused) => {
                return Err(RequestErrorCode::INVALID_RANGE);
            }
            None => return Err(RequestErrorCode::INVALID_JOINING_REQUEST_ID),
        };
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
        for id in self.fetches.served_from(track_id) {
            if self
                .fetches
                .served
                .get(&id)
                .is_some_and(|f| f.joins.is_some())
            {
                self.start_fetch(turn, id);
            }
        }
    }
}
