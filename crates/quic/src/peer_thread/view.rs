//! A connection to a peer thread, borrowed for a few operations.

use std::{collections::VecDeque, net::SocketAddr, time::Instant};

use bytes::Bytes;
use weir_transport::{Direction, Read, StreamId, Transport, WriteError};

use super::connection::ThreadConnection;
use crate::{Carrier, ConnectionStats, Event, SendDatagramError};

/// A connection to a peer thread, with the same operations as one over the network.
pub(crate) struct ThreadConnectionView<'a> {
    pub(super) connection: &'a mut ThreadConnection,
    pub(super) events: &'a mut VecDeque<Event>,
}

#[expect(
    clippy::unused_self,
    clippy::unnecessary_wraps,
    reason = "what is the same for all peer threads is asked as on a connection over the network"
)]
impl ThreadConnectionView<'_> {
    /// The peer thread's number.
    pub(crate) fn peer(&self) -> u16 {
        self.connection.peer()
    }

    /// The unspecified address: a peer thread has none of its own.
    pub(crate) fn remote_address(&self) -> SocketAddr {
        SocketAddr::from(([0; 4], 0))
    }

    pub(crate) fn protocol(&self) -> Option<String> {
        None
    }

    pub(crate) fn carrier(&self) -> Carrier<'_> {
        Carrier::PeerThread
    }

    pub(crate) fn has_peer_certificate(&self) -> bool {
        false
    }

    pub(crate) fn has_early_data(&self) -> bool {
        false
    }

    pub(crate) fn is_early_data_accepted(&self) -> bool {
        false
    }

    pub(crate) fn datagram_size_max(&self) -> Option<usize> {
        Some(usize::from(u16::MAX))
    }

    /// Sends a datagram. The deadline plays no part, since messages are delivered within a turn.
    pub(crate) fn send_datagram(
        &mut self,
        data: Bytes,
        _deadline: Option<Instant>,
    ) -> Result<(), SendDatagramError> {
        self.connection.send_datagram(data);
        Ok(())
    }

    /// Does nothing: a peer thread need not show that it is there.
    pub(crate) fn probe(&self) {}

    /// All zero: there are no packets.
    pub(crate) fn stats(&self) -> ConnectionStats {
        ConnectionStats::default()
    }
}

impl Transport for ThreadConnectionView<'_> {
    fn open(&mut self, direction: Direction) -> Option<StreamId> {
        self.connection.open(direction)
    }

    fn read(&mut self, stream: StreamId) -> Read {
        self.connection.read(stream, self.events)
    }

    fn write(&mut self, stream: StreamId, data: &mut Bytes) -> Result<(), WriteError> {
        self.connection.write(stream, data)
    }

    fn finish(&mut self, stream: StreamId) {
        self.connection.finish(stream);
    }

    fn reset(&mut self, stream: StreamId, code: u64) {
        self.connection.reset(stream, code);
    }

    fn stop(&mut self, stream: StreamId, code: u64) {
        self.connection.stop(stream, code, self.events);
    }

    /// Does nothing: all messages are delivered within a turn.
    fn set_priority(&mut self, _stream: StreamId, _priority: i32) {}

    fn close(&mut self, code: u64, reason: &[u8]) {
        self.connection.close(code, reason);
    }
}
