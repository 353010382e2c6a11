//! A connection over the network, borrowed from the engine, with its HTTP/3 layer if it has one.

use std::{net::SocketAddr, time::Instant};

use bytes::Bytes;
use quinn_proto::VarInt;
use weir_transport::{Direction, Read, StreamId, Transport, WriteError};

use super::{
    Carrier, ConnectionStats, SendDatagramError,
    bare::{Bare, application_protocol, mark_dirty},
};
use crate::{
    Handle,
    datagrams::Shared,
    endpoint::turns::Turns,
    slots::{Hot, Slot, State},
    web_transport::WebTransport,
};

/// One connection over the network, borrowed for a few operations.
pub(crate) struct EngineConnection<'a> {
    pub(crate) now: Instant,
    pub(crate) handle: Handle,
    pub(crate) hot: &'a mut Hot,
    pub(crate) slot: &'a mut Slot,
    pub(crate) dirty: &'a mut Vec<u32>,
    pub(crate) turns: &'a mut Turns,
    pub(crate) shared: &'a mut Shared,
}

impl EngineConnection<'_> {
    pub(crate) fn remote_address(&self) -> SocketAddr {
        self.slot.engine.remote_address()
    }

    pub(crate) fn protocol(&self) -> Option<String> {
        match &self.slot.web_transport {
            None => application_protocol(&self.slot.engine),
            Some(layer) => layer.protocol().map(str::to_owned),
        }
    }

    pub(crate) fn has_peer_certificate(&self) -> bool {
        self.slot.engine.crypto_session().peer_identity().is_some()
    }

    pub(crate) fn has_early_data(&self) -> bool {
        self.slot.engine.side().is_client() && self.slot.engine.has_0rtt()
    }

    pub(crate) fn is_early_data_accepted(&self) -> bool {
        self.slot.engine.accepted_0rtt()
    }

    pub(crate) fn datagram_size_max(&mut self) -> Option<usize> {
        let size_max = self.slot.engine.datagrams().max_size()?;
        Some(size_max.saturating_sub(self.slot.datagram_prefix_length()))
    }

    pub(crate) fn carrier(&self) -> Carrier<'_> {
        match &self.slot.web_transport {
            None => Carrier::Quic,
            Some(layer) => Carrier::WebTransport(layer.request()),
        }
    }

    #[inline]
    pub(crate) fn send_datagram(
        &mut self,
        data: Bytes,
        deadline: Option<Instant>,
    ) -> Result<(), SendDatagramError> {
        let data = match &self.slot.web_transport {
            None => data,
            Some(layer) => self.shared.prefixed.with(layer.datagram_prefix(), data),
        };
        self.send_whole_datagram(data, deadline)
            .map_err(|error| match error {
                SendDatagramError::TooLarge(size_max) => SendDatagramError::TooLarge(
                    size_max.saturating_sub(self.slot.datagram_prefix_length()),
                ),
                SendDatagramError::Unsupported => error,
            })
    }

    #[inline]
    fn send_whole_datagram(
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
        self.slot.dropped += dropped;
        self.shared.dropped += dropped;
        self.mark_dirty();
        Ok(())
    }

    pub(crate) fn probe(&mut self) {
        self.slot.engine.ping();
        self.mark_dirty();
    }

    pub(crate) fn set_receive_window(&mut self, bytes: u64) {
        let bytes = VarInt::from_u64(bytes).unwrap_or(VarInt::MAX);
        self.slot.engine.set_receive_window(bytes);
        self.mark_dirty();
    }

    pub(crate) fn stats(&self) -> ConnectionStats {
        let stats = self.slot.engine.stats();
        ConnectionStats {
            round_trip: stats.path.rtt,
            handshake: self.slot.handshake,
            congestion_window_bytes: stats.path.cwnd,
            packets_sent: stats.path.sent_packets,
            packets_lost: stats.path.lost_packets,
            bytes_sent: stats.udp_tx.bytes,
            payloads_received: stats.udp_rx.datagrams,
            bytes_received: stats.udp_rx.bytes,
            acks_sent: stats.frame_tx.acks,
            stream_frames_sent: stats.frame_tx.stream,
            ack_frequencies_received: stats.frame_rx.ack_frequency,
            path_mtu_bytes: stats.path.current_mtu,
            datagrams_dropped_oldest: self.slot.dropped.oldest,
            datagrams_dropped_expired: self.slot.dropped.expired,
            datagrams_dropped_unread: self.slot.datagrams_unread,
            datagram_bytes_waiting: self.slot.datagrams.bytes(),
            stream_bytes_unsent: self.hot.written_bytes.saturating_sub(stats.udp_tx.bytes),
            // A peer that sends next to no streams cannot have left much of them, whatever else it sends.
            stream_bytes_unread: self.hot.unread_bytes().min(
                stats
                    .frame_rx
                    .stream
                    .saturating_mul(stats.path.current_mtu.into()),
            ),
        }
    }

    #[inline]
    fn mark_dirty(&mut self) {
        mark_dirty(self.handle.index, self.hot, self.dirty);
    }

    /// Returns the bare connection and the layer above it, if there is one.
    #[inline]
    fn split(&mut self) -> (Bare<'_>, Option<&mut WebTransport>) {
        self.slot
            .split(self.now, self.handle.index, self.hot, self.dirty)
    }
}

impl Transport for EngineConnection<'_> {
    fn open(&mut self, direction: Direction) -> Option<StreamId> {
        match self.split() {
            (mut bare, None) => bare.open(direction),
            (mut bare, Some(layer)) => layer.open(&mut bare, direction),
        }
    }

    fn read(&mut self, stream: StreamId) -> Read {
        match self.split() {
            (mut bare, None) => bare.read(stream),
            (mut bare, Some(layer)) => layer.read(&mut bare, stream),
        }
    }

    fn read_all(&mut self, stream: StreamId, pieces: &mut Vec<Bytes>) -> Read {
        match self.split() {
            (mut bare, None) => bare.read_all(stream, pieces),
            (mut bare, Some(layer)) => loop {
                match layer.read(&mut bare, stream) {
                    Read::Data(data) => pieces.push(data),
                    end @ (Read::Fin | Read::Reset(_) | Read::Blocked) => return end,
                }
            },
        }
    }

    fn read_later(&mut self, stream: StreamId) {
        if !self.slot.unread.contains(&stream) {
            self.slot.unread.push_back(stream);
        }
        self.turns.note_left();
        if !self.hot.active {
            self.hot.active = true;
            self.turns.push_busy(self.handle.index);
        }
    }

    fn write(&mut self, stream: StreamId, data: &mut Bytes) -> Result<(), WriteError> {
        match self.split() {
            (mut bare, None) => bare.write(stream, data),
            (mut bare, Some(layer)) => layer.write(&mut bare, stream, data),
        }
    }

    fn finish(&mut self, stream: StreamId) {
        match self.split() {
            (mut bare, None) => bare.finish(stream),
            (mut bare, Some(layer)) => layer.finish(&mut bare, stream),
        }
    }

    fn reset(&mut self, stream: StreamId, code: u64) {
        match self.split() {
            (mut bare, None) => bare.reset(stream, code),
            (mut bare, Some(layer)) => layer.reset(&mut bare, stream, code),
        }
    }

    fn stop(&mut self, stream: StreamId, code: u64) {
        match self.split() {
            (mut bare, None) => bare.stop(stream, code),
            (mut bare, Some(layer)) => layer.stop(&mut bare, stream, code),
        }
    }

    fn set_priority(&mut self, stream: StreamId, priority: i32) {
        self.split().0.set_priority(stream, priority);
    }

    fn close(&mut self, code: u64, reason: &[u8]) {
        let now = self.now;
        match self.split() {
            (mut bare, None) => bare.close(code, reason),
            (mut bare, Some(layer)) => layer.close(now, &mut bare, code, reason),
        }
        // A session is closed for its role at once, even if the close has still to be sent to its peer.
        self.slot.state = State::Closed;
    }
}
