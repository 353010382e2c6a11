//! All tracks of a relay, by name and by ID.

use std::collections::BTreeMap;

use weir_moqt::name::{FullTrackName, Namespace, TrackName};
use weir_quic::Handle;

use super::{Track, inbound::InboundStreams};
use crate::{
    Counters,
    cache::Ledger,
    effect::Effect,
    ids::{BySession, RequestKey, SubgroupId, TrackId},
    timers::Timer,
    turn::Turn,
};

/// All tracks, their cache ledger, and the streams that are being received.
#[derive(Debug, Default)]
pub(crate) struct Tracks {
    pub(super) table: TrackTable,
    /// The content of the caches of all tracks.
    pub(super) ledger: Ledger,
    /// Subgroup streams that are being received, by session.
    pub(super) inbound: BySession<InboundStreams>,
    /// Subgroups that grew in this turn.
    pub(super) grown: Vec<(TrackId, SubgroupId)>,
}

/// Which limit of tracks is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// [`tracks_max`](crate::Limits::tracks_max).
    Tracks,
    /// [`tracks_waiting_max`](crate::Limits::tracks_waiting_max).
    Waiting,
    /// [`tracks_per_address_max`](crate::Limits::tracks_per_address_max).
    OfAddress,
}

impl Full {
    /// Counts a request that is refused.
    pub(crate) fn count(self, counters: &mut Counters) {
        match self {
            Self::Tracks => counters.refused_limit_tracks += 1,
            Self::Waiting => counters.refused_limit_waiting += 1,
            Self::OfAddress => counters.refused_limit_tracks_address += 1,
        }
    }
}

/// Tracks by name and by ID.
#[derive(Debug, Default)]
pub(super) struct TrackTable {
    by_name: BTreeMap<FullTrackName, TrackId>,
    places: Vec<Option<Track>>,
    vacant: Vec<u32>,
    next_alias: u64,
    /// Tracks that exist only in the cache, by alias: the oldest first.
    resting: BTreeMap<u64, TrackId>,
    /// The number of tracks of which no publisher is known.
    unknown: usize,
}

impl Tracks {
    #[inline]
    pub(crate) fn get(&mut self, id: TrackId) -> Option<&mut Track> {
        self.table.get(id)
    }

    pub(crate) fn find(&self, name: &FullTrackName) -> Option<TrackId> {
        self.table.find(name)
    }

    /// Returns the track of a name. Creates it if fewer than `max` tracks are in use.
    pub(crate) fn find_or_create(&mut self, name: &FullTrackName, max: usize) -> Option<TrackId> {
        self.table.find_or_create(name, max)
    }

    /// Returns the track of a name, for a request that publishes it. Creates the track within the limits of all tracks and of
    /// those that clients of one address may add.
    pub(crate) fn find_or_add(
        &mut self,
        turn: &mut Turn<'_>,
        request: RequestKey,
        name: &FullTrackName,
    ) -> Result<TrackId, Full> {
        if let Some(id) = self.find(name) {
            return Ok(id);
        }
        let counted = turn.add_track(request.0).ok_or(Full::OfAddress)?;
        let id = self.find_or_create(name, turn.config.limits.tracks_max);
        let id = id.ok_or(Full::Tracks)?;
        if let Some(track) = self.get(id) {
            track.counted = Some(counted);
        }
        Ok(id)
    }

    /// Returns the track of a name, for a request that may have to wait for a publisher. The same limits hold, and that of
    /// tracks without a publisher.
    pub(crate) fn find_or_await(
        &mut self,
        turn: &mut Turn<'_>,
        request: RequestKey,
        name: &FullTrackName,
    ) -> Result<TrackId, Full> {
        let max = turn.config.limits.tracks_waiting_max;
        if self.table.unknown >= max && self.find(name).is_none() {
            return Err(Full::Waiting);
        }
        self.find_or_add(turn, request, name)
    }

    /// Notes that a publisher of a track is known.
    pub(crate) fn note_known(&mut self, id: TrackId) {
        self.table.note_known(id);
    }

    /// Returns the tracks in a namespace and under it.
    pub(crate) fn under<'a>(
        &'a self,
        prefix: &'a Namespace,
    ) -> impl Iterator<Item = TrackId> + use<'a> {
        self.table.under(prefix)
    }

    /// Returns the same tracks, by name from `from` on.
    pub(crate) fn under_from<'a>(
        &'a self,
        prefix: &'a Namespace,
        from: &FullTrackName,
    ) -> impl Iterator<Item = TrackId> + use<'a> {
        self.table.under_from(prefix, from)
    }

    /// Returns all tracks, in a deterministic order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TrackId, &Track)> {
        self.table.iter()
    }

    /// Returns the number of tracks in use.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns the number of tracks that exist only in the cache.
    pub(crate) fn resting_len(&self) -> usize {
        self.table.resting.len()
    }

    /// Returns the number of objects in all caches, and their bytes.
    pub(crate) fn cached(&self) -> (u64, u64) {
        (self.ledger.objects(), self.ledger.bytes())
    }

    /// Takes the subgroups that grew since the last call.
    pub(crate) fn take_grown(&mut self) -> Vec<(TrackId, SubgroupId)> {
        std::mem::take(&mut self.grown)
    }

    /// Takes the list of [`take_grown`](Self::take_grown) back to reuse its memory.
    pub(crate) fn recycle_grown(&mut self, mut grown: Vec<(TrackId, SubgroupId)>) {
        grown.clear();
        if self.grown.is_empty() {
            self.grown = grown;
        }
    }

    /// Returns whether any subgroup grew.
    #[inline]
    pub(crate) fn has_grown(&self) -> bool {
        !self.grown.is_empty()
    }

    pub(super) fn mark_grown(&mut self, track: TrackId, subgroup: SubgroupId) {
        if !self.grown.contains(&(track, subgroup)) {
            self.grown.push((track, subgroup));
        }
    }

    /// Forgets a track without publishers that no other owner uses, unless the cache holds objects of it. Returns
    /// whether the track is gone.
    pub(crate) fn forget_if_unused(&mut self, turn: &mut Turn<'_>, id: TrackId) -> bool {
        let Some(track) = self.table.get(id).filter(|it| it.publishers.is_empty()) else {
            return false;
        };
        if let Some(at) = track.orphaned_until.take() {
            turn.timers.cancel(at, Timer::Orphaned(id));
        }
        if let Some(at) = track.leaving_at.take() {
            turn.timers.cancel(at, Timer::Leaving(id));
        }
        if let Some(at) = track.answers_due.take() {
            turn.timers.cancel(at, Timer::Unanswered(id));
        }
        if track.cache.is_empty() {
            self.table.remove(id);
            return true;
        }
        if let Some(oldest) = self.table.rest(id, turn.config.limits.tracks_resting_max) {
            turn.counters.tracks_resting_forgotten += 1;
            if let Some(mut track) = self.table.remove(oldest) {
                track.cache.clear(&mut self.ledger);
            }
            return oldest == id;
        }
        false
    }

    /// Ends the streams that were being received from a session that is gone.
    pub(crate) fn on_session_lost(&mut self, turn: &mut Turn<'_>, handle: Handle) {
        for inbound in self
            .inbound
            .remove(handle)
            .into_iter()
            .flat_map(|it| it.into_values())
        {
            let _sound = self.end_stream(turn, handle, &inbound, super::inbound::CUT);
        }
    }

    /// Has the track checked for whether it can be forgotten.
    pub(super) fn release(turn: &mut Turn<'_>, id: TrackId) {
        turn.push(Effect::Released(id));
    }
}

impl TrackTable {
    #[inline]
    pub(super) fn get(&mut self, id: TrackId) -> Option<&mut Track> {
        let track = self.places.get_mut(id.index as usize)?.as_mut()?;
        (track.alias == id.alias).then_some(track)
    }

    pub(super) fn find(&self, name: &FullTrackName) -> Option<TrackId> {
        self.by_name.get(name).copied()
    }

    /// Returns the track of a name. Creates it if fewer than `max` tracks are in use.
    pub(super) fn find_or_create(&mut self, name: &FullTrackName, max: usize) -> Option<TrackId> {
        if let Some(id) = self.find(name) {
            self.resting.remove(&id.alias);
            return Some(id);
        }
        if self.len() >= max {
            return None;
        }
        let alias = self.next_alias;
        self.next_alias += 1;
        let track = Track::new(name.clone(), alias);
        let index = if let Some(index) = self.vacant.pop() {
            index
        } else {
            self.places.push(None);
            u32::try_from(self.places.len() - 1).ok()?
        };
        self.places[index as usize] = Some(track);
        let id = TrackId { index, alias };
        self.by_name.insert(name.clone(), id);
        self.unknown += 1;
        Some(id)
    }

    /// Notes that a publisher of a track is known.
    pub(super) fn note_known(&mut self, id: TrackId) {
        if let Some(track) = self.get(id)
            && !std::mem::replace(&mut track.is_known, true)
        {
            self.unknown -= 1;
        }
    }

    /// Removes a track that is not in use, and returns what is left of it.
    pub(super) fn remove(&mut self, id: TrackId) -> Option<Track> {
        self.get(id)?;
        self.resting.remove(&id.alias);
        let track = self.places[id.index as usize].take()?;
        self.by_name.remove(&track.name);
        self.unknown -= usize::from(!track.is_known);
        self.vacant.push(id.index);
        Some(track)
    }

    /// Notes that a track exists only in the cache. Beyond `max` of them, returns the oldest, which is to be forgotten.
    pub(super) fn rest(&mut self, id: TrackId, max: usize) -> Option<TrackId> {
        self.resting.insert(id.alias, id);
        if let Some(track) = self.get(id) {
            track.counted = None;
        }
        let is_full = self.resting.len() > max;
        is_full.then(|| self.resting.first_key_value().map(|(_, &oldest)| oldest))?
    }

    /// Returns the tracks in a namespace and under it.
    pub(super) fn under<'a>(
        &'a self,
        prefix: &'a Namespace,
    ) -> impl Iterator<Item = TrackId> + use<'a> {
        let first = FullTrackName {
            namespace: prefix.clone(),
            name: TrackName::default(),
        };
        self.under_from(prefix, &first)
    }

    /// Returns the same tracks, by name from `from` on.
    pub(super) fn under_from<'a>(
        &'a self,
        prefix: &'a Namespace,
        from: &FullTrackName,
    ) -> impl Iterator<Item = TrackId> + use<'a> {
        self.by_name
            .range(from.clone()..)
            .take_while(|(name, _)| name.namespace.starts_with(prefix))
            .map(|(_, &id)| id)
    }

    /// Returns all tracks, in a deterministic order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (TrackId, &Track)> {
        let by_index = (0..).zip(&self.places);
        by_index.filter_map(|(index, track)| {
            let track = track.as_ref()?;
            let alias = track.alias;
            Some((TrackId { index, alias }, track))
        })
    }

    /// Returns the number of tracks in use.
    pub(super) fn len(&self) -> usize {
        self.by_name.len() - self.resting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> FullTrackName {
        text.parse().unwrap()
    }

    #[test]
    fn a_place_is_used_again_under_another_alias() {
        let mut tracks = TrackTable::default();
        let first = tracks.find_or_create(&name("a--x"), 2).unwrap();
        assert_eq!(tracks.find_or_create(&name("a--x"), 2), Some(first));
        let alias = tracks.get(first).unwrap().alias;
        assert!(tracks.remove(first).is_some());
        assert!(tracks.remove(first).is_none());
        let second = tracks.find_or_create(&name("a--y"), 2).unwrap();
        assert_eq!(second.index, first.index);
        assert!(tracks.get(first).is_none(), "the old track is gone");
        assert_ne!(tracks.get(second).unwrap().alias, alias);
        assert_eq!((tracks.len(), tracks.places.len()), (1, 1));
    }

    #[test]
    fn resting_tracks_are_bounded_and_do_not_count_as_used() {
        let mut tracks = TrackTable::default();
        let [x, y] = ["a--x", "a--y"].map(|text| {
            let id = tracks.find_or_create(&name(text), 1).unwrap();
            assert_eq!(tracks.rest(id, 2), None, "at the limit");
            id
        });
        assert_eq!((tracks.len(), tracks.resting.len()), (0, 2));
        let z = tracks.find_or_create(&name("a--z"), 1).unwrap();
        assert_eq!(tracks.rest(z, 2), Some(x), "one past it");
        assert!(tracks.remove(x).is_some());
        assert_eq!(tracks.find_or_create(&name("a--y"), 1), Some(y));
        assert_eq!((tracks.len(), tracks.resting.len()), (1, 1));
    }

    #[test]
    fn tracks_are_bounded() {
        let mut tracks = TrackTable::default();
        assert!(tracks.find_or_create(&name("a--x"), 1).is_some());
        assert!(tracks.find_or_create(&name("a--x"), 1).is_some());
        assert!(tracks.find_or_create(&name("a--y"), 1).is_none());
        assert_eq!(tracks.len(), 1);
    }

    #[test]
    fn tracks_are_found_by_whole_fields_of_their_namespace() {
        let mut tracks = TrackTable::default();
        let mut id = |text| tracks.find_or_create(&name(text), 9).unwrap();
        let [a, ab, abc, abx, b] = ["a--x", "a-b--x", "a-b-c--", "ab--x", "b--x"].map(&mut id);
        let under = |text: &str| -> Vec<_> { tracks.under(&name(text).namespace).collect() };
        assert_eq!(under("a--"), [a, ab, abc]);
        assert_eq!(under("a-b--"), [ab, abc]);
        assert_eq!(under("ab--"), [abx]);
        assert_eq!(under("b--"), [b]);
        assert_eq!(under("c--"), []);
        assert_eq!(tracks.under(&Namespace::EMPTY).count(), 5);
    }
}
