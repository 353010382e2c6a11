//! A borrowed view of one connection, whatever carries it.

mod bare;
mod engine;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Instant,
};

use bytes::Bytes;
use weir_transport::{Direction, Read, StreamId, Transport, WriteError};

pub(crate) use self::{
    bare::{Bare, application_protocol, direction, from_engine},
    engine::EngineConnection,
};
use crate::{Handle, Loss, peer_thread::ThreadConnectionView, web_transport::Request};

/// One connection of an endpoint, borrowed for a few operations. Data written is sent in the host's next turn.
pub struct Connection<'a> {
    pub(crate) handle: Handle,
    pub(crate) way: Way<'a>,
}

/// The carrier of a connection.
pub(crate) enum Way<'a> {
    /// The network.
    Engine(EngineConnection<'a>),
    /// The memory of this process, to another thread.
    PeerThread(ThreadConnectionView<'a>),
}

/// Calls a method of the connection, whatever carries it.
macro_rules! with {
    ($way:expr, $connection:ident => $act:expr) => {
        match $way {
            Way::Engine($connection) => $act,
            Way::PeerThread($connection) => $act,
        }
    };
}

/// The carrier of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier<'a> {
    /// The QUIC connection itself.
    Quic,
    /// WebTransport, with the client's request; always `Some` once the session is established.
    WebTransport(Option<&'a Request>),
    /// The memory of this process, to another thread.
    PeerThread,
}

/// Why a datagram was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendDatagramError {
    /// The peer does not support datagrams (RFC 9221 §3).
    #[error("the peer does not accept datagrams")]
    Unsupported,
    /// The datagram is larger than the path or the peer permits; the limit in bytes.
    #[error("larger than the {0} bytes that fit a datagram")]
    TooLarge(usize),
}

/// Statistics of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ConnectionStats {
    /// Smoothed round-trip time.
    pub round_trip: std::time::Duration,
    /// How long the handshake took, from the first packet to the last; 0 before its end.
    pub handshake: std::time::Duration,
    /// Congestion window in bytes.
    pub congestion_window_bytes: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets declared lost.
    pub packets_lost: u64,
    /// UDP payload bytes sent.
    pub bytes_sent: u64,
    /// UDP payloads received.
    pub payloads_received: u64,
    /// UDP payload bytes received.
    pub bytes_received: u64,
    /// ACK frames sent.
    pub acks_sent: u64,
    /// STREAM frames sent, repeated ones too.
    pub stream_frames_sent: u64,
    /// `ACK_FREQUENCY` frames received, with which the peer asks for other acknowledgements
    /// (draft-ietf-quic-ack-frequency §4).
    pub ack_frequencies_received: u64,
    /// Largest UDP payload that the path is known to carry.
    pub path_mtu_bytes: u16,
    /// Datagrams dropped to make room for newer ones.
    pub datagrams_dropped_oldest: u64,
    /// Datagrams dropped because their deadline had passed.
    pub datagrams_dropped_expired: u64,
    /// Received datagrams that were dropped because newer ones came before they were read.
    pub datagrams_dropped_unread: u64,
    /// Bytes of datagrams that wait to be sent, without those already handed to the engine.
    pub datagram_bytes_waiting: usize,
    /// Bytes of stream data that are known to wait because the peer's flow control, or the path, does not let them leave.
    /// There may be more: packets that were sent count in full, with what they contain beside this data.
    pub stream_bytes_unsent: u64,
    /// About how many bytes of stream data came and were not read, because data before them is missing or nobody reads
    /// them. Retransmissions can make it larger, and data that was read smaller.
    pub stream_bytes_unread: u64,
}

impl Connection<'_> {
    /// Returns the connection's handle.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns the number of the peer thread; `None` for a connection over the network.
    pub fn peer_thread(&self) -> Option<u16> {
        match &self.way {
            Way::Engine(_) => None,
            Way::PeerThread(connection) => Some(connection.peer()),
        }
    }

    /// Returns the peer's address; the unspecified address for a peer thread.
    pub fn remote_address(&self) -> SocketAddr {
        self.engine()
            .map_or(NO_ADDRESS, EngineConnection::remote_address)
    }

    /// Returns the negotiated application protocol, once known: the ALPN, or the subprotocol of a WebTransport session.
    /// Connections to peer threads have none.
    pub fn protocol(&self) -> Option<String> {
        self.engine()?.protocol()
    }

    /// Returns what carries the session, with the URL that the client requested.
    pub fn carrier(&self) -> Carrier<'_> {
        self.engine()
            .map_or(Carrier::PeerThread, EngineConnection::carrier)
    }

    /// Returns whether the peer presented a certificate that the TLS configuration accepted.
    pub fn has_peer_certificate(&self) -> bool {
        self.engine()
            .is_some_and(EngineConnection::has_peer_certificate)
    }

    /// Returns whether streams could be used before the handshake completed, by resumption of an earlier session
    /// (0-RTT, RFC 9001 §4.6). Stays true after the handshake.
    pub fn has_early_data(&self) -> bool {
        self.engine().is_some_and(EngineConnection::has_early_data)
    }

    /// Returns whether the server accepted early data, once the handshake is complete. If it did not, all earlier
    /// streams are gone.
    pub fn is_early_data_accepted(&self) -> bool {
        self.engine()
            .is_some_and(EngineConnection::is_early_data_accepted)
    }

    /// Returns the size of the largest datagram that can be sent, in bytes; `None` if the peer does not support
    /// datagrams.
    pub fn datagram_size_max(&mut self) -> Option<usize> {
        match &mut self.way {
            Way::Engine(connection) => connection.datagram_size_max(),
            Way::PeerThread(_) => Some(usize::from(u16::MAX)),
        }
    }

    /// Sends `data` as a datagram as soon as the path permits; drops it at `deadline`. Beyond
    /// [`Limits::datagram_send_bytes_max`](crate::Limits), the oldest waiting datagrams are dropped.
    #[inline]
    pub fn send_datagram(
        &mut self,
        data: Bytes,
        deadline: Option<Instant>,
    ) -> Result<(), SendDatagramError> {
        match &mut self.way {
            Way::Engine(connection) => connection.send_datagram(data, deadline),
            Way::PeerThread(connection) => {
                // Messages to a peer thread are delivered within a turn, before any deadline.
                connection.send_datagram(data);
                Ok(())
            }
        }
    }

    /// Sends a packet that the peer has to acknowledge, so that bytes arrive within a round trip if the peer is alive.
    /// Does nothing for a peer thread.
    pub fn probe(&mut self) {
        if let Way::Engine(connection) = &mut self.way {
            connection.probe();
        }
    }

    /// Loses some packets of the connection from now on, until the next call. Does nothing for a peer thread.
    pub fn lose(&mut self, loss: Loss) {
        if let Way::Engine(connection) = &mut self.way {
            connection.slot.loss = loss;
        }
    }

    /// Sets the flow control window of all streams together, in bytes received (RFC 9000 §4.1). A smaller window takes
    /// effect as the peer uses up what it was already granted. Does nothing for a peer thread.
    pub fn set_receive_window(&mut self, bytes: u64) {
        if let Way::Engine(connection) = &mut self.way {
            connection.set_receive_window(bytes);
        }
    }

    /// Returns the connection's statistics; all zero if it has no packets.
    pub fn stats(&self) -> ConnectionStats {
        self.engine()
            .map_or_else(ConnectionStats::default, EngineConnection::stats)
    }

    /// Returns the connection if it is over the network.
    fn engine(&self) -> Option<&EngineConnection<'_>> {
        match &self.way {
            Way::Engine(connection) => Some(connection),
            Way::PeerThread(_) => None,
        }
    }
}

/// The address of a peer thread.
const NO_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl Transport for Connection<'_> {
    fn open(&mut self, direction: Direction) -> Option<StreamId> {
        with!(&mut self.way, connection => connection.open(direction))
    }

    fn read(&mut self, stream: StreamId) -> Read {
        with!(&mut self.way, connection => connection.read(stream))
    }

    fn read_all(&mut self, stream: StreamId, pieces: &mut Vec<Bytes>) -> Read {
        with!(&mut self.way, connection => connection.read_all(stream, pieces))
    }

    fn read_later(&mut self, stream: StreamId) {
        with!(&mut self.way, connection => connection.read_later(stream));
    }

    fn write(&mut self, stream: StreamId, data: &mut Bytes) -> Result<(), WriteError> {
        with!(&mut self.way, connection => connection.write(stream, data))
    }

    fn finish(&mut self, stream: StreamId) {
        with!(&mut self.way, connection => connection.finish(stream));
    }

    fn reset(&mut self, stream: StreamId, code: u64) {
        with!(&mut self.way, connection => connection.reset(stream, code));
    }

    fn stop(&mut self, stream: StreamId, code: u64) {
        with!(&mut self.way, connection => connection.stop(stream, code));
    }

    fn set_priority(&mut self, stream: StreamId, priority: i32) {
        with!(&mut self.way, connection => connection.set_priority(stream, priority));
    }

    fn close(&mut self, code: u64, reason: &[u8]) {
        with!(&mut self.way, connection => connection.close(code, reason));
    }
}
