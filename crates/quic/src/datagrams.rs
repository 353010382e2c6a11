//! Datagrams that wait because the path is full: limited in bytes, the oldest dropped first, each with a deadline.

use std::{collections::VecDeque, ops::AddAssign, time::Instant};

use bytes::Bytes;

/// The waiting datagrams of one connection. Empty and without memory of its own unless the path is congested.
#[derive(Debug, Default)]
pub(crate) struct DatagramQueue {
    waiting: VecDeque<Waiting>,
    bytes: usize,
}

/// State that the datagrams of all connections of an endpoint share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) prefixed: Prefixed,
    /// Datagrams dropped on any connection.
    pub(crate) dropped: Dropped,
}

/// The last datagram that was sent with a prefix: in a fan-out, thousands of connections send the same.
#[derive(Debug, Default)]
pub(crate) struct Prefixed {
    prefix: Bytes,
    data: Bytes,
    whole: Bytes,
}

impl Prefixed {
    /// Returns `data` after `prefix`; copies only if the last datagram was another.
    pub(crate) fn with(&mut self, prefix: &Bytes, data: Bytes) -> Bytes {
        // The data is kept alive here, so an equal address means equal bytes.
        let is_same = self.data.as_ptr() == data.as_ptr()
            && self.data.len() == data.len()
            && self.prefix == *prefix;
        if !is_same {
            self.whole = [&prefix[..], &data].concat().into();
            self.prefix = prefix.clone();
            self.data = data;
        }
        self.whole.clone()
    }
}

#[derive(Debug)]
struct Waiting {
    data: Bytes,
    deadline: Option<Instant>,
}

/// Number of datagrams that an operation dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// To make room for newer ones.
    pub(crate) oldest: u64,
    /// Because their deadline had passed.
    pub(crate) expired: u64,
}

impl AddAssign for Dropped {
    fn add_assign(&mut self, other: Self) {
        self.oldest += other.oldest;
        self.expired += other.expired;
    }
}

impl DatagramQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends a datagram; drops the oldest ones while the queue holds more than `bytes_max`.
    pub(crate) fn push(
        &mut self,
        data: Bytes,
        deadline: Option<Instant>,
        bytes_max: usize,
    ) -> Dropped {
        let mut dropped = Dropped::default();
        self.bytes += data.len();
        self.waiting.push_back(Waiting { data, deadline });
        while self.bytes > bytes_max {
            let Some(oldest) = self.waiting.pop_front() else {
                break;
            };
            self.bytes -= oldest.data.len();
            dropped.oldest += 1;
        }
        dropped
    }

    /// Takes the next datagram of at most `size_max` bytes whose deadline has not passed.
    pub(crate) fn pop(
        &mut self,
        now: Instant,
        size_max: usize,
        dropped: &mut Dropped,
    ) -> Option<Bytes> {
        loop {
            let next = self.waiting.front()?;
            let expired = next.deadline.is_some_and(|deadline| deadline < now);
            if !expired && next.data.len() > size_max {
                return None;
            }
            let next = self.waiting.pop_front()?;
            self.bytes -= next.data.len();
            if self.waiting.is_empty() {
                self.waiting = VecDeque::new();
            }
            if expired {
                dropped.expired += 1;
                continue;
            }
            return Some(next.data);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn origin() -> Instant {
        #[expect(
            clippy::disallowed_methods,
            reason = "a test's origin of time; its value is unused"
        )]
        Instant::now()
    }

    #[test]
    fn holds_exactly_its_limit_and_drops_the_oldest_past_it() {
        let mut queue = DatagramQueue::default();
        for _ in 0..10 {
            assert_eq!(
                queue.push(Bytes::from_static(&[0; 10]), None, 100),
                Dropped::default()
            );
        }
        let dropped = queue.push(Bytes::from_static(&[1]), None, 100);
        assert_eq!(
            dropped,
            Dropped {
                oldest: 1,
                expired: 0
            }
        );
        assert_eq!(queue.bytes(), 91);
    }

    #[test]
    fn prefixes_the_same_data_once() {
        let mut prefixed = Prefixed::default();
        let (one, other) = (Bytes::from(vec![7; 3]), Bytes::from(vec![7; 3]));
        let first = prefixed.with(&Bytes::from_static(&[0]), one.clone());
        assert_eq!(first, [0, 7, 7, 7][..]);
        let again = prefixed.with(&Bytes::from_static(&[0]), one.clone());
        assert_eq!(again.as_ptr(), first.as_ptr());
        assert_ne!(
            prefixed.with(&Bytes::from_static(&[0]), other).as_ptr(),
            first.as_ptr()
        );
        assert_eq!(
            prefixed.with(&Bytes::from_static(&[1]), one.clone()),
            [1, 7, 7, 7][..]
        );
        assert_eq!(
            prefixed.with(&Bytes::from_static(&[1]), one.slice(..2)),
            [1, 7, 7][..]
        );
    }

    #[test]
    fn skips_what_is_no_longer_worth_sending() {
        let (start, mut queue) = (origin(), DatagramQueue::default());
        let soon = start + Duration::from_millis(1);
        queue.push(Bytes::from_static(b"late"), Some(soon), 100);
        queue.push(
            Bytes::from_static(b"fine"),
            Some(start + Duration::from_secs(1)),
            100,
        );
        let mut dropped = Dropped::default();
        let now = start + Duration::from_millis(2);
        assert_eq!(
            queue.pop(now, 100, &mut dropped).as_deref(),
            Some(&b"fine"[..])
        );
        assert_eq!(
            dropped,
            Dropped {
                oldest: 0,
                expired: 1
            }
        );
        assert!(queue.is_empty());
        assert_eq!(queue.bytes(), 0);
    }
}
