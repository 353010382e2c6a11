//! Single tracks, for operators who look for one.

use weir_moqt::{location::Location, name::FullTrackName, session};

use crate::{Relay, track::subgroup::Subgroup};

/// How a track stands.
#[derive(Clone, Debug, PartialEq)]
pub struct TrackState<'a> {
    /// Its name.
    pub name: &'a FullTrackName,
    /// Sessions that it comes from.
    pub publishers: usize,
    /// Subscriptions that get its objects.
    pub subscribers: usize,
    /// Requests that wait for a publisher.
    pub waiting: usize,
    /// The largest location that is known.
    pub largest: Option<Location>,
    /// Bytes of subgroups that some subscriber has not taken yet.
    pub log_bytes: u64,
}

impl Relay {
    /// What sessions with peers did not pass on, those that are gone included. Looks at every session.
    pub fn session_counters(&self) -> session::Counters {
        let peers = self.peers.iter().filter(|peer| !peer.is_neighbour);
        let counters = peers.map(|peer| *peer.session.counters());
        counters.fold(self.session_counters, session::Counters::plus)
    }

    /// Every track. Looks at all of them.
    pub fn tracks(&self) -> impl Iterator<Item = TrackState<'_>> {
        self.tracks.iter().map(|track| TrackState {
            name: &track.name,
            publishers: track.sources.len(),
            subscribers: track.subscribers.len(),
            waiting: track.waiting.len(),
            largest: track.largest,
            log_bytes: track.subgroups.iter().map(Subgroup::held).sum(),
        })
    }
}
