//! A connection of the engine, without a layer above it.

use std::time::Instant;

use bytes::Bytes;
use quinn_proto::{Dir, VarInt, crypto::rustls::HandshakeData};
use weir_transport::{Direction, Read, StreamId, Transport, WriteError};

use crate::{
    config::PACKET_BYTES_MAX,
    event::code,
    slots::{Hot, State},
};

/// A connection without a layer above it.
pub(crate) struct Bare<'a> {
    pub(crate) now: Instant,
    pub(crate) index: u32,
    pub(crate) hot: &'a mut Hot,
    pub(crate) engine: &'a mut quinn_proto::Connection,
    pub(crate) state: &'a mut State,
    pub(crate) dirty: &'a mut Vec<u32>,
}

impl Bare<'_> {
    #[inline]
    fn mark_dirty(&mut self) {
        mark_dirty(self.index, self.hot, self.dirty);
    }
}

#[inline]
pub(super) fn mark_dirty(index: u32, hot: &mut Hot, dirty: &mut Vec<u32>) {
    if !hot.dirty {
        hot.dirty = true;
        if !hot.listed {
            hot.listed = true;
            dirty.push(index);
        }
    }
}

impl Transport for Bare<'_> {
    fn open(&mut self, direction: Direction) -> Option<StreamId> {
        self.engine.streams().open(dir(direction)).map(from_engine)
    }

    fn read(&mut self, stream: StreamId) -> Read {
        let Some(stream) = to_engine(stream) else {
            return Read::Blocked;
        };
        let mut receiver = self.engine.recv_stream(stream);
        let Ok(mut chunks) = receiver.read(true) else {
            return Read::Blocked;
        };
        let read = match chunks.next(READ_BYTES_MAX) {
            Ok(Some(chunk)) => {
                self.hot.note_read(chunk.bytes.len());
                Read::Data(chunk.bytes)
            }
            Ok(None) => Read::Fin,
            Err(quinn_proto::ReadError::Blocked) => Read::Blocked,
            Err(quinn_proto::ReadError::Reset(code)) => Read::Reset(code.into_inner()),
        };
        if chunks.finalize().should_transmit() {
            self.mark_dirty();
        }
        read
    }

    fn read_all(&mut self, stream: StreamId, pieces: &mut Vec<Bytes>) -> Read {
        let Some(stream) = to_engine(stream) else {
            return Read::Blocked;
        };
        let mut receiver = self.engine.recv_stream(stream);
        // Creating and closing the engine's reader costs more than reading a piece.
        let Ok(mut chunks) = receiver.read(true) else {
            return Read::Blocked;
        };
        let end = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    self.hot.note_read(chunk.bytes.len());
                    pieces.push(chunk.bytes);
                }
                Ok(None) => break Read::Fin,
                Err(quinn_proto::ReadError::Blocked) => break Read::Blocked,
                Err(quinn_proto::ReadError::Reset(code)) => break Read::Reset(code.into_inner()),
            }
        };
        if chunks.finalize().should_transmit() {
            self.mark_dirty();
        }
        end
    }

    /// Does nothing: the layer above knows itself what it has left on its own streams.
    fn read_later(&mut self, _stream: StreamId) {}

    fn write(&mut self, stream: StreamId, data: &mut Bytes) -> Result<(), WriteError> {
        let Some(stream) = to_engine(stream) else {
            return Err(WriteError::Closed);
        };
        self.mark_dirty();
        let mut sender = self.engine.send_stream(stream);
        while !data.is_empty() {
            match sender.write_chunks(std::slice::from_mut(data)) {
                Ok(written) if written.bytes == 0 => return Err(WriteError::Blocked),
                Ok(written) => self.hot.written_bytes += written.bytes as u64,
                Err(quinn_proto::WriteError::Blocked) => return Err(WriteError::Blocked),
                Err(quinn_proto::WriteError::Stopped(code)) => {
                    return Err(WriteError::Stopped(code.into_inner()));
                }
                Err(quinn_proto::WriteError::ClosedStream) => return Err(WriteError::Closed),
            }
        }
        Ok(())
    }

    fn finish(&mut self, stream: StreamId) {
        let Some(stream) = to_engine(stream) else {
            return;
        };
        // Fails only for a stream that was stopped or reset, which needs no FIN.
        if self.engine.send_stream(stream).finish().is_ok() {
            self.mark_dirty();
        }
    }

    fn reset(&mut self, stream: StreamId, error: u64) {
        let Some(stream) = to_engine(stream) else {
            return;
        };
        if self.engine.send_stream(stream).reset(code(error)).is_ok() {
            self.mark_dirty();
        }
    }

    fn stop(&mut self, stream: StreamId, error: u64) {
        let Some(stream) = to_engine(stream) else {
            return;
        };
        if self.engine.recv_stream(stream).stop(code(error)).is_ok() {
            // A stream that has ended makes room for another. The engine sends the new limit only if it is asked to, or
            // with the next packet received.
            let engine = &mut *self.engine;
            let streams = engine.max_concurrent_streams(stream.dir());
            engine.set_max_concurrent_streams(
                stream.dir(),
                VarInt::from_u64(streams).unwrap_or(VarInt::MAX),
            );
            self.mark_dirty();
        }
    }

    fn set_priority(&mut self, stream: StreamId, priority: i32) {
        let Some(stream) = to_engine(stream) else {
            return;
        };
        // Fails only for a closed stream, which needs no priority.
        let _closed = self.engine.send_stream(stream).set_priority(priority);
    }

    fn close(&mut self, error: u64, reason: &[u8]) {
        if self.engine.is_closed() {
            return;
        }
        *self.state = State::Closed;
        let reason = Bytes::copy_from_slice(reason);
        self.engine.close(self.now, code(error), reason);
        self.mark_dirty();
    }
}

/// Most bytes that are read at once: as many as a packet can bring. The engine joins small frames that wait for data before
/// them, up to the whole window. What is not read of them counts for flow control.
const READ_BYTES_MAX: usize = PACKET_BYTES_MAX;

pub(crate) fn direction(dir: Dir) -> Direction {
    match dir {
        Dir::Uni => Direction::Uni,
        Dir::Bi => Direction::Bi,
    }
}

fn dir(direction: Direction) -> Dir {
    match direction {
        Direction::Uni => Dir::Uni,
        Direction::Bi => Dir::Bi,
    }
}

pub(crate) fn from_engine(stream: quinn_proto::StreamId) -> StreamId {
    StreamId(VarInt::from(stream).into_inner())
}

fn to_engine(stream: StreamId) -> Option<quinn_proto::StreamId> {
    VarInt::from_u64(stream.0)
        .ok()
        .map(quinn_proto::StreamId::from)
}

/// Returns the ALPN that the handshake negotiated, if known.
pub(crate) fn application_protocol(engine: &quinn_proto::Connection) -> Option<String> {
    let data = engine.crypto_session().handshake_data()?;
    let data = data.downcast::<HandshakeData>().ok()?;
    Some(String::from_utf8_lossy(data.protocol.as_deref()?).into_owned())
}
