//! A client that requests several paths at once and records the results.

use std::{collections::BTreeMap, net::SocketAddr, time::Instant};

use bytes::Bytes;
use weir_h3::{
    frame,
    head::ResponseHead,
    message::{MessageReader, Piece},
    peer_streams::Side,
};
use weir_http3::{Limits, session::Session};
use weir_quic::{App, ClientConfig, Connection, Endpoint, Event, Handle, Lost};
use weir_sim::SERVER_NAME;
use weir_transport::{Direction, Read, StreamId, Transport as _};

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Got {
    /// Status, and bytes of content.
    Answer(u16, usize),
    /// The stream was reset with this code.
    Reset(u64),
}

pub(crate) struct FileClient {
    config: ClientConfig,
    server: SocketAddr,
    paths: Vec<String>,
    handle: Option<Handle>,
    start: Instant,
    session: Session,
    open: BTreeMap<StreamId, (MessageReader, u16, usize)>,
    got: BTreeMap<StreamId, Got>,
    closed_with: Option<u64>,
    /// Whether responses are left unread.
    is_holding: bool,
}

impl FileClient {
    pub(crate) fn new(
        now: Instant,
        config: ClientConfig,
        server: SocketAddr,
        paths: &[&str],
    ) -> Self {
        Self {
            config,
            server,
            paths: paths.iter().map(|&path| path.to_owned()).collect(),
            handle: None,
            start: now,
            session: Session::new(Side::Client, Limits::default()),
            open: BTreeMap::new(),
            got: BTreeMap::new(),
            closed_with: None,
            is_holding: false,
        }
    }

    /// Leaves responses unread from now on.
    pub(crate) fn hold(&mut self) {
        self.is_holding = true;
    }

    /// Reads what was left unread, and all that follows.
    pub(crate) fn read_on(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.is_holding = false;
        let mut connection = self.connection(now, endpoint);
        let streams: Vec<StreamId> = self.open.keys().copied().collect();
        for stream in streams {
            self.read(&mut connection, stream);
        }
    }

    /// Returns the result of each request, in order.
    pub(crate) fn got(&self) -> Vec<Got> {
        self.got.values().copied().collect()
    }

    pub(crate) fn goaway(&self) -> Option<u64> {
        self.session.goaway()
    }

    /// Returns the code with which the server closed the connection.
    pub(crate) fn closed_with(&self) -> Option<u64> {
        self.closed_with
    }

    pub(crate) fn ask(&mut self, now: Instant, endpoint: &mut Endpoint, path: &str) {
        let fields = [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", SERVER_NAME),
            (":path", path),
        ];
        let mut request = Vec::new();
        frame::encode_headers(&fields, &mut request);
        self.send(now, endpoint, &request);
    }

    /// Sends bytes on a new stream.
    pub(crate) fn send(&mut self, now: Instant, endpoint: &mut Endpoint, data: &[u8]) {
        let mut connection = self.connection(now, endpoint);
        let stream = connection.open(Direction::Bi).unwrap();
        let mut data = Bytes::copy_from_slice(data);
        connection.write(stream, &mut data).unwrap();
        connection.finish(stream);
        self.open.insert(stream, (MessageReader::new(1000), 0, 0));
    }

    fn connection<'a>(&self, now: Instant, endpoint: &'a mut Endpoint) -> Connection<'a> {
        let handle = self.handle.expect("the role was started");
        endpoint.connection(now, handle).expect("it is open")
    }

    fn read(&mut self, connection: &mut Connection<'_>, stream: StreamId) {
        if self.is_holding {
            return;
        }
        while let Some((reader, status, bytes)) = self.open.get_mut(&stream) {
            let end = match connection.read(stream) {
                Read::Blocked => return,
                Read::Data(data) => {
                    reader.push(data);
                    while let Some(piece) = reader.poll().unwrap() {
                        match piece {
                            Piece::Head(section) => {
                                let head = ResponseHead::decode(section, 1000).unwrap();
                                *status = head.status;
                            }
                            Piece::Content(data) => *bytes += data.len(),
                            Piece::HeadTooLarge | Piece::Trailers(_) => panic!("{piece:?}"),
                        }
                    }
                    continue;
                }
                Read::Fin => {
                    reader.check_end().unwrap();
                    Got::Answer(*status, *bytes)
                }
                Read::Reset(code) => Got::Reset(code),
            };
            self.open.remove(&stream);
            self.got.insert(stream, end);
        }
    }
}

impl App for FileClient {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        match event {
            Event::Connected { .. } => {
                let mut connection = self.connection(now, endpoint);
                self.session.start(&mut connection);
                for path in std::mem::take(&mut self.paths) {
                    self.ask(now, endpoint, &path);
                }
            }
            Event::Opened {
                stream, direction, ..
            } => self.session.handle_opened(stream, direction).unwrap(),
            Event::Readable { stream, .. } => {
                let mut connection = self.connection(now, endpoint);
                if !self
                    .session
                    .handle_readable(&mut connection, stream)
                    .unwrap()
                {
                    self.read(&mut connection, stream);
                }
            }
            Event::Lost { reason, .. } => {
                self.open.clear();
                if let Lost::Application { code, .. } = reason {
                    self.closed_with = Some(code);
                }
            }
            Event::Writable { .. }
            | Event::Stopped { .. }
            | Event::Finished { .. }
            | Event::StreamsAvailable { .. }
            | Event::Datagram { .. } => {}
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.handle.is_none().then_some(self.start)
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if self.handle.is_none() {
            let handle = endpoint.connect(now, &self.config, self.server, SERVER_NAME, 0);
            self.handle = Some(handle.unwrap());
        }
    }

    fn handle_shutdown(&mut self, _now: Instant, _endpoint: &mut Endpoint) {}

    fn is_finished(&self) -> bool {
        self.handle.is_some() && self.paths.is_empty() && self.open.is_empty()
    }
}
