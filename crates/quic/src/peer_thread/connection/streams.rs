//! The streams of a connection to a peer thread, and their windows.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use weir_transport::{Direction, Read, StreamId, WriteError};

use super::{MESSAGE_CHARGE, ThreadLimits};
use crate::{
    Event, Handle,
    peer_thread::message::{Content, ThreadMessage},
};

/// All streams of one end.
#[derive(Debug)]
pub(super) struct Streams {
    /// The least significant bit of the IDs of streams opened here, as in RFC 9000 §2.1.
    side: u64,
    limits: ThreadLimits,
    entries: BTreeMap<u64, Stream>,
    uni: Opened,
    bi: Opened,
    /// Charge of data that was written and not reported as read.
    in_flight: usize,
    /// Streams that are blocked.
    blocked: Vec<u64>,
    /// Streams with data that was read and not reported.
    read: Vec<u64>,
    /// Ended streams, with their charge that is not reported.
    done: Vec<(u64, usize)>,
    /// The total charge that is not reported.
    taken: usize,
    /// Whether a stream has to report a large part of its window.
    has_much: bool,
}

/// Streams of one direction opened here.
#[derive(Debug, Default)]
struct Opened {
    next: u64,
    open: usize,
    was_refused: bool,
}

#[derive(Debug, Default)]
struct Stream {
    sending: Option<Sending>,
    receiving: Option<Receiving>,
}

#[derive(Debug, Default)]
struct Sending {
    in_flight: usize,
    is_ended: bool,
    stopped: Option<u64>,
    is_blocked: bool,
}

#[derive(Debug, Default)]
struct Receiving {
    queue: VecDeque<Bytes>,
    end: Option<End>,
    /// Charge that was read and not reported.
    taken: usize,
    /// Whether a `Readable` event is pending, or the role has not read to the end since one.
    is_announced: bool,
    /// Whether the stream was stopped.
    is_stopped: bool,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Fin,
    Reset(u64),
}

impl Streams {
    pub(super) fn new(is_second: bool, limits: ThreadLimits) -> Self {
        Self {
            side: u64::from(is_second),
            limits,
            entries: BTreeMap::new(),
            uni: Opened::default(),
            bi: Opened::default(),
            in_flight: 0,
            blocked: Vec::new(),
            read: Vec::new(),
            done: Vec::new(),
            taken: 0,
            has_much: false,
        }
    }

    /// Removes all streams, for a connection that opens again.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.side != 0, self.limits);
    }

    /// Returns the number of streams that are not over.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn open(&mut self, direction: Direction) -> Option<StreamId> {
        let (opened, bit, receiving) = match direction {
            Direction::Uni => (&mut self.uni, UNI, None),
            Direction::Bi => (&mut self.bi, 0, Some(Receiving::default())),
        };
        if opened.open >= self.limits.streams_max {
            opened.was_refused = true;
            return None;
        }
        let stream = opened.next << 2 | bit | self.side;
        opened.next += 1;
        opened.open += 1;
        let sending = Some(Sending::default());
        self.entries.insert(stream, Stream { sending, receiving });
        Some(StreamId(stream))
    }

    /// Reads the next bytes of a stream, or its end.
    pub(super) fn read(
        &mut self,
        handle: Handle,
        stream: u64,
        events: &mut VecDeque<Event>,
    ) -> Read {
        let Some(receiving) = self.receiving(stream) else {
            return Read::Blocked;
        };
        if let Some(data) = receiving.queue.pop_front() {
            self.note_taken(stream, data.len() + MESSAGE_CHARGE);
            return Read::Data(data);
        }
        let Some(end) = receiving.end else {
            receiving.is_announced = false;
            return Read::Blocked;
        };
        self.receiver_done(handle, stream, events);
        match end {
            End::Fin => Read::Fin,
            End::Reset(code) => Read::Reset(code),
        }
    }

    pub(super) fn write(
        &mut self,
        stream: u64,
        data: &mut Bytes,
        messages: &mut Vec<ThreadMessage>,
    ) -> Result<(), WriteError> {
        let Self {
            entries,
            limits,
            in_flight,
            blocked,
            ..
        } = self;
        let sending = entries.get_mut(&stream);
        let sending = sending.and_then(|stream| stream.sending.as_mut());
        let Some(sending) = sending else {
            return Err(WriteError::Closed);
        };
        if let Some(code) = sending.stopped {
            return Err(WriteError::Stopped(code));
        }
        if sending.is_ended {
            return Err(WriteError::Closed);
        }
        while !data.is_empty() {
            let of_stream = limits.stream_bytes_max.saturating_sub(sending.in_flight);
            let room = of_stream.min(limits.bytes_max.saturating_sub(*in_flight));
            let room = room.saturating_sub(MESSAGE_CHARGE);
            if room == 0 {
                if !std::mem::replace(&mut sending.is_blocked, true) {
                    blocked.push(stream);
                }
                return Err(WriteError::Blocked);
            }
            let data = data.split_to(room.min(data.len()));
            let charge = data.len() + MESSAGE_CHARGE;
            sending.in_flight += charge;
            *in_flight += charge;
            messages.push(ThreadMessage(Content::Data { stream, data }));
        }
        Ok(())
    }

    /// Ends the sending side; returns whether the peer thread has to be notified.
    pub(super) fn end(&mut self, stream: u64) -> bool {
        let sending = self.entries.get_mut(&stream);
        let sending = sending.and_then(|stream| stream.sending.as_mut());
        sending.is_some_and(|sending| !std::mem::replace(&mut sending.is_ended, true))
    }

    /// Discards what arrives on a stream; returns whether the peer thread has to be notified.
    pub(super) fn stop(
        &mut self,
        handle: Handle,
        stream: u64,
        events: &mut VecDeque<Event>,
    ) -> bool {
        let Some(receiving) = self.receiving(stream) else {
            return false;
        };
        let was_stopped = std::mem::replace(&mut receiving.is_stopped, true);
        let has_ended = receiving.end.is_some();
        let queue = std::mem::take(&mut receiving.queue);
        self.note_taken(stream, charge(&queue));
        if has_ended {
            self.receiver_done(handle, stream, events);
        }
        !has_ended && !was_stopped
    }

    pub(super) fn on_data(
        &mut self,
        handle: Handle,
        stream: u64,
        data: Bytes,
        events: &mut VecDeque<Event>,
    ) {
        let Some(receiving) = self.known_or_new(handle, stream, events) else {
            return;
        };
        if receiving.is_stopped {
            return self.note_taken(stream, data.len() + MESSAGE_CHARGE);
        }
        receiving.queue.push_back(data);
        announce_readable(handle, stream, receiving, events);
    }

    /// Handles the end of a stream by the peer thread, with `code` for a reset. Earlier data can still be read.
    pub(super) fn on_end(
        &mut self,
        handle: Handle,
        stream: u64,
        code: Option<u64>,
        events: &mut VecDeque<Event>,
    ) {
        let Some(receiving) = self.known_or_new(handle, stream, events) else {
            return;
        };
        if receiving.is_stopped {
            return self.receiver_done(handle, stream, events);
        }
        receiving.end = Some(code.map_or(End::Fin, End::Reset));
        announce_readable(handle, stream, receiving, events);
    }

    /// Handles a stop by the peer thread, which ends the stream.
    pub(super) fn on_stop(
        &mut self,
        handle: Handle,
        stream: u64,
        code: u64,
        messages: &mut Vec<ThreadMessage>,
        events: &mut VecDeque<Event>,
    ) {
        let sending = self.entries.get_mut(&stream);
        let sending = sending.and_then(|stream| stream.sending.as_mut());
        let Some(sending) = sending.filter(|sending| !sending.is_ended) else {
            return;
        };
        sending.stopped = Some(code);
        sending.is_ended = true;
        messages.push(ThreadMessage(Content::Reset { stream, code }));
        let stream = StreamId(stream);
        events.push_back(Event::Stopped {
            handle,
            stream,
            code,
        });
    }

    /// Handles a report of data that the peer thread has read.
    pub(super) fn on_taken(
        &mut self,
        handle: Handle,
        stream: u64,
        charge: usize,
        is_done: bool,
        events: &mut VecDeque<Event>,
    ) {
        self.in_flight = self.in_flight.saturating_sub(charge);
        if let Some(entry) = self.entries.get_mut(&stream) {
            if is_done {
                entry.sending = None;
                self.forget_if_over(handle, stream, events);
            } else if let Some(sending) = &mut entry.sending {
                sending.in_flight = sending.in_flight.saturating_sub(charge);
            }
        }
        if !self.blocked.is_empty() && self.in_flight <= self.limits.bytes_max / 2 {
            self.wake_blocked(handle, events);
        }
    }

    /// Returns whether the peer thread should soon get a report of what was read.
    pub(super) fn must_report(&self) -> bool {
        self.has_much || self.taken >= self.limits.bytes_max / 4 || self.done.len() >= DONE_BATCH
    }

    /// Appends reports of what was read.
    pub(super) fn report(&mut self, messages: &mut Vec<ThreadMessage>) {
        let mut tell = |stream, charge, is_done| {
            messages.push(ThreadMessage(Content::Taken {
                stream,
                charge,
                is_done,
            }));
        };
        for stream in std::mem::take(&mut self.read) {
            if let Some(receiving) = self.receiving(stream) {
                tell(stream, std::mem::take(&mut receiving.taken), false);
            }
        }
        for (stream, charge) in self.done.drain(..) {
            tell(stream, charge, true);
        }
        self.taken = 0;
        self.has_much = false;
    }

    fn wake_blocked(&mut self, handle: Handle, events: &mut VecDeque<Event>) {
        let Self {
            entries,
            blocked,
            limits,
            ..
        } = self;
        blocked.retain(|stream| {
            let sending = entries.get_mut(stream);
            let sending = sending.and_then(|stream| stream.sending.as_mut());
            let Some(sending) = sending.filter(|sending| !sending.is_ended) else {
                return false;
            };
            let stays = sending.in_flight > limits.stream_bytes_max / 2;
            if !stays {
                sending.is_blocked = false;
                let stream = StreamId(*stream);
                events.push_back(Event::Writable { handle, stream });
            }
            stays
        });
    }

    fn receiving(&mut self, stream: u64) -> Option<&mut Receiving> {
        self.entries.get_mut(&stream)?.receiving.as_mut()
    }

    /// Returns the receiving side of a stream, created if the peer thread has just opened it.
    fn known_or_new(
        &mut self,
        handle: Handle,
        stream: u64,
        events: &mut VecDeque<Event>,
    ) -> Option<&mut Receiving> {
        let is_own = stream & 1 == self.side;
        if !is_own && !self.entries.contains_key(&stream) {
            let direction = direction(stream);
            let entry = Stream {
                sending: (direction == Direction::Bi).then(Sending::default),
                receiving: Some(Receiving::default()),
            };
            self.entries.insert(stream, entry);
            let stream = StreamId(stream);
            events.push_back(Event::Opened {
                handle,
                stream,
                direction,
            });
        }
        self.receiving(stream)
    }

    fn note_taken(&mut self, stream: u64, charge: usize) {
        let quarter = self.limits.stream_bytes_max / 4;
        let Some(receiving) = self.receiving(stream).filter(|_| charge > 0) else {
            return;
        };
        let is_first = receiving.taken == 0;
        receiving.taken += charge;
        let is_much = receiving.taken >= quarter;
        if is_first {
            self.read.push(stream);
        }
        self.taken += charge;
        self.has_much |= is_much;
    }

    /// Notes that the end of a stream was read, or is discarded.
    fn receiver_done(&mut self, handle: Handle, stream: u64, events: &mut VecDeque<Event>) {
        let entry = self.entries.get_mut(&stream);
        if let Some(receiving) = entry.and_then(|entry| entry.receiving.take()) {
            self.done.push((stream, receiving.taken));
            self.forget_if_over(handle, stream, events);
        }
    }

    /// Removes a stream that is over, which makes room for another.
    fn forget_if_over(&mut self, handle: Handle, stream: u64, events: &mut VecDeque<Event>) {
        let is_over = |entry: &Stream| entry.sending.is_none() && entry.receiving.is_none();
        if !self.entries.get(&stream).is_some_and(is_over) {
            return;
        }
        self.entries.remove(&stream);
        if stream & 1 != self.side {
            return;
        }
        let direction = direction(stream);
        let opened = match direction {
            Direction::Uni => &mut self.uni,
            Direction::Bi => &mut self.bi,
        };
        opened.open -= 1;
        if std::mem::take(&mut opened.was_refused) {
            events.push_back(Event::StreamsAvailable { handle, direction });
        }
    }
}

fn announce_readable(
    handle: Handle,
    stream: u64,
    receiving: &mut Receiving,
    events: &mut VecDeque<Event>,
) {
    if !std::mem::replace(&mut receiving.is_announced, true) {
        let stream = StreamId(stream);
        events.push_back(Event::Readable { handle, stream });
    }
}

fn charge(queue: &VecDeque<Bytes>) -> usize {
    queue.iter().map(|data| data.len() + MESSAGE_CHARGE).sum()
}

fn direction(stream: u64) -> Direction {
    if stream & UNI == 0 {
        Direction::Bi
    } else {
        Direction::Uni
    }
}

/// Bit of unidirectional streams (RFC 9000 §2.1).
const UNI: u64 = 0b10;
/// Number of ended streams at which they are reported at the latest.
const DONE_BATCH: usize = 256;
