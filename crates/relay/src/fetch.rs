//! FETCH: fetches that the relay serves, and fetches that it makes to fill its cache.

mod answers;
mod range;
pub(crate) mod served_fetch;
mod serving;
mod upstream;
pub(crate) mod upstream_fetch;

use std::collections::{BTreeMap, BTreeSet};

use weir_moqt::session::RequestId;
use weir_quic::Handle;
use weir_transport::StreamId;

use self::{served_fetch::Fetch, upstream_fetch::Feeder};
use crate::{
    catalogue::Catalogue,
    delivery::Delivery,
    ids::FetchId,
    ids::TrackId,
    sessions::{Sessions, peer::Part},
    track::Tracks,
};

/// All fetches, of peers and of the relay.
#[derive(Default)]
pub(crate) struct Fetches {
    /// Fetches of peers.
    served: BTreeMap<FetchId, Box<Fetch>>,
    /// Fetches of the relay.
    upstream: BTreeMap<FetchId, Feeder>,
    /// The fetches of each track that has any.
    tracks: BTreeMap<TrackId, TrackFetches>,
    /// Streams being sent that answer fetches of peers.
    streams_sent: BTreeMap<(Handle, StreamId), RequestId>,
    /// Streams being received that answer fetches of the relay.
    streams_received: BTreeMap<(Handle, StreamId), RequestId>,
    /// Sessions that have answered a FETCH with `NOT_SUPPORTED`.
    unsupporting: BTreeSet<Handle>,
}

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

/// The fetches, and what they are served from.
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

    /// Whether a track has no fetches.
    pub(crate) fn is_unused(&self, track: TrackId) -> bool {
        !self.tracks.contains_key(&track)
    }

    /// Whether a request is a fetch of the relay.
    pub(crate) fn is_upstream(&self, id: FetchId) -> bool {
        self.upstream.contains_key(&id)
    }

    /// The fetches of a session that wait for the peer to allow another stream, each with its rank.
    pub(crate) fn pending(&self, handle: Handle) -> impl Iterator<Item = (i32, RequestId)> {
        let pending = self
            .served_of(handle)
            .filter(|(_, fetch)| fetch.is_pending());
        pending.map(|(request, fetch)| (fetch.rank(), request))
    }

    /// Whether a fetch waits for the peer to allow another stream.
    pub(crate) fn is_pending(&self, id: FetchId) -> bool {
        let fetch = self.served.get(&id);
        fetch.is_some_and(|fetch| fetch.is_pending())
    }

    /// The fetches of a session whose authorization is that of a subscription that they joined.
    pub(crate) fn authorized_by(
        &self,
        handle: Handle,
        joined: RequestId,
    ) -> impl Iterator<Item = RequestId> {
        let fetches = self.served_of(handle);
        let heirs = fetches.filter(move |(_, fetch)| fetch.stands_with == Some(joined));
        heirs.map(|(request, _)| request)
    }

    /// Notes that a fetch has an authorization of its own from now on, if there is such a fetch.
    pub(crate) fn authorize(&mut self, id: FetchId) {
        if let Some(fetch) = self.served.get_mut(&id) {
            fetch.stands_with = None;
        }
    }

    /// Forgets what was learnt of a session that has ended and has no fetches any more.
    pub(crate) fn forget_session(&mut self, handle: Handle) {
        self.unsupporting.remove(&handle);
    }

    /// The fetches of a session, by their requests.
    fn served_of(&self, handle: Handle) -> impl Iterator<Item = (RequestId, &Fetch)> {
        let own = (handle, RequestId(0))..=(handle, RequestId(u64::MAX));
        let fetches = self.served.range(own);
        fetches.map(|(&(_, request), fetch)| (request, &**fetch))
    }

    /// The fetches of peers from a track.
    fn served_from(&self, track: TrackId) -> Vec<FetchId> {
        self.ids(track, |fetches| &fetches.served)
    }

    /// The fetches of peers from a track that wait for objects to come into its cache.
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

    /// The same, the fetches themselves.
    fn upstream_for(&self, track: TrackId) -> impl Iterator<Item = &Feeder> {
        let ids = self.tracks.get(&track).map(|fetches| &fetches.upstream);
        let ids = ids.into_iter().flatten();
        ids.filter_map(|id| self.upstream.get(id))
    }

    /// Notes that a fetch of a peer waits for objects to come into the cache.
    fn begin_wait(&mut self, track: TrackId, id: FetchId) {
        if let Some(fetches) = self.tracks.get_mut(&track) {
            fetches.waiting.insert(id);
        }
    }

    /// Notes that a fetch of a peer waits no longer.
    fn end_wait(&mut self, track: TrackId, id: FetchId) {
        if let Some(fetches) = self.tracks.get_mut(&track) {
            fetches.waiting.remove(&id);
        }
    }

    /// Takes the fetches of peers from a track that wait, which wait no longer with that.
    fn take_waiting(&mut self, track: TrackId) -> BTreeSet<FetchId> {
        let fetches = self.tracks.get_mut(&track);
        fetches
            .map(|fetches| std::mem::take(&mut fetches.waiting))
            .unwrap_or_default()
    }

    /// The fetch of the relay that a stream answers.
    fn upstream_of(&self, handle: Handle, stream: StreamId) -> Option<FetchId> {
        let request = self.streams_received.get(&(handle, stream))?;
        Some((handle, *request))
    }

    /// Whether a fetch of the relay is of use to a fetch of a peer, or to one of those that wait.
    fn is_wanted(
        &self,
        upstream: &Feeder,
        by: impl Fn(&TrackFetches) -> &BTreeSet<FetchId>,
    ) -> bool {
        let Some(fetches) = self.tracks.get(&upstream.track) else {
            return false;
        };
        let mut served = by(fetches).iter().filter_map(|id| self.served.get(id));
        served.any(|fetch| {
            let at = fetch.at;
            at.is_some_and(|at| upstream.is_wanted_by(&fetch.span, at))
        })
    }
}

impl Serving<'_> {
    /// Enters a fetch of a peer.
    fn insert_served(&mut self, sessions: &mut Sessions, id: FetchId, fetch: Box<Fetch>) {
        let track = fetch.track;
        self.fetches.served.insert(id, fetch);
        self.fetches
            .tracks
            .entry(track)
            .or_default()
            .served
            .insert(id);
        self.enter(sessions, id, Part::Fetch(track));
    }

    /// Enters a fetch of the relay.
    fn insert_upstream(&mut self, sessions: &mut Sessions, id: FetchId, fetch: Feeder) {
        let track = fetch.track;
        self.fetches.upstream.insert(id, fetch);
        self.fetches
            .tracks
            .entry(track)
            .or_default()
            .upstream
            .insert(id);
        self.enter(sessions, id, Part::Feeder(track));
    }

    fn enter(&self, sessions: &mut Sessions, id: FetchId, part: Part) {
        if let Some(peer) = sessions.get(id.0) {
            peer.insert(id.1, part);
        }
    }

    /// Strikes a fetch of a peer or of the relay off its track.
    fn leave(&mut self, track_id: TrackId, id: FetchId) {
        let Some(fetches) = self.fetches.tracks.get_mut(&track_id) else {
            return;
        };
        fetches.waiting.remove(&id);
        if !fetches.served.remove(&id) && !fetches.upstream.remove(&id) {
            return;
        }
        if fetches.served.is_empty() && fetches.upstream.is_empty() {
            self.fetches.tracks.remove(&track_id);
        }
    }
}
