//! A transport with the test as its other end.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use weir_h3::{Code, frame, settings::Settings};
use weir_transport::{Direction, Read, StreamId, Transport, WriteError};

/// One stream, as the test sees it.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    arrived: VecDeque<Read>,
    /// The data written to it.
    pub(crate) sent: Vec<u8>,
    pub(crate) is_finished: bool,
    pub(crate) reset: Option<Code>,
    pub(crate) stopped: Option<Code>,
}

/// The streams of one connection.
#[derive(Debug)]
pub(crate) struct TestTransport {
    pub(crate) streams: BTreeMap<StreamId, Stream>,
    /// Bytes that may still be written.
    pub(crate) credit: usize,
    /// Streams that may still be opened.
    pub(crate) openable: usize,
    /// Streams of which data was left for later, in order.
    pub(crate) later: VecDeque<StreamId>,
    /// Numbers of the next streams, bidirectional and unidirectional.
    next: [u64; 2],
}

impl TestTransport {
    /// Returns the transport of a server.
    pub(crate) fn server() -> Self {
        Self::with([1, 3])
    }

    /// Returns the transport of a client.
    pub(crate) fn client() -> Self {
        Self::with([0, 2])
    }

    fn with(next: [u64; 2]) -> Self {
        Self {
            streams: BTreeMap::new(),
            credit: usize::MAX,
            openable: usize::MAX,
            later: VecDeque::new(),
            next,
        }
    }

    /// Delivers data on a stream. Returns true if the stream is new.
    pub(crate) fn arrive(&mut self, stream: StreamId, read: Read) -> bool {
        let is_new = !self.streams.contains_key(&stream);
        let entry = self.streams.entry(stream).or_default();
        entry.arrived.push_back(read);
        is_new
    }

    pub(crate) fn sent(&self, stream: StreamId) -> &[u8] {
        self.streams.get(&stream).map_or(&[], |stream| &stream.sent)
    }
}

/// Encodes a frame.
pub(crate) fn framed(frame_type: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::encode_head(frame_type, payload.len(), &mut out);
    out.extend_from_slice(payload);
    out
}

/// Encodes a HEADERS frame.
pub(crate) fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::encode_headers(fields, &mut out);
    out
}

/// Encodes a control stream with these settings.
pub(crate) fn control(settings: &[(u64, u64)]) -> Vec<u8> {
    let mut out = vec![0];
    Settings::new(settings).encode(&mut out);
    out
}

impl Transport for TestTransport {
    fn open(&mut self, direction: Direction) -> Option<StreamId> {
        self.openable = self.openable.checked_sub(1)?;
        let next = &mut self.next[usize::from(direction == Direction::Uni)];
        let stream = StreamId(*next);
        *next += 4;
        self.streams.insert(stream, Stream::default());
        Some(stream)
    }

    fn read(&mut self, stream: StreamId) -> Read {
        let arrived = self.streams.get_mut(&stream);
        arrived
            .and_then(|stream| stream.arrived.pop_front())
            .unwrap_or(Read::Blocked)
    }

    fn read_later(&mut self, stream: StreamId) {
        self.later.push_back(stream);
    }

    fn write(&mut self, stream: StreamId, data: &mut Bytes) -> Result<(), WriteError> {
        let stream = self.streams.get_mut(&stream).ok_or(WriteError::Closed)?;
        assert!(!stream.is_finished, "written after the end");
        let taken = data.split_to(data.len().min(self.credit));
        self.credit -= taken.len();
        stream.sent.extend_from_slice(&taken);
        if data.is_empty() {
            Ok(())
        } else {
            Err(WriteError::Blocked)
        }
    }

    fn finish(&mut self, stream: StreamId) {
        let stream = self.streams.get_mut(&stream).unwrap();
        assert!(!stream.is_finished, "finished once");
        stream.is_finished = true;
    }

    fn reset(&mut self, stream: StreamId, code: u64) {
        self.streams.get_mut(&stream).unwrap().reset = Some(Code(code));
    }

    fn stop(&mut self, stream: StreamId, code: u64) {
        self.streams.get_mut(&stream).unwrap().stopped = Some(Code(code));
    }

    fn set_priority(&mut self, _stream: StreamId, _priority: i32) {}

    fn close(&mut self, _code: u64, _reason: &[u8]) {}
}
