//! The session's transport, and the state of the peer at its other end.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use weir_moqt::draft::Draft;
use weir_moqt::message::{Message, RequestKind};
use weir_moqt::reader::MessageReader;
use weir_moqt::session::Side;
use weir_transport::{Direction, Read, StreamId, Transport, WriteError};

/// One stream in the session's transport.
#[derive(Debug, Default)]
pub(super) struct Channel {
    /// Data that the peer has sent and the session has not read.
    pub(super) incoming: VecDeque<Read>,
    /// Whether the peer has ended its direction, or the session has stopped it.
    pub(super) is_received: bool,
    pub(super) is_stopped_here: bool,
    /// Whether the session has ended its direction.
    pub(super) is_sent: bool,
    pub(super) is_stopped_there: bool,
    /// Data that the session has written.
    pub(super) outgoing: Vec<u8>,
}

/// The session's transport.
pub(super) struct Peer {
    pub(super) draft: Draft,
    pub(super) side: Side,
    pub(super) channels: BTreeMap<StreamId, Channel>,
    /// Streams that the session has left for later.
    pub(super) later: VecDeque<StreamId>,
    pub(super) opened: u64,
    /// Number of streams that the session may still open.
    pub(super) credit: u64,
    /// Bytes that the session may still write.
    pub(super) window: usize,
    pub(super) is_closed: bool,
    /// The session's requests, by stream.
    pub(super) asked: BTreeMap<StreamId, Asked>,
    /// The peer's own requests.
    pub(super) requested: Vec<(StreamId, RequestKind)>,
    /// Number of Request IDs that the peer has used, including updates.
    pub(super) requests: u64,
}

/// A request of the session, as the peer reads it.
pub(super) struct Asked {
    pub(super) message: Message,
    pub(super) answered: bool,
}

impl Transport for Peer {
    fn open(&mut self, direction: Direction) -> Option<StreamId> {
        assert!(!self.is_closed, "nothing is opened after the end");
        self.credit = self.credit.checked_sub(1)?;
        Some(self.add(self.side, direction))
    }

    fn read(&mut self, stream: StreamId) -> Read {
        let channel = self
            .channels
            .get_mut(&stream)
            .expect("only known streams are read");
        assert!(!channel.is_stopped_here, "a stopped stream is not read");
        channel.incoming.pop_front().unwrap_or(Read::Blocked)
    }

    fn read_later(&mut self, stream: StreamId) {
        self.later.push_back(stream);
    }

    fn write(&mut self, stream: StreamId, data: &mut Bytes) -> Result<(), WriteError> {
        let channel = self
            .channels
            .get_mut(&stream)
            .expect("only known streams are written");
        assert!(!channel.is_sent, "nothing is written after the end");
        if channel.is_stopped_there {
            return Err(WriteError::Stopped(0));
        }
        let taken = data.split_to(data.len().min(self.window));
        self.window -= taken.len();
        if stream.0 & 2 == 0 && opener(stream) == self.side && !taken.is_empty() {
            channel.outgoing.extend_from_slice(&taken);
            self.read_request(stream);
        }
        if data.is_empty() {
            Ok(())
        } else {
            Err(WriteError::Blocked)
        }
    }

    fn finish(&mut self, stream: StreamId) {
        let channel = self
            .channels
            .get_mut(&stream)
            .expect("only known streams are finished");
        assert!(
            !std::mem::replace(&mut channel.is_sent, true),
            "a stream ends once"
        );
    }

    fn reset(&mut self, stream: StreamId, _code: u64) {
        let channel = self
            .channels
            .get_mut(&stream)
            .expect("only known streams are reset");
        assert!(
            !std::mem::replace(&mut channel.is_sent, true),
            "a stream ends once"
        );
    }

    fn stop(&mut self, stream: StreamId, _code: u64) {
        let channel = self
            .channels
            .get_mut(&stream)
            .expect("only known streams are stopped");
        assert!(
            !std::mem::replace(&mut channel.is_stopped_here, true),
            "stopped once"
        );
        channel.is_received = true;
    }

    fn set_priority(&mut self, stream: StreamId, _priority: i32) {
        assert!(self.channels.contains_key(&stream));
    }

    fn close(&mut self, _code: u64, _reason: &[u8]) {
        assert!(
            !std::mem::replace(&mut self.is_closed, true),
            "a session closes once"
        );
    }
}

impl Peer {
    /// Reads the request at the beginning of a stream, once it is complete.
    pub(super) fn read_request(&mut self, stream: StreamId) {
        if self.asked.contains_key(&stream) {
            return;
        }
        let mut reader = MessageReader::new(self.draft, usize::MAX);
        reader.push(Bytes::copy_from_slice(&self.channels[&stream].outgoing));
        if let Some(message) = reader.poll().expect("the session speaks properly") {
            self.asked.insert(
                stream,
                Asked {
                    message,
                    answered: false,
                },
            );
        }
    }

    pub(super) fn add(&mut self, opener: Side, direction: Direction) -> StreamId {
        let (of_server, uni) = (opener == Side::Server, direction == Direction::Uni);
        let stream = StreamId(self.opened << 2 | u64::from(uni) << 1 | u64::from(of_server));
        self.opened += 1;
        let from_here = opener == self.side;
        let channel = Channel {
            is_received: from_here && uni,
            is_sent: !from_here && uni,
            ..Channel::default()
        };
        self.channels.insert(stream, channel);
        stream
    }
}

pub(super) fn opener(stream: StreamId) -> Side {
    if stream.0 & 1 == 0 {
        Side::Client
    } else {
        Side::Server
    }
}
