//! A buffer for objects whose track alias is unknown, with limits and a deadline.
//!
//! The message that assigns an alias comes on another stream, and objects may overtake it
//! [moqt-18 §11.3] [moqt-18 §11.4.2].

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use weir_transport::StreamId;

use crate::limits::Limits;

/// Datagrams and streams with an unknown alias, in the order they came. Datagrams are copied out of
/// their receive buffers; streams are not read beyond their header.
#[derive(Debug, Default)]
pub(super) struct UnknownAliases {
    datagrams: VecDeque<WaitingDatagram>,
    datagrams_bytes: usize,
    streams: VecDeque<WaitingStream>,
}

#[derive(Debug)]
struct WaitingDatagram {
    until: Instant,
    alias: u64,
    data: Bytes,
}

/// A subgroup stream whose header names an unknown alias.
#[derive(Copy, Clone, Debug)]
pub(super) struct WaitingStream {
    pub(super) until: Instant,
    pub(super) stream: StreamId,
    pub(super) alias: u64,
}

/// How many older datagrams were dropped for a newer one, by limit.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Overflow {
    /// At `datagrams_unknown_max`.
    pub(super) over_count: u64,
    /// At `datagrams_unknown_bytes_max`.
    pub(super) over_bytes: u64,
}

impl UnknownAliases {
    /// Keeps a datagram; returns how many older ones were dropped for it.
    pub(super) fn hold_datagram(
        &mut self,
        now: Instant,
        alias: u64,
        data: Bytes,
        limits: &Limits,
    ) -> Overflow {
        self.datagrams_bytes += data.len();
        let until = now + limits.unknown_alias_timeout;
        self.datagrams
            .push_back(WaitingDatagram { until, alias, data });
        let mut dropped = Overflow::default();
        while self.datagrams.len() > limits.datagrams_unknown_max {
            self.pop_datagram();
            dropped.over_count += 1;
        }
        while self.datagrams_bytes > limits.datagrams_unknown_bytes_max {
            self.pop_datagram();
            dropped.over_bytes += 1;
        }
        dropped
    }

    /// Takes the datagrams of an alias, in order.
    pub(super) fn take_datagrams(&mut self, alias: u64) -> Vec<Bytes> {
        if self.datagrams.iter().all(|waiting| waiting.alias != alias) {
            return Vec::new();
        }
        let mut taken = Vec::new();
        for waiting in std::mem::take(&mut self.datagrams) {
            if waiting.alias == alias {
                self.datagrams_bytes -= waiting.data.len();
                taken.push(waiting.data);
            } else {
                self.datagrams.push_back(waiting);
            }
        }
        taken
    }

    /// Keeps a stream; returns false if too many wait.
    pub(super) fn hold_stream(&mut self, waiting: WaitingStream, limits: &Limits) -> bool {
        let room = self.streams.len() < limits.streams_unknown_max;
        if room {
            self.streams.push_back(waiting);
        }
        room
    }

    /// Takes the streams of an alias, in order.
    pub(super) fn take_streams(&mut self, alias: u64) -> Vec<StreamId> {
        let taken = self.streams.iter().filter(|waiting| waiting.alias == alias);
        let taken = taken.map(|waiting| waiting.stream).collect();
        self.streams.retain(|waiting| waiting.alias != alias);
        taken
    }

    /// When the oldest datagram expires.
    pub(super) fn datagrams_deadline(&self) -> Option<Instant> {
        self.datagrams.front().map(|waiting| waiting.until)
    }

    /// When the oldest stream expires.
    pub(super) fn streams_deadline(&self) -> Option<Instant> {
        self.streams.front().map(|waiting| waiting.until)
    }

    /// Drops the datagrams that have expired; returns how many.
    pub(super) fn expire_datagrams(&mut self, now: Instant) -> u64 {
        let mut expired = 0;
        while self.datagrams_deadline().is_some_and(|until| until <= now) {
            self.pop_datagram();
            expired += 1;
        }
        expired
    }

    /// Takes the oldest stream if it has expired.
    pub(super) fn pop_expired_stream(&mut self, now: Instant) -> Option<StreamId> {
        self.streams
            .pop_front_if(|waiting| waiting.until <= now)
            .map(|waiting| waiting.stream)
    }

    fn pop_datagram(&mut self) {
        if let Some(waiting) = self.datagrams.pop_front() {
            self.datagrams_bytes -= waiting.data.len();
        }
        if self.datagrams.is_empty() {
            self.datagrams = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::session::tests::epoch;

    fn limits() -> Limits {
        Limits {
            datagrams_unknown_max: 3,
            datagrams_unknown_bytes_max: 10,
            streams_unknown_max: 2,
            unknown_alias_timeout: Duration::from_secs(1),
            ..Limits::default()
        }
    }

    fn hold(
        room: &mut UnknownAliases,
        now: Instant,
        alias: u64,
        data: &'static [u8],
    ) -> (u64, u64) {
        let dropped = room.hold_datagram(now, alias, Bytes::from_static(data), &limits());
        (dropped.over_count, dropped.over_bytes)
    }

    #[test]
    fn datagrams_are_bounded_by_count_and_by_bytes() {
        let (now, mut room) = (epoch(), UnknownAliases::default());
        for data in [&b"a"[..], b"b", b"c"] {
            assert_eq!(hold(&mut room, now, 1, data), (0, 0), "at the limit");
        }
        assert_eq!(hold(&mut room, now, 1, b"d"), (1, 0), "one past the count");
        assert_eq!(hold(&mut room, now, 1, b"12345678"), (1, 0), "at ten bytes");
        assert_eq!(
            hold(&mut room, now, 1, b"x"),
            (1, 0),
            "one past the count again"
        );
        assert_eq!(room.take_datagrams(1), [&b"d"[..], b"12345678", b"x"]);
        assert_eq!(room.datagrams_bytes, 0);
        assert_eq!(
            hold(&mut room, now, 1, b"12345678901"),
            (0, 1),
            "alone too large"
        );
    }

    #[test]
    fn an_alias_takes_what_is_its_own() {
        let (now, mut room) = (epoch(), UnknownAliases::default());
        hold(&mut room, now, 1, b"a");
        hold(&mut room, now, 2, b"b");
        assert_eq!(room.take_datagrams(3), Vec::<Bytes>::new());
        assert_eq!(room.take_datagrams(1), [&b"a"[..]]);
        assert_eq!(room.take_datagrams(2), [&b"b"[..]]);
    }

    #[test]
    fn streams_are_bounded_and_expire() {
        let (now, limits, mut room) = (epoch(), limits(), UnknownAliases::default());
        let until = now + limits.unknown_alias_timeout;
        let stream = |n| WaitingStream {
            until,
            stream: StreamId(n),
            alias: n,
        };
        assert!(room.hold_stream(stream(1), &limits) && room.hold_stream(stream(2), &limits));
        assert!(!room.hold_stream(stream(3), &limits), "one past the limit");
        assert_eq!(room.take_streams(2), [StreamId(2)]);
        assert_eq!(room.streams_deadline(), Some(until));
        assert_eq!(room.pop_expired_stream(now), None);
        assert_eq!(room.pop_expired_stream(until), Some(StreamId(1)));
        assert_eq!(room.streams_deadline(), None);
    }
}
