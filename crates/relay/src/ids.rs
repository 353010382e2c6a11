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

/// One value per track, found by its index.
#[derive(Debug)]
pub(crate) struct ByTrack<T> {
    slots: Vec<Option<(u64, T)>>,
}

impl<T> Default for ByTrack<T> {
    fn default() -> Self {
        Self { slots: Vec::new() }
    }
}

impl<T> ByTrack<T> {
    #[inline]
    pub(crate) fn get(&self, id: TrackId) -> Option<&T> {
        match self.slots.get(id.index as usize)? {
            Some((alias, value)) if *alias == id.alias => Some(value),
            Some(_) | None => None,
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: TrackId) -> Option<&mut T> {
        match self.slots.get_mut(id.index as usize)? {
            Some((alias, value)) if *alias == id.alias => Some(value),
            Some(_) | None => None,
        }
    }

    /// Sets the value of a track; a value of an earlier track at the same index is dropped.
    pub(crate) fn insert(&mut self, id: TrackId, value: T) {
        let index = id.index as usize;
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
        self.slots[index] = Some((id.alias, value));
    }

    pub(crate) fn remove(&mut self, id: TrackId) -> Option<T> {
        self.get(id)?;
        self.slots[id.index as usize].take().map(|(_, value)| value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten().map(|(_, value)| value)
    }
}

impl<T: Default> ByTrack<T> {
    /// The value of a track, made if there is none.
    pub(crate) fn entry(&mut self, id: TrackId) -> &mut T {
        if self.get(id).is_none() {
            self.insert(id, T::default());
        }
        let (_, value) =
            self.slots[id.index as usize].get_or_insert_with(|| (id.alias, T::default()));
        value
    }
}

/// One value per session, found by the index of its connection.
#[derive(Debug)]
pub(crate) struct BySession<T> {
    slots: Vec<Option<(Handle, Box<T>)>>,
}

impl<T> Default for BySession<T> {
    fn default() -> Self {
        Self { slots: Vec::new() }
    }
}

impl<T> BySession<T> {
    #[inline]
    pub(crate) fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        match self.slots.get_mut(handle.index())? {
            Some((owner, value)) if *owner == handle => Some(value),
            Some(_) | None => None,
        }
    }

    pub(crate) fn remove(&mut self, handle: Handle) -> Option<Box<T>> {
        self.get_mut(handle)?;
        self.slots[handle.index()].take().map(|(_, value)| value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten().map(|(_, value)| value.as_ref())
    }
}

impl<T: Default> BySession<T> {
    /// The value of a session, made if there is none.
    pub(crate) fn entry(&mut self, handle: Handle) -> &mut T {
        let index = handle.index();
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
        let slot = &mut self.slots[index];
        if slot.as_ref().is_some_and(|(owner, _)| *owner != handle) {
            *slot = None;
        }
        let (_, value) = slot.get_or_insert_with(|| (handle, Box::default()));
        value
    }
}
