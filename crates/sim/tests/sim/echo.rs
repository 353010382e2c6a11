//! A server that echoes everything, and a client that checks it.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use weir_quic::{App, ClientConfig, Endpoint, Event, Handle, Lost};
use weir_sim::{SERVER_NAME, Sim};
use weir_transport::{Direction, Read, StreamId, Transport, WriteError};

pub(crate) const PROTOCOL: &str = "echo";

/// Data that remains to be written to one stream.
#[derive(Default)]
struct Backlog {
    chunks: VecDeque<Bytes>,
    is_last: bool,
}

impl Backlog {
    /// Writes what the stream accepts. Returns whether the stream is finished.
    fn flush(&mut self, connection: &mut impl Transport, stream: StreamId) -> bool {
        while let Some(chunk) = self.chunks.front_mut() {
            match connection.write(stream, chunk) {
                Ok(()) => drop(self.chunks.pop_front()),
                Err(WriteError::Blocked) => return false,
                Err(WriteError::Stopped(_) | WriteError::Closed) => return true,
            }
        }
        if self.is_last {
            connection.finish(stream);
        }
        self.is_last
    }
}

/// Echoes what it receives, on the same stream.
#[derive(Default)]
pub(crate) struct Echo {
    backlogs: BTreeMap<(Handle, StreamId), Backlog>,
    /// The addresses that stream data came from, without duplicates.
    pub(crate) peers_seen: Vec<SocketAddr>,
    pub(crate) lost: Vec<Lost>,
}

impl App for Echo {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        match event {
            Event::Readable { handle, stream } => {
                let Some(mut connection) = endpoint.connection(now, handle) else {
                    return;
                };
                let peer = connection.remote_address();
                if self.peers_seen.last() != Some(&peer) {
                    self.peers_seen.push(peer);
                }
                let backlog = self.backlogs.entry((handle, stream)).or_default();
                loop {
                    match connection.read(stream) {
                        Read::Data(data) => backlog.chunks.push_back(data),
                        Read::Fin => backlog.is_last = true,
                        Read::Reset(_) | Read::Blocked => break,
                    }
                    if backlog.is_last {
                        break;
                    }
                }
                backlog.flush(&mut connection, stream);
            }
            Event::Writable { handle, stream } => {
                let Some(mut connection) = endpoint.connection(now, handle) else {
                    return;
                };
                let backlog = self.backlogs.entry((handle, stream)).or_default();
                backlog.flush(&mut connection, stream);
            }
            Event::Lost { reason, .. } => self.lost.push(reason),
            Event::Connected { .. }
            | Event::Opened { .. }
            | Event::Stopped { .. }
            | Event::Finished { .. }
            | Event::StreamsAvailable { .. }
            | Event::Datagram { .. } => {}
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _now: Instant, _endpoint: &mut Endpoint) {}

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        endpoint.close_all(now, 7, b"closing time");
    }

    fn is_finished(&self) -> bool {
        false
    }
}

/// Connects, sends a pattern on several streams at once, and checks that all of it is echoed, once and in order.
pub(crate) struct Courier {
    config: ClientConfig,
    remote: SocketAddr,
    begins_at: Option<Instant>,
    streams: u64,
    bytes: u64,
    pub(crate) handle: Option<Handle>,
    backlogs: BTreeMap<StreamId, Backlog>,
    /// For each stream its number, and how many bytes were echoed.
    returned: BTreeMap<StreamId, (u64, u64)>,
    pub(crate) streams_done: u64,
    pub(crate) finished_at: Option<Instant>,
    pub(crate) lost: Option<Lost>,
}

impl Courier {
    /// Connects as soon as it is started.
    pub(crate) fn new(sim: &Sim, remote: SocketAddr, streams: u64, bytes: u64) -> Self {
        Self {
            config: sim.client_config(&[PROTOCOL]),
            remote,
            begins_at: Some(sim.now()),
            streams,
            bytes,
            handle: None,
            backlogs: BTreeMap::new(),
            returned: BTreeMap::new(),
            streams_done: 0,
            finished_at: None,
            lost: None,
        }
    }

    fn send_all(&mut self, now: Instant, endpoint: &mut Endpoint, handle: Handle) {
        let mut connection = endpoint
            .connection(now, handle)
            .expect("it has just been connected");
        for number in 0..self.streams {
            let stream = connection
                .open(Direction::Bi)
                .expect("the streams are within the limit");
            let data: Vec<u8> = (0..self.bytes)
                .map(|offset| pattern(number, offset))
                .collect();
            let mut backlog = Backlog {
                chunks: [Bytes::from(data)].into(),
                is_last: true,
            };
            if !backlog.flush(&mut connection, stream) {
                self.backlogs.insert(stream, backlog);
            }
            self.returned.insert(stream, (number, 0));
        }
    }

    fn read(&mut self, now: Instant, endpoint: &mut Endpoint, handle: Handle, stream: StreamId) {
        let Some(mut connection) = endpoint.connection(now, handle) else {
            return;
        };
        let (number, returned) = self.returned.get_mut(&stream).expect("the peer opens none");
        loop {
            match connection.read(stream) {
                Read::Data(data) => {
                    for byte in data {
                        assert_eq!(byte, pattern(*number, *returned), "offset {returned}");
                        *returned += 1;
                    }
                }
                Read::Fin => {
                    assert_eq!(*returned, self.bytes, "stream {number} ended early");
                    self.streams_done += 1;
                    break;
                }
                Read::Reset(code) => panic!("stream {number} was reset with {code}"),
                Read::Blocked => break,
            }
        }
        if self.streams_done == self.streams {
            self.finished_at = Some(now);
            connection.close(0, b"done");
        }
    }
}

impl App for Courier {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        match event {
            Event::Connected { handle } => self.send_all(now, endpoint, handle),
            Event::Readable { handle, stream } => self.read(now, endpoint, handle, stream),
            Event::Writable { handle, stream } => {
                let Some(mut connection) = endpoint.connection(now, handle) else {
                    return;
                };
                if let Some(backlog) = self.backlogs.get_mut(&stream) {
                    backlog.flush(&mut connection, stream);
                }
            }
            Event::Lost { reason, .. } => self.lost = Some(reason),
            Event::Opened { .. }
            | Event::Stopped { .. }
            | Event::Finished { .. }
            | Event::StreamsAvailable { .. }
            | Event::Datagram { .. } => {}
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.begins_at
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if self.begins_at.take_if(|at| *at <= now).is_some() {
            let handle = endpoint.connect(now, &self.config, self.remote, SERVER_NAME, 0);
            self.handle = Some(handle.expect("the first connection of this endpoint"));
        }
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        endpoint.close_all(now, 0, b"");
    }

    fn is_finished(&self) -> bool {
        self.finished_at.is_some() || self.lost.is_some()
    }
}

fn pattern(stream: u64, offset: u64) -> u8 {
    (offset * 31 + offset / 256 + stream * 7).to_le_bytes()[0]
}
