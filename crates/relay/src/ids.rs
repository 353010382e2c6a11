//! Names of tracks, logs, requests and publishers, and dense tables by track and by session.

use weir_moqt::session::RequestId;
use weir_quic::Handle;

/// Names a track while it is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TrackId {
    pub(crate) index: u32,
    /// The Track Alias, which tells a track from an earlier one at the same index.
    pub(crate) alias: u64,
}

/// Names a subgroup within its track, for as long as the track lives.
pub(crate) type SubgroupId = u64;

/// Names a request: the session that it belongs to, and its ID there.
pub(crate) type RequestKey = (Handle, RequestId);

/// Names a fetch, of a peer or of the relay, by its request.
pub(crate) type FetchId = RequestKey;

/// Names a publisher of a track by the request that its objects come by.
pub(crate) type PublisherId = RequestKey;

/// A group and a subgroup in it.
pub(crate) type SubgroupKey = (u64, u64);

/// What a dense table is kept by: a small number, which is used again when what it named is gone.
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

/// One value per key, found by the key's place. What an earlier key had there is never found.
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
    /// The value of a key, made if there is none; what an earlier key has left there is dropped.
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
