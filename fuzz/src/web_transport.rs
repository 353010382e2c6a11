//! Fuzzing of a WebTransport layer, client or server, whose peer and role do anything.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use weir_quic::web_transport::{Event, Offer, Request, WebTransport};
use weir_transport::{Direction, Read, StreamId, Transport, WriteError};

/// Runs `input` as a script. The first byte selects the end and how the peer's bytes are split. Each step is a byte for
/// the action, one for the stream or a count, and the action's arguments.
///
/// # Panics
/// If the session is established twice, ends twice, or has events after its end; if a stream is reported twice; or if
/// the connection is closed twice.
#[expect(clippy::disallowed_methods, reason = "any instant serves as an origin")]
pub fn run(input: &[u8]) {
    let Some((first, script)) = input.split_first() else {
        return;
    };
    let mut stage = Stage::new(*first & 1 == 1, Instant::now());
    let piece = usize::from(*first >> 1).max(1);
    let mut script = script.iter().copied();
    while let (Some(step), Some(place)) = (script.next(), script.next()) {
        if step % 16 < 6 {
            let length = usize::from(script.next().unwrap_or_default());
            let data: Vec<u8> = script.by_ref().take(length).collect();
            for piece in data.chunks(piece) {
                stage.arrive(place, Read::Data(Bytes::copy_from_slice(piece)));
            }
        } else {
            stage.step(step % 16, place);
        }
        stage.hear();
    }
}

/// The layer, its role and its transport.
struct Stage {
    layer: WebTransport,
    wire: Wire,
    is_server: bool,
    now: Instant,
    has_stood: bool,
    is_over: bool,
    told: Vec<StreamId>,
}

#[derive(Default)]
struct Wire {
    arrived: BTreeMap<StreamId, Vec<Read>>,
    next: [u64; 2],
    credit: usize,
    openable: usize,
    is_closed: bool,
}

impl Stage {
    fn new(is_server: bool, now: Instant) -> Self {
        let mut layer = if is_server {
            WebTransport::server(Arc::new(Offer {
                protocols: vec!["moqt-18".to_owned()],
                ..Offer::default()
            }))
        } else {
            WebTransport::client(Request {
                authority: "a".to_owned(),
                path: "/".to_owned(),
                protocols: vec!["moqt-18".to_owned()],
                origin: None,
            })
        };
        let mut wire = Wire {
            next: if is_server { [1, 3] } else { [0, 2] },
            credit: 1 << 20,
            openable: 100,
            ..Wire::default()
        };
        layer.start(&mut wire);
        layer.handle_connected(now, &mut wire);
        Self {
            layer,
            wire,
            is_server,
            now,
            has_stood: false,
            is_over: false,
            told: Vec::new(),
        }
    }

    fn is_of_peer(&self, stream: StreamId) -> bool {
        stream.0.is_multiple_of(2) == self.is_server
    }

    /// Delivers data of the peer on one of its streams, or on a bidirectional stream of this end.
    fn arrive(&mut self, place: u8, read: Read) {
        let stream = stream(place);
        let is_bidi = stream.0 & 2 == 0;
        if !self.is_of_peer(stream) {
            let is_open = stream.0 < self.wire.next[usize::from(!is_bidi)];
            if !is_bidi || !is_open {
                return;
            }
        } else if !self.wire.arrived.contains_key(&stream) {
            let direction = if is_bidi {
                Direction::Bi
            } else {
                Direction::Uni
            };
            self.layer.handle_opened(stream, direction);
        }
        let arrived = self.wire.arrived.entry(stream).or_default();
        if !arrived
            .iter()
            .any(|read| matches!(read, Read::Fin | Read::Reset(_)))
        {
            arrived.insert(0, read);
        }
        if self.layer.handle_readable(&mut self.wire, stream) {
            while self.layer.read(&mut self.wire, stream) != Read::Blocked {}
        }
        while self.layer.read_on(&mut self.wire) {}
    }

    fn step(&mut self, step: u8, place: u8) {
        let (layer, wire) = (&mut self.layer, &mut self.wire);
        let stream = stream(place);
        match step {
            6 => self.arrive(place, Read::Fin),
            7 => self.arrive(place, Read::Reset(0x52e4_a40f_a8db + u64::from(place))),
            8 => {
                let data = Bytes::copy_from_slice(&[place >> 4, place, place]);
                let taken = layer.handle_datagram(wire, data.slice(..usize::from(place % 4)));
                assert!(taken.is_none() || layer.is_established());
            }
            9 => {
                let direction = if place & 1 == 0 {
                    Direction::Bi
                } else {
                    Direction::Uni
                };
                if let Some(stream) = layer.open(wire, direction) {
                    let _blocked = layer.write(wire, stream, &mut Bytes::from_static(b"data"));
                    if place & 2 == 2 {
                        layer.finish(wire, stream);
                    }
                }
            }
            10 => {
                layer.handle_stopped(wire, stream, u64::from(place));
            }
            11 => {
                layer.handle_finished(wire, stream);
            }
            12 => {
                self.now += Duration::from_millis(u64::from(place) * 20);
                layer.handle_timeout(self.now, wire);
            }
            13 => {
                wire.credit = usize::from(place);
                wire.openable += usize::from(place % 3);
                layer.handle_writable(wire, stream);
                layer.handle_streams_available(wire);
            }
            14 => {
                layer.reset(wire, stream, u64::from(place));
                layer.stop(wire, stream, u64::from(place));
            }
            _ => {
                // The role gets no events of a session that it has closed.
                layer.close(self.now, wire, u64::from(place), b"over");
                self.hear();
                self.is_over = true;
            }
        }
    }

    fn hear(&mut self) {
        while let Some(event) = self.layer.poll_event() {
            assert!(!self.is_over, "{event:?} after the end");
            match event {
                Event::Established => {
                    assert!(
                        !std::mem::replace(&mut self.has_stood, true),
                        "stands twice"
                    );
                }
                Event::Opened(stream, _) => {
                    assert!(self.has_stood && self.is_of_peer(stream));
                    assert!(!self.told.contains(&stream), "told twice");
                    self.told.push(stream);
                }
                Event::Datagram(_) => assert!(self.has_stood),
                Event::Lost(_) => self.is_over = true,
            }
        }
    }
}

/// Returns a stream of either side, selected by a byte.
fn stream(place: u8) -> StreamId {
    StreamId(u64::from(place % 64))
}

impl Transport for Wire {
    fn open(&mut self, direction: Direction) -> Option<StreamId> {
        self.openable = self.openable.checked_sub(1)?;
        let next = &mut self.next[usize::from(direction == Direction::Uni)];
        let stream = StreamId(*next);
        *next += 4;
        Some(stream)
    }

    fn read(&mut self, stream: StreamId) -> Read {
        let arrived = self.arrived.get_mut(&stream);
        arrived.and_then(Vec::pop).unwrap_or(Read::Blocked)
    }

    fn read_later(&mut self, _stream: StreamId) {}

    fn write(&mut self, _stream: StreamId, data: &mut Bytes) -> Result<(), WriteError> {
        let taken = data.split_to(data.len().min(self.credit));
        self.credit -= taken.len();
        if data.is_empty() {
            Ok(())
        } else {
            Err(WriteError::Blocked)
        }
    }

    fn finish(&mut self, _stream: StreamId) {}

    fn reset(&mut self, _stream: StreamId, _code: u64) {}

    fn stop(&mut self, _stream: StreamId, _code: u64) {}

    fn set_priority(&mut self, _stream: StreamId, _priority: i32) {}

    fn close(&mut self, _code: u64, _reason: &[u8]) {
        assert!(
            !std::mem::replace(&mut self.is_closed, true),
            "closed twice"
        );
    }
}
