//! Identifiers of tracks, subgroups, requests and publishers, and dense tables by track and by session.

use weir_moqt::session::RequestId;
use weir_quic::Handle;

/// Identifies a track while it is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TrackId {
    pub(crate) index: u32,
    /// The Track Alias, which distinguishes the track from earlier ones at the same index.
    pub(crate) alias: u64,
}

/// Identifies a subgroup within its track, for as long as the track lives.
pub(crate) type SubgroupId = u64;

/// Identifies a request: the session that it belongs to, and its request ID.
pub(crate) type RequestKey = (Handle, RequestId);

/// Identifies a fetch, of a peer or of the relay, by its request.
pub(crate) type FetchId = RequestKey;

/// Identifies a publisher of a track by the request that brings its objects.
pub(crate) type PublisherId = RequestKey;

/// Group ID and subgroup ID.
pub(crate) type SubgroupKey = (u64, u64);

/// A key of a dense table: a small index, which is reused once its object is gone.
pub(crate) trait Key: Copy + PartialEq {
    fn place(self) -> usize;
}

impl Key for TrackId {
    #[inline]
    fn place(self) -> usize {
        self.index as usize
    }
}

impl Key for Handle {
    #[inline]
    fn place(self) -> usize {
        self.index()
    }
}

/// One value per track.
pub(crate) type ByTrack<T> = Dense<TrackId, T>;

/// One value per session.
pub(crate) type BySession<T> = Dense<Handle, Box<T>>;

/// A table with one value per key, at the key's index. A value of an earlier key at the same index is never returned.
#[derive(Debug)]
pub(crate) struct Dense<K, T> {
    slots: Vec<Option<(K, T)>>,
}

impl<K, T> Default for Dense<K, T> {
    fn default() -> Self {
        Self { slots: Vec::new() }
    }
}

impl<K: Key, T> Dense<K, T> {
    #[inline]
    pub(crate) fn get(&self, key: K) -> Option<&T> {
        match self.slots.get(key.place())? {
            Some((owner, value)) if *owner == key => Some(value),
            Some(_) | None => None,
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut T> {
        match self.slots.get_mut(key.place())? {
            Some((owner, value)) if *owner == key => Some(value),
            Some(_) | None => None,
        }
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<T> {
        self.get(key)?;
        self.slots[key.place()].take().map(|(_, value)| value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten().map(|(_, value)| value)
    }
}

impl<K: Key, T: Default> Dense<K, T> {
    /// Returns the value of a key, created if there is none. A value of an earlier key is dropped.
    pub(crate) fn entry(&mut self, key: K) -> &mut T {
        let place = key.place();
        if self.slots.len() <= place {
            self.slots.resize_with(place + 1, || None);
        }
        let slot = &mut self.slots[place];
        if slot.as_ref().is_some_and(|(owner, _)| *owner != key) {
            *slot = None;
        }
        let (_, value) = slot.get_or_insert_with(|| (key, T::default()));
        value
    }
}
