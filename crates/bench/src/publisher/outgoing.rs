//! One subgroup stream of a publisher, its queue, and what became of each object.

use std::time::Instant;

use bytes::Bytes;
use weir_moqt::error::ResetCode;
use weir_transport::{Transport, WriteError};

use crate::limits::{STREAM_QUEUE_BYTES_MAX, STREAM_QUEUE_OBJECTS_MAX};
use crate::metrics::{Refusal, TrackSender};
use crate::schedule::DataItem;
use weir_client::send_queue::SendQueue;

/// A stream, from the first object of its group to its end. If it is given up, the rest of the group is refused for the
/// same reason.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) queue: SendQueue<Queued, Refusal>,
    /// The last queued object. The next header holds the difference from it.
    pub(super) previous: Option<u64>,
}

/// The kept data of a queued object.
#[derive(Debug)]
pub(super) struct Queued {
    deadline: Instant,
    /// For a DATA message: its item, and its planned time.
    data: Option<(DataItem, Instant)>,
}

impl Outgoing {
    /// Returns a stream that opens with its first object.
    pub(super) fn new(priority: i32) -> Self {
        Self {
            queue: SendQueue::new(priority),
            previous: None,
        }
    }

    /// Checks that an object of `bytes` bytes can be queued; the error is the reason why not.
    pub(super) fn check_room(&self, bytes: usize) -> Result<(), Refusal> {
        if let Some(reason) = self.queue.refusal() {
            return Err(reason);
        }
        let waiting_bytes = self.queue.waiting_bytes();
        let full = self.queue.len() >= STREAM_QUEUE_OBJECTS_MAX
            || (!self.queue.is_empty() && waiting_bytes + bytes > STREAM_QUEUE_BYTES_MAX);
        if full {
            Err(Refusal::QueueFull)
        } else {
            Ok(())
        }
    }

    /// Queues an encoded object.
    pub(super) fn push(
        &mut self,
        object: u64,
        bytes: Bytes,
        deadline: Instant,
        data: Option<(DataItem, Instant)>,
    ) {
        self.previous = Some(object);
        self.queue.push(bytes, Queued { deadline, data });
    }

    /// Sends what the stream accepts. Gives it up if an object has exceeded its time to live.
    pub(super) fn flush(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
        sender: &mut TrackSender,
    ) {
        let first = self.queue.first();
        if first.is_some_and(|queued| queued.deadline <= now) {
            let code = ResetCode::DELIVERY_TIMEOUT;
            return self.give_up(transport, sender, Refusal::Expired, code);
        }
        let flushed = self.queue.flush(transport, |queued| {
            if let Some((item, planned)) = queued.data {
                sender.on_sent(now, planned, &item);
            }
        });
        match flushed {
            Ok(()) | Err(WriteError::Blocked) => {}
            Err(WriteError::Stopped(_)) => {
                self.give_up(transport, sender, Refusal::Stopped, ResetCode::CANCELLED);
            }
            Err(WriteError::Closed) => self.abandon(sender, Refusal::Disconnected),
        }
    }

    /// Resets the stream, and refuses queued objects for `reason`.
    pub(super) fn give_up(
        &mut self,
        transport: &mut dyn Transport,
        sender: &mut TrackSender,
        reason: Refusal,
        code: ResetCode,
    ) {
        refuse(self.queue.give_up(transport, code, reason), sender, reason);
    }

    /// Refuses queued objects after the connection was lost.
    pub(super) fn abandon(&mut self, sender: &mut TrackSender, reason: Refusal) {
        refuse(self.queue.abandon(reason), sender, reason);
    }
}

fn refuse(waiting: impl Iterator<Item = Queued>, sender: &mut TrackSender, reason: Refusal) {
    for _ in waiting.filter(|queued| queued.data.is_some()) {
        sender.on_refused(reason);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::any_instant;
    use crate::profile::ObjectSize;
    use crate::test_transport::TestTransport;

    const MS: Duration = Duration::from_millis(1);

    fn data(number: u64, planned: Instant) -> (DataItem, Instant) {
        let size = ObjectSize::new(100).unwrap();
        let item = DataItem {
            number,
            group_number: 0,
            object_number: number,
            size,
            last_in_group: false,
        };
        (item, planned)
    }

    fn object(bytes: usize) -> Bytes {
        vec![7; bytes].into()
    }

    struct Bench {
        now: Instant,
        transport: TestTransport,
        sender: TrackSender,
        outgoing: Outgoing,
    }

    impl Bench {
        fn new() -> Self {
            Self {
                now: any_instant(),
                transport: TestTransport::default(),
                sender: TrackSender::default(),
                outgoing: Outgoing::new(5),
            }
        }

        fn push(&mut self, object_id: u64, bytes: usize) {
            let deadline = self.now + 100 * MS;
            self.outgoing.push(
                object_id,
                object(bytes),
                deadline,
                Some(data(object_id, self.now)),
            );
        }

        fn flush(&mut self) {
            self.outgoing
                .flush(self.now, &mut self.transport, &mut self.sender);
        }
    }

    #[test]
    fn sends_in_order_and_finishes() {
        let mut bench = Bench::new();
        bench.push(0, 100);
        bench.push(1, 50);
        bench.flush();
        assert_eq!(
            (bench.transport.written, bench.sender.totals().objects),
            (150, 2)
        );
        assert_eq!(bench.transport.priorities, [5]);
        assert!(!bench.outgoing.queue.is_over());
        bench.outgoing.queue.finish();
        bench.flush();
        assert!(bench.outgoing.queue.is_over());
        assert_eq!(bench.transport.finished, 1);
    }

    #[test]
    fn an_object_counts_as_sent_when_all_of_it_was_taken() {
        let mut bench = Bench::new();
        bench.transport.room = 120;
        bench.push(0, 100);
        bench.push(1, 100);
        bench.flush();
        assert_eq!(bench.sender.totals().objects, 1);
        bench.now += 30 * MS;
        bench.transport.room = 1_000;
        bench.flush();
        assert_eq!(bench.sender.totals().objects, 2);
        assert_eq!(bench.sender.lateness().max(), Some(30 * MS));
    }

    #[test]
    fn an_object_that_waits_too_long_ends_the_group() {
        let mut bench = Bench::new();
        bench.transport.room = 10;
        bench.push(0, 100);
        bench.push(1, 100);
        bench.flush();
        bench.now += 99 * MS;
        bench.flush();
        assert!(bench.transport.resets.is_empty());
        bench.now += MS;
        bench.flush();
        assert_eq!(bench.transport.resets, [ResetCode::DELIVERY_TIMEOUT.0]);
        assert_eq!(bench.sender.result().refusals.expired, 2);
        assert_eq!(bench.outgoing.check_room(1), Err(Refusal::Expired));
        bench.outgoing.queue.finish();
        assert!(bench.outgoing.queue.is_over());
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut bench = Bench::new();
        for object_id in 0..STREAM_QUEUE_OBJECTS_MAX as u64 {
            assert_eq!(bench.outgoing.check_room(1), Ok(()));
            bench.push(object_id, 1);
        }
        assert_eq!(bench.outgoing.check_room(1), Err(Refusal::QueueFull));

        let mut bench = Bench::new();
        assert_eq!(
            bench.outgoing.check_room(STREAM_QUEUE_BYTES_MAX + 1),
            Ok(())
        );
        bench.push(0, 10);
        assert_eq!(
            bench.outgoing.check_room(STREAM_QUEUE_BYTES_MAX - 10),
            Ok(())
        );
        assert_eq!(
            bench.outgoing.check_room(STREAM_QUEUE_BYTES_MAX - 9),
            Err(Refusal::QueueFull)
        );
    }

    #[test]
    fn waits_for_a_stream_to_open() {
        let mut bench = Bench::new();
        bench.transport.streams_left = Some(0);
        bench.push(0, 10);
        bench.flush();
        assert_eq!(bench.sender.totals().objects, 0);
        bench.transport.streams_left = Some(1);
        bench.flush();
        assert_eq!(bench.sender.totals().objects, 1);
    }
}
