//! Two transports and the link between them: streams in pieces, reordered by a seed, with stream limits and windows.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use weir_transport::{Direction, Read, StreamId, Transport, WriteError};

use crate::session::Side;

/// Both directions of every stream between two endpoints.
#[derive(Debug)]
pub(in crate::session) struct Link {
    pipes: BTreeMap<(StreamId, usize), Pipe>,
    opened: [[u64; 2]; 2],
    /// How many streams each side may open, per direction.
    streams_max: [[u64; 2]; 2],
    /// Bytes each pipe holds before it blocks.
    pub(in crate::session) window_bytes: usize,
    /// Whether each write arrives in one piece.
    pub(in crate::session) is_whole: bool,
    pub(in crate::session) priorities: BTreeMap<StreamId, i32>,
    pub(in crate::session) closed: [Option<(u64, Vec<u8>)>; 2],
    notes: VecDeque<(Side, Note)>,
    seed: u64,
}

/// What a transport tells its session.
#[derive(Copy, Clone, Debug)]
pub(in crate::session) enum Note {
    Opened(StreamId, Direction),
    Readable(StreamId),
    Writable(StreamId),
    Stopped(StreamId, u64),
    StreamsAvailable(Direction),
}

/// One direction of a stream.
#[derive(Debug, Default)]
struct Pipe {
    sent: VecDeque<Read>,
    sent_bytes: usize,
    arrived: VecDeque<Read>,
    is_announced: bool,
    is_ended: bool,
    is_blocked: bool,
    is_discarding: bool,
    stop: Option<u64>,
    stopped: Option<u64>,
}

/// One side's transport, for the duration of a call.
pub(in crate::session) struct View<'a> {
    pub(in crate::session) link: &'a mut Link,
    pub(in crate::session) side: Side,
}

pub(in crate::session) fn index(side: Side) -> usize {
    usize::from(side == Side::Server)
}

fn opener(stream: StreamId) -> Side {
    if stream.0 & 1 == 0 {
        Side::Client
    } else {
        Side::Server
    }
}

fn direction(stream: StreamId) -> Direction {
    if stream.0 & 2 == 0 {
        Direction::Bi
    } else {
        Direction::Uni
    }
}

fn direction_index(direction: Direction) -> usize {
    usize::from(direction == Direction::Uni)
}

impl Link {
    pub(in crate::session) fn new(seed: u64) -> Self {
        Self {
            pipes: BTreeMap::new(),
            opened: [[0; 2]; 2],
            streams_max: [[u64::MAX; 2]; 2],
            window_bytes: usize::MAX,
            is_whole: false,
            priorities: BTreeMap::new(),
            closed: [None, None],
            notes: VecDeque::new(),
            seed: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
        }
    }

    /// Sets how many streams a side may open in total; notifies the side if that permits more.
    pub(in crate::session) fn limit_streams(
        &mut self,
        side: Side,
        direction: Direction,
        streams_max: u64,
    ) {
        let limit = &mut self.streams_max[index(side)][direction_index(direction)];
        let raised = streams_max > *limit;
        *limit = streams_max;
        if raised {
            self.notes
                .push_back((side, Note::StreamsAvailable(direction)));
        }
    }

    /// Delivers one piece, and returns whom to notify of what; `None` when everything has arrived.
    pub(in crate::session) fn step(&mut self) -> Option<(Side, Note)> {
        loop {
            if let Some(note) = self.notes.pop_front() {
                return Some(note);
            }
            let movable: Vec<(StreamId, usize)> = self
                .pipes
                .iter()
                .filter(|(_, pipe)| !pipe.sent.is_empty() || pipe.stop.is_some())
                .map(|(&key, _)| key)
                .collect();
            let key = *movable.get(self.random(movable.len().max(1)))?;
            self.move_one(key);
        }
    }

    /// Delivers all that was sent on a stream, and notifies the receiver once.
    pub(in crate::session) fn bring_all(&mut self, stream: StreamId, sender: Side) {
        let key = (stream, index(sender));
        while !self.pipes[&key].sent.is_empty() {
            self.notes.clear();
            self.move_one(key);
        }
    }

    /// Returns the number of pieces that arrived on a stream and were not read.
    pub(in crate::session) fn unread_len(&self, stream: StreamId, sender: Side) -> usize {
        self.pipes[&(stream, index(sender))].arrived.len()
    }

    fn random(&mut self, below: usize) -> usize {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        usize::try_from(self.seed % below as u64).unwrap()
    }

    fn move_one(&mut self, (stream, sender): (StreamId, usize)) {
        let cut = if self.is_whole {
            usize::MAX
        } else {
            self.random(64) + 1
        };
        let sides = [Side::Client, Side::Server];
        let pipe = self.pipes.get_mut(&(stream, sender)).unwrap();
        if let Some(code) = pipe.stop.take() {
            if pipe.stopped.is_none() && !pipe.is_ended {
                pipe.stopped = Some(code);
                self.notes
                    .push_back((sides[sender], Note::Stopped(stream, code)));
            }
            return;
        }
        let Some(front) = pipe.sent.front_mut() else {
            return;
        };
        let item = match front {
            Read::Data(data) if data.len() > cut => Read::Data(data.split_to(cut)),
            Read::Data(_) | Read::Fin | Read::Reset(_) | Read::Blocked => {
                pipe.sent.pop_front().unwrap()
            }
        };
        if let Read::Data(data) = &item {
            pipe.sent_bytes -= data.len();
        }
        if !pipe.is_discarding {
            pipe.arrived.push_back(item);
        }
        let receiver = sides[1 - sender];
        if std::mem::take(&mut pipe.is_blocked) {
            self.notes
                .push_back((sides[sender], Note::Writable(stream)));
        }
        let note = if !pipe.is_announced && opener(stream) != receiver {
            Note::Opened(stream, direction(stream))
        } else {
            Note::Readable(stream)
        };
        pipe.is_announced = true;
        self.notes.push_back((receiver, note));
    }
}

impl View<'_> {
    fn sending(&mut self, stream: StreamId) -> Option<&mut Pipe> {
        self.link.pipes.get_mut(&(stream, index(self.side)))
    }

    fn receiving(&mut self, stream: StreamId) -> Option<&mut Pipe> {
        self.link.pipes.get_mut(&(stream, 1 - index(self.side)))
    }
}

impl Transport for View<'_> {
    fn open(&mut self, direction: Direction) -> Option<StreamId> {
        let (side, kind) = (index(self.side), direction_index(direction));
        let number = self.link.opened[side][kind];
        if number >= self.link.streams_max[side][kind] {
            return None;
        }
        self.link.opened[side][kind] += 1;
        let stream = StreamId(number << 2 | (kind as u64) << 1 | side as u64);
        self.link.pipes.insert((stream, side), Pipe::default());
        if direction == Direction::Bi {
            self.link.pipes.insert((stream, 1 - side), Pipe::default());
        }
        Some(stream)
    }

    fn read(&mut self, stream: StreamId) -> Read {
        let pipe = self.receiving(stream).expect("the stream can be read");
        assert!(!pipe.is_discarding, "a stopped stream is not read");
        pipe.arrived.pop_front().unwrap_or(Read::Blocked)
    }

    fn read_later(&mut self, stream: StreamId) {
        let note = (self.side, Note::Readable(stream));
        self.link.notes.push_back(note);
    }

    fn write(&mut self, stream: StreamId, data: &mut Bytes) -> Result<(), WriteError> {
        let window_bytes = self.link.window_bytes;
        let pipe = self.sending(stream).expect("the stream can be written");
        assert!(!pipe.is_ended, "nothing is written after the end");
        if let Some(code) = pipe.stopped {
            return Err(WriteError::Stopped(code));
        }
        let room = window_bytes.saturating_sub(pipe.sent_bytes).min(data.len());
        if room > 0 {
            pipe.sent_bytes += room;
            pipe.sent.push_back(Read::Data(data.split_to(room)));
        }
        if data.is_empty() {
            return Ok(());
        }
        pipe.is_blocked = true;
        Err(WriteError::Blocked)
    }

    fn finish(&mut self, stream: StreamId) {
        let pipe = self.sending(stream).expect("the stream can be finished");
        assert!(
            !std::mem::replace(&mut pipe.is_ended, true),
            "a stream ends once"
        );
        pipe.sent.push_back(Read::Fin);
    }

    fn reset(&mut self, stream: StreamId, code: u64) {
        let pipe = self.sending(stream).expect("the stream can be reset");
        if pipe.is_ended {
            // Only a stream that was finished and stopped may be reset again; the peer has the end already.
            return;
        }
        pipe.is_ended = true;
        pipe.sent = VecDeque::from([Read::Reset(code)]);
        pipe.sent_bytes = 0;
    }

    fn stop(&mut self, stream: StreamId, code: u64) {
        let pipe = self.receiving(stream).expect("the stream can be stopped");
        assert!(
            !std::mem::replace(&mut pipe.is_discarding, true),
            "a stream is stopped once"
        );
        pipe.arrived.clear();
        pipe.stop = Some(code);
    }

    fn set_priority(&mut self, stream: StreamId, priority: i32) {
        self.link.priorities.insert(stream, priority);
    }

    fn close(&mut self, code: u64, reason: &[u8]) {
        let closed = &mut self.link.closed[index(self.side)];
        assert!(closed.is_none(), "a session closes once");
        *closed = Some((code, reason.to_vec()));
    }
}
