//! A borrowed view of one connection, and what MOQT asks of it.

mod bare;
mod engine;

use std::{collections::VecDeque, net::SocketAddr, time::Instant};

use bytes::Bytes;
use weir_transport::{Direction, Read, StreamId, Transport, WriteError};

pub(crate) use self::{
    bare::{Bare, application_protocol, direction, from_engine},
    engine::EngineConnection,
};
use crate::{Event, Handle, crossing::Crossing, web_transport::Request};

/// One connection of an endpoint, borrowed for a few operations. What is written leaves when the host
/// next asks the endpoint for packets, or for letters if it leads to a neighbour.
pub struct Connection<'a> {
    pub(crate) handle: Handle,
    pub(crate) way: Way<'a>,
}

/// What a connection leads over.
pub(crate) enum Way<'a> {
    /// The network.
    Engine(EngineConnection<'a>),
    /// Nothing but memory, to another thread of this process.
    Crossing {
        crossing: &'a mut Crossing,
        events: &'a mut VecDeque<Event>,
    },
}

/// What carries a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier<'a> {
    /// The QUIC connection itself.
    Quic,
    /// WebTransport, with the client's request: always known once the session stands.
    WebTransport(Option<&'a Request>),
    /// Memory, to another thread of this process.
    Neighbour,
}

/// Why a datagram was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendDatagramError {
    /// The peer takes no datagrams (RFC 9221 §3).
    #[error("the peer does not accept datagrams")]
    Unsupported,
    /// Larger than the path or the peer allows; the limit in bytes.
    #[error("larger than the {0} bytes that fit a datagram")]
    TooLarge(usize),
}

/// Figures of one connection, at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ConnectionStats {
    /// Smoothed round-trip time.
    pub round_trip: std::time::Duration,
    /// Congestion window in bytes.
    pub congestion_window_bytes: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets declared lost.
    pub packets_lost: u64,
    /// UDP payload bytes sent.
    pub bytes_sent: u64,
    /// UDP payload bytes received.
    pub bytes_received: u64,
    /// Largest UDP payload that the path is known to carry.
    pub path_mtu_bytes: u16,
    /// Datagrams dropped to make room for newer ones.
    pub datagrams_dropped_oldest: u64,
    /// Datagrams dropped because their deadline had passed.
    pub datagrams_dropped_expired: u64,
    /// Datagrams received and dropped because newer ones came before they were fetched.
    pub datagrams_dropped_unread: u64,
    /// Bytes of datagrams that wait to be sent, without those already handed to the engine.
    pub datagram_bytes_waiting: usize,
}

impl Connection<'_> {
    /// The connection's handle.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// The number of the neighbour that it leads to; `None` if it leads over the network.
    pub fn neighbour(&self) -> Option<u16> {
        match &self.way {
            Way::Engine(_) => None,
            Way::Crossing { crossing, .. } => Some(crossing.neighbour()),
        }
    }

    /// The peer's address; the unspecified one for a neighbour.
    pub fn remote_address(&self) -> SocketAddr {
        match &self.way {
            Way::Engine(connection) => connection.remote_address(),
            Way::Crossing { .. } => SocketAddr::from(([0; 4], 0)),
        }
    }

    /// The application protocol agreed on, once the handshake has come so far: ALPN, or the subprotocol of
    /// a WebTransport session. There is none with a neighbour.
    pub fn protocol(&self) -> Option<String> {
        match &self.way {
            Way::Engine(connection) => connection.protocol(),
            Way::Crossing { .. } => None,
        }
    }

    /// What the connection carries the session on, and whom its session is asked for.
    pub fn carrier(&self) -> Carrier<'_> {
        match &self.way {
            Way::Engine(connection) => connection.carrier(),
            Way::Crossing { .. } => Carrier::Neighbour,
        }
    }

    /// Whether the peer proved who it is with a certificate, which the TLS configuration found to be good.
    pub fn has_peer_certificate(&self) -> bool {
        match &self.way {
            Way::Engine(connection) => connection.has_peer_certificate(),
            Way::Crossing { .. } => false,
        }
    }

    /// Whether streams can be used before the handshake is complete, thanks to a session of an earlier connection (0-RTT,
    /// RFC 9001 §4.6). True of a connection that has come further, if it was so.
    pub fn has_early_data(&self) -> bool {
        match &self.way {
            Way::Engine(connection) => connection.has_early_data(),
            Way::Crossing { .. } => false,
        }
    }

    /// Whether the server took what was sent early. Known when the handshake is complete; if it did not, all streams of
    /// before are gone.
    pub fn is_early_data_accepted(&self) -> bool {
        match &self.way {
            Way::Engine(connection) => connection.is_early_data_accepted(),
            Way::Crossing { .. } => false,
        }
    }

    /// The largest datagram that can be sent now, in bytes; `None` if the peer takes none.
    pub fn datagram_size_max(&mut self) -> Option<usize> {
        match &mut self.way {
            Way::Engine(connection) => connection.datagram_size_max(),
            Way::Crossing { .. } => Some(usize::from(u16::MAX)),
        }
    }

    /// Sends `data` as a datagram as soon as the path allows, unless `deadline` passes before. When
    /// more waits than [`Limits::datagram_send_bytes_max`](crate::Limits), the oldest are dropped.
    #[inline]
    pub fn send_datagram(
        &mut self,
        data: Bytes,
        deadline: Option<Instant>,
    ) -> Result<(), SendDatagramError> {
        match &mut self.way {
            Way::Engine(connection) => connection.send_datagram(data, deadline),
            Way::Crossing { crossing, .. } => {
                crossing.send_datagram(data);
                Ok(())
            }
        }
    }

    /// Sends something that a peer which is there has to acknowledge, so that bytes are received of it within a round
    /// trip; nothing to a neighbour.
    pub fn probe(&mut self) {
        match &mut self.way {
            Way::Engine(connection) => connection.probe(),
            Way::Crossing { .. } => {}
        }
    }

    /// Figures of the connection; all zero for a neighbour.
    pub fn stats(&self) -> ConnectionStats {
        match &self.way {
            Way::Engine(connection) => connection.stats(),
            Way::Crossing { .. } => ConnectionStats::default(),
        }
    }
}

impl Transport for Connection<'_> {
    fn open(&mut self, direction: Direction) -> Option<StreamId> {
        match &mut self.way {
            Way::Engine(connection) => connection.open(direction),
            Way::Crossing { crossing, .. } => crossing.open(direction),
        }
    }

    fn read(&mut self, stream: StreamId) -> Read {
        match &mut self.way {
            Way::Engine(connection) => connection.read(stream),
            Way::Crossing { crossing, events } => crossing.read(stream, events),
        }
    }

    fn read_all(&mut self, stream: StreamId, pieces: &mut Vec<Bytes>) -> Read {
        match &mut self.way {
            Way::Engine(connection) => connection.read_all(stream, pieces),
            Way::Crossing { crossing, events } => loop {
                match crossing.read(stream, events) {
                    Read::Data(data) => pieces.push(data),
                    end @ (Read::Fin | Read::Reset(_) | Read::Blocked) => return end,
                }
            },
        }
    }

    fn write(&mut self, stream: StreamId, data: &mut Bytes) -> Result<(), WriteError> {
        match &mut self.way {
            Way::Engine(connection) => connection.write(stream, data),
            Way::Crossing { crossing, .. } => crossing.write(stream, data),
        }
    }

    fn finish(&mut self, stream: StreamId) {
        match &mut self.way {
            Way::Engine(connection) => connection.finish(stream),
            Way::Crossing { crossing, .. } => crossing.finish(stream),
        }
    }

    fn reset(&mut self, stream: StreamId, code: u64) {
        match &mut self.way {
            Way::Engine(connection) => connection.reset(stream, code),
            Way::Crossing { crossing, .. } => crossing.reset(stream, code),
        }
    }

    fn stop(&mut self, stream: StreamId, code: u64) {
        match &mut self.way {
            Way::Engine(connection) => connection.stop(stream, code),
            Way::Crossing { crossing, events } => crossing.stop(stream, code, events),
        }
    }

    fn set_priority(&mut self, stream: StreamId, priority: i32) {
        match &mut self.way {
            Way::Engine(connection) => connection.set_priority(stream, priority),
            // Letters are all delivered within a turn.
            Way::Crossing { .. } => {}
        }
    }

    fn close(&mut self, code: u64, reason: &[u8]) {
        match &mut self.way {
            Way::Engine(connection) => connection.close(code, reason),
            Way::Crossing { crossing, .. } => crossing.close(code, reason),
        }
    }
}
