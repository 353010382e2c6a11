//! All tracks of a relay, by name and by a small number.

use std::collections::BTreeMap;

use weir_moqt::name::{FullTrackName, Namespace, TrackName};

use crate::track::Track;

/// Names a track while it is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TrackId {
    index: u32,
    /// Tells a track from an earlier one in the same place.
    alias: u64,
}

/// All tracks.
#[derive(Debug, Default)]
pub(crate) struct Tracks {
    by_name: BTreeMap<FullTrackName, TrackId>,
    places: Vec<Option<Track>>,
    vacant: Vec<u32>,
    next_alias: u64,
    /// Tracks of which nothing is left but what the cache remembers, by their alias: the oldest first.
    resting: BTreeMap<u64, TrackId>,
}

impl Tracks {
    #[inline]
    pub(crate) fn get(&mut self, id: TrackId) -> Option<&mut Track> {
        let track = self.places.get_mut(id.index as usize)?.as_mut()?;
        (track.alias == id.alias).then_some(track)
    }

    pub(crate) fn find(&self, name: &FullTrackName) -> Option<TrackId> {
        self.by_name.get(name).copied()
    }

    /// The track of that name, made if there is none and fewer than `max` are in use.
    pub(crate) fn find_or_create(&mut self, name: &FullTrackName, max: usize) -> Option<TrackId> {
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
        Some(id)
    }

    /// Forgets a track that nobody uses any more, and gives what is left of it.
    pub(crate) fn remove_if_unused(&mut self, id: TrackId) -> Option<Track> {
        self.get(id).filter(|track| track.is_unused())?;
        self.resting.remove(&id.alias);
        let track = self.places[id.index as usize].take()?;
        self.by_name.remove(&track.name);
        self.vacant.push(id.index);
        Some(track)
    }

    /// Takes note that nothing is left of a track but what the cache remembers. With more than `max` of them
    /// it gives the oldest, to be forgotten.
    pub(crate) fn rest(&mut self, id: TrackId, max: usize) -> Option<TrackId> {
        self.resting.insert(id.alias, id);
        let is_full = self.resting.len() > max;
        is_full.then(|| self.resting.first_key_value().map(|(_, &oldest)| oldest))?
    }

    /// The tracks in a namespace or one that starts with it.
    pub(crate) fn under(&self, prefix: &Namespace) -> impl Iterator<Item = TrackId> {
        let first = FullTrackName {
            namespace: prefix.clone(),
            name: TrackName::default(),
        };
        self.by_name
            .range(first..)
            .take_while(|(name, _)| name.namespace.starts_with(prefix))
            .map(|(_, &id)| id)
    }

    /// Every track, in no particular but always the same order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Track> {
        self.places.iter().flatten()
    }

    /// Number of tracks that are in use.
    pub(crate) fn len(&self) -> usize {
        self.by_name.len() - self.resting.len()
    }

    /// Number of those of which nothing is left but what the cache remembers.
    pub(crate) fn resting_len(&self) -> usize {
        self.resting.len()
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
        let mut tracks = Tracks::default();
        let first = tracks.find_or_create(&name("a--x"), 2).unwrap();
        assert_eq!(tracks.find_or_create(&name("a--x"), 2), Some(first));
        let alias = tracks.get(first).unwrap().alias;
        assert!(tracks.remove_if_unused(first).is_some());
        assert!(tracks.remove_if_unused(first).is_none());
        let second = tracks.find_or_create(&name("a--y"), 2).unwrap();
        assert_eq!(second.index, first.index);
        assert!(tracks.get(first).is_none(), "the old track is gone");
        assert_ne!(tracks.get(second).unwrap().alias, alias);
        assert_eq!((tracks.len(), tracks.places.len()), (1, 1));
    }

    #[test]
    fn resting_tracks_are_bounded_and_do_not_count_as_used() {
        let mut tracks = Tracks::default();
        let [x, y] = ["a--x", "a--y"].map(|text| {
            let id = tracks.find_or_create(&name(text), 1).unwrap();
            assert_eq!(tracks.rest(id, 2), None, "at the limit");
            id
        });
        assert_eq!((tracks.len(), tracks.resting_len()), (0, 2));
        let z = tracks.find_or_create(&name("a--z"), 1).unwrap();
        assert_eq!(tracks.rest(z, 2), Some(x), "one past it");
        assert!(tracks.remove_if_unused(x).is_some());
        assert_eq!(tracks.find_or_create(&name("a--y"), 1), Some(y));
        assert_eq!((tracks.len(), tracks.resting_len()), (1, 1));
    }

    #[test]
    fn tracks_are_bounded() {
        let mut tracks = Tracks::default();
        assert!(tracks.find_or_create(&name("a--x"), 1).is_some());
        assert!(tracks.find_or_create(&name("a--x"), 1).is_some());
        assert!(tracks.find_or_create(&name("a--y"), 1).is_none());
        assert_eq!(tracks.len(), 1);
    }

    #[test]
    fn tracks_are_found_by_whole_fields_of_their_namespace() {
        let mut tracks = Tracks::default();
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
