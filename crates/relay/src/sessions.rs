//! Sessions: who is connected, what each session may do, and how much of it.

pub(crate) mod admission;
pub(crate) mod authorization;
pub(crate) mod drain;
pub(crate) mod expiries;
pub(crate) mod load;
pub(crate) mod peer;
pub(crate) mod rate;
pub(crate) mod refusal;
pub(crate) mod request_goaway;

use std::collections::BTreeMap;

use weir_moqt::session;
use weir_quic::Handle;

use crate::{
    LoadLimits, Shedder,
    sessions::{admission::Origin, drain::Stage, peer::Peer},
};

/// All sessions, by their connection.
pub(crate) struct Sessions {
    places: Vec<Option<Box<Peer>>>,
    count: usize,
    origins: BTreeMap<Origin, usize>,
    /// Sessions that closed, or that may have something to say, while another one was dealt with.
    unsettled: Vec<Handle>,
    /// The counters of sessions that have ended.
    ended: session::Counters,
    pub(crate) shedder: Shedder,
    pub(crate) stage: Stage,
}

impl Sessions {
    /// No sessions yet.
    pub(crate) fn new(load: LoadLimits) -> Self {
        Self {
            places: Vec::new(),
            count: 0,
            origins: BTreeMap::new(),
            unsettled: Vec::new(),
            ended: session::Counters::default(),
            shedder: Shedder::new(load),
            stage: Stage::default(),
        }
    }

    pub(crate) fn insert(&mut self, peer: Peer) {
        let index = peer.handle.index();
        if self.places.len() <= index {
            self.places.resize_with(index + 1, || None);
        }
        if let Some(origin) = peer.origin {
            *self.origins.entry(origin).or_default() += 1;
        }
        self.count += usize::from(!peer.is_neighbour);
        self.places[index] = Some(Box::new(peer));
    }

    #[inline]
    pub(crate) fn get(&mut self, handle: Handle) -> Option<&mut Peer> {
        let peer = self.places.get_mut(handle.index())?.as_deref_mut()?;
        (peer.handle == handle).then_some(peer)
    }

    pub(crate) fn remove(&mut self, handle: Handle) -> Option<Box<Peer>> {
        let peer = self.get(handle)?;
        let (origin, is_neighbour) = (peer.origin, peer.is_neighbour);
        self.count -= usize::from(!is_neighbour);
        if let Some(origin) = origin
            && let Some(count) = self.origins.get_mut(&origin)
        {
            *count -= 1;
            if *count == 0 {
                self.origins.remove(&origin);
            }
        }
        self.places[handle.index()].take()
    }

    /// The sessions that come from somewhere.
    pub(crate) fn from(&self, origin: Origin) -> usize {
        self.origins.get(&origin).copied().unwrap_or_default()
    }

    /// All sessions.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.places.iter().flatten().map(Box::as_ref)
    }

    /// Bytes that all subscriptions are behind.
    pub(crate) fn lag_bytes(&self) -> u64 {
        self.iter().map(|peer| peer.lag_bytes).sum()
    }

    /// All sessions but those with neighbours, in an order that is always the same.
    pub(crate) fn handles(&self) -> Vec<Handle> {
        let over_network = self.iter().filter(|peer| !peer.is_neighbour);
        over_network.map(|peer| peer.handle).collect()
    }

    /// Number of sessions, not counting those with neighbours.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Number of namespaces that a session announced.
    pub(crate) fn namespaces_of(&self, handle: Handle) -> usize {
        let peer = self.places.get(handle.index()).and_then(Option::as_deref);
        peer.map_or(0, |peer| peer.counts.namespaces)
    }

    /// Has a session dealt with at the end of the turn.
    pub(crate) fn settle_later(&mut self, handle: Handle) {
        self.unsettled.push(handle);
    }

    /// Takes a session that is still to be dealt with.
    pub(crate) fn next_unsettled(&mut self) -> Option<Handle> {
        self.unsettled.pop()
    }

    /// Keeps the counters of a session that has ended.
    pub(crate) fn keep_counters(&mut self, counters: session::Counters) {
        self.ended = self.ended.plus(counters);
    }

    /// What sessions with peers did not pass on, including sessions that have ended.
    pub(crate) fn session_counters(&self) -> session::Counters {
        let peers = self.iter().filter(|peer| !peer.is_neighbour);
        let counters = peers.map(|peer| *peer.session.counters());
        counters.fold(self.ended, session::Counters::plus)
    }

    /// Whether new sessions and requests are refused because of the load.
    pub(crate) fn is_shedding(&self) -> bool {
        self.shedder.is_shedding()
    }

    /// Whether nothing new is taken on because the end is near.
    pub(crate) fn is_draining(&self) -> bool {
        self.stage != Stage::Serving
    }

    /// Whether the relay has come to its end.
    pub(crate) fn is_finished(&self) -> bool {
        self.stage == Stage::Over
    }
}
