//! The streams of an origin: their order, their deadlines, and the limits of their queues.
//!
//! A stream stays here until the peer has acknowledged all of it, or the origin has given it up.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use weir_moqt::draft::Draft;
use weir_moqt::error::ResetCode;
use weir_transport::{StreamId, Transport};

use super::send_stream::{Object, SendOrder, SendStream};
use crate::strategy::StreamKey;

/// All streams that are not completely acknowledged.
#[derive(Debug, Default)]
pub(super) struct Streams {
    streams: BTreeMap<StreamKey, SendStream>,
    /// When each stream is to be reset.
    deadlines: BTreeSet<(Instant, StreamKey)>,
}

impl Streams {
    /// Queues an object for a stream. Returns whether the stream's queue is then too long. A single object is never too
    /// much.
    pub(super) fn push(
        &mut self,
        draft: Draft,
        key: StreamKey,
        order: SendOrder,
        object: Object,
    ) -> bool {
        let outgoing = self.streams.entry(key);
        let outgoing = outgoing.or_insert_with(|| SendStream::new(order));
        let is_alone = outgoing.queue.waiting_bytes() == 0;
        outgoing.push(draft, object);
        !is_alone && outgoing.queue.waiting_bytes() > WAITING_BYTES_MAX
    }

    /// Resets a stream at `at` unless it is acknowledged by then.
    pub(super) fn reset_at(&mut self, at: Instant, key: StreamKey) {
        self.deadlines.insert((at, key));
    }

    /// Ends a stream after its queued objects.
    pub(super) fn finish(&mut self, key: StreamKey) {
        if let Some(outgoing) = self.streams.get_mut(&key) {
            outgoing.queue.finish();
            if outgoing.queue.is_given_up() {
                self.streams.remove(&key);
            }
        }
    }

    /// Ends all streams after their queued objects.
    pub(super) fn finish_all(&mut self) {
        self.streams.retain(|_, outgoing| {
            outgoing.queue.finish();
            !outgoing.queue.is_given_up()
        });
    }

    /// Resets a stream that is not worth sending. Returns whether it was still under way.
    pub(super) fn reset(&mut self, connection: &mut dyn Transport, key: StreamKey) -> bool {
        let outgoing = self.streams.remove(&key);
        let outgoing = outgoing.filter(|outgoing| !outgoing.queue.is_given_up());
        outgoing.is_some_and(|mut outgoing| {
            outgoing.give_up(connection, ResetCode::DELIVERY_TIMEOUT);
            true
        })
    }

    /// Resets a stream and ignores later objects for it. Returns whether it existed.
    pub(super) fn give_up(
        &mut self,
        connection: &mut dyn Transport,
        key: StreamKey,
        code: ResetCode,
    ) -> bool {
        let outgoing = self.streams.get_mut(&key);
        let Some(outgoing) = outgoing.filter(|outgoing| !outgoing.queue.is_given_up()) else {
            return false;
        };
        outgoing.give_up(connection, code);
        if outgoing.queue.is_over() {
            self.streams.remove(&key);
        }
        true
    }

    /// Handles the peer's `STOP_SENDING`. Returns whether the stream was one of these.
    pub(super) fn stopped(&mut self, connection: &mut dyn Transport, stream: StreamId) -> bool {
        let key = self.key_of(stream);
        key.is_some_and(|key| self.give_up(connection, key, ResetCode::CANCELLED))
    }

    /// Removes a stream that the peer has acknowledged completely.
    pub(super) fn arrived(&mut self, stream: StreamId) {
        if let Some(key) = self.key_of(stream) {
            self.streams.remove(&key);
        }
    }

    /// Writes queued data as far as the connection accepts it, streams of highest rank first, since the connection
    /// keeps what it has accepted. Calls `opened` with the track of each stream that opens.
    pub(super) fn flush(&mut self, connection: &mut dyn Transport, mut opened: impl FnMut(usize)) {
        let working = self.streams.iter().filter(|(_, one)| one.queue.has_work());
        let working = working.map(|(key, one)| (Reverse(one.order.rank), *key));
        let mut working: Vec<(Reverse<i32>, StreamKey)> = working.collect();
        working.sort_unstable();
        for (_, key) in working {
            let Some(outgoing) = self.streams.get_mut(&key) else {
                continue;
            };
            let was_open = outgoing.queue.stream().is_some();
            let flushed = outgoing.queue.flush(connection, |()| {});
            if !was_open && outgoing.queue.stream().is_some() {
                opened(key.track);
            }
            if flushed.is_err() {
                self.give_up(connection, key, ResetCode::CANCELLED);
            }
        }
    }

    /// Returns the streams whose deadlines have passed.
    pub(super) fn expired(&mut self, now: Instant) -> Vec<StreamKey> {
        let due = self.deadlines.extract_if(.., |(at, _)| *at <= now);
        due.map(|(_, key)| key).collect()
    }

    /// Returns the next deadline.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Returns the streams of a track.
    pub(super) fn of_track(&self, track: usize) -> Vec<StreamKey> {
        let keys = self.streams.keys().filter(|key| key.track == track);
        keys.copied().collect()
    }

    /// Applies changed priorities of a track.
    pub(super) fn update_ranks(
        &mut self,
        connection: &mut dyn Transport,
        track: usize,
        rank: impl Fn(&SendOrder) -> i32,
    ) {
        let of_track = self.streams.iter_mut();
        for (_, outgoing) in of_track.filter(|(key, _)| key.track == track) {
            outgoing.set_rank(connection, rank(&outgoing.order));
        }
    }

    /// Whether a stream of a track is not completely acknowledged.
    pub(super) fn has_track(&self, track: usize) -> bool {
        self.streams.keys().any(|key| key.track == track)
    }

    /// Returns the number of streams that are not completely acknowledged.
    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    /// Returns the bytes that the connection has not accepted.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.streams
            .values()
            .map(|one| one.queue.waiting_bytes())
            .sum()
    }

    /// Whether the queues are so long that the origin must take nothing from the source.
    pub(super) fn is_full(&self) -> bool {
        self.waiting_bytes() > WAITING_BYTES_TOTAL_MAX
    }

    /// Returns the queued stream of lowest rank, if the queues are too long and its group is older than `group`. If
    /// that stream belongs to the current group, returns `None`, and the source must wait.
    pub(super) fn surplus(&self, group: u64) -> Option<StreamKey> {
        if !self.is_full() {
            return None;
        }
        let waiting = self
            .streams
            .iter()
            .filter(|(_, one)| one.queue.waiting_bytes() > 0);
        let last = waiting.min_by_key(|(_, one)| one.order.rank)?;
        (last.0.group < group).then_some(*last.0)
    }

    fn key_of(&self, stream: StreamId) -> Option<StreamKey> {
        let mut streams = self.streams.iter();
        let found = streams.find(|(_, one)| one.queue.stream() == Some(stream));
        found.map(|(key, _)| *key)
    }
}

/// Bytes that may be queued for one stream, unless a single object has more. Beyond this, the stream is given up.
pub(super) const WAITING_BYTES_MAX: usize = 8 << 20;
/// Bytes that may be queued for all streams. Beyond this, the stream of lowest rank is given up if its group is older.
/// Otherwise nothing is taken from the source.
const WAITING_BYTES_TOTAL_MAX: usize = 32 << 20;

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use weir_moqt::parameter::GroupOrder;
    use weir_moqt::priority::rank;
    use weir_moqt::property::Properties;

    use super::*;

    fn push(streams: &mut Streams, order: GroupOrder, group: u64, bytes: usize) -> bool {
        let key = StreamKey {
            track: 0,
            group,
            subgroup: 0,
        };
        let order = SendOrder {
            key,
            priority: 128,
            rank: rank(128, 128, order, group, 0),
        };
        let object = Object {
            id: u64::from(streams.streams.contains_key(&key)),
            properties: Properties::EMPTY,
            payload: Bytes::from(vec![0; bytes]),
        };
        streams.push(Draft::Draft18, key, order, object)
    }

    /// Returns the size of a stream's header and an object's header.
    fn heads() -> usize {
        let mut streams = Streams::default();
        push(&mut streams, GroupOrder::Ascending, 1, 1);
        // The length of a larger payload takes three more bytes.
        streams.waiting_bytes() - 1 + 3
    }

    #[test]
    fn so_much_may_wait_for_one_stream_and_no_more() {
        let order = GroupOrder::Ascending;
        // A small object, and a large one after it.
        let two = |bytes: usize| {
            let mut streams = Streams::default();
            assert!(!push(&mut streams, order, 1, 1));
            let is_over = push(&mut streams, order, 1, bytes);
            (streams.waiting_bytes(), is_over)
        };
        let half = WAITING_BYTES_MAX / 2;
        let rest = two(half).0 - half;
        for (more, is_over) in [(0, false), (1, true)] {
            let bytes = WAITING_BYTES_MAX + more;
            assert_eq!(two(bytes - rest), (bytes, is_over));
        }
    }

    #[test]
    fn an_object_that_waits_alone_is_not_too_much() {
        let mut streams = Streams::default();
        let order = GroupOrder::Ascending;
        assert!(!push(&mut streams, order, 1, 2 * WAITING_BYTES_MAX));
        assert!(push(&mut streams, order, 1, 1));
    }

    #[test]
    fn beyond_what_may_wait_in_all_the_last_to_go_is_given_up_if_it_is_old() {
        for (order, surplus) in [
            (GroupOrder::Descending, Some(1)),
            (GroupOrder::Ascending, None),
        ] {
            for (more, is_full) in [(0, false), (1, true)] {
                let mut streams = Streams::default();
                for group in 1..=4 {
                    let more = if group == 4 { more } else { 0 };
                    let bytes = WAITING_BYTES_MAX - heads() + more;
                    push(&mut streams, order, group, bytes);
                }
                assert_eq!(streams.is_full(), is_full);
                let found = streams.surplus(4).map(|key| key.group);
                assert_eq!(found, surplus.filter(|_| is_full), "{order:?}");
            }
        }
    }
}
