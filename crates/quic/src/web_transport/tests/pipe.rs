//! A transport whose other end is the test.

use std::collections::VecDeque;

use weir_transport::{Read, WriteError};

use super::*;

#[derive(Default)]
pub(super) struct Stream {
    arrived: VecDeque<Read>,
    /// Bytes written to the stream.
    pub(super) sent: Vec<u8>,
    pub(super) is_finished: bool,
    pub(super) reset: Option<u64>,
    pub(super) stopped: Option<u64>,
}

pub(super) struct Pipe {
    pub(super) streams: BTreeMap<StreamId, Stream>,
    pub(super) closed: Option<(Code, String)>,
    /// Bytes that may still be written.
    pub(super) credit: usize,
    /// Streams that may still be opened.
    pub(super) openable: usize,
    next: [u64; 2],
    pub(super) layer: WebTransport,
    pub(super) now: Instant,
}

/// The half of a pipe that the layer works on.
struct End<'a> {
    streams: &'a mut BTreeMap<StreamId, Stream>,
    closed: &'a mut Option<(Code, String)>,
    credit: &'a mut usize,
    openable: &'a mut usize,
    next: &'a mut [u64; 2],
}

pub(super) fn origin() -> Instant {
    #[expect(
        clippy::disallowed_methods,
        reason = "a test's origin of time; its value is unused"
    )]
    Instant::now()
}

impl Pipe {
    pub(super) fn server(offer: Offer) -> Self {
        Self::new(WebTransport::server(Arc::new(offer)), [1, 3])
    }

    pub(super) fn client(request: Request) -> Self {
        Self::new(WebTransport::client(request), [0, 2])
    }

    fn new(layer: WebTransport, next: [u64; 2]) -> Self {
        let mut pipe = Self::idle(layer, next);
        let now = pipe.now;
        pipe.with(|layer, end| {
            layer.start(end);
            layer.handle_connected(now, end);
        });
        pipe
    }

    fn idle(layer: WebTransport, next: [u64; 2]) -> Self {
        Self {
            streams: BTreeMap::new(),
            closed: None,
            credit: usize::MAX,
            openable: usize::MAX,
            next,
            layer,
            now: origin(),
        }
    }

    /// A server whose session with the client is established.
    pub(super) fn served() -> Self {
        let mut pipe = Self::server(Offer::default());
        pipe.bring(CLIENT_CONTROL, &draft02());
        pipe.bring(REQUEST, &headers(&CONNECT));
        assert!(matches!(pipe.layer.poll_event(), Some(Event::Established)));
        pipe.streams.get_mut(&REQUEST).unwrap().sent.clear();
        pipe
    }

    pub(super) fn with<T>(
        &mut self,
        act: impl FnOnce(&mut WebTransport, &mut dyn Transport) -> T,
    ) -> T {
        let mut end = End {
            streams: &mut self.streams,
            closed: &mut self.closed,
            credit: &mut self.credit,
            openable: &mut self.openable,
            next: &mut self.next,
        };
        act(&mut self.layer, &mut end)
    }

    /// Delivers bytes of the peer on a stream; returns whether the role is notified.
    pub(super) fn bring(&mut self, stream: StreamId, data: &[u8]) -> bool {
        self.arrive(stream, Read::Data(Bytes::copy_from_slice(data)))
    }

    pub(super) fn arrive(&mut self, stream: StreamId, read: Read) -> bool {
        let is_new = !self.streams.contains_key(&stream);
        let arrived = &mut self.streams.entry(stream).or_default().arrived;
        arrived.push_back(read);
        if is_new {
            let direction = if stream.0 & 2 == 0 {
                Direction::Bi
            } else {
                Direction::Uni
            };
            self.layer.handle_opened(stream, direction);
        }
        let is_notified = self.with(|layer, end| layer.handle_readable(end, stream));
        // Others have their turn.
        while self.with(|layer, end| layer.read_on(end)) {}
        is_notified
    }

    /// Puts bytes of the peer on a stream that it has opened, without a notice.
    pub(super) fn put(&mut self, stream: StreamId, data: Vec<u8>) {
        let arrived = &mut self.streams.get_mut(&stream).unwrap().arrived;
        arrived.push_back(Read::Data(data.into()));
    }

    /// Returns how many pieces of a stream were not read.
    pub(super) fn unread_len(&self, stream: StreamId) -> usize {
        self.streams[&stream].arrived.len()
    }

    pub(super) fn sent(&self, stream: StreamId) -> &[u8] {
        self.streams.get(&stream).map_or(&[], |stream| &stream.sent)
    }

    /// The code that the connection was closed with.
    pub(super) fn code(&self) -> Option<Code> {
        self.closed.as_ref().map(|(code, _)| *code)
    }

    /// The role's events, abbreviated.
    pub(super) fn events(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.layer.poll_event())
            .map(|event| match event {
                Event::Established => "established".to_owned(),
                Event::Opened(stream, _) => format!("opened {}", stream.0),
                Event::Datagram(data) => format!("datagram {data:?}"),
                Event::Lost(lost) => format!("lost: {lost}"),
            })
            .collect()
    }
}

impl Transport for End<'_> {
    fn open(&mut self, direction: Direction) -> Option<StreamId> {
        *self.openable = self.openable.checked_sub(1)?;
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

    fn read_later(&mut self, _stream: StreamId) {
        unreachable!("the layer asks nobody");
    }

    fn write(&mut self, stream: StreamId, data: &mut Bytes) -> Result<(), WriteError> {
        let stream = self.streams.get_mut(&stream).ok_or(WriteError::Closed)?;
        let taken = data.split_to(data.len().min(*self.credit));
        *self.credit -= taken.len();
        stream.sent.extend_from_slice(&taken);
        if data.is_empty() {
            Ok(())
        } else {
            Err(WriteError::Blocked)
        }
    }

    fn finish(&mut self, stream: StreamId) {
        self.streams.get_mut(&stream).unwrap().is_finished = true;
    }

    fn reset(&mut self, stream: StreamId, code: u64) {
        self.streams.get_mut(&stream).unwrap().reset = Some(code);
    }

    fn stop(&mut self, stream: StreamId, code: u64) {
        self.streams.get_mut(&stream).unwrap().stopped = Some(code);
    }

    fn set_priority(&mut self, _stream: StreamId, _priority: i32) {}

    fn close(&mut self, code: u64, reason: &[u8]) {
        assert!(self.closed.is_none(), "closed once");
        let reason = String::from_utf8(reason.to_vec()).unwrap();
        *self.closed = Some((Code(code), reason));
    }
}
