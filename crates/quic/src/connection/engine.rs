//! A connection over the network, borrowed from the engine.

use std::{net::SocketAddr, time::Instant};

use bytes::Bytes;
use quinn_proto::{Dir, VarInt, crypto::rustls::HandshakeData};
use weir_moqt::transport::{Direction, Read, StreamId, Transport, WriteError};

use super::{ConnectionStats, SendDatagramError};
use crate::{
    Handle,
    event::code,
    slots::{Hot, Slot, State},
};

/// One connection over the network, borrowed for a few operations.
pub(crate) struct EngineConnection<'a> {
    pub(crate) now: Instant,
    pub(crate) handle: Handle,
    pub(crate) hot: &'a mut Hot,
    pub(crate) slot: &'a mut Slot,
    pub(crate) dirty: &'a mut Vec<u32>,
}

impl EngineConnection<'_> {
    pub(crate) fn remote_address(&self) -> SocketAddr {
        self.slot.engine.remote_address()
    }

    pub(crate) fn protocol(&self) -> Option<String> {
        let data = self.slot.engine.crypto_session().handshake_data()?;
        let data = data.downcast::<HandshakeData>().ok()?;
        Some(String::from_utf8_lossy(data.protocol.as_deref()?).into_owned())
    }

    pub(crate) fn has_peer_certificate(&self) -> bool {
        self.slot.engine.crypto_session().peer_identity().is_some()
    }

    pub(crate) fn datagram_size_max(&mut self) -> Option<usize> {
        self.slot.engine.datagrams().max_size()
    }

    #[inline]
    pub(crate) fn send_datagram(
        &mut self,
        data: Bytes,
        deadline: Option<Instant>,
    ) -> Result<(), SendDatagramError> {
        let mut datagrams = self.slot.engine.datagrams();
        let data = if self.slot.datagrams.is_empty() {
            match datagrams.send(data, false) {
                Ok(()) => {
                    self.mark_dirty();
                    return Ok(());
                }
                Err(quinn_proto::SendDatagramError::Blocked(data)) => data,
                Err(quinn_proto::SendDatagramError::TooLarge) => {
                    let size_max = datagrams.max_size().unwrap_or(0);
                    return Err(SendDatagramError::TooLarge(size_max));
                }
                Err(
                    quinn_proto::SendDatagramError::UnsupportedByPeer
                    | quinn_proto::SendDatagramError::Disabled,
                ) => return Err(SendDatagramError::Unsupported),
            }
        } else {
            let size_max = datagrams.max_size().unwrap_or(0);
            if data.len() > size_max {
                return Err(SendDatagramError::TooLarge(size_max));
            }
            data
        };
        let dropped = self
            .slot
            .datagrams
            .push(data, deadline, self.slot.datagram_bytes_max);
        self.slot.dropped.oldest += dropped.oldest;
        self.mark_dirty();
        Ok(())
    }

    pub(crate) fn stats(&self) -> ConnectionStats {
        let stats = self.slot.engine.stats();
        ConnectionStats {
            round_trip: stats.path.rtt,
            congestion_window_bytes: stats.path.cwnd,
            packets_sent: stats.path.sent_packets,
            packets_lost: stats.path.lost_packets,
            bytes_sent: stats.udp_tx.bytes,
            bytes_received: stats.udp_rx.bytes,
            path_mtu_bytes: stats.path.current_mtu,
            datagrams_dropped_oldest: self.slot.dropped.oldest,
            datagrams_dropped_expired: self.slot.dropped.expired,
            datagrams_dropped_unread: self.slot.datagrams_unread,
            datagram_bytes_waiting: self.slot.datagrams.bytes(),
        }
    }

    #[inline]
    fn mark_dirty(&mut self) {
        if !self.hot.dirty {
            self.hot.dirty = true;
            if !self.hot.listed {
                self.hot.listed = true;
                self.dirty.push(self.handle.index);
            }
        }
    }
}

impl Transport for EngineConnection<'_> {
    fn open(&mut self, direction: Direction) -> Option<StreamId> {
        self.slot
            .engine
            .streams()
            .open(dir(direction))
            .map(from_engine)
    }

    fn read(&mut self, stream: StreamId) -> Read {
        let Some(stream) = to_engine(stream) else {
            return Read::Blocked;
        };
        let mut receiver = self.slot.engine.recv_stream(stream);
        let Ok(mut chunks) = receiver.read(true) else {
            return Read::Blocked;
        };
        let read = match chunks.next(usize::MAX) {
            Ok(Some(chunk)) => Read::Data(chunk.bytes),
            Ok(None) => Read::Fin,
            Err(quinn_proto::ReadError::Blocked) => Read::Blocked,
            Err(quinn_proto::ReadError::Reset(code)) => Read::Reset(code.into_inner()),
        };
        if chunks.finalize().should_transmit() {
            self.mark_dirty();
        }
        read
    }

    fn write(&mut self, stream: StreamId, data: &mut Bytes) -> Result<(), WriteError> {
        let Some(stream) = to_engine(stream) else {
            return Err(WriteError::Closed);
        };
        self.mark_dirty();
        let mut sender = self.slot.engine.send_stream(stream);
        while !data.is_empty() {
            match sender.write_chunks(std::slice::from_mut(data)) {
                Ok(written) if written.bytes == 0 => return Err(WriteError::Blocked),
                Ok(_) => {}
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
        // Fails only for a stream that was stopped or reset: then there is nothing left to finish.
        if self.slot.engine.send_stream(stream).finish().is_ok() {
            self.mark_dirty();
        }
    }

    fn reset(&mut self, stream: StreamId, error: u64) {
        let Some(stream) = to_engine(stream) else {
            return;
        };
        if self
            .slot
            .engine
            .send_stream(stream)
            .reset(code(error))
            .is_ok()
        {
            self.mark_dirty();
        }
    }

    fn stop(&mut self, stream: StreamId, error: u64) {
        let Some(stream) = to_engine(stream) else {
            return;
        };
        if self
            .slot
            .engine
            .recv_stream(stream)
            .stop(code(error))
            .is_ok()
        {
            // A stream that had come to its end makes room for another, which the engine tells the peer
            // only when it is asked to (or with the next packet that comes, if one does).
            let engine = &mut self.slot.engine;
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
        // Fails only for a closed stream, which has nothing left to rank.
        let _closed = self.slot.engine.send_stream(stream).set_priority(priority);
    }

    fn close(&mut self, error: u64, reason: &[u8]) {
        if self.slot.state == State::Closed {
            return;
        }
        self.slot.state = State::Closed;
        let reason = Bytes::copy_from_slice(reason);
        self.slot.engine.close(self.now, code(error), reason);
        self.mark_dirty();
    }
}

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
