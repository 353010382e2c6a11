//! The established subscriptions of one track, sorted by session and request.
//!
//! They are stored in pieces, so that an insertion or a removal moves a limited number of them. When all viewers of a
//! large audience leave, each of them costs the same.

use weir_moqt::session::RequestId;
use weir_quic::Handle;

use super::subscription::Subscription;

/// The established subscriptions of one track.
#[derive(Debug, Default)]
pub(super) struct Established {
    /// Each has from one to [`PIECE_MAX`] subscriptions.
    pieces: Vec<Vec<Subscription>>,
    len: usize,
    /// How many are of links.
    links: usize,
}

/// The place of a subscription: its piece, and its index in the piece.
type Place = (usize, usize);

impl Established {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of subscriptions of publishers' and subscribers' sessions.
    pub(super) fn clients_len(&self) -> usize {
        self.len - self.links
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Subscription> {
        self.pieces.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Subscription> {
        self.pieces.iter_mut().flatten()
    }

    /// Returns the subscriptions in parts, for the fan-out.
    #[inline]
    pub(super) fn pieces(&self) -> &[Vec<Subscription>] {
        &self.pieces
    }

    /// Returns the subscriptions in parts, for the fan-out.
    #[inline]
    pub(super) fn pieces_mut(&mut self) -> &mut [Vec<Subscription>] {
        &mut self.pieces
    }

    pub(super) fn get(&self, handle: Handle, request: RequestId) -> Option<&Subscription> {
        let (piece, index) = self.place(handle, request).ok()?;
        Some(&self.pieces[piece][index])
    }

    pub(super) fn get_mut(
        &mut self,
        handle: Handle,
        request: RequestId,
    ) -> Option<&mut Subscription> {
        let (piece, index) = self.place(handle, request).ok()?;
        Some(&mut self.pieces[piece][index])
    }

    /// Returns whether a session has a subscription.
    pub(super) fn has_session(&self, handle: Handle) -> bool {
        let next = match self.place(handle, RequestId(0)) {
            Ok(_) => return true,
            Err((piece, index)) => self.pieces.get(piece).and_then(|piece| piece.get(index)),
        };
        next.is_some_and(|next| next.handle == handle)
    }

    /// Adds a subscription, unless there is one of the same request.
    pub(super) fn insert(&mut self, subscription: Subscription) {
        let Err((piece, index)) = self.place(subscription.handle, subscription.request) else {
            return;
        };
        self.len += 1;
        self.links += usize::from(subscription.kind.is_link());
        let Some(full) = self.pieces.get_mut(piece) else {
            return self.append(subscription);
        };
        full.insert(index, subscription);
        if full.len() > PIECE_MAX {
            let half = full.split_off(PIECE_MAX / 2);
            self.pieces.insert(piece + 1, half);
        }
    }

    /// Removes a subscription.
    pub(super) fn remove(&mut self, handle: Handle, request: RequestId) -> Option<Subscription> {
        let (piece, index) = self.place(handle, request).ok()?;
        let removed = self.pieces[piece].remove(index);
        if self.pieces[piece].is_empty() {
            self.pieces.remove(piece);
        }
        self.len -= 1;
        self.links -= usize::from(removed.kind.is_link());
        Some(removed)
    }

    /// Adds a subscription behind all others.
    fn append(&mut self, subscription: Subscription) {
        match self.pieces.last_mut() {
            Some(last) if last.len() < PIECE_MAX => last.push(subscription),
            Some(_) | None => self.pieces.push(vec![subscription]),
        }
    }

    /// Returns the place of a subscription, or the place at which to insert it. The latter is behind all pieces if the
    /// subscription belongs at the end.
    fn place(&self, handle: Handle, request: RequestId) -> Result<Place, Place> {
        let key = (handle, request);
        let piece = self.pieces.partition_point(|piece| {
            let last = piece.last();
            last.is_some_and(|last| (last.handle, last.request) < key)
        });
        let Some(found) = self.pieces.get(piece) else {
            return Err((piece, 0));
        };
        let index = found.binary_search_by_key(&key, |other| (other.handle, other.request));
        index
            .map(|index| (piece, index))
            .map_err(|index| (piece, index))
    }
}

/// Subscriptions in one piece: some 16 KiB to move at most.
const PIECE_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use weir_moqt::parameter::{GroupOrder, Parameters};

    use super::*;
    use crate::{tests::handles, track::TrackDefaults};

    fn subscription(handle: Handle, request: u64) -> Subscription {
        let defaults = TrackDefaults {
            priority: 0,
            order: GroupOrder::Ascending,
            object_timeout: None,
            subgroup_timeout: None,
        };
        let parameters = Parameters::default();
        Subscription::new(handle, RequestId(request), &parameters, None, defaults)
    }

    #[test]
    fn subscriptions_stay_sorted_whatever_comes_and_goes() {
        let handles: [Handle; 3] = handles();
        let (mut established, mut model) = (Established::default(), BTreeSet::new());
        let mut random = 7_u64;
        for _ in 0..20_000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let (handle, request) = (handles[(random >> 40) as usize % 3], random >> 50 & 0xff);
            let key = (handle, RequestId(request));
            if random >> 33 & 1 == 0 {
                established.insert(subscription(handle, request));
                model.insert(key);
            } else {
                let removed = established.remove(handle, RequestId(request));
                assert_eq!(removed.is_some(), model.remove(&key));
            }
            assert_eq!(established.len(), model.len());
            let is_found = established.get(handle, RequestId(request)).is_some();
            assert_eq!(is_found, model.contains(&key));
        }
        let keys: Vec<_> = established
            .iter()
            .map(|it| (it.handle, it.request))
            .collect();
        assert_eq!(keys, model.iter().copied().collect::<Vec<_>>());
        for handle in handles {
            let expected = model.iter().any(|(other, _)| *other == handle);
            assert_eq!(established.has_session(handle), expected);
        }
        let sizes = established.pieces.iter().map(Vec::len);
        assert!(sizes.clone().all(|len| (1..=PIECE_MAX).contains(&len)));
        assert_eq!(sizes.sum::<usize>(), established.len());
    }

    /// Counts the subscriptions, and the pieces, that each removal moves.
    #[test]
    fn a_large_audience_leaves_at_the_same_cost_each() {
        let [handle] = handles();
        let moved_by_each = |audience: u64, from_the_front: bool| {
            let mut established = Established::default();
            for request in 0..audience {
                established.insert(subscription(handle, request));
            }
            let all = established.len();
            let mut moved = 0;
            for number in 0..audience {
                let request = if from_the_front {
                    number
                } else {
                    audience - 1 - number
                };
                let place = established.place(handle, RequestId(request));
                let (piece, index) = place.expect("it subscribed");
                let len = established.pieces[piece].len();
                moved += len - 1 - index;
                if len == 1 {
                    moved += established.pieces.len() - 1 - piece;
                }
                assert!(established.remove(handle, RequestId(request)).is_some());
            }
            assert!(established.is_empty() && established.pieces.is_empty());
            moved / all
        };
        for from_the_front in [true, false] {
            for audience in [1_000, 20_000] {
                assert!(moved_by_each(audience, from_the_front) < PIECE_MAX);
            }
        }
    }

    #[test]
    fn an_empty_track_has_nobody() {
        let [handle] = handles();
        let mut established = Established::default();
        assert!(established.is_empty() && !established.has_session(handle));
        established.insert(subscription(handle, 4));
        established.insert(subscription(handle, 4));
        assert_eq!(established.len(), 1, "one for each request");
        assert!(established.has_session(handle));
        assert!(established.get_mut(handle, RequestId(4)).is_some());
        assert!(established.remove(handle, RequestId(4)).is_some());
        assert!(established.is_empty() && established.pieces.is_empty());
    }
}
