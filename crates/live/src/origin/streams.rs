//! The streams of an origin: in which order they go, by when, and how much may wait for them.
//!
//! A stream stays here until the peer has acknowledged all of it, or it is given up.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use weir_moqt::draft::Draft;
use weir_moqt::error::ResetCode;
use weir_transport::{StreamId, Transport};

use super::send_stream::{Object, SendOrder, SendStream};
use crate::strategy::StreamKey;

/// All streams that have not arrived.
#[derive(Debug, Default)]
pub(super) struct Streams {
    streams: BTreeMap<StreamKey, SendStream>,
    /// When which stream is to be reset.
    deadlines: BTreeSet<(Instant, StreamKey)>,
}

impl Streams {
    /// Puts an object behind what waits for a stream; returns whether too much waits for that one then. An object for which
    /// nothing else has to wait is never too much.
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

    /// A stream is reset at `at` if it has not arrived.
    pub(super) fn reset_at(&mut self, at: Instant, key: StreamKey) {
        self.deadlines.insert((at, key));
    }

    /// Nothing more comes on a stream.
    pub(super) fn finish(&mut self, key: StreamKey) {
        if let Some(outgoing) = self.streams.get_mut(&key) {
            outgoing.queue.finish();
            if outgoing.queue.is_given_up() {
                self.streams.remove(&key);
            }
        }
    }

    /// Nothing more comes on any stream.
    pub(super) fn finish_all(&mut self) {
        self.streams.retain(|_, outgoing| {
            outgoing.queue.finish();
            !outgoing.queue.is_given_up()
        });
    }

    /// A stream is not worth sending, and nothing more comes of it; returns whether it had not arrived.
    pub(super) fn reset(&mut self, connection: &mut dyn Transport, key: StreamKey) -> bool {
        let outgoing = self.streams.remove(&key);
        let outgoing = outgoing.filter(|outgoing| !outgoing.queue.is_given_up());
        outgoing.is_some_and(|mut outgoing| {
            outgoing.give_up(connection, ResetCode::DELIVERY_TIMEOUT);
            true
        })
    }

    /// A stream is not sent, whatever may still come of it; returns whether there was one.
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

    /// The peer wants no more of a stream; returns whether it was one of these.
    pub(super) fn stopped(&mut self, connection: &mut dyn Transport, stream: StreamId) -> bool {
        let key = self.key_of(stream);
        key.is_some_and(|key| self.give_up(connection, key, ResetCode::CANCELLED))
    }

    /// The peer has acknowledged all of a stream.
    pub(super) fn arrived(&mut self, stream: StreamId) {
        if let Some(key) = self.key_of(stream) {
            self.streams.remove(&key);
        }
    }

    /// Writes what waits, as far as the connection takes it: what goes first is written first, for what it has taken it keeps.
    /// Calls `opened` for each stream that begins, with its track.
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

    /// Takes off the streams that have to be reset by now.
    pub(super) fn expired(&mut self, now: Instant) -> Vec<StreamKey> {
        let due = self.deadlines.extract_if(.., |(at, _)| *at <= now);
        due.map(|(_, key)| key).collect()
    }

    /// When the next one has to be.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// The streams of a track.
    pub(super) fn of_track(&self, track: usize) -> Vec<StreamKey> {
        let keys = self.streams.keys().filter(|key| key.track == track);
        keys.copied().collect()
    }

    /// The priorities of a track were changed.
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

    /// Whether a stream of a track has not arrived.
    pub(super) fn has_track(&self, track: usize) -> bool {
        self.streams.keys().any(|key| key.track == track)
    }

    /// Streams that have not arrived.
    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    /// Bytes that the connection has not taken.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.streams
            .values()
            .map(|one| one.queue.waiting_bytes())
            .sum()
    }

    /// Whether so much waits that nothing more is taken in.
    pub(super) fn is_full(&self) -> bool {
        self.waiting_bytes() > WAITING_BYTES_TOTAL_MAX
    }

    /// The stream that would go last of all that wait, if too much waits and that is one of an older group than `group`.
    /// Where it is of the present one, nothing is to be given up, and the source has to wait.
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

/// Bytes that may wait for one stream, unless they are of one object; it is given up beyond.
pub(super) const WAITING_BYTES_MAX: usize = 8 << 20;
/// Bytes that may wait for all streams together. Beyond, what would go last is given up if it is of an older group; else
/// nothing is taken from the source.
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

    /// What the head of a stream and of its object takes.
    fn heads() -> usize {
        let mut streams = Streams::default();
        push(&mut streams, GroupOrder::Ascending, 1, 1);
        // The length of a larger payload takes three bytes more.
        streams.waiting_bytes() - 1 + 3
    }

    #[test]
    fn so_much_may_wait_for_one_stream_and_no_more() {
        let order = GroupOrder::Ascending;
        // A small object, and a large one behind it.
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
