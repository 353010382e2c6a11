//! All tracks of a relay, by name and by a small number.

use std::collections::BTreeMap;

use weir_moqt::name::FullTrackName;

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
            return Some(id);
        }
        if self.by_name.len() >= max {
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

    /// Forgets a track that nobody uses any more.
    pub(crate) fn remove_if_unused(&mut self, id: TrackId) {
        if let Some(track) = self.get(id)
            && track.is_unused()
        {
            let name = track.name.clone();
            self.by_name.remove(&name);
            self.places[id.index as usize] = None;
            self.vacant.push(id.index);
        }
    }

    /// Every track, in no particular but always the same order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Track> {
        self.places.iter().flatten()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }
}
