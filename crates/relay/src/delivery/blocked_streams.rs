//! The streams of one session that are blocked until the connection reports room.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use weir_moqt::session::RequestId;
use weir_transport::StreamId;

use crate::ids::{SubgroupId, TrackId};

/// The content of a stream to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reader {
    /// A subgroup, for one of its subscriptions.
    Subgroup(TrackId, RequestId, SubgroupId),
    /// The answer to a FETCH.
    Fetch(RequestId),
}

/// Blocked streams, by stream ID and by rank.
#[derive(Debug, Default)]
pub(super) struct BlockedStreams {
    readers: BTreeMap<StreamId, (i32, Reader)>,
    ranked: BTreeSet<(Reverse<i32>, StreamId)>,
}

impl BlockedStreams {
    /// Inserts a stream, or changes its rank. Returns whether it is new.
    pub(super) fn insert(&mut self, stream: StreamId, rank: i32, reader: Reader) -> bool {
        let is_new = self.remove(stream).is_none();
        self.readers.insert(stream, (rank, reader));
        self.ranked.insert((Reverse(rank), stream));
        is_new
    }

    /// Removes a stream, and returns its rank and what it carries.
    pub(super) fn remove(&mut self, stream: StreamId) -> Option<(i32, Reader)> {
        let (rank, reader) = self.readers.remove(&stream)?;
        self.ranked.remove(&(Reverse(rank), stream));
        Some((rank, reader))
    }

    /// Returns up to `ABOVE_MAX` streams of a higher rank, the highest first.
    pub(super) fn above(&self, rank: i32) -> Vec<StreamId> {
        let above = self.ranked.range(..(Reverse(rank), StreamId(0)));
        above.take(ABOVE_MAX).map(|&(_, stream)| stream).collect()
    }
}

/// How many streams of a higher rank are tried before the stream for which there is room.
const ABOVE_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::track::Tracks;

    #[test]
    fn the_highest_ranks_come_first_and_only_so_many() {
        let mut tracks = Tracks::default();
        let track = tracks.find_or_create(&"a--x".parse().unwrap(), 1).unwrap();
        let reader = |number| Reader::Subgroup(track, RequestId(0), number);
        let mut full = BlockedStreams::default();
        for number in 0..20 {
            let rank = i32::try_from(number % 10).unwrap();
            assert!(full.insert(StreamId(number), rank, reader(number)));
        }
        let above = full.above(7);
        assert_eq!(above, [9, 19, 8, 18].map(StreamId));
        assert_eq!(full.above(0).len(), ABOVE_MAX);
        assert_eq!(full.above(9), []);
        assert_eq!(full.remove(StreamId(9)), Some((9, reader(9))));
        assert_eq!(full.remove(StreamId(9)), None);
        let is_new = full.insert(StreamId(19), 3, reader(19));
        assert!(!is_new, "it waits already");
        assert_eq!(full.above(7), [8, 18].map(StreamId));
        assert_eq!(full.readers.len(), full.ranked.len());
    }
}
