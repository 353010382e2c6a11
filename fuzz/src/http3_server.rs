//! Fuzzing of the HTTP/3 server, whose client sends anything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use weir_http3::{
    Limits,
    server::{Peer, Service, Site, SiteLimits},
};
use weir_transport::{Direction, Read, StreamId, Transport, WriteError};

/// Runs `input` as a script. The first byte determines how the client's bytes are split. Each step is a byte for the
/// action, one for the stream, and the action's arguments.
///
/// # Panics
/// If a response is finished twice, or written to after its end; or if a request is not counted exactly once.
pub fn run(input: &[u8]) {
    let Some((first, script)) = input.split_first() else {
        return;
    };
    let piece = usize::from(*first).max(1);
    let mut stage = Stage::new();
    let mut script = script.iter().copied();
    while let (Some(step), Some(place)) = (script.next(), script.next()) {
        let stream = StreamId(u64::from(place % 64));
        let is_going_on = if step % 16 < 8 {
            let length = usize::from(script.next().unwrap_or_default());
            let data: Vec<u8> = script.by_ref().take(length).collect();
            let mut pieces = data.chunks(piece);
            pieces.all(|piece| stage.arrive(stream, Read::Data(Bytes::copy_from_slice(piece))))
        } else {
            stage.step(step % 16, place, stream)
        };
        stage.check();
        if !is_going_on {
            return;
        }
    }
}

/// The server, and its transport.
struct Stage {
    peer: Peer,
    service: Service,
    wire: Wire,
}

#[derive(Default)]
struct Wire {
    arrived: BTreeMap<StreamId, Vec<Read>>,
    opened: BTreeSet<StreamId>,
    ended: BTreeSet<StreamId>,
    finished: BTreeSet<StreamId>,
    /// Streams of which data was left for later.
    later: Vec<StreamId>,
    next: u64,
    credit: usize,
    openable: usize,
}

impl Stage {
    fn new() -> Self {
        let mut site = Site::new(SiteLimits {
            made_bytes_max: 4 << 10,
            ..SiteLimits::default()
        });
        site.add("/a", b"hello").expect("a small file");
        let limits = Limits {
            field_section_bytes_max: 200,
            unfinished_sections_bytes_max: 300,
            request_content_bytes_max: 100,
            fresh_streams_max: 4,
        };
        let service = Service::new(limits, Arc::new(site));
        let mut wire = Wire {
            next: 3,
            credit: 1 << 20,
            openable: 2,
            ..Wire::default()
        };
        let mut peer = Peer::new(&service);
        peer.start(&mut wire);
        Self {
            peer,
            service,
            wire,
        }
    }

    /// Delivers data of the client on one of its streams; returns false if the connection has to be closed.
    fn arrive(&mut self, stream: StreamId, read: Read) -> bool {
        if !stream.0.is_multiple_of(2) || self.wire.ended.contains(&stream) {
            return true;
        }
        let Self {
            peer,
            service,
            wire,
        } = self;
        if matches!(read, Read::Fin | Read::Reset(_)) {
            wire.ended.insert(stream);
        }
        let arrived = wire.arrived.entry(stream).or_default();
        arrived.insert(0, read);
        if wire.opened.insert(stream) {
            let direction = if stream.0 & 2 == 0 {
                Direction::Bi
            } else {
                Direction::Uni
            };
            let opened = peer.handle_opened(wire, service, stream, direction);
            if opened.is_err() {
                return false;
            }
        }
        wire.later.push(stream);
        while let Some(stream) = wire.later.pop() {
            if peer.handle_readable(wire, service, stream).is_err() {
                return false;
            }
        }
        true
    }

    fn step(&mut self, step: u8, place: u8, stream: StreamId) -> bool {
        match step {
            8 | 9 => return self.arrive(stream, Read::Fin),
            10 => return self.arrive(stream, Read::Reset(u64::from(place))),
            11 => {
                if self.wire.opened.contains(&stream) || stream.0 % 4 == 3 {
                    let (wire, service) = (&mut self.wire, &mut self.service);
                    return self.peer.handle_stopped(wire, service, stream).is_ok();
                }
            }
            12 => {
                self.wire.credit = usize::from(place);
                let (wire, service) = (&mut self.wire, &mut self.service);
                self.peer.handle_writable(wire, service, stream);
            }
            13 => {
                self.wire.openable += usize::from(place % 3);
                self.peer.start(&mut self.wire);
            }
            14 => self.peer.handle_finished(),
            _ => self.peer.go_away(&mut self.wire),
        }
        true
    }

    fn check(&self) {
        let counters = self.service.counters();
        let answered = counters.answers_ok + counters.answers_refused;
        let failed = counters.requests_malformed;
        assert!(
            answered <= counters.requests,
            "answered more than was asked"
        );
        assert!(failed <= counters.requests, "failed more than was asked");
    }
}

impl Transport for Wire {
    fn open(&mut self, _direction: Direction) -> Option<StreamId> {
        self.openable = self.openable.checked_sub(1)?;
        let stream = StreamId(self.next);
        self.next += 4;
        Some(stream)
    }

    fn read(&mut self, stream: StreamId) -> Read {
        let arrived = self.arrived.get_mut(&stream);
        arrived.and_then(Vec::pop).unwrap_or(Read::Blocked)
    }

    fn read_later(&mut self, stream: StreamId) {
        self.later.push(stream);
    }

    fn write(&mut self, stream: StreamId, data: &mut Bytes) -> Result<(), WriteError> {
        assert!(!self.finished.contains(&stream), "written after the end");
        let taken = data.split_to(data.len().min(self.credit));
        self.credit -= taken.len();
        if data.is_empty() {
            Ok(())
        } else {
            Err(WriteError::Blocked)
        }
    }

    fn finish(&mut self, stream: StreamId) {
        assert!(self.finished.insert(stream), "finished twice");
    }

    fn reset(&mut self, _stream: StreamId, _code: u64) {}

    fn stop(&mut self, _stream: StreamId, _code: u64) {}

    fn set_priority(&mut self, _stream: StreamId, _priority: i32) {}

    fn close(&mut self, _code: u64, _reason: &[u8]) {}
}
