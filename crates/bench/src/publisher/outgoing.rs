//! One subgroup stream of a publisher: what waits for it, and what became of that.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use weir_moqt::error::ResetCode;
use weir_transport::{Direction, StreamId, Transport, WriteError};

use crate::limits::{STREAM_QUEUE_BYTES_MAX, STREAM_QUEUE_OBJECTS_MAX};
use crate::metrics::{Refusal, TrackSender};
use crate::schedule::DataItem;

/// A stream, from the first object of its group to its end.
#[derive(Debug)]
pub(super) struct Outgoing {
    stream: Option<StreamId>,
    priority: i32,
    queue: VecDeque<Queued>,
    queue_bytes: usize,
    /// The last object that was queued, for the delta in the next one's header.
    previous: Option<u64>,
    /// No object follows those in the queue.
    complete: bool,
    /// Why nothing more can be sent; the rest of the group is refused for the same reason.
    dead: Option<Refusal>,
    finished: bool,
}

/// One object that waits, encoded.
#[derive(Debug)]
struct Queued {
    bytes: Bytes,
    deadline: Instant,
    /// For an object of the benchmark: what it is, and when it was to be sent.
    data: Option<(DataItem, Instant)>,
}

impl Outgoing {
    /// A stream that is yet to be opened.
    pub(super) fn new(priority: i32) -> Self {
        Self {
            stream: None,
            priority,
            queue: VecDeque::new(),
            queue_bytes: 0,
            previous: None,
            complete: false,
            dead: None,
            finished: false,
        }
    }

    /// The ID of the last object that was queued.
    pub(super) fn previous(&self) -> Option<u64> {
        self.previous
    }

    /// Whether objects wait for the stream.
    pub(super) fn has_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether `stream` is this one.
    pub(super) fn is(&self, stream: StreamId) -> bool {
        self.stream == Some(stream)
    }

    /// Whether nothing of it is left to do.
    pub(super) fn is_over(&self) -> bool {
        self.finished || (self.complete && self.dead.is_some())
    }

    /// Whether an object of `bytes` bytes can be queued; if not, why.
    pub(super) fn check_room(&self, bytes: usize) -> Result<(), Refusal> {
        if let Some(reason) = self.dead {
            return Err(reason);
        }
        let full = self.queue.len() >= STREAM_QUEUE_OBJECTS_MAX
            || (!self.queue.is_empty() && self.queue_bytes + bytes > STREAM_QUEUE_BYTES_MAX);
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
        self.queue_bytes += bytes.len();
        self.queue.push_back(Queued {
            bytes,
            deadline,
            data,
        });
    }

    /// Ends the stream after what is queued.
    pub(super) fn complete(&mut self) {
        self.complete = true;
    }

    /// Sends what can be sent, and gives the stream up if an object waited beyond its time to live.
    pub(super) fn flush(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
        sender: &mut TrackSender,
    ) {
        if self.dead.is_some() || self.finished {
            return;
        }
        if self
            .queue
            .front()
            .is_some_and(|queued| queued.deadline <= now)
        {
            return self.give_up(
                transport,
                sender,
                Refusal::Expired,
                ResetCode::DELIVERY_TIMEOUT,
            );
        }
        let Some(stream) = self.open(transport) else {
            return;
        };
        while let Some(queued) = self.queue.front_mut() {
            let before = queued.bytes.len();
            let written = transport.write(stream, &mut queued.bytes);
            self.queue_bytes -= before - queued.bytes.len();
            match written {
                Ok(()) => {
                    if let Some((item, planned)) = queued.data {
                        sender.on_sent(now, planned, &item);
                    }
                    self.queue.pop_front();
                }
                Err(WriteError::Blocked) => return,
                Err(WriteError::Stopped(_)) => {
                    let code = ResetCode::CANCELLED;
                    return self.give_up(transport, sender, Refusal::Stopped, code);
                }
                Err(WriteError::Closed) => return self.abandon(sender, Refusal::Disconnected),
            }
        }
        if self.complete {
            transport.finish(stream);
            self.finished = true;
        }
    }

    /// Resets the stream; what waited is refused for `reason`.
    pub(super) fn give_up(
        &mut self,
        transport: &mut dyn Transport,
        sender: &mut TrackSender,
        reason: Refusal,
        code: ResetCode,
    ) {
        if let Some(stream) = self.stream.filter(|_| !self.finished) {
            transport.reset(stream, code.0);
        }
        self.abandon(sender, reason);
    }

    /// The connection is gone, and the stream with it.
    pub(super) fn abandon(&mut self, sender: &mut TrackSender, reason: Refusal) {
        for queued in self.queue.drain(..) {
            if queued.data.is_some() {
                sender.on_refused(reason);
            }
        }
        self.queue_bytes = 0;
        self.dead.get_or_insert(reason);
    }

    fn open(&mut self, transport: &mut dyn Transport) -> Option<StreamId> {
        if self.stream.is_none() {
            let stream = transport.open(Direction::Uni)?;
            transport.set_priority(stream, self.priority);
            self.stream = Some(stream);
        }
        self.stream
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
                sender: TrackSender::new(),
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
        assert!(!bench.outgoing.is_over());
        bench.outgoing.complete();
        bench.flush();
        assert!(bench.outgoing.is_over());
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
        bench.outgoing.complete();
        assert!(bench.outgoing.is_over());
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
