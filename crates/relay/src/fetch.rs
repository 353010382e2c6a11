//! FETCH: fetches of peers, served from the cache, and fetches of the relay, which fill the cache.

mod answers;
mod request;
mod resume;
mod served_fetch;
mod served_stream;
mod serving;
mod upstream;
mod upstream_fetch;
mod upstream_stream;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use weir_moqt::session::RequestId;
use weir_quic::Handle;
use weir_transport::StreamId;

use self::{served_fetch::ServedFetch, upstream_fetch::UpstreamFetch};
use crate::{
    catalogue::Catalogue,
    delivery::Delivery,
    ids::{FetchId, TrackId},
    sessions::{Sessions, peer::Purpose},
    track::Tracks,
};

/// All fetches, of peers and of the relay.
#[derive(Default)]
pub(crate) struct Fetches {
    /// Fetches of peers.
    served: BTreeMap<FetchId, Box<ServedFetch>>,
    /// Fetches of the relay.
    upstream: BTreeMap<FetchId, UpstreamFetch>,
    /// The fetches of each track that has any.
    tracks: BTreeMap<TrackId, TrackFetches>,
    /// Streams being sent that answer fetches of peers.
    streams_sent: BTreeMap<(Handle, StreamId), RequestId>,
    /// Streams being received that answer fetches of the relay.
    streams_received: BTreeMap<(Handle, StreamId), RequestId>,
    /// Sessions that have refused a FETCH as not supported.
    without_support: BTreeSet<Handle>,
    effort: Effort,
}

/// What was done for all fetches at one time, in steps.
#[derive(Default)]
struct Effort {
    at: Option<Instant>,
    steps: usize,
}

impl Effort {
    /// Returns whether more may be done at this time.
    fn is_left(&mut self, now: Instant) -> bool {
        if self.at != Some(now) {
            *self = Self {
                at: Some(now),
                steps: 0,
            };
        }
        self.steps < EFFORT_MAX
    }

    fn spend(&mut self, steps: usize) {
        self.steps += steps;
    }
}

/// Steps of all fetches in one turn, so that a packet with many of them does not hold up the others.
const EFFORT_MAX: usize = 1024;

/// The fetches of one track.
#[derive(Default)]
struct TrackFetches {
    /// Fetches of peers.
    served: BTreeSet<FetchId>,
    /// Fetches of peers that wait for objects to come into the cache.
    waiting: BTreeSet<FetchId>,
    /// Fetches of the relay.
    upstream: BTreeSet<FetchId>,
}

/// The fetches, with what they are served from.
pub(crate) struct Serving<'a> {
    pub(crate) fetches: &'a mut Fetches,
    pub(crate) catalogue: &'a Catalogue,
    pub(crate) delivery: &'a mut Delivery,
    pub(crate) tracks: &'a mut Tracks,
}

impl Fetches {
    /// Number of fetches of peers.
    pub(crate) fn served_len(&self) -> usize {
        self.served.len()
    }

    /// Number of fetches of the relay.
    pub(crate) fn upstream_len(&self) -> usize {
        self.upstream.len()
    }

    /// Returns whether a track has no fetches.
    pub(crate) fn is_unused(&self, track: TrackId) -> bool {
        !self.tracks.contains_key(&track)
    }

    /// Returns whether a request is a fetch of the relay.
    pub(crate) fn is_upstream(&self, id: FetchId) -> bool {
        self.upstream.contains_key(&id)
    }

    /// The fetches of a session that wait for the peer to allow another stream, each with its send priority.
    pub(crate) fn pending(&self, handle: Handle) -> impl Iterator<Item = (i32, RequestId)> {
        let fetches = self.served_to(handle);
        let pending = fetches.filter(|(_, fetch)| fetch.stream().is_pending());
        pending.map(|(request, fetch)| (fetch.rank(), request))
    }

    /// Returns whether a fetch waits for the peer to allow another stream.
    pub(crate) fn is_pending(&self, id: FetchId) -> bool {
        let fetch = self.served.get(&id);
        fetch.is_some_and(|fetch| fetch.stream().is_pending())
    }

    /// The fetches of a session whose authorization is that of the subscription `joined`.
    pub(crate) fn authorized_by(
        &self,
        handle: Handle,
        joined: RequestId,
    ) -> impl Iterator<Item = RequestId> {
        let fetches = self.served_to(handle);
        let joining = fetches.filter(move |(_, fetch)| fetch.authorized_by() == Some(joined));
        joining.map(|(request, _)| request)
    }

    /// Detaches a fetch from the authorization of the subscription that it joined, since it has tokens of its own now.
    /// Does nothing for other requests.
    pub(crate) fn use_own_authorization(&mut self, id: FetchId) {
        if let Some(fetch) = self.served.get_mut(&id) {
            fetch.use_own_authorization();
        }
    }

    /// Forgets a session that has ended, after its fetches were removed.
    pub(crate) fn forget_session(&mut self, handle: Handle) {
        self.without_support.remove(&handle);
    }

    /// Notes that a session refused a FETCH as not supported.
    fn note_unsupported(&mut self, handle: Handle) {
        self.without_support.insert(handle);
    }

    /// Returns false if a session has refused a FETCH as not supported.
    fn supports_fetch(&self, handle: Handle) -> bool {
        !self.without_support.contains(&handle)
    }

    /// The fetches of a session, by request.
    fn served_to(&self, handle: Handle) -> impl Iterator<Item = (RequestId, &ServedFetch)> {
        let own = (handle, RequestId(0))..=(handle, RequestId(u64::MAX));
        let fetches = self.served.range(own);
        fetches.map(|(&(_, request), fetch)| (request, &**fetch))
    }

    /// The fetch of the relay that a stream answers.
    fn upstream_of(&self, handle: Handle, stream: StreamId) -> Option<FetchId> {
        let request = self.streams_received.get(&(handle, stream))?;
        Some((handle, *request))
    }

    /// The fetches of peers from a track.
    fn served_from(&self, track: TrackId) -> Vec<FetchId> {
        self.ids(track, |fetches| &fetches.served)
    }

    /// The fetches of peers from a track that wait for objects to come into the cache.
    fn waiting_for(&self, track: TrackId) -> Vec<FetchId> {
        self.ids(track, |fetches| &fetches.waiting)
    }

    /// The fetches of the relay for a track.
    fn upstream_ids(&self, track: TrackId) -> Vec<FetchId> {
        self.ids(track, |fetches| &fetches.upstream)
    }

    fn ids(
        &self,
        track: TrackId,
        of: impl Fn(&TrackFetches) -> &BTreeSet<FetchId>,
    ) -> Vec<FetchId> {
        let ids = self.tracks.get(&track).map(of);
        ids.into_iter().flatten().copied().collect()
    }

    /// The fetches of the relay for a track themselves.
    fn upstream_for(&self, track: TrackId) -> impl Iterator<Item = &UpstreamFetch> {
        let ids = self.tracks.get(&track).map(|fetches| &fetches.upstream);
        let ids = ids.into_iter().flatten();
        ids.filter_map(|id| self.upstream.get(id))
    }

    /// Adds a fetch of a peer to those that wait for objects in the cache.
    fn add_waiting(&mut self, track: TrackId, id: FetchId) {
        if let Some(fetches) = self.tracks.get_mut(&track) {
            fetches.waiting.insert(id);
        }
    }

    /// Removes a fetch of a peer from those that wait.
    fn remove_waiting(&mut self, track: TrackId, id: FetchId) {
        if let Some(fetches) = self.tracks.get_mut(&track) {
            fetches.waiting.remove(&id);
        }
    }

    /// Removes and returns the fetches of peers from a track that wait.
    fn take_waiting(&mut self, track: TrackId) -> BTreeSet<FetchId> {
        let fetches = self.tracks.get_mut(&track);
        fetches.map_or_else(BTreeSet::new, |fetches| {
            std::mem::take(&mut fetches.waiting)
        })
    }

    /// Returns whether a fetch of the relay is of use to any fetch of a peer.
    fn is_wanted(&self, id: FetchId) -> bool {
        self.is_of_use(id, |fetches| &fetches.served)
    }

    /// Returns whether a fetch of the relay is of use to a fetch of a peer that waits.
    fn is_awaited(&self, id: FetchId) -> bool {
        self.is_of_use(id, |fetches| &fetches.waiting)
    }

    fn is_of_use(&self, id: FetchId, to: impl Fn(&TrackFetches) -> &BTreeSet<FetchId>) -> bool {
        let Some(upstream) = self.upstream.get(&id) else {
            return false;
        };
        let ids = self.tracks.get(&upstream.track()).map(to);
        let fetches = ids.into_iter().flatten();
        let mut fetches = fetches.filter_map(|id| self.served.get(id));
        fetches.any(|fetch| {
            let next = fetch.next();
            next.is_some_and(|next| upstream.is_wanted_by(fetch.span(), next))
        })
    }

    /// Adds a fetch of a peer.
    fn insert_served(&mut self, sessions: &mut Sessions, id: FetchId, fetch: ServedFetch) {
        let track = fetch.track();
        self.served.insert(id, Box::new(fetch));
        self.tracks.entry(track).or_default().served.insert(id);
        enter(sessions, id, Purpose::Fetch(track));
    }

    /// Adds a fetch of the relay.
    fn insert_upstream(&mut self, sessions: &mut Sessions, id: FetchId, fetch: UpstreamFetch) {
        let track = fetch.track();
        self.upstream.insert(id, fetch);
        self.tracks.entry(track).or_default().upstream.insert(id);
        enter(sessions, id, Purpose::UpstreamFetch(track));
    }

    /// Removes a fetch from its track.
    fn leave(&mut self, track: TrackId, id: FetchId) {
        let Some(fetches) = self.tracks.get_mut(&track) else {
            return;
        };
        fetches.waiting.remove(&id);
        fetches.served.remove(&id);
        fetches.upstream.remove(&id);
        if fetches.served.is_empty() && fetches.upstream.is_empty() {
            self.tracks.remove(&track);
        }
    }
}

/// Adds a fetch to the requests of its session.
fn enter(sessions: &mut Sessions, id: FetchId, purpose: Purpose) {
    if let Some(peer) = sessions.get(id.0) {
        peer.insert(id.1, purpose);
    }
}
